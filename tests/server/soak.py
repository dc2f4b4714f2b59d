"""Mixed traffic for a while, and what must be true of the server afterwards; test_soak.py and long_soak.py run it.

Of a hundred requests about ten go away in the middle of the answer, five are malformed, five too large, three read slowly;
the others use all APIs, and one in thirty asks for another model, which must be swapped in. $SOAK_SECONDS sets how long."""
import collections
import http.client
import json
import os
import random
import re
import shutil
import socket
import threading
import time

from serving import SLOW, Server, check, equal, model, temp

WORKERS = 8
MAX_BODY_KB = 64
WORDS = "Once upon a time there was a little fox who lived in the forest and liked to tell stories to the moon".split()
FINE = {200, 204}
# a full queue, a rate, a model that makes room: told with Retry-After
BUSY = {429, 503}


def text(rng, n=None):
    return " ".join(rng.choice(WORDS) for _ in range(n or rng.randint(2, 40)))


def messages(rng):
    return [{"role": "user", "content": text(rng)}]


def requests(rng, absent):
    """(path, body) of a request that must be answered; body None: GET. Paths that this server does not have are left out."""
    n = rng.randint(1, 24)
    stream = rng.random() < 0.5
    kinds = [
        ("/v1/chat/completions", {"messages": messages(rng), "max_tokens": n, "stream": stream}),
        ("/v1/chat/completions", {"messages": messages(rng), "max_tokens": n, "n": 2, "temperature": 1.2}),
        ("/v1/chat/completions", {"messages": messages(rng), "max_tokens": n, "response_format": {"type": "json_object"}}),
        ("/v1/completions", {"prompt": text(rng), "max_tokens": n, "stream": stream, "logprobs": 2}),
        ("/v1/completions", {"prompt": text(rng), "max_tokens": 0, "echo": True, "logprobs": 1}),
        ("/v1/responses", {"input": text(rng), "max_output_tokens": max(n, 16), "stream": stream}),
        ("/v1/embeddings", {"input": [text(rng), text(rng)]}),
        ("/v1/messages", {"model": "nano", "messages": messages(rng), "max_tokens": n, "stream": stream}),
        ("/v1/messages/count_tokens", {"model": "nano", "messages": messages(rng)}),
        ("/api/chat", {"model": "nano", "messages": messages(rng), "stream": stream, "options": {"num_predict": n}}),
        ("/api/generate", {"model": "nano", "prompt": text(rng), "stream": stream, "options": {"num_predict": n}}),
        ("/api/embed", {"model": "nano", "input": text(rng)}),
        ("/v1/inference", {"prompt": text(rng), "max_tokens": n}),
        ("/v1/inference/stream", {"prompt": text(rng), "max_tokens": n}),
        ("/tokenize", {"content": text(rng)}),
        ("/apply-template", {"messages": messages(rng)}),
        ("/v1/models", None), ("/api/tags", None), ("/v1/stats", None), ("/slots", None), ("/metrics", None),
        ("/health/ready", None), ("/props", None),
    ]
    path, body = rng.choice([k for k in kinds if k[0] not in absent])
    if body and rng.random() < 0.03 and path.startswith("/v1/c"):
        body["model"] = "other"
    return path, body


NO_OBJECTS = [b"", b"{", b"nonsense", b"[1,2,3]", b'"text"', b"\xff\xfe\x00", b"[" * 5000, b'{"a": ' * 400,
              b'{"prompt": "x", "temperature": NaN}']
# an API that does not have the field may answer
WRONG_FIELDS = [
    b'{"messages": 5}', b'{"messages": []}', b'{"prompt": {"a": 1}, "max_tokens": "many"}', b'{"prompt": "x", "max_tokens": -7}',
    b'{"prompt": "x", "n": 1e308}', b'{"prompt": [99999999]}', b'{"messages": [{"role": "wizard", "content": null}]}',
    b'{"prompt": "x", "logit_bias": {"-1": "a"}}', b'{"prompt": "x", "grammar": "root ::= ((((("}',
    b'{"messages": [{"role": "user", "content": "x"}], "tools": {"a": 1}}',
]
RAW = [b"GET\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{", b"\x16\x03\x01\x02\x00\x01",
       b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"]
API_PATHS = ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings", "/v1/messages", "/api/chat",
             "/api/generate", "/v1/inference", "/tokenize"]
ALL_PATHS = API_PATHS + ["/v1/messages/count_tokens", "/api/embed", "/v1/inference/stream", "/apply-template", "/v1/models",
                         "/api/tags", "/v1/stats", "/slots", "/metrics", "/health/ready", "/props"]


class Traffic:
    def __init__(self, server, seconds):
        self.server, self.end = server, time.monotonic() + seconds
        self.lock = threading.Lock()
        self.statuses = collections.Counter()
        self.kinds = collections.Counter()
        self.by_path = collections.Counter()
        self.faults = []
        # with another method a path that exists says 405
        self.absent = {p for p in ALL_PATHS if server.request("PUT", p)[0] == 404}
        if self.absent:
            print(f"      without {', '.join(sorted(self.absent))}, which this server does not have", flush=True)

    def note(self, kind, path, status, ok, what=""):
        with self.lock:
            self.kinds[kind] += 1
            self.statuses[status] += 1
            self.by_path[(path, status)] += 1
            if not ok and len(self.faults) < 20:
                self.faults.append(f"{kind} {path}: {status} {what}")

    def api_path(self, rng):
        return rng.choice([p for p in API_PATHS if p not in self.absent])

    # ---- kinds of requests ----
    def connect(self):
        return http.client.HTTPConnection(self.server.host, self.server.port, timeout=120)

    def send(self, kind, path, body, wanted):
        connection = self.connect()
        try:
            data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
            connection.request("GET" if body is None else "POST", path, data, {"Content-Type": "application/json"})
            reply = connection.getresponse()
            got = reply.read()
            busy = reply.status in BUSY and reply.getheader("Retry-After")
            ok = wanted(reply.status) or busy
            whole = b"data:" not in got[:64] or reply.status != 200 or got.endswith(b"\n\n")
            self.note(kind, path, reply.status, ok and whole, got[:200])
        except (OSError, http.client.HTTPException) as e:
            self.note(kind, path, "broken", kind in ("oversized", "malformed"), repr(e))
        finally:
            connection.close()

    def valid(self, rng):
        self.send("valid", *requests(rng, self.absent), lambda status: status in FINE)

    def malformed(self, rng):
        path = self.api_path(rng)
        if rng.random() < 0.5:
            self.send("malformed", path, rng.choice(NO_OBJECTS), lambda status: 400 <= status < 500)
        else:
            self.send("malformed", path, rng.choice(WRONG_FIELDS), lambda status: status == 200 or 400 <= status < 500)

    def raw(self, rng):
        """What is no HTTP, or ends too early: the connection may only be closed."""
        with socket.create_connection((self.server.host, self.server.port), timeout=60) as s:
            try:
                s.sendall(rng.choice(RAW))
                if rng.random() < 0.5:
                    s.shutdown(socket.SHUT_WR)
                    s.recv(4096)
            except OSError:
                pass
        self.note("raw", "-", "raw", True)

    def oversized(self, rng):
        body = json.dumps({"prompt": "x" * (MAX_BODY_KB * 1024 + rng.randint(1, 100000))}).encode()
        self.send("oversized", self.api_path(rng), body, lambda status: status == 413)

    def stream_body(self, rng):
        return json.dumps({"prompt": text(rng), "max_tokens": 200, "stream": True, "ignore_eos": True}).encode()

    def open_stream(self, rng, small=False):
        s = socket.socket()
        if small:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        s.settimeout(120)
        s.connect((self.server.host, self.server.port))
        body = self.stream_body(rng)
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                  b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        return s

    def disconnect(self, rng):
        with self.open_stream(rng) as s:
            for _ in range(rng.randint(0, 3)):
                if not s.recv(400):
                    break
            time.sleep(rng.random() * 0.05)
        self.note("disconnect", "/v1/completions", "left", True)

    def slow(self, rng):
        got = b""
        with self.open_stream(rng, small=True) as s:
            while time.monotonic() < self.end and b"[DONE]" not in got[-400:] and b" 503 " not in got[:60]:
                piece = s.recv(512)
                if not piece:
                    break
                got += piece
                time.sleep(0.01)
        self.note("slow", "/v1/completions", "slow", True)

    # ---- all of them ----
    def work(self, seed):
        rng = random.Random(seed)
        while time.monotonic() < self.end:
            dice = rng.random()
            try:
                if dice < 0.10:
                    self.disconnect(rng)
                elif dice < 0.15:
                    (self.malformed if rng.random() < 0.7 else self.raw)(rng)
                elif dice < 0.20:
                    self.oversized(rng)
                elif dice < 0.23:
                    self.slow(rng)
                else:
                    self.valid(rng)
            except OSError as e:
                self.note("connection", "-", "refused", False, repr(e))
                time.sleep(0.2)

    def run(self):
        threads = [threading.Thread(target=self.work, args=(i,)) for i in range(WORKERS)]
        for t in threads:
            t.start()
        return threads


def figures(server):
    """The samples of /metrics: name with labels -> value."""
    _, _, body = server.get("/metrics")
    found = {}
    for line in body.decode().splitlines():
        if line and not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            found[name] = float(value)
    return found


def total(found, name):
    return sum(v for k, v in found.items() if re.match(re.escape(name) + r"(\{|$)", k))


def wait_until_idle(server, seconds=30):
    """No slot, no queue, no other request than the question; the figures then."""
    end = time.monotonic() + seconds
    while True:
        found = figures(server)
        busy = [total(found, n) for n in ("bitnet_slots_active", "bitnet_queue_length", "bitnet_kv_blocks_used")]
        if not any(busy) and found["bitnet_requests_active"] <= 1:
            return found
        check(time.monotonic() < end, f"still busy after {seconds} s: slots, queue, blocks {busy}, "
                                      f"{found['bitnet_requests_active']} requests")
        time.sleep(0.2)


def most(samples):
    """The most, but for a tenth of the samples."""
    return sorted(samples)[9 * (len(samples) - 1) // 10]


def check_memory(samples):
    """Resident bytes late against those after the warm-up, a quarter of the time: how much it is when both models are loaded."""
    n = len(samples)
    early, late = most(samples[n // 4:n // 2]), most(samples[n - n // 4:])
    shown = " ".join(f"{x / 1e6:.0f}" for x in samples[::max(1, n // 20)])
    print(f"      resident {early / 1e6:.1f} MB warm, {late / 1e6:.1f} MB late; in MB, as time went: {shown}", flush=True)
    if not SLOW:  # a sanitizer keeps what is freed
        check(late <= 1.05 * early, f"resident memory grew by {100 * (late / early - 1):.1f} %")


def check_counters(found, traffic):
    received, ended = found["bitnet_requests_received_total"], total(found, "bitnet_requests_total")
    check(received == ended + found["bitnet_requests_active"], f"{received} came, {ended} ended")
    server_errors = {k: v for k, v in found.items() if re.search(r'requests_total\{.*status="5\d\d"', k) and '"503"' not in k}
    check(not server_errors, f"{server_errors}")
    fine = sum(v for k, v in found.items() if k.startswith("bitnet_requests_total{") and 'status="200"' in k)
    sent = traffic.statuses[200]
    unsure = traffic.kinds["disconnect"] + traffic.kinds["slow"]
    own = 30 / 0.2 + 10  # questions of wait_until_idle, and a few
    check(sent <= fine <= sent + unsure + own, f"clients saw {sent} answers and may have left {unsure}, the server sent {fine}")
    spans = total(found, "bitnet_request_duration_seconds_count")
    check(spans == ended, f"{ended} requests ended, {spans} have a duration")


def soak(seconds):
    copy = temp("other.gguf")
    shutil.copyfile(model("nano"), copy)
    with Server("--model", model("nano"), "--model", copy, "--max-loaded", "1", "--max-body", str(MAX_BODY_KB),
                "--no-log-requests", "--write-timeout", "5", "--read-timeout", "5", "--idle-timeout", "5", "--kv-pool", "8") as s:
        traffic = Traffic(s, seconds)
        threads, samples = traffic.run(), []
        while any(t.is_alive() for t in threads):
            samples.append(s.rss())
            check(s.process.poll() is None, f"the server ended: {s.output()[-2000:]}")
            time.sleep(min(1.0, seconds / 60))
        print(f"      {sum(traffic.kinds.values())} requests: {dict(traffic.kinds)}, {dict(traffic.statuses)}", flush=True)
        check(not traffic.faults, "\n".join(traffic.faults))
        found = wait_until_idle(s)
        check_counters(found, traffic)
        check_memory(samples)
        if "/slots" not in traffic.absent:
            equal(s.json("GET", "/slots"), [], "/slots")
        status, _, body = s.post("/v1/completions", {"prompt": "Once", "max_tokens": 4})
        check(status == 200, f"afterwards: {status} {body[:200]}")


def seconds_asked(usual):
    return float(os.environ.get("SOAK_SECONDS") or usual)
