#!/bin/sh
# tools/x86_check.sh [FOLDER] - the CPU backend on this x86-64 machine, in one call: every row of the kernel list against
# the scalar one, whole models against their references and through every instruction set, then the table: decode
# against the rate at which memory is read, prompts, the thread count that is chosen against fixed ones, and the receipt of
# a timed run with the kernels it claims.
# FOLDER (or the folder this script lies in) is one that tools/bundle.sh made; without one the tree is built here.
# Environment: X86_CHECK_THREADS (default 1,4,8,16 as far as there are CPUs), X86_CHECK_REPEAT (3), X86_CHECK_SHAPE (2b-4t);
# X86_CHECK_EMULATOR runs the programs on another machine, such as "qemu-x86_64-static -cpu max".
# Exit status 1: something is wrong; slow is not wrong.
set -u
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$here}
[ "$(uname -m)" = x86_64 ] || [ -n "${X86_CHECK_EMULATOR:-}" ] || {
    echo "x86_check: this machine is $(uname -m); make a folder with tools/bundle.sh and run it on an x86-64 one" >&2
    exit 2
}
if [ -d "$folder/bin" ] && [ -d "$folder/lib" ]; then
    bin=$folder/bin models=$folder/models
    start="${X86_CHECK_EMULATOR:-} $folder/lib/ld-linux-x86-64.so.2 --library-path $folder/lib"
    export BITNET_SHARED="$folder/shared"
else
    "$here/bundle.sh" "$here/../build/bundle-here" || exit 1
    exec "$here/../build/bundle-here/run.sh"
fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
failed=0
n_cpus=$(nproc)
began=$(date +%s)

run() { # program arguments...
    program=$1
    shift
    # shellcheck disable=SC2086
    $start "$bin/$program" "$@"
}

echo "== $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $n_cpus CPUs, commit $(cat "$folder/commit")"
lscpu 2>/dev/null | sed -n 's/^\(Thread(s) per core\|L2 cache\|L3 cache\|NUMA node(s)\): */\1: /p' | paste -sd ';' -
echo "huge pages: $(cat /sys/kernel/mm/transparent_hugepage/enabled 2>/dev/null)"

# ---- right ----
check() { # name program arguments...
    name=$1
    shift
    if run "$@" >"$out/log" 2>&1; then
        skipped=$(sed -n 's/^\([a-z0-9_.]*\): not available on this CPU.*/\1/p' "$out/log" | paste -sd ' ' -)
        echo "ok      $name: $(sed -n 's/.*  PASSED  \] \([0-9]*\) .*/\1 tests/p' "$out/log" | head -n 1)${skipped:+; not on this CPU: $skipped}"
    else
        echo "FAILED  $name"
        grep -i 'error\|fail' "$out/log" | head -n 5
        failed=1
    fi
}
for t in test_kernels test_kernels_r16 test_kernels_vector test_attention test_head test_head_copy test_head_kernels test_weights test_model test_self_test; do check $t $t; done
for model in nano story; do
    [ -e "$models/golden-$model.gguf" ] &&
        BITNET_GOLDEN_QUICK=1 check "golden $model" test_golden $model "$models/golden-$model.gguf"
done

isas=''
want=''
for isa in scalar sse41 avx2 avxvnni avx512 avx512vnni amx; do
    text=$(run bitnet run --model "$models/story.gguf" --isa $isa --seed 7 -n 96 \
        "Once upon a time there was a little fox who lived near the sea" 2>"$out/log") || {
        grep -q 'not available on this CPU' "$out/log" && continue
        echo "FAILED  run --isa $isa: $(head -n 1 "$out/log")"
        failed=1
        continue
    }
    sum=$(printf %s "$text" | cksum)
    [ -z "$want" ] && want=$sum
    if [ "$sum" = "$want" ]; then isas="$isas $isa"; else
        echo "FAILED  run --isa $isa: another text than scalar"
        failed=1
    fi
done
echo "same text with:$isas"

# ---- fast ----
threads=${X86_CHECK_THREADS:-$(for n in 1 4 8 16; do [ $n -le "$n_cpus" ] && echo $n; done | paste -sd , -)}
shape=${X86_CHECK_SHAPE:-2b-4t}
few=$(echo "$threads" | tr , '\n' | grep -vx 8 | paste -sd , -)
bench() { # name arguments...: rows to $out/name
    name=$1
    shift
    run bitnet bench --device cpu --synthetic "$shape" --json --repeat "${X86_CHECK_REPEAT:-3}" "$@" >"$out/$name" 2>"$out/log" || {
        echo "FAILED  bench $*: $(head -n 1 "$out/log")"
        failed=1
    }
}
table() { # file label test
    awk -v label="$2" -v test="$3" '
        function num(key) { return match($0, "\"" key "\": *[-+0-9.e]*") ? substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0 : 0 }
        index($0, "\"test\": \"" test "\"") || index($0, "\"test\":\"" test "\"") {
            if (test ~ /^tg/)
                printf "%-7s %-11s %3d %9.2f tok/s %4.1f %% spread %7.1f GB/s of %6.1f = %5.1f %%\n", test, label, num("threads"), num("tok_s"), 100 * num("spread"), num("gb_s"), num("read_limit_gb_s"), 100 * num("share_of_read_limit")
            else
                printf "%-7s %-11s %3d %9.1f tok/s %4.1f %% spread %7.0f Gop/s of %6.0f = %5.1f %%\n", test, label, num("threads"), num("tok_s"), 100 * num("spread"), num("gop_s"), num("peak_gop_s"), 100 * num("share_of_peak")
        }' "$1"
}
kernels() { # file: those of linear layers and head, of all rows
    grep -o '"id": *"[^"]*"' "$1" | sed 's/.*"\([^"]*\)"$/\1/' | sort -u | paste -sd ' ' -
}
bench best --threads "$threads" --tests pp512,tg64 --receipt "$out/receipt.json"
bench avx2 --threads "$threads" --tests tg64 --isa avx2
echo "== decode: $shape; the limit is the rate at which so many threads read memory, in the same run"
table "$out/best" best tg64
table "$out/avx2" avx2 tg64
echo "== prompts: the limit is the rate of the best integer instruction of the set"
for isa in avx512vnni avx2; do
    case "$isas " in *" $isa "*)
        bench pp_$isa --threads "$few" --tests pp512 --isa $isa
        table "$out/pp_$isa" $isa pp512
        ;;
    esac
done
table "$out/best" best pp512
echo "== kernels of best: $(kernels "$out/best")"
echo "== kernels of avx2: $(kernels "$out/avx2")"

# ---- the number of threads that is chosen against every fixed one ----
counts=$(for n in 1 2 4 8 12 16; do [ $n -le "$n_cpus" ] && echo $n; done | paste -sd , -)
bench auto --threads "0,$counts" --tests tg64,pp128
echo "== threads: chosen, and the best of $counts; at least 95 % is asked"
awk '
    function num(key) { return match($0, "\"" key "\": *[-+0-9.e]*") ? substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0 : 0 }
    match($0, /"test": *"(tg64|pp128)"/) {
        test = substr($0, RSTART, RLENGTH) ~ /tg/ ? "tg64" : "pp128"
        if (!(test in chosen)) { chosen[test] = num("tok_s"); count[test] = num("threads") }
        else if (num("tok_s") > best[test]) { best[test] = num("tok_s"); at[test] = num("threads") }
    }
    END {
        for (test in chosen) {
            if (!(best[test] > 0)) { print test ": nothing to compare with"; slow = 1; continue }
            slow = slow || chosen[test] < 0.95 * best[test]
            printf "%-7s chosen %3d: %9.2f tok/s; best %3d: %9.2f; %5.1f %% %s\n", test, count[test], chosen[test], at[test], best[test],
                100 * chosen[test] / best[test], chosen[test] < 0.95 * best[test] ? "TOO SLOW" : "ok"
        }
        exit slow
    }' "$out/auto" || failed=1

# ---- claimed ----
if run bitnet receipt verify "$out/receipt.json" >"$out/log" 2>&1; then
    echo "receipt of the run with the most threads: passed; $(grep -o '[a-z0-9_]*\.\(avx512vnni\|avxvnni\|amx\)' "$out/receipt.json" | sort -u | paste -sd ' ' -)"
else
    echo "FAILED  receipt: $(head -n 2 "$out/log" | paste -sd ' ' -)"
    failed=1
fi
# ---- where a decode step goes ----
last=$(echo "$threads" | sed 's/.*,//')
echo "== a decode step at context 512, $last threads"
run bitnet bench --device cpu --synthetic "$shape" --threads "$last" --profile 2>&1 | grep -v '^limit' | head -n 24
echo "== $([ $failed = 0 ] && echo passed || echo FAILED), $(($(date +%s) - began)) s"
exit $failed
