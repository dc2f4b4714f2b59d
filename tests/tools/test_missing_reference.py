#!/usr/bin/env python3
"""Without the reference data ($BITNET_SHARED, else ../shared) tests that need it say that they were skipped and where it was looked
for; none fails, none passes in silence."""
import glob
import os
import re
import subprocess
import sys
import tempfile

SOURCE, BUILD = os.environ["BITNET_SOURCE"], os.environ["BITNET_BUILD"]
ALONE = {"test_validate": "*golden*"}  # the rest of it takes long


def programs():
    """Test programs that ask for reference data, by their sources."""
    for path in sorted(glob.glob(f"{SOURCE}/tests/unit/*/test_*.c") + [f"{SOURCE}/tests/golden/test_golden.c"]):
        with open(path, encoding="utf-8") as f:
            if "shared_path(" in f.read():
                yield os.path.basename(path)[:-2]


def run(command, folder, **more):
    env = {k: v for k, v in os.environ.items() if k not in ("TEST_FILTER", "BITNET_GOLDEN_DEVICE")}
    done = subprocess.run(command, env={**env, "BITNET_SHARED": folder, **more}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout.decode("utf-8", "replace")


def check_program(name, folder):
    model = ["nano", f"{SOURCE}/models/nano.gguf"] if name == "test_golden" else []
    more = {"TEST_FILTER": ALONE[name]} if name in ALONE else {}
    code, out = run([f"{BUILD}/tests/{name}", *model], folder, **more)
    assert code in (0, 77), f"exit {code}:\n{out[-1500:]}"
    assert f"no reference data at {folder}/" in out, f"does not say what is missing:\n{out[-1500:]}"
    assert code == 77 or re.search(r"^\[  SKIPPED \] [1-9]\d* test\(s\)", out, re.M), f"nothing is skipped:\n{out[-1500:]}"


def check_script(name, folder):
    code, out = run([sys.executable, f"{SOURCE}/tests/{name}"], folder)
    assert code in (0, 77), f"exit {code}:\n{out[-1500:]}"
    assert re.search(rf"^skipped.*no reference data at {re.escape(folder)}", out, re.M | re.I), f"nothing is skipped:\n{out[-1500:]}"


def main():
    names, failed = list(programs()), 0
    assert len(names) >= 8, names
    with tempfile.TemporaryDirectory() as folder:
        scripts = ("convert/test_vs_gguf.py", "convert/test_tokenizers.py")
        for check, name in [(check_program, n) for n in names] + [(check_script, n) for n in scripts]:
            try:
                check(name, os.path.join(folder, "nowhere"))
            except AssertionError as e:
                failed += 1
                print(f"FAIL {name}: {e}")
    print(f"{len(names) + 2 - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
