"""What the tests of the command share: starting it, checking what it said, counting what failed.

$BITNET is the command under test. A test is a function whose name begins with test_; main() runs them all, prints each
failure and ends with 1 if there was one, 77 if the tests need a model that is not there."""
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

SOURCE = os.environ.get("BITNET_SOURCE", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
BITNET = os.environ.get("BITNET", os.path.join(SOURCE, "build", "release", "bitnet"))
SHARED = os.environ.get("BITNET_SHARED", os.path.join(SOURCE, "..", "shared"))
WORK = tempfile.mkdtemp(prefix="bitnet-cli-")


# set for builds in which everything takes long, such as a sanitizer's
QUICK = os.environ.get("BITNET_GOLDEN_QUICK", "") not in ("", "0")


class Skip(Exception):
    pass


class Result:
    def __init__(self, args, code, out, err):
        self.args, self.code, self.raw, self.err_raw = args, code, out, err
        self.out = out.decode("utf-8", "replace")
        self.err = err.decode("utf-8", "replace")

    def json(self):
        lines = self.out.splitlines()
        check(len(lines) == 1, f"{self.args}: {len(lines)} lines of JSON instead of one: {self.out[:200]}")
        return json.loads(self.raw.decode("utf-8"))  # strict: invalid UTF-8 fails


def clean_env(extra=None):
    """The environment without our variables; lines typed in a chat are kept nowhere else than here."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("BITNET_")}
    env["XDG_STATE_HOME"] = os.path.join(WORK, "state")
    env.update(extra or {})
    return env


def run(*args, stdin=None, env=None, timeout=300, **kw):
    """Runs the command to its end. stdin: bytes or None (no input)."""
    if stdin is None:
        kw["stdin"] = subprocess.DEVNULL
    else:
        kw["input"] = stdin
    if "stdout" not in kw:
        kw["stdout"] = subprocess.PIPE
    p = subprocess.run([BITNET, *args], stderr=subprocess.PIPE, env=clean_env(env), timeout=timeout, **kw)
    return Result(args, p.returncode, p.stdout or b"", p.stderr or b"")


def start(*args, env=None, **kw):
    kw.setdefault("stdin", subprocess.DEVNULL)
    kw.setdefault("stdout", subprocess.PIPE)
    kw.setdefault("stderr", subprocess.PIPE)
    return subprocess.Popen([BITNET, *args], env=clean_env(env), **kw)


def hears(p):
    """Waits until a program that was started has its handlers of signals, however slow the machine is, and returns it."""
    until = time.monotonic() + 60
    while p.poll() is None and time.monotonic() < until:
        with open(f"/proc/{p.pid}/status", encoding="utf-8", errors="replace") as f:
            caught = next((int(line.split()[1], 16) for line in f if line.startswith("SigCgt:")), 0)
        if caught >> (signal.SIGINT - 1) & 1:
            return p
        time.sleep(0.005)
    raise AssertionError(f"ended, or took no signal: {p.poll()}")


def allow_files(n):
    """So many open files for this program and those that it starts, or the test is skipped."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < n:
        raise Skip(f"a process may open {hard} files here, {n} are needed")
    if soft != resource.RLIM_INFINITY and soft < n:
        resource.setrlimit(resource.RLIMIT_NOFILE, (n, hard))


def check(ok, what):
    if not ok:
        raise AssertionError(what)


def equal(got, want, what):
    check(got == want, f"{what}: got {got!r}, want {want!r}")


def expect(code, *args, says=None, **kw):
    """Runs the command; the exit code and a pattern in what it says on stderr must be right."""
    r = run(*args, **kw)
    args = (*args, kw["env"]) if kw.get("env") else args
    check(r.code == code, f"{args}: exit {r.code}, want {code}; stderr: {r.err[:500]}")
    if says is not None:
        check(re.search(says, r.err), f"{args}: stderr does not say /{says}/: {r.err[:500]}")
    return r


def fails(code, *args, says, **kw):
    """expect, and nothing must have been printed on stdout."""
    r = expect(code, *args, says=says, **kw)
    check(r.raw == b"", f"{args}: failed, but printed {r.raw[:200]!r}")
    check(r.err.startswith("bitnet: ") or "\nbitnet: " in r.err, f"{args}: no 'bitnet:' in {r.err[:200]}")
    return r


_models = {}


def model(name):
    """A GGUF of the nano or story model: the one in models/, else converted from the reference data."""
    if name in _models:
        return _models[name]
    path = os.path.join(SOURCE, "models", name + ".gguf")
    checkpoint = os.path.join(SHARED, "story-model", name)
    if not os.path.exists(path):
        if not os.path.isdir(checkpoint):
            raise Skip(f"neither models/{name}.gguf nor the checkpoint {name} is there")
        path = temp(name + ".gguf")
        expect(0, "convert", checkpoint, path)
    _models[name] = os.path.abspath(path)
    return _models[name]


def copy_of_model(name, copy):
    path = temp(copy)
    shutil.copyfile(model(name), path)
    return path


def shared(*parts):
    path = os.path.join(SHARED, *parts)
    if not os.path.exists(path):
        raise Skip(f"no reference data {os.path.join(*parts)}")
    return path


def temp(name):
    return os.path.join(WORK, name)


def write(name, data):
    path = temp(name)
    with open(path, "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())
    return path


def temporaries(folder=None):
    """Half-written files left behind."""
    return [f for f in os.listdir(folder or WORK) if f.endswith(".tmp")]


def cpu_seconds():
    """What this program and the commands that ended took of the CPU: unlike time it does not depend on what else runs."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(r.ru_utime + r.ru_stime for r in both)


def main(namespace):
    tests = [(n, f) for n, f in sorted(namespace.items()) if n.startswith("test_")]
    if sys.argv[1:]:
        tests = [(n, f) for n, f in tests if n in sys.argv[1:]]
    n_failed = n_skipped = 0
    for name, test in tests:
        began, used = time.monotonic(), cpu_seconds()
        try:
            test()
            took, used = time.monotonic() - began, cpu_seconds() - used
            print(f"ok    {name}" + (f" ({took:.0f} s, {used:.0f} s of CPU time)" if took >= 5 else ""))
        except Skip as e:
            n_skipped += 1
            print(f"skip  {name}: {e}")
        except Exception as e:  # a test that breaks is a test that failed
            n_failed += 1
            print(f"FAIL  {name}: {e}")
            if not isinstance(e, AssertionError):
                traceback.print_exc()
        sys.stdout.flush()
    shutil.rmtree(WORK, ignore_errors=True)
    print(f"{len(tests) - n_failed - n_skipped} passed, {n_failed} failed, {n_skipped} skipped")
    sys.exit(1 if n_failed else 77 if n_skipped == len(tests) else 0)
