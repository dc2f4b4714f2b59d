#!/usr/bin/env python3
"""The first hour, part three: an evening in `bitnet chat`, with every command that /help lists and every key that matters.
Exit code 77: there is no tmux."""
import json
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from terminal_of_tmux import SOURCE, Terminal, why_not  # noqa: E402

sys.path.insert(0, os.path.join(SOURCE, "tests", "cli"))
from harness import check, equal, expect, main, model  # noqa: E402

YOU = r"you(?: \(\d+%\))?>"
FOX = "Tell me a story about a fox"


class Chat:
    """A conversation at a terminal; every line typed is kept."""

    def __init__(self, *options, t=None):
        self.own = t is None
        self.t = t or Terminal(90, 45)
        self.typed = []
        self.t.fresh()
        self.t.type(" ".join(["bitnet chat --seed 3", *options]))
        self.t.wait(f"^{YOU}$", where=self.t.last)

    def say(self, line, wanted=""):
        self.typed.append(line)
        said = self.t.turn(line, YOU)
        check(re.search(wanted, said, re.M), f"'{line}' shows no /{wanted}/:\n{said}")
        return said

    def leave(self, key="C-d"):
        self.t.keys(key)
        self.t.wait(r"^\$$", where=self.t.last)
        if self.own:
            self.t.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.own:
            self.t.close()


def reply(said):
    """The reply in what was printed, as one line."""
    return " ".join(re.search(r"^assistant> (.*)", said, re.M | re.S).group(1).split())


# ---- commands ----

def every_command(c):
    """One conversation with all of them, in an order that makes sense."""
    listed = re.findall(r"^ {2}(/\w+)", c.say("/help", "^  /help"), re.M)
    first = reply(c.say("What is the capital of France?", r"Paris"))
    c.t.wait(r"^you \(\d+%\)>$", where=c.t.last)  # how full the context is
    check("Paris" in reply(c.say("/regen")), "another reply to the same question")
    check("Rome" in reply(c.say("/edit What is the capital of Italy?")), "the changed question is answered")
    c.say("/undo", r"removed")
    c.say("/system You tell stories.", r"is set")
    c.say("/system", r"You tell stories\.")
    c.say("/system off", r"no system message")
    c.say("/set", r"temperature")
    c.say("/set temperature 0")
    c.say("/set", r"temperature\W+0\b")
    c.say("What is 7 + 5?", r"12")
    c.say("/save talk.json", r"2 messages saved to talk\.json")
    c.say("/clear", r"forgotten")
    c.say("/load talk.json", r"2 messages loaded")
    c.say("/stats", r"(?s)kernels: .*context|context: .*kernels: ")
    c.t.picture("chat-stats")
    c.say("/model", r"story\.gguf")
    c.say("/model models/nano.gguf", r"nano\.gguf")
    c.say("/model models/story.gguf", r"story\.gguf")
    c.say("/sett", r"did you mean /set")
    return listed, first


def test_every_command_that_help_lists():
    with Chat() as c:
        listed, first = every_command(c)
        check(len(listed) >= 12, listed)
        unused = set(listed) - {line.split()[0] for line in c.typed} - {"/exit"}
        check(not unused, f"/help lists {unused}, and nobody typed them here")
        equal(first, "The capital of France is Paris.", "the reply in one line")
        with open(os.path.join(c.t.folder, "talk.json"), encoding="utf-8") as f:
            equal([m["role"] for m in json.load(f)["messages"]], ["user", "assistant"], "what was saved")
        c.t.type("/exit")
        c.t.wait(r"^\$$", where=c.t.last)


# ---- several lines, and keys ----

def test_messages_of_several_lines():
    with Chat() as c:
        c.t.type('"""What is')
        c.t.wait(r"^\.\.\.>$", where=c.t.last)
        c.typed.append('"""')
        c.say('7 + 5?"""', "12")
        n = c.t.prompts(YOU)
        c.t.paste("Tell me a story\nabout a fox\n")
        c.t.wait("^about a fox$")
        equal(c.t.prompts(YOU), n, "pasted lines send nothing by themselves")
        c.t.keys("Enter")
        c.t.next_prompt(YOU, n)
        check(re.search(r"(?s)about a fox\nassistant> .*[Ff]ox", c.t.everything()), c.t.everything())
        c.t.picture("chat-several-lines")


def test_tab_and_the_lines_of_yesterday():
    t = Terminal(90, 45)
    try:
        with Chat(t=t) as c:
            c.t.write("/sta")
            c.t.keys("Tab")
            c.t.wait(r"/stats ?$", where=c.t.last)
            c.t.keys("C-u")
            c.say("What is 7 + 5?", "12")
            c.leave()
        with Chat(t=t) as c:
            c.t.keys("Up")
            c.t.wait(r"What is 7 \+ 5\?$", where=c.t.last)
            n = c.t.prompts(YOU)
            c.t.keys("Enter")
            c.t.next_prompt(YOU, n - 1)
            c.leave()
    finally:
        t.close()


def test_the_last_message_is_edited_in_the_line():
    with Chat() as c:
        c.say("What is 7 + 5?", "12")
        c.t.type("/edit")
        c.t.wait(r"> What is 7 \+ 5\?$", where=c.t.last)
        n = c.t.prompts(YOU)
        c.t.keys("BSpace", "BSpace")
        c.t.write("2?")
        c.t.keys("Enter")
        c.t.next_prompt(YOU, n)
        check(re.search(r"(=|is) 9", c.t.everything()), c.t.everything())


def test_words_are_not_broken():
    """At 60 columns the story of the fox has the words it has in JSON, none of them in two."""
    told = json.loads(expect(0, "chat", "-m", model("story"), "--seed", "3", "--json", stdin=FOX.encode() + b"\n").out)["text"]
    t = Terminal(60, 45)
    try:
        with Chat(t=t) as c:
            c.t.turn(FOX, YOU)
            lines = [line for line in t.screen() if line]
            begin = next(i for i, line in enumerate(lines) if line.startswith("assistant> "))
            shown = " ".join(lines[begin:-1]).removeprefix("assistant> ").split()
            equal(shown, told.split(), "words")
            t.picture("chat-narrow")
            c.t.resize(40, 30)
            c.t.write("What is 7")
            c.t.resize(100, 30)
            n = c.t.prompts(YOU)
            c.t.type(" + 5?")
            c.t.next_prompt(YOU, n)
            check(re.search(r"(=|is) 12", t.everything()), t.everything())
    finally:
        t.close()


def test_stop_and_go_on():
    """Ctrl-C at a prompt asks first, Ctrl-Z gives the shell back, fg the conversation."""
    with Chat() as c:
        c.say("What is 7 + 5?", "12")
        c.t.keys("C-z")
        c.t.wait(r"^\$$", where=c.t.last)
        said = c.t.turn("echo in the shell", r"\$")
        check("in the shell" in said, said)
        c.t.type("fg")
        c.t.wait(f"^{YOU}$", where=c.t.last)
        c.say("What is the capital of France?", "Paris")
        c.t.picture("chat-after-fg")
        c.t.keys("C-c")
        c.t.wait(r"Ctrl-C again")
        c.t.keys("C-c")
        c.t.wait(r"^\$$", where=c.t.last)


if __name__ == "__main__":
    if why_not():
        print(f"skipped: {why_not()}")
        sys.exit(77)
    main(globals())
