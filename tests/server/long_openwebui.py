#!/usr/bin/env python3
"""Open WebUI, which many put before a model server, in its own virtual environment (some gigabytes; fetched the first time) and
without a network: it finds the models by both APIs that it speaks, chats whole and streamed by each, and asks for embeddings."""
import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

from judges import judges, without_proxies
from serving import Server, check, equal, main, model, temp

START_S = 300
QUESTION = {"messages": [{"role": "user", "content": "What is 7 + 5?"}]}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class WebUI:
    """Open WebUI before a server."""

    def __init__(self, server, python):
        self.url, self.token = f"http://127.0.0.1:{free_port()}", None
        folder = temp("webui")
        os.makedirs(folder, exist_ok=True)
        env = dict(without_proxies(), DATA_DIR=folder, WEBUI_AUTH="False", WEBUI_SECRET_KEY="a secret that nobody needs to know",
                   OFFLINE_MODE="True", HF_HUB_OFFLINE="1", OPENAI_API_BASE_URL=server.url + "/v1", OPENAI_API_KEY="none",
                   OLLAMA_BASE_URL=server.url, ENABLE_OLLAMA_API="True", RAG_EMBEDDING_ENGINE="openai",
                   RAG_OPENAI_API_BASE_URL=server.url + "/v1", DO_NOT_TRACK="true", ANONYMIZED_TELEMETRY="false")
        with open(temp("webui.log"), "wb") as log:
            self.process = subprocess.Popen([os.path.join(os.path.dirname(python), "open-webui"), "serve", "--host", "127.0.0.1",
                                             "--port", self.url.rsplit(":", 1)[1]], cwd=folder, env=env, stdout=log,
                                            stderr=subprocess.STDOUT)

    def wait(self):
        end = time.monotonic() + START_S
        while time.monotonic() < end and self.process.poll() is None:
            with contextlib.suppress(OSError):
                self.ask("/health")
                self.token = json.loads(self.ask("/api/v1/auths/signin", {"email": "", "password": ""}))["token"]
                return self
            time.sleep(1)
        with open(temp("webui.log"), encoding="utf-8", errors="replace") as f:
            raise AssertionError(f"Open WebUI did not start: {f.read()[-2000:]}")

    def ask(self, path, body=None):
        headers = {"Content-Type": "application/json", **({"Authorization": "Bearer " + self.token} if self.token else {})}
        data = None if body is None else json.dumps(body).encode()
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(urllib.request.Request(self.url + path, data, headers), timeout=120) as reply:
                return reply.read().decode()
        except urllib.error.HTTPError as e:
            raise AssertionError(f"{path}: {e.code} {e.read()[:500]}") from None

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(30)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def openai_chats(webui):
    whole = json.loads(webui.ask("/api/chat/completions", {"model": "story", "stream": False, "temperature": 0, **QUESTION}))
    said = whole["choices"][0]["message"]["content"]
    check("12" in said, f"{whole}")
    lines = webui.ask("/api/chat/completions", {"model": "story", "stream": True, "temperature": 0, **QUESTION}).splitlines()
    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    equal("".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c.get("choices")), said, "streamed")


def ollama_chats(webui):
    request = {"model": "story:latest", "options": {"temperature": 0}, **QUESTION}
    whole = json.loads(webui.ask("/ollama/api/chat", {"stream": False, **request}))
    check("12" in whole["message"]["content"] and whole["done"], f"{whole}")
    lines = [json.loads(line) for line in webui.ask("/ollama/api/chat", {"stream": True, **request}).splitlines() if line.strip()]
    equal("".join(x["message"]["content"] for x in lines), whole["message"]["content"], "streamed")


def test_open_webui():
    python = judges("webui-venv", ["open-webui"])
    with Server("--model", model("story"), "--no-log-requests") as server, contextlib.closing(WebUI(server, python)) as webui:
        webui.wait()
        names = {m["id"] for m in json.loads(webui.ask("/api/models"))["data"]}
        check({"story", "story:latest"} <= names, f"models: {names}")
        openai_chats(webui)
        ollama_chats(webui)
        check("version" in json.loads(webui.ask("/ollama/api/version")), "version")
        vectors = json.loads(webui.ask("/api/embeddings", {"model": "story", "input": ["a fox"]}))["data"]
        check(len(vectors) == 1 and len(vectors[0]["embedding"]) == 512, "embeddings")


if __name__ == "__main__":
    main(globals())
