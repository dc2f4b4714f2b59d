#!/usr/bin/env python3
"""Under AddressSanitizer: each command once with the search for leaks on, ending well and ending badly."""
from harness import Skip, check, expect, main, model, run, temp, write

LEAKS = {"ASAN_OPTIONS": "detect_leaks=1:exitcode=99"}


def leakless(code, *args, **kw):
    if b"address-sanitizer" not in run("version").raw:
        raise Skip("this build has no AddressSanitizer")
    r = expect(code, *args, env=LEAKS, **kw)
    check("LeakSanitizer" not in r.err, f"{args}: {r.err}")


def test_run():
    leakless(0, "run", "-m", model("nano"), "-n", "5", "--stop", "zz", "--stop-id", "3", "--dump-logit-steps", "2",
             "--dump-logits", temp("l"), "--json-out", temp("j"), "--template", "auto", "-p", "Once")


def test_run_that_fails():
    leakless(2, "run", "-m", model("nano"), "--stop-id", "99999", "-p", "Once")


def test_bad_option():
    leakless(2, "run", "--stop", "x", "--seed=1", "--nonsense")


def test_chat():
    talk = f"Hello!\n/save {temp('talk')}\n/load {temp('talk')}\n/load {write('bad', '[1]')}\n/metrics\n/clear\nHi\n"
    leakless(0, "chat", "-m", model("nano"), "-n", "5", "--system", "x", stdin=talk.encode())


def test_score():
    leakless(0, "score", "-m", model("nano"), "--json", stdin=b"Once upon\n\na time\n")


def test_tokenize_and_inspect():
    leakless(0, "tokenize", "-m", model("nano"), "--json", "Once")
    leakless(0, "inspect", model("nano"), "--json")


def test_bench():
    tiny = ("bench", "--synthetic", "nano", "-r", "1", "--threads", "1")
    leakless(0, *tiny, "--tests", "pp2,tg2", "--profile", "--depth", "4", "--kernels", "--isa", "scalar", "--json", "--receipt", temp("r"), "--save", temp("rows"))
    leakless(9, *tiny, "--tests", "tg2", "--baseline", write("base", '{"name": "tg3", "value": 1}'))
    leakless(0, *tiny, "--tests", "tg2", "--compare", "f16,q8_0")
    leakless(5, *tiny, "--tests", "tg2", "--compare", "no,such")


if __name__ == "__main__":
    main(globals())
