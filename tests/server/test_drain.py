#!/usr/bin/env python3
"""SIGTERM under load: what runs is finished, what comes is refused with 503, the process ends in time."""
import json
import socket
import threading
import time

from serving import SLOW, Server, check, equal, main, model

N_STREAMS = 6


class Stream(threading.Thread):
    """One streamed answer; `text` is all that came."""

    def __init__(self, server, n_tokens):
        super().__init__()
        self.socket = socket.create_connection((server.host, server.port), timeout=120)
        body = json.dumps({"prompt": "Once upon a time", "max_tokens": n_tokens, "stream": True, "ignore_eos": True,
                           "temperature": 0}).encode()
        self.socket.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                            b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)
        self.text = b""
        self.begun = threading.Event()

    def run(self):
        with self.socket:
            while True:
                piece = self.socket.recv(65536)
                if not piece:
                    break
                self.text += piece
                if b"data:" in self.text:
                    self.begun.set()
        self.begun.set()


def start_streams(server, n_tokens):
    streams = [Stream(server, n_tokens) for _ in range(N_STREAMS)]
    for s in streams:
        s.start()
    for s in streams:
        check(s.begun.wait(60) and s.text.startswith(b"HTTP/1.1 200"), f"{s.text[:200]}")
    return streams


def new_request(server):
    """Its status; None: the server listens no more."""
    try:
        return server.post("/v1/completions", {"prompt": "x", "max_tokens": 1}, timeout=20)[:2]
    except OSError:
        return None


def test_running_requests_finish():
    n_tokens = 60 if SLOW else 200
    with Server("--model", model("story"), "--drain", "60", "--no-log-requests") as s:
        streams = start_streams(s, n_tokens)
        s.process.terminate()
        refused, end = 0, time.monotonic() + 60
        while any(t.is_alive() for t in streams) and time.monotonic() < end:
            got = new_request(s)
            if got:
                # one that came before the signal was seen is answered
                check(got[0] in (200, 503), f"{got}")
                refused += got[0] == 503
                check(got[0] != 503 or got[1].get("retry-after"), f"{got}")
            time.sleep(0.02)
        for t in streams:
            t.join(60)
            check(b"[DONE]" in t.text and t.text.endswith(b"0\r\n\r\n"), f"a stream was cut: {t.text[-200:]}")
        check(refused > 0, "nobody was refused while the server drained")
        ready = s.process.wait(30)
        equal(ready, 0, "exit code")


def test_ready_turns_red():
    with Server("--model", model("story"), "--drain", "60", "--no-log-requests") as s:
        equal(s.get("/health/ready")[0], 200, "before")
        streams = start_streams(s, 60 if SLOW else 200)
        s.process.terminate()
        seen, end = set(), time.monotonic() + 60
        while any(t.is_alive() for t in streams) and time.monotonic() < end:
            try:
                seen.add(s.get("/health/ready", timeout=10)[0])
            except OSError:
                pass
            time.sleep(0.02)
        check(503 in seen, f"/health/ready said {seen} while it drained")
        equal(s.process.wait(60), 0, "exit code")


def test_drain_time_is_kept():
    """Answers that take longer than the drain time end with an error, and the process in time."""
    with Server("--model", model("story"), "--drain", "1", "--no-log-requests") as s:
        streams = start_streams(s, 3000)
        began = time.monotonic()
        s.process.terminate()
        equal(s.process.wait(60), 0, "exit code")
        took = time.monotonic() - began
        check(0.9 <= took < (20 if SLOW else 4), f"it took {took:.1f} s")
        for t in streams:
            t.join(30)
            check(b"error" in t.text, f"a cut answer looks whole: {t.text[-200:]}")


if __name__ == "__main__":
    main(globals())
