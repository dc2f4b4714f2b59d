#!/usr/bin/env python3
"""Ends that nobody planned: Ctrl-C, a closed reader, a full disk, a model file that shrinks while it is used."""
import contextlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

from harness import (BITNET, Skip, check, clean_env, copy_of_model, equal, expect, hears, main, model, run, shared, start, temp,
                     temporaries)

ENDLESS = ("-n", "1000000", "--ignore-eos", "--ctx", "4096", "--no-warnings", "-p", "Once upon a time")


def finish(p, timeout=60):
    out, err = p.communicate(timeout=timeout)
    return p.returncode, out or b"", (err or b"").decode("utf-8", "replace")


def story_or_nano():
    try:
        return "story", model("story")
    except Skip:
        return "nano", model("nano")


def started(*args, **kw):
    """A run that has printed its first bytes."""
    p = start("run", *args, **kw)
    first = os.read(p.stdout.fileno(), 1)
    check(first, f"nothing came: {p.poll()}")
    return p, first


def test_sigint_keeps_the_text():
    p, first = started("-m", story_or_nano()[1], *ENDLESS)
    p.send_signal(signal.SIGINT)
    code, out, err = finish(p)
    equal(code, 130, "exit code")
    check((first + out).endswith(b"\n"), "the partial text ends with a newline")
    check(re.search(r"\[[\d,]+ tokens?, .*seed \d+, stopped by Ctrl-C\]\n", err), f"closing line: {err}")


def test_sigint_in_json():
    p = start("run", "-m", story_or_nano()[1], *ENDLESS, "--json", "-v")
    while b"loaded in" not in p.stderr.readline():  # however long that takes
        check(p.poll() is None, "ended before the model was there")
    time.sleep(0.2)
    p.send_signal(signal.SIGINT)
    code, out, _ = finish(p)
    equal((code, json.loads(out)["finish_reason"]), (130, "cancelled"), "the object is still printed")


def test_sigterm():
    p, _ = started("-m", story_or_nano()[1], *ENDLESS)
    p.terminate()
    equal(finish(p)[0], 143, "exit code")


def test_sighup():
    p, _ = started("-m", story_or_nano()[1], *ENDLESS)
    p.send_signal(signal.SIGHUP)
    equal(finish(p)[0], 129, "exit code")
    p = subprocess.Popen(["nohup", BITNET, "run", "-m", story_or_nano()[1], "-n", "2", "-f", "-"], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_env())
    time.sleep(1)
    p.send_signal(signal.SIGHUP)
    p.communicate(b"Hello!", timeout=60)
    equal(p.returncode, 0, "below nohup it goes on")


def test_sigint_while_waiting_for_a_prompt():
    p = hears(start("run", "-m", model("nano"), stdin=subprocess.PIPE))
    time.sleep(0.5)
    p.send_signal(signal.SIGINT)
    p.wait(30)
    equal(p.returncode, 130, "exit code")
    p.communicate()


def test_sigint_while_dumping_logits():
    path = temp("dump.f32")
    text = "Once upon a time there was a little fox. " * 400
    p = hears(start("run", "-m", story_or_nano()[1], "--ctx", "65536", "-b", "1", "--dump-logits", path, "-p", text))
    time.sleep(0.7)
    p.send_signal(signal.SIGINT)
    equal(finish(p)[0], 130, "exit code")
    check(not os.path.exists(path), "half a dump was left behind")
    equal(temporaries(), [], "temporary files")


def test_closed_reader():
    """bitnet run ... | head -c 1"""
    p, _ = started("-m", story_or_nano()[1], *ENDLESS)
    p.stdout.close()
    p.stdout = None
    _, err = p.communicate(timeout=60)
    equal((p.returncode, err), (141, b""), "a quiet end")
    for command in (("help",), ("man",), ("inspect", model("nano")), ("version", "--json"), ("completions", "zsh")):
        read, write = os.pipe()
        os.close(read)
        p = start(*command, stdout=write)
        os.close(write)
        _, err = p.communicate(timeout=60)
        equal((p.returncode, err), (141, b""), f"{command}")


def test_full_disk_on_stdout():
    with open("/dev/full", "wb") as full:
        for args in (("run", "-m", model("nano"), "-n", "5", "-p", "x"), ("run", "-m", model("nano"), "-n", "5", "--json"),
                     ("help",), ("inspect", model("nano")), ("tokenize", "-m", model("nano"), "x"), ("version",)):
            r = run(*args, stdout=full)
            equal(r.code, 5, f"{args}: exit code")
            check("standard output: No space left on device" in r.err, f"{args}: {r.err}")


def test_closed_stdout():
    """No descriptor 1 at all: an error, and no file of ours takes its place."""
    path = temp("closed.f32")
    command = f"exec {BITNET} run -m {model('nano')} -n 3 -p x --dump-logits {path} >&-"
    p = subprocess.run(["sh", "-c", command], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env=clean_env())
    equal(p.returncode, 5, f"exit code; {p.stderr}")
    check(os.path.getsize(path) % (512 * 4) == 0, "text went into the dump")


def limit_files(n):
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (n, n))


def test_full_disk_in_files():
    if b"thread-sanitizer" in run("version").raw:
        raise Skip("ThreadSanitizer writes a file of its own, which the limit would cut")
    path = temp("full.f32")
    r = run("run", "-m", model("nano"), "-n", "1", "-p", "Once upon a time", "--dump-logits", path, preexec_fn=limit_files(4096))
    equal(r.code, 5, f"exit code; {r.err}")
    check("full.f32: cannot write" in r.err, r.err)
    check(not os.path.exists(path), "half a dump was left behind")
    out = temp("full.gguf")
    r = run("convert", shared("story-model", "nano"), out, preexec_fn=limit_files(100000))
    equal(r.code, 5, f"exit code; {r.err}")
    check("full.gguf" in r.err, f"the message does not name the output: {r.err}")
    check(not os.path.exists(out), "half a model was left behind")
    equal(temporaries(), [], "temporary files")


def big_checkpoint():
    """A checkpoint that takes a while to convert."""
    tool = os.path.join(os.environ.get("BITNET_SOURCE", "."), "tools", "make_hf_model")
    folder = temp("big")
    if not os.path.isdir(folder):
        if not os.path.exists(tool):
            raise Skip("tools/make_hf_model is not there")
        p = subprocess.run([sys.executable, tool, folder, "--form", "online", "--width", "2048", "--layers", "3", "--ffn", "4096",
                            "--heads", "16", "--kv-heads", "4", "--vocab", "1024", "--merges", "500"], capture_output=True, text=True)
        if p.returncode != 0:
            raise Skip(f"tools/make_hf_model: {p.stderr[-300:]}")
    return folder


def converting(out, folder):
    """A conversion that has begun to write."""
    p = start("convert", folder, out)
    until = time.time() + 60
    while p.poll() is None and time.time() < until:
        if any(f.startswith(os.path.basename(out)) and os.path.getsize(temp(f)) > 0 for f in temporaries()):
            return p
        time.sleep(0.002)
    p.kill()
    p.communicate()
    raise Skip(f"the conversion was too quick to interrupt (exit {p.returncode})")


def test_sigint_while_converting():
    out = temp("interrupted.gguf")
    p = converting(out, big_checkpoint())
    p.send_signal(signal.SIGINT)
    code, _, err = finish(p)
    equal(code, 130, f"exit code; {err}")
    check("interrupted.gguf was not written" in err, err)
    check(not os.path.exists(out), "half a model was left behind")
    equal(temporaries(), [], "temporary files")


def test_one_sigint_ends_long_work():
    """Tokenizing and the pass of a prompt hear it long before they would have ended; the best of three, since others may have the CPUs."""
    long, prompt = temp("one.txt"), temp("prompt.txt")
    slow = b"sanitizer" in run("version").raw
    with open(long, "w") as f:
        f.write("Once upon a time there was a fox. " * (80000 if slow else 240000))  # seconds of tokenizing
    with open(prompt, "w") as f:
        f.write("Once upon a time there was a fox. " * (150 if slow else 700))  # one pass of all its tokens
    for what, args in (("tokenize", ("tokenize", "-m", model("nano"), "-f", long)),
                       ("prompt", ("run", "-m", model("nano"), "-f", prompt, "-c", "65536", "-b", "65536", "-n", "1", "--no-warnings"))):
        began = time.monotonic()
        equal(finish(start(*args))[0], 0, f"{what}: exit code")
        whole = time.monotonic() - began
        took = []
        for _ in range(3):
            p = hears(start(*args))
            time.sleep(min(0.3, whole / 5))
            check(p.poll() is None, f"{what} was too quick")
            began = time.monotonic()
            p.send_signal(signal.SIGINT)
            equal(finish(p)[0], 130, f"{what}: exit code")
            took.append(time.monotonic() - began)
        check(min(took) < whole / 2, f"{what}: {took} s of {whole} s")


def test_sigint_while_printing_tokens():
    """A list that nobody reads yet is ended where it is, not printed to its end first."""
    text = temp("print.txt")
    with open(text, "w") as f:
        f.write("Once upon a time there was a fox. " * 5000)
    p = start("tokenize", "-m", model("nano"), "-f", text)
    first = os.read(p.stdout.fileno(), 1)
    p.send_signal(signal.SIGINT)
    time.sleep(0.1)
    code, out, _ = finish(p)
    equal(code, 130, "exit code")
    check(first and not out.endswith(b"tokens\n"), f"printed {len(out)} bytes to the end")


def end_twice(p, sig, what):
    """Two signals end it within a second, or three with a sanitizer, whatever it does."""
    bound = 3 if b"sanitizer" in run("version").raw else 1
    p.send_signal(sig)
    time.sleep(0.05)  # two that are pending at once are one
    p.send_signal(sig)
    began = time.monotonic()
    code, _, err = finish(p)
    check(time.monotonic() - began < bound, f"{what}: {time.monotonic() - began:.1f} s")
    equal(code, 128 + sig, f"{what}: exit code; {err}")


def test_two_signals_end_it_at_any_moment():
    out, text = temp("twice.gguf"), temp("long.txt")
    with open(text, "w") as f:
        f.write("Once upon a time there was a fox. " * 600000)  # 20 MB are seconds of tokenizing
    for sig in (signal.SIGTERM, signal.SIGINT):
        for args in (("tokenize", "-m", model("nano"), "-f", text), ("score", "-m", model("nano"), "-f", text)):
            p = hears(start(*args))
            time.sleep(0.4)
            check(p.poll() is None, f"{args[0]} was too quick")
            end_twice(p, sig, args[0])
        end_twice(started("-m", story_or_nano()[1], *ENDLESS)[0], sig, "run")
    end_twice(converting(out, big_checkpoint()), signal.SIGTERM, "convert")
    check(not os.path.exists(out), "half a model was left behind")
    equal(temporaries(), [], "temporary files")


def test_input_truncated_while_converting():
    folder = temp("shrinking")
    shutil.copytree(big_checkpoint(), folder)
    out = temp("shrunk.gguf")
    p = converting(out, folder)
    for f in os.listdir(folder):
        if f.endswith(".safetensors"):
            os.truncate(os.path.join(folder, f), 4096)
    code, _, err = finish(p)
    check(code in (3, 5, 14), f"exit {code}; {err}")
    if code == 14:
        check("was truncated or became unreadable" in err, err)
    check(not os.path.exists(out), "half a model was left behind")
    equal(temporaries(), [], "temporary files")


def test_model_truncated_while_running():
    name, _ = story_or_nano()
    path = copy_of_model(name, "shrinking.gguf")
    p, _ = started("-m", path, "--no-pack", *ENDLESS)  # packed weights need the file no more
    os.truncate(path, 4096)
    code, _, err = finish(p, 120)
    equal(code, 14, f"exit code; {err}")
    check(f"{path}: the file was truncated or became unreadable while in use" in err, err)


def fill_stderr(p):
    """Whoever writes to the standard error of `p` waits from now on, until it is read."""
    fd = os.open(f"/proc/self/fd/{p.stderr.fileno()}", os.O_WRONLY | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while os.write(fd, b"."):
            pass
    os.close(fd)


def test_packed_weights_truncated_while_running():
    """The file that vanished is named, which is not the model, and once, though every thread meets its end."""
    folder, path = temp("packs"), story_or_nano()[1]
    os.mkdir(folder, 0o700)
    keep = ("-m", path, "--cache", folder, "--cache-min", "0")
    expect(0, "run", *keep, "-n", "1", "-p", "Once")
    pack, = (os.path.join(folder, f) for f in os.listdir(folder) if f.endswith(".pack"))
    p, _ = started(*keep, *ENDLESS, "--threads", "2")
    fill_stderr(p)  # the first thread waits where it speaks, while the other comes there
    os.truncate(pack, 4096)
    time.sleep(0.5)
    code, _, err = finish(p, 120)
    said = err.rpartition("." * 1000)[2]
    equal(code, 14, f"exit code; {said}")
    equal(said, f"\nbitnet: {pack}: the file was truncated or became unreadable while in use\n", "what is said")


def test_model_removed_while_running():
    """A file that is unlinked stays mapped: nothing happens."""
    path = copy_of_model("nano", "removed.gguf")
    p, _ = started("-m", path, "-n", "150", "--ignore-eos", "-p", "Once upon a time")
    os.unlink(path)
    equal(finish(p)[0], 0, "exit code")


if __name__ == "__main__":
    main(globals())
