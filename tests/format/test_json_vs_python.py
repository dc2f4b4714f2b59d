#!/usr/bin/env python3
"""Our JSON reader against Python's json module: thousands of generated and mutated texts, each accepted by both with the
same events or refused by both.

What we decide otherwise, and why, is the comment of src/base/json_reader.h; here that is `expected`. Another seed:
JSON_SEED=7; more texts: JSON_TEXTS=200000.
"""
import json
import os
import random
import struct
import subprocess
import sys

BUILD = os.environ.get("BITNET_BUILD", "build/release")
SEED = int(os.environ.get("JSON_SEED", "1"))
TEXTS = int(os.environ.get("JSON_TEXTS", "20000"))
DEPTH = 64

# ---- what is expected ----


class Pairs(list):
    """An object: pairs in the order of the text, a key as often as it comes."""


class Number(str):
    """The text of a number."""


def refuse(name):
    raise ValueError(name + " is no number")


DECODER = json.JSONDecoder(object_pairs_hook=Pairs, parse_int=lambda s: Number("i" + s), parse_float=lambda s: Number("r" + s),
                           parse_constant=refuse)


def text_event(letter, text):
    return letter + text.encode("utf-8").hex()  # raises for a lone surrogate


def events(value, depth, out):
    if depth > DEPTH:
        raise ValueError("too deep")
    if isinstance(value, Number):
        out.append(str(value))
    elif isinstance(value, str):
        out.append(text_event("s", value))
    elif isinstance(value, Pairs):
        out.append("{")
        for key, inner in value:
            out.append(text_event("k", key))
            events(inner, depth + isinstance(inner, list), out)
        out.append("}")
    elif isinstance(value, list):
        out.append("[")
        for inner in value:
            events(inner, depth + isinstance(inner, list), out)
        out.append("]")
    else:
        out.append({True: "t", False: "f", None: "n"}[value])


def expected(data):
    """The events, or None: refused."""
    out = []
    try:
        value = DECODER.decode(data.decode("utf-8"))
        events(value, int(isinstance(value, list)), out)
    except (ValueError, RecursionError):  # of json, of UTF-8 in both directions
        return None
    return out


# ---- texts ----

TABLE = [
    b"", b" ", b"null", b" true ", b"false", b"nul", b"nulll", b"True", b"0", b"-0", b"-", b"00", b"01", b"1.", b".5", b"+1", b"1e5",
    b"1E+05", b"1e", b"1e+", b"1.e3", b"0.1e-2", b"-1", b"- 1", b"1 2", b"0x10", b"1_0", b"NaN", b"-NaN", b"Infinity", b"-Infinity",
    b"9223372036854775807", b"9223372036854775808", b"1" * 5000, b"1e999", b"-1e999", b"1e-999", b"0" * 3, b"0.0", b"-0.0e0",
    b'""', b'"', b'"a', b'"\\"', b'"\\""', b'"\\x"', b'"\\u12"', b'"\\u12g4"', b'"\\u0041"', b'"\\u0000"', b'"\x00"', b'"\x1f"', b'"\x7f"',
    b'"\t"', b'"\n"', b'"\\/\\b\\f\\n\\r\\t\\\\"', b"'a'", b'"\\ud800"', b'"\\udc00"', b'"\\ud83d\\ude00"', b'"\\ud83d\\ud83d\\ude00"',
    b'"\\uD83D\\uDE00"', b'"\\ud83dx"', b'"\\ud83d\\n"', b'"\\ude00\\ud83d"', b'"\\udbff\\udfff"', b'"\\uffff"', b'"\\uFEFF"',
    b'"\xc3\xa9"', b'"\xff"', b'"\xc0\x80"', b'"\xed\xa0\x80"', b'"\xf4\x90\x80\x80"', b'"\xe2\x82"', b'"\xf0\x9f\x98\x80"',
    b"\xef\xbb\xbf{}", b"\xfe\xff\x00{", b"[]", b"[", b"]", b"[]]", b"[,]", b"[1,]", b"[1 2]", b"[1,,2]", b"[[]", b"[1]x", b"[1]\x00",
    b"{}", b"{", b"}", b'{"a"}', b'{"a":}', b'{"a":1,}', b'{,}', b'{"a" 1}', b'{1:2}', b'{"a":1 "b":2}', b'{"a":1,"a":2}', b'{"a":1]',
    b'["a":1]', b'{"a":{"a":[{}]}}', b"/**/1", b"1//x", b"\x0b1", b"\x0c[]", b"\xc2\xa01", b"[1\r\n,\t2 ]", b'{"":0}', b'{"\\u0061":1,"a":2}',
    b"[" * 64 + b"]" * 64, b"[" * 65 + b"]" * 65, b"[" * 63 + b"{}" + b"]" * 63, b"[" * 64 + b"{}" + b"]" * 64, b'{"a":' * 64 + b"1" + b"}" * 64,
    b'{"a":' * 65 + b"1" + b"}" * 65, b"[" * 65, b"]" * 70, b'[{"a":[' * 22 + b"]}]" * 22]

LETTERS = ["a", " ", '"', "\\", "\n", "\t", "\0", "\x1f", "\x7f", "é", "▁", "😀", "\ufeff", "\u2028", "/", "u", "0", "\ud83d", "\udc00"]
SPACES = ["", "", "", " ", "\n", "\t \r"]
NUMBERS = ["0", "-0", "7", "-12", "1.5", "1e3", "2E-7", "123456789012345678901234567890", "0.000", "-1.25e+10", "1e400"]


def random_string(rng):
    out = ['"']
    for _ in range(rng.choice((0, 1, 1, 3, 8))):
        letter = rng.choice(LETTERS)
        raw = letter >= " " and letter not in '"\\' and not "\ud800" <= letter <= "\udfff" and rng.random() < 0.7
        if raw:
            out.append(letter)
        elif letter in '"\\/' and rng.random() < 0.8:
            out.append("\\" + letter)
        else:
            code = ord(letter)
            units = [code] if code < 0x10000 else [0xd800 + (code - 0x10000 >> 10), 0xdc00 + (code - 0x10000 & 0x3ff)]
            out.extend(rng.choice(("\\u%04x", "\\u%04X")) % unit for unit in units)
    return "".join(out) + '"'


def random_value(rng, depth):
    kind = rng.randrange(8 if depth < 6 else 6)
    pad = rng.choice(SPACES)
    if kind < 2:
        text = random_string(rng)
    elif kind < 4:
        text = rng.choice(NUMBERS)
    elif kind < 6:
        text = rng.choice(("true", "false", "null"))
    elif kind == 6:
        text = "[" + ",".join(random_value(rng, depth + 1) for _ in range(rng.randrange(5))) + pad + "]"
    else:
        text = "{" + ",".join(pad + random_string(rng) + pad + ":" + random_value(rng, depth + 1) for _ in range(rng.randrange(5))) + pad + "}"
    return pad + text + rng.choice(SPACES)


PARTS = [b'"', b"\\", b"\\u", b"\\ud83d", b"[", b"]", b"{", b"}", b",", b":", b"0", b"-", b".", b"e", b"E+", b"null", b"NaN", b"\x00", b"\xff",
         b"\xe2\x96", b" ", b"\n", b"[" * 62, b"]" * 62]


def mutated(rng, data):
    for _ in range(rng.choice((1, 1, 2, 4))):
        at, end = rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)
        what = rng.randrange(5)
        if what == 0:
            data = data[:at] + data[at + 1:]
        elif what == 1:
            data = data[:at] + rng.choice(PARTS) + data[at:]
        elif what == 2:
            data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1:]
        elif what == 3:
            data = data[:at]
        else:
            data = data[:at] + data[min(at, end):max(at, end)] + data[at:]
    return data


def texts():
    rng = random.Random(SEED)
    yield from TABLE
    for _ in range(TEXTS // 2):
        data = random_value(rng, 0).encode("utf-8")
        yield data
        yield mutated(rng, data)


# ---- both ----

def main():
    all_texts = list(texts())
    given = b"".join(struct.pack("<I", len(t)) + t for t in all_texts)
    done = subprocess.run([BUILD + "/tests/json_driver"], input=given, capture_output=True, check=False)
    lines = done.stdout.decode().split("\n")[:-1]
    if done.returncode or len(lines) != len(all_texts):
        sys.exit(f"json_driver: exit {done.returncode}, {len(lines)} lines for {len(all_texts)} texts: {done.stderr[-500:]}")
    n_accepted = 0
    for text, line in zip(all_texts, lines):
        want = expected(text)
        got = None if line.startswith("bad ") else line.split()
        n_accepted += got is not None
        if got != want:
            sys.exit(f"seed {SEED}: {text[:300]!r}\n  ours:   {line[:300]}\n  Python: {'bad' if want is None else ' '.join(want)[:300]}")
    if not len(all_texts) // 4 < n_accepted < len(all_texts) * 3 // 4:
        sys.exit(f"{n_accepted} of {len(all_texts)} texts were accepted: the mixture is no test")
    print(f"{len(all_texts)} texts, {n_accepted} accepted with the same events, {len(all_texts) - n_accepted} refused by both")


main()
