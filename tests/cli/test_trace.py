#!/usr/bin/env python3
"""Traces of a run and bitnet trace-diff: what a record says, equal runs, the first difference, what is refused."""
import hashlib
import json
import os
import shutil
import struct

from harness import SOURCE, check, equal, expect, main, run, temp, write

NANO = os.path.join(SOURCE, "models", "nano.gguf")
PROMPT = "Once upon a time"


def trace(name, *options, prompt=PROMPT, model=NANO, env=None, n=3):
    folder = temp(name)
    extra = [] if env else ["--trace-dir", folder]
    r = expect(0, "run", "-m", model, "-n", str(n), "--greedy", "--quiet", "-t", "2", *extra, *options, prompt, env=env and {env: folder})
    return folder, r.out


def records(folder):
    found = []
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name)) as f:
            found.append(json.load(f))
    return found


def test_a_record_says_what_was_computed():
    """Every field, and of the logits the checksum of what --dump-logits writes."""
    folder = temp("fields")
    logits = temp("logits.f32")
    expect(0, "run", "-m", NANO, "-n", "0", "--device", "cpu", "--dump-logits", logits, "--trace-dir", folder, PROMPT)
    all_of = records(folder)
    equal([r["index"] for r in all_of], list(range(len(all_of))), "numbers")
    for r in all_of:
        equal(set(r), {"index", "name", "stage", "layer", "seq", "shape", "dtype", "num_elements", "rms", "sha256"}, "fields")
        equal(r["num_elements"], r["shape"][0] * r["shape"][1], r["name"])
    stages = {r["stage"] for r in all_of}
    equal(stages, {"embed", "norm", "quantize", "linear", "rope", "attention", "add", "glu", "head"}, "stages")
    names = [r["name"] for r in all_of if (r["seq"], r["layer"], r["stage"]) == (0, 1, "linear")]
    equal(names, ["blk.1." + n for n in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")], "linear layers")
    with open(logits, "rb") as f:
        raw = f.read()
    at = 0
    for head in (r for r in all_of if (r["seq"], r["stage"]) == (0, "head")):
        part = raw[at:at + 4 * head["num_elements"]]
        at += len(part)
        equal(head["sha256"], hashlib.sha256(part).hexdigest(), "the checksum of the logits")
        values = struct.unpack("<%df" % head["num_elements"], part)
        rms = (sum(v * v for v in values) / len(values)) ** 0.5
        check(abs(rms - head["rms"]) <= 1e-6 * rms, (rms, head["rms"]))
    equal(at, len(raw), "all logits are in the trace")


def test_equal_runs_have_equal_traces():
    plain = expect(0, "run", "-m", NANO, "-n", "3", "--greedy", "--quiet", PROMPT).out
    a, text = trace("best")
    equal(text, plain, "the text with a trace")
    equal(max(r["seq"] for r in records(a)), 2, "a pass for the prompt and one for each token but the last")
    for name, options in (("scalar", ["--isa", "scalar"]), ("host", ["--device", "host"])):
        b, text = trace(name, *options)
        equal(text, plain, f"the text by {name}")
        r = expect(0, "trace-diff", a, b)
        check(r.out.endswith("tensors equal\n"), r.out)
    b, _ = trace("variable", env="BITNET_TRACE_DIR")
    d = expect(0, "trace-diff", a, b, "--json").json()
    check(d["equal"] and d["n_equal"] == len(records(a)) and d["first"] is None, d)


def damaged(tensor):
    """nano with one bit of one weight changed."""
    path = temp("damaged.gguf")
    shutil.copyfile(NANO, path)
    t = [t for t in expect(0, "inspect", NANO, "--json", "--no-stats").json()["tensors"] if t["name"] == tensor][0]
    with open(path, "r+b") as f:
        f.seek(t["offset"] + 40)
        byte = f.read(1)[0]
        f.seek(-1, 1)
        # the four codes of a byte are 0, 1 or 2; another valid one in the lowest two bits
        f.write(bytes([byte & 0xfc | (byte & 3) ^ (1 if byte & 3 != 2 else 3)]))
    return path


def test_the_first_difference_is_named():
    a, _ = trace("sound", n=1)
    b, _ = trace("hurt", model=damaged("blk.1.ffn_down.weight"), n=1)
    r = expect(7, "trace-diff", a, b, says="the traces differ")
    check(": blk.1.ffn_down, stage linear, layer 1, pass 0, " in r.out and "(sha256)" in r.out, r.out)
    d = expect(7, "trace-diff", a, b, "--json").json()
    equal((d["equal"], d["first"]["a"]["name"], d["first"]["differs"]), (False, "blk.1.ffn_down", "sha256"), "JSON")
    equal(d["n_equal"], d["first"]["at"], "tensors before it")
    c, _ = trace("longer", n=1, prompt=PROMPT + " there")
    r = expect(7, "trace-diff", a, c)
    check("the first difference is tensor 0 (shape)" in r.out, r.out)
    c, _ = trace("more", n=2)
    r = expect(7, "trace-diff", a, c)
    check("(length)" in r.out and f"ends after {len(records(a))} tensors" in r.out, r.out)


def test_tolerance():
    a, _ = trace("one", n=1)
    b = temp("other")
    shutil.copytree(a, b)
    name = os.path.join(b, sorted(os.listdir(b))[5])
    with open(name) as f:
        r = json.load(f)
    r["sha256"], r["rms"] = "0" * 64, r["rms"] * 1.001
    with open(name, "w") as f:
        json.dump(r, f)
    expect(7, "trace-diff", a, b)
    expect(7, "trace-diff", a, b, "--tolerance", "0.0009")
    check(", 1 within 0.002" in expect(0, "trace-diff", a, b, "--tolerance", "0.002").out, "the tensor is close")
    r["rms"] = None
    with open(name, "w") as f:
        json.dump(r, f)
    expect(7, "trace-diff", a, b, "--tolerance", "1")


def test_what_cannot_be_compared_is_refused():
    a, _ = trace("again", n=1)
    expect(5, "run", "-m", NANO, "-n", "1", "--trace-dir", a, PROMPT, says="holds .*json already")
    expect(5, "run", "-m", NANO, "-n", "1", "--trace-dir", NANO + "/x", PROMPT, says="cannot be made")
    expect(2, "trace-diff", a)
    expect(5, "trace-diff", a, temp("nowhere"), says="cannot be read")
    empty = temp("empty")
    os.mkdir(empty)
    expect(5, "trace-diff", a, empty, says="holds no trace")
    for i, text in enumerate(("", "{", "[]", '{"index": 0}', '{"index": "0", "name": 3}', "x" * 70000)):
        folder = temp(f"bad{i}")
        os.mkdir(folder)
        write(os.path.join(folder, "0.json"), text.encode())
        expect(5, "trace-diff", folder, a, says="not a record of a trace")
    os.mkfifo(os.path.join(empty, "pipe.json"))
    expect(5, "trace-diff", empty, a, says="not a record of a trace")


if __name__ == "__main__":
    main(globals())
