#!/usr/bin/env python3
"""Two servers behind HAProxy with deploy/haproxy/haproxy.cfg, one of them killed in mid-traffic: requests that were not
answered yet are sent to the other, a broken stream ends in an error and its repetition succeeds, conversations stay with the
server that has their prefix."""
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

from serving import SOURCE, Server, Skip, check, equal, main, model, temp
from soak import figures, total

os.environ["PATH"] += os.pathsep + "/usr/sbin"  # where administrators' commands are
WHOLE_TOKENS = 24
LONG = "Once upon a time there was a fox who told the moon a story about the sea. " * 12


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Balancer:
    """haproxy.cfg with our addresses, without TLS."""

    def __init__(self, servers):
        if not shutil.which("haproxy"):
            raise Skip("haproxy is not there (Debian's package haproxy; tools/setup all fetches it)")
        self.host, self.port = "127.0.0.1", free_port()
        with open(os.path.join(SOURCE, "deploy", "haproxy", "haproxy.cfg"), encoding="utf-8") as f:
            text = f.read()
        text = re.sub(r"^ *bind :8443.*\n", "", text, flags=re.M).replace("127.0.0.1:8000", f"127.0.0.1:{self.port}")
        for server, place in zip(servers, ("127.0.0.1:8081", "127.0.0.1:8082")):
            check(place in text, f"haproxy.cfg has no {place}")
            text = text.replace(place, f"{server.host}:{server.port}")
        path = temp("haproxy.cfg")
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        with open(temp("haproxy.log"), "wb") as log:
            self.process = subprocess.Popen(["haproxy", "-db", "-f", path], stdout=log, stderr=log)
        for _ in range(100):
            try:
                socket.create_connection((self.host, self.port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.05)

    def post(self, path, body, headers=None, timeout=120):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            data = json.dumps(body).encode()
            connection.putrequest("POST", path)
            for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **(headers or {})}.items():
                connection.putheader(name, value)
            connection.endheaders()
            time.sleep(0.005)  # the body comes after the headers, as it does through a network
            connection.send(data)
            reply = connection.getresponse()
            return reply.status, reply.read()
        finally:
            connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(30)


def two_servers():
    return [Server("--model", model("story"), "--no-log-requests", "--allowed-host", "*") for _ in range(2)]


def stop_all(servers):
    for s in servers:
        if s.process.poll() is None:
            s.process.terminate()
            s.process.wait(60)


def answered(server):
    return sum(v for k, v in figures(server).items()
               if k.startswith("bitnet_requests_total{") and 'route="/v1/completions"' in k and 'status="200"' in k)


def answered_since(servers, before, n):
    """How many each has answered since, once they are n together: a request is counted a moment after its client has the answer."""
    end = time.monotonic() + 10
    while True:
        moved = [answered(s) - x for s, x in zip(servers, before)]
        if sum(moved) >= n or time.monotonic() > end:
            return moved
        time.sleep(0.02)


def test_conversations_stay():
    """The same x-session-id goes to one server and finds its prefix there; without it the key decides."""
    servers = two_servers()
    try:
        with Balancer(servers) as b:
            for headers in ({"x-session-id": "s{}"}, {"authorization": "Bearer k{}"}, {"x-api-key": "a{}"}):
                places = set()
                for i in range(8):
                    mine = {k: v.format(i) for k, v in headers.items()}
                    before = [answered(s) for s in servers]
                    for _ in range(3):
                        status, body = b.post("/v1/completions", {"prompt": f"{i} " + LONG, "max_tokens": 2}, mine)
                        equal(status, 200, f"{body[:200]}")
                    moved = answered_since(servers, before, 3)
                    check(sorted(moved) == [0, 3], f"{mine}: the servers answered {moved}")
                    places.add(moved.index(3))
                equal(places, {0, 1}, f"{headers}: servers used")
            hits = sum(total(figures(s), "bitnet_prefix_hits_total") for s in servers)
            check(hits >= 3 * 8 * 2, f"{hits} prefixes were found of {3 * 8 * 2}")
    finally:
        stop_all(servers)


def logged(bad):
    """HAProxy's lines about such statuses, with its letters for how a session ended."""
    with open(temp("haproxy.log"), encoding="utf-8", errors="replace") as f:
        return [line.strip() for line in f if any(f" {status} " in line for status, _ in bad)][:4]


def wait_for_stream(server):
    """Until a stream is in its middle: it has more tokens than an answer in one piece ever gets, and many to come."""
    end = time.monotonic() + 60
    while not any(WHOLE_TOKENS < slot["n_generated"] < 150 for slot in server.json("GET", "/slots")):
        check(time.monotonic() < end, "no stream came to this server")
        time.sleep(0.005)


def test_one_is_killed():
    servers = two_servers()
    results, streams, stop = [], [], threading.Event()
    lock = threading.Lock()

    def whole(seed, b):
        """Answers that come at once: each must be there, whoever computed it."""
        n = 0
        while not stop.is_set():
            n += 1
            try:
                status, body = b.post("/v1/completions", {"prompt": f"{seed} {n} Once", "max_tokens": WHOLE_TOKENS, "ignore_eos": True},
                                      {"x-session-id": f"{seed}-{n}"})
            except (OSError, http.client.HTTPException) as e:
                status, body = "broken", repr(e)
            with lock:
                results.append((status, body))

    def streamed(seed, b):
        """Streams: a broken one is noticed as such, and repeated with success."""
        n = 0
        while not stop.is_set():
            n += 1
            tries = []
            while not tries or (tries[-1] != "whole" and len(tries) < 4):
                try:
                    status, body = b.post("/v1/completions", {"prompt": f"{seed} {n} Once", "max_tokens": 300, "stream": True,
                                                             "ignore_eos": True}, {"x-session-id": f"t{seed}-{n}"})
                    ok = status == 200 and body.rstrip().endswith(b"[DONE]")
                    tries.append("whole" if ok else f"cut {status}")
                except (OSError, http.client.HTTPException) as e:
                    tries.append(f"broken {e!r}")
            with lock:
                streams.append(tries)

    try:
        with Balancer(servers) as b:
            threads = [threading.Thread(target=f, args=(i, b)) for i in range(3) for f in (whole, streamed)]
            for t in threads:
                t.start()
            time.sleep(4)
            wait_for_stream(servers[0])
            servers[0].process.send_signal(signal.SIGKILL)
            servers[0].process.wait(30)
            with lock:
                n_before = len(results)
            time.sleep(6)
            stop.set()
            for t in threads:
                t.join(120)
        bad = [(s, body) for s, body in results if s != 200]
        check(not bad, f"{len(bad)} of {len(results)} answers failed, such as {bad[:2]}; HAProxy says {logged(bad)}")
        check(n_before > 5 and len(results) > n_before + 5, f"{n_before} answers before, {len(results)} in all")
        check(all(tries[-1] == "whole" for tries in streams), f"{[t for t in streams if t[-1] != 'whole'][:3]}")
        print(f"      {len(results)} answers, {len(streams)} streams, {sum(len(t) > 1 for t in streams)} of them broken and repeated")
        check(any(len(t) > 1 for t in streams), "no stream was on the server that was killed")
    finally:
        stop_all(servers)


if __name__ == "__main__":
    main(globals())
