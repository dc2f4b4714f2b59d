#!/usr/bin/env python3
"""bitnet chat as a person uses it: at a terminal that tmux lends, every feature by its keys, what is seen on the screen."""
import json
import os
import re
import stat
import sys
import time

from harness import SOURCE, check, equal, main, model, write

sys.path.insert(0, os.path.join(SOURCE, "tests", "first_hour"))
from terminal_of_tmux import Terminal, why_not  # noqa: E402

YOU = r"you(?: \(\d+%\))?>"
ENDLESS = "--frequency-penalty -2 --penalty-window 0 --ctx 3000 --no-warnings"  # repeats itself until it is stopped


class Chat:
    """A terminal with a chat in it; closed at the end of a with."""

    def __init__(self, options="-n 12", model_name="nano", columns=80, rows=30, before="", chats=True):
        self.t = Terminal(columns, rows)
        self.command = f"{before}bitnet chat -m {model(model_name)} -s 1 {options}"
        if chats:
            self.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.t.close()

    def start(self, more=""):
        self.t.fresh()
        self.t.type(f"{self.command} {more}")
        self.t.wait(rf"^{YOU}$", where=self.t.last)

    def say(self, line):
        """Types a line; what was printed up to the next prompt."""
        return self.t.turn(line, YOU)

    def leave(self):
        self.t.type("/exit")
        self.t.wait(r"^\$$", where=self.t.last)
        self.t.type("echo code $?")
        equal(self.t.wait(r"^code (\d+)$").group(1), "0", "exit code")

    def path(self, name):
        return os.path.join(self.t.folder, name)

    def saved(self):
        """The conversation, through /save."""
        n = len(os.listdir(self.t.folder))
        self.say(f"/save talk{n}.json")
        with open(self.path(f"talk{n}.json"), encoding="utf-8") as f:
            return json.load(f)

    def said(self):
        return [m["text"] for m in self.saved()["messages"] if m["role"] == "user"]


# ---- messages of several lines ----

def test_paste_is_one_message():
    with Chat() as c:
        c.t.paste("first line\nsecond line\n\tthird\n")
        c.t.wait(r"^you> first line\nsecond line\n +third$")
        time.sleep(0.3)
        check("assistant>" not in c.t.everything(), "a pasted newline sends")
        c.t.write(" and typed")
        n = c.t.prompts(YOU)
        c.t.keys("Enter")
        c.t.next_prompt(YOU, n)
        equal(c.said(), ["first line\nsecond line\n\tthird and typed"], "one message")
        c.t.paste("one\r\ntwo\rthree \x1b[31mred\x07\n\n")
        c.say("")
        equal(c.said()[-1], "one\ntwo\nthree [31mred", "newlines of other systems; no control characters")


def test_long_paste():
    text = "\n".join(f"line {i}: äöü 日本語 {'word ' * 20}" for i in range(60))
    with Chat("-n 3 --ctx 16000 --no-warnings") as c:
        c.t.paste(text)
        c.t.wait(r"line 59", where=lambda: "\n".join(c.t.screen()))
        c.say("")
        check(c.said() == [text], "not all of it was sent")


def test_paste_while_a_reply_is_written():
    with Chat(ENDLESS) as c:
        c.t.type("Tell me a story")
        c.t.wait("^assistant> .")
        c.t.paste("pasted\nmeanwhile")
        n = c.t.prompts(YOU)
        c.t.keys("C-c")
        c.t.wait(rf"^{YOU} pasted\nmeanwhile$")
        check("[stopped]" in c.t.everything() and n == c.t.prompts(YOU) - 1, "it waits in the next line")


def test_quotes():
    with Chat() as c:
        c.t.type('"""Tell me')
        c.t.wait(r"^\.\.\.>$", where=c.t.last)
        c.t.type("  a story")
        c.t.wait(r"^\.\.\.>$", where=c.t.last)
        c.say('about a fox."""')
        c.say('"""one line"""')
        equal(c.said(), ["Tell me\n  a story\nabout a fox.", "one line"], "messages")
        c.t.type('"""')
        c.t.wait(r"^\.\.\.>$", where=c.t.last)
        c.t.type("never mind")
        n = c.t.prompts(YOU)
        c.t.keys("C-c")
        c.t.next_prompt(YOU, n)
        equal(len(c.said()), 2, "Ctrl-C drops the lines")
        c.t.type("ends with\\")
        c.t.wait(r"^\.\.\.>$", where=c.t.last)
        c.say("a backslash")
        equal(c.said()[-1], "ends with\na backslash", "a backslash at the end")


# ---- width ----

def words_of(lines, width):
    """The words on the lines; none of them is wider than the terminal, and each line holds as many as fit."""
    for line, after in zip(lines, lines[1:]):
        check(len(line) <= width, f"too wide: {line!r}")
        check(len(line) + 1 + len(after.split(" ")[0]) > width, f"the line could hold another word: {line!r}, {after!r}")
    return " ".join(lines).split()


def test_wrap():
    for width in (30, 61):
        with Chat("-n 60", "story", width) as c:
            reply = c.say("Tell me a story about a fox.")
            lines = reply[reply.index("assistant> "):].split("\n[cut")[0].strip("\n").split("\n")
            text = c.saved()["messages"][1]["text"]
            equal(words_of(lines, width)[1:], text.split(), f"{width} columns: words")
            check(len(lines) > 3, f"{width} columns: {lines}")
    with Chat("-n 60 --no-wrap", "story", 30) as c:
        c.say("Tell me a story about a fox.")
        check(any(len(line) == 30 and line[-1].isalpha() for line in c.t.screen()), "--no-wrap leaves it to the terminal")


def test_wrap_of_characters():
    """Wide, combining and endless words; notices are laid out as replies are."""
    with Chat(columns=24) as c:
        shown = c.say("/system " + "日本語の文章は長い" * 3)
        shown = c.say("/system").split("[", 1)[1].split("\n")
        check(all(sum(2 if ord(x) > 0x2e80 else 1 for x in line) <= 24 for line in shown), f"{shown}")
        check(len(shown) >= 4 and sum(2 if ord(x) > 0x2e80 else 1 for x in shown[1]) in (22, 23, 24), f"lines are full: {shown}")
        c.say("/system " + "e\u0301" * 20)
        check(re.search("^(e\u0301){20}\\]$", c.say("/system"), re.M), "a combining mark takes no column")
        c.say("/system " + "x" * 60)
        lines = c.say("/system").split("[", 1)[1].strip("\n").split("\n")
        equal([len(x) for x in lines[-3:]], [24, 24, 13], "a word longer than a line is broken where it ends")


def test_resize_at_the_prompt():
    with Chat() as c:
        c.say("Hello!")
        c.t.write("a line that is being typed")
        for width in (50, 100, 64):
            c.t.resize(width, 30)
            c.t.wait(rf"^{YOU} a line that is being typed$")
            time.sleep(0.2)
            equal(len(re.findall("being typed", "\n".join(c.t.screen()))), 1, f"{width} columns: drawn once")


def test_resize_of_a_line_over_several_rows():
    line = "a line that is being typed " + "and goes on " * 6 + "END"
    for how in ("typed", "pasted"):
        with Chat() as c:
            c.say("Hello!")
            before = [x for x in c.t.screen() if x][:-1]
            c.t.write(line) if how == "typed" else c.t.paste(line)
            c.t.wait("END$", where=c.t.last)
            for width in (50, 33, 97, 60, 120):
                c.t.resize(width, 30)
                end = time.monotonic() + 20
                while True:
                    text = "\n".join(x for x in c.t.screen() if x)
                    found = re.search(rf"^{YOU} (a line that[\s\S]*END)$", text, re.M)
                    if found and found.group(1).replace("\n", "").replace(" ", "") == line.replace(" ", "") and \
                            re.sub(r"\s", "", text).count("beingtyped") == 1:
                        break
                    check(time.monotonic() < end, f"{how}, {width} columns: not drawn once:\n{text}")
                    time.sleep(0.05)
            equal(c.t.screen()[:len(before)], before, "what stood above is untouched")
            n = c.t.prompts(YOU)
            c.t.keys("Enter")
            c.t.next_prompt(YOU, n)
            equal(c.said()[-1], line, "the line")


def test_resize_while_a_reply_is_written():
    with Chat("-n 150", "story", 100) as c:
        c.t.type("Tell me a story about a fox.")
        c.t.wait("^assistant> .")
        c.t.resize(40, 30)
        c.t.next_prompt(YOU, 1)
        lines = "\n".join(c.t.screen()).split("\n[cut")[0].split("\n")[-4:]
        words_of(lines, 40)


# ---- lines typed ----

def test_history_between_sessions():
    with Chat() as c:
        c.say("Hello fox!")
        c.t.paste("two\nlines")
        c.say("")
        c.leave()
        path = c.path(".local/state/bitnet/history")
        equal(stat.S_IMODE(os.stat(path).st_mode), 0o600, "only the user can read it")
        c.start()
        c.t.keys("Up", "Up")
        c.t.wait(r"^you> two\nlines$")
        c.t.keys("Up")
        c.t.wait(r"^you> Hello fox!$")
        c.say("")
        equal(c.said(), ["Hello fox!"], "the arrow keys bring it back")
        c.leave()
        with open(path, encoding="utf-8") as f:
            equal(f.read().split("\n")[:3], ["Hello fox!", "two\\nlines", "/exit"], "the file")


def test_history_file_is_chosen():
    with Chat("-n 4 --history mine", chats=False) as c:
        c.start()
        c.say("Hello fox!")
        c.leave()
        check("Hello fox!" in open(c.path("mine")).read(), "--history FILE")
        check(not os.path.exists(c.path(".local")), "and no other")
        plain = c.command.replace("--history mine", "")
        for none in ("off", "''"):
            c.command = f"{plain} --history {none}"
            c.start()
            c.say("Nobody remembers")
            c.leave()
            check(not os.path.exists(c.path(".local")) and not os.path.exists(c.path("off")), f"--history {none}")
        c.command = f"XDG_STATE_HOME=$HOME/state {plain}"
        c.start()
        c.say("Hello!")
        c.leave()
        check(os.path.exists(c.path("state/bitnet/history")), "$XDG_STATE_HOME")


def test_history_that_cannot_be_kept():
    """The default place is never a reason not to chat, nor are strange bytes in the file."""
    with Chat(chats=False) as c:
        plain = c.command
        os.makedirs(c.path("a/bitnet/history"))
        os.makedirs(c.path("b/bitnet"))
        os.mkfifo(c.path("b/bitnet/history"))
        write(c.path("c"), "a file\n")
        os.makedirs(c.path("d/bitnet"))
        with open(c.path("d/bitnet/history"), "wb") as f:
            f.write(b"\xff\xfe\x00\nlast good one\n" + b"\x80" * 5000)
        for state in "abcd":
            c.command = f"XDG_STATE_HOME=$HOME/{state} " + plain
            c.start()
            c.say("Hello!")
            check("kept" not in c.t.everything(), f"{state}: a complaint")
            if state == "d":
                c.t.keys("Up", "Up")
                c.t.wait("you.*> last good one$")
                c.t.keys("C-u")
            c.leave()
        c.command = plain
        for name in ("a", "missing/file"):
            check("--history" in c.t.shell(f"{plain} --history {name}"), f"{name} was named by the user, who is told")


def test_history_is_bounded():
    with Chat(chats=False) as c:
        path = c.path("long")
        with open(path, "w") as f:
            f.write("".join(f"line {i}\n" for i in range(5000)))
        c.command += " --history long"
        c.start()
        c.t.keys("Up")
        c.t.wait("^you> line 4999$")
        c.t.keys("C-u")
        c.leave()
        lines = open(path).read().splitlines()
        equal((len(lines), lines[0], lines[-1]), (1001, "line 4000", "/exit"), "cut to its newest entries")


def test_history_that_is_something_else():
    """A file that was named by mistake loses nothing, and a link to the file stays one."""
    with Chat(chats=False) as c:
        others = {"picture": bytes(range(256)) * 8192, "zeros": bytes(2000000), "data": b"[1,2]" * 400000}
        for name, before in others.items():
            with open(c.path(name), "wb") as f:
                f.write(before)
        write(c.path("long"), "".join(f"line {i}\n" for i in range(5000)))
        os.symlink("long", c.path("link"))
        plain = c.command
        for name in (*others, "link"):
            c.command = f"{plain} --history {name}"
            c.start()
            c.leave()
        for name, before in others.items():
            check(open(c.path(name), "rb").read().startswith(before), f"{name}: two megabytes that are no lines are cut")
        check(os.path.islink(c.path("link")), "the link is gone")
        check(len(open(c.path("long")).read().splitlines()) < 1010, "what it leads to is cut")


# ---- Tab ----

def test_tab():
    with Chat() as c:
        os.mkdir(c.path("stories"))
        for name in ("stories/fox.json", "stories/fog.json", "stories/owl.json"):
            write(c.path(name), "[]")
        write(c.path("stories/fo\033[2J"), "a name that would clear the screen if it were listed with the others")
        c.t.write("/und")
        c.t.keys("Tab")
        c.t.wait("^you> /undo$")
        c.t.keys("C-u")
        c.t.write("/s")
        c.t.keys("Tab")
        c.t.wait(r"^/save  /set  /stats  /system$")
        c.t.write("et repe")
        c.t.keys("Tab")
        c.t.write("1.1")
        c.t.wait(r"^you> /set repetition-penalty 1\.1$")
        c.say("")
        c.t.write("/load sto")
        c.t.keys("Tab")
        c.t.wait("^you> /load stories/$")
        c.t.write("f")
        c.t.keys("Tab")
        c.t.wait("^you> /load stories/fo$")
        c.t.keys("Tab")
        c.t.wait("^fog.json  fox.json$")
        c.t.write("x")
        c.t.keys("Tab")
        c.t.wait("^you> /load stories/fox.json$")
        check("0 messages loaded from stories/fox.json" in c.say(""), "the name is right")
        c.t.write("Hello /s")
        c.t.keys("Tab")
        c.t.write("!")
        c.t.wait("^you> Hello /s!$")
        c.t.keys("C-u")
        c.leave()


# ---- commands ----

def test_regen_and_undo():
    with Chat("-n 30") as c:
        first = c.say("Hello!")
        second = c.say("/regen")
        check("assistant> " in second and first.split("assistant>")[1] != second.split("assistant>")[1], f"{first}{second}")
        equal(len(c.saved()["messages"]), 2, "one reply is kept")
        c.say("Tell me a story")
        check("before it you said: Hello!" in c.say("/undo"), "/undo")
        equal(c.said(), ["Hello!"], "the last exchange is gone")


def test_edit_in_the_line():
    with Chat() as c:
        c.say("Tell me a story about a fox")
        c.t.type("/edit")
        c.t.wait(rf"^{YOU} Tell me a story about a fox$", where=c.t.last)
        c.t.keys("BSpace", "BSpace", "BSpace")
        c.say("owl")
        equal(c.said(), ["Tell me a story about a owl"], "sent instead")
        c.t.type("/edit")
        c.t.wait(rf"^{YOU} Tell me a story about a owl$", where=c.t.last)
        n = c.t.prompts(YOU)
        c.t.keys("C-c")
        c.t.next_prompt(YOU, n)
        c.say("Hello!")
        equal(c.said(), ["Tell me a story about a owl", "Hello!"], "Ctrl-C leaves it as it was")
        c.leave()


def test_edit_in_an_editor():
    with Chat(before="EDITOR=./change ") as c:
        def editor(script):
            with open(c.path("change"), "w") as f:
                f.write(f"#!/bin/sh\n{script}\n")
            os.chmod(c.path("change"), 0o755)
        c.say("Hello!")
        editor("printf 'two\\nlines\\n' >\"$1\"")
        c.say("/edit")
        equal(c.said(), ["two\nlines"], "what the editor wrote")
        editor(":")
        check("nothing was changed: nothing is sent" in c.say("/edit"), "unchanged")
        editor("exit 1")
        check("/edit: ./change failed; nothing is sent" in c.say("/edit"), "a failure")
        equal(c.said(), ["two\nlines"], "the conversation stays")
        editor("printf '\\033[?2004l' >/dev/tty")  # as vim does when it leaves
        c.say("/edit")
        c.t.paste("pasted\nafterwards")
        c.t.wait(rf"^{YOU} pasted\nafterwards$")
        c.say("")
        equal(c.said()[-1], "pasted\nafterwards", "a paste is one message again")
        c.leave()


def test_system_set_and_stats():
    with Chat() as c:
        c.say("/system You are kind.")
        check("the system message is: You are kind." in c.say("/system"), "/system")
        equal(c.saved()["system"], "You are kind.", "it is part of the conversation")
        check("[temperature is 0.2]" in c.say("/set temperature 0.2"), "/set")
        check(re.search(r"^  temperature +0\.2 ", c.say("/set"), re.M), "/set shows it")
        check("'hot' is not a number from 0 to 100" in c.say("/set temperature hot"), "a bad value names the range")
        c.say("Hello!")
        stats = c.say("/stats")
        for word in ("model:", "tok/s", "context:", "of 256 tokens", "kernels:", "backend:", "selected=cpu"):
            check(word in stats, f"/stats lacks {word}: {stats}")


def test_save_load_and_model():
    with Chat() as c:
        c.say("Hello!")
        c.say("/save my talk.json")
        c.say("/clear")
        equal(c.said(), [], "/clear")
        check("[2 messages loaded from my talk.json]" in c.say("/load my talk.json"), "/load")
        equal(c.said(), ["Hello!"], "it is back")
        check("nothing.json: cannot open" in c.say("/load nothing.json"), "a file that is not there")
        check("my talk.json: " in c.say("/model my talk.json") and "[the model stays" in c.t.everything(), "not a model")
        check("12 layers" in c.say("/model models/story.gguf"), "/model FILE")
        c.say("What is the capital of France?")
        equal(c.said(), ["Hello!", "What is the capital of France?"], "the conversation goes on with it")
        check("unknown command /modle; did you mean /model?" in c.say("/modle"), "a slip")
        c.leave()


# ---- the context ----

def test_meter():
    with Chat("-n 20 --ctx 128") as c:
        seen = []
        for _ in range(6):
            c.say("Tell me a story")
            seen.append(int(re.search(r"you \((\d+)%\)>$", c.t.last()).group(1)))
        check(5 < seen[0] < seen[1] and max(seen) > 50 and all(x <= 100 for x in seen), f"{seen}")
        check("the context is full: the oldest" in c.t.everything(), "what is forgotten is told")
        c.say("/clear")
        equal(c.t.last(), "you>", "an empty conversation has no figure")


def test_cut_and_empty():
    with Chat("-n 3") as c:
        check("[cut after 3 tokens; /set max-tokens -1" in c.say("Hello!"), "cut")
    with Chat("-n 20 --greedy") as c:
        first = c.say("Hello!").split("assistant> ")[1][0]
    with Chat(f"-n 20 --greedy --stop '{first}'") as c:
        check("[the model said nothing]" in c.say("Hello!"), "empty")


# ---- Ctrl-C, Ctrl-Z ----

def test_ctrl_c():
    with Chat(ENDLESS) as c:
        c.t.type("Tell me a story")
        c.t.wait("^assistant> .")
        n = c.t.prompts(YOU)
        c.t.keys("C-c")
        c.t.next_prompt(YOU, n)
        check("[stopped]" in c.t.everything(), "the reply stops, the chat goes on")
        for _ in range(3):  # a line that is dropped does not leave
            c.t.write("half a line")
            c.t.wait("half a line$", where=c.t.last)
            n = c.t.prompts(YOU)
            c.t.keys("C-c")
            c.t.next_prompt(YOU, n)
        c.t.keys("C-c")  # in an empty line, as the notice above it says
        c.t.wait(r"^\$$", where=c.t.last)


def terminal_is_sane(t):
    settings = t.shell("stty -a")
    check(re.search(r"(?<!-)\becho\b", settings) and re.search(r"(?<!-)\bicanon\b", settings), f"the terminal is not in order: {settings}")


def test_ctrl_z_at_the_prompt():
    with Chat() as c:
        c.say("Hello!")
        c.t.write("half a line")
        c.t.wait("half a line$", where=c.t.last)
        c.t.keys("C-z")
        c.t.wait(r"^\$$", where=c.t.last)
        terminal_is_sane(c.t)
        c.t.type("fg")
        c.t.wait(rf"^{YOU} half a line$", where=c.t.last)
        c.say(" and the rest")
        equal(c.said(), ["Hello!", "half a line and the rest"], "it goes on where it was")
        c.t.paste("pasted\nafterwards")
        c.t.wait(r"^pasted$|> pasted\nafterwards$")
        c.say("")
        equal(c.said()[-1], "pasted\nafterwards", "pasted lines are one message still")
        c.leave()
        terminal_is_sane(c.t)


def test_ctrl_z_in_a_reply():
    with Chat(ENDLESS) as c:
        c.t.type("Tell me a story")
        c.t.wait("^assistant> .")
        c.t.keys("C-z")
        c.t.wait(r"^\$$", where=c.t.last)
        terminal_is_sane(c.t)
        c.t.fresh()
        c.t.type("fg")
        c.t.wait(r"\A\$ fg\n.*\n\S", where=lambda: c.t.everything())
        c.t.wait(r"^(?!\$)(?!bitnet)\w+ \w+")  # the reply goes on
        c.t.keys("C-c")
        c.t.wait(rf"^{YOU}$", where=c.t.last)
        check("[stopped]" in c.t.everything(), "and can be stopped")
        c.leave()
        terminal_is_sane(c.t)


def test_keys_wait_while_a_reply_is_written():
    with Chat(ENDLESS) as c:
        c.t.type("Tell me a story")
        c.t.wait("^assistant> .")
        c.t.write("typed ahead")
        time.sleep(0.3)
        check("typed ahead" not in c.t.everything(), "keys are shown in the reply")
        c.t.keys("C-c")
        c.t.wait(rf"^{YOU} typed ahead$|^{YOU}$", where=c.t.last)


if __name__ == "__main__":
    if why_not():
        print(f"skipped: {why_not()}")
        sys.exit(77)
    main(globals())
