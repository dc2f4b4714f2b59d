#!/usr/bin/env python3
"""Receipts from outside: what run and chat --receipt write follows docs/receipt.schema.json and passes receipt verify."""
import copy
import glob
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time

from harness import SOURCE, check, equal, expect, fails, main, model, run, start, temp, temporaries, write

with open(os.path.join(SOURCE, "docs", "receipt.schema.json")) as f:
    SCHEMA = json.load(f)


def types_of(v):
    if isinstance(v, bool):
        return {"boolean"}
    return {dict: {"object"}, list: {"array"}, str: {"string"}, int: {"integer", "number"}, float: {"number"}}.get(type(v), {"null"})


def violations(v, schema, where="$"):
    """What of v breaks the schema: the words of JSON Schema that ours uses."""
    known = {"$schema", "title", "description", "type", "required", "additionalProperties", "properties", "const", "enum",
             "pattern", "items", "minimum", "minLength", "maxLength", "maxItems", "uniqueItems"}
    check(set(schema) <= known, f"{where}: the schema uses words this test does not know: {set(schema) - known}")
    bad = []
    allowed = schema.get("type", [])
    if allowed and not set([allowed] if isinstance(allowed, str) else allowed) & types_of(v):
        return [f"{where}: not {schema['type']}"]
    if "const" in schema and v != schema["const"]:
        bad.append(f"{where}: {v!r} is not {schema['const']!r}")
    if "enum" in schema and v not in schema["enum"]:
        bad.append(f"{where}: {v!r} is none of {schema['enum']}")
    if "pattern" in schema and isinstance(v, str) and not re.search(schema["pattern"], v):
        bad.append(f"{where}: {v!r} does not match")
    if "minimum" in schema and not isinstance(v, str) and v < schema["minimum"]:
        bad.append(f"{where}: {v} is too small")
    if isinstance(v, str) and not schema.get("minLength", 0) <= len(v) <= schema.get("maxLength", 1 << 30):
        bad.append(f"{where}: length {len(v)}")
    if isinstance(v, list):
        if len(v) > schema.get("maxItems", 1 << 30) or (schema.get("uniqueItems") and len(set(map(str, v))) < len(v)):
            bad.append(f"{where}: too many items or one twice")
        for i, x in enumerate(v):
            bad += violations(x, schema.get("items", {}), f"{where}[{i}]")
    if isinstance(v, dict):
        bad += [f"{where}: {k} is missing" for k in schema.get("required", []) if k not in v]
        for k, x in v.items():
            part = schema.get("properties", {}).get(k, schema.get("additionalProperties", {}))
            bad += [f"{where}: {k} is not known"] if part is False else violations(x, part, f"{where}.{k}")
    return bad


def receipt(*args, name="receipt.json", code=0, **kw):
    path = temp(name)
    r = expect(code, *args, "--receipt", path, **kw)
    with open(path) as f:
        return path, json.load(f), r


def canonical(v):
    """The form that receipt_sha256 is of, as docs/receipt.schema.json describes it."""
    if isinstance(v, dict):
        return "{" + ",".join(json.dumps(k, ensure_ascii=False) + ":" + canonical(v[k]) for k in sorted(v)) + "}"
    if isinstance(v, list):
        return "[" + ",".join(map(canonical, v)) + "]"
    return f'"{v:.15g}"' if isinstance(v, float) else json.dumps(v, ensure_ascii=False)


def digest(j):
    return hashlib.sha256(canonical({k: v for k, v in j.items() if k not in ("receipt_sha256", "signature")}).encode()).hexdigest()


def sealed(j, **changes):
    """The receipt with changes ("a.b" is written a__b) and the digest that fits them, which anyone can compute."""
    j = copy.deepcopy(j)
    for path, v in changes.items():
        *parts, last = path.split("__")
        o = j
        for p in parts:
            o = o[p]
        o[last] = v
    return write("sealed.json", json.dumps({**j, "receipt_sha256": digest(j)}))


def sha_ids(ids):
    return hashlib.sha256(b"".join(i.to_bytes(4, "little") for i in ids)).hexdigest()


def nano(*args, **kw):
    return receipt("run", "-m", model("nano"), "-p", "Once upon a time", "-n", "12", "--greedy", *args, **kw)


def test_X_4_run_writes_a_receipt_that_passes():
    path, j, r = nano("--log-level", "info")
    equal(violations(j, SCHEMA), [], "schema")
    expect(0, "receipt", "verify", path)
    equal(j["compute_path"], "real", "compute_path")
    check(j["backend_summary"] in r.err, f"the log lacks {j['backend_summary']}: {r.err}")
    equal(j["performance_baseline"]["tokens_generated"], 12, "tokens")
    equal(j["deterministic"], False, "deterministic")
    equal(temporaries(), [], "temporary files")
    v = expect(0, "receipt", "verify", path, "--json").json()
    equal((v["accepted"], v["gate"]), (True, 0), "verdict")


def test_X_3_digests_are_of_what_came_out():
    text = temp("made.txt")
    path, j, r = nano("--dump-ids", "--output", text)
    ids = {k: [int(x) for x in v.split()] for k, v in re.findall(r"^(prompt ids|ids): (.*)$", r.err, re.M)}
    with open(text, "rb") as f:
        made = f.read()
    equal(j["generation"], {"prompt_tokens": len(ids["prompt ids"]), "prompt_ids_sha256": sha_ids(ids["prompt ids"]),
                            "output_tokens": 12, "output_ids_sha256": sha_ids(ids["ids"]),
                            "text_bytes": len(made), "text_sha256": hashlib.sha256(made).hexdigest(), "finish": "length"}, "digests")
    equal(j["receipt_sha256"], digest(j), "anyone can recompute it")
    flags = j["request"]["flags"]
    check({"temperature=0", "top-k=50", "batch=512", "kv=f16", "bos=on", "max-tokens=12"} <= set(flags), f"{flags}")
    check("Once" not in json.dumps(j), "a receipt holds no prompt")


def test_kernels_are_those_of_the_run():
    path, j, _ = nano("--json-out", temp("run.json"))
    with open(temp("run.json")) as f:
        told = {k["id"]: k["calls"] for k in json.load(f)["kernels"]}
    equal(j["kernel_calls"], told, "kernel calls of receipt and report")
    equal(sorted(j["kernels"]), sorted(told), "kernels")


def test_the_host_device_claims_no_gpu():
    """Its text is the CPU's, its kernels have its name, and they are not taken for a GPU's."""
    path, r, run = nano("--device", "host", "--strict", name="host.json")
    equal(run.out, nano()[2].out, "text")
    equal(r["backend"], "host", "backend")
    check("i2s_host_ref" in r["kernels"] and all(k.endswith("_host_ref") for k in r["kernels"]), f"{r['kernels']}")
    expect(0, "receipt", "verify", path)
    fails(13, "receipt", "verify", path, "--require-gpu-kernels", says="GPU kernels are required, the backend is host")


def test_X_3_isa_shows_in_ids_and_not_in_text():
    _, best, a = nano()
    path, plain, b = nano("--isa", "scalar", name="scalar.json")
    equal(a.out, b.out, "text")
    check(all(k.endswith(".scalar") for k in plain["kernels"]), f"{plain['kernels']}")
    if not all(k.endswith(".scalar") for k in best["kernels"]):
        check(best["kernels"] != plain["kernels"], "the ids are the same")
    _, again, _ = nano(env={"BITNET_CPU": "scalar"}, name="env.json")
    equal(again["kernel_calls"], plain["kernel_calls"], "BITNET_CPU=scalar")
    expect(0, "receipt", "verify", path)


def test_deterministic_runs_twice():
    path, j, _ = nano("--deterministic")
    equal(j["deterministic"], True, "deterministic")
    equal(j["test_results"]["determinism"], {"identical": True, "runs": 2, "tokens": 12}, "determinism")
    equal(j["test_results"]["passed"], 1, "passed")
    expect(0, "receipt", "verify", path)
    once = nano(name="once.json")[1]
    # whole rows of logits are compared between the runs, so the head's exact kernel has more to do
    twice = {k: 2 * n for k, n in once["kernel_calls"].items() if not k.startswith("linear_")}
    equal(twice, {k: n for k, n in j["kernel_calls"].items() if not k.startswith("linear_")}, "twice the calls")
    sampled = receipt("run", "-m", model("nano"), "-p", "Once", "-n", "9", "--deterministic", "--temperature", "2")[1]
    equal(sampled["test_results"]["determinism"]["identical"], True, "sampled")
    equal(sampled["environment"]["BITNET_SEED"], 42, "seed")


def test_chat_writes_one_for_the_conversation():
    path, j, _ = receipt("chat", "-m", model("nano"), "-n", "6", "--greedy", stdin=b"Once\nTwice\n/metrics\n")
    equal(violations(j, SCHEMA), [], "schema")
    check(7 <= j["performance_baseline"]["tokens_generated"] <= 12, "two replies")
    equal(j["generation"]["output_tokens"], j["performance_baseline"]["tokens_generated"], "output tokens")
    equal(j["environment"]["BITNET_DETERMINISTIC"], False, "BITNET_DETERMINISTIC")
    expect(0, "receipt", "verify", path)
    for how in ({"args": ["--deterministic"]}, {"env": {"BITNET_DETERMINISTIC": "1"}}):
        args = how.pop("args", [])
        path, j, _ = receipt("chat", "-m", model("nano"), "-n", "6", "--greedy", *args, stdin=b"Once\n", name="det.json", **how)
        equal((j["environment"]["BITNET_DETERMINISTIC"], j["deterministic"]), (True, False), "asked for, not repeated")
        expect(0, "receipt", "verify", path)


def test_every_receipt_we_write_passes():
    for name in ("nano", "story"):
        for kv in ("f32", "f16", "int8"):
            for n in ("0", "1", "5"):
                path = receipt("run", "-m", model(name), "-p", "Once upon a time", "-n", n, "--greedy", "--kv-type", kv)[0]
                expect(0, "receipt", "verify", path, "--model", model(name))


def test_a_busy_machine_lowers_no_limit():
    """What the weights can be read with is a fact of the machine, whatever else runs on it."""
    def limit():
        return receipt("run", "-m", model("nano"), "-p", "Once", "-n", "5", "--greedy")[1]["performance_baseline"]["read_limit_gb_s"]

    quiet = max(limit() for _ in range(3))
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4 * os.cpu_count())]
    try:
        busy = max(limit() for _ in range(3))
    finally:
        for p in others:
            p.kill()
            p.wait()
    check(busy > quiet / 4, f"{quiet} GB/s alone, {busy} beside others")


def test_what_was_cut_passes():
    """A prompt that the time limit cuts between layers, and logits that are looked at besides."""
    prompt = write("long.txt", "Once upon a time there was a fox. " * 110)
    cut = 0
    command = ("run", "-m", model("story"), "-f", prompt, "--ctx", "2048", "-n", "400", "-t", "1")
    began = time.monotonic()
    expect(0, *command[:-4], "-n", "0")
    load = (time.monotonic() - began) / 2  # about half of it is the prompt
    for seconds in (load / 2, load, load * 1.2, load * 1.5, load * 2, load * 3):
        if run(*command, "--timeout", str(seconds), "--receipt", temp("cut.json")).code == 1:
            continue  # not loaded in that time
        path, j = temp("cut.json"), json.load(open(temp("cut.json")))
        cut += j["cut_passes"]
        if sum(j["kernel_calls"].values()):
            expect(0, "receipt", "verify", path)
    check(cut > 0, "no pass was cut")
    for more in (("--dump-logit-steps", "3"), ("--assert-greedy",)):
        path = receipt("run", "-m", model("nano"), "-p", "Once", "-n", "8", "--greedy", "--top-k", "0", *more)[0]
        expect(0, "receipt", "verify", path)


def test_verify_refuses_with_the_number():
    path, j, _ = nano()
    for gate, change in ((1, {"schema_version": "1.0.0"}), (2, {"compute_path": "fallback"}), (3, {"kernels": []}),
                         (6, {"kernels": ["mock_gemv"]}), (9, {"backend": "cuda"})):
        bad = write("bad.json", json.dumps({**j, **change}))
        fails(13, "receipt", "verify", bad, says=f"refused by gate {gate} ")
        v = run("receipt", "verify", bad, "--json")
        equal((v.code, json.loads(v.out)["gate"], json.loads(v.out)["accepted"]), (13, gate, False), "JSON verdict")
    fails(13, "receipt", "verify", path, "--require-gpu-kernels", says="gate 9 ")
    fails(13, "receipt", "verify", path, "--model", os.path.join(SOURCE, "README.md"), says="gate 17 ")
    expect(0, "receipt", "verify", path, "--model", model("nano"))
    fails(5, "receipt", "verify", temp("absent"), says="absent")
    fails(2, "receipt", "burn", path, says="receipt verify FILE")
    fails(2, "receipt", "verify", says="receipt verify FILE")


def test_gates_are_listed():
    lines = expect(0, "receipt", "gates").out.splitlines()
    equal([int(x.split()[0]) for x in lines], list(range(1, len(lines) + 1)), "numbers")
    equal(len(lines), 21, "gates")
    equal(len(expect(0, "receipt", "gates", "--json").json()), 21, "gates")


def test_X_3_lies_with_a_digest_are_refused_where_they_contradict():
    """Of a run with the best kernels of this machine; the unit test has those that every machine has."""
    _, j, _ = nano("--deterministic")
    env, speed = j["environment"], j["performance_baseline"]
    cpu = [k for k in ("i8mm", "dotprod", "avx512vnni", "avx2") if any(x.endswith("." + k) for x in j["kernels"])]
    for gate, change in ((12, {"performance_baseline__read_limit_gb_s": max(100 * speed["read_limit_gb_s"], 151 * env["threads"])}),
                         (9, {"environment__provider": "fallback"} if cpu else {"environment__provider": "cuda"}),
                         (14, {"environment__GPU_INFO": "cuda 1 device(s) (CUDA 13.0)"}),
                         (13, {"environment__BITNET_SEED": env["BITNET_SEED"] + 1}),
                         (13, {"environment__BITNET_STRICT_MODE": not env["BITNET_STRICT_MODE"]}),
                         (13, {"deterministic": False}),
                         (15, {"kernel_calls": {k: 100 * n for k, n in j["kernel_calls"].items()}}),
                         (15, {"generation__prompt_tokens": 8000}),
                         (16, {"performance_baseline__first_token_latency_ms": speed["first_token_latency_ms"] / 2})):
        check(run("receipt", "verify", sealed(j, **change)).code == 13, f"{change} is accepted")
        fails(13, "receipt", "verify", sealed(j, **change), says=f"refused by gate {gate} ")
    for k, n in j["kernel_calls"].items():
        if re.match("linear_f16|head_scan", k):  # which part of the head is computed depends on the logits
            continue
        for lie in (n - 1, n + 1):
            fails(13, "receipt", "verify", sealed(j, kernel_calls={**j["kernel_calls"], k: lie}), says="refused by gate 15 ")
    made, calls = j["generation"]["output_tokens"], j["kernel_calls"]
    for scan in [k for k in calls if k.startswith("head_scan")]:  # a copy of the head, then its rows, and no more
        twice = {k: 2 * made if k.startswith(("linear_f16", "head_scan")) else n for k, n in calls.items()}
        expect(0, "receipt", "verify", sealed(j, kernel_calls=twice))
        fails(13, "receipt", "verify", sealed(j, kernel_calls={**twice, scan: 2 * made + 1}), says="refused by gate 15 ")


def test_X_3_replay_makes_it_again():
    path, j, _ = receipt("run", "-m", model("nano"), "-p", "Once upon a time", "-n", "9", "--temperature", "1.5", "--seed", "7",
                         "--stop", "zzz", "--batch", "3", "--no-bos", name="replay.json")
    again = ("--replay", "-m", model("nano"), "-p", "Once upon a time")
    check("made again" in expect(0, "receipt", "verify", path, *again).out, "verdict")
    v = expect(0, "receipt", "verify", path, "--replay", "-p", "Once upon a time", "--json").json()  # the model of the receipt
    equal((v["accepted"], v["replayed"]), (True, True), "JSON verdict")
    expect(0, "receipt", "verify", path, "--replay", stdin=b"Once upon a time")
    fails(13, "receipt", "verify", path, "--replay", "-p", "Once upon a day", says="refused by the replay: the prompt is another")
    fails(5, "receipt", "verify", path, *again, env={"TMPDIR": "/nonexistent"}, says="replay: /nonexistent/bitnet-replay-.*: No such file")
    flags = ["seed=8" if x == "seed=7" else x for x in j["request"]["flags"]]
    fails(13, "receipt", "verify", sealed(j, environment__BITNET_SEED=8, request__flags=flags), *again, says="other tokens were made")
    lie = sealed(j, generation__output_ids_sha256=sha_ids([1]))
    expect(0, "receipt", "verify", lie)
    fails(13, "receipt", "verify", lie, *again, says="other tokens were made")
    lie = sealed(j, generation__text_sha256=hashlib.sha256(b"another").hexdigest())
    fails(13, "receipt", "verify", lie, *again, says="another text was made")
    flags = j["request"]["flags"] + ["output=" + temp("stolen"), "json-out=" + temp("stolen"), "receipt=" + temp("stolen"),
                                     "cache=" + temp("stolen"), "nvrtc=" + temp("stolen"), "dump-logits-to=x", "", "x"]
    expect(0, "receipt", "verify", sealed(j, request__flags=flags), *again)
    check(not os.path.exists(temp("stolen")), "a receipt names no file that is written")
    path, _, _ = receipt("chat", "-m", model("nano"), "-n", "6", "--greedy", stdin=b"Once\n", name="chat.json")
    fails(2, "receipt", "verify", path, *again, says="--replay needs a receipt of bitnet run")


def test_replay_ends_with_its_run():
    """A signal to the command alone ends the run that it made again, and leaves nothing."""
    path = receipt("run", "-m", model("nano"), "-p", "Once", "-n", "4000", "--ctx", "4096", "--ignore-eos", "--greedy")[0]
    before = set(glob.glob("/tmp/bitnet-replay-*"))
    p = start("receipt", "verify", path, "--replay", "-p", "Once")
    for _ in range(500):
        made = set(glob.glob("/tmp/bitnet-replay-*")) - before
        children = subprocess.run(["pgrep", "-P", str(p.pid)], stdout=subprocess.PIPE, check=False).stdout.split()
        if (made and children) or p.poll() is not None:
            break
        time.sleep(0.01)
    p.send_signal(signal.SIGTERM)
    _, err = p.communicate(timeout=30)
    equal(p.returncode, 143, f"exit code; {err}")
    equal(set(glob.glob("/tmp/bitnet-replay-*")) - before, set(), "temporary files")
    check(not any(os.path.exists(f"/proc/{int(c)}") for c in children), "the run goes on")


def test_X_3_signatures():
    path, j, _ = nano(name="signed.json")
    key, other = temp("my.key"), temp("other.key")
    pub = expect(0, "receipt", "key", key).out.strip()
    equal(os.stat(key).st_mode & 0o777, 0o600, "only its owner reads it")
    fails(5, "receipt", "key", key, says="exists")
    stranger = expect(0, "receipt", "key", other).out.strip()
    fails(13, "receipt", "verify", path, "--public-key", pub, says="gate 21 .*has none")
    fails(2, "receipt", "sign", path, says="--key FILE is missing")
    fails(2, "receipt", "sign", path, "--key", path, says="not a key")
    expect(0, "receipt", "sign", path, "--key", key)
    expect(0, "receipt", "verify", path)
    expect(0, "receipt", "verify", path, "--public-key", pub)
    fails(13, "receipt", "verify", path, "--public-key", stranger, says="gate 21 .*another key")
    fails(2, "receipt", "verify", path, "--public-key", "abc", says="--public-key must be 64 hexadecimal digits")
    with open(path) as f:
        j = json.load(f)
    equal(violations(j, SCHEMA), [], "schema")
    fails(13, "receipt", "verify", sealed(j, environment__CPU_BRAND="another"), says="gate 21 .*not of this receipt")
    for field in ("public_key", "ed25519"):
        flipped = ("1" if j["signature"][field][0] == "0" else "0") + j["signature"][field][1:]
        fails(13, "receipt", "verify", sealed(j, **{"signature__" + field: flipped}), says="gate 21 ")
    bad = write("bad.json", json.dumps({**j, "kernels": []}))
    fails(13, "receipt", "sign", bad, "--key", key, says="gate 3 ")


def test_schema_refuses_what_it_must():
    _, j, _ = nano()
    for change in ({"compute_path": "mock"}, {"kernels": [""]}, {"kernel_calls": {"a": 0}}, {"extra": 1}, {"timestamp": "now"},
                   {"deterministic": 1}, {"fallback": {"steps": 0}}):
        check(violations({**j, **change}, SCHEMA), f"the schema allows {change}")


def test_fields_of_code_and_schema_are_the_same():
    with open(os.path.join(SOURCE, "src", "receipt", "receipt_fields.inc")) as f:
        code = dict(re.findall(r'FIELD\("([^"]+)", \'(\w)\'\)', f.read()))
    letters = {"string": "s", "integer": "i", "number": "n", "boolean": "b", "array": "a", "object": "o"}
    later = {"": ["graph_replays", "unrecorded_steps", "shared_calls", "signature"]}  # those of one answer lack or have them

    def leaves(schema, prefix=""):
        equal(sorted(schema["required"] + later.get(prefix, [])), sorted(schema["properties"]), f"required of {prefix or 'the top'}")
        for k, v in schema["properties"].items():
            if "properties" in v:
                yield from leaves(v, prefix + k + ".")
            elif k != "schema_version":
                letter = "u" if isinstance(v["type"], list) else letters[v["type"]]
                letter = "t" if prefix == "signature." else letter
                letter = "h" if k.endswith("_sha256") else letter
                yield prefix + k, {"i": "c", "o": "p"}[letter] if k in later.get(prefix, []) else letter
    equal(dict(leaves(SCHEMA)), code, "fields")


def test_tuning_is_told():
    cache = temp("tuned.json")
    equal(nano()[1]["environment"]["tuning"], "none", "without")
    expect(0, "tune", "-m", model("nano"), "--tokens", "1", "--repeats", "1", "-o", cache)
    path, j, _ = nano("--tuning", cache)
    equal(j["environment"]["tuning"], cache, "with")
    expect(0, "receipt", "verify", path)
    with open(cache) as f:
        other = write("others.json", json.dumps({**json.load(f), "key": "another machine"}))
    equal(nano("--tuning", other)[1]["environment"]["tuning"], "none", "that of another machine")
    old = dict(j["environment"])
    del old["tuning"]
    fails(13, "receipt", "verify", sealed(j, environment=old), says="environment.tuning is missing")
    bad = write("bad.json", json.dumps({**j, "environment": {**old, "tuning": 7}}))
    fails(13, "receipt", "verify", bad, says="environment.tuning is missing or of the wrong type")


def test_large_seeds():
    _, j, _ = nano()
    for seed, ok in ((2**63 - 1, True), (str(2**63), True), (str(2**64 - 1), True), (str(2**64), False), (str(2**63 - 1), False),
                     ("5", False), ("9223372036854775808x", False), (-1, False)):
        flags = [x for x in j["request"]["flags"] if not x.startswith("seed=")] + [f"seed={seed}"]
        expect(0 if ok else 13, "receipt", "verify", sealed(j, environment__BITNET_SEED=seed, request__flags=flags))


def test_receipt_cannot_be_written():
    r = expect(5, "run", "-m", model("nano"), "-p", "Once", "-n", "3", "--receipt", "/nowhere/at/all", says="/nowhere/at")
    equal(r.out, "", "it is found out before anything is computed")
    r = expect(5, "run", "-m", model("nano"), "-p", "Once", "-n", "3", "--receipt", "/dev/full", says="/dev/full")
    check(r.out.strip(), "what only writing can show comes after the text")


if __name__ == "__main__":
    main(globals())
