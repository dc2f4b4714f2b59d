#!/usr/bin/env python3
"""Ten thousand idle connections cost no throughput: the same load, with and without them, in turns, against one server. The best
rate of each is compared, because whatever else the machine does only takes away from it."""
import json
import socket
import time

from serving import Server, allow_files, check, equal, expect, main, model

N_IDLE = 10000
N_FILES = N_IDLE + 500
ROUNDS, TRIES = 3, 3
NOISE = 0.9


def connect(server):
    """Connections that were accepted, each in use as keep-alive connections are: half of them have asked once."""
    idle = [socket.create_connection((server.host, server.port), timeout=60) for _ in range(N_IDLE)]
    for s in idle[::2]:
        s.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
    for s in idle[::2]:
        check(s.recv(4096).startswith(b"HTTP/1.1 200 "), "a connection that was answered")
    return idle


def rate(server):
    """Tokens a second."""
    done = expect(0, "bench", "--server", server.url, "--duration", "2", "--streams", "4", "--new-tokens", "16", "--json")
    got = json.loads(done.out)
    equal(got["failed"], 0, f"{got}; failed")
    return got["streams_tok_s"]


def measure(server):
    alone, crowded = [], []
    for _ in range(ROUNDS):
        alone.append(rate(server))
        idle = connect(server)
        crowded.append(rate(server))
        resident = server.rss()
        check(all(s.send(b"") == 0 for s in idle[:10]), "idle connections stay")
        for s in idle:
            s.close()
        time.sleep(0.5)
    return max(alone), max(crowded), resident


def test_10000_idle_connections_cost_no_throughput():
    allow_files(N_FILES)
    with Server("--model", model("nano"), "--no-log-requests", "--max-connections", str(N_IDLE + 200), "--idle-timeout", "600") as s:
        before = s.rss()
        for _ in range(TRIES):
            alone, crowded, resident = measure(s)
            print(f"      {alone:.0f} tokens a second alone, {crowded:.0f} beside {N_IDLE} idle connections ({crowded / alone:.3f}); "
                  f"{(resident - before) / N_IDLE / 1024:.1f} KB of memory for each", flush=True)
            if crowded >= NOISE * alone:
                break
        check(crowded >= NOISE * alone, f"{TRIES} times: {crowded:.0f} a second beside them, {alone:.0f} alone")
        check(resident - before < N_IDLE * 64 * 1024, f"{(resident - before) >> 20} MB")


if __name__ == "__main__":
    main(globals())
