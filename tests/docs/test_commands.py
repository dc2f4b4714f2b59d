#!/usr/bin/env python3
"""What the documents tell to type exists: commands and options of bitnet, targets and variables of make, environment
variables, files and links. Commands are taken from code, fenced, indented or inline; nothing is downloaded or changed."""
import functools
import glob
import os
import re
import shlex
import subprocess
import sys

ROOT = os.path.abspath(os.environ.get("BITNET_SOURCE") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
BITNET = os.environ.get("BITNET", os.path.join(ROOT, "build/release/bitnet"))
PAGES = sorted(glob.glob(f"{ROOT}/*.md") + glob.glob(f"{ROOT}/docs/*.md"))
READ_ONLY = {"info", "devices", "preflight", "kernels", "version", "list-templates", "list-architectures", "help", "man"}
ENDS = {"|", "||", "&&", ";", ">", ">>", "<", "&", "2>"}


def read(path):
    """A page without the promises of requirements: they are quoted, and tell to type what comes later, too."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    return re.sub(r"^(\| [A-Z]+-\d+ \|)(?:\\.|[^|\\\n])*", r"\1 ", text, flags=re.M) if path.endswith("/REQUIREMENTS.md") else text


def code_of(text):
    """Lines of code: (line number, text)."""
    fenced = False
    for n, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            yield n, re.split(r"\s#\s", line)[0].strip().removeprefix("$ ")
    for m in re.finditer(r"(?<!`)`([^`]+)`(?!`)", re.sub(r"```.*?```", lambda f: re.sub(r"[^\n]", " ", f.group()), text, flags=re.S)):
        yield text.count("\n", 0, m.start()) + 1, " ".join(m.group(1).split())


def words_of(line):
    """The words of one command, up to a pipe or a comment; None where it is no shell."""
    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        words = list(lexer)
    except ValueError:
        return None
    for i, word in enumerate(words):
        if word in ENDS:
            return words[:i]
    return words


def commands(text, program):
    """(line, words) of every call of the program, environment before it dropped."""
    for n, line in code_of(text):
        for part in re.split(r"[|;&]+ *(?=[\w./]*bitnet |make )", line):
            words = words_of(part)
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                words = words[1:]
            if words and len(words) > 1 and os.path.basename(words[0]) == program:
                yield n, words[1:]


@functools.lru_cache(maxsize=None)
def help_of(command):
    """The help of a command; None: there is no such command."""
    done = subprocess.run([BITNET, "help", command, "--all"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return re.sub(r"--\[no-\]([\w-]+)", r"--\1 --no-\1", done.stdout) if done.returncode == 0 else None


def placeholder(word):
    return bool(re.fullmatch(r"[.\u2026]{1,3}|<.*|\[.*|[A-Z]+", word)) or "|" in word


def check_command(where, words, bad):
    if words[0].startswith("-") or placeholder(words[0]):
        return 0
    if words[0].endswith((",", ":", ".")) or not re.fullmatch(r"[a-z-]+", words[0]):
        return 0
    if help_of(words[0]) is None:
        bad.append(f"{where}: there is no command \"bitnet {words[0]}\"")
        return 1
    text = help_of(words[0])
    for word in words[1:]:
        m = re.fullmatch(r"\[?(--?[a-zA-Z][\w-]*)(=.*)?\]?,?", word)
        if m and not re.search(r"(?<![\w-])" + re.escape(m.group(1)) + r"(?![\w-])", text):
            bad.append(f"{where}: bitnet {words[0]} has no option {m.group(1)}")
    return 1


def test_bitnet_commands():
    if not os.path.exists(BITNET):
        return f"there is no {BITNET}"
    bad, n = [], 0
    for page in PAGES:
        for line, words in commands(read(page), "bitnet"):
            n += check_command(f"{os.path.relpath(page, ROOT)}:{line}", words, bad)
    assert not bad, "\n".join(bad)
    assert n >= 15, f"only {n} commands found: is the pattern right?"
    return None


def test_commands_that_only_look_are_run():
    if not os.path.exists(BITNET):
        return f"there is no {BITNET}"
    ran = set()
    for page in PAGES:
        for line, words in commands(read(page), "bitnet"):
            if words[0] not in READ_ONLY or any(placeholder(w) or "[" in w for w in words) or tuple(words) in ran:
                continue
            ran.add(tuple(words))
            done = subprocess.run([BITNET, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
                                  env={**os.environ, "BITNET_GPU_FAKE": "none"}, stdin=subprocess.DEVNULL)
            wanted = (0, 1, 12) if words[0] == "preflight" else (0,)
            assert done.returncode in wanted and done.stdout, f"{page}:{line}: {words}: {done.returncode} {done.stderr}"
    assert len(ran) >= 4, ran
    return None


def test_make_targets():
    makefile = read(f"{ROOT}/Makefile")
    targets = set(re.findall(r"^([a-z][\w-]*):", makefile, re.M))
    names = set(re.findall(r"\$[({](\w+)", makefile)) | {"DESTDIR"} | set(re.findall(r"^(\w+) \?=", makefile, re.M))
    bad, n = [], 0
    for page in PAGES:
        for line, words in commands(read(page), "make"):
            n += 1
            for word in words:
                name = word.rstrip(",.:")
                if re.fullmatch(r"[A-Z_]+=.*", name, re.S):
                    if name.split("=")[0] not in names:
                        bad.append(f"{os.path.relpath(page, ROOT)}:{line}: make knows no {name}")
                elif re.fullmatch(r"[a-z][\w-]*", name) and name not in targets:
                    bad.append(f"{os.path.relpath(page, ROOT)}:{line}: make has no target {name}")
    assert not bad, "\n".join(bad)
    assert n >= 5, f"only {n} calls of make found"


def sources():
    for pattern in ("src/**/*", "cli/*", "include/*", "tests/**/*", "tools/*", "cmake/*", "CMakeLists.txt", "Makefile"):
        for path in glob.glob(f"{ROOT}/{pattern}", recursive=True):
            if os.path.isfile(path) and "/corpus/" not in path and not path.startswith(f"{ROOT}/tests/docs/"):
                try:
                    yield read(path)
                except UnicodeDecodeError:
                    pass


def test_variables():
    known = set()
    for text in sources():
        known.update(re.findall(r"\b(?:BITNET|KCHECK|CUDA|FUZZ|TEST)_[A-Z0-9_]+\b", text))
    bad = []
    for page in PAGES:
        text = read(page)
        # rows that say which names of another program have no meaning here
        left_out = re.findall(r"`(BITNET_[A-Z0-9_]+)`", "\n".join(re.findall(r"^\| (.*?) \| left out: ", text, flags=re.M)))
        bad += [f"{os.path.relpath(page, ROOT)}: {name} is left out, and known" for name in left_out if name in known]
        text = re.sub(r"^\| .*? \| left out: .*", "", text, flags=re.M)
        for name in sorted(set(re.findall(r"`((?:BITNET|KCHECK|CUDA|FUZZ|TEST)_[A-Z0-9_]+)\b", text))):
            if name not in known and not name.endswith(("_X", "_")):  # BITNET_HAVE_<NAME>
                bad.append(f"{os.path.relpath(page, ROOT)}: nothing knows {name}")
    assert not bad, "\n".join(bad)


def test_files_and_links():
    bad = []
    for page in PAGES:
        text, where = read(page), os.path.relpath(page, ROOT)
        for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
            if not os.path.exists(os.path.join(os.path.dirname(page), link)):
                bad.append(f"{where}: the link {link} leads nowhere")
        for path in re.findall(r"`((?:src|cli|include|tests|tools|docs|cmake|models)/[\w./-]+)`", text):
            if not os.path.exists(f"{ROOT}/{path}"):
                bad.append(f"{where}: there is no {path}")
    assert not bad, "\n".join(bad)


def test_names_of_the_library():
    known = set()
    for text in sources():
        known.update(re.findall(r"\b(?:bitnet|bnet)_\w+", text))
    bad = []
    gone = set(re.findall(r"`(bitnet_\w+)(?:\.h)?`\s+is\s+gone", read(f"{ROOT}/CHANGELOG.md")))
    for name in sorted(gone & known):
        bad.append(f"CHANGELOG.md: {name} is there, not gone")
    for page in PAGES:
        past = gone if os.path.basename(page) == "CHANGELOG.md" else set()
        for name in sorted(set(re.findall(r"`[^`\n]*?\b((?:bitnet|bnet)_\w+)", read(page))) - past):
            if name not in known and not name.endswith("_") and name != "bitnet_noun_verb":
                bad.append(f"{os.path.relpath(page, ROOT)}: nothing is called {name}")
    assert not bad, "\n".join(bad)


# page, which test must find something wrong in it
WRONG = [("`bitnet fly`", "no command"), ("```sh\n$ bitnet run --wings 2\n```", "no option --wings"),
         ("    bitnet run x | bitnet devices --wings", "no option --wings"),
         ("`bitnet run --strict --no-echo`", None), ("BITNET_X=1 bitnet run", None), ("`bitnet run --model FILE [--seed N] ...`", None)]


def test_the_check_itself():
    if not os.path.exists(BITNET):
        return f"there is no {BITNET}"
    for text, wanted in WRONG:
        bad = []
        for line, words in commands(text, "bitnet"):
            check_command(f"x:{line}", words, bad)
        assert (wanted is None) == (not bad) and (wanted is None or wanted in bad[0]), f"{text}: {bad}"
    return None


def main():
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for name, function in sorted(globals().items()):
        if not name.startswith("test_"):
            continue
        try:
            reason = function()
            counts["skipped" if reason else "passed"] += 1
            if reason:
                print(f"SKIPPED {name}: {reason}")
        except AssertionError as e:
            counts["failed"] += 1
            print(f"{name}: {e}")
    print(", ".join(f"{n} {what}" for what, n in counts.items()))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
