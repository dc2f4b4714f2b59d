#!/usr/bin/env python3
"""Attacks on `bitnet serve` as a stranger would try them, one function for each class of faults that engines of this kind have had;
SECURITY.md has the table. What must hold of every reply: it comes within some seconds, it is no 5xx, and the server goes on."""
import contextlib
import http.client
import json
import os
import threading
import time

from retemplate import retemplate
from serving import SLOW, Server, check, equal, expect, main, model, temp

LONGEST_S = 60 if SLOW else 15
HELLO = [{"role": "user", "content": "Hello"}]
ATTACK = [{"role": "user", "content": "Attack"}]
SECRET = "zebra-crossing-4711"


def attack(server, path, body, allowed=range(200, 500), method="POST", **kw):
    """The reply, whose status must be among the allowed ones, in time."""
    began = time.monotonic()
    status, headers, data = server.request(method, path, body, timeout=LONGEST_S + 30, **kw)
    took = time.monotonic() - began
    shown = f"{method} {path} {str(body)[:200]}: {status} {data[:300]!r} after {took:.1f} s"
    check(status in allowed and took < LONGEST_S, shown)
    return status, headers, data


def goes_on(server):
    check(len(server.json("POST", "/v1/inference", {"prompt": "Once", "max_tokens": 2})["text"]) > 0, "it answers no more")


# ---- templates ----
HOSTILE_TEMPLATES = {
    "loop": "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}",
    "text": "{% set ns = namespace(t='x' * 1000) %}{% for i in range(60) %}{% set ns.t = ns.t ~ ns.t %}{% endfor %}{{ ns.t }}",
    "product": "{{ 'x' * 999999999999 }}",
    "range": "{{ range(999999999999) | list | length }}",
    "recursion": "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
    "class": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "globals": "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "attr": "{{ messages | attr('__class__') }}",
    "import": "{% import 'os' as os %}{{ os.system('id') }}",
    "include": "{% include '/etc/passwd' %}",
    "divide": "{{ 1 // 0 }}{{ -9223372036854775807 // -1 }}{{ 5 % 0 }}",
    "depth": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "unclosed": "{% if messages %}{% for m in messages %}",
}


# a template that fails at once is not used at all, so it waits until it is asked
ONCE_ASKED = ("{% if messages[-1]['content'] == 'Attack' %}HOSTILE{% else %}{% for m in messages %}{{ m.role }}: {{ m.content }}"
              "{{ eos_token }}{% endfor %}{% endif %}")
ENDLESS = {"loop", "text", "product", "range", "recursion"}


def test_row_14_templates_have_limits_and_no_way_out():
    for name, template in HOSTILE_TEMPLATES.items():
        path = retemplate(model("nano"), temp(f"hostile_{name}.gguf"), ONCE_ASKED.replace("HOSTILE", template))
        with Server("--model", path, "--no-log-requests") as s:
            for place, body in (("/v1/chat/completions", {"messages": ATTACK, "max_tokens": 2}), ("/apply-template", {"messages": ATTACK}),
                                ("/api/chat", {"model": f"hostile_{name}", "messages": ATTACK, "stream": False})):
                status, _, data = attack(s, place, body)
                check(status == 400 or name not in ENDLESS, f"{name}: {place}: {status} {data[:200]}")
                check(b"uid=" not in data and b"root:" not in data and b"<class" not in data, f"{name}: {data[:300]}")
            goes_on(s)


def test_row_14_variables_of_a_request_stay_values():
    with Server("--model", model("nano"), "--no-log-requests") as s:
        for kwargs in ({"messages": 5, "x": "{{ 7 * 7 }}"}, {"a" * 5000: 1}, {f"v{i}": i for i in range(5000)}, {"add_generation_prompt": []},
                       {"raise_exception": 1, "namespace": {}, "range": "x"}):
            attack(s, "/v1/chat/completions", {"messages": HELLO, "max_tokens": 2, "chat_template_kwargs": kwargs})
        goes_on(s)


# ---- forms of answers ----
def nested(n, inner):
    for _ in range(n):
        inner = {"type": "object", "properties": {"a": inner}, "required": ["a"]}
    return inner


def schema_format(schema):
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


GRAMMARS = ['root ::= ' + "(" * 60000 + '"a"' + ")" * 60000, 'root ::= root', 'root ::= a\na ::= b\nb ::= a', 'root ::= ("" | "")*',
            'root ::= "a"{1000000000}', 'root ::= "a"{99999999999999999999}', '%llguidance {}\nstart: "a"', "root ::= [" + "a-z" * 50000 + "]",
            "root ::= " + " | ".join(f'"{i}"' for i in range(60000)), "", "root ::=", 'x ::= "a"', "root ::= [\\", 'root ::= "\\u12', "\x00"]
SCHEMAS = [nested(9, {}), nested(20, {}), nested(100, {}), {"$ref": "#"}, {"$ref": "#/nowhere"}, {"allOf": [{"$ref": "#"}] * 50}, {"type": "string", "pattern": "(a*)*" * 2000},
           {"type": "string", "pattern": "(" * 20000}, {"type": "string", "minLength": 10**15}, {"enum": []}, {"anyOf": []}, {"type": "array", "minItems": 2**62},
           {"type": "object", "properties": {f"k{i}": {} for i in range(9000)}, "required": [f"k{i}" for i in range(9000)]},
           {"type": "integer", "minimum": -10**400, "maximum": 1}, {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
           {"type": "nonsense"}, {"type": []}, {"properties": 5}, {"required": "a"}, 17]


def test_row_15_forms_are_compiled_in_bounds():
    with Server("--model", model("nano"), "--no-log-requests") as s:
        for grammar in GRAMMARS:
            attack(s, "/v1/completions", {"prompt": "x", "max_tokens": 2, "grammar": grammar})
        deep = '{"type":"array","items":' * 30000 + "{}" + "}" * 30000
        attack(s, "/v1/completions", ('{"prompt":"x","max_tokens":2,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":'
                                      + deep + "}}}").encode(), headers={"Content-Type": "application/json"}, allowed=[400])
        for schema in SCHEMAS:
            attack(s, "/v1/chat/completions", {"messages": HELLO, "max_tokens": 2, "response_format": schema_format(schema)})
        goes_on(s)


def tokens_of(server, body):
    """The number of tokens, as they come: one event for each."""
    made = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=LONGEST_S + 30)
    made.request("POST", "/v1/completions", json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
    for n, _ in enumerate(line for line in made.getresponse() if line.startswith(b"data: {")):
        yield n
    made.close()


def test_row_15_slow_grammars_hold_up_nobody():
    """Each has thousands of ways to go on after every token. Who has none of it goes on at each step, while they take turns."""
    made, over = [0] * 24, threading.Event()

    def slow(i):
        grammar = f'# {i}\nroot ::= (x | x x){{0,200000}}\nx ::= [a-zA-Z ,.!?0-9]'
        with contextlib.suppress(OSError, http.client.HTTPException):
            for n in tokens_of(s, {"prompt": "Once", "max_tokens": 900, "temperature": 1, "grammar": grammar}):
                made[i] = n
                if over.is_set():
                    return

    with Server("--model", model("nano"), "--no-log-requests", "--parallel", "32") as s:
        threads = [threading.Thread(target=slow, args=(i,)) for i in range(len(made))]
        for thread in threads:
            thread.start()
        for _ in range(12000):
            if min(made) > 1:
                break
            time.sleep(0.01)
        check(min(made) > 1, f"they do not begin: {made}")
        before, n = sum(made), 0
        for n in tokens_of(s, {"prompt": "Once", "max_tokens": 240, "temperature": 0, "ignore_eos": True}):
            pass
        theirs = (sum(made) - before) / len(made)
        over.set()
        for thread in threads:
            thread.join()
        check(n >= 239 and theirs < n / 2, f"{n} tokens without a grammar, while those with one made {theirs:.0f} each")
        goes_on(s)


def with_arguments(arguments):
    """A request for each API whose conversation has a call with these arguments, a text of JSON."""
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}
    said = [HELLO[0], {"role": "assistant", "content": "x", "tool_calls": [call]}]
    items = [HELLO[0], {"type": "function_call", "call_id": "a", "name": "f", "arguments": arguments}]
    return [("/v1/chat/completions", {"messages": said, "max_tokens": 2}), ("/apply-template", {"messages": said}),
            ("/api/chat", {"model": "nano", "messages": said, "stream": False}), ("/v1/responses", {"input": items, "max_output_tokens": 2})]


def test_row_19_arguments_are_bounded_like_bodies():
    """They are JSON inside a text of the body, so that the bounds of the body do not see them."""
    with Server("--model", model("nano"), "--no-log-requests", "--max-depth", "512") as s:
        for n in (513, 700, 1000, 2040, 3000, 200000):
            for arguments in ('{"a":' * n + "1" + "}" * n, '{"a":' + "[" * n + "]" * n + "}", '{"a":' * n):
                for path, body in with_arguments(arguments):
                    data = attack(s, path, body, allowed=[400])[2]
                    check(b"deep; at most 512 levels" in data, f"{path}: {data[:300]}")
        wide = '{"a":[' + "[]," * 300000 + "0]}"
        for path, body in with_arguments(wide):
            check(b"more than 262144 values" in attack(s, path, body, allowed=[400])[2], path)
        for path, body in with_arguments('{"a":' * 500 + "1" + "}" * 500):
            attack(s, path, body)
        goes_on(s)


REFUSED_SCHEMAS = [{"type": "object", "properties": {"a": {"not": {"type": "string"}}}}, {"if": {}, "then": {}}, {"dependentSchemas": {"a": {}}},
                   {"type": "array", "uniqueItems": True}, {"unevaluatedProperties": False, "type": "object"}]


def test_row_16_forms_fail_closed():
    """What a form cannot be made of is refused: an answer without it would look like one with it."""
    with Server("--model", model("nano"), "--no-log-requests") as s:
        for schema in REFUSED_SCHEMAS:
            attack(s, "/v1/chat/completions", {"messages": HELLO, "max_tokens": 8, "response_format": schema_format(schema)}, allowed=[400])
        for form in ({"type": "xml"}, {"type": "json_schema"}, {"type": "json_schema", "json_schema": {"name": "x"}}, "json", 5, []):
            attack(s, "/v1/chat/completions", {"messages": HELLO, "max_tokens": 8, "response_format": form}, allowed=[400])
        attack(s, "/api/chat", {"model": "nano", "messages": HELLO, "stream": False, "format": "yaml"}, allowed=[400])
        schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"enum": ["x", "y"]}},
                  "required": ["a", "b"], "additionalProperties": False}
        for seed in range(4 if SLOW else 20):
            reply = s.json("POST", "/v1/chat/completions", {"messages": HELLO, "max_tokens": 100, "temperature": 2, "seed": seed,
                                                            "response_format": schema_format(schema)})
            choice = reply["choices"][0]
            if choice["finish_reason"] == "stop":
                value = json.loads(choice["message"]["content"])
                check(set(value) == {"a", "b"} and 0 <= value["a"] <= 99 and value["b"] in ("x", "y"), f"{value}")


# ---- numbers ----
NUMBERS = [-1, 0, -2**31, 2**31, 2**32, -2**63, 2**63 - 1, 2**63, 2**64, 1e308, -1e308, 1e-320, 0.5, "5", None, True, [], {}]
FIELDS = {
    "/v1/completions": ("max_tokens", "n", "best_of", "logprobs", "temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty",
                        "frequency_penalty", "repetition_penalty", "timeout", "n_discard", "n_predict", "n_keep", "logit_bias"),
    "/v1/chat/completions": ("max_completion_tokens", "top_logprobs", "n", "priority", "seed"),
    "/v1/responses": ("max_output_tokens", "top_logprobs", "temperature"),
    "/v1/messages": ("max_tokens", "top_k", "top_p", "temperature"),
    "/v1/inference": ("max_tokens", "temperature", "top_k", "seed", "timeout_ms"),
    "/v1/embeddings": ("dimensions",),
}
OLLAMA = ("num_predict", "num_ctx", "top_k", "top_p", "seed", "repeat_last_n", "repeat_penalty", "num_keep", "temperature")


def numbers_body(path):
    body = {"model": "nano", "max_tokens": 2, "messages": HELLO, "prompt": "x", "input": "x", "stream": False}
    if path == "/v1/responses":
        body["max_output_tokens"] = 16
    return body


def test_row_17_numbers_have_bounds():
    with Server("--model", model("nano"), "--no-log-requests", "--max-tokens", "64") as s:
        for path, fields in FIELDS.items():
            for field in fields:
                for number in NUMBERS[::3] if SLOW else NUMBERS:
                    attack(s, path, dict(numbers_body(path), **{field: number}))
        for field in OLLAMA:
            for number in NUMBERS[::3] if SLOW else NUMBERS:
                attack(s, "/api/generate", {"model": "nano", "prompt": "x", "stream": False, "options": {"num_predict": 2, field: number}})
        for text in ('{"prompt":"x","max_tokens":1e999}', '{"prompt":"x","max_tokens":-0}', '{"prompt":"x","seed":0x10}',
                     '{"prompt":"x","max_tokens":' + "9" * 5000 + "}", '{"prompt":[' + "9" * 30 + "]}", '{"prompt":[-1]}', '{"prompt":[4294967297]}'):
            attack(s, "/v1/completions", text.encode(), headers={"Content-Type": "application/json"})
        attack(s, "/detokenize", {"tokens": [-1, 2**31, 2**63 - 1]})
        goes_on(s)


# ---- prompts that are too long ----
def memory_mb(server):
    with open(f"/proc/{server.process.pid}/status", encoding="utf-8") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmHWM")) >> 10


def test_row_17_replies_have_bounds():
    """Few bytes that ask for a reply of gigabytes."""
    text = "Once upon a time there was a fox. " * 6
    with Server("--model", model("nano"), "--no-log-requests") as s:
        goes_on(s)
        before = memory_mb(s)
        echoed = [{"prompt": [text] * 200, "n": 8, "echo": True, "logprobs": 100, "max_tokens": m} for m in ((0,) if SLOW else (0, 1))]
        for path, body in [("/v1/completions", e) for e in echoed] + [("/tokenize", {"content": "\U0001f600" * 500000, "with_pieces": True})]:
            said = attack(s, path, body, allowed=[400])[2]
            check(b"the reply would take more than 256 MB" in said, said[:300])
        grown = memory_mb(s) - before
        check(SLOW or grown < 600, f"the server grew by {grown} MB")
        goes_on(s)


def test_row_17_long_texts_are_tokenized_within_bounds():
    """What the tokenizer needs for texts of 8 MB is counted: those that come at once wait their turn elsewhere (503)."""
    text = "a " * ((1 << 20) if SLOW else (4 << 20) - 100)
    with Server("--model", model("nano"), "--no-log-requests") as s:
        goes_on(s)
        before, seen = memory_mb(s), []
        paths = [("/tokenize", {"content": text}), ("/v1/completions", {"prompt": text}), ("/api/embed", {"model": "nano", "input": text, "truncate": False})]
        threads = [threading.Thread(target=lambda i=i: seen.append(s.post(*paths[i % 3])[0])) for i in range(4 if SLOW else 12)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        check(set(seen) <= {200, 400, 503} and len(seen) == len(threads), f"{seen}")
        check(SLOW or memory_mb(s) - before < 2000, f"the server took {memory_mb(s)} MB: {seen}")
        goes_on(s)


def test_row_17_biases_that_forbid_all():
    with Server("--model", model("nano"), "--no-log-requests") as s:
        body = {"prompt": "x", "max_tokens": 3, "logit_bias": {str(i): -100 for i in range(512)}}
        check(b"forbids every token" in attack(s, "/v1/completions", body, allowed=[400])[2], "it says why")
        del body["logit_bias"]["100"]
        equal(json.loads(attack(s, "/v1/completions", body, allowed=[200])[2])["usage"]["completion_tokens"], 3, "one is left")


def test_row_18_prompts_longer_than_the_context():
    long = "word " * 5000
    for context in ("256", "1", "2"):
        with Server("--model", model("nano"), "--no-log-requests", "--ctx", context) as s:
            for path, body in (("/v1/completions", {"prompt": long}), ("/v1/chat/completions", {"messages": [{"role": "user", "content": long}]}),
                               ("/v1/responses", {"input": long}), ("/v1/messages", {"model": "nano", "max_tokens": 4, "messages": [{"role": "user", "content": long}]}),
                               ("/v1/inference", {"prompt": long}), ("/v1/embeddings", {"input": long}),
                               ("/api/generate", {"model": "nano", "prompt": long, "stream": False}), ("/api/embed", {"model": "nano", "input": long, "truncate": False})):
                status, _, data = attack(s, path, body)
                check(status in (400, 413), f"--ctx {context}: {path}: {status} {data[:200]}")
            for n in (1, 2, 3, 255, 256):  # around the edge it is answered or refused
                attack(s, "/v1/completions", {"prompt": [40] * n, "max_tokens": 600})
            equal(s.get("/health/live")[0], 200, "health")


# ---- what one may know of another ----
def test_row_21_nobody_sees_anothers_text():
    keys = ("key-of-ann", "key-of-bob")
    ann, bob = ({"Authorization": "Bearer " + k} for k in keys)
    with Server("--model", model("story"), "--api-key", keys[0], "--api-key", keys[1]) as s:
        body = {"messages": [{"role": "user", "content": SECRET + " " + "tell me a story " * 30}], "max_tokens": 150 if SLOW else 700, "user": SECRET, "ignore_eos": True}
        runs = threading.Thread(target=lambda: s.post("/v1/chat/completions", body, headers=ann))
        runs.start()
        seen = []
        while runs.is_alive():
            for path in ("/slots", "/v1/stats", "/metrics", "/props", "/v1/models", "/api/ps", "/health"):
                seen.append((path, s.get(path, headers=bob)[2]))
            time.sleep(0.05)
        runs.join()
        equal([path for path, data in seen if SECRET.encode() in data or b"tell me a story" in data], [], "texts of another")
        check(any(path == "/slots" and data.strip() not in (b"[]", b"") for path, data in seen), "the request was never seen to run")
        check(SECRET not in s.output() and keys[0] not in s.output(), "the log has it")


# ---- files ----
def test_row_22_no_path_leads_out_of_its_folder():
    folder, outside = temp("allowed"), temp("outside.gguf")
    os.makedirs(folder, exist_ok=True)
    for path in (outside, os.path.join(folder, "inside.gguf")):
        with contextlib.suppress(FileExistsError):
            os.link(model("nano"), path) if os.stat(model("nano")).st_dev == os.stat(folder).st_dev else write_copy(path)
    os.symlink(outside, os.path.join(folder, "link.gguf"))
    with Server("--model", model("nano"), "--model-dir", folder, "--no-log-requests") as s:
        for name in ("../outside.gguf", outside, "/etc/passwd", "link.gguf", "inside.gguf/../../outside.gguf", "./../outside.gguf", "..", "", ".",
                     "inside.gguf\x00.txt", "~/x.gguf", "file://" + outside, "x" * 5000, folder, "/proc/self/mem", "/dev/zero"):
            status, _, data = attack(s, "/v1/models/load", {"model_path": name, "model_id": "m"}, allowed=range(400, 500))
            check(b"root:" not in data, f"{data}")
        for name in ("../x", "a/b", "", "x" * 5000, "a\x00b", "..", "%2e%2e"):
            attack(s, "/v1/models/load", {"model_path": "inside.gguf", "model_id": name})
            attack(s, "/api/show", {"model": name}, allowed=range(400, 500))
        for path in ("/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/v1/models/..%2f..%2fetc%2fpasswd", "/v1/receipts/..%2f..%2fetc%2fpasswd",
                     "/static/../../etc/passwd", "//etc/passwd", "/v1/models/%00", "/page.js%00.html", "/..;/etc/passwd"):
            status, _, data = attack(s, path, None, allowed=range(400, 500), method="GET")
            check(b"root:" not in data, f"{path}: {data[:100]}")
        goes_on(s)


def write_copy(path):
    with open(model("nano"), "rb") as f, open(path, "wb") as out:
        out.write(f.read())


# ---- strangers' pages, open addresses ----
def test_row_23_an_open_address_needs_a_key():
    for host in ("0.0.0.0", "::"):
        expect(2, "serve", "--model", model("nano"), "--host", host, "--port", "0", says="key")


def test_row_23_pages_of_strangers_are_refused():
    with Server("--model", model("nano"), "--no-log-requests") as s:
        equal(s.get("/v1/models", headers={"Host": "evil.example"})[0], 403, "a name that was let point here")
        equal(s.get("/v1/models", headers={"Origin": "https://evil.example"})[0], 403, "another origin")
        body = {"prompt": "x", "max_tokens": 1}
        equal(s.post("/v1/completions", json.dumps(body), headers={"Content-Type": "text/plain"})[0], 415, "a form that needs no preflight")
        _, headers, _ = s.request("OPTIONS", "/v1/completions", headers={"Host": "localhost"})
        check(not any(h.startswith("access-control") for h in headers), f"{headers}")
        for host in ("127.0.0.2", "0.0.0.0:8080", "[::1]:99", "192.168.0.7"):  # an address points nowhere else than it says
            equal(s.get("/v1/models", headers={"Host": host})[0], 200, host)
        for host in ("evil", "127.0.0.1.evil.example", "evil.example:127", "1.2.3.4.x"):
            equal(s.get("/v1/models", headers={"Host": host})[0], 403, host)


if __name__ == "__main__":
    main(globals())
