#!/usr/bin/env python3
"""info, devices, preflight, and --device: what is asked for, what exists, what the exit status and the words are."""
import json
import re

from harness import check, equal, expect, fails, main, model, run

NANO = ("-p", "Once", "-n", "2", "--greedy")


def built_with_cuda():
    return re.search(r"(?m)^cuda .*compiled yes", expect(0, "devices", env={"BITNET_GPU_FAKE": "none"}).out) is not None


def test_BE_1_truth_table():
    """Requests x fakes x strict x no-fake, in builds with and without the CUDA backend."""
    ok, usage, compiled, available = 0, 2, 11, 12
    has_cuda = built_with_cuda()
    absent, no_cuda = (available, "cuda(:1)?: ") if has_cuda else (compiled, "cuda: this build has no NVIDIA CUDA backend")
    no_gpu = ("no GPU this build can use.*use --device cpu" if has_cuda else
              "gpu: this build has no GPU backend.*use --device cpu")
    rows = [
        (None, "", {}, ok, "selected=cpu"), ("auto", "none", {}, ok, r"requested=auto detected=\[cpu\] selected=cpu"),
        ("cpu", "none", {}, ok, r"requested=cpu detected=\[cpu\] selected=cpu"),
        ("auto", "cuda", {}, ok, r"requested=auto detected=\[cuda,cpu\] selected=cpu"),
        ("auto", "CUDA,Rocm", {}, ok, r"detected=\[cuda,hip,cpu\] selected=cpu"),
        ("host", "none", {}, ok, r"requested=host detected=\[cpu,host\] selected=host"),
        ("cpu", "gpu", {}, ok, r"requested=cpu detected=\[cuda,cpu\] selected=cpu"),
        ("auto", "metal", {}, ok, r"detected=\[metal,cpu\]"),
        ("gpu", "none", {}, absent, no_gpu), ("cuda", "none", {}, absent, no_cuda), ("cuda:1", "none", {}, absent, no_cuda),
        ("hip", "none", {}, compiled, "hip: .* is not supported by this version"), ("rocm", "none", {}, compiled, "hip: .* is not supported by this version"),
        ("oneapi", "none", {}, compiled, "oneapi: .* is not supported by this version"),
        ("opencl", "none", {}, compiled, "opencl: .* is not supported by this version"),
        ("ocl", "none", {}, compiled, "opencl: .* is not supported by this version"),
        ("vulkan", "none", {}, compiled, "vulkan: .* is not supported by this version"),
        ("metal", "none", {}, compiled, "metal: .* is not supported by this version"), ("npu", "none", {}, compiled, "npu: .* is not supported by this version"),
        ("gpu", "cuda", {}, available, "cuda is a fake"),
        ("cuda", "cuda", {}, available, "cuda is a fake"),
        ("hip", "rocm", {}, available, "hip is a fake"),
        ("toaster", "none", {}, usage, '"toaster" is not a device; use one of auto, cpu, gpu'),
        ("auto", "toaster", {}, usage, "BITNET_GPU_FAKE"), ("auto", "none,cuda", {}, usage, "none stands alone"),
        ("auto", "cuda", {"BITNET_STRICT_MODE": "1"}, ok, "strict mode ignores BITNET_GPU_FAKE=cuda"),
        ("auto", "cuda", {"BITNET_STRICT_NO_FAKE_GPU": "1"}, available, "BITNET_STRICT_NO_FAKE_GPU forbids"),
        ("auto", "cuda", {"BITNET_STRICT_NO_FAKE_GPU": "1", "BITNET_STRICT_MODE": "1"}, available, "forbids"),
        ("auto", "none", {"BITNET_STRICT_NO_FAKE_GPU": "1", "BITNET_STRICT_MODE": "1"}, ok, "selected=cpu"),
        ("auto", "cuda", {"BITNET_STRICT_MODE": "0", "BITNET_STRICT_NO_FAKE_GPU": "0"}, ok, r"\[cuda,cpu\]"),
    ]
    for device, fake, env, code, says in rows:
        how = ["--device", device] if device else []
        r = expect(code, "run", "-m", model("nano"), *NANO, *how, "--log-level", "info", says=says,
                   env={"BITNET_GPU_FAKE": fake, **env})
        check(bool(r.out.strip()) == (code == 0), f"{device}, {fake}, {env}: printed {r.out!r}")
        check("NotCompiled" not in r.err and "NotAvailable" not in r.err, f"a name for programs: {r.err}")


def test_BE_10_names_for_programs():
    """People read sentences; programs get the name of the failure, in a line of the log and from preflight."""
    for device, code, name in (("vulkan", 11, "NotCompiled"), ("cuda", 12, "NotAvailableRuntime")):
        r = expect(code, "run", "-m", model("nano"), *NANO, "--device", device, "--log-format", "json", env={"BITNET_GPU_FAKE": "cuda"})
        line = json.loads(r.err.strip().splitlines()[-1])
        equal((line["error"], line["exit"]), (name, code), line)
    j = run("preflight", "--json", env={"BITNET_GPU_FAKE": "cuda"}).json()
    equal((j["ok"], j["error"]), (False, "NotAvailableRuntime"), j)


def test_BE_2_precedence():
    def says(pattern, *args, **env):
        expect(0, "run", "-m", model("nano"), *NANO, "-v", *args, says=pattern, env={"BITNET_GPU_FAKE": "none", **env})
    says("requested=auto ")
    says("requested=cpu ", BITNET_DEVICE="cpu")
    says("requested=auto ", "--device", "auto", BITNET_DEVICE="cpu")
    says("requested=auto ", BITNET_DEVICE="")
    expect(0, "run", "-m", model("nano"), *NANO, "--device", "cpu", env={"BITNET_DEVICE": "vulkan"})
    fails(11, "run", "-m", model("nano"), *NANO, env={"BITNET_DEVICE": "vulkan"}, says="vulkan: Vulkan is not supported")
    fails(2, "run", "-m", model("nano"), *NANO, env={"BITNET_DEVICE": "lamp"}, says='BITNET_DEVICE: "lamp"')
    fails(2, "run", "-m", model("nano"), *NANO, "--device", "lamp", says='--device: "lamp"')


def test_DET_1_info():
    j = expect(0, "info", "--json", env={"BITNET_GPU_FAKE": ""}).json()
    equal(j["gpu"]["available"], False, "gpu.available")
    check(j["provider"] and j["backend_summary"].endswith("selected=cpu"), f"{j}")
    j = expect(0, "info", "--json", env={"BITNET_GPU_FAKE": "cuda"}).json()
    equal((j["gpu"]["available"], j["gpu"]["cuda"], j["gpu"]["wgpu"], j["gpu"]["compiled"]), (True, True, True, built_with_cuda()), "fake")
    if built_with_cuda():  # another kind's GPU: the pair is about one kind
        g = expect(0, "info", "--json", env={"BITNET_GPU_FAKE": "metal"}).json()["gpu"]
        equal((g["kind"], g["compiled"], g["available"], g["present"], g["wgpu"]), ("cuda", True, False, True, True), g)
        check("cuda compiled: yes, available: no" in expect(0, "info", env={"BITNET_GPU_FAKE": "metal"}).out, "text")
    text = expect(0, "info", env={"BITNET_GPU_FAKE": "none"}).out
    check(re.search(r"(?m)^kernels: \w+$", text) and "at startup (drivers only): requested=auto detected=[cpu] selected=cpu" in text, text)


def test_DET_11_devices():
    j = expect(0, "devices", "--json", env={"BITNET_GPU_FAKE": "cuda"}).json()
    check("fake cuda device" in json.dumps(j), f"{j}")
    text = expect(0, "devices", env={"BITNET_GPU_FAKE": "cuda"}).out
    check(re.search(r"(?m)^cuda .*, available yes \(fake\)(,|:|$)", text), f"a fake is found by nobody: {text}")
    text = expect(0, "devices", env={"BITNET_GPU_FAKE": "none"}).out
    for kind in "cuda hip oneapi metal opencl vulkan npu cpu host".split():
        check(re.search(rf"(?m)^{kind} ", text), f"{kind} is missing: {text}")


def test_ranks_on_the_hosts_memory():
    """Several devices behind one backend, steps recorded and repeated, without a GPU: the text of one CPU."""
    ask = ("run", "-m", model("nano"), "-p", "Once upon a time", "-n", "24", "--greedy")
    want = expect(0, *ask, "--device", "cpu").out
    for split, ranks in (("layer", 2), ("tensor", 2)):
        got = expect(0, *ask, "--device", ",".join(["host:0"] * ranks), "--split", split).out
        equal(got, want, f"{ranks} ranks, {split}")


def test_DET_7_preflight():
    for env, args, code in (({"BITNET_GPU_FAKE": "none"}, (), 1), ({"BITNET_GPU_FAKE": "none"}, ("--require",), 12),
                            ({"BITNET_GPU_FAKE": "cuda"}, ("--require",), 12)):
        r = expect(code, "preflight", *args, env=env)
        check("remedy" in r.out, r.out)
    r = run("preflight", "--json", env={"BITNET_GPU_FAKE": "none"})
    equal(r.code, 1, "exit status")
    json.loads(r.out)


def test_DET_18_hidden_devices():
    says = "warning: device: CUDA_VISIBLE_DEVICES is set and empty.*selected=cpu" if built_with_cuda() else None
    expect(0, "run", "-m", model("nano"), *NANO, says=says, env={"CUDA_VISIBLE_DEVICES": ""})


def test_completion_offers_every_device():
    """The words behind --device are those that the command names when it is given another."""
    r = expect(2, "run", "-m", model("nano"), *NANO, "--device", "lamp")
    named = set(re.findall(r"\w+", re.sub(r"\(\w+\)", "", re.search("use one of ([^;]*)", r.err).group(1)))) - {"null"}
    for shell in ("bash", "zsh", "fish"):
        script = expect(0, "completions", shell).out
        offered = re.findall(r"auto cpu gpu[^\"')\n]*", script)
        check(offered, f"{shell} is offered no device: {script[:300]}")
        for words in offered:
            equal(set(words.split()), named, f"{shell}: {script[:300]}")


if __name__ == "__main__":
    main(globals())
