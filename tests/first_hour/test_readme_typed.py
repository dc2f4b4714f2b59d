#!/usr/bin/env python3
"""The first hour, part one: everything README.md tells to type is typed at a terminal, in its order, by somebody who knows
nothing else, and what the page promises is seen. Exit code 77: there is no tmux."""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from terminal_of_tmux import BITNET, SOURCE, Terminal, why_not  # noqa: E402

sys.path.insert(0, os.path.join(SOURCE, "tests", "cli"))
from harness import SHARED, Skip, check, main  # noqa: E402

STORY = r"\[\d+ tokens, [\d,.]+ tok/s, seed \d+, ended by itself\]"
# what is typed -> what is seen then
SEEN = {
    "make run": r"(?s)^Once upon a time.*" + STORY,
    'make run RUN_ARGS="--echo --seed 23"': r"(?s)a young boy named Jordan.*\n\[141 tokens, .* seed 23, ended by itself\]",
    'make run PROMPT="The little fox"': r"(?s)^The little fox.*" + STORY,
    "make help": r"make run +tell a story",
    'bitnet run --greedy -n 40 "The little fox"': r"(?s)\[40 tokens, .*cut",
    'bitnet run --json --seed 1 "Once upon a time"': r'"finish_reason": ?"eos"',
    'bitnet tokenize "Hello, world"': r"\d+ tokens",
    'echo "The fox ran home." | bitnet score': r"perplexity [\d.]+",
    "bitnet inspect models/story.gguf": r"(?s)bits per weight.*token_embd\.weight",
    "bitnet devices": r"(?i)cpu",
    "bitnet validate --quick": r"result: success",
    "bitnet bench --tests pp128,tg64": r"tg64 +\d",
    "bitnet help run": r"Usage: bitnet run",
    "bitnet list-templates": r"llama3",
    "bitnet convert bitnet-b1.58-2B-4T 2b4t.gguf": r"2b4t\.gguf: 24 tensors",
    "bitnet convert bitnet-b1.58-2B-4T 2b4t.gguf --embedding q6_k": r"2b4t\.gguf: 24 tensors",
    "bitnet convert model.bin out.gguf --tokenizer tokenizer.bin --type f32 --embedding f32": r"out\.gguf: 47 tensors",
}
# what is typed -> what is answered to "Hello!", in a conversation that /exit ends
TALKED = ("bitnet chat", "bitnet chat --seed 3", "bitnet 2b4t.gguf")
# what is typed -> the test that types it, where that needs hours, another machine or this very test
ELSEWHERE = {
    """bitnet run --json-schema '{"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}' "The fox\"""":
        "tests/cli/test_form.py",
    "make test": "tests/first_hour/test_readme_typed.py",
    "make test T=interop": "tests/docs/test_interop.py",
    "make install": "tests/abi/test_abi.py",
    "make install PREFIX=$HOME/.local": "tests/abi/test_abi.py",
    "make test-gpu": "tools/gpu_check.sh",
    "bitnet serve": "tests/server/test_serve.py",
    "bitnet bench": "tests/cli/test_bench.py",
    "bitnet bench --synthetic 2b-4t --profile": "tests/cli/test_bench.py",
    "bitnet bench --device cuda --profile": "tools/gpu_check.sh",
}


def typed():
    """Commands of the page in order: lines of blocks, and code between words; those with placeholders are no commands."""
    with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as f:
        page = re.sub(r"```c\n.*?```", "", f.read(), flags=re.S)
    page = re.sub(r"<!-- interop -->.*?<!-- end of interop -->", "", page, flags=re.S)
    for block, inline in re.findall(r"^```\n(.*?)^```$|(?<!`)`([^`]+)`(?!`)", page, re.M | re.S):
        for line in (block or " ".join(inline.split())).splitlines():
            line = re.split(r"\s+#\s", line)[0].strip()
            if re.match(r"(echo .* )?(make|bitnet) [a-z0-9./]", line) and not re.search(r"\.\.\.|FILE|FOLDER", line):
                yield line


def prepare(folder):
    """What a reader would have: a checkpoint and a llama2.c model, downloaded."""
    third = os.path.join(SHARED, "third-party")
    for name, target in (("bitnet-b1.58-2B-4T", os.path.join(SHARED, "story-model", "nano")),
                         ("model.bin", os.path.join(third, "stories260K.bin")), ("tokenizer.bin", os.path.join(third, "tok512.bin"))):
        if not os.path.exists(target):
            raise Skip(f"no reference data {target}")
        os.symlink(target, os.path.join(folder, name))


def type_one(t, line):
    if line in ELSEWHERE:
        check(os.path.exists(os.path.join(SOURCE, ELSEWHERE[line])), f"{line}: there is no {ELSEWHERE[line]}")
        return
    if line in TALKED:
        t.fresh()
        t.type(line)
        t.wait("^you>$", where=t.last)
        said = t.turn("Hello!", r"you(?: \(\d+%\))?>")
        check(re.search(r"^assistant> \S", said, re.M), said)
        t.type("/exit")
        t.wait(r"^\$$", where=t.last)
        return
    check(line in SEEN, f"README.md tells to type '{line}' and no test does; if it cannot be typed here, say where it is")
    if line.startswith("make"):
        if BITNET != os.path.join(SOURCE, "build", "release", "bitnet"):
            return  # make builds and runs another command than the one under test
        line = f"(cd '{SOURCE}' && {line})"
        said = t.shell(line, 300)
    else:
        said = t.shell(line)
    wanted = SEEN[line] if line in SEEN else SEEN[line.split(" && ", 1)[1][:-1]]
    check(re.search(wanted, said, re.M), f"'{line}' shows no /{wanted}/:\n{said[-1500:]}")


def test_everything_is_typed():
    lines = list(dict.fromkeys(typed()))
    missing = [line for line in [*SEEN, *TALKED, *ELSEWHERE] if line not in lines]
    check(not missing, f"the page no longer has {missing}")
    t = Terminal()
    try:
        prepare(t.folder)
        for line in lines:
            type_one(t, line)
            if line in ("make run", "bitnet chat --seed 3", "bitnet inspect models/story.gguf", "bitnet help run"):
                t.picture(line.split("/")[0].replace(" ", "-"))
    finally:
        t.close()


def test_the_story_is_easy_to_read():
    """Lines end with words; what goes through a pipe has the lines the model made."""
    t = Terminal(60, 30)
    try:
        t.shell('bitnet run --echo --seed 23 "Once upon a time"')
        shown = [line for line in t.screen() if line][1:-2]
        piped = t.shell('bitnet run --echo --quiet --seed 23 "Once upon a time" | cat')
        check(len(shown) > 8 and max(map(len, shown)) <= 60, shown)
        check(" ".join(shown).split() == piped.split() and "\n" not in piped, f"{shown}\n{piped}")
        broken = t.shell('bitnet run --echo --no-wrap --quiet --seed 23 "Once upon a time"')
        check(broken == piped, broken)
    finally:
        t.close()


if __name__ == "__main__":
    if why_not():
        print(f"skipped: {why_not()}")
        sys.exit(77)
    main(globals())
