#!/usr/bin/env python3
"""The registry on a GPU, the emulated one with the capabilities of several chips: what is listed as available is what the chip
and this build allow, and the answers to questions are the kernels that computed (REG-10, REG-13, REG-14)."""
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
from harness import BITNET, SOURCE, Skip, check, equal, expect, main, model, temp, write  # noqa: E402

EMULATED = os.path.join(os.environ.get("BITNET_BUILD", os.path.dirname(BITNET)), "emulated")
ROW = re.compile(r"KERNEL\((\w+),.*, *(\d+), (\d+), ([01]), \"")


def with_gpu(cc):
    if not os.path.exists(os.path.join(EMULATED, "libcuda.so.1")):
        raise Skip("the CUDA backend is not compiled in")
    return {"LD_LIBRARY_PATH": EMULATED, "BITNET_EMULATED_CC": str(cc)}


def needs():
    """By id: the compute capability and whether tensor cores are needed, as the rows of the tree say."""
    with open(os.path.join(SOURCE, "src", "backend", "cuda", "kernels.inc"), encoding="utf-8") as f:
        found = [ROW.match(line) for line in f if line.startswith("KERNEL(")]
    return {m.group(1): (10 * int(m.group(2)) + int(m.group(3)), m.group(4) == "1") for m in found}


def listed(env, *args):
    return expect(0, "kernels", "--device", "cuda", "--json", *args, env=env).json()


def chosen(env, *args):
    return {k["id"] for k in listed(env, *args)["kernels"] if k["selected"]}


def test_REG_13_what_a_chip_can_run():
    rows = needs()
    check(len(rows) > 80, f"{len(rows)} rows")
    for cc in (75, 80, 86, 90, 100, 120):
        j = listed(with_gpu(cc))
        code = cc if cc <= 90 else 89  # a later chip runs PTX, and nothing of Hopper's own
        want = {k for k, (least, _) in rows.items() if least <= code}
        equal({k["id"] for k in j["kernels"] if k["device"] == "cuda" and k["available"]}, want, f"compute capability {cc}")
        equal(j["device"], "cuda:0", "device")
        check(all(k["available"] for k in j["kernels"] if k["id"].endswith(".scalar")), "the CPU is there, too")
    text = expect(0, "kernels", "--device", "cuda", env=with_gpu(90)).out
    check(re.search(r"^i2s_gpu_gemv +cuda .*sm_75 .* yes$", text, re.M), text[:300])
    check(re.search(r"^i2s_gpu_layers +cuda .*sm_90a .* yes$", text, re.M), text[:300])


def test_REG_14_vetoes_are_of_the_device():
    ask = ("--for", "op=linear,format=i2s,dtype=i8,m=512,n=2560,k=2560")
    for cc, best in ((75, "i2s_gpu_gemm_mma"), (80, "i2s_gpu_gemm_mma"), (90, "i2s_gpu_gemm_wgmma"), (100, "i2s_gpu_gemm_mma")):
        j = listed(with_gpu(cc), *ask)
        by_id = {k["id"]: k for k in j["kernels"]}
        equal([k for k in by_id if by_id[k]["selected"]], [best], f"compute capability {cc}")
        veto = by_id["i2s_gpu_gemm_wgmma"]["veto"]
        check(veto == "" if cc == 90 else "needs compute capability 9.0, the device has" in veto, veto)
        equal(by_id["i2s_gpu_gemv"]["veto"], "M = 512 is above its maximum 8", "a rule")
        check("it runs on cpu, not on cuda" in by_id["linear_i2s.scalar"]["veto"], by_id["linear_i2s.scalar"])
        equal("i2s_gpu_gemm_tiles" in j["within"], cc == 90, f"whole passes of {cc}: {j['within']}")
    none = "has compute capability 6.1, which this build does not serve"  # one answer of all commands
    expect(11, "kernels", "--device", "cuda", *ask, env=with_gpu(61), says=none)
    on_cpu = expect(0, "kernels", "--device", "cpu", "--json", *ask, env=with_gpu(90)).json()["kernels"]
    check(all(k["device"] == "cpu" for k in on_cpu if k["selected"]) and any(k["selected"] for k in on_cpu), "the CPU beside a GPU")


def test_REG_14_answers_are_what_ran():
    """Every kernel of a receipt is available, and is the answer for its key with one token or as many as the prompt has."""
    path = temp("ran.json")
    for cc in (75, 80, 90):
        env = with_gpu(cc)
        prompt = "Once upon a time there was a little fox who lived in the wood"
        r = expect(0, "run", "-m", model("nano"), "-p", prompt, "-n", "8", "--greedy", "--device", "cuda", "--receipt", path, "--json", env=env)
        n = r.json()["counts"]["prompt"]
        with open(path, encoding="utf-8") as f:
            ran = set(json.load(f)["kernel_calls"])
        check(any("i2s_gpu" in k for k in ran), f"{ran}")
        there = {k["id"] for k in listed(env)["kernels"] if k["available"]}
        equal(ran - there, set(), f"compute capability {cc}: ran and is not available")
        answers = chosen(env, "--for", "m=1") | chosen(env, "--for", f"m={n}")
        equal(ran - answers, set(), f"compute capability {cc}: ran and is no answer")


def ran_with(env, device, *args):
    path = temp("tuned.json")
    r = expect(0, "run", "-m", model("nano"), "-p", "O", "-n", "4", "--greedy", "-b", "1", "--device", device, "--receipt", path, *args, env=env)
    with open(path, encoding="utf-8") as f:
        return r, json.load(f)["kernel_calls"]


def test_REG_20_tuning_of_a_device():
    """Kernels of the device are timed there; what the file says runs there, and nowhere else."""
    cache, env = temp("cuda.json"), with_gpu(90)
    r = expect(0, "tune", "-m", model("nano"), "--device", "cuda", "--tokens", "1", "--repeats", "1", "-o", cache, "--json", env=env).json()
    check(all("gpu" in x["kernel"] and x["median_ms"] > 0 for x in r["results"]), f"{r['results']}")
    check({x["kernel"] for x in r["results"]} >= {"i2s_gpu_gemv", "i2s_gpu_ref"}, "several kernels of a key took part")
    with open(cache, encoding="utf-8") as f:
        j = json.load(f)
    check(re.match("cuda / .* / emulated device, .* compute capability 9.0 / bitnet", j["key"]), j["key"])
    for choice in j["choices"]:
        if choice["format"] == "i2s":
            choice["kernel"] = "i2s_gpu_ref"
    slow = write("slow-cuda.json", json.dumps(j))
    plain, fast = ran_with(env, "cuda")
    tuned, used = ran_with(env, "cuda", "--tuning", slow)
    equal(tuned.out, plain.out, "text")
    check("i2s_gpu_ref" in used and "i2s_gpu_ref" not in fast, f"{used} {fast}")
    other, used = ran_with(with_gpu(80), "cuda", "--tuning", slow)
    check("i2s_gpu_ref" not in used and "made for 'cuda" in other.err, f"another chip: {used} {other.err}")
    other, used = ran_with(env, "cpu", "--tuning", slow)
    check("made for 'cuda" in other.err, f"the CPU: {other.err}")
    r = expect(0, "tune", "-m", model("nano"), "--device", "host", "--tokens", "1", "--repeats", "1", "--json").json()
    check(all(x["kernel"].endswith("_host_ref") for x in r["results"]), f"{r['results']}")


if __name__ == "__main__":
    main(globals())
