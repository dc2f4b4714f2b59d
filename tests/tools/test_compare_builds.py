#!/usr/bin/env python3
"""tools/compare_builds with commands that print given speeds: what is slow is found, what is equal passes, noise is measured
again, and every failure of a build has its message."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")

# A command like bitnet: FACTOR by test, a share of NOISE up and down in turn; it notes its calls in a file beside it.
FAKE = """#!{python} -ISE
import json, os, sys
here = os.path.dirname(os.path.abspath(__file__))
log = os.path.join(here, "calls")
if sys.argv[1] == "devices":
    print(json.dumps({{"devices": [{{"device": "cuda", "runnable": {cuda}, "fake": False}}]}}))
    sys.exit(0)
with open(log, "a") as f:
    f.write(" ".join(sys.argv[1:]) + "\\n")
with open(os.path.join(here, "..", "order"), "a") as f:
    f.write({name!r})
if "--model-out" in sys.argv:
    open(sys.argv[sys.argv.index("--model-out") + 1], "w").close()
if {fails!r} in sys.argv:
    print("no memory for it", file=sys.stderr)
    sys.exit(6)
n = len(open(log).readlines())
noise = 1 + {noise} * ((n * 7919 % 13) / 6 - 1)
slow_until = {slow_until}
for test in sys.argv[sys.argv.index("--tests") + 1].split(","):
    factor = {factors}.get(test, 1.0) * (0.9 if n <= slow_until else 1.0)
    print(json.dumps({{"test": test, "tok_s": 100 * factor * noise, "load_ms": 50 / {factors}.get("load", 1.0)}}))
"""


class CompareBuilds(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.story = os.path.join(self.folder.name, "story.gguf")
        open(self.story, "w").close()

    def build(self, name, factors=None, noise=0.0, cuda=False, fails="never", slow_until=0):
        folder = os.path.join(self.folder.name, name)
        os.mkdir(folder)
        path = os.path.join(folder, "bitnet")
        with open(path, "w") as f:
            f.write(FAKE.format(python=sys.executable, factors=factors or {}, noise=noise, cuda=cuda, fails=fails, name=name[0],
                                slow_until=slow_until))
        os.chmod(path, 0o755)
        return folder

    def calls(self, name):
        with open(os.path.join(self.folder.name, name, "calls")) as f:
            return f.read().splitlines()

    def run_it(self, *arguments):
        command = [sys.executable, os.path.join(ROOT, "tools/compare_builds"), *arguments, "--story", self.story]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    def rows(self, *arguments):
        r = self.run_it(*arguments, "--json")
        self.assertIn(r.returncode, (0, 1), r.stderr)
        result = json.loads(r.stdout)
        self.assertEqual(result["pass"], r.returncode == 0)
        return {row["row"]: row for row in result["rows"]}

    def test_equal_builds_pass(self):
        rows = self.rows(self.build("old"), self.build("new"), "--shape", "none")
        self.assertEqual(set(rows), {f"story cpu {t}" for t in ("all tg128", "all pp256", "all bt8", "all load", "1 tg64",
                                                                 "1 pp128", "1 bt4", "1 load")})
        for row in rows.values():
            self.assertTrue(row["pass"])
            self.assertEqual((row["pairs"], row["ratio"], row["repeated"]), (9, 1.0, False))

    def test_a_slow_row_is_found(self):
        r = self.run_it(self.build("old"), self.build("new", {"pp128": 0.97}), "--shape", "none")
        self.assertEqual(r.returncode, 1)
        self.assertIn("7 rows pass, 1 fail: story cpu 1 pp128", r.stdout)
        self.assertRegex(r.stdout, r"story cpu 1 pp128 +100\.00 +97\.00 +0\.970 .*FAIL")

    def test_slow_loading_is_found(self):
        rows = self.rows(self.build("old"), self.build("new", {"load": 0.5}), "--shape", "none", "--match", "cpu 1")
        self.assertFalse(rows["story cpu 1 load"]["pass"])
        self.assertAlmostEqual(rows["story cpu 1 load"]["ratio"], 0.5)
        self.assertTrue(rows["story cpu 1 tg64"]["pass"])

    def test_a_slow_row_under_noise_is_found(self):
        rows = self.rows(self.build("old", noise=0.02), self.build("new", {"tg64": 0.9}, noise=0.02), "--shape", "none",
                         "--match", "cpu 1")
        self.assertFalse(rows["story cpu 1 tg64"]["pass"])
        self.assertTrue(rows["story cpu 1 pp128"]["pass"])

    def test_doubt_is_measured_again(self):
        """Six pairs of nine in which NEW is slow: the interval includes 1.00, and 20 further pairs are as OLD."""
        rows = self.rows(self.build("old"), self.build("new", slow_until=6), "--shape", "none", "--match", "1 tg64",
                         "--warm-up", "0")
        row = rows["story cpu 1 tg64"]
        self.assertEqual((row["repeated"], row["pairs"], row["pass"], row["ratio"]), (True, 20, True, 1.0))

    def test_doubt_that_stays_is_a_failure(self):
        rows = self.rows(self.build("old"), self.build("new", slow_until=6), "--shape", "none", "--match", "1 tg64",
                         "--warm-up", "0", "--again", "1")
        self.assertTrue(rows["story cpu 1 tg64"]["repeated"])
        slow = self.rows(self.build("older"), self.build("newer", slow_until=6 + 12), "--shape", "none", "--match", "1 tg64",
                         "--warm-up", "0")
        self.assertFalse(slow["story cpu 1 tg64"]["pass"])

    def test_builds_run_in_turn(self):
        self.rows(self.build("old"), self.build("new"), "--shape", "none", "--match", "1 tg64", "--warm-up", "0", "--pairs", "4")
        with open(os.path.join(self.folder.name, "order")) as f:
            self.assertEqual(f.read(), "on" "no" "on" "no")

    def test_the_large_model_is_written_once(self):
        rows = self.rows(self.build("old"), self.build("new"), "--pairs", "1")
        self.assertIn("2b-4t cpu all load", rows)
        self.assertEqual(sum("--model-out" in c for c in self.calls("old")), 1)
        self.assertEqual(sum("--model-out" in c for c in self.calls("new")), 0)

    def test_a_gpu_is_measured_where_there_is_one(self):
        rows = self.rows(self.build("old", cuda=True), self.build("new", {"bt64": 0.9}, cuda=True), "--match", "cuda")
        self.assertFalse(rows["2b-4t cuda bt64 @480"]["pass"])
        self.assertTrue(rows["2b-4t cuda tg128"]["pass"])
        self.assertIn("story cuda load", rows)

    def test_seconds_end_it(self):
        r = self.run_it(self.build("old"), self.build("new"), "--shape", "none", "--seconds", "0.001")
        self.assertEqual(r.returncode, 1)
        self.assertIn("of 1 pairs only: out of time", r.stdout)

    def test_failures_are_told(self):
        old = self.build("old")
        r = self.run_it(old, os.path.join(self.folder.name, "nothing"))
        self.assertEqual(r.returncode, 2)
        self.assertIn("nothing: no bitnet command; give the command itself or the folder it was built in", r.stderr)
        r = self.run_it(old, self.build("new", fails="tg64,pp128,bt4"), "--shape", "none")
        self.assertEqual(r.returncode, 2)
        self.assertRegex(r.stderr, "new/bitnet bench .*: exit status 6: no memory for it")
        r = self.run_it(old, old, "--match", "nowhere")
        self.assertEqual(r.returncode, 2)
        self.assertIn("no row is called like --match nowhere", r.stderr)


if __name__ == "__main__":
    unittest.main()
