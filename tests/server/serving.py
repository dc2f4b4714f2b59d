"""What the tests of the server share: starting `bitnet serve` on a free port, talking HTTP to it, stopping it, and looking
whether it ended well.

    with Server("--model", model("story")) as s:
        status, headers, body = s.post("/v1/completions", {"prompt": "Once"})

Leaving the block sends SIGTERM; the command must then end with 0, and a sanitizer must have said nothing. $BITNET is the
command under test. packages() restarts the script with the Python of build/venv where a package is missing."""
import contextlib
import http.client
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
from harness import BITNET, SOURCE, Skip, allow_files, check, clean_env, equal, expect, main, model, run, temp, write  # noqa: E402,F401

PYTHON = os.environ.get("BITNET_PYTHON") or os.path.join(SOURCE, "build", "venv", "bin", "python")
ADDRESS = re.compile(r"http://([0-9A-Za-z_.\[\]:-]+):([0-9]+)")
SANITIZER = re.compile(r"(Address|Thread|Leak|UndefinedBehavior)Sanitizer|runtime error:")
SLOW = "asan" in BITNET or "tsan" in BITNET or bool(os.environ.get("BITNET_GOLDEN_QUICK"))


def packages(*names):
    """Makes sure that these Python packages can be imported; ends with 77 (skipped) where they cannot be had."""
    missing = [n for n in names if importlib.util.find_spec(n) is None]
    if not missing:
        return
    if not os.path.exists(PYTHON) or os.environ.get("BITNET_REEXEC"):
        print(f"skipped: the Python package {missing[0]} is not there (tools/setup fetches it)")
        sys.exit(77)
    os.environ["BITNET_REEXEC"] = "1"
    os.execv(PYTHON, [PYTHON] + sys.argv)


class Server:
    """A running `bitnet serve`. `args` are added to the command line; --port 0 and --host 127.0.0.1 are given unless they
    are in it. `env`: more variables. `wait_s`: how long it may take until it listens."""

    def __init__(self, *args, env=None, wait_s=120, keep_stderr=True):
        command = [BITNET, "serve", *args]
        if "--port" not in args and "--unix" not in args:
            command += ["--port", "0"]
        self.lines, self.host, self.port = [], None, None
        self._found = threading.Event()
        self.process = subprocess.Popen(command, env=clean_env(env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT if keep_stderr else None)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        end = time.monotonic() + wait_s
        while not self._found.wait(0.05):
            if self.process.poll() is not None:
                self._reader.join(5)
                raise AssertionError(f"{command}: ended with {self.process.returncode}: {self.output()[-1500:]}")
            if time.monotonic() > end:
                self.process.kill()
                raise AssertionError(f"{command}: no address within {wait_s} s: {self.output()[-1500:]}")

    def _read(self):
        for raw in self.process.stdout:
            line = raw.decode("utf-8", "replace")
            self.lines.append(line)
            found = ADDRESS.search(line)
            if found and self.port is None:
                self.host, self.port = found.group(1), int(found.group(2))
                self._found.set()

    def output(self):
        return "".join(self.lines)

    @property
    def url(self):
        return f"http://{self.host}:{self.port}"

    @property
    def pid(self):
        return self.process.pid

    def rss(self):
        """Resident bytes of the process."""
        with open(f"/proc/{self.pid}/status", encoding="ascii", errors="replace") as f:
            return int(re.search(r"VmRSS:\s+(\d+) kB", f.read()).group(1)) * 1024

    # ---- HTTP ----
    def request(self, method, path, body=None, headers=None, timeout=120):
        """(status, headers in small letters, body as bytes). A body that is no bytes is sent as JSON."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        with contextlib.closing(connection):
            sent = dict(headers or {})
            if body is not None and not isinstance(body, (bytes, str)):
                body = json.dumps(body)
                sent.setdefault("Content-Type", "application/json")
            connection.request(method, path, body, sent)
            reply = connection.getresponse()
            return reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read()

    def get(self, path, **kw):
        return self.request("GET", path, **kw)

    def post(self, path, body, **kw):
        return self.request("POST", path, body, **kw)

    def json(self, method, path, body=None, status=200, **kw):
        """The reply as JSON; its status must be this one."""
        got, _, data = self.request(method, path, body, **kw)
        equal(got, status, f"{method} {path}: {data[:300]!r}; status")
        return json.loads(data)

    def events(self, path, body, **kw):
        """The events of a stream: (name or None, data). Data is JSON but for '[DONE]', which stays a text."""
        status, headers, data = self.post(path, body, **kw)
        equal(status, 200, f"{path}: {data[:300]!r}; status")
        check(headers["content-type"].startswith("text/event-stream"), f"{path}: is {headers['content-type']}")
        return list(parse_events(data))

    # ---- its end ----
    def stop(self, sig=signal.SIGTERM, code=0, timeout=60):
        """Ends it; checks the exit code and that no sanitizer spoke."""
        if self.process.poll() is None:
            self.process.send_signal(sig)
        try:
            got = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"the server did not end within {timeout} s of signal {sig}: {self.output()[-500:]}") from None
        self._reader.join(10)
        check(not SANITIZER.search(self.output()), f"a sanitizer spoke: {self.output()[-4000:]}")
        equal(got, code, f"exit code of the server ({self.output()[-500:]})")

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is None:
            self.stop()
        else:
            self.process.kill()
            self.process.wait()
            self._reader.join(5)
            print("the server said: " + self.output()[-3000:], file=sys.stderr)


def parse_events(data):
    """Server-sent events of a body."""
    for block in data.decode("utf-8").split("\n\n"):
        name, text = None, []
        for line in block.split("\n"):
            if line.startswith("event:"):
                name = line[6:].strip()
            elif line.startswith("data:"):
                text.append(line[5:].strip())
        if text:
            joined = "\n".join(text)
            yield name, joined if joined == "[DONE]" else json.loads(joined)
