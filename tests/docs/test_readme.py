#!/usr/bin/env python3
"""What README.md shows is what happens: its story is told by its seed, its questions are asked and get its answers, its
figures are those of the data or of the pages it points to."""
import json
import os
import re
import shlex
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
from harness import SOURCE, check, equal, expect, main, model  # noqa: E402


def read(path):
    with open(os.path.join(SOURCE, path), encoding="utf-8") as f:
        return f.read()


def section(title):
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", read("README.md"), re.M | re.S)
    check(found, f"README.md has no section '{title}'")
    return found.group(1)


def same(shown, said, what):
    """A text that ends in dots is shown in part."""
    if shown.endswith(" ..."):
        said = said[:len(shown) - 4] + " ..."
    equal(said, shown, what)


# ---- what the model says ----

def test_the_story():
    """Its seed tells it, in as many tokens."""
    page = section("Two commands")
    story = re.search(r"^(Once upon a time.*) \.\.\.$", page, re.M).group(1)
    tokens, seed = re.search(r"^\[(\d+) tokens, \.\.\. tok/s, seed (\d+), ended by itself\]$", page, re.M).groups()
    r = expect(0, "run", "--model", model("story"), "--echo", "--seed", seed, "Once upon a time")
    check(r.out.startswith(story), r.out[:200])
    check(re.fullmatch(rf"\[{tokens} tokens, [\d,.]+ tok/s, seed {seed}, ended by itself\]\n", r.err), r.err)
    check(f"--seed {seed}" in page, "the line that tells it again")


def conversations():
    """(options of chat, [(question, reply)]) of every block that is marked as a conversation."""
    for options, block in re.findall(r"<!-- chat (.*?) -->\n```\n(.*?)```", read("README.md"), re.S):
        turns = re.findall(r"^you> (.*)\nassistant> (.*)$", block, re.M)
        equal(2 * len(turns), len(block.splitlines()), "every line is a question or a reply")
        yield shlex.split(options), turns


def test_the_questions_are_asked():
    n = 0
    for options, turns in conversations():
        asked = "".join(question + "\n" for question, _ in turns)
        r = expect(0, "chat", "--model", model("story"), *options, "--json", stdin=asked.encode())
        replies = [json.loads(line) for line in r.out.splitlines()]
        equal(len(replies), len(turns), "replies")
        for (question, shown), reply in zip(turns, replies):
            same(shown, reply["text"].strip(), question)
            equal(reply["finish_reason"], "eos", f"{question}: how it ends")
            n += 1
    check(n >= 4, f"only {n} questions")


# ---- figures ----

UNITS = r"(?:tokens/s|tok/s|ms|us|[MGT]B|[GT]B/s|Gop/s|%)"


def strange_figures(text, sources):
    """Figures with a unit, or counted as `times`, that no source has."""
    text = re.sub(r"`[^`]*`", "", text)
    found = re.findall(rf"(\d[\d,.]*\d|\d)(?= {UNITS}(?![\w/]))", text)
    found += re.findall(r"(\d[\d,.]*\d|\d) (?:and|to) \d[\d.,]* times", text)
    found += [m for pair in re.findall(rf"(\d[\d,.]*\d|\d) {UNITS} instead of (\d[\d,.]*)", text) for m in pair]
    return [f for f in found if not re.search(rf"(?<![\d.,]){re.escape(f.rstrip('.,'))}(?![\d])", sources)]


def middle(values):
    return sum(values) / len(values)


def ratios():
    data = json.loads(read("docs/speed.json"))
    ours, theirs = data["runs"]
    for picture in data["pictures"]:
        for panel in picture["panels"]:
            yield from (middle(row[ours]) / middle(row[theirs]) for row in panel["rows"])


def test_figures_of_speed():
    page = " ".join(section("How fast it is").split())
    low, high = re.search(r"between ([\d.]+) and ([\d.]+) times as fast", page).groups()
    equal((low, high), (f"{min(ratios()):.1f}".removesuffix(".0"), f"{max(ratios()):.1f}".removesuffix(".0")), "least and most")
    sources = read("docs/speed.json") + read("docs/SPEED.md")
    page = page.replace(f"between {low} and {high} times", "")
    equal(strange_figures(page, sources), [], "figures that neither docs/speed.json nor docs/SPEED.md has")
    equal(strange_figures("790 MB, 12.4 ms instead of 149 ms, 77.7 tok/s `1 ms`", sources), ["77.7"], "the check itself")
    for picture in json.loads(read("docs/speed.json"))["pictures"]:
        check(f"](docs/pictures/{picture['file']})" in page, f"{picture['file']} is not shown")


def test_the_size_of_the_model():
    millions, megabytes = map(int, re.search(r"\((\d+) million weights, (\d+) MB\)", read("README.md")).groups())
    size = os.path.getsize(model("story"))
    equal(megabytes, round(size / 1e6), "MB")
    weights = int(re.search(r"(\d+) weights", expect(0, "inspect", model("story")).out.replace(",", "")).group(1))
    equal(millions, round(weights / 1e6), "millions of weights")


# ---- its form ----

def test_the_opening():
    """A title, three lines, a picture."""
    lines = read("README.md").splitlines()
    equal((lines[0], lines[1], lines[5]), ("# bitnet", "", ""), "title and three lines")
    check(all(lines[2:5]) and lines[6].startswith("![") and lines[6].endswith("](docs/pictures/first.svg)"), lines[2:7])


main(globals())
