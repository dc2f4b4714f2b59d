#!/usr/bin/env python3
"""Text out of model files and names of files on a terminal: what would command it is shown, not obeyed. Where standard output
is no terminal, model text comes byte for byte."""
import os
import re
import shutil
import struct

import terminal_of_pty
from harness import BITNET, check, clean_env, equal, expect, main, model, run, temp
from terminal_of_pty import text_of

ESCAPE, C1, TURNED = "\x1b[31mX", "\u009b31mX", "\u202etxt"
# what our own program writes to draw
DRAWN = re.compile(r"\r|\x1b\[K|\x1b\[[02]m|\x1b\[\?2004[hl]|\x1b\[J")


def changed(copy, changes):
    """The story model with strings of its header replaced, each by one of as many bytes."""
    path = temp(copy)
    with open(model("story"), "rb") as f:
        data = f.read()
    for old, new in changes:
        equal(len(old), len(new), "length")
        counted = struct.pack("<Q", len(old))
        equal(data.count(counted + old), 1, f"{old} is there once")
        data = data.replace(counted + old, counted + new)
    with open(path, "wb") as f:
        f.write(data)
    return path


def on_terminal(*args):
    code, pieces = terminal_of_pty.run([BITNET, *args], clean_env({"TERM": "xterm"}))
    return code, text_of(pieces)


def nothing_obeyed(text, what):
    left = DRAWN.sub("", text).replace("\n", "").replace("\t", "")
    bad = [c for c in left if ord(c) < 32 or 0x7f <= ord(c) <= 0x9f or c in "\u061c\u200e\u200f\u2028\u2029" or
           0x202a <= ord(c) <= 0x202e or 0x2066 <= ord(c) <= 0x2069]
    equal(bad, [], f"{what}: controls in {text!r}")


def test_model_text():
    """The token " there" is an escape sequence now: the byte 0x1b is written as the character U+011B in such vocabularies."""
    path = changed("escape.gguf", [(b"\xc4\xa0there", "\u011b[31mX".encode())])
    say = ["-m", path, "-t", "1", "-n", "8", "--greedy", "--device", "cpu"]
    for more in ([], ["--no-wrap"]):
        code, text = on_terminal("run", *say, *more, "Once upon a time")
        equal(code, 0, text)
        check("\\x1b[31mX" in text, repr(text))
        nothing_obeyed(text, f"run {more}")
    r = expect(0, "run", *say, "--quiet", "Once upon a time")
    check(ESCAPE in r.out, repr(r.out))  # raw where it is no terminal
    code, text = on_terminal("tokenize", "-m", path, "--ids", "215 249")
    check(code == 0 and "\\x1b" in text, repr(text))
    nothing_obeyed(text, "tokenize")


def test_listings_and_json():
    """A key with an escape, a tensor name with a C1 control and one that turns the text around."""
    path = changed("names.gguf", [(b"general.name", b"gen\x1b[31mX.na"),
                                  (b"blk.0.attn_norm.weight", "blk.0.att\u009b31mX.weight".encode()),
                                  (b"blk.0.ffn_norm.weight", "blk.0.ff\u202etxt.weight".encode())])
    for args in (["inspect", path], ["inspect", path, "--json"], ["run", path, "-p", "x"], ["inspect", path, "--log-level", "debug"]):
        _, text = on_terminal(*args)
        nothing_obeyed(text, args)
    r = expect(0, "inspect", path)  # a listing is for people wherever it goes
    for shown in ("gen\\x1b[31mX.na", "blk.0.att\\u009b31mX.weight", "blk.0.ff\\u202etxt.weight"):
        check(shown in r.out, f"{shown} in {r.out[:3000]}")
    names = [t["name"] for t in expect(0, "inspect", path, "--json").json()["tensors"]]
    check("blk.0.att" + C1 + ".weight" in names and "blk.0.ff" + TURNED + ".weight" in names, names[:8])


def test_errors():
    """A model that lacks its norm names another tensor in vain; files with hostile names that are no models."""
    bad = os.path.join(os.path.dirname(temp("x")), "m\x1b]0;title\x07" + C1 + TURNED + ".gguf")
    shutil.copy(__file__, bad)
    for command in ("run", "inspect", "chat"):
        r = run(command, bad, stdin=b"")
        check(r.code != 0 and "\\x1b]0;title\\x07\\u009b31mX\\u202etxt.gguf" in r.err, f"{command}: {r.err!r}")
        nothing_obeyed(r.err, command)


if __name__ == "__main__":
    main(globals())
