#!/usr/bin/env python3
"""--self-test: a CPU that advertises what it cannot run. The command is copied and one of its kernels made an illegal
instruction, or a function that does nothing: exactly what a machine without that instruction would meet."""
import json
import os
import re
import struct
import subprocess

import harness
from harness import Skip, check, clean_env, equal, expect, main, model, temp

TEXT = ("run", "-m", model("nano"), "-d", "cpu", "--seed", "1", "-n", "8", "Once upon a time there was a little fox")
# an illegal instruction and a return, by e_machine
CODE = {183: (b"\0\0\0\0", b"\xc0\x03\x5f\xd6"), 62: (b"\x0f\x0b", b"\xc3")}


def symbols(data):
    """Names and file offsets of the functions of a 64-bit ELF file."""
    shoff, = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, shoff + i * size) for i in range(count)]
    found = {}
    for kind, offset, length, link in ((s[1], s[4], s[5], s[6]) for s in sections):
        if kind != 2:
            continue
        names = sections[link][4]
        for at in range(offset, offset + length, 24):
            name, info, _, index, value, _ = struct.unpack_from("<IBBHQQ", data, at)
            if info & 15 == 2 and 0 < index < count:
                text = data[names + name:data.index(0, names + name)].decode()
                found[text] = value - sections[index][3] + sections[index][4]
    return found


def broken(kernels, how):
    """A copy of the command in which these kernels do not work: how 0 is illegal, 1 does nothing."""
    with open(harness.BITNET, "rb") as f:
        data = bytearray(f.read())
    where = symbols(data)
    if not where:
        raise Skip("the command has no symbols")
    machine, = struct.unpack_from("<H", data, 18)
    for k in kernels:
        at = where["bnet_" + k.replace(".", "_")]
        code = CODE[machine][how]
        data[at:at + len(code)] = code
    path = temp("broken")
    with open(path, "wb") as f:
        f.write(data)
    os.chmod(path, 0o755)
    return path


def run(path, *args):
    r = subprocess.run([path, *TEXT, *args], capture_output=True, text=True, env=clean_env(), timeout=300)
    return r.returncode, r.stdout, r.stderr


def kernels_of(*args):
    return [k["id"] for k in json.loads(expect(0, *TEXT, "--json", *args).out)["kernels"]]


def vector_kernel():
    """The ternary kernel of prompts, where it is not the scalar one."""
    found = [k for k in kernels_of() if re.match(r"(gemm|matmul|linear)_i2s", k) and not k.endswith(".scalar")]
    if not found:
        raise Skip("this CPU has the scalar kernels alone")
    return found[0]


def test_a_sound_cpu_is_not_lowered():
    best = kernels_of("--self-test", "off")
    for mode in ("on", "auto"):
        equal(kernels_of("--self-test", mode), best, mode)


def test_an_illegal_instruction_lowers_the_set():
    kernel = vector_kernel()
    isa = kernel.split(".")[1]
    want = expect(0, *TEXT).out
    path = broken([kernel], 0)
    code, out, err = run(path, "--self-test", "off")
    check(code != 0, f"without the test it runs into the instruction: {err}")
    code, out, err = run(path, "--self-test", "on")
    equal((code, out), (0, want), err)
    check("Illegal instruction; using " in err and kernel not in err, err)
    code, out, err = run(path, "--self-test", "on", "--isa", isa)
    equal((code, out), (12, ""), err)
    check(f"isa '{isa}'" in err and "Illegal instruction; choose a lower --isa" in err, err)


def test_wrong_results_lower_the_set():
    kernel = vector_kernel()
    want = expect(0, *TEXT).out
    code, out, err = run(broken([kernel], 1), "--self-test", "on")
    equal((code, out), (0, want), err)
    check("does not give what the scalar kernel gives" in err and "; using " in err, err)


def test_down_to_scalar():
    every = [k for k in kernels_of() if not k.endswith(".scalar")]
    if not every:
        raise Skip("this CPU has the scalar kernels alone")
    with open(harness.BITNET, "rb") as f:
        names = symbols(f.read())
    sets = {k.split(".")[1] for k in every} | {"neon", "dotprod", "sse41", "avx2", "avxvnni", "avx512", "avx512vnni"}
    bad = [n[5:] for n in names if re.match(r"bnet_(gemm|gemv|matmul|linear|rmsnorm)_\w+_(%s)$" % "|".join(sets), n)]
    code, out, err = run(broken(bad, 0), "--self-test", "on")
    equal((code, out), (0, expect(0, *TEXT).out), err)
    check("; using scalar" in err, err)


if __name__ == "__main__":
    main(globals())
