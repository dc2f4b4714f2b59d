#!/usr/bin/env python3
"""The pictures of the documents are what the tree gives today: the recording has the words that the command prints for its
seeds, the plots have the bytes that docs/speed.json gives, and every figure of the data names where it comes from."""
import importlib.machinery
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
from harness import BITNET, SOURCE, Skip, check, equal, main  # noqa: E402

sys.path.insert(0, os.path.join(SOURCE, "tools"))
import terminal  # noqa: E402

PICTURES = os.path.join(SOURCE, "docs", "pictures")
LARGEST = 200 * 1024


def tool(name):
    loader = importlib.machinery.SourceFileLoader(name, os.path.join(SOURCE, "tools", name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def pictures():
    return sorted(os.path.join(PICTURES, name) for name in os.listdir(PICTURES) if name.endswith(".svg"))


def without_speeds(rows):
    """What may differ from run to run; versions and blank lines at the end are no words of the command either."""
    rows = [re.sub(r"[\d,.]+ (tok/s|ms|s)\b", r"N \1", re.sub(r"bitnet \d+\.\d+\.\d+", "bitnet N", row)) for row in rows]
    while rows and not rows[-1]:
        rows.pop()
    return rows


# ---- the recording ----

def test_recordings_are_what_is_printed_today():
    if os.environ.get("BITNET_GOLDEN_QUICK"):
        raise Skip("the release build records")
    if not os.path.exists(BITNET):
        raise Skip(f"there is no {BITNET}")
    scripts = [name for name in sorted(os.listdir(PICTURES)) if name.endswith(".keys")]
    check(scripts, "no recordings found")
    for name in scripts:
        shown = terminal.text_of(read(os.path.join(PICTURES, name[:-5] + ".svg")))
        done = subprocess.run([os.path.join(SOURCE, "tools/record_terminal"), "--text", os.path.join(PICTURES, name)],
                              capture_output=True, text=True, check=False, timeout=240, env={**os.environ, "BITNET": BITNET})
        equal(done.returncode, 0, done.stderr)
        now, then = without_speeds(done.stdout.splitlines()), without_speeds(shown)
        for i, (a, b) in enumerate(zip(now, then)):
            equal(b, a, f"{name}, line {i + 1}: the picture is old: tools/record_terminal docs/pictures/{name}")
        equal(len(then), len(now), f"{name}: lines in the picture")


def test_a_recording_that_drifted_is_found():
    picture = read(os.path.join(PICTURES, "first.svg"))
    rows = terminal.text_of(picture)
    equal(terminal.text_of(picture.replace(">Jordan<", ">Gordon<", 1)) == rows, False, "another name")
    check(without_speeds(["[2 tokens, 1,034 tok/s, seed 3]"]) == without_speeds(["[2 tokens, 55.3 tok/s, seed 3]"]), "speeds")
    check(without_speeds(["[2 tokens, seed 3]"]) != without_speeds(["[2 tokens, seed 4]"]), "seeds")


def test_scripts_that_cannot_be_played():
    with tempfile.TemporaryDirectory() as folder:
        for text, says in (("fly away", "there is no step 'fly'"), ("size 40 3\ntype seq 9\nuntil ^\\$$", "scrolled out")):
            path = os.path.join(folder, "x.keys")
            with open(path, "w", encoding="utf-8") as f:
                f.write(text + "\n")
            done = subprocess.run([os.path.join(SOURCE, "tools/record_terminal"), path], capture_output=True, text=True,
                                  check=False, timeout=120, env={**os.environ, "BITNET": BITNET})
            check(done.returncode == 1 and says in done.stderr, f"{text}: {done.returncode} {done.stderr}")
            equal(os.listdir(folder), ["x.keys"], "files")


def screen_after(data, columns=10, rows=4, parts=None):
    screen = terminal.Screen(columns, rows)
    for piece in parts or [data]:
        screen.feed(piece)
    return screen


def test_the_terminal():
    for data, want in (("ab\r\ncd", ["ab", "cd", "", ""]), ("0123456789x", ["0123456789", "x", "", ""]),
                       ("0123456789\r\nx", ["0123456789", "x", "", ""]), ("abc\b\bX", ["aXc", "", "", ""]),
                       ("abc\r\x1b[Kd", ["d", "", "", ""]), ("abc\x1b[2D\x1b[Pd", ["ad", "", "", ""]),
                       ("1\r\n2\r\n3\r\n4\r\n5", ["2", "3", "4", "5"]), ("\x1b[3;4Hx", ["", "", "   x", ""]),
                       ("ab\x1b[2Jc", ["  c", "", "", ""]), ("\x1b]0;title\x07a\x1b[?2004h", ["a", "", "", ""]),
                       ("a\x1b[1@b", ["ab", "", "", ""]), ("\u65e5x", ["\u65e5x", "", "", ""])):
        equal(screen_after(data).text(), want, repr(data))
        equal(screen_after(None, parts=list(data)).text(), want, f"{data!r} byte by byte")
    screen = screen_after("\x1b[6n\x1b[1;31mr\x1b[0mp\x1b[38;5;196mq\x1b[7mi")
    equal(screen.answers, ["\x1b[1;1R"], "where the cursor is")
    styles = [cell[1] for cell in screen.rows[0][:4]]
    equal(styles, [(terminal.COLOURS[1], None, "b"), terminal.PLAIN, ("#ff0000", None, ""), ("#ff0000", None, "r")], "styles")
    equal(terminal.text_of(terminal.svg(screen, "t", "w")), ["rpqi"], "the picture has the words")


# ---- the plots ----

def test_plots_are_what_the_data_gives():
    plot = os.path.join(SOURCE, "tools/plot_speed")
    done = subprocess.run([plot, "--check"], capture_output=True, text=True, check=False)
    equal(done.returncode, 0, done.stdout)
    with tempfile.TemporaryDirectory() as folder:
        data = json.loads(read(os.path.join(SOURCE, "docs/speed.json")))
        data["pictures"][0]["panels"][0]["rows"][0]["bitnet"] = [24.4]
        changed = os.path.join(folder, "speed.json")
        with open(changed, "w", encoding="utf-8") as f:
            json.dump(data, f)
        done = subprocess.run([plot, "--check", "--data", changed], capture_output=True, text=True, check=False)
        check(done.returncode == 1 and "speed-cpu.svg: not what the data gives" in done.stdout, f"a figure changed: {done.stdout}")


def test_every_figure_names_its_source():
    data = json.loads(read(os.path.join(SOURCE, "docs/speed.json")))
    for name, run in data["runs"].items():
        check(run["version"] and re.fullmatch(r"\d{4}-\d\d-\d\d", run["date"]), f"{name}: {run}")
    n = 0
    for panel in (p for picture in data["pictures"] for p in picture["panels"]):
        check(panel["command"].startswith("bitnet bench --synthetic "), panel)
        for row in panel["rows"]:
            for name in data["runs"]:
                values = row[name]
                check(1 <= len(values) <= 2 and values == sorted(values) and values[0] > 0, f"{panel['title']}: {row}")
                n += 1
    check(n >= 30, f"{n} figures")


def test_pictures_are_fit_for_a_page():
    """Small, whole, without scripts or anything from elsewhere, and with words for who cannot see them."""
    for path in pictures():
        text, name = read(path), os.path.basename(path)
        check(len(text.encode()) < LARGEST, f"{name}: {len(text)} bytes")
        root = xml.etree.ElementTree.fromstring(text)
        space = "{http://www.w3.org/2000/svg}"
        equal(root.get("role"), "img", f"{name}: role")
        for part in ("title", "desc"):
            check((root.find(space + part).text or "").strip(), f"{name}: no {part}")
        check(not re.search(r"<script|<image|<foreignObject|@import|url\(|\son\w+=|href", text), f"{name}: not on its own")
        check(not re.search(r"/(home|root|tmp)/", text), f"{name}: a path of somebody's machine")
    check(len(pictures()) >= 3, pictures())


main(globals())
