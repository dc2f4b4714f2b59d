#!/usr/bin/env python3
"""tools/crossval without the packages it compares with: its arithmetic against plain formulas, its verdicts with engines made up here,
and our command against itself."""
import importlib.machinery
import importlib.util
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(os.environ.get("BITNET_SOURCE") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
BITNET = os.environ.get("BITNET", os.path.join(ROOT, "build", "release", "bitnet"))
WORK = tempfile.mkdtemp(prefix="bitnet-crossval-")
loader = importlib.machinery.SourceFileLoader("crossval", f"{ROOT}/tools/crossval")
crossval = importlib.util.module_from_spec(importlib.util.spec_from_loader("crossval", loader))
sys.dont_write_bytecode = True
loader.exec_module(crossval)


def near(a, b, what):
    assert abs(a - b) <= 1e-9 * max(1, abs(b)), (what, a, b)


class Fake:
    """Ids are lengths of words, logits those given; every position has the same."""

    name, version = "fake", "1"

    def __init__(self, row=(1.0, 2.0, 4.0), ids=None, nll=1.0):
        self.row, self.given, self.nll = list(row), ids, nll

    def ids(self, text):
        return self.given or [len(w) for w in text.split()]

    def logits(self, text):
        return [self.row for _ in self.ids(text)]

    def score(self, documents):
        return [(len(self.ids(d)), self.nll * (len(self.ids(d)) - 1)) for d in documents]


TEXTS, DOCUMENTS = ["a text of five words", "another"], ["one document of words", "two"]


def cross(ours, theirs, documents=DOCUMENTS):
    return crossval.cross("made-up", ours, theirs, TEXTS, documents)


def test_numbers_of_a_position():
    ours, theirs = [1.0, 2.0, 4.0, -1.0], [1.5, 2.0, 3.0, 0.5]
    r = crossval.compare_rows(ours, theirs)
    near(r["cosine"], (1.5 + 4 + 12 - 0.5) / math.sqrt(22 * (2.25 + 4 + 9 + 0.25)), "cosine")
    near(r["l2"], math.sqrt(0.25 + 0 + 1 + 2.25), "l2")
    near(r["mse"], 3.5 / 4, "mse")
    near(r["max_abs"], 1.5, "max_abs")
    near(r["margin"], 1.0, "margin of the reference")
    p, q = ([math.exp(v) / sum(map(math.exp, row)) for v in row] for row in (theirs, ours))
    near(r["kl"], sum(x * math.log(x / y) for x, y in zip(p, q)), "the reference against ours")
    assert r["top"] == {"1": 1.0, "5": 1.0, "10": 1.0}, r["top"]
    a, b = list(range(20)), list(range(20))
    b[19], b[0] = -1, 50  # another is the best, and one of the best five and ten is not
    assert crossval.compare_rows(a, b)["top"] == {"1": 0.0, "5": 0.8, "10": 0.9}
    equal = crossval.compare_rows(ours, ours)
    near(equal["cosine"], 1, "the same")
    assert (equal["kl"], equal["l2"]) == (0, 0), equal
    huge = crossval.compare_rows([1e4, -1e4], [1e4, -1e4])
    assert huge["kl"] == 0, huge


def test_equal_engines_agree():
    report = cross(Fake(), Fake())
    assert report["exit_status"] == 0 and report["verdict"] == "parity", report
    s = report["summary"]
    assert (s["texts"], s["positions"], s["token_mismatches"], s["sure_differ"]) == (2, 6, 0, 0), s
    near(report["perplexity"]["ours"], math.e, "perplexity")
    assert "parity" in crossval.render(report) and "6 positions" in crossval.render(report)


def test_other_tokens_are_exit_status_2():
    report = cross(Fake(), Fake(ids=[1, 4, 2, 9, 5]))
    assert report["exit_status"] == 2, report["verdict"]
    first = report["texts"][0]
    assert not first["tokens_equal"] and first["first_difference"] == 3 and "positions" not in first, first
    assert "perplexity" not in report and "token 3 is [4], the reference has [9]" in crossval.render(report), crossval.render(report)
    shorter = cross(Fake(), Fake(ids=[1, 4, 2]))
    assert shorter["texts"][0]["first_difference"] == 3 and crossval.render(shorter)

    class Counts(Fake):
        def score(self, documents):
            return [(n + 1, nll) for n, nll in super().score(documents)]
    report = cross(Fake(), Counts())
    assert report["exit_status"] == 2 and "other numbers of tokens" in crossval.render(report), report


def test_other_logits_and_perplexity_are_exit_status_7():
    for ours, theirs, why in ((Fake((4.0, 2.0, 1.0)), Fake(), "cosine"), (Fake((9.9, 10.0)), Fake((10.6, 10.0)), "sure choices"),
                              (Fake(nll=1.02), Fake(nll=1.0), "perplexity")):
        report = cross(ours, theirs)
        assert report["exit_status"] == 7 and why in report["verdict"], (why, report["verdict"])
    unsure = cross(Fake((9.9, 10.0)), Fake((10.3, 10.0)))  # it was sure by 0.3 alone
    assert unsure["exit_status"] == 0 and unsure["summary"]["top"]["1"] == 0, unsure["summary"]
    assert cross(Fake(nll=1.009), Fake(nll=1.0))["exit_status"] == 0


def test_the_worst_of_several():
    for statuses, want in (((0, 0), 0), ((0, 7), 7), ((7, 2, 0), 2), ((None, 0), 0), ((None, None), 1), ((), 1), ((1, 0), 1)):
        assert crossval.worst(list(statuses)) == want, statuses


def test_our_command_against_itself():
    """The wrapper of the command: ids, rows of logits, scores."""
    model = f"{WORK}/nano.gguf"
    shutil.copyfile(f"{ROOT}/models/nano.gguf", model)
    best, plain = crossval.Bitnet(BITNET, model), crossval.Bitnet(BITNET, model, "--isa", "scalar")
    texts = ["<|begin_of_text|>Once upon a time", "The fox ran home."]
    assert best.ids(texts[0]).count(507) == 1 and best.ids(texts[1])[0] == 507
    report = crossval.cross("nano", best, plain, texts, ["The fox ran home.", "Once upon\na time"])
    assert report["exit_status"] == 0 and report["summary"]["max_abs"] == 0 and report["perplexity"]["off"] == 0, crossval.render(report)
    assert report["summary"]["positions"] == sum(len(best.ids(t)) for t in texts)
    json.dumps(report)


def test_the_program():
    """What can be said without a reference."""
    def run(*words):
        return subprocess.run([sys.executable, f"{ROOT}/tools/crossval", *words], capture_output=True, text=True, check=False)
    r = run("unheard-of")
    assert r.returncode == 1 and "unknown model unheard-of" in r.stderr, r
    assert "stories260K" in run("--help").stdout


if __name__ == "__main__":
    failed = 0
    for name, test in sorted(globals().items()):
        if name.startswith("test_"):
            try:
                test()
                print("ok   ", name)
            except AssertionError as e:
                failed += 1
                print("FAIL ", name, e)
    shutil.rmtree(WORK)
    sys.exit(failed > 0)
