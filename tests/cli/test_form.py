#!/usr/bin/env python3
"""--grammar and --json-schema: a model that tells stories writes what it is told to, or it is said that the text is cut."""
import json

from harness import check, equal, expect, fails, main, model, write

SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 1, "maximum": 99},
                                           "kind": {"enum": ["fox", "bear"]}}, "required": ["name", "age", "kind"]}
ONCE = ("-p", "Once upon a time")


def is_of_schema(text):
    value = json.loads(text)
    equal(list(value), ["name", "age", "kind"], "names")
    check(len(value["name"]) <= 12 and 1 <= value["age"] <= 99 and value["kind"] in ("fox", "bear"), text)


def test_schema_as_text_and_as_file():
    path = write("schema.json", json.dumps(SCHEMA).encode())
    for given in (path, " " + json.dumps(SCHEMA)):
        for more in (["--greedy"], ["--temperature", "2", "--seed", "7"]):
            r = expect(0, "run", model("story"), "--json-schema", given, *more, *ONCE)
            is_of_schema(r.out)
            check("cut" not in r.err, r.err)
    r = expect(0, "run", model("story"), "--json-schema", path, "--greedy", "--json", *ONCE).json()
    is_of_schema(r["text"])
    equal(r["finish_reason"], "eos", "finish")
    json.loads(expect(0, "run", model("nano"), "--json-schema", "true", "--greedy", "-n", "200", *ONCE).out)


def test_grammar():
    path = write("answer.gbnf", b'root ::= ("yes" | "no") ", " [a-z]{3}\n')
    r = expect(0, "run", model("story"), "--grammar", path, "--greedy", *ONCE)
    check(r.out[:r.out.index(",")] in ("yes", "no") and len(r.out.strip().split(", ")[1]) == 3, r.out)
    r = expect(0, "chat", model("story"), "--grammar", path, "--greedy", "--json", stdin=b"Is a fox red?\nIs it blue?\n")
    replies = [json.loads(line)["text"] for line in r.out.splitlines()]
    equal(len(replies), 2, "replies")
    check(all(t.startswith(("yes, ", "no, ")) and len(t) in (7, 8) for t in replies), replies)


def test_a_cut_text_is_told():
    r = expect(0, "run", model("story"), "--json-schema", json.dumps(SCHEMA), "--greedy", "-n", "5", "--json", *ONCE)
    equal(r.json()["finish_reason"], "length", "finish")
    check("the text is cut: it is not a whole text of the schema" in r.err, r.err)
    r = expect(0, "chat", model("story"), "--json-schema", json.dumps(SCHEMA), "--greedy", "-n", "5", stdin=b"Hello\n")
    check("not a whole text of the schema" in r.err, r.err)


def test_what_is_refused():
    m = model("nano")
    fails(2, "run", m, "--json-schema", '{"type": "string", "format": "iri"}', *ONCE, says='keyword "format" at #: "iri" of a string is not supported')
    fails(2, "run", m, "--json-schema", '{"type": ', *ONCE, says="not valid JSON")
    fails(5, "run", m, "--json-schema", "/nonexistent/schema", *ONCE, says="nonexistent")
    fails(2, "run", m, "--grammar", write("left.gbnf", b'root ::= root "a" | "b"'), *ONCE, says='rule "root" begins with itself')
    good = write("good.gbnf", b'root ::= "a"')
    fails(2, "run", m, "--grammar", good, "--json-schema", "true", *ONCE, says="one form")
    fails(2, "run", m, "--grammar", good, "--ignore-eos", *ONCE, says="ignore-eos")
    fails(2, "run", m, "--grammar", good, "--receipt", "/dev/null", *ONCE, says="no place for a grammar")
    fails(2, "chat", m, "--grammar", write("bad.gbnf", b"root ="), stdin=b"x\n", says="::=")


if __name__ == "__main__":
    main(globals())
