"""test_vs_gguf.py - conversions read by others: the gguf package for the types it knows, i2s_reader.py for I2_S. Keys,
shapes and every value are compared with what numpy computes from the checkpoint."""
import importlib.util
import os
import subprocess
import sys
import tempfile

SOURCE = os.environ.get("BITNET_SOURCE") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
BUILD = os.environ.get("BITNET_BUILD") or os.path.join(SOURCE, "build", "release")
SHARED = os.environ.get("BITNET_SHARED") or os.path.join(SOURCE, "..", "shared")
VENV = os.environ.get("BITNET_VENV") or os.path.join(SOURCE, "build", "venv")
PYTHON = os.environ.get("BITNET_PYTHON") or os.path.join(VENV, "bin", "python")
MISSING = [m for m in ("gguf", "numpy") if importlib.util.find_spec(m) is None]
if MISSING:
    if os.path.exists(PYTHON) and not os.environ.get("BITNET_REEXEC"):
        os.environ["BITNET_REEXEC"] = "1"
        os.execv(PYTHON, [PYTHON] + sys.argv)
    print("skipped: the Python packages %s are not there (tools/setup fetches them)" % MISSING)
    sys.exit(77)

import numpy as np  # noqa: E402
from gguf import GGUFReader, quants  # noqa: E402

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import i2s_reader  # noqa: E402
from checkpoint import Checkpoint  # noqa: E402

EMBEDDING_ERROR = {"f16": 0, "f32": 0, "bf16": 0, "q8_0": 1 / 127, "q6_k": 1 / 16}  # of a row's largest value
failures = []
n_checks = 0


def check(ok, what):
    global n_checks
    n_checks += 1
    if not ok:
        failures.append(what)
        print("FAILED:", what)


def converter():
    command, driver = os.environ.get("BITNET", ""), os.path.join(BUILD, "tests", "convert_driver")
    if os.path.exists(driver):
        return [driver]
    if os.path.exists(command):
        return [command, "convert"]
    print("skipped: neither convert_driver nor the command is built")
    sys.exit(77)


def convert(source, out, kind, embedding):
    done = subprocess.run(converter() + [source, out, "--type", kind, "--embedding", embedding], capture_output=True,
                          text=True, check=False)
    if done.returncode != 0:
        sys.exit("converting %s failed: %s" % (source, done.stderr))


# ---- reading by the gguf package ----

def package_keys(reader):
    keys = {}
    for name, field in reader.fields.items():
        if name.startswith("GGUF."):
            continue
        kinds = [t.name for t in field.types]
        if kinds[0] == "ARRAY":
            keys[name] = [bytes(field.parts[i]) if kinds[1] == "STRING" else field.parts[i][0] for i in field.data]
        else:
            value = field.parts[field.data[0]]
            keys[name] = bytes(value).decode() if kinds[0] == "STRING" else value[0]
    return keys


def package_tensors(reader):
    """name -> (type name, shape outermost first, f32 values)."""
    out = {}
    for t in reader.tensors:
        shape = tuple(int(d) for d in reversed(t.shape))
        out[t.name] = (t.tensor_type.name, shape, quants.dequantize(t.data, t.tensor_type).reshape(shape))
    return out


# ---- what is compared ----

def compare_keys(label, got, want):
    check(set(got) == set(want), "%s: keys differ by %s" % (label, sorted(set(got) ^ set(want))))
    for name in want:
        if name in got:
            check(list(got[name]) == list(want[name]) if isinstance(want[name], list) else got[name] == want[name],
                  "%s: key %s" % (label, name))


def stored(trits, scale, kind):
    """Values that the output type holds for trits times scale."""
    if scale is None:
        return trits.astype(np.float16).astype(np.float32) if kind == "f16" else trits
    if kind != "f32":
        scale = np.float32(np.float16(scale))
    return trits.astype(np.float32) * scale


def compare_embedding(label, name, got, want, kind):
    if kind == "f16":
        want = want.astype(np.float16).astype(np.float32)
    limit = EMBEDDING_ERROR[kind] * np.abs(want).max(axis=1, keepdims=True)
    check(got.shape == want.shape and bool(np.all(np.abs(got - want) <= limit)), "%s: %s values" % (label, name))


def compare_package(label, path, c, kind, embedding):
    reader = GGUFReader(path)
    compare_keys(label, package_keys(reader), c.keys(kind))
    tensors = package_tensors(reader)
    n = 0
    for name, values, scale in c.linears():
        found = tensors[name]
        check(found[0] == kind.upper() and found[1] == values.shape, "%s: %s is %s %s" % ((label, name) + found[:2]))
        check(np.array_equal(found[2], stored(values, scale, kind)), "%s: %s values" % (label, name))
        n += 1
    for name, values in c.norms():
        check(tensors[name][0] == "F32" and np.array_equal(tensors[name][2], values), "%s: %s" % (label, name))
        n += 1
    for name, values in c.heads():
        check(tensors[name][0] == embedding.upper(), "%s: %s is %s" % (label, name, tensors[name][0]))
        compare_embedding(label, name, tensors[name][2], values, embedding)
        n += 1
    check(n == len(tensors), "%s: %d tensors, %d were expected" % (label, len(tensors), n))


def compare_i2s(label, path, c):
    f = i2s_reader.File(path)
    check(f.version == 3, "%s: version %d" % (label, f.version))
    compare_keys(label, f.keys, c.keys("i2_s"))
    n = 0
    for name, values, scale in c.linears():
        trits, found, tail = f.trits(name)
        check(np.array_equal(trits, values), "%s: %s codes" % (label, name))
        check(np.float32(found) == scale, "%s: %s scale %r, %r was expected" % (label, name, found, scale))
        check(tail == bytes(28), "%s: %s tail" % (label, name))
        n += 1
    for name, values in list(c.norms()) + list(c.heads()):
        found = f.floats(name)
        want = values.astype(found.dtype)
        check(found.dtype == (np.float32 if values.ndim == 1 else np.float16) and np.array_equal(found, want),
              "%s: %s" % (label, name))
        n += 1
    check(n == len(f.tensors), "%s: %d tensors, %d were expected" % (label, len(f.tensors), n))


def made(folder, name, *options):
    path = os.path.join(folder, name)
    subprocess.run([sys.executable, os.path.join(SOURCE, "tools", "make_hf_model"), path, "--layers", "2", "--width",
                    "256", "--ffn", "512", "--heads", "4", "--kv-heads", "2", "--vocab", "600", *options], check=True)
    return path


def main():
    trained = os.path.join(SHARED, "story-model")
    plan = []
    with tempfile.TemporaryDirectory() as folder:
        if os.path.isdir(trained):
            plan += [(os.path.join(trained, m), ("f16", "tq2_0", "tq1_0", "f32", "i2_s"))
                     for m in ("nano", "nano-master", "story")]
        else:
            print("SKIPPED trained models: no reference data at %s (set BITNET_SHARED)" % trained)
        plan += [(made(folder, "packed-shards", "--shards", "3"), ("f16", "i2_s", "tq2_0")),
                 (made(folder, "online-f32", "--form", "online", "--dtype", "F32"), ("f32", "i2_s", "tq1_0")),
                 (made(folder, "llama-divide", "--arch", "llama", "--form", "bitlinear"), ("f16", "i2_s", "tq2_0")),
                 (made(folder, "llama-dense", "--arch", "llama", "--form", "dense"), ("f16", "f32"))]
        embeddings = {"f16": "f16", "tq2_0": "q6_k", "tq1_0": "q8_0", "f32": "f32", "i2_s": "f16"}
        for source, kinds in plan:
            c = Checkpoint(source)
            for kind in kinds:
                label, out = os.path.basename(source) + " as " + kind, os.path.join(folder, "out.gguf")
                convert(source, out, kind, embeddings[kind])
                if kind == "i2_s":
                    compare_i2s(label, out, c)
                else:
                    compare_package(label, out, c, kind, embeddings[kind])
    print("%d comparisons, %d failed" % (n_checks, len(failures)))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
