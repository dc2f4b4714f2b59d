#!/usr/bin/env python3
"""bitnet batch: the OpenAI batch format in and out, through the server's handlers; a killed batch goes on and loses nothing."""
import json
import os
import signal
import subprocess
import time

from serving import SLOW, check, equal, expect, main, model, run, temp, write
from harness import fails, start

N = 40


def request(i, **body):
    return {"custom_id": f"c{i}", "method": "POST", "url": "/v1/completions",
            "body": {"prompt": f"The number {i} is", "max_tokens": 8, "temperature": 0, **body}}


def lines(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def batch(*args, code=0):
    return expect(code, "batch", *args, "--model", model("nano"), "--json").json()


def requests(n, **body):
    return write("in.jsonl", "".join(json.dumps(request(i, **body)) + "\n" for i in range(n)))


def fresh(name):
    if os.path.exists(temp(name)):
        os.remove(temp(name))
    return temp(name)


def text(result):
    return result["response"]["body"]["choices"][0]["text"]


def test_all_apis():
    out = fresh("out.jsonl")
    chat = {"custom_id": "chat", "method": "POST", "url": "/v1/chat/completions",
            "body": {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}}
    embed = {"custom_id": "embed", "method": "POST", "url": "/v1/embeddings", "body": {"input": ["Hello", "you"]}}
    wrong = request(3, max_tokens=-5)
    path = write("in.jsonl", "".join(json.dumps(x) + "\n" for x in (chat, request(1), embed, wrong)) + "junk\n")
    said = batch(path, out)
    equal((said["answered"], said["failed"], said["known"]), (3, 2, 0), "counts")
    got = {r["custom_id"]: r for r in lines(out)}
    equal(set(got), {"chat", "c1", "embed", "c3", None}, "custom ids")
    for name in ("chat", "c1", "embed"):
        equal((got[name]["response"]["status_code"], got[name]["error"]), (200, None), name)
        check(got[name]["response"]["request_id"].startswith("req_") and got[name]["id"].startswith("batch_req_"), f"{got[name]}")
    equal(got["chat"]["response"]["body"]["object"], "chat.completion", "chat")
    equal(len(got["embed"]["response"]["body"]["data"]), 2, "vectors")
    equal(got["c3"]["response"]["status_code"], 400, "a wrong field")
    equal(got[None]["response"], None, "a line that is no request")
    check("line 5" in got[None]["error"]["message"], f"{got[None]}")


def test_lines_that_are_lists():
    """Lines that want many places each have them at any --parallel, and none of their work is done twice."""
    for parallel in ("1", "4"):
        path = write("in.jsonl", "".join(json.dumps({
            "custom_id": f"e{i}", "method": "POST", "url": "/v1/embeddings", "body": {"input": [f"text {k}" for k in range(40)]}}) + "\n" for i in range(6)))
        out = fresh("out.jsonl")
        equal(batch(path, out, "--parallel", parallel)["answered"], 6, f"--parallel {parallel}: lists of texts")
        check(all(len(r["response"]["body"]["data"]) == 40 for r in lines(out)), "vectors")
        out = fresh("out.jsonl")
        path = write("in.jsonl", "".join(json.dumps(request(i, n=8)) + "\n" for i in range(3)))
        equal(batch(path, out, "--parallel", parallel)["answered"], 3, f"--parallel {parallel}: eight answers")
        check(all(len(r["response"]["body"]["choices"]) == 8 for r in lines(out)), "answers")


def test_zero_characters():
    """A grammar can make a model write U+0000: the answer is kept, and known when the batch is run again."""
    path, out = requests(1, grammar='root ::= "a\\x00b"'), fresh("out.jsonl")
    batch(path, out)
    equal(text(lines(out)[0]), "a\0b", "the answer")
    equal(batch(path, out)["known"], 1, "lines that were there")


def test_same_words_as_run():
    """Greedy answers are those of the command alone, however many are computed together."""
    out = fresh("out.jsonl")
    batch(requests(12), out)
    for r in lines(out):
        i = int(r["custom_id"][1:])
        alone = run("run", "--model", model("nano"), "--greedy", "-n", "8", "--quiet", f"The number {i} is").out
        equal(text(r), alone.rstrip("\n") if not text(r).endswith("\n") else alone, r["custom_id"])


def test_resumes_and_shards():
    whole, parts = fresh("whole.jsonl"), fresh("parts.jsonl")
    path = requests(N)
    batch(path, whole)
    equal(batch(path, whole)["known"], N, "lines that were there")
    for i in (1, 2, 3):
        batch(path, parts, "--shard", f"{i}/3")
    equal({r["custom_id"]: text(r) for r in lines(parts)}, {r["custom_id"]: text(r) for r in lines(whole)}, "shards together")


def test_killed_batches_go_on():
    """kill -9 in mid-work, several times: what was written stays, nothing is computed twice, nothing is missing."""
    n = 60 if SLOW else 300
    path, out = requests(n, max_tokens=24, ignore_eos=True), fresh("out.jsonl")
    kept, kills = [], 0
    for _ in range(6):
        p = start("batch", path, out, "--model", model("nano"), "--parallel", "4")
        had, end = len(kept), time.monotonic() + 60
        while p.poll() is None and time.monotonic() < end:
            if os.path.exists(out):
                with open(out, "rb") as f:
                    if f.read().count(b"\n") >= had + n // 12:
                        break
            time.sleep(0.002)
        if p.poll() is None:
            p.send_signal(signal.SIGKILL)
            kills += 1
        p.communicate()
        with open(out, "rb") as f:
            now = [x for x in f.read().split(b"\n")[:-1]]
        equal(now[:had], kept, "what was acknowledged")
        kept = now
    check(kills >= 3, f"it was killed {kills} times")
    with open(out, "ab") as f:
        f.write(b'{"id":"batch_req_1","custom')  # a line that was cut
    said = batch(path, out)
    equal(said["known"], len(kept), "lines that were not computed again")
    ids = [r["custom_id"] for r in lines(out)]
    equal(len(ids), n, "results")
    equal(set(ids), {f"c{i}" for i in range(n)}, "custom ids")
    with open(out, "rb") as f:
        equal(f.read().split(b"\n")[:len(kept)], kept, "what was acknowledged")


def test_interrupted():
    path, out = requests(400, max_tokens=64, ignore_eos=True), fresh("out.jsonl")
    p = start("batch", path, out, "--model", model("nano"), "--parallel", "4")
    while not os.path.exists(out) or not os.path.getsize(out):
        time.sleep(0.01)
    p.send_signal(signal.SIGINT)
    _, err = p.communicate(timeout=60)
    equal(p.returncode, 130, f"exit code ({err})")
    check(all(r["response"]["status_code"] == 200 for r in lines(out)), "a cancelled request was written as an answer")


def takers(p):
    """The threads of a program to which SIGTERM may go."""
    found = []
    for thread in os.listdir(f"/proc/{p.pid}/task"):
        with open(f"/proc/{p.pid}/task/{thread}/status", encoding="ascii") as f:
            held = next(int(line.split()[1], 16) for line in f if line.startswith("SigBlk:"))
        found += [] if held >> (signal.SIGTERM - 1) & 1 else [thread]
    return found


def test_interrupted_while_nothing_comes():
    """A pipe whose writer says nothing more."""
    out = fresh("out.jsonl")
    p = start("batch", "-", out, "--model", model("nano"), stdin=subprocess.PIPE)
    p.stdin.write(json.dumps(request(1)).encode() + b"\n")
    p.stdin.flush()
    while not os.path.exists(out) or not os.path.getsize(out):
        time.sleep(0.01)
    check(len(takers(p)) < 6, f"threads that take a signal: {takers(p)}")  # the first, those of the model, a sanitizer's
    p.send_signal(signal.SIGTERM)
    try:
        code = p.wait(timeout=30)
    finally:
        p.kill()
        p.communicate()
    check(code in (130, 143), f"exit code {code}")
    equal(len(lines(out)), 1, "results")


def test_a_mark_of_the_editor():
    """A file may begin with a byte order mark, and its lines end as elsewhere."""
    path = write("marked.jsonl", "\ufeff" + "".join(json.dumps(request(i)) + "\r\n" for i in range(2)))
    out = fresh("out.jsonl")
    batch(path, out)
    equal(sorted((r["custom_id"], r["error"]) for r in lines(out)), [("c0", None), ("c1", None)], "results")


def test_refuses():
    path = requests(2)
    fails(2, "batch", path, fresh("o"), "--shard", "5/4", says="--shard: '5/4'")
    fails(5, "batch", temp("absent"), fresh("o"), "--model", model("nano"), says="absent: cannot be read")
    mine = write("mine.txt", "my notes\nand more\n")
    fails(2, "batch", path, mine, "--model", model("nano"), says="mine.txt: line 1 is no result")
    fails(2, "batch", path, path, "--model", model("nano"), says="is the input, too")
    fails(2, "batch", path, "-", "--model", model("nano"), says="results go to a file")
    check(not os.path.exists("-"), "a file called -")
    pipe = fresh("pipe")
    os.mkfifo(pipe)
    fails(2, "batch", pipe, fresh("o"), "--model", model("nano"), says="pipe: is no regular file", timeout=30)
    fails(2, "batch", path, pipe, "--model", model("nano"), says="pipe: is a pipe", timeout=30)
    fails(2, "batch", "/dev/null", fresh("o"), "--model", model("nano"), says="is no regular file")
    with open(mine, encoding="utf-8") as f:
        equal(f.read(), "my notes\nand more\n", "somebody's file")
    for note in ("my notes, a whole line\n", "my notes"):
        out = fresh("out.jsonl")
        batch(path, out)
        with open(out, "a", encoding="utf-8") as f:
            f.write(note)
        fails(2, "batch", path, out, "--model", model("nano"), says="out.jsonl: line 3 is no result")
        with open(out, encoding="utf-8") as f:
            check(f.read().endswith(note), "somebody's line was removed")


if __name__ == "__main__":
    main(globals())
