"""A server that speaks as `bitnet serve` does, as far as the chat page listens, and misbehaves on demand: what a model would
have to be talked into (hostile text, failures in the middle of an answer) is here a word of the prompt.

    python3 tests/server/mock_server.py [PORT]      then open the address it prints
"""
import contextlib
import http.server
import json
import os
import re
import socket
import sys
import threading
import time

SOURCE = os.environ.get("BITNET_SOURCE", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
WEB = os.path.join(SOURCE, "server", "web")
TYPES = {"html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8",
         "svg": "image/svg+xml"}

STORY = ("Once upon a time there was a small fox who lived at the edge of a quiet forest. Every morning she ran to the stream to "
         "look at the sun in the water. One day the stream was gone. She followed its dry bed up the hill, past the old oak and "
         "the sleeping owl, until she found a round stone as large as a bear. She pushed, and it did not move. ")

MARKDOWN = """# A little of everything

Some *emphasis*, some **strong words**, ~~a mistake~~ and `code` in a [link](https://example.org/a_(b)).

## Lists

1. first, with a paragraph that is long enough to be broken into two lines on a narrow screen
2. second
   - inside
   - of it
     - deeper
3. third

- [x] done
- [ ] to do

> A quotation, which goes on
> for two lines.

```python
def fox(n):
    return ["quick"] * n  # <b>not bold</b>, and a line that is much longer than any phone is wide, to see it scroll
```

| animal | legs | sound |
|:--|--:|:-:|
| fox | 4 | ring |
| bird | 2 | tweet |

---

That is all: https://example.org/end."""

# Each of these would run something if the page made HTML of it, or a link of any scheme.
HOSTILE = """<img src=x onerror="window.hacked=1">
<script>window.hacked=2</script>
<svg onload="window.hacked=3"></svg>
<iframe srcdoc="<script>parent.hacked=4</script>"></iframe>
[click](javascript:window.hacked=5) [tab](java\tscript:window.hacked=6) [data](data:text/html,<script>hacked=7</script>)
[upper](JAVASCRIPT:window.hacked=8) [entity](javascript&#58;window.hacked=9) [vb](vbscript:hacked)
![picture](x" onerror="window.hacked=10) ![p](javascript:window.hacked=11)
<javascript:window.hacked=12> <a href="javascript:window.hacked=13">x</a>
[a](https://example.org/"onmouseover="window.hacked=14)
`<img src=x onerror=window.hacked=15>` **<b onclick=window.hacked=16>b</b>**

```html"onclick="window.hacked=17
<img src=x onerror=window.hacked=18>
```

| <img src=x onerror=window.hacked=19> | b |
|---|---|
| [x](javascript:window.hacked=20) | <script>window.hacked=21</script> |

# <img src=x onerror=window.hacked=22>

> [q](file:///etc/passwd) <style>body{display:none}</style>

[good](https://example.org/good) <mailto:fox@example.org> </article></main></body>
__proto__ constructor"""


def policy():
    """The header as server/native/web.h defines it."""
    with open(os.path.join(SOURCE, "server", "native", "web.h"), encoding="utf-8") as f:
        text = f.read()
    lines = re.search(r"#define SRV_WEB_POLICY(.*?[^\\])\n\n", text, re.S).group(1)
    return "".join(re.findall(r'"([^"]*)"', lines))


class Mock(http.server.ThreadingHTTPServer):
    """Serves on a port of its own from start() to stop(); start() again takes the same port."""
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port=0, key=None, delay=0.004):
        super().__init__(("127.0.0.1", port), Handler)
        self.key, self.delay = key, delay
        self.n_answers = self.n_gone = self.n_busy = 0
        self.requests, self.queries, self.posted, self.sockets = [], [], [], []
        self.loaded = {"story"}
        self.receipts = {}  # path -> when it is there
        self.policy = policy()
        self.url = f"http://127.0.0.1:{self.server_address[1]}/"
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def process_request(self, request, client_address):
        self.sockets.append(request)
        super().process_request(request, client_address)

    def stop(self):
        """As a process that ends: its connections end, too."""
        self.shutdown()
        self.server_close()
        for s in self.sockets:
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request, client_address):
        pass  # clients that go away are what is tested


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    # ---- replies ----
    def reply(self, status, body, content_type="application/json", **headers):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(data)

    def fail(self, status, message, **headers):
        self.reply(status, {"error": {"message": message, "type": "mock", "code": "mock", "param": None}}, **headers)

    def allowed(self):
        if self.server.key and self.headers.get("Authorization") != "Bearer " + self.server.key:
            self.fail(401, "No such API key.")
            return False
        return True

    # ---- requests ----
    def do_GET(self):
        path, _, query = self.path.removeprefix("/below/a/prefix").partition("?")  # as behind a proxy
        self.server.requests.append(path)
        self.server.queries.append(query)
        name = "index.html" if path == "/" else path[1:]
        if re.fullmatch(r"[a-z_]+\.(html|css|js|svg)", name) and os.path.exists(os.path.join(WEB, name)):
            with open(os.path.join(WEB, name), "rb") as f:
                self.reply(200, f.read(), TYPES[name.rsplit(".", 1)[1]], Content_Security_Policy=self.server.policy,
                           X_Content_Type_Options="nosniff", Cache_Control="no-cache")
        elif path == "/health":
            self.reply(200, {"status": "healthy"})
        elif self.allowed():
            self.get_api(path)

    def get_api(self, path):
        if path == "/v1/models":
            self.reply(200, {"object": "list", "data": [
                {"id": "story", "object": "model", "created": 1, "owned_by": "mock", "state": "loaded"},
                {"id": "large", "object": "model", "created": 1, "owned_by": "mock", "state": "loading", "progress": 0.4},
                {"id": "other", "object": "model", "created": 1, "owned_by": "mock",
                 "state": "loaded" if "other" in self.server.loaded else "unloaded"}]})
        elif path == "/props":
            self.reply(200, {"model": "story", "n_ctx": 512, "device": "cpu (mock), 2 threads", "version": "0.1.0",
                             "summary": "requested=auto detected=[cpu] selected=cpu", "limits": {"max_tokens": 4096}})
        elif path.startswith("/v1/receipts/") and time.monotonic() >= self.server.receipts.get(path, 0):
            self.reply(200, {"schema_version": "1.1.0", "compute_path": "real", "backend": "cpu",
                             "kernels": ["gemv_i2s_r16.dotprod", "rmsnorm.neon", "attention.neon", "<img src=x onerror=hacked=1>"],
                             "kernel_calls": {"gemv_i2s_r16.dotprod": 12345, "rmsnorm.neon": 500, "attention.neon": 250},
                             "environment": {"CPU_BRAND": "Mock CPU", "isa": "dotprod", "threads": 2, "GPU_INFO": ""},
                             "performance_baseline": {"total_time_ms": 1.0}})
        else:
            self.fail(404, "No such path.")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        if not self.allowed():
            return
        self.server.posted.append(body)
        last = body["messages"][-1]["content"]
        if self.misbehaves(last):
            return
        self.server.n_answers += 1
        self.server.loaded.add(body.get("model", "story"))
        self.stream(body, last, self.text_for(last, body))

    def misbehaves(self, last):
        m = re.search(r"fail (\d+)", last)
        if m:
            self.fail(int(m.group(1)), f"You asked for {m.group(1)}.")
        elif "busy" in last and self.server.n_busy < 2:
            self.server.n_busy += 1
            self.fail(503, "All slots are taken.", Retry_After=1)
        else:
            return False
        return True

    def text_for(self, last, body):
        if "markdown" in last:
            return MARKDOWN
        if "hostile" in last:
            return HOSTILE
        if "request" in last:
            return "```json\n" + json.dumps(body, indent=1) + "\n```"
        if "text:" in last:
            return last.split("text:", 1)[1]
        return f"[{self.server.n_answers}] " + STORY * (8 if "long" in last else 1)

    def stream(self, body, last, text):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        receipt = f"rcpt_{self.server.n_answers}"
        self.send_header("x-bitnet-receipt", receipt)
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        tokens = re.findall(r"\s?\S+|\s", text) if len(text) < 20000 else [text]
        try:
            self.chunk(body, delta={"role": "assistant", "content": ""})
            for i, token in enumerate(tokens):
                if "cut" in last and i == 5:
                    return  # no finish, no [DONE]
                if "break" in last and i == 5:
                    self.event({"error": {"message": "The device was lost.", "type": "server_error"}})
                    return
                self.chunk(body, delta={"content": token}, logprobs=self.logprobs(body, token, i))
                time.sleep(0.05 if "slow" in last else self.server.delay)
            self.chunk(body, delta={}, finish="stop")
            n_prompt = sum(len(m["content"].split()) for m in body["messages"]) + 4
            self.event({"id": "x", "object": "chat.completion.chunk", "model": body.get("model", "story"), "choices": [],
                        "usage": {"prompt_tokens": n_prompt, "completion_tokens": len(tokens), "total_tokens": n_prompt + len(tokens)}})
            self.server.receipts["/v1/receipts/" + receipt] = time.monotonic() + 0.25  # it is written a moment later
            self.wfile.write(b"data: [DONE]\n\n")
        except OSError:
            self.server.n_gone += 1

    def logprobs(self, body, token, i):
        if not body.get("logprobs"):
            return None
        top = [{"token": token, "logprob": -0.05 * (1 + i % 60)}, {"token": " other", "logprob": -3.2}, {"token": "\n", "logprob": -6.5}]
        return {"content": [{**top[0], "top_logprobs": top[:body.get("top_logprobs", 0)]}]}

    def chunk(self, body, delta, finish=None, logprobs=None):
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        if logprobs:
            choice["logprobs"] = logprobs
        self.event({"id": "x", "object": "chat.completion.chunk", "created": 1, "model": body.get("model", "story"), "choices": [choice]})

    def event(self, value):
        self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")


if __name__ == "__main__":
    mock = Mock(int(sys.argv[1]) if sys.argv[1:] else 8181)
    print(mock.url)
    threading.Event().wait()
