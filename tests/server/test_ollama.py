#!/usr/bin/env python3
"""Ollama's API, judged by its own client (`ollama` of PyPI), and by the lines where the client hides them."""
import json
import os
import shutil
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from serving import SLOW, Server, check, equal, main, model, packages, temp  # noqa: E402
from retemplate import HERMES, THINKS, retemplate  # noqa: E402

packages("ollama")
import ollama  # noqa: E402

HELLO = [{"role": "user", "content": "Tell me a story about a fox"}]
CALM = {"temperature": 0, "num_predict": 24}
_running = []


def server():
    if not _running:
        _running.append(Server("--model", model("story"), "--model", retemplate(model("story"), temp("tools.gguf"), HERMES)))
    return _running[0]


def client():
    return ollama.Client(host=server().url)


def lines(path, body):
    status, headers, data = server().post(path, body)
    equal((status, headers["content-type"]), (200, "application/x-ndjson"), f"{path}: {data[:200]!r}")
    return [json.loads(line) for line in data.decode().splitlines()]


def test_lists():
    c = client()
    equal([m.model for m in c.list().models], ["story:latest", "tools:latest"], "models")
    m = c.list().models[0]
    check(len(m.digest) == 64 and m.size > 1000000, f"{m}")
    equal((m.details.format, m.details.family, m.details.quantization_level), ("gguf", "bitnet-b1.58", "I2_S"), "details")
    equal(m.details.parameter_size, "40M", "size")
    check("story:latest" in [m.model for m in c.ps().models], "it is not among the loaded models")
    version = server().json("GET", "/api/version")
    check([int(n) for n in version["version"].split(".")] >= [0, 6, 4] and version["bitnet"], f"{version}: clients refuse servers before 0.6.4")


def test_show():
    s = client().show("story")
    equal(s.modelinfo["general.architecture"], "bitnet-b1.58", "architecture")
    equal(s.modelinfo["bitnet-b1.58.context_length"], 1024, "context")
    check("{% for message" in s.template and "completion" in s.capabilities, f"{s.template[:80]} {s.capabilities}")


def test_chat():
    r = client().chat("story", HELLO, options=CALM)
    equal((r.message.role, r.done, r.done_reason, r.model), ("assistant", True, "length", "story"), "the reply")
    equal(r.eval_count, 24, "tokens")
    check(r.prompt_eval_count > 5 and r.total_duration > r.eval_duration > 0, f"{r}")
    equal(client().chat("story:latest", HELLO, options=CALM).message.content, r.message.content, "by the name with its tag")


def test_the_stream_says_what_the_whole_says():
    whole = client().chat("story", HELLO, options=CALM).message.content
    parts = list(client().chat("story", HELLO, options=CALM, stream=True))
    equal("".join(p.message.content for p in parts), whole, "text")
    equal([p.done for p in parts], [False] * (len(parts) - 1) + [True], "done")
    check(len(parts) > 10, f"{len(parts)} parts")


def test_streams_unless_told_otherwise():
    all_lines = lines("/api/generate", {"model": "story", "prompt": "What is 7 + 5?", "options": CALM})
    check(all_lines[-1]["done"] and "12" in "".join(x["response"] for x in all_lines), f"{all_lines}")
    check(all("message" not in x for x in all_lines), "words of chat in generate")


def test_generate():
    c = client()
    equal(c.generate("story", "What is 7 + 5?", options=CALM).done_reason, "stop", "what ended it")
    raw = c.generate("story", "Once upon a time", raw=True, options=CALM).response
    check(raw != c.generate("story", "Once upon a time", options=CALM).response, "raw makes no difference")
    fox = c.generate("story", "Hello", system="You are a fox.", options=CALM)
    check(fox.prompt_eval_count > c.generate("story", "Hello", options=CALM).prompt_eval_count, "system makes no difference")


def test_options():
    c = client()
    hot = {"temperature": 1.5, "num_predict": 30, "seed": 7}
    equal(c.generate("story", "Hello", options=hot).response, c.generate("story", "Hello", options=hot).response, "the same seed")
    whole = c.generate("story", "Tell me a story", options={**CALM, "num_predict": 40}).response
    word = whole.split()[4]
    cut = c.generate("story", "Tell me a story", options={**CALM, "num_predict": 40, "stop": [word]})
    equal((cut.response, cut.done_reason), (whole[:whole.index(word)], "stop"), "a stop")


def test_options_beyond_the_bounds():
    """Ollama has none, and presets of its clients use that."""
    c = client()
    for name, values in {"temperature": (3, -1, 1e300), "repeat_penalty": (0, -1, 1e9), "presence_penalty": (5, -5), "frequency_penalty": (5, -5), "top_p": (7, -1), "top_k": (-5, 10 ** 10),
                         "min_p": (2, -1), "typical_p": (2, -1), "num_predict": (-9,), "repeat_last_n": (-9, 2 ** 40)}.items():
        for value in values:
            r = c.generate("story", "Hello", options={"num_predict": 2, "seed": 1, name: value})
            check(r.done, f"{name} {value}: {r}")
    hot = {"num_predict": 12, "seed": 7}
    equal(c.generate("story", "Hello", options={**hot, "temperature": 2}).response, c.generate("story", "Hello", options={**hot, "temperature": 9}).response, "the nearest")


def test_a_schema_holds():
    schema = {"type": "object", "properties": {"animal": {"enum": ["fox", "owl"]}, "legs": {"type": "integer"}},
              "required": ["animal", "legs"], "additionalProperties": False}
    r = client().chat("story", HELLO, format=schema, options={"temperature": 0, "num_predict": 60})
    said = json.loads(r.message.content)
    check(said["animal"] in ("fox", "owl") and isinstance(said["legs"], int), f"{said}")


def test_thoughts_are_apart():
    r = client().chat("tools", HELLO, think=True, options=CALM)
    check(r.message.thinking and not r.message.content, f"{r.message}")
    parts = list(client().chat("tools", HELLO, think=True, options=CALM, stream=True))
    equal("".join(p.message.thinking or "" for p in parts), r.message.thinking, "thoughts of the stream")
    r = client().chat("tools", HELLO, think=False, options=CALM)
    check(r.message.content and not r.message.thinking, f"{r.message}")
    with Server("--model", retemplate(model("story"), temp("thinks.gguf"), THINKS)) as s:
        for think in (None, True, False):
            r = ollama.Client(host=s.url).chat("thinks", HELLO, think=think, options=CALM)
            check(r.message.thinking and not r.message.content, f"a model that always thinks, think {think}: {r.message}")


def test_turns_of_tools_are_part_of_the_prompt():
    look = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {}}}}
    call = [{"function": {"name": "look", "arguments": {"at": "fox"}}}]
    turns = HELLO + [{"role": "assistant", "tool_calls": call}, {"role": "tool", "tool_name": "look", "content": "a red fox"}]
    counts = [client().chat("tools", m, tools=t, options={"num_predict": 1}).prompt_eval_count
              for m, t in ((HELLO, None), (HELLO, [look]), (turns, [look]))]
    check(counts[0] + 10 < counts[1] and counts[1] + 10 < counts[2], f"turns or tools were lost: {counts}")
    refused(400, "tool", lambda: client().chat("story", HELLO, tools=[look]))


def test_load_and_unload():
    r = server().json("POST", "/api/generate", {"model": "story"})
    equal((r["done"], r["done_reason"], r["response"]), (True, "load", ""), "an empty prompt")
    status, _, data = server().post("/api/generate", {"model": "story", "keep_alive": 0})
    equal(status, 403, f"unloading where models are fixed: {data[:200]!r}")
    folder = temp("folder")
    os.makedirs(folder)
    shutil.copy(model("nano"), os.path.join(folder, "more.gguf"))
    with Server("--model", model("nano"), "--model-dir", folder) as s:
        s.json("POST", "/v1/models/load", {"model_path": "more.gguf"})
        for name in ("nano", "more"):
            r = s.json("POST", "/api/chat", {"model": name, "messages": [], "keep_alive": 0})
            equal((r["done_reason"], r["message"]["content"]), ("unload", ""), "no messages, not kept")
        c = ollama.Client(host=s.url)
        equal(c.ps().models, [], "loaded models")
        equal([m.model for m in c.list().models], ["nano:latest", "more:latest"], "models that are offered")
        check(c.generate("more", "Hello", options=CALM).done, "it is loaded again")


def test_embed():
    c = client()
    r = c.embed("story", ["a fox", "a fox", "the rain"])
    equal(len(r.embeddings), 3, "vectors")
    equal(r.embeddings[0], r.embeddings[1], "vectors of the same text")
    check(abs(sum(v * v for v in r.embeddings[2]) - 1) < 1e-4, "no unit vector")
    equal(len(c.embed("story", "x", dimensions=16).embeddings[0]), 16, "dimensions")
    check(len(c.embed("story", "word " * 5000).embeddings[0]) == 512, "a long text is cut")
    old = c.embeddings("story", "a fox").embedding
    scale = sum(v * v for v in old) ** 0.5
    check(max(abs(a / scale - b) for a, b in zip(old, r.embeddings[0])) < 1e-4, "the older form differs")


def refused(status, says, call):
    try:
        call()
    except ollama.ResponseError as e:
        equal(e.status_code, status, f"{says}: status")
        check(says in e.error, f"the error does not say {says!r}: {e.error}")
        return
    raise AssertionError(f"{says}: was not refused")


def test_errors():
    c = client()
    refused(404, "nobody", lambda: c.chat("nobody", HELLO))
    refused(404, "nobody", lambda: c.show("nobody"))
    refused(400, "suffix", lambda: c.generate("story", "x", suffix="y"))
    refused(400, "context", lambda: c.generate("story", "x", context=[1, 2]))
    refused(400, "images", lambda: c.chat("story", [{"role": "user", "content": "x", "images": [b"abc"]}]))
    refused(400, "top_p", lambda: c.generate("story", "x", options={"top_p": "7"}))
    refused(400, "num_predict", lambda: c.generate("story", "x", options={"num_predict": "many"}))
    refused(400, "format: ", lambda: c.generate("story", "x", format={"type": "integer", "multipleOf": 2}))
    refused(400, "format and tools together are not supported: leave one out", lambda: c.chat(
        "tools", HELLO, format="json", tools=[{"type": "function", "function": {"name": "look"}}]))
    for ask in (lambda: c.chat("story", HELLO, tools=[{"type": "function", "function": {"name": "look"}}]),
                lambda: c.generate("story", "word " * 5000)):
        try:
            ask()
            raise AssertionError("it was not refused")
        except ollama.ResponseError as e:
            check(not any(w in e.error for w in ("tool_choice", "messages", "response_format", "max_tokens")), f"a name that is not Ollama's: {e.error}")
    refused(400, "truncate", lambda: server() and c._request(dict, "POST", "/api/embed", json={"model": "story", "input": "x", "truncate": 3}))
    for path in ("/api/pull", "/api/nothing"):
        status, _, body = server().post(path, {"model": "x"})
        equal((status, list(json.loads(body))), (404, ["error"]), f"{path}")
    refused(400, "context", lambda: c.embed("story", "word " * 5000, truncate=False))


def test_old_turns_of_long_conversations_go():
    turns = [{"role": "system", "content": "You tell stories."}]
    for i in range(12):
        turns += [{"role": "user", "content": f"Story {i} " + "fox " * 100}, {"role": "assistant", "content": "It was."}]
    turns.append({"role": "user", "content": "And now?"})
    body = {"model": "story", "messages": turns, "stream": False, "options": {"num_predict": 2, "temperature": 0}}
    status, headers, reply = server().post("/api/chat", body)
    dropped = int(headers.get("x-bitnet-dropped-messages", 0))
    check(status == 200 and 0 < dropped < 24 and dropped % 2 == 0, f"{status} {dropped} {reply!r}")
    least = server().json("POST", "/api/chat", {**body, "messages": turns[:1] + turns[1 + dropped:]})
    equal((least["prompt_eval_count"], least["message"]), (json.loads(reply)["prompt_eval_count"], json.loads(reply)["message"]), "what was left")
    check(512 < least["prompt_eval_count"] <= 768, f"as much as leaves a quarter: {least['prompt_eval_count']}")
    refused(400, "maximum context length", lambda: client()._request(dict, "POST", "/api/chat", json={**body, "truncate": False}))
    refused(400, "maximum context length", lambda: client().chat("story", turns[:1] + [{"role": "user", "content": "fox " * 3000}]))
    began = time.monotonic()  # the last turn is not read again and again
    refused(400, "maximum context length", lambda: client().chat("story", [{"role": "user", "content": "x"}] * 2000 + [{"role": "user", "content": "fox " * 200000}]))
    check(time.monotonic() - began < (60 if SLOW else 5), f"{time.monotonic() - began:.1f} s")
    refused(400, "think", lambda: client()._request(dict, "POST", "/api/chat", json={**body, "think": "bogus"}))


def test_zz_the_server_ends_well():
    _running.pop().stop()


main(globals())
