#!/usr/bin/env python3
"""bench: rows and their fields, the gate on a baseline, receipts, comparisons, profiles, kernels one by one. Times are
never judged: only that they are there and fit together."""
import json
import os
import signal
import stat
import time

from harness import check, equal, expect, fails, main, model, run, start, temp, write

MEASURED = ("bench", "--synthetic", "nano", "--repeat", "2")
TINY = (*MEASURED, "--no-limits")  # where limits are not what is looked at
FIELDS = ("test threads depth tok_s spread min max runs gb_s read_limit_gb_s share_of_read_limit gop_s peak_gop_s "
          "peak_instruction share_of_peak peaks kernels model device version commit compiler cpu name value").split()


def rows(*args, of=TINY, **kw):
    return [json.loads(line) for line in expect(0, *of, *args, "--json", **kw).out.splitlines()]


def test_rows_have_their_fields():
    found = rows("--tests", "pp16,tg4", "--threads", "1,2", "--depth", "0,8", of=MEASURED)
    equal([(r["threads"], r["depth"], r["test"]) for r in found],
          [(t, d, n) for t in (1, 2) for d in (0, 8) for n in ("pp16", "tg4")], "rows")
    for r in found:
        for field in FIELDS:
            check(field in r, f"{r}: no {field}")
        check(r["min"] <= r["tok_s"] <= r["max"] and r["tok_s"] > 0 and r["runs"] == 2, f"{r}")
        check(r["read_limit_gb_s"] > 0 and r["peak_gop_s"] > 0, f"{r}")
        check("mul_add.scalar" in r["peaks"] and r["peak_gop_s"] in r["peaks"].values(), f"{r['peaks']}")
        check(abs(r["share_of_read_limit"] - r["gb_s"] / r["read_limit_gb_s"]) < 1e-9, f"{r}")
        check(abs(r["spread"] - (r["max"] - r["min"]) / 2 / r["tok_s"]) < 1e-9, f"{r}")
        check(r["value"] == r["tok_s"] and r["model"] == "synthetic:nano/q8_0", f"{r}")
        check(r["kernels"] and all(k["id"] and k["calls"] > 0 for k in r["kernels"]), f"{r}")
    equal([r["name"] for r in found[:4]], ["pp16", "tg4", "pp16@d8", "tg4@d8"], "names")


def test_without_limits():
    """Rates are there, shares of what was not measured are null, and text has no line of limits and no nan."""
    r = rows("--tests", "tg4", "--threads", "1,2")
    equal([(x["threads"], x["read_limit_gb_s"], x["share_of_read_limit"], x["share_of_peak"], x["peaks"]) for x in r],
          [(1, 0, None, None, {}), (2, 0, None, None, {})], "limits")
    check(all(x["gb_s"] > 0 and x["gop_s"] > 0 for x in r), f"{r}")
    for args in (("--tests", "pp8,tg4"), ("--kernels",)):
        out = expect(0, *TINY, *args, "--threads", "1").out
        check("nan %" not in out and "\nlimit" not in out and "read limit" not in out, out)
        check("% of the read limit" in expect(0, *MEASURED, *args, "--threads", "1").out or "--tests" in args, "with limits")
    fails(2, *TINY, "--serve", says="--no-limits has no meaning with --serve")


def test_kernels_are_those_that_ran():
    """4 tokens and one more, after one of the prompt: six heads per run; another instruction set, other kernels."""
    def calls(*args):
        return {k["id"]: k["calls"] for k in rows("--tests", "tg4", "--threads", "1", *args)[0]["kernels"]}
    best, scalar = calls(), calls("--isa", "scalar")
    check(all(k.endswith(".scalar") for k in scalar), f"{scalar}")
    equal(sum(n for k, n in scalar.items() if k.startswith("glu")), 2 * 5 * 2, "two layers, five steps, two runs")
    check("linear_q8_0.scalar" in scalar and scalar != best or set(best) == set(scalar), f"{best} {scalar}")


def test_text_is_a_table():
    out = expect(0, *MEASURED, "--tests", "pp8,tg4", "--threads", "1").out
    lines = out.splitlines()
    check(lines[0].startswith("synthetic:nano/q8_0 on ") and lines[1].split()[:3] == ["test", "threads", "depth"], out)
    check(any(x.startswith("limit") for x in lines) and any(x.startswith("pp8 ") for x in lines), out)
    check(lines.index("kernels") > max(i for i, x in enumerate(lines) if x.startswith("tg4")), out)


def test_a_model_file():
    r = [json.loads(x) for x in expect(0, "bench", "-m", model("nano"), "--tests", "tg2", "-r", "1", "--threads", "auto",
                                          "--no-limits", "--json").out.splitlines()]
    equal([x["model"] for x in r], [os.path.basename(model("nano"))], "the file is named")


def test_heads_and_shapes():
    for head in ("q6_k", "q8_0", "f16", "bf16", "q4_0", "f32"):
        equal(rows("--tests", "tg2", "--head", head)[0]["model"], f"synthetic:nano/{head}", "head")
    out = expect(0, "bench", "--synthetic", "list").out
    for name in ("2b-4t", "large", "3b", "llama3-8b", "falcon3-7b", "story", "nano"):
        check(any(x.startswith(name + " ") for x in out.splitlines()), f"{name}: {out}")


def test_bad_arguments():
    for args, says in ((("--tests", "xx4"), "'xx4' is no test"), (("--tests", "pp"), "'pp' is no test"),
                       (("--tests", "tg0"), "is no test"), (("--tests", ""), "no test is given"),
                       (("--tests", "pp99999999"), "is no test"), (("--threads", "1,x"), "'x' is not a number"),
                       (("--threads", "-1"), "is not a number"), (("--depth", "1.5"), "'1.5' is not a number"),
                       (("--repeat", "0"), "repeat"), (("--max-regress", "5%"), "no --baseline"),
                       (("--compare", "scalar"), "is not A,B"), (("--compare", "a,b,c"), "is not A,B"),
                       (("--head", "i2_s"), "no format of a head"), (("--head", "q9"), "no format of a head"),
                       (("--plot", "x.gif"), "must end in .svg or .png"), (("-m", "x.gguf"), "two models"),
                       (("--kernels", "--save", temp("x")), "need --tests"),
                       (("--compare", "scalar,scalar", "--save", temp("x")), "--save has no meaning with --compare")):
        fails(2, *TINY, *args, says=says)
    fails(2, "bench", "--synthetic", "9b", says="no shape is called '9b' .known: 2b-4t, ")
    fails(2, "bench", "--head", "f16", says="only a --synthetic model")
    fails(2, "bench", "--model-out", temp("x"), says="only a --synthetic model")
    fails(2, *TINY, "--tests", "tg2", "--isa", "mmx", says="mmx")
    fails(5, "bench", "-m", temp("nothing.gguf"), "--tests", "tg2", says="nothing.gguf")
    fails(5, *TINY, "--baseline", temp("nothing.jsonl"), says="nothing.jsonl")


def baseline(factor, extra=()):
    saved = temp("rows.jsonl")
    expect(0, *TINY, "--tests", "tg4", "--threads", "1", "--save", saved)
    with open(saved, encoding="utf-8") as f:
        kept = [json.loads(x) for x in f]
    for r in kept:
        r["value"] *= factor
    return write(f"base{factor}.jsonl", "".join(json.dumps(r) + "\n" for r in [*kept, *extra]))


def test_V_8_baseline_both_ways():
    slower, faster = baseline(0.001), baseline(1000)
    r = expect(0, *TINY, "--tests", "tg4", "--threads", "1", "--baseline", slower, says="tg4 synthetic:nano/q8_0 cpu 1: ")
    check("regression" not in r.err, r.err)
    expect(9, *TINY, "--tests", "tg4", "--threads", "1", "--baseline", faster, "--max-regress", "5%", says="1 of 1 rows are more than 5 % worse")
    expect(0, *TINY, "--tests", "tg4", "--threads", "1", "--baseline", baseline(1), "--max-regress", "99.9%")
    missing = baseline(0.001, [{"name": "tg9", "value": 1}])
    expect(9, *TINY, "--tests", "tg4", "--threads", "1", "--baseline", missing, says="tg9: missing now")
    fails(2, *TINY, "--tests", "tg4", "--baseline", slower, "--max-regress", "lots", says="not a share")
    fails(2, *TINY, "--tests", "tg4", "--threads", "1", "--baseline", write("bad.jsonl", "tg4 12\n"), says="line 1: no JSON object")


def test_receipt_verifies():
    path, kept = temp("receipt.json"), temp("nano.gguf")
    expect(0, *TINY, "--tests", "pp16,tg4", "--threads", "1,2", "--receipt", path, "--model-out", kept)
    if b"sanitizer" not in run("version").raw:  # there the reading that measures the limit is slower than the kernels
        expect(0, "receipt", "verify", path)
        expect(0, "receipt", "verify", path, "--model", kept)
    with open(path, encoding="utf-8") as f:
        r = json.load(f)
    check(r["model_info"]["path"] == "synthetic:nano/q8_0" and r["environment"]["threads"] == 2, f"{r}")
    equal(r["performance_baseline"]["tokens_generated"], 5, "the last run of tg4")


def test_compare():
    out = [json.loads(x) for x in expect(0, *TINY, "--tests", "tg4,pp8", "--threads", "1", "--compare", "scalar,scalar", "--json").out.splitlines()]
    for r in out:
        check(r["a"] == r["b"] == "scalar" and r["ratio_min"] <= r["ratio"] <= r["ratio_max"], f"{r}")
        check(r["row_a"]["kernels"] == r["row_b"]["kernels"], f"{r}")
    heads = json.loads(expect(0, *TINY, "--tests", "tg4", "--threads", "1", "--compare", "f16,q8_0", "--json").out)
    equal([heads["row_a"]["model"], heads["row_b"]["model"]], ["synthetic:nano/f16", "synthetic:nano/q8_0"], "two heads")
    files = json.loads(expect(0, "bench", "--tests", "tg2", "-r", "1", "--no-limits", "--compare", f"{model('nano')},{model('nano')}", "--json").out)
    equal(files["row_a"]["model"], os.path.basename(model("nano")), "two files")
    check("ratio" in expect(0, *TINY, "--tests", "tg4", "--threads", "1", "--compare", "nano,nano").out, "text")
    fails(12, *TINY, "--tests", "tg4", "--compare", "neon,avx2", says="avx2|neon")


def test_profile():
    r = json.loads(expect(0, *TINY, "--profile", "--threads", "1", "--json").out)
    check(r["test"] == "profile" and r["depth"] == 512 and r["steps"] > 0, f"{r}")
    shares = {o["op"]: o["share"] for o in r["ops"]}
    for op in ("linear", "head", "attention", "norm", "sampling", "rest"):
        check(op in shares, f"{shares}")
    check(abs(sum(shares.values()) - 1) < 0.02, f"{shares}")
    calls = {o["op"]: o["calls"] for o in r["ops"]}
    equal(calls["attention"], 2 * r["steps"], "once per layer and step")
    equal(calls["head"], r["steps"], "once per step")
    out = expect(0, *TINY, "--profile", "--threads", "1", "--depth", "16").out
    check("at depth 16" in out and "verdict: " in out and "tok/s" not in out, out)
    found = [json.loads(x) for x in expect(0, *TINY, "--profile", "--threads", "1", "--tests", "pp24,tg2,bt3", "--json").out.splitlines()]
    r = [x for x in found if x.get("of") == "prompt"]
    equal([(x["tokens"], x["depth"]) for x in r], [(24, 0)], "the prompts of --tests, too")
    equal({o["op"]: o["calls"] for o in r[0]["ops"]}["attention"], 2, "one pass")
    r = [x for x in found if x.get("timelines")]
    equal([(x["of"], x["timelines"], x["depth"]) for x in r], [("step", 3, 0)], "and batches")
    equal({o["op"]: o["calls"] for o in r[0]["ops"]}["head"], r[0]["steps"], "one head for all")


def test_kernels_one_by_one():
    found = [json.loads(x) for x in expect(0, *TINY, "--kernels", "--threads", "1", "--isa", "scalar", "--json").out.splitlines()]
    check(all(r["test"] == "kernel" and r["ms"] > 0 and r["gop_s"] > 0 and r["gb_s"] > 0 for r in found), f"{found}")
    packed = [json.loads(x) for x in expect(0, *TINY, "--kernels", "--threads", "1", "--head", "q6_k", "--json").out.splitlines()]
    check(all(r["gb_s"] > 0 for r in packed if r["m"] == 1), f"a head in groups of rows has bytes, too: {packed}")
    shapes = {(r["format"], r["n"], r["k"]) for r in found}
    check({("q8_0", 512, 256)} <= shapes and any(f == "i2s" for f, _, _ in shapes), f"{shapes}")
    for s in shapes:
        equal(sum(r["chosen"] for r in found if (r["format"], r["n"], r["k"]) == s and r["m"] == 1), 1, f"one serves {s}")


def test_KV_2_pool():
    """Timelines that share a cache: with room for all nothing is computed again, without it is, by each policy."""
    def row(*args):
        return json.loads(expect(0, *TINY, "-r", "1", "--tests", "bt4", "--depth", "256", "--threads", "1", "--json", *args).out.splitlines()[0])
    equal([row()["rebuilt_tokens"], row("--kv-pool", "64")["rebuilt_tokens"]], [0, 0], "room for all")
    for policy in ("lru", "fifo", "lfu"):
        r = row("--kv-pool", "1", "--kv", "f32", "--kv-policy", policy)
        check(r["rebuilt_tokens"] > 0 and r["tok_s"] > 0, r)
        equal(r["name"], f"bt4@d256 kv=f32 pool=1 {policy}", "name")
    out = expect(0, *TINY, "-r", "1", "--tests", "bt4", "--threads", "1", "--kv-pool", "64").out
    check("0 tokens computed again: a cache of 64 MB for all, lru" in out, out)
    fails(2, *TINY, "--kv-policy", "mru", says="lru")
    expect(1, *TINY, "--tests", "bt4", "--depth", "4000", "--threads", "1", "--kv-pool", "1", says="the whole cache pool has 16")


CROWDED = ("bench", "--synthetic", "nano", "--crowded", "-r", "1", "--tests", "tg4", "--no-limits")


def processes(of):
    """Those whose parent is `of`, by state: T is stopped, R runs."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
                state, parent = f.read().rsplit(")", 1)[1].split()[:2]
        except (OSError, IndexError):  # it ended in between
            continue
        if int(parent) == of:
            found[int(pid)] = state
    return found


def all_end(pids):
    until = time.monotonic() + 20
    while time.monotonic() < until and any(os.path.exists(f"/proc/{p}") for p in pids):
        time.sleep(0.05)
    equal([p for p in pids if os.path.exists(f"/proc/{p}")], [], "processes left over")


def test_crowded_rows():
    cpus = len(os.sched_getaffinity(0))
    loads = sorted({0, max(1, cpus // 4), cpus})
    found = [json.loads(x) for x in expect(0, *CROWDED, "--threads", "2,1", "--json").out.splitlines()]
    equal([(r["busy"], r["threads"]) for r in found], [(b, t) for b in loads for t in (1, 2)], "rows")
    speed = {(r["busy"], r["threads"]): r["tok_s"] for r in found}
    for r in found:
        b, t = r["busy"], r["threads"]
        check(all(field in r for field in FIELDS) and r["test"] == "tg4" and r["runs"] == 1, f"{r}")
        equal(r["name"], f"tg4 busy={b}", "name")
        for field, base in (("of_idle", (0, t)), ("of_one_thread", (b, 1)), ("of_one_idle_thread", (0, 1))):
            check(abs(r[field] * speed[base] / speed[b, t] - 1) < 1e-6, f"{field}: {r}")
    lines = expect(0, *CROWDED, "--threads", "1").out.splitlines()
    equal(lines[1], "tg4, median of 1; busy loops are processes that only count", "what is measured")
    equal([x.split()[:2] for x in lines[3:]], [[str(b), "1"] for b in loads], "one row per load")
    check(all(len(x) <= 100 for x in lines[1:]), f"{lines}")


def test_crowded_leaves_nobody_behind():
    for sent, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)):
        p = start("bench", "--synthetic", "nano", "--crowded", "-r", "1000", "--threads", "1", "--no-limits")
        until, seen, cpus = time.monotonic() + 60, {}, len(os.sched_getaffinity(0))
        while time.monotonic() < until and not ("R" in seen.values() and len(seen) >= cpus):  # all are there, one is at work
            seen = processes(p.pid)
            time.sleep(0.01)
        check("R" in seen.values() and len(seen) >= cpus, f"busy processes: {seen}")
        p.send_signal(sent)
        p.communicate(timeout=60)
        equal(p.returncode, code, f"after {sent.name}")
        all_end(seen)


def test_crowded_refuses():
    for args, says in ((("--tests", "pp4"), "must be one tgN"), (("--tests", "tg4,tg8"), "must be one tgN"), (("--tests", "bt4"), "must be one tgN"),
                       (("--depth", "0,4"), "--depth one number"), (("--profile",), "--profile has no meaning with --crowded"),
                       (("--compare", "scalar,best"), "--compare has no meaning"), (("--save", temp("x")), "--save has no meaning")):
        fails(2, "bench", "--synthetic", "nano", "--crowded", *args, says=says)


def test_servers_refuse():
    """What --server and --serve would not do is refused before anything is measured, with what to do instead."""
    for mode, also in ((("--server", "http://127.0.0.1:1"), "--prompt-tokens and --new-tokens say"), (("--serve",), "what it measures is fixed")):
        for args, says in ((("--tests", "pp4"), also), (("--depth", "4"), also), (("--save", temp("x")), "--json prints what is measured"),
                           (("--baseline", temp("x")), "--json prints"), (("--receipt", temp("x")), "--json prints"), (("--profile",), "leave one of them out"),
                           (("--compare", "scalar,best"), "leave one of them out"), (("--crowded",), "leave one"), (("--kernels",), "leave one")):
            fails(2, "bench", *mode, *args, says=f"bench: {args[0]} has no meaning with {mode[0]}: .*{says}")
    for args in (("--threads", "1"), ("--batch", "4"), ("--model", model("nano")), (model("nano"),), ("--kv", "int8"), ("--no-pack",)):
        name = args[0] if args[0].startswith("-") else "--model"
        fails(2, "bench", "--server", "http://127.0.0.1:1", *args, says=f"{name} has no meaning with --server: .* give it to bitnet serve")
    fails(2, "bench", "--server", "http://127.0.0.1:1", "--serve", says="--serve has no meaning with --server: leave one of them out")
    for args in (("--streams", "2"), ("--rate", "3"), ("--api-key", "k"), ("--new-tokens", "4"), ("--load-model", "m")):
        fails(2, "bench", "--serve", *args, says=f"{args[0]} has no meaning with --serve: it is for a server that runs: --server URL")
        fails(2, *TINY, "--tests", "tg2", *args, says=f"{args[0]} has no meaning without --server URL, a server that runs")
    fails(2, *MEASURED, "--serve", "--threads", "1,2", says="--threads: '1,2' has 2 numbers, and --serve measures with one; run it once for each")
    fails(2, *MEASURED, "--serve", says="BITNET_NUM_THREADS: '1,2' has 2 numbers", env={"BITNET_NUM_THREADS": "1,2"})


def words_of(pid, kind):
    try:
        with open(f"/proc/{pid}/{kind}", encoding="utf-8", errors="replace") as f:
            return f.read().split("\0")[:-1]
    except OSError:  # it ended in between
        return []


def test_own_server_gets_the_options():
    """Options of bench reach the server that it starts, variables about another server do not: a key would refuse all requests."""
    given = {"--batch": "64", "--kv": "int8", "--precision": "fp32", "--i2s-layout": "128", "--split": "none", "--kv-policy": "fifo", "--threads": "1"}
    flags = ("--strict", "--no-pack", "--batch-invariant", "--no-refine")
    about_others = {"BITNET_API_KEY": "x", "BITNET_API_KEYS": "x,y", "BITNET_CONFIG_FILE": "/nowhere", "BITNET_GGUF": "/nowhere.gguf", "BITNET_CTX": "16",
                    "BITNET_SERVER_PORT": "1", "BITNET_MAX_TOKENS_PER_REQUEST": "1", "BITNET_REFINE": "1"}
    p = start("bench", "--serve", "--synthetic", "nano", "-r", "1", "--json", *[w for pair in given.items() for w in pair], *flags,
              env={**about_others, "BITNET_PIN": "off", "BITNET_GPU_FAKE": "none"})
    until, words, variables = time.monotonic() + 120, [], []
    while time.monotonic() < until and p.poll() is None and words[1:2] != ["serve"]:
        for child in processes(p.pid):
            words = words_of(child, "cmdline")  # first: it is the server by then
            variables = words_of(child, "environ")
        time.sleep(0.01)
    out, err = p.communicate(timeout=120)
    equal(p.returncode, 0, f"bench --serve: {err}")
    check(json.loads(out)["stream16_tok_s"] > 0, out)
    for name, value in {**given, "--pin": "off"}.items():
        equal(words[words.index(name) + 1] if name in words else None, value, f"{name} of {words}")
    equal([f for f in flags if f not in words], [], f"flags that are not in {words}")
    check("--api-key" not in words and "--format" not in words, f"{words}")
    equal(sorted(v for v in variables if v.startswith("BITNET_")), ["BITNET_GPU_FAKE=none"], "variables of the server")


def test_plot():
    nowhere = temp("no-programs")
    os.makedirs(nowhere, exist_ok=True)
    fails(12, *TINY, "--tests", "tg2", "--plot", temp("x.svg"), says="gnuplot is not installed", env={"PATH": nowhere})
    folder = temp("programs")
    os.makedirs(folder, exist_ok=True)
    stand_in, told = os.path.join(folder, "gnuplot"), temp("script")
    with open(stand_in, "w", encoding="utf-8") as f:
        f.write(f"#!/bin/sh\ncat > {told}\n")
    os.chmod(stand_in, os.stat(stand_in).st_mode | stat.S_IXUSR)
    path = os.environ["PATH"]
    expect(0, *TINY, "--tests", "tg2,pp4", "--threads", "1,2", "--depth", "0,4", "--plot", "it's.svg", env={"PATH": f"{folder}:{path}"})
    with open(told, encoding="utf-8") as f:
        script = f.read()
    check("set terminal svg" in script and "'it''s.svg'" in script and script.count("plot '-'") == 2, script)
    equal(script.count("\ne\n"), script.count("yerrorlines title '"), "a block of data per line")
    with open(stand_in, "w", encoding="utf-8") as f:
        f.write("#!/bin/sh\ncat > /dev/null\nexit 3\n")
    expect(5, *TINY, "--tests", "tg2", "--plot", temp("x.png"), says="could not draw", env={"PATH": f"{folder}:{path}"})


def test_nothing_is_overwritten():
    kept = temp("own.gguf")
    expect(0, *TINY, "--tests", "tg2", "--model-out", kept)
    with open(kept, "rb") as f:
        before = f.read()
    fails(2, "bench", "-m", kept, "--tests", "tg2", "--save", kept, says="is the model")
    with open(kept, "rb") as f:
        equal(f.read(), before, "the model")
    r = run("run", "-m", kept, "--strict", "-n", "2", "--greedy", "hello")
    equal(r.code, 0, r.err)


if __name__ == "__main__":
    main(globals())
