#!/usr/bin/env python3
"""bitnet run: prompts, the JSON object, determinism, stops, dumps, output files, errors with their exit codes."""
import array
import json
import os
import re
import resource
import shutil
import struct
import subprocess
import time

from harness import (BITNET, QUICK, Skip, check, clean_env, equal, expect, fails, main, model, run, shared, temp, temporaries,
                     write)

N = "12"


def nano(*args, code=0, **kw):
    return expect(code, "run", "-m", model("nano"), "-n", N, *args, **kw)


def test_no_stream_for_a_file():
    """Where a stream cannot be made of a new file (no memory), nothing of it is left behind."""
    cc = shutil.which("cc")
    if not cc or QUICK:
        raise Skip("needs a compiler and a build without sanitizer")
    folder = temp("no-stream")
    os.makedirs(folder)
    with open(os.path.join(folder, "shim.c"), "w", encoding="utf-8") as f:
        f.write("#include <errno.h>\n#include <stddef.h>\nvoid *fdopen(int fd, const char *mode)\n"
                "{ (void)fd, (void)mode; errno = ENOMEM; return NULL; }\n")
    subprocess.run([cc, "-shared", "-fPIC", "-o", f"{folder}/shim.so", f"{folder}/shim.c"], check=True)
    os.makedirs(f"{folder}/out")
    r = run("run", "-m", model("nano"), "-n", "2", "-o", f"{folder}/out/text", "x", env={"LD_PRELOAD": f"{folder}/shim.so"})
    check(r.code == 5 and "cannot write" in r.err, f"{r.code}: {r.err}")
    check(os.listdir(f"{folder}/out") == [], f"left behind: {os.listdir(folder + '/out')}")


def test_prompt_sources_agree():
    want = nano("--greedy", "-p", "Once upon a time").out
    check(want.strip(), "nothing was written")
    equal(nano("--greedy", "Once", "upon", "a", "time").out, want, "arguments")
    equal(nano("--greedy", stdin=b"Once upon a time").out, want, "standard input")
    equal(nano("--greedy", stdin=b"Once upon a time\n").out, want, "standard input, final newline dropped")
    equal(nano("--greedy", "-", stdin=b"Once upon a time\n").out, want, "-")
    path = write("prompt.txt", "Once upon a time\n")
    equal(nano("--greedy", "--file", path).out, want, "--file")
    equal(nano("--greedy", "--input-file", path).out, want, "--input-file")
    two = nano("--greedy", "--json", stdin=b"a\n\n").json()
    equal(two["prompt"], "a\n", "only one newline is dropped")
    equal(nano("--json", "-e", "-p", "a\\n\\x41\\\\").json()["prompt"], "a\nA\\", "--escapes")
    equal(nano("--json", "-p", "a\\n").json()["prompt"], "a\\n", "without --escapes")


def test_empty_prompt_begins_with_bos():
    r = nano("--json").json()
    equal(len(r["prompt_ids"]), 1, "only BOS")
    fails(2, "run", "-m", model("nano"), "--no-bos", "-p", "", says="the prompt is empty")


def test_json_object():
    r = nano("--json", "-p", "Once upon a time", "--seed", "5").json()
    for key in ("prompt_ids", "ids", "text", "finish_reason", "timing_ms", "throughput_tps", "kernels", "seed", "model"):
        check(key in r, f"no {key}")
    for key in ("load", "tokenize", "prefill", "decode", "total"):
        check(r["timing_ms"][key] >= 0, f"timing_ms.{key}")
    check(r["throughput_tps"]["prefill"] > 0 and r["throughput_tps"]["decode"] > 0, "throughput_tps")
    check(r["kernels"] and all(k["calls"] > 0 and "." in k["id"] for k in r["kernels"]), f"kernels {r['kernels']}")
    equal((r["seed"], r["counts"]["generated"], len(r["ids"])), (5, len(r["ids"]), len(r["ids"])), "counts")
    equal(r["counts"]["prompt"], len(r["prompt_ids"]), "counts.prompt")
    equal(r["text"] + "\n" if not r["text"].endswith("\n") else r["text"],
          nano("-p", "Once upon a time", "--seed", "5").out, "text of --json and plain output")
    equal(r["sampling"], {"temperature": 0.7, "top_k": 50, "top_p": 0.95, "min_p": 0.0, "typical_p": 1.0,
                          "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}, "defaults")


def test_json_stays_valid_for_any_bytes():
    for seed in range(8):  # a hot sampler picks pieces of characters
        r = nano("--json", "--temperature", "50", "--top-k", "0", "--top-p", "1", "-n", "60", "--seed", str(seed),
                 stdin=b"\xff\xc3(\xed\xa0\x80\x00end").json()
        check("�" in r["prompt"], "bytes that are no UTF-8 become U+FFFD")
        check(r["prompt"].endswith("\x00end"), "a zero byte is a character like others")


def test_json_out_and_output():
    j, t = temp("run.json"), temp("run.txt")
    r = nano("--seed", "3", "--json-out", j, "-o", t, "-p", "Once")
    with open(j) as f, open(t) as g:
        equal(r.out.rstrip("\n"), json.load(f)["text"].rstrip("\n"), "--json-out")
        equal(g.read().rstrip("\n"), r.out.rstrip("\n"), "--output")
    nano("--json", "--seed", "3", "-o", t, "-p", "Once", "-n", "3")
    with open(t) as g:
        check(r.out.startswith(g.read()), "--output with --json")
    fails_late = nano("--json-out", "/nonexistent/x.json", "-p", "Once", code=5)
    check("/nonexistent/x.json: cannot write" in fails_late.err, fails_late.err)
    equal(nano("--json-out", "/dev/null", "-p", "Once").code, 0, "a device is written, not replaced")
    check(not os.path.isfile("/dev/null"), "/dev/null was replaced by a file")


def test_same_text_for_any_threads_and_batch():
    prompt = "Once upon a time there was a little fox who lived in the big wood and had no friends at all. One day"
    want = None
    for extra in (["-t", "1"], ["-t", "2"], ["-t", "3"], ["-t", "7"], ["-b", "1"], ["-b", "7"], ["-b", "512", "-t", "3"]):
        r = nano("--json", "--seed", "11", "-n", "40", "-p", prompt, *extra).json()
        want = want or (r["ids"], r["text"])
        equal((r["ids"], r["text"]), want, f"{extra}")


def test_random_seed_is_printed_and_works():
    a, b = (nano("-p", "Once", "-n", "30") for _ in range(2))
    seeds = [re.search(r"seed (\d+)", r.err).group(1) for r in (a, b)]
    check(seeds[0] != seeds[1], "two random seeds are equal")
    equal(nano("-p", "Once", "-n", "30", "--seed", seeds[0]).out, a.out, "the printed seed gives the text again")


def test_closing_line():
    speed = r"[\d.,]+ tok/s, "
    for args, says in ((("-n", "40"), rf"\[40 tokens, {speed}seed 4, cut at -n 40\]\n"),
                       (("-n", "1"), r"\[1 token, seed 4, cut at -n 1\]\n"),
                       (("-n", "0"), r"\[0 tokens, cut at -n 0\]\n"),
                       (("-n", "8", "--greedy"), rf"\[8 tokens, {speed}cut at -n 8\]\n"),
                       (("-c", "16", "-n", "-1", "--ignore-eos"), rf"\[\d+ tokens, {speed}seed 4, cut: the context of 16 tokens is full\]\n")):
        r = nano("-p", "Once", "--seed", "4", *args)
        check(re.fullmatch(says, r.err), f"{args}: closing line {r.err!r}")
    r = nano("-p", "Once", "--seed", "9223372036854775807", "-n", "100000000", "--ignore-eos")
    check(re.search(r"seed 9223372036854775807, cut: ", r.err) and len(r.err) <= 81, f"at most 80 columns: {r.err!r}")
    free = nano("--json", "--greedy", "-n", "40", "-p", "Once").json()
    check("stopped at a --stop text" in nano("--greedy", "-p", "Once", "--stop", free["text"][4:9]).err, "--stop")
    check(f"stopped at token {free['ids'][3]}]" in nano("--greedy", "-p", "Once", "--stop-id", str(free["ids"][3])).err, "--stop-id")
    check(re.search(r"info: run: prompt of \d tokens?, .*kernels \w+\.\w+", nano("-v", "-p", "Once", "-n", "4").err), "-v: kernels")
    equal(nano("-p", "Once", "--seed", "4", "--quiet").err, "", "--quiet")
    equal(nano("-p", "Once", "--seed", "4", "--json").err, "", "--json has all of it in the object")


def test_default_length():
    """What the context allows, and a text that ends by itself is whole."""
    endless = ("run", "-m", model("nano"), "--json", "--greedy", "--ignore-eos", "-p", "Once")
    r = expect(0, *endless).json()
    equal((r["finish_reason"], r["counts"]["total"]), ("length", r["context"] + 1), "as many as the context has room for")
    for args in (("-n", "-1"), ("--max-tokens", "-1"), ("--max-tokens=-1",)):
        equal(expect(0, *endless, *args).json()["ids"], r["ids"], f"{args}")
    equal(expect(0, *endless, env={"BITNET_MAX_NEW_TOKENS": "-1"}).json()["ids"], r["ids"], "BITNET_MAX_NEW_TOKENS=-1")
    r = expect(0, "run", "-m", model("story"), "--seed", "1", "-p", "Once upon a time")
    check("ended by itself]" in r.err and r.out.rstrip()[-1] in ".!?\"'", f"a whole story: {r.err} {r.out[-80:]}")


def test_names_of_files_are_no_fields():
    for name in ("n_ctx", "isa", "my isa dir/x.gguf"):
        check(run("run", "--model", name, "-p", "x").err.startswith(f"bitnet: {name}: "), f"{name}")


def test_log_levels():
    check("info: load: " in nano("-v", "-p", "Once").err, "--verbose")
    check("info: load: " in nano("-p", "Once", env={"BITNET_LOG": "debug"}).err, "BITNET_LOG")
    check("warning: session: --ctx 512 is beyond the" in nano("-c", "512", "-p", "Once").err, "warnings are on")
    check("warning" not in nano("-c", "512", "--no-warnings", "-p", "Once").err, "--no-warnings")
    check("warning" not in nano("-c", "512", "-p", "Once", env={"BITNET_LOG_LEVEL": "error"}).err, "BITNET_LOG_LEVEL")


def test_stops():
    free = nano("--json", "--greedy", "-n", "40", "-p", "Once upon a time").json()
    text = free["text"]
    at = text.index(" ", 12)
    stop = text[at:at + 6]
    r = nano("--json", "--greedy", "-n", "40", "-p", "Once upon a time", "--stop", "never there", "--stop-sequence", stop).json()
    equal((r["finish_reason"], r["text"]), ("stop", text[:text.index(stop)]), "--stop")
    wanted = free["ids"][5]
    r = nano("--json", "--greedy", "-n", "40", "-p", "Once upon a time", "--stop-id", str(wanted)).json()
    equal((r["finish_reason"], r["ids"][-1], len(r["ids"])), ("stop", wanted, free["ids"].index(wanted) + 1), "--stop-id")
    equal(free["finish_reason"], "length", "40 tokens")
    equal(len(nano("--json", "-n", "0", "-p", "x").json()["ids"]), 0, "--max-tokens 0")
    equal(nano("-n", "0", "-p", "x").raw, b"", "--max-tokens 0 prints nothing")
    equal(nano("-n", "0", "-p", "x", "--echo").raw, b"x\n", "--max-tokens 0 --echo")
    fails(2, "run", "-m", model("nano"), "--stop-id", "512", "-p", "x", says="--stop-id: 512 is not a token of this model .0 to 511.")
    fails(2, "run", "-m", model("nano"), "--stop", "x" * 257, "-p", "x", says="1 to 256 bytes")


def timed(*args):
    """An endless run that --timeout ends once it is loaded, however busy the machine is."""
    for seconds in ("0.5", "2", "10"):
        r = run("run", "-m", model("nano"), "-n", "-1", "-c", "100000", "--no-warnings", "--ignore-eos", "--seed", "4", "-p", "Once",
                "--timeout", seconds, *args)
        if r.code == 0:
            return r
    raise AssertionError(f"not loaded in 10 seconds: {r.err}")


def test_timeout():
    """From the beginning: loading, the text of the prompt, its tokens, the reply."""
    r = timed()
    check(re.fullmatch(r"\[[\d,]+ tokens?, ([\d.,]+ tok/s, )?seed 4, stopped by --timeout\]\n", r.err), f"closing line {r.err!r}")
    equal(timed("--json").json()["finish_reason"], "timeout", "--json")
    fails(1, "run", "-m", model("nano"), "--timeout", "0.000001", "-p", "Once",
          says="nano.gguf: loading was cancelled: --timeout 1e-06 is over before there is any text")
    path = temp("long.txt")
    with open(path, "w") as f:
        f.write("Once upon a time there was a fox. " * 600000)  # seconds of tokenizing
    late = []
    for seconds in (0.1, 0.2, 0.4):
        began = time.monotonic()
        fails(1, "run", "-m", model("nano"), "--timeout", str(seconds), "-f", path, says="--timeout .* is over before there is any text")
        late.append(time.monotonic() - began - seconds)
    check(min(late) < 0.5, f"ended {late} s after its time")


def test_ignore_eos_and_print_special():
    prompt = "User: Tell me a story.<|eot_id|>Assistant:"
    r = nano("--json", "--greedy", "-n", "40", "-p", prompt).json()
    equal((r["finish_reason"], "<|" in r["text"]), ("eos", False), "ends by itself")
    longer = nano("--json", "--greedy", "-n", "40", "--ignore-eos", "-p", prompt).json()
    equal((longer["finish_reason"], len(longer["ids"])), ("length", 40), "--ignore-eos")
    shown = nano("--json", "--greedy", "-n", "40", "--ignore-eos", "--print-special", "-p", prompt).json()
    check("<|eot_id|>" in shown["text"], "--print-special")


def test_special_tokens_and_bos():
    text = "<|begin_of_text|>User: x<|eot_id|>"
    ids = nano("--json", "-p", text).json()["prompt_ids"]
    equal(ids.count(ids[0]), 1, "BOS is not doubled")
    plain = nano("--json", "--no-special", "-p", text).json()["prompt_ids"]
    check(len(plain) > len(ids), "--no-special makes plain text of the names")
    equal(nano("--json", "--no-bos", "-p", "Once").json()["prompt_ids"],
          nano("--json", "-p", "Once").json()["prompt_ids"][1:], "--no-bos")


def test_template():
    raw = nano("--json", "-p", "User: Hi<|eot_id|>Assistant:").json()["prompt_ids"]
    equal(nano("--json", "--template", "auto", "-p", "Hi").json()["prompt_ids"], raw, "--template auto")
    r = nano("--json", "--chat-template", "chatml", "--system-prompt", "Be kind", "-p", "Hi").json()
    check("Be kind" in r["prompt"] and "im_start" in r["prompt"], f"chatml: {r['prompt']}")
    r = nano("--json", "-e", "--template", "chatml", "--system", "a\\tb", "-p", "c\\td").json()
    check("a\tb" in r["prompt"] and "c\td" in r["prompt"], f"--escapes: {r['prompt']}")
    fails(2, "run", "-m", model("nano"), "--template", "chatlm", "-p", "x", says="did you mean chatml")
    fails(2, "run", "-m", model("nano"), "--system", "x", "-p", "x", says="--system needs --template")


def test_dump_logits():
    path = temp("logits.f32")
    r = nano("--json", "--kv", "f32", "--greedy", "-n", "1", "--dump-logits", path, "-p", "Once upon a time").json()
    with open(path, "rb") as f:
        data = array.array("f", f.read())
    equal(len(data), len(r["prompt_ids"]) * r["model"]["n_vocab"], "floats in the file")
    last = data[-r["model"]["n_vocab"]:]
    equal(max(range(len(last)), key=lambda i: (last[i], -i)), r["ids"][0], "argmax of the last row is the greedy token")
    equal(nano("--json", "--kv", "f32", "--greedy", "-n", "9", "--dump-logits", path, "-p", "Once upon a time").json()["ids"],
          nano("--json", "--kv", "f32", "--greedy", "-n", "9", "-p", "Once upon a time").json()["ids"], "text after a dump")
    fails(5, "run", "-m", model("nano"), "--dump-logits", "/nonexistent/l", "-p", "x", says="/nonexistent/l: cannot write")
    equal(temporaries(), [], "temporary files")


def test_dump_logits_against_reference():
    with open(shared("story-model", "nano", "golden", "golden.json")) as f:
        golden = json.load(f)
    golden = golden if isinstance(golden, list) else golden["prompts"]
    for i, g in enumerate(golden):
        path = temp("g.f32")
        r = nano("--json", "--kv", "f32", "--greedy", "-n", "1", "--dump-logits", path, "-p", g["text"]).json()
        equal(r["prompt_ids"], g["ids"], f"ids of prompt {i}")
        with open(path, "rb") as f:
            ours = array.array("f", f.read())
        with open(shared("story-model", "nano", "golden", g["logits"]), "rb") as f:
            theirs = array.array("f", f.read())
        n = g["shape"][1]
        for p in range(g["shape"][0]):
            a, b = ours[p * n:(p + 1) * n], theirs[p * n:(p + 1) * n]
            cosine = sum(x * y for x, y in zip(a, b)) / (sum(x * x for x in a) * sum(y * y for y in b)) ** 0.5
            check(cosine >= 0.998, f"prompt {i} position {p}: cosine {cosine}")


def test_logit_steps_and_assert_greedy():
    r = nano("--json", "--greedy", "--dump-logit-steps", "3", "--logits-topk", "4", "-p", "Once").json()
    equal((len(r["logits"]), [len(s["top"]) for s in r["logits"]]), (3, [4, 4, 4]), "steps")
    for s, token in zip(r["logits"], r["ids"]):
        equal((s["chosen"], s["top"][0]["id"]), (token, token), "the greedy token is on top")
        logits = [t["logit"] for t in s["top"]]
        equal(logits, sorted(logits, reverse=True), "best first")
    nano("--greedy", "--assert-greedy", "-p", "Once")
    r = nano("--temperature", "20", "--top-k", "0", "--top-p", "1", "--seed", "1", "--assert-greedy", "-p", "Once", code=7)
    check("is not the most likely one" in r.err, r.err)
    check("step 0: chose" in nano("--greedy", "--dump-logit-steps", "1", "-p", "Once").err, "steps as text")
    ids = nano("--greedy", "--dump-ids", "-p", "Once").err
    check(re.search(r"prompt ids: \d+ .*\nids: \d+ ", ids), f"--dump-ids: {ids}")


def test_stream_and_echo():
    a = nano("--seed", "6", "-p", "Once")
    equal(nano("--seed", "6", "--no-stream", "-p", "Once").out, a.out, "--no-stream")
    equal(nano("--seed", "6", "--echo", "-p", "Once").out, "Once" + a.out, "--echo")


def test_kv_isa_and_layout():
    for kv in ("f32", "f16", "int8"):
        equal(nano("--json", "--kv", kv, "-p", "Once").json()["kv"], kv, "--kv")
    scalar = nano("--json", "--isa", "scalar", "--seed", "2", "-p", "Once").json()
    check(all(k["id"].endswith(".scalar") for k in scalar["kernels"]), f"--isa scalar: {scalar['kernels']}")
    equal(scalar["ids"], nano("--json", "--seed", "2", "-p", "Once").json()["ids"], "the text does not depend on the ISA")
    fails(2, "run", "-m", model("nano"), "--isa", "mmx", "-p", "x", says="mmx")
    fails(11, "run", "-m", model("nano"), "--device", "vulkan", "-p", "x", says="vulkan: Vulkan is not supported by this version of bitnet")
    fails(2, "run", "-m", model("nano"), "-d", "gpux", "-p", "x", says="is not a device")
    right, wrong = (nano("--json", "--greedy", "--i2s-layout", x, "-p", "Once upon a time").json() for x in ("128", "64"))
    check(right["ids"] != wrong["ids"], "--i2s-layout has no effect")


def test_context():
    long = "word " * 400
    fails(1, "run", "-m", model("nano"), "-p", long, says=r"the prompt has \d+ tokens and the context holds 256; .*--ctx")
    r = nano("--json", "--ctx", "16", "-n", "100", "--ignore-eos", "-p", "Once upon a time").json()
    equal((r["finish_reason"], r["context"]), ("length", 16), "--ctx 16")


def test_bad_model_files():
    with open(model("nano"), "rb") as f:
        good = f.read()
    fails(5, "run", "-m", "/nonexistent/m.gguf", "-p", "x", says="/nonexistent/m.gguf")
    fails(5, "run", "-m", temp("."), "-p", "x", says="directory")
    fails(3, "run", "-m", write("empty.gguf", b""), "-p", "x", says="empty.gguf")
    fails(3, "run", "-m", write("noise.gguf", b"no model here" * 100), "-p", "x", says="noise.gguf")
    fails(3, "run", "-m", write("cut.gguf", good[:len(good) // 2]), "-p", "x", says="cut.gguf")
    fails(3, "run", "-m", write("version.gguf", good[:4] + struct.pack("<I", 99) + good[8:]), "-p", "x", says="99")
    broken = good.replace(b"llama-bpe", b"lxama-bpe")
    check(broken != good, "the file has no pre-tokenizer name")
    r = run("run", "-m", write("pre.gguf", broken), "-p", "x", "-n", "1")
    check(r.code in (0, 4) and "lxama-bpe" in r.err, f"unknown pre-tokenizer: {r.code} {r.err}")
    if os.geteuid() != 0:
        path = write("secret.gguf", good)
        os.chmod(path, 0)
        fails(5, "run", "-m", path, "-p", "x", says="ermission")


def test_default_model():
    """Beside the program, or a clear message."""
    folder = temp("elsewhere/bin")
    os.makedirs(folder)
    program = os.path.join(folder, "bitnet")
    with open(BITNET, "rb") as f, open(program, "wb") as g:
        g.write(f.read())
    os.chmod(program, 0o755)
    go = lambda: subprocess.run([program, "run", "-n", "2", "-p", "Once", "--json"], capture_output=True,
                                stdin=subprocess.DEVNULL, env=clean_env())
    p = go()
    if p.returncode == 0:
        raise Skip("a story model is installed on this machine")
    check(p.returncode == 5 and b"no model" in p.stderr and b"--model" in p.stderr and b"BITNET_GGUF" in p.stderr,
          f"{p.returncode} {p.stderr}")
    os.makedirs(temp("elsewhere/share/bitnet"))
    os.symlink(model("nano"), temp("elsewhere/share/bitnet/story.gguf"))
    p = go()
    equal(p.returncode, 0, f"model of a moved prefix: {p.stderr}")


def test_no_memory():
    if b"sanitizer" in run("version").raw:
        raise Skip("a sanitizer wants all the address space")
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (220 << 20, 220 << 20))
    r = run("run", "-m", model("nano"), "-c", "1048576", "--kv", "f32", "-p", "x", preexec_fn=limit)
    check(r.code == 6 and re.search(r"needs .*; free are .*RLIMIT_AS", r.err), f"exit {r.code}, {r.err}")
    expect(0, "bench", "--synthetic", "large", "--model-out", temp("large.gguf"), "--tests", "tg1", "--repeat", "1", "--quiet")
    limit = lambda: resource.setrlimit(resource.RLIMIT_DATA, (120 << 20, 120 << 20))
    r = run("run", "-m", temp("large.gguf"), "-p", "x", "--cache", "off", preexec_fn=limit)
    check(r.code == 6 and re.search(r"no room to pack it: free are .*RLIMIT_DATA.*no_pack", r.err), f"exit {r.code}, {r.err}")
    r = run("bench", "--synthetic", "large", "--tests", "tg1", preexec_fn=limit)
    check(r.code == 6 and re.search(r"the model takes .*, free are .*RLIMIT_DATA.*smaller shape", r.err), f"exit {r.code}, {r.err}")


if __name__ == "__main__":
    main(globals())
