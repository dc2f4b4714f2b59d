#!/bin/sh
# shellcheck disable=SC2015
# tools/gpu_check.sh [check|speed|facts|all] [FOLDER] - the CUDA backend on this machine's GPU, in one call. check: every kernel
# against cpu:scalar, whole models against their references, receipts, statistics, what can go wrong, the memory checker;
# facts: what is said of the device against what ran on it (part of check); speed: one table of speeds and sizes with what each
# must reach. FOLDER (or the folder this script lies in) has bin/, lib/
# and models/ as made by tools/gpu_bundle.sh; without one the tree is built here with the preset release. Kernels alone
# (tests/cuda) are checked and timed too where nvcc is installed and the sources are here. The last line is
# `N passed, N failed, N skipped`; exit status 1: something is wrong, missing, skipped or slower than it must be. What one
# GPU cannot show, two ranks of NCCL, is `excused`.
# Environment: GPU_CHECK_QUICK=1 leaves out kbench and the memory checker, and what is skipped then is no failure; OUT: a
# folder that keeps the logs and table.md.
#
# tools/gpu_check.sh --readme TABLE.md puts a table that was kept so into README.md.
set -u
PATH=$PATH:/usr/local/cuda/bin:/opt/cuda/bin # nvcc and compute-sanitizer, where the build finds them too
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/.." && pwd)
[ -d "$root/tests/cuda" ] || root=$(cd "$here/../.." && pwd)
programs="test_golden test_user test_exchange test_leaks test_device_stats test_timelines test_guide_gpu"

if [ "${1:-}" = --readme ]; then
    [ -s "${2:-}" ] && grep -q 'gpu_check.sh' "$root/README.md" || {
        echo "usage: tools/gpu_check.sh --readme TABLE.md" >&2
        exit 2
    }
    awk -v table="$2" '/<!-- gpu_check.sh -->/ { print; while ((getline line < table) > 0) print line; skipping = 1 }
        /<!-- end -->/ { skipping = 0 } !skipping' "$root/README.md" >"$root/README.md.new" &&
        mv "$root/README.md.new" "$root/README.md"
    exit
fi

phase=all
case ${1:-} in
check | speed | facts | all)
    phase=$1
    shift
    ;;
esac
folder=${1:-$here}
if [ -d "$folder/bin" ]; then
    bin=$folder/bin models=$folder/models
    GPU_BUNDLE=$folder
    # shellcheck source=tools/gpu_env.sh
    . "$folder/env.sh"
    start=$BITNET_START
else
    bin=$root/build/release models=$root/build/release/golden start=''
    "$root/tools/build" --everything || exit 1
    "$bin/bitnet" devices | grep -q '^cuda .*compiled yes' || {
        echo "this build has no CUDA backend: install the CUDA toolkit (nvcc), remove $bin and try again" >&2
        exit 1
    }
    # shellcheck disable=SC2086
    ninja -C "$bin" $programs emulated_cuda >"$root/build/gpu-check.log" 2>&1 || {
        tail -n 20 "$root/build/gpu-check.log"
        exit 1
    }
    for program in $programs; do
        ln -sf "$bin/tests/$program" "$bin/$program"
    done
    export BITNET_SHARED="${BITNET_SHARED:-$root/../shared}"
    mkdir -p "$models"
    for model in nano nano-master story; do
        [ -e "$models/$model.gguf" ] || [ ! -e "$BITNET_SHARED/story-model/$model" ] ||
            "$bin/bitnet" convert "$BITNET_SHARED/story-model/$model" "$models/$model.gguf" --embedding f16 >/dev/null
    done
    [ -e "$models/llama2c.gguf" ] || [ ! -e "$BITNET_SHARED/third-party/stories260K.bin" ] ||
        "$bin/bitnet" convert "$BITNET_SHARED/third-party/stories260K.bin" "$models/llama2c.gguf" --type f32 --embedding f32 \
            --tokenizer "$BITNET_SHARED/third-party/tok512.bin" >/dev/null
fi
out=${OUT:-$(mktemp -d)}
passed=0 failed=0 skipped=0
began=$(date +%s)
table=$out/rows.txt
: >"$table"

run() { # seconds program arguments...
    limit=$1 program=$2
    shift 2
    # shellcheck disable=SC2086
    timeout "$limit" $start "$bin/$program" "$@"
}
say() { echo "== $* ($(($(date +%s) - began)) s)"; }
ok() {
    echo "ok      $*"
    passed=$((passed + 1))
}
bad() {
    echo "FAILED  $*"
    failed=$((failed + 1))
}
skip() {
    echo "skipped $*"
    skipped=$((skipped + 1))
}
excused() { echo "excused $*"; }
# row NAME VALUE BOUND UNIT [most]: one line of the table; less than BOUND (more, with `most`) is a failure
row() {
    verdict=$(awk -v v="$2" -v l="$3" -v most="${5:-}" \
        'BEGIN { print (v == "" ? "missing" : (most ? v + 0 <= l + 0 : v + 0 >= l + 0) ? "ok" : "not reached") }')
    printf '| %-46s | %10s | %8s %8s | %-9s | %s |\n' "$1" "$2" "${5:+at most}" "$3" "$4" "$verdict" >>"$table"
    if [ "$verdict" = ok ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
}
speed() { # file test depth: the median of a row
    awk -v t="$2" -v d="$3" '$1 == t && $3 == d { print $4 }' "$1" | head -n 1
}
why() { grep -E 'positions|documents|ERROR|LINE|error|no device|FAILED|FAIL' "$1" | head -n 8 | cut -c1-200; }

# refused CODE NAME WORDS command...: it must end with the code and say the words
refused() {
    code=$1 name=$2 words=$3
    shift 3
    "$@" >"$out/refused.txt" 2>&1
    rc=$?
    [ $rc = "$code" ] && grep -qE "$words" "$out/refused.txt" && ok "$name: $(grep -m 1 -E "$words" "$out/refused.txt" | cut -c1-150)" ||
        bad "$name: exit $rc instead of $code: $(head -c 250 "$out/refused.txt")"
}

program() { # name limit: one of our test programs on this GPU
    BITNET_TEST_REAL_GPU=1 BITNET_TEST_MODEL="$models/nano.gguf" run "$2" "$1" >"$out/$1.txt" 2>&1 &&
        ok "$1: $(grep -c '^\[       OK' "$out/$1.txt") tests" || {
        bad "$1"
        why "$out/$1.txt"
    }
}

golden() { # name model: against the references of other programs; the environment says on what
    [ -e "$models/$2.gguf" ] || {
        skip "golden $1: there is no reference data here"
        return
    }
    run 100 test_golden "$2" "$models/$2.gguf" >"$out/golden-$1.txt" 2>&1 && ok "golden $1" || {
        bad "golden $1"
        why "$out/golden-$1.txt"
    }
}

# ---- right, counted, honest ----
check_models() {
    for model in nano nano-master story llama2c; do
        BITNET_GOLDEN_DEVICE=cuda golden "$model" "$model"
    done
    say "several devices: virtual ranks on this one"
    for split in tensor layer; do
        BITNET_GOLDEN_DEVICE=cuda:0,cuda:0 BITNET_GOLDEN_SPLIT=$split golden "story over 2 virtual ranks on one device, split by $split" story
    done
    program test_exchange 60
    if [ -n "$start" ] && ! grep -q 'joined by NCCL' "$out/test_exchange.txt" && ldconfig -p | grep -q libnccl.so.2; then
        mkdir -p "$out/lib" # the folder's C library cannot load it: with this machine's, then
        for l in libpcre2-8 libjansson libcrypto libedit libtinfo libbsd libmd libcmocka; do
            ln -sf "$GPU_BUNDLE/lib/$l".so.* "$out/lib/"
        done
        LD_LIBRARY_PATH=$out/lib BITNET_TEST_REAL_GPU=1 timeout 60 "$bin/test_exchange" >"$out/nccl.txt" 2>&1 && cp "$out/nccl.txt" "$out/test_exchange.txt"
    fi
    if grep -q 'joined by NCCL' "$out/test_exchange.txt"; then
        ok "$(grep -o 'NCCL [0-9.]*' "$out/test_exchange.txt" | head -n 1): one rank"
        excused "NCCL with two ranks: it wants a device for each and refuses two on one"
    else
        skip "NCCL ($(sed -n 's/.*not NCCL: //p' "$out/test_exchange.txt" | tail -n 1))"
    fi
}

# A network whose layers are one kernel on compute capability 9.0, as text; `validate` has it with numbers.
check_layers() {
    mini="-m $out/mini.gguf -p abc --greedy -n 90 --ignore-eos"
    run 60 bitnet bench --synthetic mini-128 --tests pp8 --repeat 1 --device cpu --model-out "$out/mini.gguf" >"$out/mini.txt" 2>&1
    # shellcheck disable=SC2086
    {
        run 30 bitnet run --device cpu $mini >"$out/mini-cpu.bin" 2>>"$out/mini.txt"
        run 30 bitnet run --device cuda $mini --receipt "$out/mini.json" >"$out/mini-cuda.bin" 2>>"$out/mini.txt"
    }
    rm -f "$out/mini.gguf"
    [ -s "$out/mini-cpu.bin" ] && cmp -s "$out/mini-cpu.bin" "$out/mini-cuda.bin" && ok "mini-128: the CPU's text" ||
        bad "mini-128: the text differs from the CPU's: $(tail -n 1 "$out/mini.txt" | cut -c1-200)"
    if grep -q 'GPU_DEVICE.*compute capability 9\.0' "$out/mini.json"; then
        grep -q '"i2s_gpu_layers"' "$out/mini.json" && ok "mini-128: all layers in one kernel" || bad "mini-128: i2s_gpu_layers did not run"
    fi
}

# A prompt of several passes: the step of the next one comes by another stream while one runs.
check_beside() {
    long=$(yes 'Once upon a time there was a fox.' | head -n 40 | tr '\n' ' ')
    run 30 bitnet run --device cuda -m "$models/story.gguf" --greedy -n 2 --batch 64 --log-level debug "$long" >"$out/beside.txt" 2>&1
    leads=$(sed -n 's/.* tokens was there \(.*\) ms before the pass before it ended$/\1/p' "$out/beside.txt" | sort -g)
    [ -n "$leads" ] && [ "$(echo "$leads" | awk '$1 <= 0' | wc -l)" = 0 ] &&
        ok "prompts: $(echo "$leads" | wc -l) steps came beside the pass before, $(echo "$leads" | head -n 1) to $(echo "$leads" | tail -n 1) ms before it ended" ||
        bad "prompts: steps beside the pass before them: $(echo "$leads" | head -c 100) $(tail -n 1 "$out/beside.txt" | cut -c1-150)"
}

check_texts() {
    say texts
    ask="--greedy -n 60 --seed 1"
    # shellcheck disable=SC2086
    {
        a=$(run 30 bitnet run --device cpu --kv f32 -m "$models/story.gguf" $ask "Once upon a time" 2>/dev/null)
        b=$(run 30 bitnet run --device cuda --kv f32 -m "$models/story.gguf" $ask --receipt "$out/receipt.json" "Once upon a time" 2>"$out/run.txt")
        [ -n "$a" ] && [ "$a" = "$b" ] && ok "story: the CPU's text" || bad "story: the text differs from the CPU's"
        b=$(run 30 bitnet run --device cuda --precision fp32 -m "$models/llama2c.gguf" $ask "Once upon a time" 2>"$out/fp32.txt")
        for precision in fp16 bf16; do # a product of bf16 has three digits: its text may be another one
            c=$(run 30 bitnet run --device cuda --precision $precision -m "$models/llama2c.gguf" $ask --receipt "$out/$precision.json" \
                "Once upon a time" 2>"$out/$precision.txt")
            [ -n "$c" ] && { [ $precision = bf16 ] || [ "$c" = "$b" ]; } && grep -q "\"precision\": \"$precision\"" "$out/$precision.json" &&
                ok "float model in $precision: $(printf %s "$c" | head -c 60 | tr '\n' ' ')" ||
                bad "float model in $precision: $(printf %s "$c" | head -c 60 | tr '\n' ' '): $(head -c 200 "$out/$precision.txt")"
        done
    }
    check_beside
    check_layers
    run 30 bitnet receipt verify --require-gpu-kernels "$out/receipt.json" >"$out/verify.txt" 2>&1 &&
        ok "receipt: $(sed -n 's/.*"GPU_DEVICE": "\(.*\)".*/\1/p' "$out/receipt.json"), $(sed -n 's/.*"graph_replays": \([0-9]*\).*/\1/p' "$out/receipt.json") steps repeated" ||
        bad "receipt: $(head -n 2 "$out/verify.txt")"
    say "kernels compiled for the model"
    rm -rf "$out/cache"
    for kind in compiled "kept from before"; do
        # shellcheck disable=SC2086
        c=$(run 60 bitnet run --device cuda --kv f32 -m "$models/story.gguf" $ask --gpu-specialise --cache "$out/cache" -v \
            --receipt "$out/receipt-rtc.json" "Once upon a time" 2>"$out/rtc.txt")
        [ "$c" = "$a" ] && grep -q i2s_gpu_gemv_rtc "$out/receipt-rtc.json" && ! grep -q 'NVRTC.*cannot' "$out/rtc.txt" &&
            ok "specialised: $(grep -c "rtc for .*: $kind" "$out/rtc.txt") kernels $kind" ||
            bad "specialised: $(grep -m 1 -E 'NVRTC|nvrtc' "$out/rtc.txt" | cut -c1-200)"
    done
}

# What `bitnet kernels` says of this GPU against what ran: every kernel of the receipts is listed as available, and is the
# answer to a question for its key with one token or a prompt.
check_registry() {
    say "the list of kernels"
    run 30 bitnet kernels --device cuda >"$out/kernels.txt" 2>&1 || bad "kernels: $(tail -n 1 "$out/kernels.txt" | cut -c1-200)"
    awk '$NF == "yes" { print $1 }' "$out/kernels.txt" | sort >"$out/available.txt"
    for m in 1 16 512; do
        run 30 bitnet kernels --device cuda --for m=$m 2>>"$out/kernels.txt"
    done | awk '$NF == "selected" { print $1 }' | sort -u >"$out/answers.txt"
    for receipt in "$@"; do
        sed -n '/"kernel_calls": {/,/}/p' "$receipt" | grep -oE '"[^"]+": *[0-9]+' | cut -d '"' -f 2 | sort >"$out/ran.txt"
        absent=$(comm -23 "$out/ran.txt" "$out/available.txt" | tr '\n' ' ') other=$(comm -23 "$out/ran.txt" "$out/answers.txt" | tr '\n' ' ')
        [ -s "$out/ran.txt" ] && [ -z "$absent$other" ] && ok "${receipt##*/}: its $(wc -l <"$out/ran.txt") kernels are available and the answers" ||
            bad "${receipt##*/}: not listed as available: $absent; no answer: $other"
    done
}

fact() { # name said ran: the same, and something
    [ -n "$2" ] && [ "$2" = "$3" ] && ok "$1: $2" || bad "$1: said '$2', ran '$3'"
}
# What `devices` and `preflight` say of this GPU against what a run computed on, and against nvidia-smi.
check_facts() {
    say "what is said of the device"
    run 30 bitnet devices >"$out/devices.txt" 2>&1
    run 30 bitnet run --device cuda -v -m "$models/nano.gguf" --greedy -n 2 --receipt "$out/facts.json" x >/dev/null 2>"$out/facts.txt" ||
        bad "a run: $(tail -n 1 "$out/facts.txt" | cut -c1-200)"
    said() { sed -n '/^cuda /,/^hip /p' "$out/devices.txt" | sed -n "$1" | head -n 1; }
    ran() { sed -n "s/^.* device 0: \(.*\); opened in .* ms; memory policy [a-z]*: \(.*\)\$/$1/p" "$out/facts.txt" | head -n 1; }
    name=$(said 's/^Device 0: \(.*\) (CC [0-9.]*)$/\1/p') cc=$(said 's/^Device 0: .* (CC \([0-9.]*\))$/\1/p')
    fact device "$name, compute capability $cc, $(said 's/^  Multiprocessors: //p') multiprocessors, $(said 's/^  Memory: //p')" "$(ran '\1')"
    fact batches "$(said 's/^  Usable: yes, //p')" "$(ran '\2')"
    fact receipt "$name, compute capability $cc, CUDA $(said 's/^cuda .*, API \([0-9.]*\).*/\1/p')" \
        "$(sed -n 's/.*"GPU_DEVICE": *"\([^"]*\)".*/\1/p' "$out/facts.json" | head -n 1)"
    verdict=$(run 30 bitnet preflight --require 2>"$out/preflight.txt")
    fact "preflight ($?)" "$(echo "$verdict" | head -n 1)" "GPU preflight: ok, cuda computes on ${name:-nothing}"
    command -v nvidia-smi >/dev/null || {
        excused "nvidia-smi is not installed"
        return
    }
    smi() { nvidia-smi --query-gpu="$1" --format=csv,noheader,nounits | head -n 1; }
    driver=$(said 's/^cuda .*, driver \([0-9.]*\).*/\1/p')
    fact nvidia-smi "$name, $cc${driver:+, driver $driver}" "$(smi name), $(smi compute_cap)${driver:+, driver $(smi driver_version)}"
    # its memory has what the driver keeps for itself in it
    awk -v said="$(said 's/^  Memory: \(.*\) GB/\1/p')" -v smi="$(smi memory.total)" \
        'BEGIN { whole = smi * 1048576 / 1e9; exit !(said > 0.97 * whole && said <= whole + 0.06) }' &&
        ok "nvidia-smi: its memory is $(smi memory.total) MiB" || bad "memory: nvidia-smi has $(smi memory.total) MiB"
}

check_programs() {
    say "statistics, kernels of a program, streams, pools"
    program test_device_stats 60
    grep -h 'per token' "$out/test_device_stats.txt"
    program test_user 60
    grep -E '^(two|one) stream|^kernel ' "$out/test_user.txt"
    program test_leaks 60
    program test_timelines 200
    program test_guide_gpu 60
}

# ---- what can go wrong ----
# A driver that is too old, lost in a step, out of memory at every allocation: processors only, so it runs beside the rest,
# a process to a test.
begin_emulated() {
    [ -e "$bin/emulated/libcuda.so.1" ] || return 0
    emulated=$root/tests/gpu/test_emulated.py
    sed -n 's/^def \(test_[A-Za-z0-9_]*\)().*/\1/p' "$emulated" | BITNET=$bin/bitnet BITNET_BUILD=$bin \
        xargs -P "$(nproc)" -n 1 python3 "$emulated" >"$out/emulated.txt" 2>&1 &
    emulating=$!
}
# One that is skipped says so with exit code 77, which xargs takes for a failure: what they print counts.
end_emulated() {
    [ -n "${emulating:-}" ] || return 0
    wait "$emulating"
    right=$(grep -c '^ok ' "$out/emulated.txt") told=$(grep -c '^def test_' "$emulated")
    left=$(grep -c '^skip .*this machine has a driver' "$out/emulated.txt")
    [ "$right" -gt 0 ] && [ $((right + left)) = "$told" ] && ok "faults on the emulated device: $right tests, $left is not for a machine with a driver" || {
        bad "faults on the emulated device: $right of $told tests"
        why "$out/emulated.txt"
    }
}

check_failures() {
    say "what can go wrong"
    nano="-m $models/nano.gguf -n 1 x"
    # shellcheck disable=SC2086
    {
        refused 12 "cuda:7" "cuda:7 was requested, but there (is one device|are)" run 30 bitnet run --device cuda:7 $nano
        CUDA_VISIBLE_DEVICES='' refused 12 "hidden" "every CUDA device is hidden; unset" run 30 bitnet run --device cuda $nano
        CUDA_VISIBLE_DEVICES='' run 30 bitnet run --device auto $nano >/dev/null 2>&1 && ok "auto goes to the CPU" || bad "auto without a device"
        CUDA_VISIBLE_DEVICES='' refused 12 "strict" "hidden" run 30 bitnet run --device cuda --strict $nano
    }
    mkdir -p "$out/none" # found first, and no library: as if there were no driver
    echo none >"$out/none/libcuda.so.1"
    if [ -n "$start" ]; then
        refused 12 "no driver" "libcuda.so.1 is not installed; install the NVIDIA driver" timeout 30 "$folder/lib/ld-linux-x86-64.so.2" \
            --library-path "$out/none:$folder/lib" "$bin/bitnet" run --device cuda -m "$models/nano.gguf" -n 1 x
    else
        LD_LIBRARY_PATH=$out/none refused 12 "no driver" "libcuda.so.1 is not installed; install the NVIDIA driver" \
            run 30 bitnet run --device cuda -m "$models/nano.gguf" -n 1 x
    fi
}

check_memory_errors() {
    [ -z "${GPU_CHECK_QUICK:-}" ] && command -v compute-sanitizer >/dev/null || {
        skip "compute-sanitizer: asked to be quick, or it is not installed"
        return
    }
    for tool in memcheck racecheck; do
        # the race checker follows every access to shared memory, where blocks of the decode kernel wait: 40 s for one token
        [ $tool = memcheck ] && tokens=tg4 || tokens=tg1
        for what in "run -m $models/nano.gguf --greedy -n 4 x" "bench --synthetic mini-128 --tests $tokens,pp70,bt12 --repeat 1"; do
            # shellcheck disable=SC2086
            timeout 150 compute-sanitizer --tool $tool --report-api-errors no --error-exitcode 9 $start "$bin/bitnet" ${what%% *} --device cuda ${what#* } \
                >"$out/$tool.txt" 2>&1 && ok "compute-sanitizer $tool: ${what%% -*}" || {
                bad "compute-sanitizer $tool: $what"
                grep -E 'ERROR|Error|=====' "$out/$tool.txt" | head -n 6 | cut -c1-160
            }
        done
    done
}

check() {
    run 200 bitnet validate --device cuda --model "$models/nano.gguf" --quick >"$out/validate.txt" 2>&1 & # beside the others
    validating=$!
    begin_emulated
    check_models
    check_texts
    check_registry "$out/receipt.json" "$out/mini.json" "$out/fp16.json" "$out/bf16.json"
    check_facts
    check_programs
    check_failures
    check_memory_errors
    say "every kernel against cpu:scalar"
    wait $validating && ok "validate: $(grep -c ' pass ' "$out/validate.txt") cases" || {
        bad validate
        why "$out/validate.txt"
    }
    end_emulated
}

# ---- fast, and no larger than computed ----
bench() { # file arguments...
    file=$1
    shift
    run 150 bitnet bench --device cuda "$@" >"$file" 2>&1 || bad "bench $*: $(tail -n 2 "$file" | cut -c1-200)"
}

time_models() {
    say speed
    bench "$out/bench-f16.txt" --synthetic 2b-4t --head f16 --tests tg128 --depth 0,3967 --repeat 5
    bench "$out/bench-prompt.txt" --synthetic 2b-4t --head f16 --tests pp512 --repeat 5
    bench "$out/bench-q6k.txt" --synthetic 2b-4t --head q6_k --tests tg128 --depth 0 --repeat 5
    bench "$out/bench-batch.txt" --synthetic 2b-4t --head f16 --tests bt64 --depth 480 --repeat 3
    one=$(speed "$out/bench-f16.txt" tg128 0)
    long=$(speed "$out/bench-f16.txt" tg128 3967)
    row "decode, batch 1, context 128, f16 head" "$one" 1000 tokens/s
    row "decode, batch 1, context 128, q6_k head" "$(speed "$out/bench-q6k.txt" tg128 0)" 1000 tokens/s
    row "decode, batch 1, context 4096, of context 128" "$(awk -v a="$long" -v b="$one" 'BEGIN { if (b > 0) printf "%.1f", 100 * a / b }')" 70 "%"
    row "prompt of 512" "$(speed "$out/bench-prompt.txt" pp512 0)" 40000 tokens/s
    row "decode, batch 64, context 512" "$(speed "$out/bench-batch.txt" bt64 480)" 20000 tokens/s
}

# From a file in the page cache; the second time, so that the first one's memory was given back.
time_loading() {
    say "loading, memory, kernels one by one"
    run 100 bitnet bench --synthetic 2b-4t --head f16 --model-out "$out/2b.gguf" --tests pp1 --repeat 1 --device cpu >/dev/null 2>&1
    cat "$out/2b.gguf" >/dev/null
    for i in 1 2 3; do
        bench "$out/load-$i.txt" -m "$out/2b.gguf" --tests tg32 --repeat 1
    done
    row "weights to the device, page cache, median of 3" "$(sed -n 's/^load .*, \([0-9.]*\) GB\/s$/\1/p' "$out"/load-?.txt | sort -n | sed -n 2p)" 5 GB/s
    off=$(sed -n 's/^memory .*(\([-+0-9.]*\) %);.*/\1/p' "$out/load-3.txt")
    row "our memory against what was computed, one" "${off#[-+]}" 10 "% off" most
    off=$(sed -n 's/^memory .*(\([-+0-9.]*\) %);.*/\1/p' "$out/bench-batch.txt")
    row "our memory against what was computed, 64" "${off#[-+]}" 10 "% off" most
    sed -n 's/^memory .*; before us \([0-9.]*\) MB.*/apart: \1 MB of the driver (CUDA context) before us/p' "$out/load-3.txt"
    refused 6 "a context that does not fit" "the device's memory has .* left; ask for a smaller n_ctx" \
        run 60 bitnet run --device cuda -m "$out/2b.gguf" --kv f32 --ctx 1048576 -n 1 x
    rm -f "$out/2b.gguf"
    bench "$out/bench-kernels.txt" --synthetic 2b-4t --head f16 --kernels --tests tg1 --repeat 5
    bench "$out/profile.txt" --synthetic 2b-4t --head f16 --profile --depth 128
    row "GEMV compiled for 6912 x 2560, of the build's" "$(awk '$2 == 1 && $4 == 6912 && $6 == 2560 { us[$1] = $7 }
        END { if (us["i2s_gpu_gemv_rtc"] > 0) printf "%.1f", 100 * us["i2s_gpu_gemv"] / us["i2s_gpu_gemv_rtc"] }' "$out/bench-kernels.txt")" 100 "%"
    grep -q ' regs ' "$out/bench-kernels.txt" && grep -q 'decode step at depth 128' "$out/profile.txt" &&
        ok "launches and occupancy of $(grep -c ' regs ' "$out/bench-kernels.txt") kernels, $(grep -c ' regs ' "$out/profile.txt") in a step" || bad "bench --kernels, --profile"
}

time_kernels() {
    [ -z "${GPU_CHECK_QUICK:-}" ] && command -v nvcc >/dev/null && [ -d "$root/tests/cuda" ] || {
        skip "kbench: asked to be quick, or nvcc or the sources are not here"
        return
    }
    say "kernels alone"
    (cd "$root" && sh tests/cuda/build.sh "$out/kbench" >"$out/kbench-build.txt" 2>&1)
    timeout 120 "$out/kbench/kbench" >"$out/kbench.txt" 2>&1 && ok "kbench: $(grep -c '^ok' "$out/kbench.txt") checks" || {
        bad kbench
        grep '^FAILED' "$out/kbench.txt" | sort -u | head -n 6
    }
    rm -rf "$out/kbench"
    # as the backend launches it for one token: by bit planes, programmatic launch, norm as a kernel of its own
    gemv() { sed -n '/^GEMV cold/,/^GEMM/p' "$out/kbench.txt" | sed -n "s/^$1:.* one+pdl [0-9.]*(\([0-9.]*\)).*/\1/p" | head -n 1; }
    row "GEMV 13824 x 2560, cold" "$(gemv 13824x2560)" 1.8 TB/s
    row "GEMV 2560 x 6912, cold" "$(gemv 2560x6912)" 1.0 TB/s
    # the kernel of prompts, its columns divided as the backend does
    row "GEMM of prompts 13824 x 2560, 2048 tokens" "$(sed -n '/^GEMM of prompts/,$ s/^13824x2560 T=2048:.*\* [0-9.]*(\([0-9]*\)).*/\1/p' "$out/kbench.txt")" 300 TOPS
}

say "$(run 20 bitnet devices | sed -n 's/^Device 0: //p' | head -n 1)"
case $phase in
facts) check_facts ;;
check | all) check ;;
esac
if [ "$phase" = speed ] || [ "$phase" = all ]; then
    time_models
    time_loading
    time_kernels
    {
        echo "| what | measured | asked for | unit | |"
        echo "|---|---|---|---|---|"
        cat "$table"
    } >"$out/table.md"
    echo
    cat "$out/table.md"
    echo
fi
say end
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ] && { [ $skipped = 0 ] || [ -n "${GPU_CHECK_QUICK:-}" ]; }
