#!/usr/bin/env python3
"""kernels and tune: the registry as a list, the answer to a question, choices that change what runs."""
import json

from harness import check, equal, expect, fails, main, model, temp, write


def listed(*args):
    return expect(0, "kernels", *args, "--json").json()


def test_REG_5_all_records():
    rows = listed()["kernels"]
    check(len(rows) > 20, f"only {len(rows)} kernels")
    for k in rows:
        for field in "id device op format dtype isa tier temp_bytes alignment constraints requires abi agreement available".split():
            check(field in k, f"{k.get('id')}: no {field}")
    scalar, = (k for k in rows if k["id"] == "linear_i2s.scalar")
    equal({d: scalar["constraints"][d]["multiple"] for d in "mn"}, {"m": 1, "n": 1}, "any number of tokens and rows")
    text = expect(0, "kernels").out.splitlines()
    equal([x.split()[0] for x in text[1:]], [k["id"] for k in rows], "text and JSON")


def chosen_by(*args):
    return [k["id"] for k in listed(*args)["kernels"] if k["selected"]]


def test_REG_14_the_answer_is_what_a_model_runs():
    """Packing is part of the question: what is selected stands in the receipt of a model of that shape."""
    path = temp("answer.receipt")
    for how in ((), ("--no-pack",), ("--isa", "scalar")):
        expect(0, "run", "-m", model("nano"), "-p", "O", "-n", "4", "--greedy", "--device", "cpu", "--receipt", path, *how)
        with open(path) as f:
            ran = {k for k in json.load(f)["kernel_calls"] if "i2s" in k}
        one, = chosen_by("--device", "cpu", "--for", "op=linear,format=i2s,m=1,n=256,k=256", *how)
        check(one in ran, f"{how}: {one} is the answer, {ran} ran")
        equal(("r16" in one), any("r16" in k for k in ran), "packed")
    rows = listed("--device", "cpu", "--for", "op=linear,format=i2s,m=1,n=256,k=256")["kernels"]
    for k in rows:
        if any("r16" in x for x in chosen_by("--device", "cpu", "--for", "op=linear,format=i2s,m=1")) and k["format"] == "i2s" and k["device"] == "cpu":
            equal(k["veto"], "a model keeps such weights as i2s_r16 here", k["id"])
            break
    norm = listed("--device", "cpu", "--for", "op=rmsnorm")
    check(any(k.startswith("norm_quantize.") for k in norm["within"]), f"{norm['within']}")


def test_REG_10_devices():
    """Kernels of a device that is not there, or is a fake, are not available, and there is no answer for it."""
    fails(12, "kernels", "--device", "cuda", env={"BITNET_GPU_FAKE": "cuda"}, says="fake device")
    rows = expect(0, "kernels", "--json", env={"BITNET_GPU_FAKE": "cuda"}).json()
    equal(rows["device"], "cpu", "a fake is not chosen")
    equal([k["id"] for k in rows["kernels"] if k["device"] == "cuda" and k["available"]], [], "kernels of a fake")
    check(all(k["available"] for k in rows["kernels"] if k["device"] == "host"), "kernels on the host's memory")
    fails(2, "kernels", "--device", "quantum", says="quantum")
    equal(listed("--device", "host")["device"], "host:0", "host")
    equal(chosen_by("--device", "host", "--for", "op=linear,format=i2s,m=1"), ["i2s_host_ref"], "host")


def test_REG_14_for():
    one = listed("--no-pack", "--for", "op=linear,format=i2s,dtype=i8,m=1,n=256,k=256")["kernels"]
    chosen = [k["id"] for k in one if k["selected"]]
    equal(len(chosen), 1, "one is selected")
    many = [k["id"] for k in listed("--no-pack", "--for", "op=linear,format=i2s,dtype=i8,m=512,n=256,k=256")["kernels"] if k["selected"]]
    vetoed = [k for k in one if k["veto"]]
    if vetoed:
        check(many != chosen and "M = 1" in vetoed[0]["veto"], f"{many} {chosen} {vetoed}")
    scalar = [k["id"] for k in listed("--isa", "scalar", "--for", "op=linear,format=i2s,m=1")["kernels"] if k["selected"]]
    equal(scalar, ["linear_i2s.scalar"], "limited to scalar")
    check("selected" in expect(0, "kernels", "--for", "op=rmsnorm").out, "verdict in text")


def test_bad_questions():
    for bad, says in (("op", "not name=value"), ("op=", "not name=value"), ("colour=red", "none of op format dtype m n k"),
                      ("m=-1", "not a whole number"), ("m=1x", "not a whole number"), ("m=1,m=2", "m is given twice"),
                      ("op=linear,op=linear", "op is given twice"), ("m=99999999999999999999", "whole number")):
        fails(2, "kernels", "--for", bad, says=says)
    fails(12, "kernels", "--for", "op=teleport", says="there is no kernel of op 'teleport'")
    for how in ((), ("--json",)):
        expect(12, "kernels", "--for", "op=linear,format=i2s,m=64,n=2560,k=100", *how,
               says="NoCompatibleKernel.*linear_i2s.scalar: K = 100 is below its minimum 128")


def test_REG_20_tuning_changes_the_kernel():
    """A choice in the cache shows in the receipt; a cache of another machine changes nothing."""
    cache, text = temp("tuning.json"), None
    r = expect(0, "tune", "-m", model("nano"), "--tokens", "1", "--repeats", "3", "-o", cache, "--json").json()
    check(r["output"] == cache and all(x["median_ms"] > 0 for x in r["results"]), f"{r}")
    shapes = {(x["format"], x["n"], x["k"]) for x in r["results"]}
    equal(sum(x["best"] for x in r["results"]), len(shapes), "one best per shape")
    with open(cache) as f:
        j = json.load(f)
    for choice in j["choices"]:
        if choice["format"] in ("i2s", "i2s_r16"):
            choice["kernel"] = "linear_" + choice["format"] + ".scalar"
    slow = write("slow.json", json.dumps(j))
    other = write("other.json", json.dumps({**j, "key": "another machine"}))
    seen = {}
    for name, how in (("plain", ()), ("slow", ("--tuning", slow)), ("other", ("--tuning", other))):
        path = temp(name + ".receipt")
        out = expect(0, "run", "-m", model("nano"), "-p", "O", "-n", "8", "--greedy", "-b", "1", "--receipt", path, *how).out
        text = text or out
        equal(out, text, f"text with {name}")
        with open(path) as f:
            seen[name] = json.load(f)["kernel_calls"]
        expect(0, "receipt", "verify", path)
    ternary = [k for k in seen["slow"] if "i2s" in k]
    check(ternary and all(k.endswith(".scalar") for k in ternary), f"{seen['slow']}")
    equal(seen["other"], seen["plain"], "a cache of another machine")
    fails(2, "run", "-m", model("nano"), "-p", "O", "--tuning", write("broken.json", "{"), says="broken.json")
    expect(0, "kernels", "--tuning", temp("nope.json"), says=r"--tuning: .*nope.json does not exist: no tuning")
    equal(expect(0, "kernels", env={"BITNET_TUNING": temp("nope.json")}).err, "", "a file of the environment")


def test_tune_of_weights_as_in_the_file():
    """--no-pack measures, and with its choices a run uses, the kernels that packing would leave out."""
    cache, path = temp("rows.json"), temp("rows.receipt")
    r = expect(0, "tune", "-m", model("nano"), "--tokens", "1", "--repeats", "1", "--no-pack", "-o", cache, "--json").json()
    formats = {x["format"] for x in r["results"]}
    check("i2s" in formats and "i2s_r16" not in formats, f"{formats}")
    expect(0, "run", "-m", model("nano"), "-p", "O", "-n", "4", "--greedy", "-b", "1", "--tuning", cache, "--receipt", path)
    with open(path) as f:
        used = json.load(f)["kernel_calls"]
    best = {x["kernel"] for x in r["results"] if x["best"] and x["format"] == "i2s"}
    check(best <= set(used) and not any("r16" in k for k in used), f"{best} {used}")


def test_tune_arguments():
    fails(2, "tune", "-m", model("nano"), "--tokens", "1,x", says="--tokens: 'x'")
    fails(2, "tune", "-m", model("nano"), "--tokens", "0", says="--tokens: '0'")


if __name__ == "__main__":
    main(globals())
