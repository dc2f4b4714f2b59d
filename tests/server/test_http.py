#!/usr/bin/env python3
"""HTTP of the server under attack and in daily use, without a model: http_driver has its routes, written for this.

The classes of attack that HTTP has to survive (users' list, rows 17, 19 to 23): numbers beyond all bounds, bodies, headers and
slow senders, clients that leave, what one client may see of another, encoded paths, pages of strangers."""
import concurrent.futures
import contextlib
import http.client
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
from harness import BITNET, SOURCE, Skip, allow_files, check, equal, expect, main, temp, write  # noqa: E402

DRIVER = os.path.join(os.environ.get("BITNET_BUILD") or os.path.dirname(BITNET), "tests", "http_driver")
SANITIZER = re.compile(r"(Address|Thread|Leak|UndefinedBehavior)Sanitizer|runtime error:")


class Driver:
    """A running http_driver. Leaving the block sends SIGTERM; it must end with 0 and a sanitizer say nothing."""

    def __init__(self, *settings, **kw):
        if not os.path.exists(DRIVER):
            raise Skip(f"{DRIVER} is not built")
        self.err = tempfile.TemporaryFile(mode="w+", encoding="utf-8", errors="replace")
        self.process = subprocess.Popen([DRIVER, *settings], stdout=subprocess.PIPE, stderr=self.err, text=True, **kw)
        self.address = self.process.stdout.readline().strip()
        check(self.address, f"it does not listen: {self.log()}")
        m = re.fullmatch(r"http://(.*):(\d+)", self.address)
        self.port = int(m.group(2)) if m else None

    def log(self):
        self.err.seek(0)
        return self.err.read()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = "nothing within 40 s"
        if kind is None:
            check(not SANITIZER.search(self.log()), self.log()[-3000:])
            equal(code, 0, f"exit status ({self.log()[-1500:]})")

    def connect(self, timeout=20):
        return socket.create_connection(("127.0.0.1", self.port), timeout)

    def ask(self, method, path, body=None, headers=None, connection=None):
        """(status, headers, bytes)"""
        c = connection or http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        c.request(method, path, body, headers or {})
        r = c.getresponse()
        data = r.read()
        if not connection:
            c.close()
        return r.status, r.headers, data

    def post(self, path, value, **headers):
        return self.ask("POST", path, json.dumps(value), {"Content-Type": "application/json", **headers})

    def seen(self):
        return json.loads(self.ask("GET", "/seen")[2])

    def until(self, name, value, seconds=10):
        """Waits until what /seen tells under this name has the value."""
        end = time.monotonic() + seconds
        while self.seen()[name] != value:
            check(time.monotonic() < end, f"{name} is {self.seen()[name]}, not {value}, after {seconds} s")
            time.sleep(0.02)

    def raw(self, data, timeout=20):
        """Sends bytes as they are; everything that comes back until the end of the connection."""
        with self.connect(timeout) as s:
            s.sendall(data)
            return drain(s)

    def works(self):
        equal(self.post("/echo", {"a": 1})[0], 200, "it still answers")


def drain(s):
    got = b""
    with contextlib.suppress(ConnectionError):
        while part := s.recv(65536):
            got += part
    return got


def status_of(reply):
    m = re.match(rb"HTTP/1\.1 (\d+)", reply)
    return int(m.group(1)) if m else None


# ---- daily use ----

def test_reply_headers():
    with Driver() as d:
        status, headers, body = d.post("/echo", {"a": [1, "ü"]})
        equal((status, json.loads(body)["echo"]), (200, {"a": [1, "ü"]}), "echo")
        check(re.fullmatch(r"req_[0-9a-f]{22}", headers["x-request-id"]), headers["x-request-id"])
        equal((headers["Cache-Control"], headers["X-Content-Type-Options"]), ("no-store", "nosniff"), "headers")
        check(headers["x-request-id"] != d.post("/echo", {})[1]["x-request-id"], "ids differ")
        for mine, kept in (("abc-1.2_X", True), ("a" * 64, True), ("a" * 65, False), ("a b", False), ("a\"b", False)):
            got = d.post("/echo", {}, **{"x-request-id": mine})[1]["x-request-id"]
            equal(got == mine, kept, f"x-request-id {mine}")


def test_silent_streams_say_that_they_live():
    """A comment comes between two events where they are further apart than that, and nowhere else."""
    comment = b":\n\n"
    for settings, least, most in ((["ping=0.2"], 2, 6), (["ping=0"], 0, 0), ([], 0, 0)):
        with Driver(*settings) as d:
            status, _, data = d.ask("GET", "/stream/2?ms=700")
            equal((status, data.count(b"data: ")), (200, 3), f"{settings}: events")
            n = data.replace(b"event: end", b"").count(comment)
            check(least <= n <= most, f"{settings}: {n} comments in {data!r}")
            equal(data.replace(comment, b"").count(b"\n\n"), 3, f"{settings}: events beside {n} comments")
    with Driver("ping=0.3") as d:
        equal(d.ask("GET", "/stream/20?ms=50")[2].count(comment), 0, "comments in a stream that is not silent")
        data = d.ask("GET", "/stream/1?before=1200")[2]
        check(data.startswith(comment) and data.count(b"data: ") == 2, f"a stream that has said nothing yet: {data!r}")
        equal(d.ask("GET", "/sleep/900")[0], 200, "a reply that is no stream")
        equal(d.ask("GET", "/health/live")[0], 200, "then")


def test_keep_alive_and_pipelining():
    with Driver() as d:
        c = http.client.HTTPConnection("127.0.0.1", d.port, timeout=20)
        c.connect()
        first = c.sock.getsockname()
        for i, (method, path) in enumerate([("GET", "/health/live"), ("GET", "/sleep/1"), ("GET", "/none"), ("GET", "/stream/3"), ("POST", "/echo")]):
            d.ask(method, path, b"{}" if method == "POST" else None, connection=c)
            equal(c.sock and c.sock.getsockname(), first, f"the connection after request {i}")
        c.close()
        one = b"GET /sleep/5 HTTP/1.1\r\nHost: localhost\r\n\r\n"
        last = b"GET /sleep/5 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        equal(d.raw(one * 4 + last).count(b'{"slept":true}'), 5, "replies to five requests in one packet")


def test_methods_and_paths():
    with Driver() as d:
        status, headers, body = d.ask("DELETE", "/echo")
        equal((status, headers["Allow"]), (405, "POST, OPTIONS"), "405 says what is allowed")
        equal(d.ask("BREW", "/sleep/1")[0], 405, "an unknown method")
        equal(d.ask("OPTIONS", "/echo")[0], 204, "OPTIONS")
        status, headers, body = d.ask("HEAD", "/health/live")
        equal((status, body, headers["Content-Length"]), (200, b"", "17"), "HEAD")
        for path in ("/", "/nothing/", "/sleep/", "/sleep/1/2", "/sleep", "//echo", "/../echo", "/%65cho", "/sleep%2f1"):
            equal(d.ask("GET", path)[0], 404, path)
        equal(d.ask("GET", "/sleep/%31")[0], 200, "an encoded part")
        equal(d.ask("GET", "/sleep/%00")[0], 200, "a zero byte in a part ends nowhere")
        equal(d.ask("GET", "/sleep/..%2f..%2fetc%2fpasswd")[0], 200, "a part is never a path")


def test_errors_in_each_shape():
    with Driver("key=secret") as d:
        native = json.loads(d.post("/echo", {})[2])
        equal((native["error_code"], native["details"]), ("INVALID_API_KEY", None), "native")
        openai = json.loads(d.post("/v1/echo", {})[2])["error"]
        equal((openai["type"], openai["code"], openai["param"]), ("authentication_error", "invalid_api_key", None), "OpenAI")
        status, headers, body = d.post("/v1/messages", {})
        anthropic = json.loads(body)
        equal((anthropic["type"], anthropic["error"]["type"], anthropic["request_id"]),
              ("error", "authentication_error", headers["x-request-id"]), "Anthropic")
        equal(headers["WWW-Authenticate"], "Bearer", "401 says how")
        check(isinstance(json.loads(d.post("/api/echo", {})[2])["error"], str), "Ollama")
        for path, field in (("/v1/none", "error"), ("/v1/messages/none", "type"), ("/api/none", "error"), ("/none", "error_code")):
            check(field in json.loads(d.ask("GET", path)[2]), f"404 of {path}")


def test_a_handler_that_forgets():
    with Driver() as d:
        equal(d.ask("GET", "/nothing")[0], 500, "no reply")
        equal(d.ask("GET", "/twice")[2], b"once", "two replies")
        end = time.monotonic() + 5
        while "a second reply" not in d.log() and time.monotonic() < end:  # told after the first one was sent
            time.sleep(0.02)
        check("/nothing ended without a reply" in d.log() and "a second reply" in d.log(), d.log())


def test_streams_arrive_whole_and_at_once():
    with Driver() as d:
        c = http.client.HTTPConnection("127.0.0.1", d.port, timeout=20)
        c.request("GET", "/stream/20?ms=50")
        r = c.getresponse()
        began = time.monotonic()
        r.readline()
        check(time.monotonic() - began < 0.5, "the first event waits for the others")
        rest = r.read().decode()
        equal(re.findall(r'"i":(\d+)', rest), [str(i) for i in range(1, 20)], "events in order")
        equal(r.headers["Content-Type"], "text/event-stream; charset=utf-8", "type")
        status, _, body = d.ask("GET", "/stream/2000?bytes=1000")
        equal((status, body.count(b"data: "), body.endswith(b'event: end\ndata: {"gone":false}\n\n')), (200, 2001, True), "2 MB")
        old = d.raw(b"GET /stream/3 HTTP/1.0\r\n\r\n")
        check(old.count(b"data: ") == 4 and b"chunked" not in old, "a client of HTTP 1.0")


def slowly(d, path, first_s):
    """A reply whose client has little room and takes nothing for a while, then a little at a time: its status, its body, and
    the sizes of its chunks."""
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        s.settimeout(20)
        s.connect(("127.0.0.1", d.port))
        s.sendall(b"GET " + path.encode() + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(first_s)
        got = b""
        while not got.endswith(b"\r\n0\r\n\r\n"):
            more = s.recv(700)
            check(more, f"the connection ended after {len(got)} bytes: {got[-100:]}")
            got += more
    head, _, rest = got.partition(b"\r\n\r\n")
    body, sizes = b"", []
    while not sizes or sizes[-1]:
        size, _, rest = rest.partition(b"\r\n")
        sizes.append(int(size, 16))
        body, mark, rest = body + rest[:sizes[-1]], rest[sizes[-1]:sizes[-1] + 2], rest[sizes[-1] + 2:]
        equal(mark, b"\r\n", f"the end of chunk {len(sizes)}")
    return status_of(head + b"\r\n\r\n"), body, sizes


def test_streams_of_slow_clients_arrive_whole():
    """Whoever sends, a chunk that the client took in part is finished before the next one begins."""
    with Driver() as d:
        for how in ("bytes=30&ms=1", "bytes=9000", "bytes=9000&ms=1", "bytes=30&gather=10", "bytes=9000&gather=7", "bytes=100000&gather=2", "bytes=100000&gather=25"):
            n = 40 if "100000" in how else 600
            status, body, _ = slowly(d, f"/stream/{n}?{how}", 0.3)
            equal((status, re.findall(rb'"i":(\d+)', body)), (200, [str(i).encode() for i in range(n)]), how)
            check(body.endswith(b'event: end\ndata: {"gone":false}\n\n'), how)
        d.until("running", 0)


def test_events_that_were_gathered_are_sent_together():
    with Driver() as d:
        _, body, sizes = slowly(d, "/stream/100?bytes=10&gather=10&ms=2", 0)
        equal(body.count(b"data: "), 101, "events")
        check(len(sizes) <= 13, f"chunks of 10 events each: {sizes}")


def test_many_streams_at_once():
    with Driver() as d:
        bodies = [None] * 64
        def one(i):
            bodies[i] = d.ask("GET", f"/stream/200?ms=1&bytes={i}")[2]
        threads = [threading.Thread(target=one, args=(i,)) for i in range(64)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        equal([b.count(b"data: ") for b in bodies], [201] * 64, "events of 64 streams")
        d.until("running", 0)


def test_V_6_health():
    """What the health check of the library finds is what /health says; it costs a request nothing."""
    with Driver() as d:
        status, headers, body = d.ask("GET", "/health")
        h = json.loads(body)
        equal((status, h["status"], headers["Cache-Control"]), (200, "healthy", "no-store"), "sound")
        equal({c: v["status"] for c, v in h["components"].items()}, {"model": "healthy", "memory": "healthy", "inference_engine": "healthy"}, "components")
        check(h["uptime_seconds"] >= 0 and h["metrics"]["models_loaded"] == 1 and h["timestamp"].endswith("Z"), str(h))
    with Driver("wrong=1") as d:
        end = time.monotonic() + 5
        while d.ask("GET", "/health/ready")[0] != 503:
            check(time.monotonic() < end, "wrong results are not noticed")
            time.sleep(0.02)
        status, _, body = d.ask("GET", "/health")
        h = json.loads(body)
        equal((status, h["status"], h["components"]["inference_engine"]["status"]), (503, "unhealthy", "unhealthy"), "wrong results")
        equal(d.ask("GET", "/health/live")[0], 200, "the process is alive")


# ---- row 19: bodies, headers, slow senders, JSON ----

def test_row_19_bodies():
    with Driver("max_body=100000", "read=2") as d:
        equal(d.post("/echo", {"x": "y" * 99000})[0], 200, "just small enough")
        equal(d.post("/echo", {"x": "y" * 100001})[0], 413, "too large, but sent")
        began = time.monotonic()
        head = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n"
        for length in (100001, 10**12, 10**18):
            equal(status_of(d.raw(head % length + b"\r\n")), 413, f"{length} bytes announced")
        check(time.monotonic() - began < 1.5, "413 comes before the body")
        equal(status_of(d.raw(head % 200000 + b"Expect: 100-continue\r\n\r\n")), 413, "no 100 Continue for what is refused")
        with d.connect() as s:
            s.sendall(head % 2 + b"Expect: 100-continue\r\nConnection: close\r\n\r\n")
            check(s.recv(100).startswith(b"HTTP/1.1 100"), "100 Continue")
            s.sendall(b"{}")
            equal(status_of(drain(s)), 200, "what follows it")
        chunk = b"8000\r\n" + b" " * 0x8000 + b"\r\n"
        chunked = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        equal(status_of(d.raw(chunked + b"2\r\n{}\r\n0\r\n\r\n")), 200, "chunks")
        equal(status_of(d.raw(chunked + chunk * 5 + b"0\r\n\r\n")), 413, "chunks without end")
        with d.connect() as s, contextlib.suppress(ConnectionError):
            s.sendall(chunked)
            for _ in range(1000):
                s.sendall(chunk)
            raise AssertionError("32 MB of chunks were taken")
        d.until("body_bytes", 0)
        d.works()


def test_row_19_values_of_all_requests_together():
    """A few bytes of text can be many of a tree: trees have a common limit, and leave it when requests end, however they do."""
    with Driver("json_room=100000") as d:
        for _ in range(3):
            status, headers, data = d.post("/echo", {"a": [{}] * 1000})
            equal((status, headers["Retry-After"]), (503, "1"), f"a large tree: {data[:200]!r}")
            equal(d.post("/echo", {"a": [{}] * 100})[0], 200, "a small one")
        for body, want in ((b'[{},{}]', 400), (b'{"a":[{},{}', 400), (b'{"a":1}', 200)):
            for _ in range(200):
                equal(d.ask("POST", "/echo", body, {"Content-Type": "application/json"})[0], want, f"{body}")
        for n, want in ((1, 200), (3, 503), (1, 200), (3, 503)): # texts of JSON inside the body are counted too
            d.until("json_bytes", 0)  # a request ends a moment after its reply
            status, headers, data = d.post("/admit", {"texts": ["[" + "{}," * 100 + "{}]"] * n})
            equal((status, headers.get("Retry-After")), (want, "1" if want == 503 else None), f"{n} texts: {data[:200]!r}")
        d.until("json_bytes", 0)
        d.works()
    with Driver("max_body=1000000") as d:
        equal(d.post("/echo", {"a": [{}] * 100000})[0], 200, "a large tree where there is room")


def test_row_19_headers():
    with Driver("read=1") as d:
        equal(status_of(d.raw(b"GET /seen HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 100000 + b"\r\n\r\n")), 431, "one long header")
        equal(status_of(d.raw(b"GET /seen HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 20000 + b"\r\n")), 431, "many headers")
        equal(status_of(d.raw(b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")), 414, "a long path")
        equal(status_of(d.raw(b"GET /seen?" + b"a=b&" * 300 + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")), 200, "a long query")
        equal(d.raw(b"GET /seen?" + b"a=b&" * 3000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"), b"", "3,000 variables: the connection ends")
        d.works()


def test_row_19_framing():
    """Two lengths are one too many: a proxy may take the other one."""
    post = b"POST /echo HTTP/1.1\r\nHost: localhost\r\n"
    with Driver() as d:
        for what, lines, wanted in (
                ("both kinds", b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", {400}),
                ("two lengths", b"Content-Length: 2\r\nContent-Length: 4\r\n\r\n{}{}", {400}),
                ("a list", b"Content-Length: 2, 2\r\n\r\n{}", {400}),
                ("a sign", b"Content-Length: +2\r\n\r\n{}", {400}),
                ("a negative one", b"Content-Length: -1\r\n\r\n{}", {400}),
                ("more than 64 bits", b"Content-Length: 99999999999999999999999\r\n\r\n{}", {400, 413}),
                ("another coding", b"Transfer-Encoding: gzip\r\n\r\n{}", {400, 501}),
                ("two codings", b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", {400, 501}),
                ("a blank before the colon", b"Content-Length : 2\r\n\r\n{}", {400}),
                ("a tab there", b"Content-Length\t: 2\r\n\r\n{}", {400}),
                ("a length in the next line", b"Content-Length:\r\n 2\r\n\r\n{}", {400}),
                ("a coding in the next line", b"Content-Length: 2\r\nTransfer-Encoding:\r\n chunked\r\n\r\n{}", {400}),
                ("a blank before the coding's colon", b"Content-Length: 2\r\nTransfer-Encoding : chunked\r\n\r\n{}", {400}),
                ("a name that is none", b"Content-Length: 2\r\nX(Y): 1\r\n\r\n{}", {400})):
            reply = d.raw(post + lines + b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            check(status_of(reply) in wanted, f"{what}: {reply[:200]}")
            check(b" 200 OK" not in reply, f"{what}: the second request was seen in it: {reply}")
        for what, data in (("no Host", b"GET /seen HTTP/1.1\r\n\r\n"), ("two Hosts", b"GET /seen HTTP/1.1\r\nHost: a\r\nHost: localhost\r\n\r\n")):
            equal(status_of(d.raw(data)), 400, what)
        equal(d.seen()["handled"], 0, "handlers that were called")


def test_targets_as_for_a_proxy():
    with Driver() as d:
        for target, host, wanted in (("http://localhost/health/live", "localhost", 200), ("HTTP://LOCALHOST/health/live", "localhost", 200),
                                     ("http://localhost", "localhost", 404), ("http://evil.example/health/live", "localhost", 400),
                                     ("http://localhost/health/live", "evil.example", 400), ("http://localhost/no/such", "localhost", 404)):
            reply = d.raw(f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            equal(status_of(reply), wanted, f"{target} of {host}")


def test_compressed_bodies_are_refused():
    with Driver() as d:
        for coding, wanted in (("gzip", 415), ("br", 415), ("identity", 200)):
            equal(d.ask("POST", "/echo", b"{}", {"Content-Type": "application/json", "Content-Encoding": coding})[0], wanted, coding)


def test_row_19_garbage():
    """Nothing that is sent ends the process, hangs, or keeps memory."""
    def send(data):
        with d.connect(5) as s, contextlib.suppress(ConnectionError):
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            drain(s)
    state = 12345
    with Driver("read=1", "idle=1") as d:
        for data in (b"\0" * 100, b"GET", b"GET / HTTP/9.9\r\n\r\n", b"\r\n" * 1000, b"GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n", b"POST /echo HTTP/1.1\r\nHost: localhost\r\n"
                     b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", b"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n"):
            d.raw(data)
        good = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\nContent-Type: application/json\r\n\r\n{\"a\": 10}"
        texts = [bytearray(good) for _ in range(60)]
        for spoilt in texts:
            for _ in range(3):
                state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
                spoilt[(state >> 33) % len(spoilt)] = (state >> 20) & 255
        with concurrent.futures.ThreadPoolExecutor(12) as pool:  # some wait for the end of their time
            list(pool.map(send, texts))
        d.until("running", 0)
        d.works()


def test_row_19_slow_senders():
    """A byte now and then keeps no connection: in the first line, in headers, in the body."""
    with Driver("read=1", "idle=1") as d:
        ways = (b"GET /seen HTT", b"GET /seen HTTP/1.1\r\nHost: localhost\r\nX: ",
                b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n")
        sockets = [d.connect() for _ in ways]
        for s, way in zip(sockets, ways):
            s.sendall(way)
        began, ended = time.monotonic(), [None] * len(ways)
        while None in ended and time.monotonic() - began < 10:
            for i, s in enumerate(sockets):
                try:
                    if ended[i] is None:
                        s.sendall(b"x")
                        if select.select([s], [], [], 0)[0] and not s.recv(4096):
                            ended[i] = time.monotonic() - began
                except ConnectionError:
                    ended[i] = time.monotonic() - began
            time.sleep(0.1)
        [s.close() for s in sockets]
        check(None not in ended and max(ended) < 5, f"ended after {ended} s")
        d.works()


def test_row_19_json():
    with Driver() as d:
        def told(text):
            status, _, body = d.ask("POST", "/echo", text, {"Content-Type": "application/json"})
            return status, json.loads(body).get("error_code")
        equal(told(b'{"a":' + b"[" * 62 + b"]" * 62 + b"}"), (200, None), "63 levels")
        for text in (b"[" * 100000, b'{"a":' * 100000, b"[" * 65 + b"]" * 65):
            equal(told(text), (400, "JSON_TOO_DEEP"), f"{text[:10]}...")
        equal(told(b'{"a":"' + b"[" * 1000 + b'"}'), (200, None), "brackets in a text are no levels")
        equal(told(b'{"a":[' + b"1," * 300000 + b"1]}"), (400, "JSON_TOO_LARGE"), "300,000 values")
        for text in (b"", b"   ", b"{", b"[1]", b"null", b'{"a":1}x', b'{"a":"\xff"}', b'{"a":"\xed\xa0\x80"}', b'{"a":"\\u0000"}', b'{"a":\0}',
                     b'{"a":1e999}', b'{"a":NaN}', b'{"a":01}', b"\xef\xbb\xbf{}", b'{"\xc0\xaf":1}'):
            status, code = told(text)
            check(status == 400 and code in ("INVALID_JSON", "EMPTY_BODY"), f"{text}: {status} {code}")
        equal(json.loads(d.ask("POST", "/echo", b'{"a":1,"a":2}')[2])["echo"], {"a": 2}, "the last of two equal keys counts")
        for kind, wanted in (("application/json; charset=utf-8", 200), ("APPLICATION/JSON", 200), ("application/problem+json", 200), ("text/plain", 415),
                             ("application/x-www-form-urlencoded", 415), ("multipart/form-data", 415)):
            equal(d.ask("POST", "/echo", b"{}", {"Content-Type": kind})[0], wanted, kind)
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        equal(d.ask("POST", "/api/echo", b"{}", form)[0], 200, "curl -d, as that API's manual has it")
        equal(d.ask("POST", "/api/echo", b"{}", {**form, "Origin": f"http://127.0.0.1:{d.port}"})[0], 415, "the same from a page")


def test_row_17_numbers_in_paths_and_queries():
    with Driver() as d:
        for path in ("/sleep/-1", "/sleep/99999999999999999999999x", "/stream/0?ms=-5&bytes=1", "/stream/-9", "/stream/1?ms=%zz", "/stream/1?%00=1&=&&=="):
            with d.connect() as s:
                s.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                if not path.startswith("/sleep/9"):
                    equal(status_of(s.recv(4096)), 200, path)
        d.until("running", 0)


# ---- row 20: clients that leave ----

def test_row_20_a_client_that_leaves_ends_its_request():
    with Driver() as d:
        for end in ("close", "half, then close", "reset", "half, 1.0"):
            before = d.seen()["gone"]
            s = d.connect()
            s.sendall(b"GET /sleep/20000 HTTP/1.%d\r\nHost: localhost\r\n\r\n" % (0 if "1.0" in end else 1))
            d.until("running", 1)
            if end == "reset":
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            if "half" in end:
                s.shutdown(socket.SHUT_WR)
            if "then" in end:
                time.sleep(0.3)
            if "1.0" not in end:
                s.close()
            d.until("gone", before + 1, 3)
            d.until("running", 0)
            s.close()
        check(" /sleep/{id} 499" in d.log(), "the log says so")


def test_row_20_a_client_that_leaves_a_stream():
    with Driver() as d:
        for _ in range(20):
            s = d.connect()
            s.sendall(b"GET /stream/100000?ms=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            s.recv(500)
            s.close()
        d.until("streams", 20)
        d.until("stopped", 20, 5)
        d.until("running", 0)


def test_row_20_a_client_that_does_not_read():
    with Driver("write=1", "idle=2") as d:
        for path in ("/stream/100000?bytes=10000", "/big/50000000"):
            with d.connect() as s:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                s.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                d.until("running", 1)
                d.until("running", 0, 15)
        equal(d.seen()["stopped"], 1, "the stream's handler was told")
        d.works()


def test_row_20_a_client_that_listens_gets_its_reply():
    """A client that has closed its side of the connection, but reads: a whole reply, and a stream with long silences. One that
    goes later is noticed."""
    with Driver() as d:
        for path, want in (("/sleep/2500", b'"slept":true'), ("/stream/3?ms=1500", b'event: end\ndata: {"gone":false}\n\n')):
            with d.connect() as s:
                s.settimeout(20)
                s.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
                s.shutdown(socket.SHUT_WR)
                got = drain(s)
                check(want in got, f"{path}: {got[-300:]}")
                interim, _, rest = got.partition(b"HTTP/1.1 200")
                check(not interim.replace(b"HTTP/1.1 100 Continue\r\n\r\n", b""), f"{path}: {interim}")
                check(b"100 Continue" not in rest, f"{path}: an interim reply in another: {rest[:300]}")
        before = d.seen()["stopped"]
        s = d.connect()
        s.sendall(b"GET /stream/100000?ms=100000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        s.shutdown(socket.SHUT_WR)
        time.sleep(0.5)
        s.recv(500)
        s.close()
        d.until("stopped", before + 1, 5)
        d.until("running", 0)


def test_row_20_many_that_listen_get_their_replies():
    """All at one moment: what wakes one connection must not let the others' replies go."""
    def ask(path):
        with d.connect() as s:
            s.settimeout(20)
            s.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            s.shutdown(socket.SHUT_WR)
            return drain(s)
    with Driver() as d, concurrent.futures.ThreadPoolExecutor(16) as pool:
        for path, want in (("/sleep/200", b'"slept":true'), ("/stream/2?ms=100", b'event: end\ndata: {"gone":false}\n\n')):
            lost = [got for got in pool.map(ask, [path] * 32) if want not in got]
            equal(len(lost), 0, f"{path}: replies lost, the first {lost[:1]}")


def test_row_20_one_that_asks_no_more_sees_the_end():
    """Who closes its side gets a reply to all that it asked, and then the end: soon, not when an idle connection would."""
    body = b'{"x":"' + b"a" * 3000 + b'"}'
    get = b"GET /sleep/0 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    post = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    live = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
    path = os.path.join(tempfile.mkdtemp(), "s.sock")

    def ask(connection, request):
        with connection as s:
            s.settimeout(20)  # of 60 s that an idle connection has
            s.sendall(request)
            s.shutdown(socket.SHUT_WR)
            return drain(s).count(b"HTTP/1.1 200 ")

    def by_path():
        s = socket.socket(socket.AF_UNIX)
        s.connect(path)
        return s
    with Driver() as d, Driver(f"unix={path}"):
        for connect in (d.connect, by_path):
            for n, request in ((1, get), (1, post), (1, live), (3, get + post + get), (2, live + post),
                               (0, live[:9]), (0, live[:30]), (1, live + post[:-9]), (0, b"\r\n"), (0, b"\x16\x03\x01")):
                for _ in range(8):
                    equal(ask(connect(), request), n, f"{len(request)} bytes, {request[:30]} ...: replies before the end")


def test_row_20_halves_behind_many_others():
    """Those that wait for the rest of a request do not hide one whose client has gone."""
    half = b"GET /health/live HTTP/1.1\r\nHost"
    allow_files(2000)
    with Driver("read=60", "max_connections=3000") as d, contextlib.ExitStack() as open_ones:
        for _ in range(1100):  # more than are looked at in one round
            open_ones.enter_context(d.connect()).sendall(half)
        with d.connect() as s:
            s.settimeout(20)
            s.sendall(half)
            s.shutdown(socket.SHUT_WR)
            equal(drain(s), b"", "what a client that has gone is told")


def test_row_20_half_closed_after_the_end():
    """A stream that is complete is seen to be so by a client which has said that it asks no more."""
    path = os.path.join(tempfile.mkdtemp(), "s.sock")
    with Driver(f"unix={path}"), socket.socket(socket.AF_UNIX) as s:
        s.settimeout(20)
        s.connect(path)
        s.sendall(b"GET /stream/16?bytes=20000 HTTP/1.1\r\nHost: localhost\r\n\r\n")  # more than the socket takes
        time.sleep(0.5)
        s.shutdown(socket.SHUT_WR)
        time.sleep(0.3)
        got = b""
        with contextlib.suppress(TimeoutError, ConnectionError):
            s.settimeout(1)
            while not got.endswith(b"0\r\n\r\n") and (part := s.recv(65536)):
                got += part
        check(got.endswith(b"0\r\n\r\n"), f"{len(got)} bytes, the last {got[-80:]}")


def test_row_20_half_a_body():
    with Driver() as d:
        for _ in range(50):
            with d.connect() as s:
                s.sendall(b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n" + b"x" * 50000)
        d.until("body_bytes", 0)
        equal(d.seen()["handled"], 0, "handlers that were called")


# ---- times and numbers of requests ----

def test_deadline():
    with Driver("request=0.4") as d:
        status, _, body = d.ask("GET", "/sleep/20000")
        equal((status, json.loads(body)["error_code"]), (504, "TIMEOUT"), "a request that takes too long")
        status, _, body = d.ask("GET", "/stream/100000?ms=5")
        check(status == 200 and body.endswith(b'data: {"gone":true}\n\n'), "a stream may still say so")


def test_deadline_of_a_client_that_does_not_read():
    """Its stream is cut. Where the deadline comes before all buffers are full, it can still be told: then it gets longer."""
    for seconds in (0.5, 3, 9):
        with Driver(f"request={seconds}") as d, d.connect() as s:
            s.sendall(b"GET /stream/100000?bytes=10000 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            d.until("stopped", 1, seconds + 5)
            got = drain(s)
        if b'data: {"gone":true}' not in got[-60:]:
            check(not got.endswith(b"0\r\n\r\n"), "a cut stream looks whole")
            return
    raise AssertionError(f"its buffers took all that was sent in {seconds} s, {len(got)} bytes")


def test_places_for_requests():
    with Driver("max_requests=3") as d:
        sockets = [d.connect() for _ in range(3)]
        for s in sockets:
            s.sendall(b"GET /sleep/20000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        d.until("running", 3)
        time.sleep(0.2)  # the last one has its thread, too
        status, headers, _ = d.ask("GET", "/sleep/1")
        equal((status, headers["Retry-After"]), (503, "1"), "the fourth")
        equal(d.ask("GET", "/health/ready")[0], 200, "health needs no place")
        [s.close() for s in sockets]
        d.until("running", 0)
        d.works()


def test_rate_limits():
    with Driver("per_address=5") as d:
        answers = [d.ask("GET", "/sleep/0") for _ in range(15)]
        codes = [a[0] for a in answers]
        check(codes[:10] == [200] * 10 and 429 in codes, f"a burst of 15: {codes}")
        headers = next(a[1] for a in answers if a[0] == 429)
        check(int(headers["Retry-After"]) >= 1, "Retry-After")
        equal(d.ask("GET", "/health/live")[0], 200, "health is not counted")
        time.sleep(1.1)
        equal(d.ask("GET", "/sleep/0")[0], 200, "a second later")
    with Driver("per_key=2", "key=one", "key=two") as d:
        codes = [d.post("/echo", {}, **{"x-api-key": "one"})[0] for _ in range(8)]
        check(codes[:4] == [200] * 4 and 429 in codes, f"one key: {codes}")
        equal(d.post("/echo", {}, **{"x-api-key": "two"})[0], 200, "another key")


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_idle_connections_cost_nothing():
    """Not in time of the CPU per request, and little in memory."""
    n, n_requests = 1000, 1500
    allow_files(2000)
    with Driver("max_connections=2000") as d:
        def cost():
            c = http.client.HTTPConnection("127.0.0.1", d.port, timeout=20)
            before = cpu_seconds(d.process.pid)
            for _ in range(n_requests):
                d.ask("GET", "/health/live", connection=c)
            c.close()
            return (cpu_seconds(d.process.pid) - before) / n_requests * 1e6
        alone = min(cost(), cost())
        idle = [d.connect() for _ in range(n)]
        crowded = min(cost(), cost())
        with open(f"/proc/{d.process.pid}/status", encoding="ascii") as f:
            rss = int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))
        [s.close() for s in idle]
        print(f"  {alone:.0f} us of CPU time a request alone, {crowded:.0f} beside {n} idle connections; {rss / 1024:.0f} MB resident")
        check(crowded < alone * 1.5 + 20, f"{crowded:.0f} us a request beside {n} connections, {alone:.0f} alone")
        d.works()


# ---- row 21: what one may know of another ----

def test_row_21_keys():
    with Driver("key=first-key", "key=second") as d:
        equal(d.post("/echo", {})[0], 401, "none")
        for given in ("first-ke", "first-keyy", "FIRST-KEY", "secon", "", "first-key second", "\u00ff"):
            equal(d.post("/echo", {}, Authorization="Bearer " + given)[0], 401, f"key {given!r}")
        scopes = set()
        for headers in ({"Authorization": "Bearer first-key"}, {"authorization": "bearer  second"}, {"x-api-key": "second"},
                        {"Authorization": "Bearer of-another", "x-api-key": "second"}):
            status, _, body = d.post("/echo", {}, **headers)
            equal(status, 200, headers)
            scopes.add(json.loads(body)["scope"])
        equal(len(scopes), 2, "each key has its own scope")
        for path in ("/seen", "/health", "/health/live", "/health/ready"):
            equal(d.ask("GET", path)[0], 200, f"{path} needs none")
        check("first-key" not in d.log() and "second" not in d.log(), "the log shows no key")


def test_row_21_nothing_of_a_request_is_logged():
    with Driver() as d:
        d.post("/echo?token=hidden1", {"prompt": "hidden2"}, **{"X-Header": "hidden3"})
        d.ask("GET", "/sleep/hidden4")
        d.ask("GET", "/hidden5")
        end = time.monotonic() + 5
        while (log := d.log()).count("\n") < 3 and time.monotonic() < end:  # a line comes after the reply
            time.sleep(0.02)
        check("hidden" not in log, log)
        for line in ("POST /echo 200", "GET /sleep/{id} 200", "GET - 404"):
            check(re.search(r"request req_\w+ " + re.escape(line) + "\n", log), log)


# ---- row 23: pages of strangers, open addresses ----

def test_row_23_dns_rebinding():
    with Driver("allowed_host=chat.example") as d:
        for host, wanted in (("localhost", 200), (f"127.0.0.1:{d.port}", 200), ("[::1]:80", 200), ("LOCALHOST:1", 200), ("chat.example", 200),
                             ("evil.example", 403), ("localhost.evil.example", 403), ("127.0.0.1.evil.example", 403), ("evil@localhost", 403), ("", 403), ("[::1", 403),
                             ("127.0.0.2", 200), ("0.0.0.0:8080", 200), ("[fe80::1]", 200), ("[]", 403), ("[a.example]", 403), ("1.2.3.4.x", 403)):
            equal(status_of(d.raw(f"GET /health/live HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())), wanted, f"Host {host}")


def test_row_23_other_origins():
    with Driver() as d:
        mine = f"http://127.0.0.1:{d.port}"
        for origin, wanted in ((mine, 200), ("http://evil.example", 403), ("null", 403), (mine + ".evil.example", 403), ("http://localhost:1", 403)):
            status, headers, _ = d.post("/echo", {}, Origin=origin)
            equal((status, headers["Access-Control-Allow-Origin"]), (wanted, None), f"Origin {origin}")
        equal(d.ask("OPTIONS", "/echo", headers={"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"})[0], 403, "a preflight")
    for listed in ("*", "chat.example"): # names by which the server is called let in no pages but its own
        with Driver(f"allowed_host={listed}") as d:
            for host, origin, wanted in ((f"127.0.0.1:{d.port}", "https://evil.example", 403), (f"127.0.0.1:{d.port}", "http://chat.example:9999", 403),
                                         ("chat.example", "http://chat.example:9999", 403), ("chat.example", "https://chat.example", 200)):
                equal(d.ask("POST", "/echo", b"{}", {"Host": host, "Origin": origin})[0], wanted, f"{listed}: Host {host}, Origin {origin}")
    with Driver("cors=https://ok.example") as d:
        status, headers, _ = d.ask("OPTIONS", "/echo", headers={"Origin": "https://ok.example", "Access-Control-Request-Method": "POST",
                                                                "Access-Control-Request-Headers": "authorization, content-type"})
        equal((status, headers["Access-Control-Allow-Origin"], headers["Access-Control-Allow-Headers"]),
              (204, "https://ok.example", "authorization, content-type"), "an allowed preflight")
        check("POST" in headers["Access-Control-Allow-Methods"], "methods")
        status, headers, _ = d.post("/echo", {}, Origin="https://ok.example")
        equal((status, headers["Access-Control-Allow-Origin"], headers["Vary"]), (200, "https://ok.example", "Origin"), "an allowed origin")
        equal(d.post("/echo", {}, Origin="https://other.example")[0], 403, "another one")
    with Driver("cors=https://a.example, http://[::1]:3000") as d:
        for origin, wanted in (("https://a.example", 200), ("http://[::1]:3000", 200), ("https://a.example,", 403), ("http://a.example", 403)):
            equal(d.post("/echo", {}, Origin=origin)[0], wanted, f"one of two: {origin}")
    for bad in ("example.org", "https://example.org/", "https://a.example,b.example", "https://", "://a", "https://a@b", "https://*.org"):
        done = subprocess.run([DRIVER, f"cors={bad}"], capture_output=True, text=True, timeout=20, check=False)
        check(done.returncode == 2 and "--cors: '" in done.stderr and "is no origin" in done.stderr, f"{bad}: {done}")


def test_row_23_open_addresses():
    for settings in (["host=0.0.0.0", "key=k"], ["host=0.0.0.0", "allow_open=1"]):
        with Driver(*settings, "allowed_host=chat.example") as d:
            for host, wanted in (("chat.example", 200), ("192.168.0.7:80", 200), ("box", 200), ("evil.example", 403)):
                equal(d.ask("GET", "/health/live", headers={"Host": host})[0], wanted, f"{settings} and one name: {host}")
    for settings, ok in ((["host=0.0.0.0"], False), (["host=::"], False), (["host=0.0.0.0", "key=k"], True), (["host=0.0.0.0", "allow_open=1"], True)):
        if ok:
            with Driver(*settings) as d:
                for host in ("192.168.0.7", "192.168.0.7:80", "[fe80::1]:80", "box", "box:80", "localhost"):
                    equal(d.ask("GET", "/health/live", headers={"Host": host})[0], 200, f"{settings} {host}")
                for host in ("any.name", "192.168.0.7.any.name:80"):  # a page that lets its name point here has no key
                    equal(d.ask("GET", "/health/live", headers={"Host": host})[0], 200 if "key=k" in settings else 403, f"{settings} {host}")
            continue
        done = subprocess.run([DRIVER, *settings], capture_output=True, text=True, timeout=20, check=False)
        check(done.returncode == 2 and "no API key is set" in done.stderr and "--allow-open" in done.stderr, f"{settings}: {done}")


def test_the_end_of_listening_may_come_twice():
    """libmicrohttpd ends the process where one of its threads was quicker to stop listening; the server begins again."""
    with Driver(env={**os.environ, "BITNET_TEST_RACE": "1"}) as d:
        equal(d.ask("GET", "/health/live")[0], 200, "before")
        d.process.send_signal(signal.SIGTERM)
        equal(d.process.wait(20), 0, f"exit status ({d.log()})")
        check("raced" in d.log(), "there was no race")


# ---- sockets and supervisors ----

class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=20)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(20)
        self.sock.connect(self.path)


def test_unix_socket():
    path = os.path.join(tempfile.mkdtemp(), "s.sock")
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(path)  # as a killed server leaves it
    with Driver(f"unix={path}") as d:
        equal(d.address, "unix:" + path, "address")
        equal(os.stat(path).st_mode & 0o777, 0o660, "for owner and group")
        c = UnixConnection(path)
        equal(d.ask("GET", "/stream/3", connection=c)[2].count(b"data: "), 4, "a stream")
        equal(d.ask("POST", "/echo", b"{}", connection=c)[0], 200, "an echo")
        c.close()
        second = subprocess.run([DRIVER, f"unix={path}"], capture_output=True, text=True, timeout=20, check=False)
        check(second.returncode == 5 and "in use" in second.stderr, f"a second server: {second}")
        equal(d.ask("GET", "/health/live", connection=UnixConnection(path))[0], 200, "the first one after the second has failed")
    check(not os.path.exists(path), "it is removed in the end")


def test_a_file_is_no_socket():
    """What stands where the socket should be is somebody's: it stays."""
    path = write("notes.txt", "mine\n")
    done = subprocess.run([DRIVER, f"unix={path}"], capture_output=True, text=True, timeout=20, check=False)
    check(done.returncode == 5 and "in use" in done.stderr, str(done))
    with open(path, encoding="ascii") as f:
        equal(f.read(), "mine\n", "the file")


def test_socket_of_a_supervisor():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen(16)
        with Driver(f"listen_fd={s.fileno()}", pass_fds=[s.fileno()]) as d:
            equal(d.port, s.getsockname()[1], "port")
            d.works()
        with socket.create_connection(s.getsockname(), 5):  # the socket outlives the server: the next one takes this up
            s.settimeout(5)
            s.accept()[0].close()


def test_a_start_without_memory_fails():
    done = subprocess.run([DRIVER, "no_metrics=1"], capture_output=True, text=True, timeout=20, check=False)
    check(done.returncode == 6 and "no memory" in done.stderr, str(done))


def test_notifications():
    path = os.path.join(tempfile.mkdtemp(), "n.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(path)
        s.settimeout(20)
        with Driver(f"notify={path}", "watchdog=0.2"):
            got = [s.recv(1000) for _ in range(4)]
        with contextlib.suppress(TimeoutError):
            s.settimeout(1)
            while True:
                got.append(s.recv(1000))
    check(any(g.startswith(b"READY=1") for g in got) and got.count(b"WATCHDOG=1") >= 2 and got[-1].startswith(b"STOPPING=1"), str(got))


# ---- the end ----

def test_drain():
    with Driver("drain=20") as d:
        running, idle = http.client.HTTPConnection("127.0.0.1", d.port, timeout=30), http.client.HTTPConnection("127.0.0.1", d.port, timeout=30)
        d.ask("GET", "/health/ready", connection=idle)
        running.request("GET", "/stream/30?ms=50")
        reply = running.getresponse()
        d.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        status, headers, _ = d.ask("GET", "/sleep/1", connection=idle)
        equal((status, headers["Retry-After"], headers["Connection"]), (503, "1", "close"), "a new request")
        equal(d.ask("GET", "/health/ready")[0], 503, "not ready")
        equal(d.ask("GET", "/health/live")[0], 200, "alive")
        equal(reply.read().count(b"data: "), 31, "the running one finishes")
        equal(d.process.wait(10), 0, "exit status")


def test_drain_ends():
    with Driver("drain=0.5") as d:
        s = d.connect()
        s.sendall(b"GET /sleep/100000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        t = d.connect()
        t.sendall(b"GET /stream/100000?ms=20 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        d.until("running", 2)
        began = time.monotonic()
        d.process.send_signal(signal.SIGTERM)
        equal(d.process.wait(10), 0, "exit status")
        check(0.3 < time.monotonic() - began < 4, f"it took {time.monotonic() - began} s")
        equal(status_of(drain(s)), 503, "what could not finish is told so")
        check(b'{"gone":true}' in drain(t), "a stream, too")


def test_a_request_that_is_whole_when_the_drain_is_over():
    """Handlers have ended; a client that takes its reply slowly keeps HTTP alive for a moment. What comes in it is refused."""
    with Driver("drain=0.1") as d, d.connect() as slow, d.connect() as half:
        slow.sendall(b"GET /big/50000000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        d.until("running", 1)
        half.sendall(b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{")
        time.sleep(0.2)
        d.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        half.sendall(b"}")
        equal(status_of(drain(half)), 503, "status")
        equal(d.process.wait(10), 0, "exit status")


def test_a_client_that_does_not_read_holds_up_no_end():
    with Driver("drain=0.3") as d, d.connect() as s:
        s.sendall(b"GET /stream/100000?bytes=10000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        d.until("running", 1)
        time.sleep(0.5)  # all buffers are full
        began = time.monotonic()
        d.process.send_signal(signal.SIGTERM)
        equal(d.process.wait(20), 0, "exit status")
        check(time.monotonic() - began < 5, f"it took {time.monotonic() - began:.1f} s")
        check(not drain(s).endswith(b"0\r\n\r\n"), "a cut stream looks whole")


def test_a_second_signal_ends_at_once():
    d = Driver("drain=30")
    with d.connect() as s:
        s.sendall(b"GET /sleep/100000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        d.until("running", 1)
        d.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        d.process.send_signal(signal.SIGTERM)
        equal(d.process.wait(5), 143, "exit status")


# ---- the command's side of it ----

def test_config_file():
    def says(text, what, *more):
        expect(2, "serve", "--config", write("bad.toml", text), *more, says=what)
    says("prot = 80\n", r"bad\.toml:1: there is no option 'prot'; did you mean port\?")
    says("# x\n\nport = 99999\n", r"bad\.toml:3: port: '99999' is not a whole number from 0 to 65535")
    says("port = 80 90\n", "something follows the value")
    says("port\n", "a line is NAME = VALUE")
    says("[server]\nport = 1\n", "sections are not used")
    says("port = 1\nport = 2\n", "bad.toml:2: the option was set by a line above")
    says('api-key = ["a", "b"\n', "does not end on this line|written")
    says('host = "x\n', "does not end")
    says("port = [1]\n", "takes one value")
    says("config = \"x\"\n", "belongs on the command line")
    says("help = true\n", "belongs on the command line")
    says("api_key = [\"same\", 'same']\n", "API key 1 and 2 are the same")
    expect(5, "serve", "--config", temp("absent.toml"), says="absent.toml")
    expect(2, "serve", "--host", "0.0.0.0", "--port", "0", says="no API key is set")


def test_config_files_of_garbage():
    """Any bytes: an error that names a line, never a crash. The last line keeps a sound file from being served."""
    state, good = 99, b'# ours\nmodel = ["a.gguf", \'b\']\nport = 80 # x\nhost = "a\\"b\\n"\n\nmax_depth=9\nno_such = 1\n'
    for i in range(80):
        spoilt = bytearray(good)
        for _ in range(1 + i % 4):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            spoilt[(state >> 33) % (len(spoilt) - 13)] = b'"\'[]=,#\\\n\0\xff a1'[(state >> 20) % 14]
        expect(2, "serve", "--config", write("spoilt.toml", bytes(spoilt)), says=r"spoilt\.toml:\d+: ", timeout=30)


if __name__ == "__main__":
    main(globals())
