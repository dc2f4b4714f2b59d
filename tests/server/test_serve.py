#!/usr/bin/env python3
"""`bitnet serve` as people and supervisors meet it: what it prints, where its options come from, keys that stay secret, clients
that leave, its end under load."""
import concurrent.futures
import http.client
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from serving import BITNET, SOURCE, Server, Skip, check, clean_env, equal, expect, json, main, model, temp, write  # noqa: E402

NANO = os.path.join(SOURCE, "models", "nano.gguf")
LONG = {"prompt": "Once upon a time", "max_tokens": 200, "stream": True, "ignore_eos": True}


def test_C_3_what_it_prints_can_be_typed():
    with Server("--model", os.path.join(SOURCE, "models", "story.gguf")) as s:
        end = time.monotonic() + 10
        while "try: " not in s.output() and time.monotonic() < end:
            time.sleep(0.02)
        said = s.output()
        check(f"bitnet serves at {s.url}\n" in said and re.search(r"model: +story, \d+ tokens of context\n", said), said)
        check("selected=" in said and f"chat page: {s.url}/" in said, said)
        words = shlex.split(re.search(r"try: +(curl .*)", said).group(1))
        url, data = next(w for w in words if w.startswith("http")), words[words.index("-d") + 1]
        check(url.startswith(s.url), url)
        reply = s.json("POST", url[len(s.url):], json.loads(data))
        check(len(reply["choices"][0]["message"]["content"]) > 20, str(reply))
        equal(s.get("/")[1]["content-type"], "text/html; charset=utf-8", "the page")


def test_options_from_everywhere():
    """The command line wins over the environment, that over the file, that over defaults."""
    config = write("serve.toml", f'# ours\nmodel = ["{NANO}"]\nmax-body = 1  # KB\nmax_depth = 5\n\nrate-per-address = 0\nallowed-host = ["a.example", \'b.example\']\n')
    deep = {"prompt": [[[[[1]]]]]}
    with Server("--config", config) as s:
        equal(s.post("/v1/completions", {"prompt": "x" * 2000})[0], 413, "max-body of the file")
        equal(s.post("/v1/completions", deep)[0], 400, "max-depth of the file")
        check("nests" in s.post("/v1/completions", deep)[2].decode(), "and that is why")
        for host, wanted in (("a.example", 200), ("b.example", 200), ("c.example", 403)):
            equal(s.get("/health/live", headers={"Host": host})[0], wanted, host)
    with Server("--config", config, "--max-body", "4", env={"BITNET_API_KEYS": "one,two"}) as s:
        equal(s.post("/v1/completions", {"prompt": "x"})[0], 401, "keys of the environment")
        check(s.post("/v1/completions", {"prompt": "x" * 2000}, headers={"x-api-key": "two"})[0] != 413, "max-body of the command line")


def names(s):
    return [m["id"] for m in s.json("GET", "/v1/models")["data"]]


def test_models_of_the_command_line():
    """Words and -m count together; where there is one of them, neither the environment nor the file names a model."""
    story, config = model("story"), write("models.toml", f'model = "{model("story")}"\n')
    for args, env, wanted in (((NANO,), {"BITNET_GGUF": story}, ["nano"]), ((NANO, "--config", config), None, ["nano"]),
                              (("-m", NANO), {"BITNET_GGUF": story}, ["nano"]), (("-m", story, NANO), {"BITNET_GGUF": "/nowhere.gguf"}, ["story", "nano"]),
                              (("--config", config), {"BITNET_GGUF": NANO}, ["nano"]), (("--config", config), None, ["story"])):
        with Server(*args, env=env) as s:
            equal(names(s), wanted, f"{args}, {env}")


def test_names_in_the_file():
    """Every name that the help lists has its line in a file, or is told what to write instead."""
    for text, page in (("no-page = true\n", 404), ("no_page = false\n", 200), ("page = false\n", 404), ("\ufeffno-page = true\n", 404)):
        config = write("page.toml", text + 'no-receipts = "yes"\nno-log-requests = true\nno-refine = true\nno-pack = false\nno-strict = 1\n')
        with Server(NANO, "--config", config) as s:
            equal(s.get("/")[0], page, repr(text))
            status, headers, _ = s.post("/v1/completions", {"prompt": "x", "max_tokens": 1})
            equal((status, headers.get("x-bitnet-receipt")), (200, None), "an answer, and its receipt")
            time.sleep(0.1)
            check("/v1/completions" not in s.output().split("try: ")[1].partition("\n")[2], s.output())
    for text, says in (("no-page = true\npage = true\n", ":2: the option was set by a line above"), ("page = 1\nno-page = 0\n", ":2: the option was set by a line above"),
                       ("no-page = maybe\n", ":1: no-page: 'maybe' is neither on"), ("verbose = true\n", ':1: verbose is short for another option; write log-level = "info"'),
                       ("no-warnings = true\n", 'write log-level = "error"'), ("no-port = true\n", "there is no option 'no-port'"), ("no-pge = true\n", "did you mean no-page"),
                       ("help = true\n", "belongs on the command line"), ("warmup = true\n", "there is no option 'warmup'"), ("n" * 70 + " = 1\n", "there is no option 'nnn")):
        expect(2, "serve", NANO, "--config", write("bad.toml", text), says=says)


def test_messages_name_flags_not_fields():
    expect(6, "serve", "--model", NANO, "--kv-pool", "1048576", says="cache pool options: --kv-pool asks for 1024.000 GiB")
    expect(2, "serve", "--model", NANO, "--isa", "avx9", says="--isa 'avx9' is unknown")


def test_settings_that_would_not_work_are_refused():
    for value, says in (("", "BITNET_API_KEYS: is set, and has no key"), (", ", "is empty"), ("a, ", "API key 2 is empty")):
        expect(2, "serve", "--model", NANO, env={"BITNET_API_KEYS": value}, says=says)
    expect(5, "serve", "--model", NANO, "--model-dir", "/nowhere", says="--model-dir /nowhere: No such file")
    expect(5, "serve", "--model", NANO, "--model-dir", NANO, says="Not a directory")
    expect(2, "serve", "--model", NANO, "--cors", "example.org", says="--cors: 'example.org' is no origin")


def test_keys_stay_secret():
    keys = write("keys", "# two of them\nkey-of-a-file\n\n  \nanother-one  \n \tkey-of-blanks\n  # a third line\n")
    with Server("--model", NANO, "--api-key", "key-of-the-line", "--api-key-file", keys, env={"BITNET_API_KEY": "not-read-beside-an-option"}) as s:
        with open(f"/proc/{s.pid}/cmdline", "rb") as f:
            check(b"key-of-the-line" not in f.read(), "the list of processes shows the key")
        for key, wanted in (("key-of-the-line", 200), ("key-of-a-file", 200), ("another-one", 200), ("key-of-blanks", 200),
                            ("# two of them", 401), ("# a third line", 401), ("not-read-beside-an-option", 401)):
            equal(s.get("/v1/models", headers={"Authorization": "Bearer " + key})[0], wanted, key)
        time.sleep(0.2)
        check("key-of" not in s.output() and "another-one" not in s.output(), s.output())
    expect(2, "serve", "--model", NANO, "--api-key-file", write("none", "# nothing\n"), says="has no key")
    with Server("--model", NANO, "--api-key-file", write("marked", "\ufefffirst\nsecond\n")) as s:  # as some editors write UTF-8
        for key, wanted in (("first", 200), ("second", 200), ("irst", 401)):
            equal(s.get("/v1/models", headers={"Authorization": "Bearer " + key})[0], wanted, key)


def test_row_20_a_client_that_leaves_frees_its_place():
    with Server("--model", NANO) as s:
        for stream in (True, False):
            body = json.dumps({**LONG, "max_tokens": 100000, "stream": stream}).encode()
            with socket.create_connection((s.host, s.port)) as c:
                c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                if stream:
                    c.recv(200)
            end = time.monotonic() + 10
            while s.json("GET", "/slots"):
                check(time.monotonic() < end, "its answer is still computed")
                time.sleep(0.02)


def test_drain_under_load():
    with Server("--model", NANO, "--drain", "60") as s:
        def ask(_):
            return s.post("/v1/completions", LONG)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            running = [pool.submit(ask, i) for i in range(8)]
            end = time.monotonic() + 20
            while len(s.json("GET", "/slots")) < 8 and not running[0].done() and time.monotonic() < end:
                time.sleep(0.005)
            idle = http.client.HTTPConnection(s.host, s.port, timeout=20)
            idle.request("GET", "/health/live")
            idle.getresponse().read()
            s.process.send_signal(signal.SIGTERM)
            replies = [r.result() for r in running]
        equal([(r[0], b"[DONE]" in r[2]) for r in replies], [(200, True)] * 8, "running ones finish")
        equal(s.process.wait(30), 0, "exit status")


def test_requests_as_json_lines():
    with Server("--model", NANO, "--log-format", "json") as s:
        s.post("/v1/completions", {"prompt": "hidden words", "max_tokens": 3})
        end = time.monotonic() + 5
        while '"route"' not in s.output() and time.monotonic() < end:
            time.sleep(0.02)
        line = next(json.loads(x) for x in s.lines if '"route"' in x)
        equal((line["method"], line["route"], line["status"], line["tokens"]), ("POST", "/v1/completions", 200, 3), str(line))
        check(line["id"].startswith("req_") and line["ms"] > 0 and "hidden" not in s.output(), s.output())


def test_a_method_cannot_move_the_cursor():
    with Server("--model", NANO) as s:
        with socket.create_connection((s.host, s.port), 20) as c:
            c.sendall(b"\x1b[2J\x9b /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            while c.recv(4096):
                pass
        end = time.monotonic() + 5
        while " - 4" not in s.output() and time.monotonic() < end:
            time.sleep(0.02)
        check("\x1b" not in s.output() and "\\x1b[2J" in s.output(), s.output())


def test_socket_activation():
    """As systemd does it: the socket is descriptor 3, and it listens before the server is started."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(16)
        port = listening.getsockname()[1]
        folder = tempfile.mkdtemp()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
            heard.bind(folder + "/n")
            heard.settimeout(60)
            os.set_inheritable(listening.fileno(), True)
            script = f"exec 3<&{listening.fileno()}; export LISTEN_PID=$$; exec \"$0\" serve --model \"$1\" --quiet"
            p = subprocess.Popen(["bash", "-c", script, BITNET, NANO], env=clean_env({"LISTEN_FDS": "1", "NOTIFY_SOCKET": folder + "/n"}),
                                 pass_fds=[listening.fileno()], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            try:
                check(heard.recv(500).startswith(b"READY=1"), "READY=1")
                c = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
                c.request("GET", "/health/ready")
                equal(c.getresponse().status, 200, "ready")
                c.close()
                p.terminate()
                check(heard.recv(500).startswith(b"STOPPING=1"), "STOPPING=1")
                equal(p.wait(20), 0, "exit status")
            finally:
                p.kill()


def test_the_policy_says_who_loses_a_prefix():
    """Room for five blocks: four prefixes of one block are in the cache when a fifth comes. A came first, B was used longest ago, C was
    used least often."""
    for policy, victim in (("fifo", "A"), ("lru", "B"), ("lfu", "C")):
        with Server("--model", model("story"), "--kv-pool", "4", "--kv-policy", policy) as s:
            check('bitnet_kv_blocks{model="story"} 5' in s.get("/metrics")[2].decode(), "the pool has another number of blocks than this test needs")

            def cached(name):
                reply = s.json("POST", "/v1/completions", {"prompt": [ord(name)] * 70, "max_tokens": 1})
                return reply["usage"]["prompt_tokens_details"]["cached_tokens"]
            equal([cached(n) for n in "ABBBCAADDE"], [0, 0, 64, 64, 0, 64, 64, 0, 64, 0], f"{policy}: what was found")
            left = [n for n in "ABCD" if n != victim]
            equal([cached(n) for n in left + [victim]], [64, 64, 64, 0], f"{policy}: what is found of {left} and {victim}")


if __name__ == "__main__":
    main(globals())
