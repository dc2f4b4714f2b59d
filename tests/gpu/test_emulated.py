#!/usr/bin/env python3
"""The CUDA backend's host side without a GPU: an emulated libcuda (emulated_cuda.c) runs reference kernels on the CPU, or
with compute capability 9.0 what the fast kernels mean. Texts must be the CPU's; every failure has its message, remedy and
exit code; only --device auto continues on the CPU."""
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
from harness import BITNET, QUICK, Skip, check, equal, expect, fails, main, model, run, shared, temp  # noqa: E402

BUILD = os.environ.get("BITNET_BUILD", os.path.dirname(BITNET))
EMULATED = os.path.join(BUILD, "emulated")
NO_COPY = "cuMemAlloc 26 2"  # nano's weights are 25 pieces; the copy of the head comes behind them
ASK = ("-p", "Once upon a time", "--greedy", "-n", "40")


def need():
    if not os.path.exists(os.path.join(EMULATED, "libcuda.so.1")):
        raise Skip("the CUDA backend is not compiled in")


def with_gpu(cc=None, **more):
    """An environment with the device; more: FAIL, MEMORY, VERSION."""
    need()
    env = {"LD_LIBRARY_PATH": EMULATED, **{"BITNET_EMULATED_" + k: str(v) for k, v in more.items()}}
    return {**env, "BITNET_EMULATED_CC": str(cc)} if cc else env


def text(env, *args):
    return expect(0, "run", "-m", model("nano"), *ASK, *args, env=env).out


def images():
    """How many images of kernels the command carries."""
    with open(os.path.join(BUILD, "cuda", "images.inc"), encoding="utf-8") as f:
        return f.read().count("IMAGE(") - 1  # one is in the comment


def test_texts_are_the_cpus():
    """One pass for the prompt, recorded steps after it, every type of cache, with and without the fast kernels."""
    for kv in ("f32", "f16", "int8"):
        want = text(None, "--device", "cpu", "--kv", kv)
        for cc in (0, 90):
            equal(text(with_gpu(cc), "--device", "cuda", "--kv", kv), want, f"compute capability {cc}, {kv}")


def test_P_1_memory_in_stream_order():
    """From a pool of our own, from the device's where that cannot be made, and plain: one text, and nothing is left behind."""
    want = text(None, "--device", "cpu")
    for more in ({"POOLS": 1}, {"POOLS": 1, "FAIL": "cuMemPoolCreate 1 801"}, {}):
        r = expect(0, "run", "-m", model("nano"), *ASK, "--device", "cuda", env=with_gpu(90, **more))
        equal(r.out, want, more)
        check("pieces in use" not in r.err, r.err[-300:])
    fails(6, "run", "-m", model("nano"), *ASK, "--device", "cuda",
          env=with_gpu(90, POOLS=1, FAIL="cuMemAllocFromPoolAsync -5 2"), says="do not fit|memory")


def test_P_2_prompts_copy_beside_the_pass():
    """From the third pass of a prompt on its step is on the device when it begins: it came by another stream while the pass before
    ran, which ended later (the first pass takes the memory, the second brings the third's). Passes of one token are recorded
    work and fetch theirs. Where such a copy fails, the pass it was beside does."""
    def prompt(batch):
        return ("run", "-m", model("nano"), "--greedy", "-n", "8", "--ignore-eos", "--batch", str(batch), "-p", "Once upon a time there was a fox. " * 5)

    want = expect(0, *prompt(512), "--device", "cpu").out
    n = expect(0, *prompt(512), "--device", "cpu", "--json").json()["counts"]["prompt"]
    for batch, more in ((16, {}), (16, {"POOLS": 1}), ((n - 1) // 2, {}), (512, {})):
        r = expect(0, *prompt(batch), "--device", "cuda", "--log-level", "debug", env=with_gpu(90, **more))
        equal(r.out, want, (batch, more))
        leads = [float(x) for x in re.findall(r"a step of \d+ tokens was there (-?[0-9.]+) ms before the pass before it ended", r.err)]
        sizes = [min(batch, n - i) for i in range(0, n, batch)]
        equal(len(leads), sum(s > 1 for s in sizes[2:]), f"passes of {sizes}")
        check(all(ms > 0 for ms in leads), leads)
    r = expect(0, *prompt(16), env=with_gpu(90, FAIL="cuStreamWaitEvent 2 1"), says="copying during a pass")
    equal(r.out, want, "the CPU goes on")


def test_auto_takes_the_device():
    r = expect(0, "run", "-m", model("nano"), *ASK, "-v", env=with_gpu(90), says=r"detected=\[cuda,cpu\] selected=cuda")
    check("i2s_gpu_gemv" in r.err and "cuda: device 0: emulated device" in r.err, r.err)


def synthetic(name):
    path = temp(name + ".gguf")
    if not os.path.exists(path):
        expect(0, "bench", "--synthetic", name, "--tests", "pp8", "--repeat", "1", "--model-out", path)
    return path


def test_DET_15_all_layers_in_one_kernel():
    """A network whose shape the kernel of a whole step takes, over more than one block of the cache; and the general way."""
    gguf = synthetic("mini-128")
    args = ("run", "-m", gguf, "-p", "abc", "--greedy", "-n", "90", "--ignore-eos", "--device")
    want = expect(0, *args, "cpu").raw
    r = expect(0, *args, "cuda", "--log-level", "debug", env=with_gpu(90), says="i2s_gpu_layers")
    equal(r.raw, want, "in one kernel")
    sm = re.search(r"(\d+) multiprocessors", r.err).group(1)
    check(f"a persistent grid of {sm} blocks" in r.err, r.err)
    want = expect(0, *args, "cpu", "--kv", "int8").raw
    r = expect(0, *args, "cuda", "--kv", "int8", "-v", env=with_gpu(90))
    equal(r.raw, want, "int8 cache")
    check("i2s_gpu_layers" not in r.err, r.err)


def test_a_launch_that_may_not_start_early():
    """A driver that takes the kernel of all layers only without an early start: the same text, every launch counted. One that
    does not take it at all: its own code in the error."""
    gguf, path = synthetic("mini-128"), temp("refused.json")
    args = ("run", "-m", gguf, "-p", "abc", "--greedy", "-n", "9", "--ignore-eos", "--device", "cuda", "--json", "--receipt", path)
    seen = []
    for more in ({}, {"REFUSE": "both 801"}):
        r = expect(0, *args, env=with_gpu(90, **more)).json()
        with open(path, encoding="utf-8") as f:
            seen.append((r["text"], r["stats"]["performance"]["launches"], json.load(f)["kernel_calls"]))
    equal(seen[1], seen[0], "text, launches, calls")
    expect(12, *args, env=with_gpu(90, REFUSE="cooperative 720"),
           says=r"i2s_gpu_layers: CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE \(720\)")


def test_prompts_take_tiles():
    """Prompts of more tokens than the GEMV takes, and of more than one tile has: as on the CPU."""
    path, words = temp("tiles.json"), "Once upon a time there was a little girl who had a big red ball and a dog. "
    for prompt in (words, 9 * words):
        args = ("run", "-m", model("nano"), "-p", prompt, "--greedy", "-n", "20", "--device")
        want = expect(0, *args, "cpu").out
        equal(expect(0, *args, "cuda", "--receipt", path, env=with_gpu(90)).out, want, "text")
        with open(path, encoding="utf-8") as f:
            kernels = json.load(f)["kernels"]
        check({"i2s_gpu_gemm_tiles", "norm_tiles_gpu"} <= set(kernels), kernels)


def test_functions_are_told_their_shared_memory_once():
    """Not at every launch: a prompt's pass has hundreds. What the driver refuses the first time is still an error."""
    args = ("bench", "--synthetic", "mini-128", "--tests", "pp64", "-r", "8", "--device", "cuda", "--json")
    expect(0, *args, env=with_gpu(90, FAIL="cuFuncSetAttribute 12 1"))
    r = run(*args, env=with_gpu(90, FAIL="cuFuncSetAttribute 3 1"))
    check(r.code != 0 and "CUDA_ERROR_INVALID_VALUE" in r.err, r.err)


def test_a_head_of_codes_by_the_number_of_rows():
    """Five to eight rows are taken by the kernel of many where it is the faster one and sums need no fixed order."""
    def head_of(test, *more, cc=90):
        r = expect(0, "bench", "--synthetic", "mini-128", "--head", "q8_0", "--tests", test, "-r", "1", "--device", "cuda", "--json", *more,
                   env=with_gpu(cc))
        return sorted({k for k in ("gemv_q8_0_gpu", "gemm_q8_0_gpu_split") if f'"{k}"' in r.out})
    for test, cc, more, want in (("bt4", 90, (), "gemv_q8_0_gpu"), ("bt5", 90, (), "gemm_q8_0_gpu_split"), ("bt8", 90, (), "gemm_q8_0_gpu_split"),
                                 ("bt8", 90, ("--batch-invariant",), "gemv_q8_0_gpu"), ("bt8", 80, (), "gemv_q8_0_gpu")):
        equal(head_of(test, *more, cc=cc), [want], f"{test} {cc} {more}")


def test_sampling_uses_the_best_of_the_device():
    for how in (("--temperature", "0.8", "--seed", "7"), ("--top-k", "5", "--temperature", "1", "--seed", "3"),
                ("--repeat-penalty", "1.3", "--greedy")):
        args = ("-m", model("nano"), "-p", "The rain", "-n", "40", *how)
        want = expect(0, "run", *args, "--device", "cpu", "--kv", "f32").out
        equal(expect(0, "run", *args, "--device", "cuda", "--kv", "f32", env=with_gpu(90)).out, want, how)


def test_a_reply_does_not_begin_with_its_end():
    """The likeliest first token is one that ends: the device passes over it as the CPU does, and goes on as ever."""
    def replies(env, device, *more):
        r = expect(0, "chat", "-m", model("nano"), "--json", "-s", "3", "-n", "20", "--device", device, *more,
                   stdin=b"Hello!\nTell me a story\n", env=env)
        return [json.loads(line)["ids"] for line in r.out.splitlines()]

    for sampling in (("--greedy",), ("--temperature", "0.8"), ("--top-k", "0", "--repetition-penalty", "1.2")):
        end = ("--stop-id", str(replies(None, "cpu", *sampling)[0][0]))
        want = replies(None, "cpu", *sampling, *end)
        check(all(len(ids) > 1 and str(ids[0]) != end[1] for ids in want), f"{sampling}: {want}")
        for cc in (0, 90):
            equal(replies(with_gpu(cc), "cuda", *sampling, *end), want, f"compute capability {cc}, {sampling}")


def test_a_head_and_its_copy():
    """The best logits come from a copy of the head in int8 and the rows it cannot rule out; without memory for the copy, and
    where all logits are read, from the head itself. The text and the logits are the same, and receipts tell them apart."""
    path, seen = temp("screened.json"), []
    for more in ({}, {"FAIL": NO_COPY}):
        out = text(with_gpu(90, **more), "--device", "cuda", "--receipt", path)
        with open(path, encoding="utf-8") as f:
            receipt = json.load(f)
        check("f16" in receipt["quantization"]["types_used"], receipt["quantization"])
        expect(0, "receipt", "verify", path, env=with_gpu(90))
        seen.append((out, {k for k in receipt["kernels"] if k in ("screen_f16_gpu", "gemv_f16_gpu", "topk_gpu")}))
    equal(seen[0][0], seen[1][0], "text")
    equal([s[1] for s in seen], [{"screen_f16_gpu"}, {"gemv_f16_gpu", "topk_gpu"}], "kernels")
    logits = [temp(n) for n in ("screened.bin", "plain.bin")]
    text(with_gpu(90), "--device", "cuda", "--dump-logits", logits[0], "--receipt", path)
    text(with_gpu(90, FAIL=NO_COPY), "--device", "cuda", "--dump-logits", logits[1])
    equal(*(open(n, "rb").read() for n in logits), "all logits")
    with open(path, encoding="utf-8") as f:
        check("gemv_f16_gpu" in json.load(f)["kernels"], "all logits are the head's own")
    bench = ("bench", "-m", model("nano"), "--device", "cuda", "--tests", "tg4", "--repeat", "1", "--json")
    with_copy, without = [[r for r in json_lines(expect(0, *bench, env=with_gpu(90, **more))) if r["test"] == "memory"][0]
                          for more in ({}, {"FAIL": NO_COPY})]
    equal(with_copy["weights"] - without["weights"], 512 * (256 + 16), "the copy is one of the weights")
    equal(with_copy["session"], without["session"], "sessions take the same")


def test_a_copy_of_the_head_costs_nobody_memory():
    """It is made when all weights are there and given back when something else lacks memory, whatever that is: a model and a session
    for which there is just enough without it run with it, too, and give the same text. Where no pass would use it there is none."""
    want, args = text(None, "--device", "cpu"), ("--device", "cuda", "--log-level", "debug", "-m", model("nano"), *ASK)
    made, back, seen = "a copy of the head in int8", "the copy of the head is given back", 0
    for at in range(27, 60, 9 if QUICK else 1):
        r = expect(0, "run", *args, env=with_gpu(90, FAIL=f"cuMemAlloc {at} 2"), says=made)
        equal(r.out, want, f"allocation {at}")
        seen += back in r.err
    check(seen >= (2 if QUICK else 20), f"given back {seen} times")

    def least(**more):  # memory with which a large session can be opened and runs
        low, high = 10**7, 10**8
        while high - low > 20000:
            half = (low + high) // 2
            r = run("run", *args, "--ctx", "16384", "--kv", "f32", env=with_gpu(90, MEMORY=half, **more))
            low, high = (low, half) if r.code == 0 else (half, high)
        return high

    equal(least(), least(WITHOUT="bnet_screen_f16 500"), "memory that is needed")
    floats = temp("floats.gguf")
    expect(0, "convert", shared("third-party/stories260K.bin"), "--tokenizer", shared("third-party/tok512.bin"), "--type", "f32", "-o", floats)
    r = expect(0, "run", "-m", floats, *ASK, "--kv", "f32", "--device", "cuda", "--log-level", "debug", env=with_gpu(90))
    check(made not in r.err, "passes of float models are composed")


def test_golden_on_the_emulated_device():
    need()
    program, gguf = os.path.join(BUILD, "tests", "test_golden"), os.path.join(BUILD, "golden", "nano.gguf")
    if not (os.path.exists(program) and os.path.exists(gguf)):
        raise Skip("the golden model was not converted in this build")
    env = {**os.environ, **with_gpu(90), "BITNET_GOLDEN_DEVICE": "cuda", "BITNET_GOLDEN_QUICK": "1"}
    r = subprocess.run([program, "nano", gguf], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    check(r.returncode == 0, r.stdout.decode()[-1500:])


def test_receipt_lists_the_gpus_kernels():
    path = temp("receipt.json")
    expect(0, "run", "-m", model("nano"), *ASK, "--device", "cuda", "--receipt", path, env=with_gpu(90))
    with open(path, encoding="utf-8") as f:
        receipt = json.load(f)
    equal(receipt["backend"], "cuda", "backend")
    equal(receipt["compute_path"], "real", "compute_path")
    check("i2s_gpu_gemv" in receipt["kernels"], receipt["kernels"])
    expect(0, "receipt", "verify", path, env=with_gpu(90))
    replays = receipt["graph_replays"]
    check(35 <= replays < 40 and receipt["kernel_calls"]["step_gpu"] >= replays, receipt["kernel_calls"])
    check(re.match(r"emulated device, compute capability 9.0, CUDA \d", receipt["environment"]["GPU_DEVICE"]), receipt["environment"])
    for change, says in (({"graph_replays": replays + 9}, "steps were fetched only"),
                         ({"environment": {**receipt["environment"], "GPU_DEVICE": "none"}}, "GPU_DEVICE"),
                         ({"environment": {**receipt["environment"], "GPU_INFO": "no GPU backend available"}}, "does not name cuda"),
                         ({"environment": {**receipt["environment"], "GPU_INFO": "cuda 1 device(s) (CUDA 13.0)"}}, "another driver"),
                         ({"environment": {**receipt["environment"], "GPU_DEVICE": "NVIDIA H200, compute capability 9.0, CUDA 99.0"}},
                          "is not of a driver of version 99"),
                         ({"environment": {**receipt["environment"], "GPU_DEVICE": "emulated device, compute capability 7.5, CUDA 99.0"}},
                          "needs compute capability 9.0")):
        with open(path, "w", encoding="utf-8") as f:
            json.dump({**receipt, **change}, f)
        fails(13, "receipt", "verify", path, env=with_gpu(90), says=says)


def test_V_9_validate_names_the_device():
    r = run("validate", "--device", "cuda", "--quick", "--kernel", "add_gpu", env=with_gpu(90))
    check("device cuda: emulated device, compute capability 9.0" in r.out, r.out[:300])


# ---- what bench shows ----

def json_lines(r):
    return [json.loads(line) for line in r.out.splitlines()]


def test_ST_4_K_23_bench_shows_kernels():
    """Every kernel of a step with its time, and every kernel of a shape with its rate, each with how it was launched."""
    if QUICK:
        raise Skip("minutes in a sanitizer's build; its times mean nothing there")
    bench = ("bench", "-m", model("nano"), "--device", "cuda", "--depth", "64", "--repeat", "2", "--tests", "tg4")
    rows = json_lines(expect(0, *bench, "--profile", "--json", env=with_gpu(90)))
    profile = [r for r in rows if r["test"] == "profile"][0]
    times = {k["kernel"]: k for k in profile["kernels"]}
    check({"i2s_gpu_gemv", "screen_f16_gpu", "step_gpu"} <= set(times), times)
    equal(times["i2s_gpu_gemv"]["launches"], 2 * 4 * 5, "four matrices a layer, 5 steps")
    check(profile["kernels_ms_per_step"] > 0 and profile["ms_per_step"] > 0, profile)
    rates = [r for r in json_lines(expect(0, *bench, "--kernels", "--json", env=with_gpu(90))) if r["test"] == "kernel"]
    check({"i2s_gpu_gemv", "i2s_gpu_gemm_wgmma", "i2s_gpu_ref", "gemv_f16_gpu"} <= {r["kernel"] for r in rates}, rates)
    for r in (*rates, *times.values()):
        launch = r["launch"]
        check(launch["grid"][0] > 0 and launch["block"] > 0 and launch["registers"] > 0, r)
        check(launch["blocks_per_sm"] > 0 and 0 < launch["occupancy"] <= 1, r)
    check(all(r["ms"] > 0 and r["gb_s"] > 0 and r["gop_s"] > 0 for r in rates), rates)
    out = expect(0, *bench, "--profile", env=with_gpu(90)).out
    check("decode step at depth 64" in out and "regs" in out, out)


def ranges(*args, **more):
    path = temp("ranges.txt")
    if os.path.exists(path):
        os.remove(path)
    r = expect(0, "run", "-m", model("nano"), *ASK, "--ignore-eos", *args, env={**with_gpu(90), "BITNET_EMULATED_NVTX": path, **more})
    with open(path, encoding="utf-8") if os.path.exists(path) else open(os.devnull, encoding="utf-8") as f:
        return r, f.read().splitlines()


def test_ST_4_ranges_for_profilers():
    """Every tensor on its way, every pass and its phases, nested; none unless asked for; a missing library is told."""
    want = text(None, "--device", "cpu", "--ignore-eos")
    for env in ({}, {"BITNET_NVTX": "1"}):
        r, lines = ranges("--device", "cuda", *(() if env else ("--nvtx",)), **env)
        equal(r.out, want, "text")
        at = [line.startswith("prompt: ") for line in lines].index(True)
        check("blk.0.attn_q.weight" in lines[:at] and "output_norm.weight" in lines[:at], lines[:at])
        equal(lines[at + 1:at + 6], ["  launch", "decode: 1 timelines", "  launch", "decode: 1 timelines", "  record"], "first")
        equal(lines[at + 6:at + 9], ["  repeat", "decode: 1 timelines", "  repeat"], "later")
        check(not any("closed" in line for line in lines), lines[-3:])
    _, lines = ranges("--device", "cuda:0,cuda:0", "--split", "tensor", "--nvtx")
    check(lines.count("step of several ranks") >= 40 and not any("closed" in line for line in lines), lines[-5:])
    equal(ranges("--device", "cuda")[1], [], "not asked for")
    alone = temp("only-libcuda")
    os.makedirs(alone, exist_ok=True)
    for name in ("libnvtx3interop.so.1", "libnvToolsExt.so.1"):  # none of the machine's either
        open(os.path.join(alone, name), "w", encoding="utf-8").close()
    missing = {"LD_LIBRARY_PATH": alone + ":" + EMULATED}
    r, _ = ranges("--device", "cuda", "--nvtx", **missing)
    check(r.out == want and "nvtx: the library libnvtx3interop.so.1 is not installed: no ranges are marked" in r.err, r.err)
    fails(12, "run", "-m", model("nano"), *ASK, "--device", "cuda", "--nvtx", "--strict", env={**with_gpu(90), **missing},
          says="nvtx: .* is not installed: install the CUDA toolkit's NVTX")
    fails(12, "run", "-m", model("nano"), *ASK, "--device", "cpu", "--nvtx", "--strict", says="nvtx: ranges are marked on CUDA devices alone")


def test_K_27_run_asks_for_no_more_than_it_needs():
    """What --json adds reads no logits: per token a step goes up and the best come back."""
    down = {}
    for n in (10, 30):
        r = expect(0, "run", "-m", model("nano"), "-p", "abc", "--greedy", "-n", str(n), "--ignore-eos", "--json", "--device",
                   "cuda", env=with_gpu(90))
        down[n] = r.json()["stats"]["performance"]
    equal(down[30]["d2h_bytes"] - down[10]["d2h_bytes"], 20 * 64 * 8, "64 logits with their ids a token")
    equal(down[30]["d2h"] - down[10]["d2h"], 20, "one transfer a token")


def test_C_4_weights_move_on_demand():
    """To the device when a model is opened to compute there, all of the file's weights once, whatever their type; not for the
    CPU, nor to take a text apart."""
    need()
    for kind in ("i2_s", "tq2_0", "tq1_0", "f16"):
        gguf = temp(f"moved-{kind}.gguf")
        expect(0, "convert", shared("story-model", "nano"), gguf, "--type", kind)
        args = ("run", "-m", gguf, "-p", "abc", "--greedy", "-n", "6", "--ignore-eos", "--kv", "f32", "-v", "--device")
        r = expect(0, *args, "cuda", env=with_gpu(90))
        moved = re.findall(r"([\d.]+) MB of weights brought to the device", r.err)
        equal(len(moved), 1, kind)
        check(abs(float(moved[0]) * 1e6 / os.path.getsize(gguf) - 1) < 0.15, f"{kind}: {moved}, {os.path.getsize(gguf)} bytes")
        cpu = expect(0, *args, "cpu", env=with_gpu(90))
        equal(r.raw, cpu.raw, kind)
        check("brought to the device" not in cpu.err, cpu.err)
    check("brought" not in expect(0, "tokenize", "-m", gguf, "-v", "abc", env=with_gpu(90)).err, "tokenize")


def test_memory_is_what_was_computed():
    """Weights and session as computed before, against what was taken of the driver; the rest of passes is small on a
    network of some size."""
    r = expect(0, "bench", "--synthetic", "story", "--device", "cuda", "--tests", "tg2", "--repeat", "1", "--json",
               env=with_gpu(90))
    memory = [row for row in json_lines(r) if row["test"] == "memory"][0]
    equal(memory["computed"], memory["weights"] + memory["session"], "computed")
    check(0.9 <= memory["allocated_peak"] / memory["computed"] <= 1.1, memory)
    check(memory["load_ms"] > 0 and memory["load_bytes"] > 0, memory)


# ---- what can be wrong: no driver, no device, no memory, a device that is lost ----

def test_driver_absent():
    need()
    env = {"LD_LIBRARY_PATH": ""}
    r = run("devices", env=env)
    if "NVIDIA" in r.out and "available yes" in r.out.split("\n")[0]:
        raise Skip("this machine has a driver")
    fails(12, "run", "-m", model("nano"), *ASK, "--device", "cuda", env=env,
          says="cuda: the library libcuda.so.1 is not installed; install the NVIDIA driver")
    expect(0, "run", "-m", model("nano"), *ASK, "--device", "auto", "-v", env=env, says="selected=cpu")


def test_index_beyond_the_last_device():
    fails(12, "run", "-m", model("nano"), *ASK, "--device", "cuda:7", env=with_gpu(),
          says=r"cuda:7 was requested, but there is one device: cuda:0 \(emulated device\)")


def test_driver_too_old():
    says = r"cuda: the driver serves CUDA 11.4, but this build needs one that serves CUDA 1\d.0 or later .*; update the driver"
    fails(12, "run", "-m", model("nano"), *ASK, "--device", "cuda", env=with_gpu(VERSION=11040), says=says)
    expect(0, "run", "-m", model("nano"), *ASK, "--device", "auto", env=with_gpu(VERSION=11040),
           says=says + ".*selected=cpu")
    fails(12, "run", "-m", model("nano"), *ASK, "--device", "cuda", env=with_gpu(FAIL="cuModuleLoadData -1 222"),
          says="CUDA_ERROR_UNSUPPORTED_PTX_VERSION.*update the driver")


def test_out_of_memory():
    """While weights are loaded: an error by name; under auto the CPU takes over and the receipt says so."""
    says = "bytes do not fit on device 0 .* close other programs on it, choose another device, or --device cpu"
    fails(6, "run", "-m", model("nano"), *ASK, "--device", "cuda", env=with_gpu(MEMORY=600000), says=says)
    path = temp("oom.json")
    r = expect(0, "run", "-m", model("nano"), *ASK, "--device", "auto", "--receipt", path, env=with_gpu(MEMORY=600000),
               says=says + "; requested=auto .* selected=cpu")
    equal(r.out, text(None, "--device", "cpu"), "text")
    with open(path, encoding="utf-8") as f:
        receipt = json.load(f)
    equal(receipt["backend"], "cpu", "backend")
    check(receipt["backend_summary"].endswith("selected=cpu"), receipt["backend_summary"])
    fails(6, "run", "-m", model("nano"), *ASK, "--device", "auto", "--strict", env=with_gpu(MEMORY=600000), says=says)


def test_DET_14_three_sizes_of_memory():
    """4, 12 and 24 GB: how many tokens a pass takes and how many timelines are recorded follow from it; the text does not."""
    prompt = "Once upon a time there was a little dog and it was happy. " * 10
    seen, texts = {}, set()
    for gb, words in ((4, "conservative: recorded steps of up to 8 timelines, passes of up to 128 tokens"),
                      (12, "standard: recorded steps of up to 32 timelines, passes of up to 512 tokens"),
                      (24, "large: recorded steps of up to 64 timelines, passes of up to 1024 tokens")):
        env = with_gpu(90, MEMORY=gb * 10**9)
        r = expect(0, "run", "-m", model("nano"), "-p", prompt, "--greedy", "-n", "8", "--json", "--batch", "1024", "--device",
                   "cuda", "-v", env=env, says=words)
        seen[gb] = r.json()["stats"]["performance"]["launches"]
        texts.add(r.json()["text"])
        for n in (8, 9, 33) if not QUICK else {4: (9,), 12: (9,), 24: ()}[gb]:
            rows = json_lines(expect(0, "bench", "-m", model("nano"), "--device", "cuda", "--tests", f"bt{n}", "--repeat", "1",
                                     "--json", "--receipt", temp("bt.json"), env=env))
            with open(temp("bt.json"), encoding="utf-8") as f:
                recorded = json.load(f)["graph_replays"] > 0
            equal(recorded, n <= {4: 8, 12: 32, 24: 64}[gb], f"{gb} GB, {n} timelines: {rows[0]}")
    check(seen[4] > seen[12] >= seen[24], f"passes of 128 tokens are more than one: {seen}")
    equal(len(texts), 1, "texts")


def test_no_memory_for_the_session():
    for n in (700000, 800000, 900000, 1000000, 1200000):
        r = run("run", "-m", model("nano"), *ASK, "--device", "cuda", "--ctx", "256", env=with_gpu(90, MEMORY=n))
        check(r.code in (0, 6), f"{n}: exit {r.code}: {r.err[:300]}")
        check(r.code == 0 or re.search(REMEDY, r.err), f"{n}: {r.err[:300]}")
    says = r"needs [\d.]+ GiB, the device's memory has 0.00 GiB left; ask for a smaller --ctx"
    args = ("run", "-m", model("nano"), *ASK, "--ctx", "256", "--device")
    fails(6, *args, "cuda", env=with_gpu(90, MEMORY=900000), says=says)
    fails(6, *args, "auto", "--strict", env=with_gpu(90, MEMORY=900000), says=says)
    equal(expect(0, *args, "auto", env=with_gpu(90, MEMORY=900000), says=says).out, expect(0, *args, "cpu").out, "auto")


REMEDY = ("close other programs|smaller --ctx|smaller batch|a smaller context|--device cpu|device cpu")


def test_DET_20_any_allocation_may_fail():
    """Whichever it is: the error with a remedy and its exit code; under auto the CPU's text. Behind the weights all from there on: a
    single one gets the memory of the head's copy."""
    want = text(None, "--device", "cpu")
    codes = set()
    for n in (*range(1, 60, 4), 70, 90):
        env = with_gpu(90, FAIL=f"cuMemAlloc {n if n < 26 else -n} 2")
        r = run("run", "-m", model("nano"), *ASK, "--device", "cuda", env=env)
        check(r.code == 6 and re.search(REMEDY, r.err) or r.code == 0 and r.out == want, f"{n}: exit {r.code}: {r.err[:400]}")
        codes.add(r.code)
        equal(expect(0, "run", "-m", model("nano"), *ASK, "--device", "auto", env=env).out, want, f"allocation {n}, auto")
    equal(codes, {0, 6}, "exit codes: some fail, and there are not more allocations than that")


LOST = ("cuGraphLaunch 3 46", "cuStreamSynchronize 20 719", "cuStreamSynchronize 25 999")


def test_device_lost_in_a_step():
    """Hot-unplugged: asked for by name it is an error with its remedy; under auto the step is repeated on the CPU, told and
    counted; strict mode ends with the error."""
    want = expect(0, "run", "-m", model("nano"), *ASK, "--device", "cpu", "--json").json()["text"]
    for fault in LOST:
        env = with_gpu(90, FAIL=fault)
        expect(12, "run", "-m", model("nano"), *ASK, "--device", "cuda", env=env,  # what came before it was printed
              says=r"cuda was asked for by name, so the CPU does not stand in for it .*position \d+: cuda: device 0 "
               r"\(emulated device\): .*CUDA_ERROR_\w+ \(\d+\); \w+")
        r = expect(0, "run", "-m", model("nano"), *ASK, "--device", "auto", "--json", env=env, says="continues on the CPU")
        result = r.json()
        equal(result["text"], want, fault)
        equal(result["stats"]["on_device"]["fallback_count"], 1, fault)
        expect(12, "run", "-m", model("nano"), *ASK, "--device", "auto", "--strict", env=env,
              says="strict mode allows no fallback: position")


def test_a_launch_that_fails():
    """Whichever it is, packing weights, in a prompt, in a step, while one is recorded: an error, under auto the right text."""
    want = text(None, "--device", "cpu")
    seen = set()
    for n in (3, 30, 45, 55, 65, 75):
        env = with_gpu(90, FAIL=f"cuLaunchKernel {n} 700")
        r = run("run", "-m", model("nano"), *ASK, "--device", "cuda", env=env)
        check(r.code == 12 and "CUDA_ERROR_ILLEGAL_ADDRESS (700)" in r.err, f"launch {n}: exit {r.code}: {r.err[:300]}")
        seen.add("by name" in r.err)
        equal(expect(0, "run", "-m", model("nano"), *ASK, "--device", "auto", env=env).out, want, f"launch {n}")
    equal(seen, {False, True}, "while loading and in steps")


def test_reading_results_may_fail():
    """Pinned memory for logits, or the copy of them: nothing is read that did not come. An error by name; under auto the
    CPU's text."""
    short = ("run", "-m", model("nano"), "-p", "Once upon a time", "-n", "6", "--ignore-eos")
    hot = ("--temperature", "1.5", "--top-k", "0", "--seed", "3")
    want = expect(0, *short, *hot, "--device", "cpu").out
    for fault in ("cuMemHostAlloc 6 2", "cuMemcpyDtoH 6 2"):
        r = expect(0, *short, *hot, "--device", "auto", env=with_gpu(90, FAIL=fault), says="continues on the CPU")
        equal(r.out, want, fault)
    expect(6, *short, *hot, "--device", "cuda", env=with_gpu(90, FAIL="cuMemcpyDtoH 6 2"),
           says=r"cuda was asked for by name.*copying to the host: CUDA_ERROR_OUT_OF_MEMORY \(2\)")
    fails(6, *short, *hot, "--device", "cuda:0,cuda:0", env=with_gpu(90, FAIL="cuMemHostAlloc 9 2"),
          says="CUDA_ERROR_OUT_OF_MEMORY|out of memory")


UNRECORDED = ("cuStreamBeginCapture 1 900", "cuStreamEndCapture 1 901", "cuGraphInstantiate 1 2", "cuLaunchKernel 65 701")


def test_steps_that_cannot_be_recorded_are_launched():
    """Whatever fails while a step is recorded, a launch the driver refuses there too: the same text by single launches, told
    once, counted; strict mode ends with the error. A device that is lost then is lost."""
    path, short = temp("unrecorded.json"), ("run", "-m", model("nano"), "-p", "Once upon a time", "--greedy", "-n", "9", "--ignore-eos")
    want = expect(0, *short, "--device", "cpu").out
    for fault in UNRECORDED:
        env = with_gpu(90, FAIL=fault)
        r = expect(0, *short, "--device", "cuda", "--receipt", path, env=env,
                   says=r"a step could not be recorded: cuda: device 0 .*; steps are launched kernel by kernel from now on")
        equal((r.out, r.err.count("could not be recorded")), (want, 1), fault)
        with open(path, encoding="utf-8") as f:
            receipt = json.load(f)
        equal((receipt["graph_replays"], receipt["unrecorded_steps"]), (0, 7), fault)
        equal((receipt["compute_path"], receipt["backend"]), ("real", "cuda"), fault)
        expect(0, "receipt", "verify", path, env=with_gpu(90))
        expect(12 if "Inst" not in fault else 6, *short, "--device", "auto", "--strict", env=env,
               says=r"strict mode allows no fallback: position \d+: cuda: device 0")
    flags = ["strict=on" if f == "strict=off" else f for f in receipt["request"]["flags"]]
    strict = {"environment": {**receipt["environment"], "BITNET_STRICT_MODE": True}, "request": {**receipt["request"], "flags": flags}}
    for change, says in (({"unrecorded_steps": 99}, "steps were fetched only"), (strict, "strict mode allows none")):
        with open(path, "w", encoding="utf-8") as f:
            json.dump({**receipt, **change}, f)
        fails(13, "receipt", "verify", path, env=with_gpu(90), says=says)
    expect(12, *short, "--device", "cuda", env=with_gpu(90, FAIL="cuStreamEndCapture 1 719"), says=r"\(719\)")


def test_failures_while_opening():
    for fault, says in (("cuInit 1 100", "no CUDA device"), ("cuDevicePrimaryCtxRetain 1 46", "busy or in exclusive mode"),
                        ("cuMemHostAlloc 1 2", "pinned memory"), ("cuModuleLoadData -1 209", "the driver takes no kernels of this build"),
                        ("cuMemAlloc 3 2", "do not fit|memory"), ("cuMemcpyHtoD 2 700", "CUDA_ERROR_ILLEGAL_ADDRESS")):
        r = run("run", "-m", model("nano"), *ASK, "--device", "cuda", env=with_gpu(90, FAIL=fault))
        check(r.code in (6, 11, 12) and re.search(says, r.err), f"{fault}: exit {r.code}: {r.err[:300]}")
        expect(0, "run", "-m", model("nano"), *ASK, "--device", "auto", env=with_gpu(90, FAIL=fault))


# ---- kernels compiled at run time ----

def specialised(folder, *args, **env):
    """A run that prefers compiled kernels: its result, and how many were compiled."""
    log = temp("nvrtc.log")
    if os.path.exists(log):
        os.remove(log)
    r = expect(0, "run", "-m", model("nano"), *ASK, "--device", "cuda", "--gpu-specialise", "--cache", folder, "-v", *args,
               env={**with_gpu(90), "BITNET_EMULATED_NVRTC_LOG": log, **env})
    return r, len(open(log, encoding="utf-8").readlines()) if os.path.exists(log) else 0


def kept(folder):
    folder = os.path.join(folder, "nvrtc")
    return sorted(os.path.join(folder, f) for f in os.listdir(folder)) if os.path.isdir(folder) else []


def test_P_6_kernels_compiled_once_and_kept():
    """Compiled at first use, kept on the disk, used again; every shape with its own constants, which the emulated device checks."""
    folder, path = temp("rtc-cache"), temp("rtc.json")
    want = text(None, "--device", "cpu")
    r, n = specialised(folder, "--receipt", path)
    equal(r.out, want, "text")
    check(n >= 4 and len(kept(folder)) == n, f"{n} compiled, {len(kept(folder))} kept")
    check(re.search(r"i2s_gpu_gemv_rtc for .* compiled \(sm_90a, NVRTC 13.0", r.err), r.err[-800:])
    with open(path, encoding="utf-8") as f:
        kernels = json.load(f)["kernels"]
    check("i2s_gpu_gemv_rtc" in kernels and "i2s_gpu_gemv" not in kernels, kernels)
    expect(0, "receipt", "verify", path, env=with_gpu(90))
    r, again = specialised(folder)
    equal(r.out, want, "text from what was kept")
    equal(again, 0, "compiled again")
    check("kept from before" in r.err, r.err[-800:])


def test_P_6_what_is_kept_may_be_damaged_or_old():
    folder = temp("rtc-damaged")
    want = text(None, "--device", "cpu")
    _, n = specialised(folder)
    files = kept(folder)
    with open(files[0], "r+b") as f:  # a bit of the code
        f.seek(os.path.getsize(files[0]) - 20)
        byte = f.read(1)
        f.seek(-1, os.SEEK_CUR)
        f.write(bytes([byte[0] ^ 4]))
    with open(files[1], "wb") as f:  # a file that was cut
        f.write(b"bnet")
    r, again = specialised(folder)
    equal((r.out, again), (want, 2), "two were damaged")
    _, again = specialised(folder)
    equal(again, 0, "they were written anew")
    _, again = specialised(folder, BITNET_EMULATED_NVRTC="12")
    equal(again, n, "another compiler's are not taken")
    _, n_80 = specialised(temp("rtc-80"), BITNET_EMULATED_CC="80")  # it has no tiles: the prompt takes the GEMV, too
    r, again = specialised(folder, BITNET_EMULATED_CC="80")
    equal((r.out, again), (want, n_80), "another chip's are not taken")
    r, again = specialised("off")
    equal((r.out, again), (want, n), "nothing is kept")


def test_P_6_timed_beside_the_builds():
    """Each in its own row; a row whose kernel could not be compiled is left out, not filled with another's time."""
    if QUICK:
        raise Skip("minutes in a sanitizer's build; its times mean nothing there")
    args = ("bench", "-m", model("nano"), "--device", "cuda", "--kernels", "--repeat", "1", "--tests", "tg1")
    rows = expect(0, *args, env=with_gpu(90)).out
    equal(len(re.findall(r"i2s_gpu_gemv_rtc +1 x", rows)), len(re.findall(r"i2s_gpu_gemv +1 x", rows)), rows)
    check("i2s_gpu_gemv_rtc" in rows and "TOPS" in rows and "GB/s" in rows and "regs" in rows, rows)
    rows = expect(0, *args, env={**with_gpu(90), "BITNET_EMULATED_NVRTC": "fail"}).out
    check("i2s_gpu_gemv_rtc" not in rows and "i2s_gpu_gemv " in rows, rows)


def test_P_6_no_compiler_or_one_that_fails():
    """The build's kernel serves, with a warning that names the reason; without the option nothing is compiled."""
    want = text(None, "--device", "cpu")
    r, _ = specialised(temp("rtc-fail"), BITNET_EMULATED_NVRTC="fail")
    equal(r.out, want, "text")
    check("NVRTC 13.0 cannot compile w2_few_tokens_spec.cuh: NVRTC_ERROR_COMPILATION: w2_gemv.cu(7): error: emulated mistake" in r.err
          and "i2s_gpu_gemv " in r.err and "i2s_gpu_gemv_rtc" not in r.err.split("[")[-1], r.err[-800:])
    equal(kept(temp("rtc-fail")), [], "kept")
    absent = os.path.join(temp("nowhere"), "libnvrtc.so.13")
    r, n = specialised(temp("rtc-none"), BITNET_NVRTC=absent)
    equal((r.out, n), (want, 0), "text")
    check(f"the library {absent} is not installed: install NVRTC" in r.err and "those of the build are used" in r.err, r.err[-800:])
    r, n = specialised(temp("rtc-named"), "--nvrtc", os.path.join(EMULATED, "libnvrtc.so.13"))
    check(r.out == want and n >= 4, r.err[-500:])
    r, n = specialised(temp("rtc-load"), BITNET_EMULATED_FAIL=f"cuModuleLoadData {images() + 1} 200")
    check(r.out == want and n >= 4, r.err[-500:])
    r = expect(0, "run", "-m", model("nano"), *ASK, "--device", "cuda", "-v",
               env={**with_gpu(90), "BITNET_EMULATED_NVRTC": "fail"})
    check("NVRTC" not in r.err, r.err[-500:])


def test_P_6_strict_mode_takes_the_compiled_or_nothing():
    """No compiler, one that fails, a chip they do not serve: the error and 12, where otherwise a warning would do."""
    args = ("run", "-m", model("nano"), *ASK, "--device", "cuda", "--gpu-specialise", "--cache", "off")
    old = "serves from compute capability 7.5 on, device 0 has 5.0: nothing is compiled"
    fails(12, *args, "--strict", "--nvrtc", "/nowhere/libnvrtc.so", env=with_gpu(90), says="/nowhere/libnvrtc.so is not installed")
    fails(12, *args, "--strict", env=with_gpu(), says=old)
    expect(12, *args, "--strict", env={**with_gpu(90), "BITNET_EMULATED_NVRTC": "fail"},
           says="emulated mistake; strict mode takes no other(.|\n)*i2s_gpu_gemv_rtc: CUDA_ERROR_NOT_FOUND")
    equal(expect(0, *args, env=with_gpu(), says=old).out, text(None, "--device", "cpu"), "told")
    expect(0, *args, "--strict", env=with_gpu(90))


if __name__ == "__main__":
    main(globals())
