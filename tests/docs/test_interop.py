#!/usr/bin/env python3
"""The table "What opens" of README.md, row by row: files written here are opened by PyPI's gguf package, files written by
others (the reference data) are run or refused here. What a row says must happen; a row nobody can check fails. Exit code 77:
the package or the reference data is missing."""
import importlib.util
import os
import re
import shlex
import sys

SOURCE = os.environ.get("BITNET_SOURCE") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
VENV = os.environ.get("BITNET_VENV") or os.path.join(SOURCE, "build", "venv")
PYTHON = os.environ.get("BITNET_PYTHON") or os.path.join(VENV, "bin", "python")
if importlib.util.find_spec("gguf") is None:
    if os.path.exists(PYTHON) and not os.environ.get("BITNET_REEXEC"):
        os.environ["BITNET_REEXEC"] = "1"
        os.execv(PYTHON, [PYTHON] + sys.argv)
    print("skipped: the Python package gguf is not there (tools/setup fetches it)")
    sys.exit(77)

import importlib.metadata  # noqa: E402

import gguf  # noqa: E402
import numpy as np  # noqa: E402

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
from harness import check, equal, expect, main, run, shared, temp  # noqa: E402

PROMPT = ["--greedy", "-n", "40", "--quiet", "-p", "Once upon a time"]


def table():
    """(version of gguf the README names, rows as lists of cells)"""
    with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as f:
        text = f.read().split("<!-- interop -->")[1].split("<!-- end of interop -->")[0]
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.strip().splitlines()]
    return re.search(r"`gguf` ([\d.]+)", " ".join(rows[0])).group(1), rows[2:]


# ---- where the files of a row come from ----

def converted(writer):
    """What a row's `bitnet convert [options]` writes from the nano checkpoint."""
    options = shlex.split(re.search(r"`bitnet convert([^`]*)`", writer).group(1))
    out = temp("-".join(["nano", *(o.strip("-") for o in options)]) + ".gguf")
    expect(0, "convert", shared("story-model", "nano"), out, *options)
    return out


def written_by_package(name):
    """The nano model quantised and written by the package alone, from the F16 file that is converted here."""
    source = converted("`bitnet convert --type f16`")
    reader, out = gguf.GGUFReader(source), temp(f"package-{name}.gguf")
    kind = gguf.GGMLQuantizationType[name]
    writer = gguf.GGUFWriter(out, reader.fields["general.architecture"].contents())
    for key, field in reader.fields.items():
        if not key.startswith("GGUF.") and key != "general.architecture":
            sub = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(key, field.contents(), field.types[0], sub)
    for t in reader.tensors:
        ternary = t.name.startswith("blk.") and len(t.shape) == 2
        data = gguf.quants.quantize(np.array(t.data, np.float32), kind) if ternary else t.data
        writer.add_tensor(t.name, data, raw_dtype=kind if ternary else t.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


def files_of(kinds, writer):
    """(name, path) for every file a row stands for."""
    names = [k.strip(" `") for k in kinds.split(",")]
    if "bitnet convert" in writer:
        return [(kinds, converted(writer))]
    if "`gguf`" in writer:
        return [(name, written_by_package(name)) for name in names]
    if "vocabulary" in kinds:
        return [(name, shared("vocab", f"ggml-vocab-{name}.gguf")) for name in ("gpt-2", "llama-spm")]
    short = {"llama.cpp": "ll-nano-{}.gguf", "ik_llama.cpp": "ik-nano-{}.gguf"}[writer]
    return [(name, shared("formats", short.format(name.lower() if short.startswith("ik") else name))) for name in names]


# ---- what must happen ----

def here(name, path, says, own_text):
    verdict, _, why = says.partition(": ")
    if verdict == "tokenizes":
        expect(0, "tokenize", "-m", path, "Hello, world")
        return
    r = run("run", "-m", path, *PROMPT)
    if verdict == "runs":
        equal(r.code, 0, f"{name}: {r.err}")
        equal(r.out[:30], own_text[:30], f"{name}: how the text begins")
    else:
        equal((verdict, r.code, r.out), ("refused", 3, ""), f"{name}: {r.err}")
        check(why and why in r.err, f"{name}: refused, but not as '{why}': {r.err}")


def there(name, path, says, exact):
    try:
        reader = gguf.GGUFReader(path)
    except ValueError as e:
        check(says == "unknown type" and "GGMLQuantizationType" in str(e), f"{name}: the package says {e}")
        return
    if says == "opens":
        check(reader.fields and all(t.n_bytes > 0 for t in reader.tensors), f"{name}: nothing in it")
    elif exact:
        raise AssertionError(f"{name}: the package opens it, the table says '{says}'")


def test_every_row():
    version, rows = table()
    exact = importlib.metadata.version("gguf") == version
    print(f"gguf {importlib.metadata.version('gguf')}" + ("" if exact else f", the table is of {version}: only what opens is checked"))
    own = expect(0, "run", "-m", converted("`bitnet convert`"), *PROMPT).out
    n = 0
    for kinds, writer, says_here, says_there in rows:
        for name, path in files_of(kinds, writer):
            here(f"{name} of {writer}", path, says_here, own)
            there(f"{name} of {writer}", path, says_there, exact)
            n += 1
    check(n >= 20, f"only {n} files were opened")


def values(path):
    """Ternary tensors as the package decodes them: name -> (signs, largest magnitude)"""
    out = {}
    for t in gguf.GGUFReader(path).tensors:
        if t.name.startswith("blk.") and len(t.shape) == 2:
            x = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float64)
            out[t.name] = (np.sign(x).astype(np.int8).reshape(-1), np.abs(x).max())
    return out


def test_the_package_sees_the_same_weights():
    """TQ1_0 and TQ2_0 have the signs of F32 weight by weight, and its scale but for rounding to 16 bits."""
    want = values(converted("`bitnet convert --type f32`"))
    check(len(want) >= 14, f"{len(want)} ternary tensors")
    for kind in ("tq1_0", "tq2_0", "f16"):
        got = values(converted(f"`bitnet convert --type {kind}`"))
        for name, (signs, scale) in want.items():
            check(np.array_equal(got[name][0], signs), f"{kind}: {name}: other trits")
            check(abs(got[name][1] / scale - 1) < 2 ** -10, f"{kind}: {name}: scale {got[name][1]} instead of {scale}")


def test_checkpoints_of_others_are_converted():
    """The sources that README.md names: packed and master checkpoints of Hugging Face, a llama2.c file."""
    expect(0, "convert", shared("story-model", "nano-master"), temp("master.gguf"))
    equal(expect(0, "run", "-m", temp("master.gguf"), *PROMPT).code, 0, "masters")
    expect(0, "convert", shared("third-party", "stories260K.bin"), temp("l2c.gguf"), "--tokenizer",
           shared("third-party", "tok512.bin"), "--type", "f32", "--embedding", "f32")
    check("Once upon a time" in expect(0, "run", "-m", temp("l2c.gguf"), "--greedy", "-n", "30", "--echo", "-p",
                                       "Once upon a time").out, "llama2.c")


def test_the_check_itself():
    path = converted("`bitnet convert`")
    for function, args in ((here, ("x", path, "refused: not ternary", "")), (there, ("x", path, "opens", True)),
                           (here, ("x", path, "runs", "Another text than that of the model"))):
        try:
            function(*args)
        except AssertionError:
            continue
        raise AssertionError(f"{function.__name__}{args[2:]} was believed")


main(globals())
