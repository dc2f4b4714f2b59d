#!/usr/bin/env python3
"""Whether somebody else has sent the same prompt cannot be told from the time to the first token: what a key computed is found
again by that key alone, unless --share-prefixes was given. Work is counted (cached tokens of the reply, prefix hits of /metrics)
and time is measured; a prefix that was found would be seen in both."""
import http.client
import json
import random
import statistics
import time

from serving import SLOW, Server, check, equal, main, model

MODEL, N_PROMPT = ("nano", 200) if SLOW else ("story", 900)  # with a sanitizer work is counted, and times say nothing
TRIES = 3  # a machine that does other things may disturb one; what can be told would be told each time
KEYS = ("key-of-ann", "key-of-bob")


def prompt(rng):
    return [rng.randrange(300, 500) for _ in range(N_PROMPT)]


def first_token(server, key, ids):
    """(seconds to the first token, tokens of the prompt that were found in the cache)."""
    body = json.dumps({"prompt": ids, "max_tokens": 1, "stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True})
    connection = http.client.HTTPConnection(server.host, server.port, timeout=120)
    began = time.monotonic()
    connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json", "Authorization": f"Bearer {key}"})
    reply = connection.getresponse()
    equal(reply.status, 200, "status")
    while not reply.readline().startswith(b"data: {"):
        pass
    took = time.monotonic() - began
    usage = [json.loads(line[6:])["usage"] for line in reply.read().split(b"\n") if b'"usage": {' in line or b'"usage":{' in line]
    connection.close()
    equal((len(usage), usage[0]["prompt_tokens"]), (1, N_PROMPT), "usage")
    return took, usage[0]["prompt_tokens_details"]["cached_tokens"]


def measure(server, seed, rounds):
    """Medians of (a prompt that nobody sent, the other key's, the own): seconds; and the most and least that were found of each."""
    rng = random.Random(seed)
    ann, bob = KEYS
    took, found = {"new": [], "other": [], "own": []}, {"new": [], "other": [], "own": []}
    for _ in range(rounds):
        known = prompt(rng)
        first_token(server, ann, known)
        asked = [("new", bob, prompt(rng)), ("other", bob, known), ("own", ann, known)]
        rng.shuffle(asked)
        for name, key, ids in asked:
            seconds, n = first_token(server, key, ids)
            took[name].append(seconds)
            found[name].append(n)
    return {k: statistics.median(v) for k, v in took.items()}, {k: (min(v), max(v)) for k, v in found.items()}


def judged(server, rounds, ok):
    """Measures until ok(medians) holds, TRIES times at most; what was found in the cache must be right each time."""
    for seed in range(TRIES):
        took, found = measure(server, seed, rounds)
        print("      " + ", ".join(f"{k} {1e3 * v:.1f} ms" for k, v in took.items()) + f"; cached {found}", flush=True)
        yield found
        if SLOW or ok(took):
            return
    check(False, f"{TRIES} times: {took}")


def serving(*more):
    return Server("--model", model(MODEL), "--api-key", KEYS[0], "--api-key", KEYS[1], "--no-log-requests", *more)


def hits(server):
    _, _, body = server.get("/metrics", headers={"Authorization": f"Bearer {KEYS[0]}"})
    return sum(float(line.rsplit(" ", 1)[1]) for line in body.decode().splitlines() if line.startswith("bitnet_prefix_hits_total"))


def test_anothers_prefix_cannot_be_told():
    with serving() as server:
        n = 0
        for found in judged(server, 7, lambda t: abs(t["other"] / t["new"] - 1) <= 0.25 and t["own"] < t["new"] / 3):
            n += 1
            equal((found["new"], found["other"]), ((0, 0), (0, 0)), "tokens that another key's prompt was found to have in common")
            check(found["own"][0] >= N_PROMPT * 8 // 10, f"the own prefix was not found: {found}")
        equal(hits(server), n * 7, "prefix hits: the own ones alone")


def test_prefixes_that_are_shared_are_found():
    with serving("--share-prefixes") as server:
        for found in judged(server, 3, lambda t: t["other"] < t["new"] / 3):
            equal(found["new"], (0, 0), "of a new prompt")
            check(found["other"][0] >= N_PROMPT * 8 // 10, f"another key's prefix was not found: {found}")


if __name__ == "__main__":
    main(globals())
