#!/usr/bin/env python3
"""The OpenAI APIs as the `openai` client of PyPI sees them: chat, completions, responses, embeddings, models; whole and
streamed; log-probabilities, structured output, tools, errors. What is said is compared with `bitnet run` and `bitnet score`."""
import base64
import json
import math
import os
import re
import struct
import threading
import time

from serving import SLOW, SOURCE, Server, check, equal, main, model, packages, run, temp

packages("openai")
import openai  # noqa: E402

from retemplate import HERMES, XML, retemplate  # noqa: E402

STORY = "Once upon a time"
ASK = [{"role": "user", "content": "What is 7 + 5?"}]
ADD = {"type": "function", "function": {
    "name": "add", "description": "Adds two numbers.",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                   "required": ["a", "b"], "additionalProperties": False}}}
_started = {}


def server(name="story"):
    """One server for all tests of a model."""
    if name not in _started:
        path = model("story") if name == "story" else retemplate(model("story"), temp(f"{name}.gguf"), {"tools": HERMES, "xml": XML}[name])
        _started[name] = Server("-m", path)
    return _started[name]


def client(name="story"):
    return openai.OpenAI(base_url=server(name).url + "/v1", api_key="none", max_retries=0, timeout=120)


def chat(**kw):
    kw = {"model": "story", "messages": ASK, "temperature": 0, "max_tokens": 24} | kw
    return client(kw["model"]).chat.completions.create(**kw)


def complete(**kw):
    kw = {"model": "story", "prompt": STORY, "temperature": 0, "max_tokens": 16} | kw
    return client(kw["model"]).completions.create(**kw)


def refused(kind, says, call, **kw):
    try:
        call(**kw)
    except kind as e:
        check(says in str(e), f"{kw}: the error does not say {says!r}: {e}")
        return e
    raise AssertionError(f"{kw}: was not refused")


# ---- chat ----
def test_chat():
    reply = chat()
    check(reply.id.startswith("chatcmpl-"), reply.id)
    equal(reply.object, "chat.completion", "object")
    equal(reply.model, "story", "model")
    choice = reply.choices[0]
    equal((choice.index, choice.message.role, choice.finish_reason), (0, "assistant", "stop"), "choice")
    check("12" in choice.message.content, f"7 + 5: {choice.message.content!r}")
    usage = reply.usage
    check(usage.prompt_tokens > 5 and usage.completion_tokens > 3, f"usage {usage}")
    equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens, "total")
    check(reply.system_fingerprint.startswith("bitnet-"), "fingerprint")


def test_chat_streamed_is_the_same():
    whole = chat().choices[0].message.content
    chunks = list(chat(stream=True))
    equal(chunks[0].choices[0].delta.role, "assistant", "the first chunk")
    equal("".join(c.choices[0].delta.content or "" for c in chunks), whole, "text")
    equal([c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason], ["stop"], "finish")
    equal({c.id for c in chunks}.__len__(), 1, "ids")


def test_streams_that_wait_say_so():
    """One place, and others have it: the streams begin all the same, and comments come until there is something to tell."""
    with Server("-m", model("story"), "--parallel", "1", "--ping-interval", "0.2") as s:
        long = {"prompt": STORY, "max_tokens": 150 if SLOW else 900, "ignore_eos": True, "priority": "high"}
        threads = [threading.Thread(target=lambda: s.post("/v1/completions", long)) for _ in range(5)]
        for t in threads:
            t.start()
        while s.json("GET", "/v1/stats")["models"][0]["batching"]["queued"] < 4:
            pass
        seen, more = {}, {"stream": True, "priority": "low", "max_tokens": 4}
        asked = {"/v1/chat/completions": {"messages": ASK}, "/v1/completions": {"prompt": STORY}, "/v1/messages": {"model": "story", "messages": ASK},
                 "/v1/responses": {"input": "What is 7 + 5?"}}
        waiting = [threading.Thread(target=lambda p=p, b=b: seen.update({p: s.post(p, b | more)})) for p, b in asked.items()]
        began = time.monotonic()
        for t in waiting:
            t.start()
        for t in threads:
            t.join()
        queued_s = time.monotonic() - began
        for t in waiting:
            t.join()
        for path, (status, _, data) in seen.items():
            n, last = data.count(b":\n\n"), data.rstrip().rsplit(b"\n\n", 1)[-1]
            equal(status, 200, path)
            check(n >= (queued_s - 0.7) / 0.6 - 1, f"{path}: {n} comments while it waited {queued_s:.1f} s: {data[:300]!r}")
            check(b"[DONE]" in last or b"message_stop" in last or b"response.completed" in last or b"response.incomplete" in last, f"{path}: {last!r}")
        check(queued_s < 1.5 or sum(d.count(b":\n\n") for _, _, d in seen.values()) > 0, f"no comments in {queued_s:.1f} s")


def test_stream_usage():
    chunks = list(chat(stream=True, stream_options={"include_usage": True}))
    equal(chunks[-1].choices, [], "choices of the last chunk")
    check(chunks[-1].usage.completion_tokens > 3, f"usage {chunks[-1].usage}")
    check(all(c.usage is None for c in chunks[:-1]), "usage of the others is null")
    events = server().events("/v1/chat/completions", {"messages": ASK, "max_tokens": 2, "stream": True})
    equal(events[-1], (None, "[DONE]"), "the last event")


def test_chat_equals_the_command():
    said = run("run", "-m", model("story"), "--greedy", "-n", "24", "--template", "auto", "--quiet", "-p", "What is 7 + 5?")
    equal(chat().choices[0].message.content.strip(), said.out.strip(), "text of chat and of bitnet run")


def test_completion_equals_the_command():
    said = run("run", "-m", model("story"), "--greedy", "-n", "24", "--quiet", STORY)
    text = complete(max_tokens=24).choices[0].text
    check(said.out.strip().endswith(text.strip()), f"{text!r} is not what bitnet run says: {said.out!r}")
    whole = complete(max_tokens=24, echo=True).choices[0].text
    equal(whole, STORY + text, "echo")


def test_several_choices_and_seeds():
    texts = [c.message.content for c in chat(n=3, temperature=1, seed=5, max_tokens=12,
                                             messages=[{"role": "user", "content": "Tell me a story"}]).choices]
    again = [c.message.content for c in chat(n=3, temperature=1, seed=5, max_tokens=12,
                                             messages=[{"role": "user", "content": "Tell me a story"}]).choices]
    equal(texts, again, "the same seed")
    check(len(set(texts)) > 1, f"three choices say the same: {texts}")
    chunks = list(chat(n=2, temperature=1, seed=5, max_tokens=6, stream=True))
    equal({c.choices[0].index for c in chunks}, {0, 1}, "indices of a stream")


def test_stop():
    whole = complete(max_tokens=32).choices[0].text
    word = whole.split()[4]
    cut = complete(max_tokens=32, stop=[word, "never said"]).choices[0]
    equal((cut.text, cut.finish_reason), (whole[:whole.index(word)], "stop"), "text before the stop string")
    equal(complete(max_tokens=32, stop=word).choices[0].text, cut.text, "one string")
    equal(complete(max_tokens=4).choices[0].finish_reason, "length", "finish")


def test_logit_bias_and_penalties():
    first = complete(max_tokens=1).choices[0].text
    banned = ids_of(STORY + first)[-1]
    check(complete(max_tokens=1, logit_bias={str(banned): -100}).choices[0].text != first, "a banned token is not chosen")
    other = complete(max_tokens=8, frequency_penalty=2, presence_penalty=2, extra_body={"repetition_penalty": 1.5})
    check(other.choices[0].text, "penalties leave a text")
    check(complete(max_tokens=8, logit_bias={"5": -100, "6": 3.5}).choices[0].text is not None, "biases")


def test_penalties_count_what_the_answer_said():
    """OpenAI's presence and frequency do not look at the prompt, whose next token is one of its own here; Ollama's do."""
    again = {"prompt": "Tom had a red ball. " * 5 + "Tom had a red", "max_tokens": 1}
    plain = complete(**again).choices[0].text
    equal(plain, " ball", "what the model goes on with")
    equal(complete(**again, presence_penalty=2, frequency_penalty=2).choices[0].text, plain, "nothing was said yet")
    raw = {"model": "story", "prompt": again["prompt"], "raw": True, "stream": False}
    options = {"temperature": 0, "num_predict": 1}
    equal(server().json("POST", "/api/generate", raw | {"options": options})["response"], plain, "Ollama without penalties")
    hard = options | {"presence_penalty": 2, "frequency_penalty": 2}
    check(server().json("POST", "/api/generate", raw | {"options": hard})["response"] != plain, "Ollama's")
    push = {"max_tokens": 90, "logit_bias": {str(ids_of(again["prompt"] + plain)[-1]): 30}}
    said, less = (complete(**again | push, frequency_penalty=f).choices[0].text.count("ball") for f in (0, 2))
    check(said >= 90 and 10 < less < 60, f"{said} without, {less} with a penalty for each, in more than 64 tokens")


def test_choices_without_a_wish_for_tokens_fit():
    """Eight answers of any length in a cache with room for fewer whole ones are shorter, not refused."""
    with Server("-m", model("story"), "--kv-pool", "24", "--parallel", "8") as s:
        body = {"model": "story", "messages": ASK, "ignore_eos": True, "n": 8}
        r = s.json("POST", "/v1/chat/completions", body)
        equal([c["finish_reason"] for c in r["choices"]], ["length"] * 8, "ends")
        check(8 * 60 < r["usage"]["completion_tokens"] < 8 * 500, f"{r['usage']}")
        e = s.json("POST", "/v1/chat/completions", body | {"max_tokens": 900}, status=400)["error"]
        equal(e["code"], "context_length_exceeded", "a wish that cannot be had is still refused")
    with Server("-m", model("story"), "--parallel", "2") as s:
        e = s.json("POST", "/v1/completions", {"prompt": STORY, "n": 3}, status=400)["error"]
        check(e["param"] == "n" and "1 to 2" in e["message"], f"{e}")


def test_chat_logprobs():
    reply = chat(logprobs=True, top_logprobs=3, max_tokens=8)
    content = reply.choices[0].logprobs.content
    check(len(content) >= 3, f"{len(content)} tokens")
    text = bytes(b for token in content for b in token.bytes).decode()
    equal(text.strip(), reply.choices[0].message.content.strip(), "bytes of the tokens")
    for token in content:
        equal(len(token.top_logprobs), 3, "top")
        check(token.logprob <= 0 and token.top_logprobs[0].logprob == token.logprob, f"greedy takes the best: {token}")
    chunks = list(chat(logprobs=True, top_logprobs=3, max_tokens=8, stream=True))
    streamed = [t.token for c in chunks if c.choices[0].logprobs for t in c.choices[0].logprobs.content]
    equal(streamed, [t.token for t in content], "streamed")


def test_receipt_and_cache():
    long = {"messages": [{"role": "user", "content": "The fox and the dog went home. " * 40}], "max_tokens": 2}
    server().json("POST", "/v1/chat/completions", long)
    status, headers, body = server().post("/v1/chat/completions", long)
    reply = json.loads(body)
    equal((status, reply["receipt"]), (200, headers["x-bitnet-receipt"]), "header and field")
    cached = reply["usage"]["prompt_tokens_details"]["cached_tokens"]
    check(128 <= cached < reply["usage"]["prompt_tokens"], f"the second time {cached} tokens come from the cache: {reply['usage']}")
    end = time.monotonic() + 20
    while server().get("/v1/receipts/" + reply["receipt"])[0] != 200:  # it is written soon after the answer
        check(time.monotonic() < end, "no receipt within 20 s")
        time.sleep(0.1)
    receipt = server().json("GET", "/v1/receipts/" + reply["receipt"])
    check(receipt["kernels"], "kernels")


# ---- completions ----
def test_echo_and_logprobs_score_the_prompt():
    text = "The fox ran home. She was very happy to see her mother."
    score = run("score", "-m", model("story"), "--json", "--quiet", stdin=text.encode()).json()
    for max_tokens in (0, 1):
        choice = complete(prompt=text, echo=True, logprobs=1, max_tokens=max_tokens).choices[0]
        lp = choice.logprobs
        equal(len({len(lp.tokens), len(lp.token_logprobs), len(lp.top_logprobs), len(lp.text_offset)}), 1, "lengths")
        equal(lp.token_logprobs[0], None, "the first token")
        n = len(lp.tokens) - max_tokens
        total = sum(lp.token_logprobs[1:n])
        want = -score["mean_nll"] * (n - 1)
        check(abs(total - want) < 1e-3, f"sum {total}, bitnet score says {want}: {score}")
        check(lp.text_offset == sorted(lp.text_offset) and lp.text_offset[n - 1] < len(text), f"offsets {lp.text_offset}")
        for token, top in zip(lp.token_logprobs[1:], lp.top_logprobs[1:]):
            check(token <= max(top.values()), "the best is the best")


def test_offsets_count_special_tokens_of_the_text():
    for text in ("The fox<|end_of_text|> ran<|begin_of_text|>\u00e9 home.", "<|begin_of_text|>The fox", "<|begin_of_text|><|begin_of_text|>The"):
        choice = complete(prompt=text, echo=True, logprobs=1, max_tokens=1).choices[0]
        lp = choice.logprobs
        first = lp.tokens[0] == "<|begin_of_text|>" and lp.text_offset[:2] == [0, 0]
        for token, at in list(zip(lp.tokens, lp.text_offset))[first:-1]:
            check(token.startswith("bytes:") or text[at:at + len(token)] == token, f"{text}: {token!r} at {at}: {lp.text_offset}")
        equal(lp.text_offset[-1], len(text), f"{text}: the token behind it")
    by_ids = complete(prompt=[791, 4092, 64, 65], echo=True, logprobs=1, max_tokens=1).choices[0]
    lp = by_ids.logprobs
    equal(lp.text_offset, [0, len(lp.tokens[0]), len(lp.tokens[0]), len(lp.tokens[0]) + 1, len(lp.tokens[0]) + 2], "of tokens")


def test_token_prompts():
    ids = ids_of("The fox ran home.")
    by_ids = complete(prompt=ids, echo=True, logprobs=1, max_tokens=1).choices[0]
    by_text = complete(prompt="The fox ran home.", echo=True, logprobs=1, max_tokens=1).choices[0]
    equal(by_ids.logprobs.token_logprobs, by_text.logprobs.token_logprobs, "ids and text")
    equal(len(by_ids.logprobs.tokens), len(ids) + 1, "one element for each token")
    both = complete(prompt=[ids, ids_of("A dog")], max_tokens=4)
    equal([c.index for c in both.choices], [0, 1], "indices")
    equal(both.choices[0].text, complete(prompt=ids, max_tokens=4).choices[0].text, "text")
    many = complete(prompt=["A dog", "A cat"] * 12, n=2, max_tokens=2)
    equal([c.index for c in many.choices], list(range(48)), "24 prompts, two choices each")
    equal(many.choices[0].text, many.choices[4].text, "greedy")


def ids_of(text):
    return run("tokenize", "-m", model("story"), "--json", "--text", text).json()["ids"]


def test_completion_streamed():
    whole = complete(max_tokens=12, echo=True, logprobs=2).choices[0]
    chunks = list(complete(max_tokens=12, echo=True, logprobs=2, stream=True))
    equal("".join(c.choices[0].text for c in chunks), whole.text, "text")
    tokens = [t for c in chunks if c.choices[0].logprobs for t in c.choices[0].logprobs.tokens]
    equal(tokens, whole.logprobs.tokens, "tokens")


def test_offsets_do_not_depend_on_stops():
    plain = complete(logprobs=0, max_tokens=12).choices[0]
    word = plain.text.split()[1]
    held = complete(logprobs=0, max_tokens=12, stop=[word[-3:] + plain.text.split(word)[1][:2] + "QQQ"]).choices[0]
    equal((held.text, held.logprobs.text_offset), (plain.text, plain.logprobs.text_offset), "offsets")
    for choice in (plain, held):
        ends = choice.logprobs.text_offset[1:] + [len(choice.text)]
        equal([choice.text[a:b] for a, b in zip(choice.logprobs.text_offset, ends)], choice.logprobs.tokens, "tokens")


def test_offsets_of_bytes_that_are_no_character():
    ids = server().json("POST", "/tokenize", {"content": "\u00ff"})["tokens"]
    forced = complete(logprobs=0, max_tokens=4, logit_bias={str(ids[-1]): 100}).choices[0]
    equal((forced.text, forced.logprobs.text_offset), ("\ufffd" * 4, [0, 1, 2, 3]), f"{forced}")
    echoed = complete(prompt=ids[-1:] * 3 + server().json("POST", "/tokenize", {"content": "abc"})["tokens"], logprobs=0, max_tokens=1, echo=True).choices[0]
    equal((echoed.text[:3], echoed.logprobs.text_offset[:4]), ("\ufffd" * 3, [0, 1, 2, 3]), f"{echoed}")


def test_a_schema_is_read_in_proportion_to_its_length():
    for body in ({"enum": [1] * 30000 + ["a" * 200000]}, {"enum": [0.1] * 30000}):
        begun = time.monotonic()
        refused(openai.BadRequestError, "", chat, response_format=schema_format(body))
        check(time.monotonic() - begun < 10, f"{time.monotonic() - begun:.1f} s")


def test_the_token_that_came_is_among_the_likeliest():
    for n in (0, 1, 5):
        lp = complete(logprobs=n, temperature=2, top_p=1, seed=3, max_tokens=12, echo=True).choices[0].logprobs
        for token, logprob, top in list(zip(lp.tokens, lp.token_logprobs, lp.top_logprobs))[1:]:
            check(top[token] >= logprob - 1e-9 and n <= len(top) <= n + 1 or n == 0 and len(top) == 1, f"{token!r} {logprob} {top}")


# ---- responses ----
def respond(**kw):
    kw = {"model": "story", "input": "What is 7 + 5?", "temperature": 0, "max_output_tokens": 24} | kw
    return client(kw["model"]).responses.create(**kw)


def test_responses():
    reply = respond()
    equal((reply.object, reply.status, reply.store), ("response", "completed", False), "reply")
    equal(reply.output_text, chat().choices[0].message.content, "text")
    equal((reply.output[0].type, reply.output[0].role), ("message", "assistant"), "item")
    check(reply.usage.input_tokens > 5 and reply.usage.total_tokens > reply.usage.input_tokens, f"{reply.usage}")
    items = [{"role": "user", "content": [{"type": "input_text", "text": "What is 7 + 5?"}]}]
    equal(respond(input=items).output_text, reply.output_text, "items")
    short = respond(max_output_tokens=2)
    equal((short.status, short.incomplete_details.reason), ("incomplete", "max_output_tokens"), "cut short")
    check(reply.completed_at >= reply.created_at and short.completed_at is None, "when it was complete")


def test_responses_tell_their_settings():
    reply = respond(top_logprobs=2, extra_body={"presence_penalty": 0.5, "frequency_penalty": 0.25}).model_dump()
    want = {"top_logprobs": 2, "presence_penalty": 0.5, "frequency_penalty": 0.25, "max_tool_calls": None, "service_tier": "default",
            "safety_identifier": None, "prompt_cache_key": None}
    equal({k: reply.get(k, "absent") for k in want}, want, "settings")


def test_responses_streamed():
    want = ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
            "response.output_text.delta", "response.output_text.done", "response.content_part.done",
            "response.output_item.done", "response.completed"]
    events = list(respond(stream=True))
    seen = [e.type for i, e in enumerate(events) if i == 0 or events[i - 1].type != e.type]
    equal(seen, want, "order")
    equal([e.sequence_number for e in events], list(range(len(events))), "numbers")
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    equal(text, events[-1].response.output_text, "text")
    equal(text, respond().output_text, "the same as whole")


def test_responses_have_the_logprobs_of_tokens_without_text():
    """A character of several tokens is shown with the last of them."""
    ask = {"include": ["message.output_text.logprobs"], "extra_body": {"grammar": 'root ::= "\U0001f98a!"'}}
    part = respond(**ask).output[0].content[0]
    check(len(part.logprobs) > 3, f"{part.logprobs}")
    equal(bytes(b for t in part.logprobs for b in t.bytes).decode().strip(), part.text.strip(), "bytes of the tokens")
    events = [e for e in respond(stream=True, **ask) if e.type == "response.output_text.delta"]
    equal([t.token for e in events for t in e.logprobs], [t.token for t in part.logprobs], "streamed")


def test_responses_keep_nothing():
    refused(openai.BadRequestError, "previous_response_id", respond, previous_response_id="resp_1")
    refused(openai.BadRequestError, "item of type", respond, input=[{"type": "computer_call", "id": "x"}])
    told = [{"role": "user", "content": "What is 7 + 5?"}]
    refused(openai.BadRequestError, "store set to false", respond, input=[{"type": "item_reference", "id": "msg_1"}] + told)
    thought = respond(input=[{"type": "item_reference", "id": "rs_1"}] + told)
    equal(thought.output_text, respond(input=told).output_text, "a reference to a thought is one left out")


# ---- embeddings and models ----
def test_embeddings():
    c = client()
    floats = c.embeddings.create(model="story", input=["A fox", "A dog", "Numbers and sums"], encoding_format="float").data
    packed = c.embeddings.create(model="story", input="A fox").data[0].embedding
    equal(len(floats), 3, "vectors")
    check(max(abs(a - b) for a, b in zip(floats[0].embedding, packed)) < 1e-6, "base64 and floats")
    check(abs(sum(v * v for v in packed) - 1) < 1e-5, "length 1")
    short = c.embeddings.create(model="story", input="A fox", dimensions=16).data[0].embedding
    norm = math.sqrt(sum(v * v for v in packed[:16]))
    check(max(abs(a / norm - b) for a, b in zip(packed[:16], short)) < 1e-5, "cut and made 1 long again")
    last = c.embeddings.create(model="story", input="A fox", extra_body={"pooling": "last"}).data[0].embedding
    refused(openai.BadRequestError, 'mean or last, not', c.embeddings.create, model="story", input="A fox", extra_body={"pooling": "max"})
    check(max(abs(a - b) for a, b in zip(packed, last)) > 1e-3, "mean and last differ")
    by_ids = c.embeddings.create(model="story", input=[ids_of("A fox")]).data[0].embedding
    check(max(abs(a - b) for a, b in zip(packed, by_ids)) < 1e-6, "ids")
    raw = server().json("POST", "/v1/embeddings", {"input": "A fox", "encoding_format": "base64"})["data"][0]["embedding"]
    check(abs(struct.unpack_from("<f", base64.b64decode(raw))[0] - packed[0]) < 1e-6, "little endian")
    refused(openai.BadRequestError, "dimensions", c.embeddings.create, model="story", input="x", dimensions=10 ** 6)


def test_models():
    c = client()
    listed = c.models.list().data
    equal([(m.id, m.object, m.owned_by, m.state) for m in listed], [("story", "model", "bitnet", "loaded")], "list")
    one = c.models.retrieve("story")
    check(one.meta["n_vocab"] > 1000 and one.meta["n_ctx"] > 0 and one.meta["n_params"] > 10 ** 6, f"{one.meta}")
    refused(openai.NotFoundError, "nothing", c.models.retrieve, model="nothing")
    raw = server().json("GET", "/v1/models")
    equal((raw["has_more"], raw["first_id"], raw["last_id"]), (False, "story", "story"), "what Anthropic's list has")


# ---- errors ----
def test_errors_name_field_and_range():
    bad = openai.BadRequestError
    for says, kw in [("temperature", {"temperature": 3}), ("top_p", {"top_p": -1}), ("max_tokens", {"max_tokens": 0}),
                     ("n", {"n": 0}), ("n", {"n": 10 ** 9}), ("top_logprobs", {"logprobs": True, "top_logprobs": 21}),
                     ("top_logprobs", {"top_logprobs": 2}), ("stop", {"stop": ["x"] * 17}), ("stop", {"stop": ["x" * 257]}),
                     ("logit_bias", {"logit_bias": {"x": 1}}), ("logit_bias", {"logit_bias": {"99999999": 1}}),
                     ("messages", {"messages": []}), ("role", {"messages": [{"role": "king", "content": "x"}]}),
                     ("image_url", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}),
                     ("seed", {"seed": "x"}), ("frequency_penalty", {"frequency_penalty": 2.5}),
                     ("response_format", {"response_format": {"type": "xml"}}),
                     ("min_p", {"extra_body": {"min_p": 2}}), ("top_k", {"extra_body": {"top_k": -7}}),
                     ("priority", {"extra_body": {"priority": "mine"}}), ("functions", {"extra_body": {"functions": [{}]}}),
                     ("tool_choice", {"tool_choice": "required"}), ("max_tokens", {"max_tokens": 2 ** 40})]:
        e = refused(bad, says, chat, **kw)
        equal(e.body["type"], "invalid_request_error", "type")
    for says, kw in [("suffix", {"suffix": "x"}), ("best_of", {"best_of": 3}), ("prompt", {"prompt": []}),
                     ("prompt", {"prompt": [1, -1]}), ("vocabulary", {"prompt": [10 ** 8]}), ("logprobs", {"logprobs": 101}),
                     ("prompt", {"prompt": [[1], "x", 3]})]:
        refused(bad, says, complete, **kw)


def test_what_is_no_message_and_no_tool():
    bad = openai.BadRequestError
    for says, kw in [("content", {"messages": [{"role": "user"}]}), ("content", {"messages": [{"role": "user", "content": None}]}),
                     ("tools", {"tools": ["a"]}), ("tools", {"tools": [{}]}), ("tools", {"tools": [{"type": "function"}]})]:
        refused(bad, says, chat, **kw)
    for says, kw in [("priority must be low, normal, high or critical, not \"urgent\"", {"extra_body": {"priority": "urgent"}}),
                     ("max_tokens must be a whole number from 1 to 2147483647, not \"2\"", {"extra_body": {"max_tokens": "2"}})]:
        check(says in refused(bad, "must be", chat, **kw).body["message"], says)
    e = refused(bad, "this model's maximum context length is 1024 tokens", chat, messages=[{"role": "user", "content": "fox " * 2000}])
    equal(e.code, "context_length_exceeded", "code")
    check(chat(extra_body={"function_call": "none"}, max_tokens=2).choices, "a call that nobody wants")


def test_calls_from_before_there_were_tools():
    turns = [{"role": "user", "content": "x"}, {"role": "assistant", "content": None, "function_call": {"name": "add", "arguments": "{\"a\": 7}"}},
             {"role": "function", "name": "add", "content": "1"}]
    now = [turns[0], {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": turns[1]["function_call"]}]}, turns[2]]
    prompts = [server("tools").json("POST", "/apply-template", {"model": "tools", "messages": m})["prompt"] for m in (turns, now)]
    equal(prompts[0], prompts[1], "the prompt")
    check("add" in prompts[0], prompts[0])
    now[1]["tool_calls"][0]["function"] = {"name": "add", "arguments": "{\"a\": 1, \"a\": 7}"}  # the last counts
    equal(server("tools").json("POST", "/apply-template", {"model": "tools", "messages": now})["prompt"], prompts[0], "a name that comes twice")


def test_the_least_number_of_tokens_is_the_described_one():
    with open(os.path.join(SOURCE, "server", "native", "openapi.json"), encoding="utf-8") as f:
        schemas = json.load(f)["components"]["schemas"]
    for ask, name in ((chat, "ChatRequest"), (complete, "CompletionRequest")):
        least = schemas[name]["properties"]["max_tokens"]["minimum"]
        equal(ask(max_tokens=least).usage.completion_tokens, least, name)
        refused(openai.BadRequestError, "max_tokens", ask, max_tokens=least - 1)


def test_other_errors():
    e = refused(openai.BadRequestError, "context", complete, prompt="fox " * 20000)
    equal(e.code, "context_length_exceeded", "code")
    status, _, body = server().post("/v1/chat/completions", b"{\"messages\": [")
    equal((status, json.loads(body)["error"]["type"]), (400, "invalid_request_error"), "no JSON")
    status, headers, _ = server().post("/v1/chat/completions", {"messages": ASK, "max_tokens": 1})
    check(status == 200 and headers["x-request-id"].startswith("req_"), f"{headers}")


def test_a_deadline_of_its_own():
    events = server().events("/v1/completions", {"model": "story", "prompt": "x", "max_tokens": 900, "ignore_eos": True, "stream": True, "timeout_ms": 3000 if SLOW else 30})
    told = [e["error"] for _, e in events if isinstance(e, dict) and "error" in e]
    equal([(e["type"], e["code"]) for e in told], [("timeout_error", "timeout")], "a deadline in a stream")
    refused(openai.BadRequestError, "timeout_ms", client().embeddings.create, model="story", input="x", extra_body={"timeout_ms": -5})
    refused(openai.BadRequestError, "best_of", complete, n=3, extra_body={"best_of": 1})
    e = refused(openai.APIStatusError, "deadline", complete, max_tokens=500, extra_body={"timeout_ms": 1})
    equal((e.status_code, e.code), (408, "timeout"), "status")
    equal(e.response.headers["x-should-retry"], "false", "it would take as long again")


# ---- structured output ----
def test_json_object():
    for ask in (ASK, [{"role": "user", "content": "Tell me a story about a fox. No JSON please."}]):
        reply = chat(messages=ask, response_format={"type": "json_object"}, temperature=1, seed=3, max_tokens=200)
        if reply.choices[0].finish_reason == "stop":
            check(isinstance(json.loads(reply.choices[0].message.content), dict), reply.choices[0].message.content)
        else:
            check(reply.choices[0].message.content.startswith("{"), reply.choices[0].message.content)


PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0,
          "maximum": 99}, "kind": {"enum": ["fox", "dog"]}}, "required": ["name", "age", "kind"], "additionalProperties": False}


def schema_format(schema):
    return {"type": "json_schema", "json_schema": {"name": "person", "schema": schema, "strict": True}}


def check_person(text):
    person = json.loads(text)
    equal(sorted(person), ["age", "kind", "name"], "members")
    check(isinstance(person["age"], int) and 0 <= person["age"] <= 99 and person["kind"] in ("fox", "dog"), f"{person}")


def test_json_schema():
    """A model that wants to tell a story writes what the schema says, also when it draws."""
    for seed in range(4):
        choice = chat(messages=[{"role": "user", "content": "Tell me a story"}], response_format=schema_format(PERSON),
                      temperature=1.5, seed=seed, max_tokens=120).choices[0]
        equal(choice.finish_reason, "stop", choice.message.content)
        check_person(choice.message.content)
    check_person("".join(c.choices[0].delta.content or "" for c in chat(response_format=schema_format(PERSON), max_tokens=120,
                                                                        stream=True)))
    text = {"format": {"type": "json_schema", "name": "person", "schema": PERSON, "strict": True}}
    check_person(respond(text=text, max_output_tokens=120).output_text)
    refused(openai.BadRequestError, "response_format", chat, response_format=schema_format({"type": "nonsense"}))
    refused(openai.BadRequestError, "response_format", chat, response_format={"type": "json_schema"})


def test_numbers_of_a_schema():
    """Constants keep their digits; a double of many digits loses none."""
    for number in ("0.1", "-2.5e-300", "0.30000000000000004", "1.0", "9223372036854775807"):
        got = chat(response_format=schema_format({"const": json.loads(number)}), max_tokens=60).choices[0].message.content
        equal(got, number, "a constant")
    got = chat(response_format=schema_format({"const": [0.1, 0.30000000000000004, "0.5\\\"1.50", 100.0, 1e22, 7]}), max_tokens=120).choices[0].message.content
    equal(re.findall(r"[-+.\de]+", got), ["0.1", "0.30000000000000004", "0.5", "1.50", "100.0", "1e22", "7"], f"several: {got}")


def test_forced_calls():
    for choice in ("required", {"type": "function", "function": {"name": "add"}}):
        reply = chat(model="tools", tools=[ADD], tool_choice=choice, temperature=1, max_tokens=120).choices[0]
        equal((reply.finish_reason, reply.message.content), ("tool_calls", None), f"{reply}")
        arguments = json.loads(reply.message.tool_calls[0].function.arguments)
        check(sorted(arguments) == ["a", "b"] and all(isinstance(v, int) for v in arguments.values()), f"{arguments}")
    chunks = list(chat(model="tools", tools=[ADD], tool_choice="required", max_tokens=120, stream=True))
    made = [d for c in chunks for d in c.choices[0].delta.tool_calls or []]
    equal(sorted(json.loads("".join(d.function.arguments for d in made))), ["a", "b"], "streamed")


def test_allowed_tools():
    other = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    name = {"type": "function", "function": {"name": "add"}}
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [name]}}
    for seed in range(3):
        reply = chat(model="tools", tools=[other, ADD], tool_choice=allowed, temperature=2, seed=seed, max_tokens=120).choices[0]
        equal(reply.message.tool_calls[0].function.name, "add", f"{reply}")
    allowed["allowed_tools"]["mode"] = "auto"
    check(chat(model="tools", tools=[other, ADD], tool_choice=allowed, max_tokens=4).choices, "auto")
    for wrong in ({"mode": "auto", "tools": [{"type": "function", "function": {"name": "nobody"}}]}, {"mode": "never", "tools": [name]}, {"tools": [name]}):
        refused(openai.BadRequestError, "tool_choice", chat, model="tools", tools=[ADD], tool_choice={"type": "allowed_tools", "allowed_tools": wrong})
    r = server("tools").json("POST", "/v1/responses", {"model": "tools", "input": "add", "max_output_tokens": 120, "tools": [{**ADD["function"], "type": "function"}],
                                                "reasoning": {"effort": "low"}, "max_tool_calls": 3,
                                                "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "add"}]}})
    equal((r["output"][0]["type"], r["output"][0]["name"]), ("function_call", "add"), f"{r}")
    equal((r["reasoning"], r["max_tool_calls"]), ({"effort": "low", "summary": None}, 3), "what was asked for")
    equal(sorted(r["usage"]["input_tokens_details"]), ["cache_write_tokens", "cached_tokens"], "details of the usage")


def tool(name, **parameters):
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", **parameters}}}


def forced(tools, name):
    reply = chat(model="tools", tools=tools, tool_choice={"type": "function", "function": {"name": name}} if name else "required",
                 max_tokens=200).choices[0]
    equal(reply.finish_reason, "tool_calls", f"{reply}")
    return json.loads(reply.message.tool_calls[0].function.arguments)


def test_references_stay_in_their_tool():
    """Definitions of one name in two tools, a tool that contains itself, and values that look like references."""
    unit = {"u": {"$ref": "#/$defs/U"}}
    first = tool("first", properties=unit, required=["u"], additionalProperties=False, **{"$id": "http://x/first", "$defs": {"U": {"const": "metre"}}})
    second = tool("second", properties=unit, required=["u"], additionalProperties=False, **{"$defs": {"U": {"const": "mile"}}})
    only = tool("second", properties={"u": {"$ref": "#/properties/v"}, "v": {"enum": ["mile"]}}, required=["u", "v"],
                additionalProperties=False)
    for tools, want in (([first, second], {"u": "metre"}), ([second, first], {"u": "mile"})):
        equal(forced(tools, tools[0]["function"]["name"]), want, "one tool")
    for seed in range(8):
        reply = chat(model="tools", tools=[first, second], tool_choice="required", temperature=2, seed=seed, max_tokens=200).choices[0]
        made = reply.message.tool_calls[0].function
        equal(json.loads(made.arguments), {"u": {"first": "metre", "second": "mile"}[made.name]}, made.name)
    equal(forced([only], None), {"u": "mile", "v": "mile"}, "a place that is no definition")
    nest = tool("nest", properties={"n": {"enum": [1]}, "inner": {"anyOf": [{"enum": [2]}, {"$ref": "#"}]}}, required=["n", "inner"],
                additionalProperties=False)
    made = forced([nest], None)
    check(made["n"] == 1 and (made["inner"] == 2 or made["inner"]["n"] == 1), f"{made}")
    looks = tool("looks", properties={"$ref": {"const": {"$ref": "#/x"}}}, required=["$ref"], additionalProperties=False)
    equal(forced([looks], None), {"$ref": {"$ref": "#/x"}}, "a value")


def test_stops_are_not_looked_for_in_a_form():
    """A stop string that is part of a value would cut it."""
    choice = chat(response_format=schema_format(PERSON), max_tokens=120, stop=["n", ":"]).choices[0]
    equal(choice.finish_reason, "stop", choice.message.content)
    check_person(choice.message.content)
    text = chat(response_format={"type": "json_object"}, max_tokens=120, stop=["{"]).choices[0].message.content
    check(text.startswith("{"), text)
    choice = chat(model="tools", tools=[ADD], tool_choice="required", max_tokens=120, stop=["a", ":"]).choices[0]
    equal(choice.finish_reason, "tool_calls", f"{choice}")
    equal(sorted(json.loads(choice.message.tool_calls[0].function.arguments)), ["a", "b"], "arguments")


def test_grammar():
    reply = chat(extra_body={"grammar": 'root ::= "yes, " ("sir" | "madam") "!"'}, max_tokens=40)
    check(reply.choices[0].message.content in ("yes, sir!", "yes, madam!"), reply.choices[0].message.content)
    equal(reply.choices[0].finish_reason, "stop", "finish")
    refused(openai.BadRequestError, "grammar", chat, extra_body={"grammar": "root ::= nowhere"})
    for form in ({"response_format": {"type": "json_object"}}, {"response_format": schema_format(PERSON)},
                 {"model": "tools", "tools": [ADD], "tool_choice": "required"}):
        refused(openai.BadRequestError, "grammar", chat, extra_body={"grammar": 'root ::= "yes"'}, **form)


def test_a_bias_that_leaves_nothing_to_a_grammar():
    """At the first token, and at a later one; where the text is whole, it just ends."""
    seven = {str(i): -100 for text in ("7", " 7", "a7") for i in ids_of(text)[-1:]}
    for grammar in ('root ::= "7"', 'root ::= "no" "7"'):
        refused(openai.BadRequestError, "logit_bias", chat, logit_bias=seven, extra_body={"grammar": grammar})
    choice = chat(logit_bias=seven, extra_body={"grammar": 'root ::= "no" "7"?'}).choices[0]
    equal((choice.message.content, choice.finish_reason), ("no", "stop"), "a way around")
    ends = {str(i): -100 for i in range(4090, 4096)}
    choice = chat(logit_bias=ends, extra_body={"grammar": 'root ::= "no"'}).choices[0]
    equal((choice.message.content, choice.finish_reason), ("no", "stop"), "no token to end with")


# ---- tools: a model that is shown them, made to call by a grammar ----
CALL = 'root ::= "Well. " "<tool_call>\\n{\\"name\\": \\"add\\", \\"arguments\\": {\\"a\\": 7, \\"b\\": [5, \\"}\\"]}}\\n</tool_call>"'


def call(**kw):
    kw = {"model": "tools", "tools": [ADD, {"type": "web_search"}], "extra_body": {"grammar": CALL}, "max_tokens": 120} | kw
    return chat(**kw)


def test_a_call_is_taken_apart():
    choice = call().choices[0]
    equal((choice.finish_reason, choice.message.content), ("tool_calls", "Well."), "choice")
    made = choice.message.tool_calls[0]
    check(made.id.startswith("call_"), made.id)
    equal((made.type, made.function.name), ("function", "add"), "call")
    equal(json.loads(made.function.arguments), {"a": 7, "b": [5, "}"]}, "arguments")
    chunks = list(call(stream=True))
    deltas = [d for c in chunks for d in c.choices[0].delta.tool_calls or []]
    equal((deltas[0].index, deltas[0].function.name, deltas[0].type), (0, "add", "function"), "the first delta")
    check(len(deltas) > 3, "arguments come in pieces")
    equal("".join(d.function.arguments for d in deltas), made.function.arguments, "arguments in pieces")
    equal([c.choices[0].finish_reason for c in chunks][-1], "tool_calls", "finish")


def test_what_is_said_around_a_call_is_parted():
    grammar = {"grammar": CALL + ' " done"'}
    choice = call(extra_body=grammar).choices[0]
    equal((choice.finish_reason, choice.message.content, len(choice.message.tool_calls)), ("tool_calls", "Well. done", 1), f"{choice}")
    equal("".join(c.choices[0].delta.content or "" for c in call(extra_body=grammar, stream=True)), "Well. done", "streamed")


def test_a_call_that_was_cut_is_not_whole():
    choice = call(stop=["5,"]).choices[0]
    equal(choice.finish_reason, "length", f"{choice}")
    equal(choice.message.tool_calls[0].function.arguments, '{"a": 7, "b": [', "arguments")
    equal([c.choices[0].finish_reason for c in call(stop=["5,"], stream=True)][-1], "length", "streamed")
    for n in range(1, 12):
        choice = chat(model="tools", tools=[ADD], tool_choice="required", max_tokens=n).choices[0]
        equal((choice.finish_reason, choice.message.content or ""), ("length", ""), f"{n} tokens: {choice}")


def test_an_unknown_tool_is_text():
    choice = call(extra_body={"grammar": CALL.replace("add", "fly")}).choices[0]
    equal((choice.finish_reason, choice.message.tool_calls), ("stop", None), "choice")
    check("<tool_call>" in choice.message.content, choice.message.content)
    choice = call(tool_choice="none").choices[0]
    check("<tool_call>" in choice.message.content and not choice.message.tool_calls, "tool_choice none")


def no_json(text):
    """A grammar of a call with this in the place of its arguments, and what it writes."""
    text = f'<tool_call>{{"name": "add", "arguments": {text}}}</tool_call> z'
    return {"grammar": f"root ::= {json.dumps(text)}"}, text


def test_a_call_that_is_no_json_is_text():
    for broken, told in (("{bad}", "{bad"), ('{"a": 1]}', '{"a": 1'), ('{"a": [1}}', '{"a": [1'), ('{"a": 1,}', '{"a": 1,')):
        grammar, text = no_json(broken)
        choice = call(extra_body=grammar).choices[0]
        equal((choice.finish_reason, choice.message.tool_calls, choice.message.content), ("stop", None, text), f"{choice}")
        chunks = list(call(extra_body=grammar, stream=True))
        deltas = [d for c in chunks for d in c.choices[0].delta.tool_calls or []]
        equal("".join(d.function.arguments for d in deltas), told, "arguments as far as they were told")
        equal([c.choices[0].finish_reason for c in chunks][-1], "length", "no client takes it for a whole call")
        rest = "".join(c.choices[0].delta.content or "" for c in chunks)
        check(text.endswith(rest) and rest.endswith("}</tool_call> z"), f"the rest is text: {rest}")


def test_a_response_with_a_call_that_is_no_json():
    tools = [{"type": "function", "strict": True, **ADD["function"]}]
    grammar, text = no_json("{bad}")
    r = respond(model="tools", input=ASK, tools=tools, extra_body=grammar, max_output_tokens=120)
    equal(([o.type for o in r.output], r.output_text, r.status), (["message"], text, "completed"), f"{r}")
    events = list(respond(model="tools", input=ASK, tools=tools, extra_body=grammar, max_output_tokens=120, stream=True))
    done = [e.item for e in events if e.type == "response.output_item.done"]
    equal([(i.type, i.status) for i in done][0], ("function_call", "incomplete"), f"{done}")
    equal(events[-1].type, "response.incomplete", "the end")


def test_numbers_that_are_too_large_for_64_bits():
    """A model may write them in a call, and then they come back with every request."""
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    for body in ({"tools": [ADD | {"function": ADD["function"] | {"parameters": {"type": "object", "properties": {"a": {"type": "integer", "maximum": 2**64}}}}}]},
                 {"metadata": {"n": 10**30}}, {"messages": ASK + [{"role": "assistant", "content": None, "tool_calls": [call]}], "x": -10**25}):
        chat(model="tools", extra_body=body, max_tokens=2)
    status, _, data = server("tools").post("/v1/messages", {"model": "tools", "max_tokens": 2, "messages": ASK + [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "add", "input": {"a": 12345678901234567890}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]}]})
    equal(status, 200, f"{data[:200]}")
    equal(server().post("/v1/chat/completions", b'{"messages": [], "n": 1e400}')[0], 400, "no number at all")
    large = '"metadata": {"a": [%d, "%d", 1.5e3, -%d]}' % (10**40, 10**40, 2**63)
    ids = json.dumps(ids_of(STORY))
    raw = '{"prompt": %s, "seed": 9007199254740993, "temperature": 0, "max_tokens": 4, %s}' % (ids, large)
    status, _, data = server().post("/v1/completions", raw.encode())  # other numbers stay what they are
    equal((status, json.loads(data)["choices"][0]["text"]), (200, complete(max_tokens=4).choices[0].text), "token ids beside a large number")
    schema = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"enum": [1]}}}
    equal(chat(response_format=schema, extra_body={"metadata": {"n": 10**30}}).choices[0].message.content, "1", "a number of a schema beside it")
    many = [{"type": "function", "function": {"name": f"tool_{i}", "parameters": {"type": "object"}}} for i in range(200)]
    check(chat(model="tools", messages=ASK, tools=many[:5], max_tokens=2), "5 tools")
    count = server("tools").json("POST", "/v1/messages/count_tokens", {"model": "tools", "messages": ASK, "tools": [
        {"name": t["function"]["name"], "input_schema": {"type": "object"}} for t in many]})
    check(count["input_tokens"] > 2000, f"200 tools: {count}")


def test_a_conversation_with_calls():
    messages = ASK + [
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": "{\"a\": 7, \"b\": 5}"}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "12"}]
    reply = chat(model="tools", messages=messages, tools=[ADD], max_tokens=4)
    check(reply.usage.prompt_tokens > 30, f"{reply.usage}")
    events = list(respond(model="tools", tools=[{"type": "function", **ADD["function"]}], stream=True, max_output_tokens=120,
                          extra_body={"grammar": CALL}))
    kinds = [e.type for e in events]
    check(kinds.index("response.function_call_arguments.delta") < kinds.index("response.function_call_arguments.done"), f"{kinds}")
    made = events[-1].response.output[-1]
    equal((made.type, made.name, json.loads(made.arguments)["a"]), ("function_call", "add", 7), "item")


def test_tools_that_the_template_lacks():
    refused(openai.BadRequestError, "tools", chat, tools=[ADD])
    check(chat(tools=[ADD], tool_choice="none").choices[0].message.content, "none is fine")
    check(chat(tools=[{"type": "web_search"}]).choices[0].message.content, "unknown kinds are left out")
    refused(openai.BadRequestError, "names", call, tool_choice={"type": "function", "function": {"name": "fly"}})


def test_reasoning():
    think = {"grammar": 'root ::= "I see.</think>\\n\\nYes."', "chat_template_kwargs": {"enable_thinking": True}}
    message = chat(model="tools", extra_body=think).choices[0].message
    equal((message.content, message.reasoning_content), ("Yes.", "I see."), "split")
    message = chat(model="tools", extra_body=think | {"reasoning_format": "none"}).choices[0].message
    equal(message.content, "I see.</think>\n\nYes.", "not split")


def test_no_effort_is_no_thought():
    """The template is told, and a word of the request's own about thinking wins."""
    grammar = {"grammar": 'root ::= "I see.</think>\\n\\nYes." | "Yes."'}
    on = {"chat_template_kwargs": {"enable_thinking": True}}
    n_off, n_on = (chat(model="tools", extra_body=grammar | e).usage.prompt_tokens for e in ({"chat_template_kwargs": {"enable_thinking": False}}, on))
    check(n_off != n_on, "the template does not tell one from the other")
    for effort, wanted in (({"reasoning_effort": "none"}, n_off), (on | {"reasoning_effort": "none"}, n_on),
                           ({"reasoning_effort": "none", "chat_template_kwargs": {"other": 1}}, n_off), (on | {"reasoning_effort": "low"}, n_on)):
        equal(chat(model="tools", extra_body=grammar | effort).usage.prompt_tokens, wanted, f"{effort}")
    none = respond(model="tools", extra_body=grammar | {"reasoning": {"effort": "none"}})
    off = respond(model="tools", extra_body=grammar | {"chat_template_kwargs": {"enable_thinking": False}})
    equal((none.usage.input_tokens, none.reasoning.effort), (off.usage.input_tokens, "none"), "responses")


def test_events_of_a_thought():
    """A part begins before its text comes and ends after it, as clients that build the answer from events need it."""
    think = {"grammar": 'root ::= "I see.</think>\\n\\nYes."', "chat_template_kwargs": {"enable_thinking": True}}
    events = list(respond(model="tools", extra_body=think, stream=True))
    kinds = [e.type.removeprefix("response.") for e in events if getattr(e, "output_index", None) == 0]
    once = [k for i, k in enumerate(kinds) if i == 0 or kinds[i - 1] != k]
    equal(once, ["output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done", "content_part.done", "output_item.done"], "events")
    part = next(e.part for e in events if e.type == "response.content_part.done")
    equal((part.type, part.text), ("reasoning_text", "I see."), "the part")
    usage = events[-1].response.usage
    thought = usage.output_tokens_details.reasoning_tokens
    check(0 < thought < usage.output_tokens, f"{usage}")
    equal(respond(model="tools", extra_body=think).usage.output_tokens_details.reasoning_tokens, thought, "in one piece")
    equal(respond().usage.output_tokens_details.reasoning_tokens, 0, "without thoughts")


def test_arguments_that_cannot_be_an_object_stay_a_text():
    for arguments, want in (('{"a": "x\\u0000y"}', 'x'), ('{"a": 12345678901234567890, "b": 3}', '12345678901234567890'), ("", '"arguments": {}'), ("nothing", '"nothing"')):
        call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": arguments}}
        turns = ASK + [{"role": "assistant", "content": None, "tool_calls": [call]}]
        prompt = server("tools").json("POST", "/apply-template", {"messages": turns, "tools": [ADD]})["prompt"]
        check(want in prompt, f"{arguments}: {prompt}")


def test_a_call_belongs_to_the_turn_before_it():
    calls = [{"id": f"c{i}", "type": "function", "function": {"name": "add", "arguments": "{\"a\": 7}"}} for i in range(2)]
    done = [{"role": "tool", "tool_call_id": f"c{i}", "content": "12"} for i in range(2)]
    turns = ASK + [{"role": "assistant", "content": "Well.", "tool_calls": calls}] + done
    want = chat(model="tools", messages=turns, tools=[ADD]).usage.prompt_tokens - chat(model="tools", tools=[ADD]).usage.prompt_tokens
    items = ASK + [{"role": "assistant", "content": "Well."}]
    items += [{"type": "function_call", "call_id": c["id"], **c["function"]} for c in calls]
    items += [{"type": "function_call_output", "call_id": d["tool_call_id"], "output": d["content"]} for d in done]
    tools = [{"type": "function", **ADD["function"]}]
    got = respond(model="tools", input=items, tools=tools).usage.input_tokens - respond(model="tools", input=ASK, tools=tools).usage.input_tokens
    equal(got, want, "tokens of the turns")


def test_no_more_than_one_call():
    """Where parallel calls are not wanted the answer is over with the first one."""
    grammar = {"grammar": CALL + ' "\\n<tool_call>\\n{\\"name\\": \\"add\\", \\"arguments\\": {\\"a\\": 1}}\\n</tool_call> and so on"'}
    equal(len(call(extra_body=grammar, max_tokens=200).choices[0].message.tool_calls), 2, "calls")
    one = {"extra_body": grammar, "parallel_tool_calls": False, "max_tokens": 200}
    choice = call(**one).choices[0]
    equal((len(choice.message.tool_calls), choice.message.content, choice.finish_reason), (1, "Well.", "tool_calls"), f"{choice}")
    chunks = list(call(**one, stream=True))
    equal({d.index for c in chunks for d in c.choices[0].delta.tool_calls or []}, {0}, "streamed calls")
    equal(("".join(c.choices[0].delta.content or "" for c in chunks).strip(), chunks[-1].choices[0].finish_reason), ("Well.", "tool_calls"), "streamed")
    r = respond(model="tools", input=ASK, tools=[{"type": "function", **ADD["function"]}], extra_body=grammar, max_output_tokens=200, parallel_tool_calls=False)
    equal(([o.type for o in r.output], r.parallel_tool_calls), (["message", "function_call"], False), f"{r}")


def test_names_with_the_tag_of_another_api():
    equal(chat(model="story").choices[0].message.content,
          client().chat.completions.create(model="story:latest", messages=ASK, temperature=0, max_tokens=24).choices[0].message.content, "by the name with a tag")
    equal(client().models.retrieve("story:latest").id, "story", "one of the list")
    for name in ("story:older", "stor:latest", "story:latest2", ":latest"):
        refused(openai.NotFoundError, "there is no model", lambda name=name: client().completions.create(model=name, prompt="x"))


def test_calls_as_xml():
    """A grammar makes the model write a call in the form that its template shows."""
    call = r'root ::= " Well.\n<tool_call>\n<function=add>\n<parameter=a>\n7\n</parameter>\n<parameter=b>\n5\n</parameter>\n</function>\n</tool_call>"'
    ask = {"model": "xml", "tools": [ADD], "max_tokens": 200, "extra_body": {"grammar": call}}
    choice = chat(**ask).choices[0]
    equal((choice.finish_reason, choice.message.content.strip()), ("tool_calls", "Well."), f"{choice}")
    equal([(c.function.name, json.loads(c.function.arguments)) for c in choice.message.tool_calls], [("add", {"a": 7, "b": 5})], "the call")
    deltas = [c.choices[0].delta for c in chat(stream=True, **ask) if c.choices]
    pieces = [t.function.arguments for d in deltas for t in d.tool_calls or [] if t.function.arguments]
    equal((json.loads("".join(pieces)), len(pieces) > 2), ({"a": 7, "b": 5}, True), f"the streamed call: {pieces}")
    turns = ASK + [choice.message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": choice.message.tool_calls[0].id, "content": "12"}]
    check(chat(model="xml", messages=turns, tools=[ADD]).usage.prompt_tokens > chat(model="xml", tools=[ADD]).usage.prompt_tokens + 20, "the turns are lost")
    refused(openai.BadRequestError, "XML", chat, model="xml", tools=[ADD], tool_choice="required")


if __name__ == "__main__":
    try:
        main(globals())
    finally:
        for s in _started.values():
            s.stop()
