#!/usr/bin/env python3
"""The first hour, part two: what people type who come from llama.cpp, ollama or llamafile, and what they get wrong with files.
Each line works, or one line on the screen names what to do instead. Exit code 77: there is no tmux."""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from terminal_of_tmux import SOURCE, Terminal, why_not  # noqa: E402

sys.path.insert(0, os.path.join(SOURCE, "tests", "cli"))
from harness import SHARED, check, main  # noqa: E402

STORY = r"ended by itself\]$"
CUT = r"^\[[1-8] tokens?, .*\]$"  # a text may end before it is cut
YOU = r"you(?: \(\d+%\))?>"
ONCE = '"Once upon a time"'

# ---- what works ----
WORKS = [
    (f"bitnet run models/story.gguf {ONCE}", STORY),
    (f"bitnet -m models/story.gguf -p {ONCE}", STORY),
    (f"bitnet models/story.gguf -p {ONCE}", STORY),
    (f"bitnet -m models/story.gguf -p {ONCE} -n 8 -c 512 -t 2 -s 1 --temp 0.8", CUT),
    (f"bitnet run models/story.gguf -n -1 -s -1 {ONCE}", STORY),
    ("echo 'What is 7 + 5?' | bitnet models/story.gguf", r"^[\w(].*\b12\b"),
    ("bitnet run -n 8 -- models/story.gguf", CUT),
    ("bitnet run -n 8 -p models/story.gguf", CUT),
    ("bitnet run models/story.gguf -n 8", r"(?s)^\[no prompt: .*; bitnet chat talks with it\]$.*" + CUT),
    (f"bitnet run -n 8 -ngl 0 {ONCE}", CUT),
    (f"bitnet run -n 8 -ngl 99 {ONCE}", CUT),
    (f"bitnet run -n 8 --color {ONCE}", r"(?s)--color is ignored: .*" + CUT),
    (f"bitnet run -n 8 --mlock {ONCE}", r"(?s)--mlock is ignored: .*" + CUT),
    (f"bitnet run -n 8 --no-mmap {ONCE}", r"(?s)--no-mmap is ignored: .*" + CUT),
    (f"bitnet run -n 8 -fa {ONCE}", r"(?s)-fa is ignored: .*" + CUT),
    (f"bitnet run -n 8 -fa on {ONCE}", r"(?s)-fa is ignored: .*" + CUT),
]
# ---- what is told, and no story begins ----
TOLD = [
    ("bitnet run missing.gguf hello", r"missing\.gguf: cannot open: No such file"),
    ("bitnet missing.gguf", r"missing\.gguf: cannot open: No such file"),
    ("bitnet chat missing.gguf", r"missing\.gguf: cannot open: No such file"),
    (f"bitnet run -p {ONCE} -p again", r"--prompt is given twice"),
    (f"bitnet run -cnv {ONCE}", r"-cnv.*use bitnet chat"),
    (f"bitnet run -i {ONCE}", r"-i.*use bitnet chat"),
    ("bitnet run -hf microsoft/bitnet-b1.58-2B-4T-gguf", r"-hf .*never uses the network.*bitnet run FILE\.gguf"),
    ("bitnet pull llama3", r"never uses the network"),
    ("bitnet list", r"bitnet inspect FILE\.gguf"),
    ("bitnet start", r"use bitnet serve"),
    ("bitnet run checkpoint hello", r"bitnet convert"),
    ("bitnet run pointer.gguf hello", r"pointer\.gguf.*git-lfs pointer.*git lfs pull"),
    ("bitnet run page.gguf hello", r"page\.gguf.*HTML page.*download"),
    ("bitnet run half.gguf hello", r"half\.gguf.*(download|cut|end)"),
    ("bitnet run --receipt nowhere/r.json hello", r"nowhere/r\.json"),
    ("bitnet convert checkpoint nowhere/out.gguf", r"nowhere"),
    ("bitnet rnu hello", r"did you mean run"),
]
# ---- what begins a conversation ----
TALKS = ["bitnet models/story.gguf", "bitnet chat models/story.gguf", "bitnet -m models/story.gguf -cnv",
         "bitnet chat -m models/story.gguf -i --color"]


def prepare(folder):
    """Files that were not downloaded rightly, and a checkpoint."""
    with open(os.path.join(SOURCE, "models", "nano.gguf"), "rb") as f:
        whole = f.read()
    files = {"half.gguf": whole[:len(whole) // 2], "page.gguf": b"<!DOCTYPE html><html><head><title>Sign in</title></head></html>",
             "pointer.gguf": b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 1187801280\n"}
    for name, data in files.items():
        with open(os.path.join(folder, name), "wb") as f:
            f.write(data)
    checkpoint = os.path.join(SHARED, "story-model", "nano")
    if os.path.isdir(checkpoint):
        os.symlink(checkpoint, os.path.join(folder, "checkpoint"))


def said(t, line, wanted):
    seen = t.shell(line)
    check(re.search(wanted, seen, re.M), f"'{line}' shows no /{wanted}/:\n{seen[-1000:]}")
    return seen


def in_terminal(function):
    t = Terminal()
    try:
        prepare(t.folder)
        function(t)
    finally:
        t.close()


def test_habits_that_work():
    in_terminal(lambda t: [said(t, *row) for row in WORKS])


def told(t, line, wanted):
    if "checkpoint" in line and not os.path.exists(os.path.join(t.folder, "checkpoint")):
        return
    seen = said(t, line, wanted)
    lines = [x for x in seen.splitlines() if x]
    check(len(lines) <= 2 and lines[0].startswith("bitnet: "), f"'{line}': more than a line or two:\n{seen}")
    check("tok/s" not in seen, f"'{line}' works all the same:\n{seen}")


def test_habits_that_are_told():
    def all_of_them(t):
        for row in TOLD:
            told(t, *row)
        t.fresh()
        for line, _ in TOLD[:8]:
            t.turn(line, r"\$")
        t.picture("habits-told")
    in_terminal(all_of_them)


def test_habits_that_begin_a_conversation():
    def all_of_them(t):
        for line in TALKS:
            t.fresh()
            t.type(line)
            t.wait(f"^{YOU}$", where=t.last)
            said = t.turn("What is the capital of France?", YOU)
            check(re.search(r"^assistant> .*Paris", said, re.M), said)
            t.keys("C-d")
            t.wait(r"^\$$", where=t.last)
    in_terminal(all_of_them)


if __name__ == "__main__":
    if why_not():
        print(f"skipped: {why_not()}")
        sys.exit(77)
    main(globals())
