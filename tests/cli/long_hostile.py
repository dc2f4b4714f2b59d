#!/usr/bin/env python3
"""long_hostile.py - files made to cost much: whatever they are, opening, inspecting, tokenizing and converting them takes at
most a second of CPU and 64 MiB and four times the file; and sessions take what bitnet_session_memory announced.

Every case is a row of CASES: a function that writes the file, in a process of its own so that this one stays small, and the
commands that meet it. No command may end by a signal. Only the release build is measured.
"""
import os
import re
import struct
import subprocess
import sys
import tempfile

SOURCE = os.environ.get("BITNET_SOURCE") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
BUILD = os.environ.get("BITNET_BUILD") or os.path.join(SOURCE, "build", "release")
BITNET = os.environ.get("BITNET") or os.path.join(BUILD, "bitnet")
BASE, TIMES, SECONDS = 64 << 20, 4, 1.0

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)


# ---- GGUF by hand: nothing is checked while writing ----

def text(s):
    s = s.encode() if isinstance(s, str) else s
    return struct.pack("<Q", len(s)) + s


def kv(key, kind, value):
    return text(key) + struct.pack("<I", kind) + value


def u32(key, n):
    return kv(key, U32, struct.pack("<I", n))


def string(key, s):
    return kv(key, STRING, text(s))


def array(key, kind, count, data):
    return kv(key, ARRAY, struct.pack("<IQ", kind, count) + data)


def strings(key, items):
    return array(key, STRING, len(items), b"".join(map(text, items)))


def tensor(name, dims, kind=0, offset=0):
    return text(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims) + struct.pack("<IQ", kind, offset)


def gguf(kvs=(), tensors=(), data=b"", n_kv=None, n_tensors=None, version=3):
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors) if n_tensors is None else n_tensors, len(kvs) if n_kv is None else n_kv)
    body = head + b"".join(kvs) + b"".join(tensors)
    return body + b"\0" * (-len(body) % 32) + data


def vocabulary(tokens, merges=(), types=None, pre="llama-bpe", model="gpt2"):
    """The keys of a file that holds a vocabulary alone."""
    keys = [string("general.architecture", "llama"), string("tokenizer.ggml.model", model), string("tokenizer.ggml.pre", pre),
            strings("tokenizer.ggml.tokens", tokens)]
    types = types or [1] * len(tokens)
    keys.append(array("tokenizer.ggml.token_type", I32, len(types), struct.pack("<%di" % len(types), *types)))
    if merges:
        keys.append(strings("tokenizer.ggml.merges", merges))
    if model == "llama":
        keys.append(array("tokenizer.ggml.scores", F32, len(tokens), struct.pack("<%df" % len(tokens), *[-float(i) for i in range(len(tokens))])))
    return keys


def byte_tokens():
    """The 256 letters of byte-level vocabularies."""
    plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    return [chr(b) for b in plain] + [chr(256 + i) for i in range(256 - len(plain))]


def nested(depth):
    out = struct.pack("<IQ", U8, 0)
    for _ in range(depth):
        out = struct.pack("<IQ", ARRAY, 1) + out
    return out


# ---- cases: name -> bytes of the file ----

def names(n):
    return ["t%06x" % i for i in range(n)]


CASES = {
    # metadata: types, counts, nesting
    "kv-count-huge": lambda: gguf(n_kv=2**63),
    "kv-count-16m": lambda: gguf([u32("a", 1)], n_kv=1 << 24),
    "kv-unknown-type": lambda: gguf([kv("a", 99, b"\0" * 64)]),
    "kv-many": lambda: gguf([u32("k%06x" % i, i) for i in range(60000)]),
    "kv-many-empty-strings": lambda: gguf([string("k%06x" % i, "") for i in range(60000)]),
    "kv-same-key": lambda: gguf([u32("same", 1)] * 60000),
    "kv-long-keys": lambda: gguf([u32("k" * 60000 + "%d" % i, 1) for i in range(100)]),
    "kv-control-text": lambda: gguf([string("general.name", "\x1b]0;x\x07" * 100000)]),
    "string-longer-than-file": lambda: gguf([kv("a", STRING, struct.pack("<Q", 2**40) + b"x")]),
    "array-count-huge": lambda: gguf([array("a", U8, 2**62, b"")]),
    "array-of-empty-strings": lambda: gguf([array("a", STRING, 1 << 20, b"\0" * (8 << 20))]),
    "array-long": lambda: gguf([array("a", U8, 12 << 20, b"\1" * (12 << 20))]),
    "array-nested-8": lambda: gguf([kv("a", ARRAY, nested(8))]),
    "array-nested-100000": lambda: gguf([kv("a", ARRAY, nested(100000))]),
    "array-of-arrays": lambda: gguf([array("a", ARRAY, 500000, struct.pack("<IQ", U8, 0) * 500000)]),
    # tensors: counts, dimensions, offsets
    "tensor-count-huge": lambda: gguf(n_tensors=2**63),
    "tensor-count-16m": lambda: gguf(tensors=[tensor("a", [1])], n_tensors=1 << 24),
    "tensors-many": lambda: gguf(tensors=[tensor("t%06x" % i, [8], 0, 32 * i) for i in range(50000)], data=b"\0" * (32 * 50000)),
    "tensors-same-name": lambda: gguf(tensors=[tensor("same", [8], 0, 32 * i) for i in range(20000)], data=b"\0" * (32 * 20000)),
    "tensors-overlap": lambda: gguf(tensors=[tensor("t%06x" % i, [1 << 18], 0, 0) for i in range(20000)], data=b"\0" * (1 << 20)),
    "dims-zero": lambda: gguf(tensors=[tensor("a", [0, 5])]),
    "dims-overflow": lambda: gguf(tensors=[tensor("a", [2**62, 2**62, 4, 4])]),
    "dims-many": lambda: gguf(tensors=[tensor("a", [1] * 100000)]),
    "offset-behind-end": lambda: gguf(tensors=[tensor("a", [8], 0, 2**62)]),
    "offset-odd": lambda: gguf(tensors=[tensor("a", [8], 0, 7)], data=b"\0" * 64),
    # vocabularies
    "vocab-large": lambda: gguf(vocabulary(byte_tokens() + names(300000))),
    "vocab-same-token": lambda: gguf(vocabulary(byte_tokens() + ["same"] * 300000)),
    "vocab-long-prefix": lambda: gguf(vocabulary(byte_tokens() + ["a" * 200 + "%d" % i for i in range(30000)])),
    "vocab-one-long-token": lambda: gguf(vocabulary(byte_tokens() + ["a" * (8 << 20)])),
    "merges-many": lambda: gguf(vocabulary(byte_tokens() + ["a" * i for i in range(2, 2000)], ["a" * i + " a" for i in range(1, 1999)])),
    "merges-same": lambda: gguf(vocabulary(byte_tokens() + ["aa"], ["a a"] * 500000)),
    "merges-broken": lambda: gguf(vocabulary(byte_tokens(), ["", " ", "  ", "a", "x y z"] * 50000)),
    "specials-many": lambda: gguf(vocabulary(byte_tokens() + ["<|%d|>" % i for i in range(50000)], types=[1] * 256 + [3] * 50000)),
    "specials-prefixes": lambda: gguf(vocabulary(byte_tokens() + ["a" * i for i in range(2, 1500)], types=[1] * 256 + [4] * 1498)),
    "spm-chain": lambda: gguf(vocabulary(["<unk>", "<s>", "</s>"] + ["a" * i for i in range(1, 1500)], model="llama", pre="default")),
    "types-odd": lambda: gguf(vocabulary(byte_tokens(), types=[99] * 256)),
    "tokens-not-utf8": lambda: gguf(vocabulary([b"\xff" * 50] * 100000)),
    "types-shorter": lambda: gguf(vocabulary(byte_tokens(), types=[1] * 5)),
    "not-gguf": lambda: b"\x7fELF" + b"\0" * (4 << 20),
    "empty": lambda: b"",
}


def make(name, path):
    with open(path, "wb") as f:
        f.write(CASES[name]())


# ---- running ----

def measured(argv, **more):
    """Exit status (negative: a signal), CPU seconds, peak bytes, output."""
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, **more)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        return child.returncode, usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10, out.read(4000).decode("utf-8", "replace")


class Report:
    def __init__(self):
        self.n = 0
        self.bad = []

    def check(self, name, argv, n_input, **more):
        status, cpu, peak, out = measured(argv, **more)
        self.n += 1
        most = BASE + TIMES * n_input
        what = "%s: %s: status %d, %.2f s, %.1f of %.1f MiB" % (name, argv[1], status, cpu, peak / 2**20, most / 2**20)
        print(what)
        if status < 0 or cpu > SECONDS or peak > most:
            self.bad.append(what + ": " + out[-300:])


def gguf_cases(report, folder):
    path, words = os.path.join(folder, "case.gguf"), os.path.join(folder, "words.txt")
    with open(words, "w", encoding="utf-8") as f:
        f.write("aaaaaaaaab <|1|> " * 4096)
    for name in CASES:
        subprocess.run([sys.executable, os.path.abspath(__file__), "--make", name, path], check=True)
        n_input = os.path.getsize(path)
        report.check(name, [BITNET, "inspect", path], n_input)
        with open(words, "rb") as f:
            report.check(name, [BITNET, "tokenize", "-m", path], n_input + os.path.getsize(words), stdin=f)
        report.check(name, [BITNET, "run", "-m", path, "-n", "1", "x"], n_input)


# A checkpoint's files one by one replaced: what convert reads besides tensors. tests/convert/test_json_memory.py has more.
def many(n, form):
    return b",".join(form % i for i in range(n))


BROKEN = {
    "config-deep": ("config.json", lambda: b"[" * 100000),
    "config-empty": ("config.json", lambda: b""),
    "config-number": ("config.json", lambda: b"1" * (1 << 20)),
    "tokenizer-deep": ("tokenizer.json", lambda: b'{"model":' * 100000),
    "tokenizer-string": ("tokenizer.json", lambda: b'{"a":"' + b"\\u0041" * (2 << 20) + b'"}'),
    "tokenizer-keys": ("tokenizer.json", lambda: b"{" + many(1 << 20, b'"%x":0') + b"}"),
    "tokenizer-open": ("tokenizer.json", lambda: b'{"model":{"vocab":{' + many(1 << 20, b'"%x":0')),
    "header-length": ("model.safetensors", lambda: struct.pack("<Q", 2**40) + b"{"),
    "header-deep": ("model.safetensors", lambda: struct.pack("<Q", 100000) + b'{"a":' * 20000),
    "header-keys": ("model.safetensors", lambda: struct.pack("<Q", 12 << 20) + (b"{" + many(1 << 20, b'"%08x":0'))[:12 << 20].ljust(12 << 20)),
}


def convert_cases(report, folder):
    good = os.path.join(folder, "good")
    subprocess.run([sys.executable, os.path.join(SOURCE, "tools", "make_hf_model"), good, "--layers", "1", "--width", "256", "--ffn", "512",
                    "--heads", "4", "--kv-heads", "2", "--vocab", "512"], check=True, stdout=subprocess.DEVNULL)
    for name in ["good", *BROKEN]:
        made = os.path.join(folder, name)
        if name != "good":
            subprocess.run([sys.executable, os.path.abspath(__file__), "--break", name, good, made], check=True)
        n_input = sum(os.path.getsize(os.path.join(made, f)) for f in os.listdir(made))
        report.check(name, [BITNET, "convert", made, made + ".gguf"], n_input)


def break_one(name, good, made):
    os.mkdir(made)
    for f in os.listdir(good):
        os.link(os.path.join(good, f), os.path.join(made, f))
    file, data = BROKEN[name]
    os.remove(os.path.join(made, file))
    with open(os.path.join(made, file), "wb") as f:
        f.write(data())


def session_cases(report):
    """What a larger session takes more than a small one is what was announced of it, and 8 MiB."""
    story = os.path.join(SOURCE, "models", "nano.gguf")
    prompt = "Once upon a time there was a fox. " * 120
    found = {}
    for ctx, batch, cache in ((64, 1, "f16"), (2048, 512, "f32"), (8192, 64, "f16"), (8192, 512, "f32"), (65536, 512, "int8"), (200000, 512, "f16")):
        argv = [BITNET, "run", "-m", story, "-t", "1", "--device", "cpu", "-v", "-n", "2", "-c", str(ctx), "-b", str(batch), "--kv", cache,
                prompt if ctx > 64 else "Once"]
        status, _, peak, out = measured(argv)
        said = re.search(r"session of ([0-9.]+) MB", out)
        if status or not said:
            report.bad.append("session %d: status %d: %s" % (ctx, status, out[-300:]))
            continue
        announced = float(said.group(1)) * 1e6
        found.setdefault("small", (announced, peak))
        more, allowed = peak - found["small"][1], announced - found["small"][0] + (8 << 20)
        report.n += 1
        print("session of %d, batch %d, %s: announced %.1f MB, %.1f MB more than the small one, %.1f allowed" %
              (ctx, batch, cache, announced / 1e6, more / 1e6, allowed / 1e6))
        if more > allowed:
            report.bad.append("session of %d: takes %.1f MB more, announced were %.1f" % (ctx, more / 1e6, allowed / 1e6))


def main():
    if sys.argv[1:2] == ["--make"]:
        return make(*sys.argv[2:])
    if sys.argv[1:2] == ["--break"]:
        return break_one(*sys.argv[2:])
    with open(os.path.join(BUILD, "CMakeCache.txt"), encoding="utf-8") as f:
        cache = f.read()
    if re.search(r"BITNET_SANITIZE:\w+=.", cache) or "CMAKE_BUILD_TYPE:STRING=Release" not in cache:
        print("skipped: only the release build is measured")
        sys.exit(77)
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        gguf_cases(report, folder)
        convert_cases(report, folder)
    session_cases(report)
    print("%d cases, %d too costly" % (report.n, len(report.bad)))
    if report.bad:
        sys.exit("\n".join(report.bad))
    return None


main()
