#!/usr/bin/env python3
"""`make run` on a machine that has nothing yet, at a pseudo-terminal: a package is installed, the build is configured, built, a
story told, and in every phase somebody who waits sees within a second that it goes on. The slow programs (apt-get, cmake, ninja)
are stand-ins that take their time; make, the scripts in tools/, the command and the model are real."""
import os
import re
import shutil
import signal
import subprocess
import sys
import time

SOURCE = os.path.abspath(os.environ.get("BITNET_SOURCE") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(SOURCE, "tests", "cli"))
import terminal_of_pty  # noqa: E402
from harness import BITNET, check, equal, main, temp  # noqa: E402

STAND_INS = {
    "pkg-config": 'case "$*" in *jansson*) [ -e "$MARKER" ] ;; *) true ;; esac',
    "sudo": '[ "$1" != -v ] || exit 0\nexec "$@"',
    "apt-get": """echo Reading package lists...
sleep 1.2
case "$*" in *" install "*) ;; *) exit 0 ;; esac
case "$*" in *Status-Fd*) told=1 ;; *) told= ;; esac
for i in 20 60 100; do [ -z "$told" ] || echo "dlstatus:1:$i.0000:Retrieving file 1 of 1"; sleep 0.3; done
for i in 0 40 100; do [ -z "$told" ] || echo "pmstatus:libjansson-dev:$i.0000:Installing libjansson-dev (arm64)"; sleep 0.3; done
touch "$MARKER" """,
    "cmake": """echo "-- Check for working C compiler"
sleep 1.2
mkdir -p build/release
touch build/release/build.ninja""",
    "ninja": """for i in 1 2 3 4 5 6 7 8; do echo "[$i/8] Building C object x.c.o"; sleep 0.35; done
cp "$REAL" build/release/bitnet""",
}
MISTAKE = """for i in 1 2; do echo "[$i/8] Building C object x.c.o"; sleep 0.2; done
echo "x.c:3: error: a mistake"
exit 1"""


def fresh(name, **stand_ins):
    """A tree that was never built, and the environment of a machine whose slow programs are stand-ins."""
    tree, programs = temp(name), temp(name + ".bin")
    os.makedirs(tree)
    os.makedirs(programs)
    for part in ("Makefile", "tools", "models", "src", "cli", "include", "cmake", "CMakeLists.txt", "CMakePresets.json"):
        os.symlink(os.path.join(SOURCE, part), os.path.join(tree, part))
    os.unlink(os.path.join(tree, "tools"))
    shutil.copytree(os.path.join(SOURCE, "tools"), os.path.join(tree, "tools"), ignore=shutil.ignore_patterns("__pycache__"))
    for program, text in {**STAND_INS, **stand_ins}.items():
        path = os.path.join(programs, program)
        with open(path, "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\n" + text + "\n")
        os.chmod(path, 0o755)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("BITNET", "MAKE", "MFLAGS"))}
    env.update({"PATH": f"{programs}:{env['PATH']}", "TERM": "xterm", "MARKER": os.path.join(programs, "marker"),
                "REAL": os.path.abspath(BITNET)})
    return tree, env


def make_run(tree, env, **kw):
    return terminal_of_pty.run(["make", "-s", "-C", tree, "run", "RUN_ARGS=--echo --seed 23"], env=env, **kw)


def test_every_phase_is_seen():
    tree, env = fresh("terminal")
    code, pieces = make_run(tree, env)
    text = terminal_of_pty.text_of(pieces)
    equal(code, 0, f"exit code: {text[-500:]!r}")
    lines = terminal_of_pty.drawn(text)
    for phase in (r"fetching the lists of packages: .*\d:\d\d$", r"installing packages: \d+ %, .*\d:\d\d( left)?$",
                  r"configuring: Check for working C compiler, \d:\d\d$",
                  r"building: \d+ %, \d of 8 steps, [\d.]+ per second, x\.c, \d:\d\d left$"):
        check(any(re.match(phase, line) for line in lines), f"/{phase}/ is not in {lines}")
    for what in ("installing", "building"):
        terminal_of_pty.rises([line for line in lines if line.startswith(what)])
    gaps = [(b[0] - a[0], a[1][-60:]) for a, b in zip(pieces, pieces[1:])]
    check(max(gaps)[0] < 3, f"nothing was seen for {max(gaps)}")  # a second, and what a busy machine adds
    seen = terminal_of_pty.shown(text)
    check("missing: libjansson-dev (reads and writes JSON)" in seen, "why something is installed")
    check(re.search(r"(?s)\nOnce upon a time.*\w[.!?]\"?\n\[\d+ tokens, .*ended by itself\]", seen), f"the story: {seen[-600:]}")
    for word in ("installing packages", "configuring:", "building:"):
        check(word not in seen, f"{word} is wiped: {seen[:600]}")
    began = time.monotonic()
    code, pieces = make_run(tree, env)
    seen = terminal_of_pty.shown(terminal_of_pty.text_of(pieces))
    check(code == 0 and seen.startswith("Once upon a time"), f"again, nothing but the story: {seen[:200]!r}")
    check(time.monotonic() - began < 20, "nothing is built twice")


def test_slow_kernels_are_foreseen():
    """Steps of CUDA take much longer than others: the line says so from the beginning, not when they come."""
    cmake = STAND_INS["cmake"] + "\nprintf '  DESC = CUDA one\\n  DESC = CUDA two\\n' >build/release/build.ninja"
    steps = """for i in 1 2 3 4; do echo "[$i/6] Building C object x.c.o"; sleep 0.35; done
for i in 5 6; do sleep 1; echo "[$i/6] CUDA one"; done
sleep 0.5"""
    tree, env = fresh("slow", cmake=cmake, ninja=steps + '\ncp "$REAL" build/release/bitnet')
    code, pieces = make_run(tree, env)
    text = terminal_of_pty.text_of(pieces)
    equal(code, 0, f"exit code: {text[-500:]!r}")
    lines = [line for line in terminal_of_pty.drawn(text) if line.startswith("building:")]
    terminal_of_pty.rises(lines)
    for line in (r"building: 4 %, 4 of 6 steps, .*x\.c, \d:\d\d$", r"building: 52 %, 5 of 6 steps, .*\d:\d\d left$", "building: 100 %, 6 of 6 "):
        check(any(re.match(line, seen) for seen in lines), f"/{line}/ is not in {lines}")
    check("with CUDA kernels, which take most of the time" in terminal_of_pty.shown(text), "why it takes long")


def test_short_lines_in_a_pipe():
    tree, env = fresh("pipe")
    done = subprocess.run(["make", "-s", "-C", tree, "run", "RUN_ARGS=--echo --seed 23"], env=env, stdin=subprocess.DEVNULL,
                          capture_output=True, check=False, timeout=120)
    err = done.stderr.decode()
    equal(done.returncode, 0, f"exit code: {err}")
    check("\r" not in err and "\x1b" not in err and " %" not in err, f"no progress: {err!r}")
    check(re.search(r"(?s)setup: missing: libjansson-dev.*\nconfiguring \(log: .*\)\nbuilding the bitnet command\n\[", err), err)


def test_a_mistake_is_shown_whole():
    tree, env = fresh("mistake", ninja=MISTAKE)
    code, pieces = make_run(tree, env)
    seen = terminal_of_pty.shown(terminal_of_pty.text_of(pieces))
    check(code == 2 and re.search(r"^x\.c:3: error: a mistake$", seen, re.M), f"{code}: {seen}")


def test_ctrl_c():
    tree, env = fresh("interrupted", ninja="sleep 60")
    code, pieces = make_run(tree, env, stop="building: ")
    seen = terminal_of_pty.shown(terminal_of_pty.text_of(pieces))
    check(code not in (0, None) and "building:" not in seen, f"{code}: {seen}")
    check(code in (2, 130, -signal.SIGINT), f"{code}")


if __name__ == "__main__":
    main(globals())
