#!/usr/bin/env python3
"""bench --server and --serve: what the load generator counts is what the server counted. Times are never judged."""
import json
import re

from serving import Server, check, equal, expect, main, model
from harness import fails
from soak import figures, total


def load(server, *args):
    return json.loads(expect(0, "bench", "--server", server.url, "--duration", "1", "--json", *args).out)


def test_closed_loop():
    with Server("--model", model("nano"), "--no-log-requests") as s:
        got = load(s, "--streams", "3", "--prompt-tokens", "20", "--new-tokens", "7")
        found = figures(s)
    check(got["requests"] >= 3 and got["failed"] == 0, f"{got}")
    equal(got["tokens"], 7 * got["requests"], "tokens")
    equal(total(found, "bitnet_tokens_generated_total"), got["tokens"], "tokens as the server counted")
    equal(total(found, "bitnet_prompt_tokens_total"), 20 * got["requests"], "prompt tokens")
    equal(total(found, "bitnet_prefix_hits_total"), 0, "prompts that began alike")
    equal(found["bitnet_time_to_first_token_seconds_count"], got["requests"], "first tokens")
    equal(found["bitnet_time_per_token_seconds_count"], 6 * got["requests"], "other tokens")
    equal(found["bitnet_inference_duration_seconds_count"], got["requests"], "jobs")
    equal(found["bitnet_model_load_duration_seconds_count"], 1, "loads")
    check(0 < got["first_p50_ms"] <= got["first_p99_ms"] and 0 <= got["token_p50_ms"] <= got["token_p99_ms"], f"{got}")
    check(0 <= got["client_cpu_s"] < 2 and got["streams_tok_s"] > 0, f"{got}")


def test_open_loop():
    with Server("--model", model("nano"), "--no-log-requests") as s:
        got = load(s, "--rate", "20", "--new-tokens", "2")
    check(18 <= got["requests"] <= 21 and got["loop"] == "open", f"{got}")


def test_keys():
    with Server("--model", model("nano"), "--api-key", "secret", "--no-log-requests") as s:
        equal(load(s, "--api-key", "secret", "--streams", "1", "--new-tokens", "2")["failed"], 0, "failed")
        fails(5, "bench", "--server", s.url, "--duration", "1", says="wants an API key")
    fails(5, "bench", "--server", s.url, "--duration", "1", says="no connection")
    fails(2, "bench", "--server", "https://x", says="only http")


def test_own_server():
    got = json.loads(expect(0, "bench", "--serve", "--model", model("nano"), "--repeat", "1", "--json").out)
    for name in ("pp128_tok_s", "bt16_tok_s", "stream1_tok_s", "stream16_tok_s", "long_alone_ms", "long_among_ms", "prefix_first_ms",
                 "prefix_again_ms", "others_p50_ms"):
        check(got[name] > 0, f"{name}: {got}")
    verdicts = {v["name"]: v for v in got["verdicts"]}
    ratios = {"bt16_of_pp128": (got["bt16_of_pp128"], 0.7, True), "stream16_of_bt16": (got["stream16_of_bt16"], 0.9, True),
              "stream16_of_stream1": (got["stream16_of_stream1"], (1.7, 2.5), True),
              "others_gap": (got["others_during_p99_ms"] / got["others_p50_ms"], 5, False),
              "long_prompt": (got["long_among_ms"] / got["long_alone_ms"], 1.5, False),
              "prefix": (got["prefix_first_ms"] / got["prefix_again_ms"], 10, True), "http_adds": (got["http_adds"], 0.15, False)}
    equal(sorted(verdicts), sorted(ratios), "promises on a CPU")
    for name, (value, bound, least) in ratios.items():
        v = verdicts[name]
        check(abs(v["value"] - value) < 1e-6 * abs(value) + 1e-9 and v["bound"] in (bound if isinstance(bound, tuple) else (bound,)), f"{v}: {value}")
        equal((v["is"], v["ok"]), ("at least", value >= v["bound"]) if least else ("at most", value <= v["bound"]), f"the verdict {v}")


def test_own_server_as_text():
    told = expect(0, "bench", "--serve", "--model", model("nano"), "--repeat", "1").out
    lines = re.findall(r"^(.{36}) +(-?[0-9.]+)  at (least|most ) ([0-9.]+) +(ok|missed)$", told, re.M)
    equal(len(lines), 7, f"verdicts in {told}")
    for text, value, how, bound, said in lines:
        good = float(value) >= float(bound) if how == "least" else float(value) <= float(bound)
        check(float(value) == float(bound) or good == (said == "ok"), f"{text}: {value}, {how} {bound}: {said}")
    check(f"\n{sum(line[4] == 'ok' for line in lines)} of 7 bounds hold\n" in told, told)


if __name__ == "__main__":
    main(globals())
