#!/usr/bin/env python3
"""bitnet validate as a user meets it: tables, JSON, golden logits, the bridge, exit codes (V-1 to V-5, V-7, V-9, V-10, F-1, F-2, F-4)."""
import json
import os
import re
import shutil
import subprocess
import sys

import terminal_of_pty
from harness import BITNET, QUICK, SOURCE, check, clean_env, equal, expect, main, model, run, shared, temp, Skip

BUILD = os.environ.get("BITNET_BUILD", os.path.join(SOURCE, "build", "release"))


def plugin(name):
    path = os.path.join(BUILD, "bridge", name + ".so")
    if not os.path.exists(path):
        raise Skip(f"no plugin {name}.so: build the target bridge_plugins")
    return path


def kernels(*args, code=0, **kw):
    return expect(code, "validate", "--kernels-only", "--quick", *args, **kw)


def test_V_1_json_record():
    r = expect(0, "validate", "--quick", "--json", "--model", model("nano"))
    d = r.json()
    check(d["success"] is True, d)
    for key in ("accuracy", "performance", "memory", "model", "golden", "bridge", "devices"):
        check(key in d, f"no {key}")
    check(all(a["verdict"] in ("pass", "skip") for a in d["accuracy"]), d["accuracy"])
    check(all(a["note"] for a in d["accuracy"]), "a row without a note")
    check(all(p["device_ms"] > 0 and p["wall_ms"] >= p["device_ms"] and p["gflops"] > 0 for p in d["performance"]),
          d["performance"])
    equal(d["model"]["verdict"], "pass", "model")
    equal(d["model"]["first_difference"], None, "first difference")
    check(d["memory"] is None or d["memory"]["growth_bytes"] <= 1 << 20, d["memory"])
    equal(d["golden"]["verdict"], "skip", "golden")
    equal((d["device"], d["against"]), ("cpu", "cpu:scalar"), "devices")


def test_V_2_sizes_without_quick():
    if QUICK:
        raise Skip("minutes in a sanitizer's build; its smaller shapes are checked by the others")
    # of one kernel here; of all of them in long_validate.py
    first = next(k["id"] for k in expect(0, "kernels", "--json").json()["kernels"]
                 if k["format"] == "i2s" and k["available"] and k["isa"] != "scalar")
    d = expect(0, "validate", "--kernels-only", "--json", "--kernel", first, timeout=900).json()
    shapes = {(a["m"], a["n"], a["k"]) for a in d["accuracy"] if a["format"] == "i2s" and a["verdict"] == "pass"}
    for want in ((64, 64, 64), (256, 256, 256), (1024, 1024, 1024), (2048, 1024, 512)):
        check(want in shapes, f"{want} is missing in {shapes}")


def test_V_9_V_10_text():
    r = kernels()
    lines = r.out.splitlines()
    check(any(l.startswith("device cpu: ") and l.endswith(", compute capability none") for l in lines), r.out[:300])
    check("validating cpu against cpu:scalar" in lines, r.out[:300])
    check(lines[-1] == "result: success", lines[-1])
    for fmt in ("f32", "f16", "bf16", "i2s"):
        check(sum(f" {fmt} " in l for l in lines) >= 2, f"no rows of {fmt}")
    check("bridge: skip: ffi bridge unavailable" in lines, r.out[-400:])
    check("model: skip: no model was given" in lines, r.out[-400:])


def test_a_terminal_gets_a_summary():
    def seen(*args):
        command = [BITNET, "validate", "--kernels-only", "--quick", *args]
        code, pieces = terminal_of_pty.run(command, clean_env({"TERM": "xterm"}))
        equal(code, 0, f"exit code of {args}")
        return terminal_of_pty.shown(terminal_of_pty.text_of(pieces))
    text = seen()
    check(re.search(r"^kernels: pass, \d{2,} comparisons passed, 0 failed, \d+ skipped$", text, re.M), text)
    check("result: success" in text and max(map(len, text.splitlines())) <= 80, text)
    tables = seen("-v")
    check("max error" in tables and "GFLOPS" in tables, "-v has the tables")
    check("max error" in seen("--kernel", "linear_i2s.scalar"), "so has --kernel")


def test_device_and_against():
    d = kernels("--device", "cpu:scalar", "--json").json()
    equal(d["device"], "cpu:scalar", "device")
    equal({a["verdict"] for a in d["accuracy"] if a["kernel"].endswith((".avx2", ".dotprod", ".neon"))} - {"skip"}, set(),
          "kernels the set does not have")
    kernels("--device", "metal", code=11, says="metal: Apple Metal is not supported by this version")
    kernels(code=11, says="metal: Apple Metal is not supported by this version", env={"BITNET_DEVICE": "metal"})
    kernels("--device", "toaster", code=2, says="toaster")
    kernels("--against", "cpu:mmx", code=2, says="mmx")
    kernels("--model", "x.gguf", code=2, says="uses no model")
    expect(5, "validate", "--quick", "--model", temp("absent.gguf"), says="absent.gguf")


def test_V_5_golden():
    golden = shared("story-model", "nano", "golden")
    d = expect(0, "validate", "--quick", "--json", "--model", model("nano"), "--golden", golden).json()
    equal(d["golden"]["verdict"], "pass", "golden")
    check(d["golden"]["min_cosine"] >= 0.998 and d["golden"]["argmax_wrong"] == 0, d["golden"])
    spoilt = temp("golden")
    shutil.copytree(golden, spoilt)
    os.chmod(spoilt, 0o755)
    path = os.path.join(spoilt, "golden.json")
    os.chmod(path, 0o644)
    with open(path, encoding="utf-8") as f:
        prompts = json.load(f)
    prompts[0]["logits"] = "03.f32"
    prompts[0]["ids"] = prompts[3]["ids"][::-1]
    with open(path, "w", encoding="utf-8") as f:
        json.dump(prompts[:1], f)
    r = expect(7, "validate", "--quick", "--json", "--model", model("nano"), "--golden", spoilt, says="differ")
    d = r.json()
    check(d["success"] is False and d["golden"]["verdict"] == "fail", d["golden"])
    check(d["golden"]["min_cosine"] < 0.998, d["golden"])
    expect(5, "validate", "--quick", "--model", model("nano"), "--golden", temp("nowhere"), says="golden.json")


def test_F_1_bridge():
    d = kernels("--bridge", plugin("good"), "--json").json()
    equal(d["bridge"]["verdict"], "pass", "bridge")
    check(d["bridge"]["matmul_i2s"]["accuracy_match"] and d["bridge"]["matmul_i2s"]["native_ns"] > 0, d["bridge"])
    r = kernels("--bridge", plugin("wrong_matmul"), code=7, says="differ")
    check("matmul_i2s" in r.out and "results differ" in r.out and "migration not recommended" in r.out, r.out[-600:])


def bridge(name, code=0, **kw):
    """The comparison with a plugin, of kernels only one."""
    return expect(code, "validate", "--quick", "--kernel", "add_f32.scalar", "--json", "--bridge", plugin(name), **kw).json()["bridge"]


def test_V_5_the_kernel_that_models_use_is_compared():
    d = bridge("good")
    used = expect(0, "run", "-m", model("nano"), "-n", "2", "--greedy", "--device", "cpu", "--json", "Once upon a time").json()["kernels"]
    for key in ("one_kernel", "many_kernel"):
        check(d[key] in [k["id"] for k in used] or "i2s" in d[key] and key == "many_kernel", (d[key], used))
    check(d["one_token"]["accuracy_match"] and d["many_tokens"]["accuracy_match"], d)
    d = bridge("wrong_linear", 7, says="differ")
    equal((d["verdict"], d["matmul_i2s"]["accuracy_match"], d["one_token"]["accuracy_match"]), ("fail", True, False), "only the packed one differs")


def test_V_7_a_missed_release_gate_fails():
    d = bridge("fast", 9, says="matmul_i2s: results match, but ours has [0-9]+ % of the other's speed")
    equal((d["verdict"], d["matmul_i2s"]["accuracy_match"], d["matmul_i2s"]["release_gate"]), ("fail", True, False), "the gate")


def test_F_4_a_bridge_computes():
    words = ["run", "-m", model("nano"), "-n", "8", "--greedy", "--device", "cpu", "--json", "Once upon a time"]
    plain = expect(0, *words).json()
    served = expect(0, *words, "--isa", "scalar", "--bridge", plugin("good")).json()
    equal(served["text"], plain["text"], "text")
    ids = [k["id"] for k in served["kernels"]]
    check("linear_i2s.ffi" in ids and "linear_i2s.scalar" not in ids, ids)
    equal(expect(0, "kernels", "--json", "--isa", "scalar", "--bridge", plugin("good")).json()["provider"], "ffi", "provider")
    equal(expect(0, "kernels", "--json", "--bridge", plugin("good")).json()["provider"], expect(0, "kernels", "--json").json()["provider"], "native first")
    expect(12, *words, "--bridge", plugin("no_linear"), says="has no function bitnet_bridge_linear_i2s")
    expect(12, *words, "--bridge", temp("no.so"), says="ffi bridge unavailable")


def one_kernel(*args, code=0, **kw):
    """Where what is looked at is the same whichever kernels are checked."""
    return kernels("--kernel", "add_f32.scalar", *args, code=code, **kw)


def test_F_2_absent_bridge():
    r = one_kernel("--bridge", temp("no.so"), code=12)
    equal(r.err, "bitnet: ffi bridge unavailable\n", "stderr")
    one_kernel("--bridge", plugin("no_quantize"), code=12, says="has no function bitnet_bridge_quantize")
    one_kernel("--bridge", plugin("no_init"), code=12, says="the coffee is cold")
    # what the environment names may be absent
    r = one_kernel(env={"BITNET_BRIDGE": temp("no.so")}, says="BITNET_BRIDGE: ffi bridge unavailable")
    check("bridge: skip: ffi bridge unavailable" in r.out, r.out[-300:])
    r = one_kernel(env={"BITNET_CPP_DIR": temp("nowhere")}, says="BITNET_CPP_DIR: ffi bridge unavailable")
    folder = temp("cpp")
    os.mkdir(folder)
    shutil.copyfile(plugin("good"), os.path.join(folder, "libbitnet_bridge.so"))
    r = one_kernel(env={"BITNET_CPP_DIR": folder})
    check("bridge: pass" in r.out, r.out[-300:])


def test_json_out():
    path = temp("validation.json")
    one_kernel("--json-out", path)
    with open(path, encoding="utf-8") as f:
        check(json.load(f)["success"] is True, "file")


def test_closed_output():
    r = run("validate", "--kernel", "add_f32.scalar", "--quick", stdout=open("/dev/full", "wb"))
    equal(r.code, 5, "exit on a full disk")


def test_results_beside_busy_programs():
    """Who computes a share, and into how many a job is cut, depends on the load of the machine; the results must not."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in os.sched_getaffinity(0)]
    try:
        for _ in range(2):
            kernels()
    finally:
        for p in loops:
            p.kill()
            p.wait()


main(globals())
