#!/usr/bin/env python3
"""Strict mode and logging from outside: X-1, X-2, policies, BITNET_LOG."""
import glob
import json
import os
import re
import subprocess
import sys

from harness import SOURCE, check, copy_of_model, equal, expect, fails, main, model, run, temp, write

NANO = ("-p", "Once", "-n", "2", "--greedy")


def damaged(tensor, at, data):
    """A copy of the nano model with some bytes of a tensor changed."""
    path = copy_of_model("nano", "damaged.gguf")
    rows = expect(0, "inspect", path, "--json", "--no-checksum").json()["tensors"]
    row = next(t for t in rows if t["name"] == tensor)
    with open(path, "r+b") as f:
        f.seek(row["offset"] + at)
        f.write(data)
    return path


def test_X_1_suspicious_weights_exit_8():
    nan = b"\0\0\xc0\x7f"
    for tensor, at, data, says in (("blk.0.attn_norm.weight", 8, nan, "nan"), ("blk.1.ffn_up.weight", 40, b"\xff", "codes of 3"),
                                   ("output_norm.weight", 0, b"\0" * 1024, "all zero")):
        path = damaged(tensor, at, data)
        for how, env in ((("--strict",), {}), ((), {"BITNET_STRICT_MODE": "1"})):
            for command in (("run", *NANO), ("score",), ("chat",), ("validate", "--quick")):
                fails(8, command[0], "-m", path, *command[1:], *how, env=env, stdin=b"x\n" if command[0] != "run" else None,
                      says=f"strict mode: 1 tensor looks suspicious: {tensor}: .*{says}")
        check(run("run", "-m", path, *NANO, "--no-strict", env={"BITNET_STRICT_MODE": "1"}).code != 8, "--no-strict")


def test_X_1_sound_models_pass():
    for name in ("nano", "story"):
        plain = expect(0, "run", "-m", model(name), *NANO).out
        equal(expect(0, "run", "-m", model(name), *NANO, "--strict").out, plain, name)


def test_X_1_a_model_of_the_shape_of_2b_4t_passes():
    folder, path = temp("2b4t"), temp("2b4t.gguf")
    subprocess.run([sys.executable, os.path.join(SOURCE, "tools", "make_hf_model"), folder, "--layers", "1", "--vocab", "512",
                    "--merges", "200"], check=True, capture_output=True)
    expect(0, "convert", folder, path)
    receipt = temp("2b4t.json")
    expect(0, "run", "-m", path, *NANO, "--strict", "--receipt", receipt)
    expect(0, "receipt", "verify", receipt)
    with open(receipt) as f:
        j = json.load(f)
    equal(j["model_info"]["hidden_size"], 2560, "hidden size")
    equal(j["environment"]["BITNET_STRICT_MODE"], True, "strict")


def test_X_2_a_fake_is_fatal():
    for strict in ("0", "1"):
        fails(12, "run", "-m", model("nano"), *NANO, says="BITNET_STRICT_NO_FAKE_GPU",
              env={"BITNET_GPU_FAKE": "cuda", "BITNET_STRICT_NO_FAKE_GPU": "1", "BITNET_STRICT_MODE": strict})
    for command in ("info", "devices", "preflight"):
        fails(12, command, says="BITNET_STRICT_NO_FAKE_GPU", env={"BITNET_GPU_FAKE": "cuda", "BITNET_STRICT_NO_FAKE_GPU": "1"})


def test_policy():
    def policy(low, high):
        rules = [{"tensor": "output_norm.weight", "min_rms": low, "max_rms": high}]
        return write("policy.json", json.dumps({"version": 1, "policies": [{"name": "p", "rules": rules}]}))
    expect(0, "run", "-m", model("nano"), *NANO, "--policy", policy(0.1, 10))
    fails(8, "run", "-m", model("nano"), *NANO, "--policy", policy(5, 10), says="output_norm.weight: rms 1.6.* is outside 5..10")
    fails(8, "run", "-m", model("nano"), *NANO, env={"BITNET_VALIDATION_POLICY": policy(5, 10)}, says="outside 5..10")
    fails(2, "run", "-m", model("nano"), *NANO, "--policy", write("bad.json", "{"), says="policy .*bad.json: line 1")
    fails(5, "run", "-m", model("nano"), *NANO, "--policy", temp("absent"), says="absent")


def test_ST_stats_in_json():
    j = expect(0, "run", "-m", model("nano"), "-p", "Once", "-n", "3", "--greedy", "--json").json()
    s = j["stats"]
    equal(s["performance"]["launches"], sum(k["calls"] for k in j["kernels"]), "launches")
    check(s["timed"] and s["performance"]["exec_ms"] > 0 and s["on_device"]["avg_matmul_ms"] > 0, f"{s}")
    equal((s["device"], s["on_device"]["fallback_count"], s["performance"]["h2d_bytes"]), ("cpu", 0, 0), "stats")
    check(j["backend_summary"].endswith("selected=cpu"), j["backend_summary"])
    r = expect(0, "chat", "-m", model("nano"), "-n", "3", stdin=b"Hi\n/metrics\n")
    check("stats:    device cpu" in r.err and "backend:  requested=auto" in r.err, r.err)


def test_T_4_log_by_module():
    def lines(*args, **env):
        r = expect(0, "run", "-m", model("nano"), *NANO, "--quiet", *args, env={"BITNET_GPU_FAKE": "none", **env})
        return [x for x in r.err.splitlines() if "GPU_FAKE" not in x]
    equal(lines(), [], "quiet")
    check(any(x.startswith("bitnet: info: device: requested=auto") for x in lines(BITNET_LOG="device=info")), "device=info")
    check(all(" device: " in x for x in lines(BITNET_LOG="device=debug")), "only that part")
    check(any(" load: " in x for x in lines(BITNET_LOG="warn,load=info")), "a list")
    check(not any(" device: " in x for x in lines(BITNET_LOG="info,device=error")), "less of one part")
    equal(lines(BITNET_LOG="error"), [], "error")
    for bad in ("loud", "device=loud", "=info", "device=", ",", "info,"):
        fails(2, "run", "-m", model("nano"), *NANO, "--log-level", bad, says="neither error, warn, info or debug")


def test_T_4_log_as_json():
    r = expect(0, "run", "-m", model("nano"), "-p", "a secret prompt", "-n", "2", "--quiet", "--log-level", "debug", "--log-format",
               "json", env={"BITNET_GPU_FAKE": "none"})
    rows = [json.loads(x) for x in r.err.splitlines()]
    check(len(rows) >= 2 and all(set(x) == {"time", "level", "module", "message"} for x in rows), f"{rows}")
    check(any(x["module"] == "device" and x["message"].startswith("requested=auto") for x in rows), f"{rows}")
    check("secret" not in r.err, "the prompt is in the log")
    fails(2, "run", "-m", model("nano"), *NANO, env={"BITNET_LOG_FORMAT": "xml"}, says="text.json")


def json_lines(code, *args, **env):
    return [json.loads(x) for x in expect(code, *args, env={"BITNET_LOG_FORMAT": "json", **env}).err.splitlines()]


def test_T_4_errors_and_closing_lines_as_json():
    run = ("run", "-m", model("nano"), "-p", "a secret prompt", "-n", "2")
    closing = json_lines(0, *run)
    equal([(x["level"], x["module"]) for x in closing], [("info", "bitnet")], "one closing line")
    check(closing[0]["message"].startswith("2 tokens, ") and not closing[0]["message"].endswith("]"), f"{closing}")
    for code, args in ((5, ("run", "-m", "/nowhere.gguf")), (2, ("run", "--wings")), (2, ("fly",)), (2, ("run", "--log-format", "json", "-n", "x")),
                       (12, ("run", "-m", model("nano"), "--isa", "amx" if os.uname().machine == "aarch64" else "neon"))):
        rows = json_lines(code, *args)
        equal([(x["level"], x["exit"]) for x in rows], [("error", code)], f"{args}")
        check(set(rows[0]) == {"time", "level", "module", "message", "exit"} | ({"error"} if code == 12 else set()), f"{rows}")
    rows = json_lines(0, *run, "--tuning", "/nowhere.json", "--log-level", "session=info,wings=debug")
    equal([x["level"] for x in rows], ["warn", "warn", "info"], f"{rows}")
    check("'wings'" in rows[0]["message"] and "/nowhere.json" in rows[1]["message"], f"{rows}")
    text = expect(0, *run, "--log-format", "text", env={"BITNET_LOG_FORMAT": "json"}).err
    check(text.startswith("[2 tokens, "), f"the option wins: {text}")


def test_log_modules_are_known():
    """Unknown ones are warned of; the list is that of the reports in the sources."""
    seen = set()
    for path in glob.glob(os.path.join(SOURCE, "src", "**", "*.c"), recursive=True):
        with open(path, encoding="utf-8") as f:
            seen.update(re.findall(r'bnet_logf\([^;"]*BITNET_LOG_[A-Z]+,\s*"([^"]+)"', f.read()))
    with open(os.path.join(SOURCE, "cli", "log.c"), encoding="utf-8") as f:
        listed = set(re.findall(r'"(\w+)"', f.read().split("modules[] = {")[1].split("}")[0]))
    equal(sorted(seen - listed), [], "modules that cli/log.c lacks")
    equal(sorted(listed - seen), ["load", "run", "template"], "modules nothing reports as")
    r = expect(0, "run", "-m", model("nano"), *NANO, "--quiet", env={"BITNET_LOG": "gpuu=debug"})
    equal(r.err, "bitnet: warning: BITNET_LOG: no part of the program is called 'gpuu'\n", "warned")
    equal(expect(0, "run", "-m", model("nano"), *NANO, "--quiet", env={"BITNET_LOG": "MODEL=warn"}).err, "", "letters may be large")


def test_best_isa():
    for how in ({"BITNET_CPU": "best"}, {"BITNET_CPU": "auto"}):
        r = expect(0, "run", "-m", model("nano"), *NANO, "--json", env=how).json()
        equal(r["kernels"], expect(0, "run", "-m", model("nano"), *NANO, "--json").json()["kernels"], f"{how}")
    best, plain = (re.findall(r"^kernels: .*", expect(0, "info", *how).out, re.M) for how in (("--isa", "best"), ()))
    check(best and best == plain, f"info: {best} {plain}")


def test_a_warning_is_said_once():
    """info looks at the machine twice; what both find is told once."""
    for command in ("info", "devices"):
        r = expect(0, command, "--strict", env={"BITNET_GPU_FAKE": "cuda"})
        equal(sum("strict mode ignores" in x for x in r.err.splitlines()), 1, f"{command}: {r.err}")


def test_no_command_takes_a_forbidden_fake():
    env = {"BITNET_GPU_FAKE": "cuda", "BITNET_STRICT_NO_FAKE_GPU": "1"}
    for command in (("bench", "--synthetic", "nano", "--tests", "tg1", "-r", "1"), ("kernels",), ("info",),
                    ("validate", "--quick", "--kernels-only"), ("tune", "-m", model("nano"), "--tokens", "1", "--repeats", "1")):
        fails(12, *command, says="BITNET_STRICT_NO_FAKE_GPU", env=env)
    path = temp("strict.receipt")
    expect(0, "bench", "-m", model("nano"), "--tests", "tg4", "-r", "1", "--receipt", path,
           env={"BITNET_GPU_FAKE": "cuda", "BITNET_STRICT_MODE": "1"})
    with open(path) as f:
        j = json.load(f)
    equal((j["backend_summary"], j["environment"]["BITNET_STRICT_MODE"]), ("requested=auto detected=[cpu] selected=cpu", True), "strict bench")


if __name__ == "__main__":
    main(globals())
