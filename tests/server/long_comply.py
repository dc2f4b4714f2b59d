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


if __name__ == "__main__":
    main(globals())
