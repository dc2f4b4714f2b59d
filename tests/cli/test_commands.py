#!/usr/bin/env python3
"""tokenize, score, inspect, convert, version and the lists: what they print, as text and as JSON, and how they fail."""
import json
import math
import os
import re
import shutil
import struct

from harness import (BITNET, QUICK, SOURCE, Skip, check, equal, expect, fails, main, model, run, shared, temp, temporaries, write)


# ---- tokenize ----

def tokens(*args, **kw):
    return expect(0, "tokenize", "-m", model("nano"), "--json", *args, **kw).json()


def test_tokenize_sources_agree():
    want = tokens("Once upon a time")
    equal(want["ids"], expect(0, "run", "-m", model("nano"), "-n", "0", "--json", "-p", "Once upon a time").json()["prompt_ids"],
          "tokenize and run")
    equal(tokens("--text", "Once upon a time")["ids"], want["ids"], "--text")
    equal(tokens(stdin=b"Once upon a time")["ids"], want["ids"], "standard input")
    equal(tokens("--file", write("t.txt", "Once upon a time"))["ids"], want["ids"], "--file")
    check(tokens(stdin=b"Once upon a time\n")["ids"] != want["ids"], "a file is taken byte for byte")
    equal((want["count"], len(want["pieces"])), (len(want["ids"]), len(want["ids"])), "count and pieces")
    equal("".join(want["pieces"][1:]), "Once upon a time", "pieces")
    check(want["tokenizer"]["type"].startswith("bpe/") and want["tokenizer"]["bos"] == want["ids"][0], "tokenizer")
    equal(tokens("--no-bos", "Once")["ids"], tokens("Once")["ids"][1:], "--no-bos")
    check(len(tokens("--no-special", "<|eot_id|>")["ids"]) > 2, "--no-special")
    fails(2, "tokenize", "-m", model("nano"), "--text", "x", "y", says="given twice")


def test_tokenize_text_output():
    out = expect(0, "tokenize", "-m", model("nano"), "-e", "a\\n<|eot_id|>").out
    check(re.search(r"^ +\d+  '<\|begin_of_text\|>'  special$", out, re.M), out)
    check("'\\n'" in out and out.endswith("4 tokens\n"), out)


def test_tokenize_decodes():
    ids = tokens("--no-bos", "Füchse <|eot_id|> \x01")["ids"]
    listed = " ".join(map(str, ids))
    equal(expect(0, "tokenize", "-m", model("nano"), "--ids", listed).raw.decode(), "Füchse  \x01\n", "--ids")
    equal(expect(0, "tokenize", "-m", model("nano"), "--print-special", "--ids", json.dumps(ids)).raw.decode(),
          "Füchse <|eot_id|> \x01\n", "--ids as JSON, --print-special")
    equal(expect(0, "tokenize", "-m", model("nano"), "--json", "--ids", listed).json()["ids"], ids, "--json")
    fails(2, "tokenize", "-m", model("nano"), "--ids", "1 x", says="--ids: 'x' is not a token of this model .0 to 511.")
    fails(2, "tokenize", "-m", model("nano"), "--ids", "1,512", says="'512'")
    fails(2, "tokenize", "-m", model("nano"), "--ids", "1", "text", says="exclude each other")


def test_tokenize_any_bytes():
    every = bytes(range(256))
    r = tokens("--no-bos", stdin=every)
    back = expect(0, "tokenize", "-m", model("nano"), "--ids", " ".join(map(str, r["ids"]))).raw
    equal(back, every + b"\n", "all bytes there and back")


def test_tokenize_vocabulary_only():
    for name in ("llama-bpe-rebuilt", "ggml-vocab-llama-spm", "ggml-vocab-gpt-2"):
        path = shared("vocab", name + ".gguf")
        r = expect(0, "tokenize", "-m", path, "--json", "Hello world").json()
        check(r["count"] >= 2, f"{name}: {r['ids']}")
    fails(3, "run", "-m", shared("vocab", "ggml-vocab-gpt-2.gguf"), "-p", "x", says="gpt")


# ---- score ----

def score(*args, **kw):
    return expect(0, "score", "-m", model("nano"), "--json", *args, **kw).json()


def test_score_reference():
    with open(shared("story-model", "nano", "golden", "score.json")) as f:
        want = json.load(f)
    path = shared("story-model", "nano", "golden", "score.txt")
    if b"sanitizer" in run("version").raw:  # slow: six documents must do
        with open(path) as f:
            path = write("six.txt", "<|endoftext|>\n".join(f.read().split("<|endoftext|>\n")[:6]))
        want["documents"] = want["documents"][:6]
        want["mean_nll"] = (sum(d["nll"] for d in want["documents"]) / sum(d["n_tokens"] - 1 for d in want["documents"]))
    got = score("--file", path)
    equal([d["n_tokens"] for d in got["documents"]], [d["n_tokens"] for d in want["documents"]], "n_tokens")
    for i, (a, b) in enumerate(zip(got["documents"], want["documents"])):
        check(abs(a["nll"] / b["nll"] - 1) <= 0.01, f"document {i}: nll {a['nll']}, reference {b['nll']}")
    check(abs(got["mean_nll"] / want["mean_nll"] - 1) <= 0.002, f"mean {got['mean_nll']}, reference {want['mean_nll']}")
    check(math.isclose(got["ppl"], math.exp(got["mean_nll"]), rel_tol=1e-9), "ppl")
    equal(got["tokens"], sum(d["n_tokens"] for d in got["documents"]), "tokens")
    check(math.isclose(got["mean_nll"], sum(d["nll"] for d in got["documents"]) / got["predictions"], rel_tol=1e-9), "mean")


def test_score_cuts_files_right():
    one = score(stdin=b"Once upon a time")["documents"]
    equal(len(one), 1, "one text")
    lines = score(stdin=b"Once upon a time\n\nOnce upon a time\r\nOnce")["documents"]
    equal((len(lines), lines[0], lines[2]), (4, one[0], one[0]), "one text per line")
    equal(lines[1], {"n_tokens": 1, "n_scored": 0, "nll": 0.0}, "an empty line is an empty text")
    sep = b"<|endoftext|>\n"
    docs = score(stdin=sep + b"Once upon a time\n" + sep + b"Once\nupon\n" + sep)["documents"]
    equal((len(docs), docs[0]), (2, one[0]), "documents between separators")
    equal(docs[1], score(stdin=b"Once\nupon\n" + sep)["documents"][0], "a document may have several lines")
    twice = score(stdin=b"Once\n" + sep + sep + b"upon")["documents"]
    equal([d["n_tokens"] > 1 for d in twice], [True, False, True], "an empty document between two separators")
    inside = score(stdin=b"Once <|endoftext|>\nupon\n")["documents"]
    equal(len(inside), 2, "a separator inside a line separates nothing")
    equal(score("--max-tokens", "3", stdin=b"Once upon a time")["documents"][0]["n_tokens"], 3, "--max-tokens")


def test_score_long_texts():
    text = b"The wind was cold and the fox was sad. " * 30
    cut, strided = score(stdin=text)["documents"][0], score("--stride", "64", stdin=text)["documents"][0]
    equal(cut["n_tokens"], 256, "cut at the context")
    check(strided["n_tokens"] > 300 and strided["n_scored"] == strided["n_tokens"] - 1, f"--stride: {strided}")
    equal(score("--ctx", "32", stdin=text)["documents"][0]["n_tokens"], 32, "--ctx")


def test_score_without_predictions():
    r = score(stdin=b"\n")
    equal((r["mean_nll"], r["ppl"], r["predictions"]), (None, None, 0), "nothing to predict")
    equal(r["throughput_tps"], 0, "no speed where nothing was computed")
    r = expect(0, "score", "-m", model("nano"), stdin=b"\n")
    check("nothing was predicted" in r.out, "text")
    equal(r.err, "[1 text, 1 token]\n", "closing line")
    r = expect(0, "score", "-m", model("nano"), "-n", "2", stdin=b"Once upon a time")
    check("over 1 prediction\n" in r.out and re.match(r"\[1 text, 2 tokens, [\d.,]+ tok/s\]\n", r.err), f"{r.out} {r.err}")
    fails(2, "score", "-m", model("nano"), stdin=b"", says="holds no text")
    fails(5, "score", "-m", model("nano"), "--file", "/nonexistent", says="/nonexistent: cannot open")
    fails(2, "score", "-m", model("nano"), "--file", "a", "b", says="given twice")


def test_score_text_output():
    out = expect(0, "score", "-m", model("nano"), stdin=b"Once upon a time\nOnce\n").out
    check(re.search(r"^ +1 +\d+ +[\d.]+ +[\d.]+$", out, re.M) and "perplexity" in out, out)


# ---- inspect ----

def test_inspect():
    r = expect(0, "inspect", model("nano"), "--json").json()
    import hashlib
    with open(model("nano"), "rb") as f:
        data = f.read()
    equal(r["sha256"], hashlib.sha256(data).hexdigest(), "sha256")
    equal((r["n_file_bytes"], r["gguf_version"], r["status"], r["suspicious"]), (len(data), 3, "ok", []), "head")
    equal((r["n_tensors"], r["n_kv"]), (len(r["tensors"]), len(r["metadata"])), "counts")
    keys = {m["key"]: m for m in r["metadata"]}
    equal(keys["general.architecture"]["value"], "bitnet-b1.58", "metadata")
    equal(sum(t["n_elems"] for t in r["tensors"]), r["n_params"], "n_params")
    bits = sum(t["n_bytes"] for t in r["tensors"]) * 8 / r["n_params"]
    check(math.isclose(r["bits_per_weight"], bits, rel_tol=1e-9), "bits_per_weight")
    ternary = [t for t in r["tensors"] if t["type"] == "I2_S"]
    check(ternary and all(t["stats"]["n_invalid"] == 0 and t["stats"]["scale"] > 0 for t in ternary), "I2_S stats")
    for t in ternary:
        s = t["stats"]
        equal(s["n_minus"] + s["n_zero"] + s["n_plus"], t["n_elems"], f"{t['name']}: trits")
    out = expect(0, "inspect", model("nano")).out
    for word in ("general.architecture", "blk.0.attn_q.weight", "I2_S", "bits per weight", r["sha256"], "Status: ok"):
        check(word in out, f"text lacks {word}")
    short = expect(0, "inspect", "-m", model("nano"), "--no-stats", "--no-checksum", "--kv-limit", "3").out
    check("sha256" not in short and "... and" in short and "not read" in short, "limited output")
    equal(expect(0, "inspect", model("nano"), "--strict").code, 0, "--strict")


def test_inspect_finds_suspicious_weights():
    r = expect(0, "inspect", model("nano"), "--json").json()
    norm = next(t for t in r["tensors"] if t["name"] == "output_norm.weight")
    with open(model("nano"), "rb") as f:
        data = bytearray(f.read())
    data[norm["offset"]:norm["offset"] + 4] = struct.pack("<f", float("nan"))
    path = write("nan.gguf", bytes(data))
    bad = expect(0, "inspect", path, "--json").json()
    equal([s["tensor"] for s in bad["suspicious"]], ["output_norm.weight"], "suspicious")
    equal(bad["status"], "warning", "status")
    r = expect(8, "inspect", path, "--strict", says="1 tensor looks suspicious")
    check("SUSPICIOUS" in r.out, "the table names it")
    fails(2, "inspect", path, "--strict", "--no-stats", says="--no-stats")


def test_inspect_bad_files():
    fails(3, "inspect", write("x.gguf", b"GGUF"), says="x.gguf")
    fails(5, "inspect", "/nonexistent.gguf", says="nonexistent")
    fails(2, "inspect", "a", "-m", "b", says="two models are given: a and --model b")
    check(expect(0, "inspect", shared("vocab", "ggml-vocab-gpt-2.gguf")).out.count("gpt") > 0, "a file we cannot run")


# ---- convert ----

def test_convert():
    source = shared("story-model", "nano")
    for kind in ("i2_s", "tq2_0", "tq1_0", "f16", "f32"):
        out = temp(kind + ".gguf")
        r = expect(0, "convert", source, out, "--type", kind, "--json").json()
        equal((r["type"], r["n_file_bytes"]), (kind, os.path.getsize(out)), "JSON")
        text = expect(0, "run", "-m", out, "--greedy", "-n", "8", "-p", "Once upon a time").out
        check(text.strip(), f"{kind}: no text")
    equal(expect(0, "convert", "-i", source, "-o", temp("io.gguf"), "-q", "TQ2_0", "--verify").code, 0, "-i -o --verify")
    with open(temp("io.gguf"), "rb") as f, open(temp("tq2_0.gguf"), "rb") as g:
        equal(f.read(), g.read(), "the same file twice")
    quiet = expect(0, "conv", source, temp("io.gguf"), "--embedding", "q6_k", "--quiet")
    equal((quiet.raw, quiet.err_raw), (b"", b""), "--quiet")
    check(expect(0, "convert", source, temp("io.gguf"), "--quiet", "--json").json()["n_tensors"] > 0, "--quiet --json")
    fails(2, "convert", source, temp("io.gguf"), "--no-clobber", says="exists, and --no-clobber")
    expect(0, "convert", source, temp("io.gguf"), "--no-clobber", "--force")
    equal(temporaries(), [], "temporary files")


def test_convert_llama2c():
    out = temp("stories.gguf")
    expect(0, "convert", shared("third-party", "stories260K.bin"), out, "--tokenizer", shared("third-party", "tok512.bin"),
           "--type", "f32", "--embedding", "f32")
    check(expect(0, "run", "-m", out, "--greedy", "-n", "20", "--kv", "f32").out.strip(), "no text")


def test_convert_spares_its_input():
    source = temp("own-checkpoint")
    shutil.copytree(shared("story-model", "nano"), source, copy_function=shutil.copyfile)
    for name in sorted(os.listdir(source)):
        path = os.path.join(source, name)
        if not os.path.isfile(path):
            continue
        before = open(path, "rb").read()
        fails(2, "convert", source, path, says="is part of the input; choose another output")
        check(open(path, "rb").read() == before, f"{name} was changed")
    for _ in range(2):
        expect(0, "convert", source, os.path.join(source, "model.gguf"))
    equal(temporaries(source), [], "temporary files")


def test_model_is_no_output():
    path = temp("mine.gguf")
    shutil.copyfile(model("nano"), path)
    os.symlink(path, temp("alias"))
    before = open(path, "rb").read()
    text = ("-n", "2", "-p", "x")
    for args in (("run", *text, "-o"), ("run", *text, "--json-out"), ("run", *text, "--dump-logits"), ("run", *text, "--receipt"),
                 ("tokenize", "x", "--json-out"), ("score", "--json-out"), ("inspect", "--json-out"),
                 ("tune", "--tokens", "1", "-o"), ("validate", "--json-out"), ("chat", "--receipt"), ("chat", "--history")):
        for name in (path, temp("alias")):
            fails(2, *args, name, "-m", path, says="is the model; choose another output", stdin=b"some text\n")
    fails(2, "inspect", path, "--json-out", path, says="is the model")
    fails(2, "run", *text, "-o", path, says="is the model", env={"BITNET_GGUF": path})
    r = expect(0, "chat", "-m", path, stdin=f"/save {path}\n".encode())
    check("/save: " in r.err and "is the model; choose another file" in r.err, r.err)
    check(open(path, "rb").read() == before, "the model was changed")
    equal(temporaries(), [], "temporary files")


def test_convert_failures():
    source = shared("story-model", "nano")
    out = temp("never.gguf")
    fails(2, "convert", says="needs an input and an output")
    fails(2, "convert", source, says="needs an input and an output")
    fails(2, "convert", "-i", source, "-o", out, "third", says="unexpected argument 'third'")
    fails(2, "convert", source, temp("."), says="is a directory")
    fails(2, "convert", source, "/dev/null", says="not a regular file")
    fails(5, "convert", "/nonexistent", out, says="nonexistent")
    fails(5, "convert", source, "/nonexistent/x.gguf", says="nonexistent")
    empty = temp("empty-checkpoint")
    os.makedirs(empty)
    r = run("convert", empty, out)
    check(r.code in (3, 5) and "config.json" in r.err, f"{r.code} {r.err}")
    shutil.copytree(source, temp("broken"), copy_function=shutil.copyfile)
    with open(temp("broken/model.safetensors"), "r+b") as f:
        f.truncate(1000)
    r = run("convert", temp("broken"), out)
    check(r.code == 3 and "safetensors" in r.err, f"{r.code} {r.err}")
    check(not os.path.exists(out), "an output was left behind")
    equal(temporaries(), [], "temporary files")


# ---- version and lists ----

def test_V_6_health():
    j = expect(0, "health", "-m", model("nano"), "--json").json()
    check(j["healthy"] and j["memory_ok"] and j["compute_ok"] and j["cache_ok"] and j["detail"] == "", j)
    check(j["memory_available"] > 0 and j["process_bytes"] > 0, j)
    check(min(expect(0, "health", "-m", model("nano"), "--json").json()["elapsed_ms"] for _ in range(5)) < 100, "below 100 ms")
    lines = expect(0, "health", model("nano")).out.splitlines()
    equal([line.split(" ")[:2] for line in lines[:3]], [["memory:", "ok"], ["compute:", "ok"], ["cache:", "ok"]], "text")
    check(re.fullmatch(r"health: healthy, in \d+\.\d{3} ms", lines[3]), lines)
    fails(5, "health", "/nonexistent.gguf", says="nonexistent")
    fails(3, "health", "-m", f"{SOURCE}/LICENSE", says="not a GGUF")


def test_C_4_resident_memory():
    """Weights are mapped and what was packed is let go: a larger file takes no more memory than half as much again."""
    if QUICK:
        raise Skip("a sanitizer's memory is its own")
    bytes_of = {m: expect(0, "health", "-m", model(m), "--json").json()["process_bytes"] for m in ("nano", "story")}
    file_bytes = os.path.getsize(model("story")) - os.path.getsize(model("nano"))
    grown = bytes_of["story"] - bytes_of["nano"]
    check(0 < grown < 1.5 * file_bytes, f"{grown} bytes for {file_bytes} of weights")


def test_version():
    r = expect(0, "version", "--json").json()
    check(re.fullmatch(r"\d+\.\d+\.\d+", r["version"]), r["version"])
    check("cpu" in r["backends"] and r["compiler"] and r["features"], "fields")
    check(any(i["name"] == "scalar" and i["available"] for i in r["isa"]), "scalar is always there")
    check(all(k["id"] and k["op"] for k in r["kernels"]), "kernels")
    text = expect(0, "version").out
    check(text.startswith("bitnet " + r["version"]) and "compiler:" in text and "scalar" in text, text)
    equal(run("--version").out, text, "--version")
    equal(run("run", "-V").out, text, "-V")
    equal(run("--interface-version").out, "1.0.0\n", "--interface-version")


def test_BE_8_warmup():
    """One step before the first that counts: it ran, the words and the receipt are those without it."""
    ask = ("run", "-m", model("nano"), "-p", "Once", "-n", "4", "--greedy", "--json", "--device", "cpu")
    cold, warm = expect(0, *ask).json(), expect(0, *ask, "--warmup", "--receipt", temp("warm.json")).json()
    equal(warm["text"], cold["text"], "text")
    calls = [sum(k["calls"] for k in j["kernels"]) for j in (cold, warm)]
    check(calls[1] > calls[0], f"no kernel was called for it: {calls}")
    expect(0, "receipt", "verify", temp("warm.json"))


def test_BE_12_the_compiled_set():
    """What version says is compiled in is what devices says, and what the program is linked with."""
    r = expect(0, "version", "--json").json()
    kinds = expect(0, "devices", "--json", env={"BITNET_GPU_FAKE": "none"}).json()["devices"]
    equal(set(r["backends"]), {k["device"] for k in kinds if k["compiled"]}, "backends")
    with open(BITNET, "rb") as f:
        linked = set(re.findall(rb"lib(crypto|pcre2|jansson|edit|microhttpd)\b[-.\w]*\.so", f.read()))
    named = {"pcre2": "pcre2", "jansson": "jansson", "crypto": "libcrypto", "edit": "libedit", "microhttpd": "libmicrohttpd"}
    for library in linked:
        check(named[library.decode()] in r["features"], f"{library} is linked and not named: {r['features']}")
    check(f"backends: {' '.join(r['backends'])}\n" in expect(0, "version").out, "text")


def test_lists():
    names = expect(0, "list-templates").out.split()
    equal(expect(0, "list-templates", "--json").json()["templates"], names, "list-templates")
    check({"bitnet", "llama3", "chatml", "falcon3", "raw"} <= set(names), names)
    names = expect(0, "list-architectures").out.split()
    equal(expect(0, "list-architectures", "--json").json()["architectures"], names, "list-architectures")
    check({"bitnet-b1.58", "bitnet-25", "bitnet", "llama"} <= set(names), names)


if __name__ == "__main__":
    main(globals())
