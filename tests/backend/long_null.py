#!/usr/bin/env python3
"""The smoke test of step 5 of docs/BACKEND.md: a build with the null backend, and a model run on it by name. The ordinary
build does not know it, and auto never takes it."""
import os
import subprocess
import sys

ROOT = os.path.abspath(os.environ.get("BITNET_SOURCE") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
BUILD = os.path.join(os.environ.get("BITNET_BUILD") or f"{ROOT}/build/release", "null")
PLAIN = os.environ.get("BITNET") or f"{ROOT}/build/release/bitnet"
WITH_NULL = f"{BUILD}/bitnet"
STORY = ["run", "--model", f"{ROOT}/models/nano.gguf", "--greedy", "-n", "16", "-v"]


def call(program, *arguments):
    return subprocess.run([program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
                          stdin=subprocess.DEVNULL, env={**os.environ, "BITNET_GPU_FAKE": "none"})


def build():
    jobs = str(len(os.sched_getaffinity(0)))
    for command in (["cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja", "-DBITNET_NULL_BACKEND=ON", "-DBITNET_TESTS=OFF",
                     "-DBITNET_CUDA=OFF"],
                    ["cmake", "--build", BUILD, "-j", jobs, "--target", "bitnet_cli"]):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        assert done.returncode == 0, done.stdout[-4000:]


def test_E_1_same_text():
    cpu = call(WITH_NULL, *STORY, "--device", "cpu", "Once upon")
    null = call(WITH_NULL, *STORY, "--device", "null", "Once upon")
    assert cpu.returncode == 0 and null.returncode == 0, null.stderr
    assert cpu.stdout == null.stdout and len(cpu.stdout) > 10, (cpu.stdout, null.stdout)
    assert "requested=null detected=[cpu,null] selected=null" in null.stderr, null.stderr
    assert "null(cpu): a backend for demonstration, the CPU computes" in null.stderr, null.stderr
    assert "demonstration" not in cpu.stderr, cpu.stderr


def test_E_1_listed():
    text = call(WITH_NULL, "devices").stdout
    assert "null (null(cpu)): compiled yes, available yes" in text, text
    info = call(WITH_NULL, "info").stdout
    assert "compiled: no, available: no" in info, info  # it is no GPU


def test_E_1_auto_passes_it_over():
    done = call(WITH_NULL, *STORY, "Once")
    assert "requested=auto detected=[cpu,null] selected=cpu" in done.stderr, done.stderr
    assert call(WITH_NULL, *STORY, "--device", "gpu", "Once").returncode == 11


def test_E_1_unknown_elsewhere():
    done = call(PLAIN, *STORY, "--device", "null", "Once")
    assert done.returncode == 2 and "is not a device" in done.stderr, (done.returncode, done.stderr)
    assert "null" not in call(PLAIN, "devices").stdout


def main():
    build()
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for name, function in sorted(globals().items()):
        if not name.startswith("test_"):
            continue
        try:
            function()
            counts["passed"] += 1
        except AssertionError as e:
            counts["failed"] += 1
            print(f"{name}: {e}")
    print(", ".join(f"{n} {what}" for what, n in counts.items()))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
