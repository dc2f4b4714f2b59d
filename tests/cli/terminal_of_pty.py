"""A program on a pseudo-terminal, for tests of what is drawn in place: what it wrote, when, and what a person sees of it."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time


def run(command, env, columns=80, stdout=None, stop=None, seconds=None, timeout=120):
    """Runs the command with its standard error (and output, unless stdout says otherwise) on a terminal. Returns its exit
    code and what came there as (seconds, text). Ctrl-C as soon as `stop` appears, or so many seconds after the first piece."""
    lead, follow = pty.openpty()
    fcntl.ioctl(follow, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    attributes = termios.tcgetattr(follow)
    attributes[1] &= ~termios.OPOST  # what is written, byte for byte
    termios.tcsetattr(follow, termios.TCSANOW, attributes)
    began = time.monotonic()
    p = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=follow if stdout is None else stdout, stderr=follow, env=env,
                         start_new_session=True)
    os.close(follow)
    pieces, raw = [], b""
    while time.monotonic() - began < timeout:
        if not select.select([lead], [], [], 0.05)[0]:
            if p.poll() is not None:
                break
            continue
        try:
            got = os.read(lead, 65536)
        except OSError:
            break
        if not got:
            break
        raw += got
        pieces.append((time.monotonic() - began, got.decode("utf-8", "replace")))
        if (stop and stop.encode() in raw) or (seconds and pieces[-1][0] - pieces[0][0] > seconds):
            os.killpg(p.pid, signal.SIGINT)  # as the terminal would: to all of them
            stop = seconds = None
    os.close(lead)
    try:
        code = p.wait(timeout=20)
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, signal.SIGKILL)
        raise
    return code, pieces


def text_of(pieces):
    return "".join(t for _, t in pieces)


def drawn(text):
    """The lines that were drawn in place, one after the other."""
    return re.findall(r"\r([^\r\n\x1b]+)\x1b\[K", text)


def shown(text):
    """What a person sees in the end: a terminal with one line of memory."""
    out, line, at = [], [], 0
    for piece in re.findall(r"\x1b\[K|\x1b\[[0-9;]*[a-zA-Z]|[\s\S]", text):
        if piece == "\x1b[K":
            line = line[:at]
        elif piece == "\r":
            at = 0
        elif piece == "\n":
            out.append("".join(line))
            line, at = [], 0
        else:
            line[at:at + 1] = [piece]
            at += 1
    return "\n".join([*out, "".join(line)])


def percents(lines):
    return [int(m.group(1)) for m in (re.search(r"(\d+) %", line) for line in lines) if m]


def rises(lines):
    """The percentages of these lines never fall."""
    numbers = percents(lines)
    if any(a > b for a, b in zip(numbers, numbers[1:])):
        raise AssertionError(f"percentages fall: {numbers}")
