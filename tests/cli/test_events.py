#!/usr/bin/env python3
"""JSON for programs: --json gives one object for each reply, --format jsonl a stream of token events before it."""
import json
import math
import os
import signal
import subprocess

from harness import check, equal, expect, fails, main, model, start


def lines(r):
    return [json.loads(line) for line in r.raw.decode("utf-8").splitlines()]  # strict: invalid UTF-8 fails


def chat(*args, stdin=b"Hello!\nTell me a story\n"):
    return lines(expect(0, "chat", "-m", model("nano"), "--seed", "1", "-n", "20", *args, stdin=stdin))


def nano(*args):
    return lines(expect(0, "run", "-m", model("nano"), "--seed", "1", "-n", "20", *args))


def replies_of(stream):
    """The stream cut into (events, reply)."""
    found, events = [], []
    for o in stream:
        if "role" in o:
            found.append((events, o))
            events = []
        else:
            equal((o["event"], sorted(set(o) - {"logprob", "top_logprobs"})), ("token", ["event", "id", "text"]), "a token event")
            events.append(o)
    equal(events, [], "events after the last reply")
    return found


def test_stream_of_chat():
    found = replies_of(chat("--format", "jsonl"))
    equal(len(found), 2, "replies")
    for events, reply in found:
        equal([e["id"] for e in events], reply["ids"], "ids")
        equal("".join(e["text"] for e in events), reply["text"], "text")
        check(reply["finish_reason"] in ("eos", "length"), reply)
        check(not reply["text"].startswith((" ", "\n")), f"the space of the template is left: {reply['text']!r}")
    alone = chat("--json")
    equal([(o["role"], o["ids"], o["text"]) for o in alone], [(r["role"], r["ids"], r["text"]) for _, r in found],
          "--json gives the replies alone, the same ones")


def test_stream_of_run():
    (events, reply), = replies_of(nano("--format", "jsonl", "--greedy", "-p", "Once upon"))
    equal([e["id"] for e in events], reply["ids"], "ids")
    equal("".join(e["text"] for e in events), reply["text"], "text")
    check(reply["text"].startswith(" "), "a continuation keeps the space it begins with")
    equal((reply["role"], reply["finish_reason"]), ("assistant", "length"), "the object")
    one, = nano("--json", "--greedy", "-p", "Once upon")
    equal((one["ids"], one["text"]), (reply["ids"], reply["text"]), "--json")
    answer, = nano("--json", "--template", "auto", "-p", "Hello!")
    check(not answer["text"].startswith(" "), "with a template the text has no space before it")


def test_finish_reasons():
    free, = nano("--json", "--greedy", "-p", "Once upon a time")
    prompt = ("-p", "Once upon a time", "--json", "--greedy")
    for reason, args in (("length", ()), ("length", ("--ctx", "16")), ("stop", ("--stop", free["text"][6:10])),
                         ("stop", ("--stop-id", str(free["ids"][3])))):
        equal(nano(*prompt, *args)[0]["finish_reason"], reason, f"{args}")
    said = nano("--json", "--greedy", "-n", "60", "-p", "User: Tell me a story.<|eot_id|>Assistant:")
    equal(said[0]["finish_reason"], "eos", "ended by itself")


def test_logprobs():
    (events, reply), = replies_of(nano("--format", "jsonl", "--logprobs", "3", "--greedy", "-p", "Once upon a time"))
    check("logprobs" not in reply, "in a stream they stand in the events")
    for e in events:
        top = e["top_logprobs"]
        equal((len(top), top[0]["id"], top[0]["logprob"]), (3, e["id"], e["logprob"]), "the greedy choice is the best one")
        check(0 >= top[0]["logprob"] >= top[1]["logprob"] >= top[2]["logprob"], f"the best come first: {top}")
        check(sum(math.exp(t["logprob"]) for t in top) <= 1 + 1e-6, f"more than certain: {top}")
        check(isinstance(top[0]["text"], str), top)
    whole = nano("--json", "--logprobs", "512", "--greedy", "-n", "2", "-p", "Once upon a time")[0]["logprobs"]
    equal([w["id"] for w in whole], [e["id"] for e in events[:2]], "one object holds them too")
    for step in whole:
        check(abs(sum(math.exp(t["logprob"]) for t in step["top_logprobs"]) - 1) < 1e-5, "all together are certain")
    equal(nano("--json", "--logprobs", "0", "-n", "1", "-p", "Once")[0]["logprobs"][0]["top_logprobs"], [], "only the token's own")
    hot, = nano("--json", "--logprobs", "0", "-n", "1", "--greedy", "--repetition-penalty", "3", "-p", "Once upon a time")
    equal(hot["logprobs"][0]["logprob"] <= events[0]["logprob"], True, "the model's own numbers, whatever the sampler does")
    check("logprob" in chat("--format", "jsonl", "--logprobs", "1")[0], "in chat too")
    for command in ("run", "chat"):
        fails(2, command, "-m", model("nano"), "--logprobs", "3", says="--logprobs: .*add --json or --format jsonl")


def test_logprobs_change_nothing():
    plain, asked = (nano("--json", *x, "-p", "Once upon a time")[0]["ids"] for x in ((), ("--logprobs", "5")))
    equal(plain, asked, "ids")


def test_broken_characters():
    """Tokens that are parts of characters, in an order that gives no text: still JSON, and nothing is lost."""
    for seed in range(3):
        stream = nano("--format", "jsonl", "-s", str(seed), "-n", "200", "--temperature", "50", "--top-k", "0", "--top-p", "1",
                      "--ignore-eos", "-p", "x")
        (events, reply), = replies_of(stream)
        equal([e["id"] for e in events], reply["ids"], "ids")
        equal("".join(e["text"] for e in events), reply["text"], "text")
        check("\ufffd" in reply["text"], "no broken character came up")


def test_events_come_as_they_are_made():
    p = start("run", "-m", model("nano"), "--format", "jsonl", "-n", "1000000", "--ignore-eos", "--ctx", "4096", "--no-warnings",
              "-p", "Once", stdout=subprocess.PIPE, bufsize=0)
    first = p.stdout.readline()
    equal(json.loads(first)["event"], "token", "the first line")
    p.send_signal(signal.SIGINT)
    out, _ = p.communicate(timeout=60)
    stream = [json.loads(line) for line in (first + out).decode().splitlines()]
    (events, reply), = replies_of(stream)
    equal((p.returncode, reply["finish_reason"]), (130, "cancelled"), "the reply ends the stream")
    equal([e["id"] for e in events if e["id"] is not None], reply["ids"], "ids")
    equal("".join(e["text"] for e in events), reply["text"], "text")


def test_closed_reader():
    p = start("run", "-m", model("nano"), "--format", "jsonl", "-n", "1000000", "--ignore-eos", "--ctx", "4096", "--no-warnings",
              "-p", "Once", stdout=subprocess.PIPE)
    os.read(p.stdout.fileno(), 1)
    p.stdout.close()
    p.stdout = None
    _, err = p.communicate(timeout=60)
    equal((p.returncode, err), (141, b""), "a quiet end")


if __name__ == "__main__":
    main(globals())
