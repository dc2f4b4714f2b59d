#!/usr/bin/env python3
"""tools/gpu_check.sh compares what devices and preflight say of a GPU with what ran on it: here on the emulated device, whose
facts must agree, and with a command that lies about one of them, which must be noticed."""
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
from harness import BITNET, Skip, check, main, model, temp  # noqa: E402

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
EMULATED = os.path.join(os.environ.get("BITNET_BUILD", os.path.dirname(BITNET)), "emulated")
# what lies, and what is put in its place
LIES = (("devices", "s/(CC 9.0)/(CC 8.0)/", "device"), ("devices", "s/Multiprocessors: 2/Multiprocessors: 132/", "device"),
        ("devices", "s/of up to 8 timelines/of up to 32 timelines/", "batches"), ("devices", "s/, API [0-9.]*/, API 12.4/", "receipt"),
        ("preflight", "s/: ok, cuda computes on .*/: ok, cuda computes on NVIDIA H200/", "preflight"))


SMI = """#!/bin/sh
case $1 in *name) echo emulated device ;; *compute_cap) echo CC ;; *driver_version) echo 580.1 ;; *memory.total) echo 4096 ;; esac
"""


def facts(lie=None, smi="9.0"):
    """The output of the part of the check, with a bundle's folder around the command, and a tool of the vendor."""
    if not os.path.exists(os.path.join(EMULATED, "libcuda.so.1")):
        raise Skip("the CUDA backend is not compiled in")
    folder = temp("bundle")
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("bin", "models", "out"):
        os.makedirs(os.path.join(folder, name))
    os.symlink(os.path.abspath(model("nano")), os.path.join(folder, "models", "nano.gguf"))
    command, change = lie[:2] if lie else ("none", "")
    for path, text in (("env.sh", "BITNET_START=\n"),
                       ("bin/bitnet", f'#!/bin/sh\n[ "$1" = {command} ] || exec "{os.path.abspath(BITNET)}" "$@"\n'
                                      f'"{os.path.abspath(BITNET)}" "$@" | sed "{change}"\n'),
                       ("bin/nvidia-smi", SMI.replace("CC", smi))):
        with open(os.path.join(folder, path), "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(os.path.join(folder, path), 0o755)
    return subprocess.run(["sh", os.path.join(ROOT, "tools", "gpu_check.sh"), "facts", folder], capture_output=True, text=True, check=False,
                          env={**os.environ, "LD_LIBRARY_PATH": os.path.abspath(EMULATED), "BITNET_EMULATED_CC": "90",
                               "PATH": os.path.join(folder, "bin") + ":" + os.environ["PATH"], "OUT": os.path.join(folder, "out"), "XDG_CACHE_HOME": folder})


def test_what_is_said_is_what_ran():
    r = facts()
    check(r.returncode == 0 and "FAILED" not in r.stdout, r.stdout + r.stderr)
    for name in ("device: emulated device, compute capability 9.0, 2 multiprocessors", "batches: recorded steps of up to 8 timelines",
                 "receipt: emulated device, compute capability 9.0, CUDA 99.0", "preflight (0): GPU preflight: ok, cuda computes on emulated",
                 "nvidia-smi: emulated device, 9.0", "nvidia-smi: its memory is 4096 MiB"):
        check("ok      " + name in r.stdout, f"{name}: {r.stdout}")


def test_a_lie_is_noticed():
    for lie in LIES:
        r = facts(lie)
        wrong = {line.split()[1].rstrip(":") for line in r.stdout.splitlines() if line.startswith("FAILED")}
        check(r.returncode == 1 and lie[2] in wrong, f"{lie}: {r.stdout}{r.stderr}")
    check("FAILED  nvidia-smi" in facts(smi="8.0").stdout, "the vendor's tool says otherwise")


if __name__ == "__main__":
    main(globals())
