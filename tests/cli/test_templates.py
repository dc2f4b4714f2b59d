#!/usr/bin/env python3
"""Chat templates: a file's own is rendered; one that cannot be warns, once, and names the reason and the form used instead."""
import json

from harness import check, copy_of_model, equal, expect, main, model

WARNING = "the file's own chat template cannot be rendered: "
INSTEAD = "; the built-in form 'bitnet' is used instead (--template NAME chooses another; bitnet list-templates)"
TRIM = b"message['content'] | trim +"
BROKEN = b"message['content'] | trem +"


def changed(copy, old, new):
    """The nano model with one place of the same length changed: every offset in the file stays as it was."""
    equal(len(old), len(new), "length")
    path = copy_of_model("nano", copy)
    with open(path, "r+b") as f:
        data = f.read()
        equal(data.count(old), 1, f"{old} is there once")
        f.seek(data.index(old))
        f.write(new)
    return path


def commands(path, *args):
    """The same answer asked for with run, with chat, and with neither named."""
    yield expect(0, "run", path, "--template", "auto", "--greedy", "-n", "4", *args, "-p", "Hello!")
    yield expect(0, "chat", path, "--greedy", "-n", "4", *args, stdin=b"Hello!\nHello again!\n")
    yield expect(0, path, "--greedy", "-n", "4", *args, stdin=b"Hello!\n")


def test_own_models_are_recognised():
    for name in ("nano", "story"):
        for r in commands(model(name)):
            check("template" not in r.err, f"{name}: {r.err}")


def test_another_template_is_rendered():
    """What the model reads differs with the file's template, and is what the template writes."""
    usual = ids(model("nano"), "--template", "auto")
    untrimmed = changed("less.gguf", TRIM, b"message['content']        +")
    equal(ids(untrimmed, "--template", "auto"), usual, "nothing to trim in this prompt")
    loud = changed("more.gguf", TRIM, b"message['content'] |upper +")
    check(ids(loud, "--template", "auto") != usual, "the letters are others")
    equal(ids(loud, "--template", "bitnet"), usual, "a built-in form is chosen")
    equal(ids(model("nano"), "--template", "file"), usual, "the file's own by name")
    for path in (untrimmed, loud):
        for r in commands(path):
            check("template" not in r.err, r.err)
        forms = [[json.loads(line)["template"] for line in r.out.splitlines()] for r in commands(path, "--json")]
        equal(forms, [["file"], ["file", "file"], ["file"]], "run, chat, neither")


def ids(path, *args):
    return expect(0, "run", path, *args, "--greedy", "-n", "1", "--json", "--dump-ids", "-p", "Hello!").json()["prompt_ids"]


def test_a_broken_template_warns_once():
    path = changed("broken.gguf", TRIM, BROKEN)
    for r in commands(path):
        equal(r.err.count(WARNING), 1, f"{path}: {r.err}")
        check(INSTEAD in r.err and path in r.err and "line 1" in r.err and "trem" in r.err, r.err)
    r = expect(4, "run", path, "--template", "file", "-n", "1", "-p", "Hello!")
    check("the file's own chat template cannot be rendered: " in r.err and "trem" in r.err, r.err)


def test_spelling_alone_does_not_warn():
    for path in (changed("spaces.gguf", TRIM, b"message['content']   |trim+"), changed("quotes.gguf", TRIM, b'message["content"] | trim +')):
        for r in commands(path):
            check("template" not in r.err, r.err)


def test_inspect_tells_the_template():
    for path, form, line in (
            (model("nano"), "bitnet", "chat template: the file's own, as the built-in form 'bitnet' writes it\n"),
            (changed("own.gguf", TRIM, b"message['content'] |upper +"), "file", "chat template: the file's own\n"),
            (changed("bad.gguf", TRIM, BROKEN), "bitnet", "chat template: the file's own cannot be rendered (line 1: "),
            (changed("no.gguf", b"tokenizer.chat_template", b"tokenizer.chat_nothing!"), "bitnet", "chat template: none in the file; the built-in form")):
        check(line in expect(0, "inspect", path).out, f"{path}: {line}")
        equal(expect(0, "inspect", path, "--json").json()["chat_template"], form, path)
    path = changed("mute.gguf", b"tokenizer.ggml.model", b"tokenizer.ggml.mod_l")
    check("chat template:" not in expect(0, "inspect", path).out, "a file whose tokenizer cannot be read")
    equal(expect(0, "inspect", path, "--json").json()["chat_template"], None, path)


def test_who_chooses_is_not_warned():
    path = changed("chosen.gguf", TRIM, BROKEN)
    for args in (("--no-warnings",), ("--quiet",), ("--template", "bitnet"), ("--log-level", "template=error")):
        for r in commands(path, *args):
            check("chat template" not in r.err, f"{args}: {r.err}")
    check("chat template" not in expect(0, "run", path, "-n", "2", "-p", "Hello!").err, "a text that is only continued has no form")
    lines = expect(0, "chat", path, "-n", "2", "--log-format", "json", stdin=b"Hello!\n").err.splitlines()
    told = [x for x in map(json.loads, lines) if x["module"] == "template"]
    check(len(told) == 1 and told[0]["level"] == "warn" and WARNING in told[0]["message"], f"{lines}")


def test_no_template_at_all():
    path = changed("none.gguf", b"tokenizer.chat_template", b"tokenizer.chat_nothing!")
    r = expect(0, "chat", path, "-n", "2", stdin=b"Hello!\n")
    check("[the file has no chat template: the built-in form 'bitnet' is used; --template NAME chooses another]" in r.err, r.err)
    check("warning" not in r.err, r.err)
    check("the file has no chat template of its own" in expect(4, "run", path, "--template", "file", "-n", "1", "-p", "Hello!").err, "none")
    for args in (("--quiet",), ("--template", "bitnet")):
        check("template" not in expect(0, "chat", path, "-n", "2", *args, stdin=b"Hello!\n").err, f"{args}")
    check("template" not in expect(0, "run", path, "--template", "auto", "-n", "2", "-p", "Hello!").err, "run tells nothing")


def test_json_names_the_form():
    forms = [[json.loads(line)["template"] for line in r.out.splitlines()] for r in commands(model("nano"), "--json")]
    equal(forms, [["bitnet"], ["bitnet", "bitnet"], ["bitnet"]], "run, chat, neither")
    equal(expect(0, "run", model("nano"), "--json", "-n", "1", "-p", "x").json()["template"], "raw", "run continues")
    equal(expect(0, "run", model("nano"), "--json", "-n", "1", "--template", "chatml", "-p", "x").json()["template"], "chatml", "named")


if __name__ == "__main__":
    main(globals())
