#!/usr/bin/env python3
"""Several devices as one, without a GPU: the emulated libcuda has as many as it is told to, with memory of their own. Text
and logits must be those of one device to the last bit, however the model is divided and whatever joins the ranks."""
import hashlib
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
from harness import BITNET, Skip, check, equal, expect, fails, main, model, run, temp  # noqa: E402

BUILD = os.environ.get("BITNET_BUILD", os.path.dirname(BITNET))
EMULATED = os.path.join(BUILD, "emulated")
NCCL = os.path.join(EMULATED, "nccl")
ASK = ("-p", "Once upon a time there was a dog. It lived in the rain and", "--greedy", "-n", "24", "--ignore-eos")
SPLITS = ("tensor", "layer")
SHORT = ("-p", "Once upon", "--greedy", "-n", "6", "--ignore-eos")


def gpus(n=1, cc=90, nccl=False, **more):
    """An environment with n devices; more: PEERS, FAIL, MEMORY."""
    if not os.path.exists(os.path.join(EMULATED, "libcuda.so.1")):
        raise Skip("the CUDA backend is not compiled in")
    env = {"LD_LIBRARY_PATH": (NCCL + ":" if nccl else "") + EMULATED, "BITNET_EMULATED_CC": str(cc),
           "BITNET_EMULATED_DEVICES": str(n), **{"BITNET_EMULATED_" + k: str(v) for k, v in more.items()}}
    if not nccl:  # a real NCCL of this machine would find no GPU; other messages, the same copies
        env["NCCL_DEBUG"] = "NONE"
    return env


def ask(env, *args, says=None, name="nano"):
    """Text and a digest of the logits of every prompt position."""
    logits = temp("logits.bin")
    r = expect(0, "run", "-m", model(name), *ASK, "--dump-logits", logits, *args, env=env, says=says)
    with open(logits, "rb") as f:
        return r.out, hashlib.sha256(f.read()).hexdigest()


def two(split, second=0):
    return "--device", f"cuda:0,cuda:{second}", "--split", split, "-v"


def test_P_3_virtual_ranks_compute_what_one_device_does():
    """The same device twice: what joins them is copies inside it, all else is as with two; and it is called virtual."""
    for cc in (0, 90):
        for kv in ("f32", "f16", "int8"):
            want = ask(gpus(cc=cc), "--device", "cuda", "--kv", kv)
            for split in SPLITS:
                got = ask(gpus(cc=cc), *two(split), "--kv", kv,
                          says=rf"selected=cuda:0,cuda:0 split={split} \(2 virtual ranks on one device\)")
                equal(got, want, f"{split}, {kv}, compute capability {cc}")


def test_P_4_direct_and_staged_copies():
    """Between two devices: directly where the driver says they are peers, else through the host; never anything else."""
    want = ask(gpus(), "--device", "cuda")
    for split in SPLITS:
        equal(ask(gpus(2, PEERS=1), *two(split, 1), says="2 ranks on 2 devices.*joined by direct copies"), want, split)
        equal(ask(gpus(2), *two(split, 1), says="2 ranks on 2 devices.*joined by copies through the host"), want, split)
        for fault in ("cuCtxEnablePeerAccess 1 217", "cuDeviceCanAccessPeer 4 999"):  # one way only
            equal(ask(gpus(2, PEERS=1, FAIL=fault), *two(split, 1), says="joined by copies, some through the host"),
                  want, fault)
        equal(ask(gpus(2, PEERS=1, POOLS=1), *two(split, 1), says="joined by direct copies"), want, "pools")
        equal(ask(gpus(2, PEERS=1, POOLS=1, FAIL="cuMemPoolSetAccess -1 801"), *two(split, 1),
                  says="joined by copies through the host"), want, "pools nobody may share")


def test_nccl_where_there_is_one():
    want = ask(gpus(), "--device", "cuda")
    for split in SPLITS:
        equal(ask(gpus(2, nccl=True), *two(split, 1), says="joined by NCCL 9.9.9"), want, split)
    equal(ask(gpus(nccl=True), *two("tensor"), says="joined by copies, not NCCL: it takes one rank per device"), want, "one")
    env = gpus(2, nccl=True, FAIL="ncclCommInitAll 1 5")
    equal(ask(env, *two("tensor", 1), says=r"not NCCL: ncclCommInitAll: an emulated error \(5\)"), want, "refused")


def test_nccl_that_fails_later():
    for call in ("ncclGroupStart", "ncclGroupEnd", "ncclAllGather", "ncclSend", "ncclRecv"):
        split = "layer" if call in ("ncclSend", "ncclRecv") else "tensor"
        env = gpus(2, nccl=True, FAIL=f"{call} 2 1")
        r = run("run", "-m", model("nano"), *ASK, *two(split, 1), env=env)
        check(r.code == 12 and "rank" in r.err and "nccl" in r.err, f"{call}: exit {r.code}: {r.err[-300:]}")


def test_nccl_that_fails_on_its_way():
    """What no call returned shows when it is asked for: the rank is named, the communicators are ended before anybody waits for
    them. Work that is merely in progress is none."""
    for n, rank in ((5, 0), (8, 1)):
        r = expect(12, "run", "-m", model("nano"), *ASK, *two("tensor", 1), env=gpus(2, nccl=True, FAIL=f"ncclCommGetAsyncError {n} 6"),
                   says=rf"rank {rank}: ncclCommGetAsyncError: an emulated error \(6\)(.|\n)*rank {rank} of 2: .*ncclCommGetAsyncError")
        equal(sorted(re.findall(r"emulated: rank \d .*", r.err)), [f"emulated: rank {i} was aborted" for i in (0, 1)], "ended")
    want = ask(gpus(), "--device", "cuda")
    equal(ask(gpus(2, nccl=True, FAIL="ncclCommGetAsyncError -1 7"), *two("tensor", 1), says="joined by NCCL"), want, "in progress")


def test_P_3_all_devices_of_a_kind():
    want = ask(gpus(), "--device", "cuda")
    equal(ask(gpus(2), "--device", "cuda", "--split", "layer", "-v", says="selected=cuda:0,cuda:1 split=layer"), want, "two")
    equal(ask(gpus(1), "--device", "cuda", "--split", "tensor", "-v", says=r"selected=cuda\n"), want, "one has nobody to share with")
    equal(ask(gpus(2), "--device", "cuda", "-v", says=r"selected=cuda\n"), want, "nobody asked for two")
    equal(ask(gpus(2), "--device", "cuda:1,cuda:0", "-v", says="selected=cuda:1,cuda:0 split=layer"), want, "a list")


def test_prompts_in_several_passes():
    prompt = " ".join(["The little dog saw a big red ball."] * 12)
    base = ("run", "-m", model("nano"), "--greedy", "-n", "12", "--ignore-eos", "--ctx", "256")
    want = expect(0, *base, "-p", prompt, "--device", "cuda", env=gpus()).out
    for split in SPLITS:
        for batch in ("7", "64"):
            equal(expect(0, *base, "-p", prompt, "--batch", batch, *two(split), env=gpus()).out, want, (split, batch))


def test_golden_over_two_virtual_ranks():
    program, gguf = os.path.join(BUILD, "tests", "test_golden"), os.path.join(BUILD, "golden", "nano.gguf")
    if not (os.path.exists(program) and os.path.exists(gguf)):
        raise Skip("the golden model was not converted in this build")
    for split in SPLITS:
        env = {**os.environ, **gpus(), "BITNET_GOLDEN_DEVICE": "cuda:0,cuda:0", "BITNET_GOLDEN_SPLIT": split,
               "BITNET_GOLDEN_QUICK": "1"}
        r = subprocess.run([program, "nano", gguf], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        check(r.returncode == 0, r.stdout.decode()[-1500:])


def test_receipt_names_the_ranks():
    for split in SPLITS:
        path = temp("ranks.json")
        expect(0, "run", "-m", model("nano"), *ASK, *two(split), "--receipt", path, env=gpus())
        with open(path, encoding="utf-8") as f:
            receipt = json.load(f)
        equal(receipt["backend"], "cuda", "backend")
        check(receipt["backend_summary"].endswith(f"split={split} (2 virtual ranks on one device)"), receipt["backend_summary"])
        check("i2s_gpu_gemv" in receipt["kernels"], receipt["kernels"])
        expect(0, "receipt", "verify", path, env=gpus())
        receipt["backend_summary"] = receipt["backend_summary"].replace("(2 virtual", "(3 virtual")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(receipt, f)
        fails(13, "receipt", "verify", path, env=gpus(), says="backend_summary: .* cannot be selected")


def test_a_precision_without_effect_is_told():
    """No matrix of floats anywhere, as on one device; and none on the first rank but the head on the last."""
    gguf, says = temp("mini.gguf"), "precision fp16: the model has no matrix of floats, nothing is computed in it"
    expect(0, "bench", "--synthetic", "nano", "--head", "q8_0", "--tests", "pp1", "--repeat", "1", "--device", "cpu",
           "--model-out", gguf)
    for where in (("--device", "cuda"), two("tensor"), two("layer")):
        r = expect(0, "run", "-m", gguf, *SHORT, *where, "--precision", "fp16", env=gpus())
        equal(r.err.count(says), 1, where)
        r = expect(0, "run", "-m", model("nano"), *SHORT, *where, "--precision", "fp16", env=gpus())
        equal(r.err.count(says), 0, where)


def test_P_3_topology_is_printed():
    r = expect(0, "devices", env=gpus(2, PEERS=1))
    check(re.search(r"cuda:0 +- +direct\s+cuda:1 +direct +-", r.out), r.out)
    check(re.search(r"cuda:0 +- +host\s+cuda:1 +host +-", expect(0, "devices", env=gpus(2)).out), "no peers")
    check("Topology: one device" in expect(0, "devices", env=gpus()).out, "one")
    devices = json.loads(expect(0, "devices", "--json", env=gpus(2, PEERS=1)).out)["devices"]
    equal(devices[0]["peers"], [[False, True], [True, False]], "JSON")


# ---- what can be wrong ----

def test_wishes_that_cannot_be():
    ok = gpus(2)
    for args, says in ((("--device", "cuda:0,cuda"), "not a list of devices; name up to 16 of one kind, each with its number"),
                       (("--device", "cuda:0,hip:0"), "not a list of devices"), (("--device", "cuda:0,"), "not a list"),
                       (("--device", "cpu,cpu"), "not a list of devices"),
                       (("--device", "cuda:0,cuda:1", "--split", "none"), "several devices are named .* name one, or use"),
                       (("--device", "cpu", "--split", "layer"), "divides a model among devices, but the device is cpu"),
                       (("--device", "cuda:0", "--split", "layer"), r"only cuda:0 is named; name several \(cuda:0,cuda:0 makes two"),
                       (("--split", "tensor", "--device", "auto"), "the device is auto; use --device cuda for all")):
        fails(2, "run", "-m", model("nano"), *ASK, *args, env=ok, says=says)
    fails(12, "run", "-m", model("nano"), *ASK, "--device", "cuda:0,cuda:2", env=ok, says="there are fewer devices: cuda:0 .*, cuda:1")


def test_a_split_of_the_environment_is_a_default():
    """It divides where several devices are meant and refuses nothing elsewhere; the command line is taken at its word."""
    args = ("run", "-m", model("nano"), *SHORT, "-v")
    want = expect(0, *args, "--device", "cpu").out
    for device, says in (("cpu", "selected=cpu\n"), ("auto", "selected=cuda\n"), ("gpu", "selected=cuda\n"),
                         ("cuda:1", "selected=cuda:1\n"), ("cuda", "selected=cuda:0,cuda:1 split=tensor"),
                         ("cuda:0,cuda:1", "selected=cuda:0,cuda:1 split=tensor")):
        for how in (("--device", device), ()):
            env = {**gpus(2), "BITNET_SPLIT": "tensor", **({} if how else {"BITNET_DEVICE": device})}
            equal(expect(0, *args, *how, env=env, says=says).out, want, (device, how))
    expect(0, *args, env={**gpus(2), "BITNET_SPLIT": "layer"}, says="selected=cuda\n")
    expect(0, *args, "--device", "cuda:0,cuda:1", env={**gpus(2), "BITNET_SPLIT": "none"}, says="split=layer")
    fails(2, *args, "--device", "cpu", "--split", "tensor", env={**gpus(2), "BITNET_SPLIT": "none"}, says="the device is cpu")
    fails(2, *args, "--device", "cpu", env={**gpus(2), "BITNET_SPLIT": "rows"}, says="BITNET_SPLIT")


def test_a_model_that_cannot_be_divided():
    many = ",".join(f"cuda:{i}" for i in range(8))
    fails(2, "run", "-m", model("nano"), *ASK, "--device", many, "--split", "layer", env=gpus(8),
          says="layers cannot be divided among 8 devices; name at most")
    fails(2, "run", "-m", model("nano"), *ASK, "--device", many, "--split", "tensor", env=gpus(8),
          says="key/value heads cannot be divided among 8 devices; name at most .*, or use --split layer")


def test_a_rank_without_memory():
    r = run("run", "-m", model("nano"), *ASK, *two("layer", 1), env=gpus(2, MEMORY="4000000000,100000"))
    check(r.code == 6 and re.search(r"rank 1|do not fit", r.err), f"exit {r.code}: {r.err[-300:]}")
    r = run("run", "-m", model("nano"), *ASK, *two("tensor", 1), env=gpus(2, MEMORY="4000000000,200000"))
    check(r.code == 6 and re.search(r"rank 1 of 2: .*(do not fit on|cuda:) device 1", r.err), f"exit {r.code}: {r.err[-300:]}")


def test_a_rank_without_memory_for_the_session():
    """Weights fit everywhere; the cache or the workspace does not on the second device, which is named."""
    seen = set()
    for split in SPLITS:
        for n in range(350000, 1000000, 50000):
            r = run("run", "-m", model("nano"), *SHORT, *two(split, 1), env=gpus(2, MEMORY=f"4000000000,{n}"))
            check(r.code in (0, 6), f"{split}, {n}: exit {r.code}: {r.err[-300:]}")
            check(r.code == 0 or re.search(r"rank 1\b", r.err), f"{split}, {n}: {r.err[-300:]}")
            for what in ("key/value cache", "workspace"):
                if re.search(rf"out of memory: {what} of \d+ \w+ needs \d+ bytes, too many for rank 1 of 2 \(device 1, 0.00 GB "
                             r"free\); \w+", r.err):
                    seen.add(what)
    equal(seen, {"key/value cache", "workspace"}, "what was missing")


def test_DET_14_the_least_memory_decides():
    """4 GB on either rank: its policy is the group's, for passes and for what is recorded; the text is the same."""
    prompt = "Once upon a time there was a little dog and it was happy. " * 10
    args = ("run", "-m", model("nano"), "-p", prompt, "--greedy", "-n", "4", "--json", "--batch", "1024")
    small, large = "recorded steps of up to 8 timelines, passes of up to 128 tokens", "64 timelines, passes of up to 1024 tokens"
    want = expect(0, *args, "--device", "cuda", env=gpus()).json()["text"]
    launches = {}
    for memory, least, says in (("24000000000", 0, large), ("24000000000,4000000000", 1, small), ("4000000000,24000000000", 0, small)):
        env = gpus(2, MEMORY=memory if "," in memory else f"{memory},{memory}")
        r = expect(0, *args, *two("layer", 1), env=env, says=rf"memory policy \w+, as rank {least} has it: .*{says}")
        launches[memory] = r.json()["stats"]["performance"]["launches"]
        equal(r.json()["text"], want, memory)
        path = temp("bt.json")
        expect(0, "bench", "-m", model("nano"), "--device", "cuda:0,cuda:1", "--split", "layer", "--tests", "bt9", "--repeat", "1",
               "--receipt", path, env=env)
        with open(path, encoding="utf-8") as f:
            equal(json.load(f)["graph_replays"] > 0, says == large, memory)
    few, *more = launches.values()
    check(all(n > few for n in more), launches)


def test_every_call_that_can_fail():
    """Whichever call it is and whenever: an error with a message, or the right text where a step may be repeated."""
    want = expect(0, "run", "-m", model("nano"), *SHORT, "--device", "cuda", env=gpus()).out
    calls = ("cuMemAlloc", "cuMemHostAlloc", "cuMemcpyHtoD", "cuMemcpyDtoH", "cuMemcpyDtoD", "cuMemcpyPeer", "cuMemcpy2D",
             "cuStreamWaitEvent", "cuEventRecord", "cuEventCreate", "cuStreamSynchronize", "cuLaunchKernel", "cuCtxPushCurrent",
             "cuModuleLoadData", "cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphLaunch", "cuDevicePrimaryCtxRetain", "cuCtxEnablePeerAccess", "cuDeviceCanAccessPeer")
    failed = set()
    for split in SPLITS:
        for call in calls:
            for n in (1, 2, 61):
                code = 2 if "Alloc" in call else 700
                env = gpus(2, PEERS=n % 2, FAIL=f"{call} {n} {code}")
                r = run("run", "-m", model("nano"), *SHORT, *two(split, 1), env=env)
                check(r.code in (6, 12) or (r.code == 0 and r.out == want), f"{split} {call} {n}: exit {r.code}: {r.err[-300:]}")
                if r.code:
                    check(re.search("rank [01]|device [01]|memory", r.err), r.err[-300:])
                    failed.add(call)
    check(len(failed) >= 10, f"only {failed} ever failed")


def test_steps_that_cannot_be_recorded_are_composed():
    """The rule of one device: told once, counted, refused in strict mode."""
    path = temp("unrecorded.json")
    want = expect(0, "run", "-m", model("nano"), *SHORT, "--device", "cuda", env=gpus()).out
    for split in SPLITS:
        for fault in ("cuStreamBeginCapture 1 900", "cuStreamEndCapture 1 901", "cuGraphInstantiate 1 2"):
            env = gpus(2, FAIL=fault)
            args = ("run", "-m", model("nano"), *SHORT, *two(split, 1))
            r = expect(0, *args, "--receipt", path, env=env, says="a step could not be recorded: cuda: device 0")
            equal((r.out, r.err.count("could not be recorded")), (want, 1), (split, fault))
            with open(path, encoding="utf-8") as f:
                receipt = json.load(f)
            equal((receipt["graph_replays"], receipt["unrecorded_steps"]), (0, 4), (split, fault))
            expect(0, "receipt", "verify", path, env=gpus(2))
            expect(12 if "Inst" not in fault else 6, *args, "--strict", env=env, says="rank 0 of 2: cuda: device 0.*recording a step")


def test_a_rank_lost_in_a_run():
    r = run("run", "-m", model("nano"), *ASK, *two("tensor", 1), env=gpus(2, FAIL="cuStreamSynchronize 30 719"))
    check(re.search("rank [01] of 2: cuda: device [01]", r.err), r.err[-400:])


if __name__ == "__main__":
    main(globals())
