#!/usr/bin/env python3
"""The slash commands of bitnet chat, through a pipe: what they change shows in the replies that follow."""
import json
import os
import re

from harness import SOURCE, check, equal, expect, main, model, temp, write


def chat(*args, stdin, n="20", **kw):
    return expect(0, "chat", "-m", model("nano"), "--seed", "1", "-n", n, *args, stdin=stdin.encode(), **kw)


def replies(*args, stdin, **kw):
    return [json.loads(line) for line in chat("--json", *args, stdin=stdin, **kw).raw.decode().splitlines()]


def says(text, *args, stdin, **kw):
    r = chat(*args, stdin=stdin, **kw)
    check(text in r.err, f"{stdin!r}: stderr does not say {text!r}: {r.err}")
    return r


# ---- the conversation ----

def test_regen():
    a, b, c = replies(stdin="Hello!\n/regen\n/regen\n", n="30")
    check(a["ids"] != b["ids"] and b["ids"] != c["ids"], f"the draw is the same: {a['text']!r}")
    equal((b["prompt_tokens"], b["computed_tokens"]), (a["prompt_tokens"], 1), "the same message, computed already")
    follow = replies(stdin="Hello!\n/regen\nTell me a story\n")
    equal(follow[2]["prompt_tokens"] - len(follow[1]["ids"]) < follow[0]["prompt_tokens"] * 3, True, "one reply is kept, not two")
    says("/regen: there is no message to answer yet", stdin="/regen\n")
    same = replies("--greedy", stdin="Hello!\n/regen\n")
    equal(same[0]["ids"], same[1]["ids"], "greedy")
    says("temperature is 0: the most likely reply is always the same", "--greedy", stdin="Hello!\n/regen\n")


def test_undo():
    a, b, c = replies("--greedy", stdin="Hello!\nTell me a story\n/undo\nTell me a story\n")
    equal((c["prompt_tokens"], c["ids"]), (b["prompt_tokens"], b["ids"]), "as if the second had not been")
    says("the last exchange is removed; the conversation is empty", stdin="Hello!\n/undo\n")
    says("before it you said: Hello!", stdin="Hello!\nTell me a story\n/undo\n")
    says("said: " + "a" * 59 + "...]", stdin="a" * 59 + "éé\nHello!\n/undo\n")
    says("said: one...]", stdin='"""one\ntwo"""\nHello!\n/undo\n')
    says("/undo: nothing was said yet", stdin="/undo\n")
    says("before it you said: h" + 29 * "é" + "...]", stdin="h" + 40 * "é" + "\nHello!\n/undo\n")
    says("before it you said: one...]", stdin="one\\\ntwo\nHello!\n/undo\n")


def test_edit():
    a, b = replies("--greedy", stdin="Hello!\n/edit Tell me a story\n")
    straight, = replies("--greedy", stdin="Tell me a story\n")
    equal(b["ids"], straight["ids"], "the message is replaced")
    says("/edit: there is no message to change yet", stdin="/edit x\n")
    r = says("it is not sent", "--ctx", "128", stdin="Hello!\n/edit " + "word " * 400 + "\n/stats\n/regen\n")
    check(", 2 messages, " in r.err and r.out.count("assistant>") == 2, f"too long a text takes the old one's place: {r.err}")
    says("/edit needs the new text here: /edit TEXT", stdin="Hello!\n/edit\n")


def test_system():
    plain, kind, none = replies("--greedy", stdin="Hello!\n/clear\n/system Be kind\nHello!\n/clear\n/system off\nHello!\n")
    check(kind["prompt_tokens"] > plain["prompt_tokens"], "/system has no effect")
    equal(none["ids"], plain["ids"], "/system off")
    given, = replies("--greedy", "--system", "Be kind", stdin="Hello!\n")
    equal((given["prompt_tokens"], given["ids"]), (kind["prompt_tokens"], kind["ids"]), "as --system")
    says("[there is no system message]", stdin="/system\n")
    says("[the system message is: Be kind]", stdin="/system Be kind\n/system\n")


def test_several_lines():
    one, two, three = replies("--greedy", stdin='"""one\ntwo"""\n/clear\n"""\none\ntwo\n"""\n/clear\none\\\ntwo\n')
    equal((two["ids"], three["ids"]), (one["ids"], one["ids"]), 'three forms of one message')
    path = temp("talk.json")
    chat(stdin=f'"""\n\none\ntwo\n\n"""\n/save {path}\n')
    with open(path, encoding="utf-8") as f:
        equal(json.load(f)["messages"][0]["text"], "one\ntwo", "quotes on lines of their own")
    r = chat(stdin='"""one\ntwo\n')
    equal(r.out.count("assistant>"), 1, "the end of the input closes the quotes")
    check("you> one\ntwo\n" in r.out, r.out)
    equal(len(replies(stdin='"""a"""\n  """b"""  \n""""""\n')), 2, "one line; an empty message is none")


def test_commands_are_documented():
    listed = re.findall(r"^  (/\w+) +(\S.*)?$", chat(stdin="/help\n").err, re.M)
    check(len(listed) > 10, f"{listed}")
    with open(os.path.join(SOURCE, "docs", "CHAT.md"), encoding="utf-8") as f:
        page = f.read()
    documented = set(re.findall(r"^\| (`/.*?) \|", page, re.M))
    documented = set(re.findall(r"/\w+", " ".join(documented)))
    equal(documented, {name for name, _ in listed}, "docs/CHAT.md and /help")


# ---- settings ----

def test_set():
    a, b, c = replies(stdin="/set temperature 0\nHello!\n/clear\nHello!\n/clear\n/set temp 1.5\n/set seed 7\nHello!\n")
    equal(a["ids"], b["ids"], "temperature 0")
    equal(c["seed"], 7, "seed")
    fresh, = replies("--temperature", "1.5", "-s", "7", stdin="Hello!\n")
    equal(c["ids"], fresh["ids"], "settings do what the options do")
    short, long = replies("--greedy", stdin="/set max-tokens 3\nHello!\n/clear\n/set max_tokens=-1\nHello!\n")
    equal((short["generated_tokens"], short["finish_reason"]), (3, "length"), "max-tokens")
    check(long["generated_tokens"] > 20, "-1: as long as it wants")
    shown = chat(stdin="/set\n").err
    for name in ("temperature        0.7", "top-k              50", "top-p", "min-p", "repetition-penalty", "max-tokens", "seed",
                 "metrics            off"):
        check(name in shown, f"/set does not show {name}: {shown}")
    says("[top-k is 50]", stdin="/set top-k\n")
    says("reused]", stdin="/set metrics on\nHello!\n")


def test_set_refuses():
    for line, message in (("temperature warm", "/set temperature: 'warm' is not a number from 0 to 100"),
                          ("top-p 2", "/set top-p: '2' is not a number from 0 to 1"),
                          ("top-k -1", "/set top-k: '-1' is not a whole number from 0 to 1000000"),
                          ("max-tokens 0", "/set max-tokens: a reply has at least 1 token"),
                          ("seed x", "/set seed: 'x' is not a seed"), ("temperatur 1", "did you mean temperature?"),
                          ("nonsense 1", "/set: there is no 'nonsense'"), ("metrics maybe", "/set metrics: 'maybe' is neither on")):
        r = says(message, "--greedy", stdin=f"/set {line}\nHello!\n")
        equal(r.out, chat("--greedy", stdin="Hello!\n").out.replace("you>", f"you> /set {line}\nyou>", 1), f"{line}: changes nothing")


# ---- files ----

def test_model():
    a, b, c = replies("--greedy", stdin=f"Hello!\n/model {model('story')}\nTell me a story\n/model {model('nano')}\n/clear\nHello!\n")
    equal(c["ids"], a["ids"], "back to the first model")
    alone, = replies("--greedy", "-m", model("story"), stdin="Tell me a story\n")
    check(b["prompt_tokens"] > alone["prompt_tokens"] + 5, "the conversation goes on")
    says("nano, 2 layers, I2_S weights", stdin="/model\n")


def test_names_do_not_command_the_terminal():
    """Whoever made the file chose them."""
    with open(model("nano"), "rb") as f:
        data = f.read()
    at = data.index(b"general.name") + len("general.name") + 12
    equal(data[at:at + 4], b"nano", "the name")
    path = write("named.gguf", data[:at] + b"\033[2J" + data[at + 4:])
    r = says("named.gguf: \\x1b[2J, 2 layers", stdin=f"/model {path}\n")
    talk = write("talk.json", json.dumps({"system": "\033]0;x\007", "messages": []}))
    r = says("[the system message is: \\x1b]0;x\\x07]", stdin=f"/load {talk}\n/system\n")
    check("\033" not in r.err, r.err)


def test_model_refuses():
    text = write("plain.txt", "no model at all\n")
    with open(model("nano"), "rb") as f:
        half = write("half.gguf", f.read()[:100000])
    for path, why in (("/nonexistent.gguf", "cannot open"), (text, "not a GGUF file"), (half, "half.gguf"), (temp("."), "")):
        r = says(f"[the model stays {model('nano')}]", "--json", "--greedy", stdin=f"Hello!\n/model {path}\nHello!\n")
        check(why in r.err, r.err)
        first, second = (json.loads(line) for line in r.raw.decode().splitlines())
        check(second["computed_tokens"] < second["prompt_tokens"], "model and conversation stay")
    receipt = temp("receipt.json")
    says("/model: a receipt is of one model", "--receipt", receipt, stdin=f"Hello!\n/model {model('nano')}\n")


def test_load_refuses():
    bad = write("bad.json", "{")
    for path in (bad, "/nonexistent", temp("."), "-", ""):
        a, b = replies("--greedy", stdin=f"Hello!\n/load {path}\nHello!\n")
        check(b["prompt_tokens"] > a["prompt_tokens"], f"{path}: the conversation is lost")
    says("/save needs a file name", stdin="/save\n")
    says("/save: " + model("nano") + " is the model", stdin=f"/save {model('nano')}\n")


def test_home():
    home = temp("home")
    os.mkdir(home)
    says("[2 messages saved to", stdin="Hello!\n/save ~/talk.json\n", env={"HOME": home})
    check(os.path.exists(os.path.join(home, "talk.json")), "~ is the home")


# ---- how a reply ends ----

def test_replies_are_long_enough():
    r = expect(0, "chat", "-m", model("nano"), "--json", "-s", "1", "--ctx", "600", "--no-warnings", "--frequency-penalty", "-2",
               "--penalty-window", "0", stdin=b"Hello!\n").json()  # repeats itself without end
    equal((r["finish_reason"], r["prompt_tokens"] + r["generated_tokens"]), ("length", 601), "by default the context is the limit")
    says("[cut after 20 tokens; /set max-tokens -1 takes the limit away]", stdin="Hello!\n")
    says("[cut after 1 token; ", stdin="Hello!\n", n="1")
    says("[the context is full: the reply is cut here]", "--ctx", "40", n="-1", stdin="Tell me a story\n")


def test_no_end_at_the_beginning():
    first = replies("--greedy", stdin="Hello!\n")[0]["ids"][0]
    r, = replies("--greedy", "--stop-id", str(first), stdin="Hello!\n")
    check(r["ids"][0] != first and r["text"], f"the reply ends before it begins: {r}")
    for seed in range(40):  # random words: the end comes up early, but not at once
        r, = replies("-s", str(seed), "--temperature", "20", "--top-k", "0", "--top-p", "1", n="1", stdin="Hello!\n")
        equal(r["finish_reason"], "length", "the first token is none that ends")


def test_empty_reply():
    text = replies("--greedy", stdin="Hello!\n")[0]["text"]
    r = says("[the model said nothing]", "--greedy", "--stop", text[0], stdin="Hello!\nHello!\n")
    equal(r.out.count("assistant> \n"), 2, "both are empty")
    a, b = replies("--greedy", "--stop", text[0], stdin="Hello!\nHello!\n")
    equal((a["text"], a["finish_reason"], b["prompt_tokens"]), ("", "stop", a["prompt_tokens"]), "a question without reply is not kept")
    a, b = replies("--greedy", "--stop", text[0], stdin="Hello!\n/regen\n")
    equal(b["prompt_tokens"], a["prompt_tokens"], "/regen asks it again")


if __name__ == "__main__":
    main(globals())
