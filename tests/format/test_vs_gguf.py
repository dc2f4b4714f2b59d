#!/usr/bin/env python3
"""Our codecs against the independent `gguf` package: block sizes, decoding of random blocks, encoding.

The codecs are compiled here into a small shared object and called through ctypes; the package does the same work
in numpy. Exit code 77: the package (or a compiler) is missing.

Environment: BITNET_PYTHON, or BITNET_VENV (a venv folder or its python); default build/venv of the checkout.
"""
import ctypes
import glob
import os
import shutil
import subprocess
import sys

ROOT = os.environ.get("BITNET_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("BITNET_BUILD") or os.path.join(ROOT, "build")


def skip(why):
    print("skipped:", why)
    sys.exit(77)


def venv_python():
    for path in (os.environ.get("BITNET_PYTHON"), os.environ.get("BITNET_VENV"), os.path.join(ROOT, "build", "venv")):
        if path and os.path.isdir(path):
            path = os.path.join(path, "bin", "python")
        if path and os.access(path, os.X_OK):
            return path
    return None


def ensure_package():
    """Runs this script again in the venv where this interpreter has no gguf."""
    try:
        import gguf  # noqa: F401
        import numpy  # noqa: F401
    except ImportError:
        python = venv_python()
        if not python or os.environ.get("BITNET_IN_VENV"):
            skip("the Python package gguf is not installed (make test makes build/venv with it)")
        os.environ["BITNET_IN_VENV"] = "1"
        os.execv(python, [python, os.path.abspath(__file__)])


ensure_package()
import gguf  # noqa: E402
import numpy as np  # noqa: E402
from gguf import GGMLQuantizationType as T  # noqa: E402


def compile_codecs():
    cc = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not cc:
        skip("no C compiler")
    os.makedirs(BUILD, exist_ok=True)
    out = os.path.join(BUILD, "format_codecs.so")
    sources = sorted(glob.glob(os.path.join(ROOT, "src/format/*.c")) + glob.glob(os.path.join(ROOT, "src/base/*.c")))
    subprocess.run([*cc.split(), "-std=c11", "-O2", "-D_GNU_SOURCE", "-ffp-contract=off", "-shared", "-fPIC",
                    "-I" + os.path.join(ROOT, "include"), "-I" + os.path.join(ROOT, "src"), *sources, "-o", out,
                    "-lm", "-lpthread", "-lcrypto", "-ljansson"], check=True)
    return ctypes.CDLL(out)


class TypeInfo(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("name", ctypes.c_char_p), ("n_elems", ctypes.c_uint32),
                ("n_bytes", ctypes.c_uint32), ("kind", ctypes.c_int)]


C = compile_codecs()
C.bnet_type_by_name.restype = ctypes.POINTER(TypeInfo)
C.bnet_type_by_name.argtypes = [ctypes.c_char_p]
for f in (C.bnet_decode_row, C.bnet_encode_row):
    f.restype = ctypes.c_bool
    f.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
C.bnet_decode_part.restype = ctypes.c_bool
C.bnet_decode_part.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p]
C.bnet_f16_to_f32.restype = ctypes.c_float
C.bnet_f16_to_f32.argtypes = [ctypes.c_uint16]

failures = []


def check(ok, what):
    print("ok  " if ok else "FAIL", what)
    if not ok:
        failures.append(what)


def decode(t, raw, n):
    out = np.full(n, np.nan, np.float32)
    raw = np.ascontiguousarray(raw)
    assert C.bnet_decode_row(int(t), raw.ctypes.data, out.ctypes.data, n)
    return out


def encode(t, x, n_bytes):
    out = np.full(n_bytes, 0xAA, np.uint8)
    x = np.ascontiguousarray(x, np.float32)
    assert C.bnet_encode_row(int(t), x.ctypes.data, out.ctypes.data, x.size)
    return out


def same_bits(a, b):
    return np.array_equal(np.asarray(a).view(np.uint32), np.asarray(b).view(np.uint32))


def sizes():
    """Every type both sides name has the same block; numbers agree but where two formats share one."""
    n_common = 0
    for t, (elems, n_bytes) in gguf.GGML_QUANT_SIZES.items():
        row = C.bnet_type_by_name(t.name.encode())
        if not row:
            continue
        n_common += 1
        r = row.contents
        check((r.n_elems, r.n_bytes) == (elems, n_bytes), f"size of {t.name}: {r.n_elems}/{r.n_bytes}")
        check(r.type % 65536 == int(t), f"number of {t.name}: {r.type % 65536}")
    check(n_common >= 20, f"{n_common} types in common")


# where the f16 scales sit in a block: random bytes there would mean NaN and infinity
SCALES = {T.Q4_0: [0], T.Q8_0: [0], T.Q6_K: [208], T.TQ1_0: [52], T.TQ2_0: [64]}


def decoding(rng):
    n_blocks = 512
    for t, places in SCALES.items():
        elems, n_bytes = gguf.GGML_QUANT_SIZES[t]
        raw = rng.integers(0, 256, (n_blocks, n_bytes), dtype=np.uint8)
        for p in places:
            raw[:, p:p + 2] = rng.normal(0, 1, n_blocks).astype(np.float16).view(np.uint8).reshape(-1, 2)
            raw[0, p:p + 2] = 0
            raw[1, p:p + 2] = (1, 0)  # the smallest subnormal
        want = gguf.quants.dequantize(raw, t).reshape(-1)
        check(same_bits(decode(t, raw, n_blocks * elems), want), f"decode {t.name}, {n_blocks} blocks, bit for bit")


def plain(rng):
    halves = np.arange(65536, dtype=np.uint16)
    with np.errstate(all="ignore"):
        want = halves.view(np.float16).astype(np.float32)
    got = decode(T.F16, halves, halves.size)
    nan = np.isnan(want)
    check(np.array_equal(np.isnan(got), nan) and same_bits(got[~nan], want[~nan]), "decode F16, all 65536 values")
    want = gguf.quants.dequantize(halves.view(np.uint8), T.BF16)
    got = decode(T.BF16, halves, halves.size)
    check(same_bits(got, want.reshape(-1)), "decode BF16, all 65536 values")
    x = rng.integers(0, 2**32, 1 << 20, dtype=np.uint32).view(np.float32)
    finite = x[~np.isnan(x)]
    with np.errstate(all="ignore"):
        want = finite.astype(np.float16).view(np.uint8)
    check(np.array_equal(encode(T.F16, finite, 2 * finite.size), want), "encode F16, random bit patterns")
    want = gguf.quants.quantize(x, T.BF16).reshape(-1).view(np.uint8)
    check(np.array_equal(encode(T.BF16, x, 2 * x.size), want), "encode BF16, random bit patterns and NaN")


def encoding(rng):
    n = 256 * 512
    shapes = {"normal": rng.normal(0, 0.1, n), "wide": rng.normal(0, 1, n) * 10 ** rng.uniform(-3, 2, n),
              "zero": np.zeros(n), "ternary": rng.integers(-1, 2, n) * 0.731}
    for name, x in shapes.items():
        x = x.astype(np.float32)
        for t in (T.Q4_0, T.Q8_0, T.TQ1_0, T.TQ2_0):
            elems, n_bytes = gguf.GGML_QUANT_SIZES[t]
            want = gguf.quants.quantize(x, t).reshape(-1).view(np.uint8)
            got = encode(t, x, n // elems * n_bytes)
            check(np.array_equal(got, want), f"encode {t.name} of {name} values, byte for byte")


def q6_k(rng):
    """The package does not encode Q6_K: it decodes what we encoded, and the error must be that of six bits."""
    n = 256 * 512
    x = rng.normal(0, 0.1, n).astype(np.float32)
    raw = encode(T.Q6_K, x, n // 256 * 210)
    y = gguf.quants.dequantize(raw.reshape(-1, 210), T.Q6_K).reshape(-1)
    error = float(np.sqrt(np.mean((x - y) ** 2) / np.mean(x ** 2)))
    check(same_bits(decode(T.Q6_K, raw, n), y), "decode of our Q6_K, bit for bit")
    check(error < 0.0175, f"Q6_K relative error {error:.5f} (limit 0.0175)")


def extra(rng):
    """Types that only the dequantised fallback reads, whole and in parts."""
    n_blocks = 512
    for t, places in {T.Q4_K: [0, 2], T.IQ4_NL: [0]}.items():
        elems, n_bytes = gguf.GGML_QUANT_SIZES[t]
        raw = rng.integers(0, 256, (n_blocks, n_bytes), dtype=np.uint8)
        for p in places:
            raw[:, p:p + 2] = rng.normal(0, 1, n_blocks).astype(np.float16).view(np.uint8).reshape(-1, 2)
        want = gguf.quants.dequantize(raw, t).reshape(-1)
        n = n_blocks * elems
        for size in (n, 4 * elems):
            got = np.full(n, np.nan, np.float32)
            for first in range(0, n, size):
                assert C.bnet_decode_part(int(t), raw.ctypes.data, first, size, got.ctypes.data + 4 * first)
            check(same_bits(got, want), f"decode {t.name} in parts of {size}, bit for bit")


def main():
    seed = int(os.environ.get("BITNET_SEED", "1"))
    print("gguf package, seed", seed)
    rng = np.random.default_rng(seed)
    sizes()
    plain(rng)
    decoding(rng)
    encoding(rng)
    q6_k(rng)
    extra(rng)
    print(f"{len(failures)} failed")
    sys.exit(1 if failures else 0)


main()
