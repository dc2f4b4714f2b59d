#!/usr/bin/env python3
"""The line that says how far long work has come, on a pseudo-terminal: when it appears, what it says, that it is gone before
anything else is printed, and that nobody else sees it."""
import os
import re

import terminal_of_pty
from harness import BITNET, QUICK, Skip, check, clean_env, equal, main, model, run, shared, temp, write
from terminal_of_pty import drawn, percents, rises, shown, text_of

LONG = "Once upon a time there was a little fox who lived in the wood. " * 400


def on_terminal(*args, env=None, **kw):
    return terminal_of_pty.run([BITNET, *args], clean_env({"TERM": "xterm", **(env or {})}), **kw)


def endless(**kw):
    """Something that takes longer than anybody waits; Ctrl-C ends it."""
    path = write("endless.txt", (LONG + "\n") * 40)
    return on_terminal("score", "-m", model("nano"), "--threads", "1", "--stride", "16", "--file", path, **kw)


def test_appears_after_a_second():
    code, pieces = endless(seconds=2.5)
    equal(code, 130, "exit code")
    first = next((t for t, text in pieces if "scoring" in text), None)
    check(first is not None and first >= 1.0, f"first drawn after {first} s")
    if not QUICK:
        check(first < 6, f"first drawn after {first} s")  # a busy machine may be late
    lines = drawn(text_of(pieces))
    check(all(re.fullmatch(r"scoring: (\d+ %, )?.*\d+:\d\d( left)?", line) for line in lines), f"{lines[:5]}")
    check(any(re.fullmatch(r"scoring: \d+ %, .*\d+:\d\d left", line) for line in lines), f"percent and time left: {lines[:5]}")
    rises(lines)
    check(len(set(lines)) > 3, f"it moves: {lines}")
    times = [t for t, text in pieces if "scoring" in text]
    check(len(times) <= 12 * (times[-1] - times[0]) + 2, f"{len(times)} times in {times[-1] - times[0]:.1f} s")
    equal(shown(text_of(pieces)).strip(), "", "it is gone")


def test_nobody_else_sees_it():
    path = write("short.txt", LONG[:4000])
    args = ("score", "-m", model("nano"), "--progress-delay", "0", "--file", path)
    want = run(*args)
    check(b"\r" not in want.err_raw and b"\x1b" not in want.err_raw and "scoring" not in want.err, f"piped: {want.err!r}")
    check("scoring" in text_of(on_terminal(*args)[1]), "shown on a terminal")
    for more, env in ((("--quiet",), {}), (("--log-format", "json"), {}), ((), {"TERM": "dumb"}), ((), {"TERM": ""}),
                      ((), {"BITNET_LOG_FORMAT": "json"})):
        text = text_of(on_terminal(*args, *more, env=env)[1])
        check("\r" not in text and "scoring" not in text, f"{more} {env}: {text[:200]!r}")
    with open(temp("out.txt"), "wb") as f:
        code, pieces = on_terminal(*args, stdout=f)
    equal(code, 0, "exit code")
    with open(temp("out.txt"), "rb") as f:
        equal(f.read(), want.raw, "what is piped has nothing of it")
    check("scoring" in text_of(pieces), "shown while the output goes elsewhere")


def test_loading_and_prompt():
    args = ("run", "-m", model("story"), "-p", LONG[:800], "-n", "12", "--seed", "1", "--no-wrap")
    for more in ((), ("--echo",), ("--no-stream",), ("--json",), ("--strict",)):
        want = run(*args, *more)
        code, pieces = on_terminal(*args, *more, "--progress-delay", "0", "-b", "64")
        text = text_of(pieces)
        equal(code, 0, f"{more}: exit code")
        lines = drawn(text)
        check(any(line.startswith("loading story.gguf:") for line in lines), f"{more}: loading: {lines}")
        check(any(line.startswith("reading the prompt:") for line in lines), f"{more}: the prompt: {lines}")
        seen = shown(text)
        check("loading" not in seen and "reading" not in seen and "writing" not in seen, f"{more}: gone: {seen[:200]!r}")
        if "--json" not in more:
            check(seen.startswith(want.out.rstrip("\n")), f"{more}: the text is untouched: {seen[:80]!r} {want.out[:80]!r}")
        start = text.index(want.out[:20] if "--json" not in more else '{"prompt"')
        check("\r" not in text[start:], f"{more}: nothing is drawn once the text began: {text[start:start + 300]!r}")


def test_prompt_figures():
    """Tokens done and in all, their rate, the time left; also within a pass."""
    args = ("run", "-m", model("story"), "-p", LONG[:4000], "-n", "1", "--threads", "1", "-b", "1024", "--progress-delay", "0.05")
    code, pieces = on_terminal(*args)
    equal(code, 0, "exit code")
    lines = [x for x in drawn(text_of(pieces)) if x.startswith("reading")]
    form = r"reading the prompt: (\d+ %, )?[\d,]+ (of [\d,]+ )?tokens?, ([\d.,]+ tok/s, )?\d+:\d\d( left)?"
    check(lines and all(re.fullmatch(form, x) for x in lines), f"{lines}")
    check(any(re.search(r"\d %, [\d,]+ of [\d,]+ tokens, [\d.,]+ tok/s, \d:\d\d left", x) for x in lines), f"{lines}")
    check(any(0 < p < 100 for p in percents(lines)), f"within one pass: {percents(lines)}")
    rises(lines)


def test_fits_the_terminal():
    name = "a-model-with-a-very-long-name-" * 4 + "äöü-日本語" + ".gguf"
    path = temp(name)
    os.link(model("nano"), path) if not os.path.exists(path) else None
    text = write("short.txt", LONG[:10000])
    for columns in (20, 24, 40, 80, 132):
        pieces = on_terminal("score", "-m", path, "--progress-delay", "0", "--file", text, columns=columns)[1]
        lines = drawn(text_of(pieces))
        check(lines, f"{columns}: nothing was drawn")
        wide = [x for x in lines if sum(2 if ord(c) >= 0x1100 else 1 for c in x) > columns - 1]
        check(not wide, f"{columns} columns: {wide[:2]}")
    check(not drawn(text_of(on_terminal("score", "-m", path, "--progress-delay", "0", "--file", text, columns=12)[1])),
          "too narrow for anything")


def test_messages_come_on_lines_of_their_own():
    code, pieces = on_terminal("run", "-m", model("nano"), "-c", "512", "-v", "--progress-delay", "0", "-p", "Once", "-n", "4")
    seen = shown(text_of(pieces))
    equal(code, 0, "exit code")
    for line in seen.splitlines():
        check("loading" not in line, f"{line!r}")
    check(re.search(r"^bitnet: warning: session: --ctx", seen, re.M) and re.search(r"^bitnet: info: load:", seen, re.M), f"{seen}")
    code, pieces = on_terminal("run", "-m", "/nowhere.gguf", "--progress-delay", "0", "-p", "Once")
    seen = shown(text_of(pieces))
    check(code == 5 and re.match(r"bitnet: /nowhere.gguf", seen) and "loading" not in seen, f"{code} {seen!r}")


RATES = {"validating:": r"[\d.]+ % a second", "measuring with": r"(pp16|tg8), [\d,.]+ tok/s"}


def test_other_commands():
    try:
        checkpoint = shared("story-model", "nano")
    except Skip:
        checkpoint = None
    rows = [(("validate", "--quick", "--kernels-only"), "validating:"),
            (("bench", "-m", model("nano"), "--tests", "pp16,tg8", "-r", "3", "--no-limits"), "measuring with"),
            (("bench", "--synthetic", "mini-128", "--tests", "tg8", "-r", "2", "--no-limits"), "making the model mini-128:"),
            (("bench", "-m", model("nano"), "--crowded", "--threads", "1", "-r", "1", "--no-limits"), "measuring:"),
            (("tune", "-m", model("nano"), "--tokens", "1"), "timing kernels:"),
            (("inspect", model("nano")), "reading nano.gguf:")]
    if QUICK:  # minutes with a sanitizer
        rows = rows[3:]
    if checkpoint:
        rows.append((("convert", checkpoint, temp("c.gguf")), "writing c.gguf:"))
    for args, says in rows:
        code, pieces = on_terminal(*args, "--progress-delay", "0")
        text = text_of(pieces)
        equal(code, 0, f"{args}")
        lines = [x for x in drawn(text) if x.startswith(says)]
        check(lines, f"{args}: {drawn(text)[:5]}")
        rises(lines)
        if says in RATES and len(lines) > 5:  # of a few lines none may have a run behind it
            check(any(re.search(RATES[says], x) for x in lines), f"{args}: no rate in {lines[-1]!r}")
        check(says not in shown(text), f"{args}: gone")
        if says not in RATES:  # those that take long draw by the same calls
            check("\r" not in run(*args).err, f"{args}: piped")


def test_ctrl_c_wipes_it():
    """In the middle of a pass too: the prompt is one."""
    args = ("run", "-m", model("story"), "--threads", "1", "-c", "2048", "--no-warnings", "-b", "2048", "-p", LONG[:8000])
    code, pieces = on_terminal(*args, "--progress-delay", "0", stop=" tokens, ")  # loading has none
    equal(code, 130, "exit code")
    seen = shown(text_of(pieces))
    check(re.fullmatch(r"\[0 tokens, stopped by Ctrl-C\]\s*", seen), f"{seen!r}")


if __name__ == "__main__":
    main(globals())
