#!/usr/bin/env python3
"""docs/REQUIREMENTS.md holds (tools/check_requirements), and the check finds every way in which it could stop to hold:
broken copies of the tree's table and tests. Also: every test the development guide names can be run by that name."""
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

REQUIREMENTS = "# r\n| DET-1 | x |\n| DET-2 | x |\n| K-1 | x |\n"
ROWS = """# t
| id | promise | shown by |
|---|---|---|
| DET-1 | a promise that says something | `unit/a/test_a.c:test_DET_1_yes`; `cli/test_b.py` |
| DET-2 | a promise that says something | `cli/test_b.py:test_two`; later: GPU (the rest) |
| K-1 | a promise that says something | later: GPU |
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

# name, file to break, old text, new text, what must be said
BREAKS = [
    ("nothing", "docs/REQUIREMENTS.md", "", "", None),
    ("a row is missing", "docs/REQUIREMENTS.md", ROWS.splitlines()[5] + "\n", "", "K-1 has no row"),
    ("a row is there twice", "docs/REQUIREMENTS.md", ROWS.splitlines()[5], "\n".join(ROWS.splitlines()[5:6] * 2), "K-1 has 2 rows"),
    ("an unknown id", "docs/REQUIREMENTS.md", "| K-1 |", "| K-2 |", "K-2 is no requirement"),
    ("a test nobody wrote", "docs/REQUIREMENTS.md", "test_two", "test_three", "tests/cli/test_b.py has no test test_three"),
    ("a file nobody wrote", "docs/REQUIREMENTS.md", "`cli/test_b.py`", "`cli/test_c.py`", "there is no tests/cli/test_c.py"),
    ("no test, no reason", "docs/REQUIREMENTS.md", "| later: GPU |", "| soon |", "K-1 has neither a test nor"),
    ("no words", "docs/REQUIREMENTS.md", "| K-1 | a promise that says something |", "| K-1 | x |", "K-1 says nothing"),
    ("not three columns", "docs/REQUIREMENTS.md", "| later: GPU |", "| later: GPU", "not a row of three columns"),
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
                       ("tests/docs/requirement_ids.txt", "# ids\nDET-1\nDET-2\nK-1\n"), ("r.md", REQUIREMENTS)):
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
        put(root, "tests/unit/a/test_a.c", CODE.replace("test_DET_1_yes", "test_DET_1_2_other"))
        assert check(root, "--requirements", f"{root}/r.md")[0] == 1
        status, said = check(root, "--requirements", f"{root}/r.md", "--write")
        assert status == 0, said
        with open(f"{root}/docs/REQUIREMENTS.md", encoding="utf-8") as f:
            text = f.read()
        assert "| `unit/a/test_a.c:test_DET_1_2_other`; `cli/test_b.py` |" in text, text
        assert "`unit/a/test_a.c:test_DET_1_2_other`; `cli/test_b.py:test_two`; later: GPU (the rest) |" in text, text
        assert "test_DET_1_yes" not in text, text


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
