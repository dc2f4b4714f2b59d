#!/usr/bin/env python3
"""llm-comply, a checker of wire formats with the published schemas, against /v1/chat/completions, /v1/responses and
/v1/messages. All it asks for must be so, without a warning, but for what stands in LEFT_OUT with the reason; and what stands
there must still be as it says."""
import json
import os
import subprocess

from judges import judges, without_proxies
from retemplate import HERMES, retemplate
from serving import Server, check, equal, main, model, temp

IMAGE = "models here read text alone: an image is refused with 400"
MODEL = "a request without a model means the first one (docs/SERVER.md)"
# id of a check -> why it fails here, and what it says then
LEFT_OUT = {
    "chat-image-input": (IMAGE, "HTTP 400"), "image-input": (IMAGE, "HTTP 400"), "anth-image-input": (IMAGE, "HTTP 400"),
    "chat-error-handling": (MODEL, "HTTP 200"), "error-handling": (MODEL, "HTTP 200"),
}
# told as a warning: conversations are not kept here, so there is nothing to compact
NO_ENDPOINT = {"compact-response"}


# every event of streams against the schemas that llm-comply brings; it looks at their order, and at the data of responses alone
EVENTS = """
import json, os, sys, urllib.request
import jsonschema, llm_comply, referencing, referencing.jsonschema
url, folder = sys.argv[1], os.path.join(os.path.dirname(llm_comply.__file__), "specs")


def nullable(x):  # as OpenAPI 3.0 says it
    if isinstance(x, list):
        return [nullable(v) for v in x]
    if not isinstance(x, dict):
        return x
    rest = {k: nullable(v) for k, v in x.items() if k != "nullable"}
    return {"anyOf": [rest, {"type": "null"}]} if x.get("nullable") is True else rest


def validator(spec, name):
    with open(os.path.join(folder, spec), encoding="utf-8") as f:
        whole = referencing.Resource(contents=nullable(json.load(f)), specification=referencing.jsonschema.DRAFT202012)
    registry = referencing.Registry().with_resource("urn:spec", whole)
    return jsonschema.Draft202012Validator({"$ref": "urn:spec#/components/schemas/" + name}, registry=registry)


def events(path, body):
    body = json.dumps(dict(body, model="tools", stream=True, max_tokens=60, messages=[{"role": "user", "content": "Weather?"}]))
    request = urllib.request.Request(url + path, body.encode(), {"Content-Type": "application/json"})
    lines = urllib.request.urlopen(request).read().decode().splitlines()
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


def look(check, event):
    for e in check.iter_errors(event):
        sys.exit(f"{e.json_path}: {e.message[:300]} in {event}")


schema = {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]}
chunk = validator("openai_chat.json", "CreateChatCompletionStreamResponse")
function = {"type": "function", "function": {"name": "get_weather", "parameters": schema}}
n = 0
for more in ({}, {"logprobs": True, "top_logprobs": 2}, {"tools": [function], "tool_choice": "required"}, {"n": 2},
             {"stream_options": {"include_usage": True}}):
    for event in events("/v1/chat/completions", more):
        look(chunk, event)
        n += 1
names = [("message", w) for w in ("start", "delta", "stop")] + [("content_block", w) for w in ("start", "delta", "stop")]
known = {a + "_" + b: validator("anthropic.json", "".join(w.title() for w in a.split("_")) + b.title() + "Event") for a, b in names}
for more in ({}, {"tools": [{"name": "get_weather", "input_schema": schema}], "tool_choice": {"type": "any"}}):
    for event in events("/v1/messages", more):
        if event["type"] != "ping":
            look(known[event["type"]], event)
            n += 1
print(n)
"""


def results(server, form):
    command = [os.path.join(os.path.dirname(judges("comply-venv", ["llm-comply"])), "llm-comply"), "run", "--base-url",
               server.url + "/v1", "--api-key", "none", "--model", "tools", "--format", form, "--json", "--timeout", "60",
               "--header", "anthropic-version:2023-06-01"]
    done = subprocess.run(command, capture_output=True, text=True, env=without_proxies(), timeout=600, check=False)
    check(done.stdout.startswith("{"), (done.stdout + done.stderr)[-1500:])
    return json.loads(done.stdout)["results"]


def judge(form, n_passed):
    retemplate(model("story"), temp("tools.gguf"), HERMES)
    faults, passed = [], 0
    with Server("--model", temp("tools.gguf"), "--no-log-requests") as server:
        for one in results(server, form):
            said = [str(e)[:300] for e in one.get("errors", [])]
            _, want = LEFT_OUT.get(one["id"], (None, None))
            if want and not any(want in e for e in said):
                faults.append(f"{one['id']}: left out, but it says {one['status']} {said}")
            elif one["status"] == "failed" and not want:
                faults.append(f"{one['id']}: {said}")
            elif one.get("warnings") and one["id"] not in NO_ENDPOINT and one["status"] == "passed":
                faults.append(f"{one['id']}: warns {one['warnings']}")
            passed += one["status"] == "passed"
    check(not faults, "\n".join(faults))
    equal(passed, n_passed, "checks that passed")


def test_chat_completions():
    judge("openai-chat", 6)


def test_responses():
    judge("open-responses", 10)


def test_messages():
    judge("anthropic", 7)


def test_events_are_as_published():
    retemplate(model("story"), temp("tools.gguf"), HERMES)
    python = judges("comply-venv", ["llm-comply"])
    with Server("--model", temp("tools.gguf"), "--no-log-requests") as server:
        done = subprocess.run([python, "-c", EVENTS, server.url], capture_output=True, text=True, env=without_proxies(), timeout=300,
                              check=False)
    equal(done.returncode, 0, done.stderr[-1500:])
    check(int(done.stdout) > 50, f"only {done.stdout} events")


if __name__ == "__main__":
    main(globals())
