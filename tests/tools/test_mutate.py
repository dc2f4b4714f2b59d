#!/usr/bin/env python3
"""tools/mutate on a tree of two functions: one mutant is killed, one survives, is explained, is killed by a better test; the
run is remembered, the tree is left alone. And the lists of tests/mutants fit the real tree."""
import os
import subprocess
import sys
import tempfile

SOURCE = os.environ["BITNET_SOURCE"]
CODE = """/* sum.c */
int at_most(int a, int b)
{
    return a <= b;
}

int below(int a, int b) /* a < b */
{
    return a < b;
}
"""
TEST = """int at_most(int a, int b);
int below(int a, int b);
int main(void) /* registered: (equality) */
{
    return !(at_most(3, 3) && !at_most(4, 3) && below(1, 2) && !below(3, 2)%s);
}
"""
NINJA = """rule cc
  command = cc -O1 -MD -MF $out.d -o $out -c $in
rule link
  command = cc -o $out $in
build sum.o: cc ../../src/base/sum.c
build test_sum.o: cc ../../tests/unit/base/test_sum.c
build tests/test_sum: link sum.o test_sum.o
build test_sum: phony tests/test_sum
"""
EXPLAINED = """# a list

src/base/sum.c below
- return a < b;
+ return a <= b;
nobody calls it
with equal numbers
"""
PLANTED = """src/base/sum.c
- a <= b
+ a < b
! test_sum equality
"""
ROWS = """# a list

K-1
src/base/sum.c
- a <= b
+ a < b
! test_sum equality

K-2
src/base/sum.c
- a < b;
+ a <= b;
! test_sum equality

T-5
documents
! docs/test_it.py -
"""


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def mutate(root, *args):
    done = subprocess.run([sys.executable, f"{SOURCE}/tools/mutate", "--root", root, "--per-file", "9", *args],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout.decode()


def expect(got, code, *texts):
    assert got[0] == code and all(t in got[1] for t in texts), f"wanted {code} and {texts}, got {got[0]}:\n{got[1]}"


def check_rows(root):
    """The breaks of requirements: one is noticed, one is not; what was seen is written and remembered."""
    write(f"{root}/src/base/sum.c", CODE)
    write(f"{root}/tests/unit/base/test_sum.c", TEST % "")
    write(f"{root}/tests/docs/test_it.py", "")
    write(f"{root}/build/release/build.ninja", NINJA)
    write(f"{root}/tests/mutants/rows.txt", ROWS)
    expect(mutate(root, "--rows"), 1, "1 breaks noticed, 1 missed, 0 left", "noticed K-1 src/base/sum.c: a <= b => a < b",
           "MISSED K-2 src/base/sum.c: a < b; => a <= b;: test_sum equality (pass, pass)")
    with open(f"{root}/tests/mutants/seen.txt", encoding="utf-8") as f:
        seen = [line.split() for line in f if not line.startswith("#")]
    assert [[s[0], s[2]] for s in seen] == [["K-1", "noticed"], ["K-2", "MISSED"]], seen
    again = mutate(root, "--rows")
    expect(again, 1, "1 breaks noticed, 1 missed")
    assert "K-1" not in again[1], "a row was tried again though nothing had changed"
    write(f"{root}/tests/unit/base/test_sum.c", TEST % " && !below(2, 2)")
    expect(mutate(root, "--rows", "--minutes", "0"), 1, "2 left for the next run")
    expect(mutate(root, "--rows", "--match", "K-2"), 0, "1 breaks noticed, 0 missed", "noticed K-2")
    write(f"{root}/tests/mutants/rows.txt", ROWS.replace("- a <= b", "- a == b"))
    expect(mutate(root, "--rows"), 1, "rows.txt:3: \"a == b\" occurs 0 times in src/base/sum.c")
    write(f"{root}/tests/mutants/rows.txt", ROWS.replace("! test_sum equality", "! test_sum nothing", 1))
    expect(mutate(root, "--rows"), 1, "rows.txt:3: there is no test nothing in test_sum")


def check_fixture(root):
    mutant = f"{root}/build/mutate/mutant0.o"
    write(f"{root}/src/base/sum.c", CODE)
    write(f"{root}/tests/unit/base/test_sum.c", TEST % "")
    write(f"{root}/build/release/build.ninja", NINJA)
    expect(mutate(root, "--list"), 0, "src/base/sum.c:4: at_most [boundary]", "src/base/sum.c:9: below [boundary]")
    expect(mutate(root), 1, "2 mutants: 1 killed, 1 survived, 1 of them not explained (50.0 %)",
           "SURVIVED src/base/sum.c:9: below [boundary]\n  - return a < b;\n  + return a <= b;")
    made = os.stat(mutant).st_mtime_ns
    write(f"{root}/tests/mutants/explained.txt", EXPLAINED)
    expect(mutate(root), 0, "1 survived, 0 of them not explained", "explained src/base/sum.c:9",
           "nobody calls it with equal numbers")
    assert os.stat(mutant).st_mtime_ns == made, "a mutant was tried again though nothing had changed"
    write(f"{root}/tests/unit/base/test_sum.c", TEST % " && !below(2, 2)")
    expect(mutate(root, "--verbose"), 0, "2 mutants: 2 killed, 0 survived", "killed src/base/sum.c:9")
    write(f"{root}/tests/mutants/planted.txt", PLANTED)
    expect(mutate(root, "--planted"), 0, "1 of 1 planted breaks noticed")
    with open(f"{root}/src/base/sum.c", encoding="utf-8") as f:
        assert f.read() == CODE, "the tree was changed"
    write(f"{root}/src/base/sum.c", CODE.replace("a <= b", "b >= a"))
    expect(mutate(root, "--check"), 1, "planted.txt:1: \"a <= b\" occurs 0 times in src/base/sum.c")
    write(f"{root}/tests/mutants/planted.txt", "")
    write(f"{root}/src/base/sum.c", CODE.replace("a < b;", "b > a;"))
    expect(mutate(root, "--check"), 1, "explained.txt:3: src/base/sum.c has no such line")


def main():
    passed = 0
    with tempfile.TemporaryDirectory() as root:
        check_fixture(root)
        passed += 1
    with tempfile.TemporaryDirectory() as root:
        check_rows(root)
        passed += 1
    expect(mutate(SOURCE, "--check"), 0, " planted, ")
    print(f"{passed + 1} passed, 0 failed, 0 skipped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
