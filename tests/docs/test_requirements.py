#!/usr/bin/env python3
"""docs/REQUIREMENTS.md holds (tools/check_requirements), and the check finds every way in which it could stop to hold:
broken copies of the tree's table and tests. Also: every test the development guide names can be run by that name."""
import hashlib
import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

# T-6
GUIDE = ("gpu_info_summary gpu_info_mocked_scenarios cuda_device_info_query cuda_availability device_capability_validation "
         "multi_gpu_selection gpu_quantization_fallback concurrent_gpu_operations gpu_smoke gpu_quantization gpu_performance "
         "gpu_vs_cpu_quantization_accuracy cuda_kernel_creation cuda_memory_management memory_cleanup "
         "cuda_numerical_accuracy memory_access_patterns memory_optimization memory_tracking platform_kernel_selection "
         "cpu_provider_creation x86_64_feature_detection aarch64_feature_detection gpu_parity").split()

REQUIREMENTS = """# r
| DET-1 | x | 000 | it says something | check |
| DET-2 | x | 000 | it says `a\\|b` | check |
| K-1 | x | 000 | it will say | check |
| T-1 | x | 000 | it is written | check |
"""
ROWS = """# t
| id | promise | status | shown by | breaks in |
|---|---|---|---|---|
| DET-1 | a promise: it says something. | works | `unit/a/test_a.c:test_DET_1_yes`; `cli/test_b.py` | `src/a.c`: `test_DET_1_yes` |
| DET-2 | a promise: it says `a\\|b`. | partly: the rest | `cli/test_b.py:test_two` | `cli/b.c`: `test_two` |
| K-1 | a promise: it will say | later: GPUs | - | - |
| T-1 | a promise: it is written | works | `cli/test_b.py:test_two` | documents: `test_two` |
"""
CODE = """static void test_DET_1_yes(void **state) {}
static void test_x86_64_features(void **state) {}
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_DET_1_yes),
        T(test_x86_64_features),
    };
}
"""
SCRIPT = "def test_two():\n    pass\n"
BROKEN = """# breaks
DET-1
src/a.c
- a <= b
+ a < b
! test_a test_DET_1_yes

DET-2
cli/b.c
- c == d
+ c != d
! cli/test_b.py test_two

T-1
documents
! cli/test_b.py test_two
"""


def seen_of(text):
    """What tools/mutate would write of these breaks."""
    parts = [p.split("\n") for p in text.replace("# breaks\n", "").strip().split("\n\n") if "\n- " in p]
    whole = [[p[0], p[1], p[2][2:], p[3][2:], *p[4][2:].split()] for p in parts]
    return "# seen\n" + "".join(f"{w[0]} {hashlib.sha256(chr(0).join(w).encode()).hexdigest()[:16]} noticed\n" for w in whole)


# name, file to break, old text, new text, what must be said
TABLE, LIST, SEEN = "docs/REQUIREMENTS.md", "tests/mutants/rows.txt", "tests/mutants/seen.txt"
BREAKS = [
    ("nothing", TABLE, "", "", None),
    ("a row is missing", TABLE, ROWS.splitlines()[5] + "\n", "", "K-1 has no row"),
    ("a row is there twice", TABLE, ROWS.splitlines()[5], "\n".join(ROWS.splitlines()[5:6] * 2), "K-1 has 2 rows"),
    ("an unknown id", TABLE, "| K-1 |", "| K-2 |", "K-2 is no requirement"),
    ("a test nobody wrote", TABLE, "test_two`", "test_three`", "tests/cli/test_b.py has no test test_three"),
    ("a file nobody wrote", TABLE, "`cli/test_b.py`", "`cli/test_c.py`", "there is no tests/cli/test_c.py"),
    ("a status nobody knows", TABLE, "| later: GPUs |", "| soon |", '"soon" is none of works'),
    ("nothing brings it", TABLE, "| later: GPUs |", "| later: perhaps |", '"later: perhaps" is none of works'),
    ("nothing is missing", TABLE, "| partly: the rest |", "| partly |", '"partly" is none of works'),
    ("it works without a break", TABLE, "| later: GPUs | - |", "| works | `cli/test_b.py` |", "K-1 has no record in"),
    ("it works without a test", TABLE, "| works | `unit/a/test_a.c:test_DET_1_yes`; `cli/test_b.py` |", "| works | - |",
     "DET-1 names no test"),
    ("it comes later and has a break", TABLE, "| partly: the rest |", "| later: models |", "DET-2 comes later and has a record"),
    ("no words", TABLE, "| K-1 | a promise: it will say |", "| K-1 | x |", "K-1 says nothing"),
    ("other words", TABLE, "it will say", "it might say", "K-1 is not in the requirements' words: it will say"),
    ("not five columns", TABLE, "| later: GPUs | - | - |", "| later: GPUs | - |", "not a row of five columns"),
    ("another last column", TABLE, "| `cli/b.c`: `test_two` |", "| - |", "DET-2: the last column is not what"),
    ("the broken line is gone", "src/a.c", "a <= b", "b >= a", '"a <= b" occurs 0 times in src/a.c'),
    ("the broken line is there twice", "src/a.c", "a <= b", "a <= b; a <= b", '"a <= b" occurs 2 times in src/a.c'),
    ("a break that changes nothing", LIST, "+ a < b", "+ a <= b", "nothing is changed"),
    ("a break of no requirement", LIST, "DET-2\n", "DET-9\n", "DET-9 is no requirement"),
    ("a break with a test nobody wrote", LIST, "test_a test_DET_1_yes", "test_a test_DET_1_no", "there is no test test_DET_1_no in test_a"),
    ("a break with a test of another row", LIST, "! cli/test_b.py test_two", "! test_a test_x86_64_features",
     "test_x86_64_features is not in the row of DET-2"),
    ("two breaks of one row", LIST, "DET-2\n", "DET-1\n", "DET-1 has two records"),
    ("a break that is incomplete", LIST, "+ a < b\n", "", "'+ new' and '! program test' are expected"),
    ("a script instead of a break", LIST, "cli/b.c\n- c == d\n+ c != d\n", "process\n", "DET-2 needs a changed line"),
    ("a break that nobody saw", SEEN, "DET-1 ", "DET-3 ", "DET-1 was not seen to fail"),
    ("a break that was missed", SEEN, " noticed", " MISSED", "DET-1 was not seen to fail"),
    ("a break that was another when it was seen", LIST, "+ c != d", "+ c <= d", "DET-2 was not seen to fail"),
    ("a test that is not registered", "tests/unit/a/test_a.c", "        cmocka_unit_test(test_DET_1_yes),\n", "",
     "tests/unit/a/test_a.c has no test test_DET_1_yes"),
    ("a test that carries an id and is not listed", "tests/unit/a/test_a.c", "test_x86_64_features)", "test_K_1_new)",
     "tests/unit/a/test_a.c:test_K_1_new carries this id"),
    ("a test that carries two ids", "tests/cli/test_b.py", "test_two()", "test_DET_1_2_both()", "test_DET_1_2_both carries this id"),
    ("a test that carries an id nobody knows", "tests/cli/test_b.py", "def test_two():\n    pass\n",
     "def test_two():\n    pass\n\n\ndef test_V_99_x():\n    pass\n", "V-99 is no requirement"),
    ("the list lacks an id", "tests/docs/requirement_ids.txt", "DET-2\n", "", "DET-2 of the requirements is missing"),
    ("the list has one too many", "tests/docs/requirement_ids.txt", "K-1\n", "K-1\nK-9\n", "K-9 is not in the requirements"),
]


def load(path):
    loader = importlib.machinery.SourceFileLoader(os.path.basename(path), path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


def put(root, path, text):
    os.makedirs(os.path.dirname(f"{root}/{path}"), exist_ok=True)
    with open(f"{root}/{path}", "w", encoding="utf-8") as f:
        f.write(text)


def check(root, *more):
    done = subprocess.run([sys.executable, f"{ROOT}/tools/check_requirements", "--root", root, *more],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def make_tree(root):
    for path, text in (("docs/REQUIREMENTS.md", ROWS), ("tests/unit/a/test_a.c", CODE), ("tests/cli/test_b.py", SCRIPT),
                       ("tests/docs/requirement_ids.txt", "# ids\nDET-1\nDET-2\nK-1\nT-1\n"), ("r.md", REQUIREMENTS),
                       ("src/a.c", "return a <= b;\n"), ("cli/b.c", "return c == d;\n"), (LIST, BROKEN), (SEEN, seen_of(BROKEN))):
        put(root, path, text)


def test_table_of_this_tree():
    status, said = check(ROOT)
    assert status == 0, said


def test_every_break_is_found():
    for name, path, old, new, wanted in BREAKS:
        with tempfile.TemporaryDirectory() as root:
            make_tree(root)
            with open(f"{root}/{path}", encoding="utf-8") as f:
                text = f.read()
            assert old in text, name
            put(root, path, text.replace(old, new, 1))
            status, said = check(root, "--requirements", f"{root}/r.md")
            assert (status == 0) == (wanted is None), f"{name}: status {status}\n{said}"
            assert wanted is None or wanted in said, f"{name}: wanted \"{wanted}\" in\n{said}"


def test_write_mends():
    with tempfile.TemporaryDirectory() as root:
        make_tree(root)
        renamed = BROKEN.replace("test_DET_1_yes", "test_DET_1_2_other")
        put(root, "tests/unit/a/test_a.c", CODE.replace("test_DET_1_yes", "test_DET_1_2_other"))
        put(root, LIST, renamed)
        put(root, SEEN, seen_of(renamed))
        assert check(root, "--requirements", f"{root}/r.md")[0] == 1
        status, said = check(root, "--requirements", f"{root}/r.md", "--write")
        assert status == 0, said
        with open(f"{root}/{TABLE}", encoding="utf-8") as f:
            text = f.read()
        assert "| `unit/a/test_a.c:test_DET_1_2_other`; `cli/test_b.py` | `src/a.c`: `test_DET_1_2_other` |" in text, text
        assert "| partly: the rest | `unit/a/test_a.c:test_DET_1_2_other`; `cli/test_b.py:test_two` |" in text, text
        assert "| later: GPUs | - | - |" in text and "test_DET_1_yes" not in text, text


def test_names_of_the_guide():
    run_tests = load(f"{ROOT}/tools/run_tests")
    for name in GUIDE:
        programs, pattern = run_tests.programs_with(name)
        assert programs, f"make test T={name} runs nothing"
        assert pattern == f"*{name}*"
    assert run_tests.programs_with("no_such_test") == ("", "*no_such_test*")
    assert run_tests.programs_with("gpu_(smoke|parity)")[1] == "", "an expression is no pattern"


def test_filter_runs_one_test():
    program = f"{os.environ.get('BITNET_BUILD', '')}/tests/test_guide"
    if not os.path.exists(program):
        return "there is no " + program
    done = subprocess.run([program], env={**os.environ, "TEST_FILTER": "*memory_tracking*"}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0 and done.stdout.count("[ RUN ") == 1 and "memory_tracking" in done.stdout, done.stdout
    return None


def main():
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for name, function in sorted(globals().items()):
        if not name.startswith("test_"):
            continue
        try:
            reason = function()
            counts["skipped" if reason else "passed"] += 1
            if reason:
                print(f"SKIPPED {name}: {reason}")
        except AssertionError as e:
            counts["failed"] += 1
            print(f"{name}: {e}")
    shutil.rmtree(os.path.join(ROOT, "tools", "__pycache__"), ignore_errors=True)
    print(", ".join(f"{n} {what}" for what, n in counts.items()))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
