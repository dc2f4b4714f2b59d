#!/bin/sh
# shellcheck disable=SC2015
# tools/gpu_check.sh [FOLDER] - the CUDA backend on this machine's GPU, in one call: every kernel against cpu:scalar, whole
# models against their references, receipts, what can go wrong, the memory checker; then one table of speeds with what
# each must reach. FOLDER (or the folder this script lies in) has bin/, lib/ and models/ as made by tools/gpu_bundle.sh;
# without one the tree is built here with the preset release. Kernels alone (tests/cuda) are checked and timed too where
# nvcc is installed and the sources are here. Environment: GPU_CHECK_QUICK=1 leaves out kbench and the memory checker;
# OUT: a folder that keeps the logs. Exit status 1: something is wrong or slower than it must be.
set -u
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$here}
root=$(cd "$here/.." && pwd)
[ -d "$root/tests/cuda" ] || root=$(cd "$here/../.." && pwd)
if [ -d "$folder/bin" ]; then
    bin=$folder/bin models=$folder/models
    GPU_BUNDLE=$folder
    # shellcheck source=tools/gpu_env.sh
    . "$folder/env.sh"
    start=$BITNET_START
else
    "$root/tools/build" --everything || exit 1
    bin=$root/build/release models=$root/build/release/golden start=''
    for program in test_golden test_user test_link test_leaks; do
        [ -e "$bin/$program" ] || ln -sf "$bin/tests/$program" "$bin/$program"
    done
fi
out=${OUT:-$(mktemp -d)}
failed=0
began=$(date +%s)
table=$out/table.txt
: >"$table"

run() { # seconds program arguments...
    limit=$1 program=$2
    shift 2
    # shellcheck disable=SC2086
    timeout "$limit" $start "$bin/$program" "$@"
}
say() { echo "== $* ($(($(date +%s) - began)) s)"; }
ok() { echo "ok      $*"; }
bad() {
    echo "FAILED  $*"
    failed=1
}
# row NAME VALUE LEAST UNIT: one line of the table; less than LEAST is a failure
row() {
    verdict=$(awk -v v="$2" -v l="$3" 'BEGIN { print (v == "" ? "missing" : v + 0 >= l + 0 ? "ok" : "too slow") }')
    printf '| %-46s | %10s | %8s | %-9s | %s |\n' "$1" "$2" "$3" "$4" "$verdict" >>"$table"
    [ "$verdict" = ok ] || failed=1
}
speed() { # file test depth: the median of a row
    awk -v t="$2" -v d="$3" '$1 == t && $3 == d { print $4 }' "$1" | head -n 1
}

say "$(run 20 bitnet devices | sed -n 's/^Device 0: //p' | head -n 1)"

# ---- right ----
run 150 bitnet validate --device cuda --model "$models/nano.gguf" --quick >"$out/validate.txt" 2>&1 &&
    ok "validate: $(grep -c ' pass ' "$out/validate.txt") cases" || {
    bad validate
    grep -E 'FAIL|fail|error' "$out/validate.txt" | head -n 8 | cut -c1-160
}
for model in nano nano-master story llama2c; do
    [ -e "$models/$model.gguf" ] || continue
    BITNET_GOLDEN_DEVICE=cuda run 100 test_golden "$model" "$models/$model.gguf" >"$out/golden-$model.txt" 2>&1 &&
        ok "golden $model" || {
        bad "golden $model"
        grep -E 'positions|documents|ERROR|LINE|error' "$out/golden-$model.txt" | head -n 8
    }
done
say "several devices: virtual ranks on this one"
for split in tensor layer; do
    BITNET_GOLDEN_DEVICE=cuda:0,cuda:0 BITNET_GOLDEN_SPLIT=$split run 100 test_golden story "$models/story.gguf" >"$out/golden-$split.txt" 2>&1 &&
        ok "golden story over 2 virtual ranks on one device, split by $split" || {
        bad "golden story, split by $split"
        grep -E 'positions|documents|ERROR|LINE|error' "$out/golden-$split.txt" | head -n 8
    }
done
BITNET_TEST_REAL_GPU=1 run 60 test_link >"$out/link.txt" 2>&1 && ok "links between ranks: $(grep -c '^\[       OK' "$out/link.txt") tests" || {
    bad "links between ranks"
    grep -E 'ERROR|LINE|error' "$out/link.txt" | head -n 8
}
if [ -n "$start" ] && ! grep -q 'joined by NCCL' "$out/link.txt" && ldconfig -p | grep -q libnccl.so.2; then
    mkdir -p "$out/lib" # the folder's C library cannot load it: with this machine's, then
    for l in libpcre2-8 libjansson libcrypto libedit libtinfo libbsd libmd libcmocka; do
        ln -sf "$GPU_BUNDLE/lib/$l".so.* "$out/lib/"
    done
    LD_LIBRARY_PATH=$out/lib BITNET_TEST_REAL_GPU=1 timeout 60 "$bin/test_link" >"$out/nccl.txt" 2>&1 && cp "$out/nccl.txt" "$out/link.txt"
fi
if grep -q 'joined by NCCL' "$out/link.txt"; then
    ok "$(grep -o 'NCCL [0-9.]*' "$out/link.txt" | head -n 1): one rank; two on one device it refuses"
else
    echo "skipped NCCL ($(sed -n 's/.*not NCCL: //p' "$out/link.txt" | tail -n 1)); with it one GPU could have one rank only"
fi
say texts
ask="--greedy -n 60 --seed 1"
# shellcheck disable=SC2086
{
    a=$(run 30 bitnet run --device cpu --kv f32 -m "$models/story.gguf" $ask "Once upon a time" 2>/dev/null)
    b=$(run 30 bitnet run --device cuda --kv f32 -m "$models/story.gguf" $ask --receipt "$out/receipt.json" "Once upon a time" 2>"$out/run.txt")
    [ -n "$a" ] && [ "$a" = "$b" ] && ok "story: the CPU's text" || bad "story: the text differs from the CPU's"
}
run 30 bitnet receipt verify "$out/receipt.json" >"$out/verify.txt" 2>&1 && ok "receipt: $(sed -n 's/.*"backend_summary": "\(.*\)".*/\1/p' "$out/receipt.json" | head -n 1)" ||
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
say "kernels of a program, streams, pools"
BITNET_TEST_REAL_GPU=1 BITNET_TEST_MODEL="$models/nano.gguf" run 60 test_user >"$out/user.txt" 2>&1 &&
    ok "test_user: $(grep -c '^\[       OK' "$out/user.txt") tests" || {
    bad test_user
    grep -E 'ERROR|LINE|no device|FAILED' "$out/user.txt" | head -n 8 | cut -c1-200
}
grep -E '^(two|one) stream|^kernel ' "$out/user.txt"
BITNET_TEST_REAL_GPU=1 run 60 test_leaks >"$out/leaks.txt" 2>&1 && ok "what is forgotten is named" || bad "leaks: $(grep -m 1 ERROR "$out/leaks.txt")"
say "what can go wrong"
run 30 bitnet run --device cuda:7 -m "$models/nano.gguf" -n 1 x >"$out/index.txt" 2>&1
[ $? = 12 ] && ok "cuda:7: $(head -c 120 "$out/index.txt")" || bad "cuda:7: $(head -c 200 "$out/index.txt")"
CUDA_VISIBLE_DEVICES='' run 30 bitnet run --device cuda -m "$models/nano.gguf" -n 1 x >"$out/hidden.txt" 2>&1
[ $? = 12 ] && ok "hidden: $(head -c 120 "$out/hidden.txt")" || bad "hidden devices: $(head -c 200 "$out/hidden.txt")"
CUDA_VISIBLE_DEVICES='' run 30 bitnet run --device auto -m "$models/nano.gguf" -n 1 x >/dev/null 2>&1 && ok "auto goes to the CPU" ||
    bad "auto without a device"
if [ -z "${GPU_CHECK_QUICK:-}" ] && command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck; do
        # shellcheck disable=SC2086
        timeout 100 compute-sanitizer --tool $tool --report-api-errors no --error-exitcode 9 $start "$bin/bitnet" run --device cuda -m "$models/nano.gguf" \
            --greedy -n 4 "Once upon a time" >"$out/$tool.txt" 2>&1 && ok "compute-sanitizer $tool" || {
            bad "compute-sanitizer $tool"
            grep -E 'ERROR|Error|=====' "$out/$tool.txt" | head -n 6 | cut -c1-160
        }
    done
fi

# ---- fast ----
say speed
bench() { # file arguments...
    file=$1
    shift
    run 150 bitnet bench --device cuda --synthetic 2b-4t "$@" >"$file" 2>&1 || bad "bench $*: $(tail -n 2 "$file" | cut -c1-200)"
}
bench "$out/bench-f16.txt" --head f16 --tests tg128 --depth 0,3967 --repeat 5
bench "$out/bench-prompt.txt" --head f16 --tests pp512 --repeat 5
bench "$out/bench-q6k.txt" --head q6_k --tests tg128 --depth 0 --repeat 5
bench "$out/bench-batch.txt" --head f16 --tests bt64 --depth 480 --repeat 3
bench "$out/bench-kernels.txt" --head f16 --kernels --tests tg1 --repeat 5
one=$(speed "$out/bench-f16.txt" tg128 0)
long=$(speed "$out/bench-f16.txt" tg128 3967)
row "decode, batch 1, context 128, f16 head" "$one" 1000 tokens/s
row "decode, batch 1, context 128, q6_k head" "$(speed "$out/bench-q6k.txt" tg128 0)" 1000 tokens/s
row "decode, batch 1, context 4096, of context 128" "$(awk -v a="$long" -v b="$one" 'BEGIN { if (b > 0) printf "%.1f", 100 * a / b }')" 70 "%"
row "prompt of 512" "$(speed "$out/bench-prompt.txt" pp512 0)" 40000 tokens/s
row "GEMV compiled for 6912 x 2560, of the build's" "$(awk '$2 == 1 && $4 == 6912 && $6 == 2560 { us[$1] = $7 }
    END { if (us["i2s_gpu_gemv_rtc"] > 0) printf "%.1f", 100 * us["i2s_gpu_gemv"] / us["i2s_gpu_gemv_rtc"] }' "$out/bench-kernels.txt")" 100 "%"
row "decode, batch 64, context 512" "$(speed "$out/bench-batch.txt" bt64 480)" 20000 tokens/s
if [ -z "${GPU_CHECK_QUICK:-}" ] && command -v nvcc >/dev/null && [ -d "$root/tests/cuda" ]; then
    say kernels
    (cd "$root" && sh tests/cuda/build.sh "$out/kbench" >"$out/kbench-build.txt" 2>&1)
    timeout 120 "$out/kbench/kbench" >"$out/kbench.txt" 2>&1 && ok "kbench: $(grep -c '^ok' "$out/kbench.txt") checks" || {
        bad kbench
        grep '^FAILED' "$out/kbench.txt" | sort -u | head -n 6
    }
    rm -rf "$out/kbench"
    gemv() { sed -n "/^GEMV cold/,/^GEMM/p" "$out/kbench.txt" | sed -n "s/^$1: //p" | grep -o 'ldg[a-z0-9]*+pdl [0-9.]*([0-9.]*)' | sed 's/.*(\(.*\))/\1/' | sort -n | tail -n 1; }
    row "GEMV 13824 x 2560, cold" "$(gemv 13824x2560)" 1.8 TB/s
    row "GEMV 2560 x 6912, cold" "$(gemv 2560x6912)" 1.0 TB/s
    row "GEMM 13824 x 2560, 2048 tokens" "$(grep '^13824x2560 T=2048' "$out/kbench.txt" | grep -o '([0-9]*)' | tr -d '()' | sort -n | tail -n 1)" 300 TOPS
fi
say end
echo
echo "| what | measured | at least | unit | |"
echo "|---|---|---|---|---|"
cat "$table"
exit $failed
