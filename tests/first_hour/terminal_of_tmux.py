"""A terminal for tests, lent by tmux: a shell without settings in a folder of its own, keys sent as a person would press them,
waits that poll the screen. Every screen that is kept is drawn as an SVG into the build folder, to be looked at."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

SOURCE = os.path.abspath(os.environ.get("BITNET_SOURCE") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
BITNET = os.path.abspath(os.environ.get("BITNET") or os.path.join(SOURCE, "build", "release", "bitnet"))
PICTURES = os.path.join(os.environ.get("BITNET_BUILD") or os.path.join(SOURCE, "build", "release"), "first_hour")
sys.path.insert(0, os.path.join(SOURCE, "tools"))
sys.dont_write_bytecode = True
import terminal  # noqa: E402

PROMPT = "$"
PATIENCE = 120  # seconds


def why_not():
    """Why there is no terminal to lend, or None."""
    if not shutil.which("tmux"):
        return "tmux is not installed (tools/setup test installs it)"
    if not os.path.exists(BITNET):
        return f"there is no {BITNET}"
    return None


class Terminal:
    def __init__(self, columns=100, rows=40):
        self.columns, self.rows = columns, rows
        self.folder = tempfile.mkdtemp(prefix="bitnet-hour-")
        self.bin = os.path.join(self.folder, ".bin")
        os.mkdir(self.bin)
        os.symlink(BITNET, os.path.join(self.bin, "bitnet"))
        os.symlink(os.path.join(SOURCE, "models"), os.path.join(self.folder, "models"))
        self.server = ["tmux", "-f", "/dev/null"]  # its socket lies in TMUX_TMPDIR and goes with the folder
        self.environment = {"PATH": f"{self.bin}:{os.environ['PATH']}", "PS1": f"{PROMPT} ", "HOME": self.folder,
                            "LC_ALL": "C.UTF-8", "SHELL": "/bin/sh", "TERM": "screen", "TMUX_TMPDIR": self.folder}
        if os.environ.get("LD_LIBRARY_PATH"):
            self.environment["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
        words = " ".join(f"'{name}={value}'" for name, value in self.environment.items())
        subprocess.run([*self.server, "new-session", "-d", "-x", str(columns), "-y", str(rows), "-c", self.folder,
                        f"exec env -i {words} sh -i"], check=True, env=self.environment, cwd=self.folder)
        self.wait(rf"^\{PROMPT}$")

    def tmux(self, *words, data=None):
        done = subprocess.run([*self.server, *words], input=data, capture_output=True, text=True, check=False,
                              env=self.environment)
        if done.returncode != 0:
            raise AssertionError(f"tmux {words[0]}: {done.stderr.strip()}; did the shell end?")
        return done.stdout

    # ---- what is on it ----
    def screen(self):
        """The lines of the screen that have text, without blanks at their ends."""
        return [line.rstrip() for line in self.tmux("capture-pane", "-p").splitlines()]

    def everything(self):
        """The screen and what scrolled out of it, as one text; lines that were broken by the width are joined."""
        return self.tmux("capture-pane", "-p", "-J", "-S", "-").rstrip()

    def last(self):
        lines = [line for line in self.screen() if line]
        return lines[-1] if lines else ""

    def picture(self, name):
        os.makedirs(PICTURES, exist_ok=True)
        screen = terminal.Screen(self.columns, self.rows)
        lines = self.tmux("capture-pane", "-e", "-p").rstrip("\n").split("\n")
        screen.feed("\r\n".join(lines))
        y, x = map(int, self.tmux("display-message", "-p", "#{cursor_y} #{cursor_x}").split())
        screen.row, screen.column = y, x
        with open(os.path.join(PICTURES, name + ".svg"), "w", encoding="utf-8") as f:
            f.write(terminal.svg(screen, name, "a screen of the first hour", [(0, y, x)], 1))

    # ---- what is pressed ----
    def keys(self, *names):
        """Keys by tmux's names: Enter, C-c, Up, Tab."""
        self.tmux("send-keys", *names)

    def write(self, text):
        self.tmux("send-keys", "-l", "--", text)

    def type(self, text):
        self.write(text)
        self.keys("Enter")

    def paste(self, text):
        """As the clipboard of a terminal does where the program asked for bracketed paste."""
        self.tmux("load-buffer", "-", data=text)
        self.tmux("paste-buffer", "-p", "-r")

    def resize(self, columns, rows):
        self.columns, self.rows = columns, rows
        self.tmux("resize-window", "-x", str(columns), "-y", str(rows))

    # ---- waiting ----
    def wait(self, expression, patience=PATIENCE, where=None):
        """Polls until a line of the screen (or what `where` gives) matches; gives the match."""
        end = time.monotonic() + patience
        while True:
            found = re.search(expression, where() if where else "\n".join(self.screen()), re.M)
            if found:
                return found
            if time.monotonic() > end:
                raise AssertionError(f"waited {patience} s for /{expression}/; the screen:\n" + "\n".join(self.screen()).rstrip())
            time.sleep(0.03)

    def fresh(self):
        """An empty screen with the shell's prompt. Where it is one already nothing is typed: it could not be seen to have
        happened, and what is typed too early is shown in the wrong place."""
        if "\n".join(self.screen()).strip() != PROMPT:
            self.type("clear")
            self.wait(rf"\A\{PROMPT}\s*\Z")
        self.tmux("clear-history")

    def shell(self, line, patience=PATIENCE):
        """Types a line on an empty screen, waits for the prompt, and gives all that was printed."""
        self.fresh()
        self.type(line)
        self.wait(rf"\n\{PROMPT}\Z", patience, self.everything)  # a second prompt: the first has the line behind it
        said = self.everything().split("\n")
        return "\n".join(said[1:-1])

    def prompts(self, prompt):
        return len(re.findall(rf"^{prompt}(?= |$)", self.everything(), re.M))

    def turn(self, line, prompt, patience=PATIENCE):
        """Types a line where a prompt (an expression) is, waits for the next one, and gives what was printed between."""
        n = self.prompts(prompt)
        self.type(line)
        self.next_prompt(prompt, n, patience)
        return re.split(rf"^{prompt}(?= |$)", self.everything(), flags=re.M)[-2]

    def next_prompt(self, prompt, n, patience=PATIENCE):
        end = time.monotonic() + patience
        while self.prompts(prompt) <= n or not re.fullmatch(prompt, self.last()):
            if time.monotonic() > end:
                raise AssertionError(f"no /{prompt}/ in {patience} s; the screen:\n" + "\n".join(self.screen()).rstrip())
            time.sleep(0.03)

    def close(self):
        subprocess.run([*self.server, "kill-server"], capture_output=True, check=False, env=self.environment)
        shutil.rmtree(self.folder, ignore_errors=True)
