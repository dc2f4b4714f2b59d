#!/usr/bin/env python3
"""The option table: every option is in --help, the manual and the completions; parsing is strict and helpful."""
import os
import pty
import re
import select
import shutil
import subprocess

from harness import SOURCE, Skip, check, equal, expect, fails, main, model, run, temp, write


def rows():
    """(kind, key, name, commands, aliases) of every row of the table, read from its source."""
    with open(os.path.join(SOURCE, "cli", "options.inc")) as f:
        text = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
    found = []
    for kind, body in re.findall(r"^(OPTION|SHORTHAND|REFUSED|IGNORED)\((.*?)\)$", text, flags=re.S | re.M):
        strings = re.findall(r'"((?:[^"\\]|\\.)*)"', body)
        key = body.split(",")[0].strip()
        kind_of = body.split(",")[3].strip() if kind == "OPTION" else kind
        commands = re.findall(r"(?:ON|TOP)\((\w+)\)", body) or ["*"]
        aliases = strings[{"REFUSED": 1, "IGNORED": 2}.get(kind, -2)]
        found.append((kind_of, key, strings[0], commands, aliases.split(), strings[-1]))
    return found


HABITS = ("REFUSED", "IGNORED")


def dashes(alias):
    """An alias as it is typed."""
    return alias if alias.startswith("-") else "--" + alias


def commands():
    with open(os.path.join(SOURCE, "cli", "commands.inc")) as f:
        return re.findall(r'^COMMAND\((\w+), \w+, "([^"]+)", "([^"]*)"', f.read(), flags=re.M)


def test_table_is_read():
    check(len(rows()) > 60, f"only {len(rows())} rows were understood")
    check(len(commands()) >= 12, "commands.inc was not understood")
    for kind, _, name, _, _, text in rows():
        check(re.fullmatch(r"[a-z0-9][a-z0-9-]*", name), f"odd name {name}")
        check((text or kind == "IGNORED") and (text.endswith("...") or not text.endswith(".")), f"--{name}: the help text is empty or ends with a stop")


def test_every_option_in_help():
    pages = {key: run("help", name, "--all").out for key, name, _ in commands()}
    taken = {(name, key) for kind, _, name, on, _, _ in rows() if kind not in HABITS for key in on}
    for kind, _, name, on, aliases, _ in rows():
        for key in pages if on == ["*"] else on:
            if kind in HABITS and (name, key) in taken:  # a habit elsewhere, an option of this command
                continue
            spelling = f"--[no-]{name}" if kind == "SWITCH" else f"--{name}"
            if kind in HABITS:
                check(f" --{name} " not in pages[key], f"help {key} offers --{name}, which is of another program")
                continue
            check(spelling in pages[key], f"help {key} lacks {spelling}")
            for alias in aliases:
                check(dashes(alias) in pages[key], f"help {key} lacks the alias {dashes(alias)}")


def test_help_spellings_agree():
    for _, name, aliases in commands():
        want = run("help", name).out
        check(want.startswith(f"Usage: bitnet {name}"), f"help {name}: {want[:60]}")
        for how in ((name, "--help"), (name, "-h"), ("--help", name), *((a, "-h") for a in aliases.split())):
            equal(run(*how).out, want, f"{how}")
        want = run("help", name, "--all").out
        for how in ((name, "--help-all"), ("help", name, "--help-all"), ("help", "-a", name), ("--help-all", name)):
            equal(run(*how).out, want, f"{how}")


def option_lines(page):
    return re.findall(r"^ {2,6}(?:-\w, )?--(?:\[no-\])?([a-z0-9-]+)", page, flags=re.M)


def test_short_help():
    """Examples first, the ten or so options people use, and where the rest is; nothing for tests or developers."""
    hidden = ("gpu-fake", "refuse-fake-gpu", "self-test", "dump-logits", "assert-greedy", "i2s-layout", "nvtx", "isa", "log-format", "pin")
    for _, name, _ in commands():
        page, full = run("help", name).out, run("help", name, "--all").out
        lines = page.splitlines()
        check(len(lines) <= 45, f"help {name} has {len(lines)} lines")
        check(lines[2] == "Examples" and lines[3].startswith("  "), f"help {name}: no examples at the top")
        check(f"bitnet {name} --help-all" in lines[-1], f"help {name} ends with {lines[-1]!r}")
        shown = option_lines(page)
        check(len(shown) <= 14, f"help {name} shows {len(shown)} options")
        check(set(shown) <= set(option_lines(full)), f"help {name} shows what --all does not: {shown}")
        if name != "kernels":
            equal([o for o in shown if o in hidden], [], f"help {name}: options for tests and developers")
        check("BITNET_" not in page, f"help {name} speaks of the environment")
        for line in lines + full.splitlines():
            check(len(line) <= 90, f"help {name}: a line of {len(line)} columns: {line}")
    wanted = {"model", "prompt", "file", "temperature", "seed", "max-tokens", "ctx", "threads", "device", "json", "system"}
    check(wanted <= set(option_lines(run("help", "run").out)), "help run lacks what people use")
    check({"gpu-fake", "self-test", "assert-greedy"} <= set(option_lines(run("run", "--help-all").out)), "--help-all has the rest")


def test_examples_exist():
    """Every command line in the examples names commands and options that there are."""
    n = 0
    for page in [run().out] + [run("help", name).out for _, name, _ in commands()]:
        for line in re.findall(r"^  (?:\w+ .*\| )?(bitnet .*)$", page, flags=re.M):
            for part in re.split(r"&& |\| | # |   ", line):
                words = part.split()
                if not words or words[0] != "bitnet":
                    continue
                n += 1
                if words[1].endswith(".gguf"):
                    continue
                full = run("help", words[1], "--all").out
                check(full, f"there is no command {words[1]}: {line}")
                for option in re.findall(r"(?<=\s)(--?[a-z][a-z-]*)", part):
                    check(re.search(rf"(?<![\w-]){option}(?![\w-])", full.replace("[no-]", "no-")) or option.startswith("--no-")
                          and "[no-]" + option[5:] in full, f"{words[1]} has no {option}: {line}")
    check(n > 30, f"only {n} examples were found")


def test_no_command_prints_help():
    r = expect(0)
    lines = r.out.splitlines()
    check(len(lines) <= 40 and max(map(len, lines)) <= 90 and lines[2] == "Examples", f"{len(lines)} lines: {r.out}")
    check("--interface-version" in run("--help-all").out, "--help-all has the options of every command")
    equal(r.out, run("help").out, "bitnet without arguments")
    equal(run("--help").out, r.out, "bitnet --help")
    for _, name, _ in commands():
        if name != "man":
            check(f"\n  {name} " in r.out, f"help lacks {name}")


def test_every_option_in_man():
    page = expect(0, "man").out
    equal(run("help", "--man").out, page, "help --man")
    for kind, _, name, _, aliases, _ in rows():
        for word in [name] + aliases:
            check(word.replace("-", "\\-") in page, f"the manual lacks --{word}")
    with open(os.path.join(SOURCE, "cli", "exit_codes.inc")) as f:
        for code in re.findall(r"^EXIT_CODE\(\w+, +(\d+)", f.read(), flags=re.M):
            check(f"\\fB{code}\\fR" in page, f"the manual lacks exit status {code}")


def section(page, name):
    found = re.search(rf"^\.SH {name}\n(.*?)(?=^\.SH |\Z)", page, flags=re.S | re.M)
    check(found, f"the manual has no section {name}")
    return found.group(1)


def test_man_sections():
    page = expect(0, "man").out
    check(re.match(r'\.TH BITNET 1 "20\d\d-\d\d-\d\d" "bitnet \d', page), page[:80])
    for name in ("NAME", "SYNOPSIS", "DESCRIPTION", "COMMANDS", "OPTIONS", "CHAT", "FILES", "EXIT STATUS", "EXAMPLES", "SEE ALSO"):
        check(len(section(page, name)) > 20, f"{name} is empty")
    with open(os.path.join(SOURCE, "cli", "chat_commands.c")) as f:
        slashes = re.findall(r'^    \{"(/\w+)", "[^"]*",\s+"', f.read(), flags=re.M)
    check(len(slashes) > 8 and all(f"\\fB{s}\\fR" in section(page, "CHAT") for s in slashes), f"CHAT lacks one of {slashes}")
    files = section(page, "FILES")
    for name in ("story.gguf", ".cache/bitnet", "bitnet/history"):
        check(name in files, f"FILES lacks {name}")
    environment, wanted = section(page, "ENVIRONMENT"), set()
    with open(os.path.join(SOURCE, "cli", "options.inc")) as f:
        wanted.update(re.findall(r"\bBITNET_[A-Z_]+", f.read()))
    for name in os.listdir(os.path.join(SOURCE, "cli")):
        with open(os.path.join(SOURCE, "cli", name)) as f:
            wanted.update(re.findall(r'getenv\("(\w+)"\)', f.read()))
    check(len(wanted) > 30, f"only {wanted}")
    for name in sorted(wanted):
        equal(environment.count(f"\\fB{name}\\fR\n"), 1, f"ENVIRONMENT on {name}")
    for _, name, _ in commands():
        check(f"bitnet {name}".replace("-", "\\-") in section(page, "EXAMPLES"), f"EXAMPLES lacks {name}")


def test_man_page_is_clean():
    if not shutil.which("groff"):
        print("  groff is not installed: the manual was not checked")
        return
    p = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z"], input=run("man").raw, capture_output=True)
    equal((p.returncode, p.stderr.decode()), (0, ""), "groff warnings")


def test_every_option_in_completions():
    for shell in ("bash", "zsh", "fish"):
        script = expect(0, "completions", shell).out
        equal(run("--completions", shell).out, script, f"--completions {shell}")
        dash = "-l " if shell == "fish" else "--"
        for kind, _, name, _, _, _ in rows():
            if kind in HABITS:
                continue
            check(re.search(rf"{dash}{re.escape(name)}\b", script), f"{shell}: no {name}")
            if kind == "SWITCH":
                check(re.search(rf"{dash}no-{re.escape(name)}\b", script), f"{shell}: no no-{name}")
        for _, name, _ in commands():
            if name != "man":
                check(name in script, f"{shell}: no command {name}")
    fails(2, "completions", "tcsh", says="bash, zsh, fish")


def a_folder():
    """With two models, a text and a folder in it."""
    folder = temp("folder")
    os.makedirs(os.path.join(folder, "more models"), exist_ok=True)
    for name in ("one.gguf", "TWO.GGUF", "notes.txt"):
        open(os.path.join(folder, name), "w").close()
    return folder


def bash_completes(*words, cwd=None):
    """The words that the script offers for the last one."""
    script = write("completion.bash", run("completions", "bash").raw)
    line = f"""source {script}; COMP_WORDS=({' '.join(f"'{w}'" for w in words)}); COMP_CWORD={len(words) - 1}; _bitnet
               printf '%s\\n' "${{COMPREPLY[@]}}" """
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=cwd).stdout.splitlines()


def test_bash_completion_works():
    equal(bash_completes("bitnet", "tok"), ["tokenize"], "bitnet tok<tab>")
    equal(sorted(bash_completes("bitnet", "run", "--temp")), ["--temperature", "--template"], "--temp<tab>")
    check("--no-bos" in bash_completes("bitnet", "generate", "--no-"), "an alias of run completes as run does")
    check("--help-all" in bash_completes("bitnet", "run", "--help"), "--help<tab>")
    equal(bash_completes("bitnet", "completions", "z"), ["zsh"], "completions z<tab>")


def test_bash_completes_values():
    templates = run("list-templates").out.split()
    for option in ("--template", "--chat-template"):
        equal(bash_completes("bitnet", "run", option, ""), ["auto"] + templates, f"{option} <tab>")
    equal(bash_completes("bitnet", "chat", "--template", "=", "chat"), ["chatml"], "--template=chat<tab>")
    equal(bash_completes("bitnet", "chat", "--template", "="), ["auto"] + templates, "--template=<tab>")
    for option in ("--device", "-d", "-dev"):
        equal(bash_completes("bitnet", "run", option, "c"), ["cpu", "cuda"], f"{option} c<tab>")
    equal(bash_completes("bitnet", "run", "--kv", "f"), ["f16", "f32"], "--kv f<tab>")
    equal(bash_completes("bitnet", "bench", "--synthetic", "2b"), ["2b-4t"], "--synthetic 2b<tab>")
    equal(bash_completes("bitnet", "run", "--isa", "sc"), ["scalar"], "--isa sc<tab>")
    equal(bash_completes("bitnet", "run", "--log-level", "d"), ["debug"], "--log-level d<tab>")
    equal(bash_completes("bitnet", "run", "--prompt", ""), [""], "free text")


def test_bash_completes_models():
    folder = a_folder()
    want = ["TWO.GGUF", "more models", "one.gguf"]
    for words in (("run", "-m", ""), ("run", "--model", ""), ("run", ""), ("chat", ""), ("bench", "--model", "="), ("inspect", "")):
        equal(sorted(bash_completes("bitnet", *words, cwd=folder)), want, f"{words}")
    first = bash_completes("bitnet", "", cwd=folder)
    check({"run", "chat", *want} <= set(first) and "notes.txt" not in first, f"bitnet <tab>: {first}")
    equal(bash_completes("bitnet", "score", "no", cwd=folder), ["notes.txt"], "score takes files")
    equal(bash_completes("bitnet", "run", "-f", "no", cwd=folder), ["notes.txt"], "--file")
    check("--prompt" in bash_completes("bitnet", "one.gguf", "--pro", cwd=folder), "a model for a command completes as run")


def typed(shell, lines, cwd):
    """What a shell at a terminal shows while the lines are typed."""
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(cwd)
        os.execvpe(shell[0], shell, {"PATH": os.environ["PATH"], "TERM": "dumb", "HOME": cwd, "PS1": "$ ", "LC_ALL": "C.UTF-8"})
    shown = b""
    for line in lines:
        os.write(fd, line.encode())
        while select.select([fd], [], [], 0.7)[0]:
            try:
                shown += os.read(fd, 65536)
            except OSError:
                break
    os.close(fd)
    os.waitpid(pid, 0)
    return shown.decode("utf-8", "replace").replace("\r", "")


def test_bash_at_a_terminal():
    """A real shell, and the tabulator key: what it makes of the line is given to the command."""
    script, folder = write("completion.bash", run("completions", "bash").raw), a_folder()
    os.makedirs(os.path.join(folder, "bench"), exist_ok=True)
    shown = typed(["bash", "--norc", "--noprofile", "-i"],
                  [f"bitnet() {{ printf '<%s>' \"$@\"; echo; }}; source {script}\n", "bitnet insp\tone\t\n",
                   "bitnet run --dev\tvul\t one.g\t --templ\tfal\t hello\n", "bitnet chat mor\t\n",
                   "bitnet ben\t--quiet\n", "exit\n"], folder)
    os.rmdir(os.path.join(folder, "bench"))
    for want in ("<inspect><one.gguf>", "<run><--device><vulkan><one.gguf><--template><falcon3><hello>", "<chat><more models/>", "<bench><--quiet>"):
        check("\n" + want in shown, f"{want} did not come: {shown[-1500:]}")


def test_fish_completes():
    if not shutil.which("fish"):
        raise Skip("fish is not installed")
    script, folder = write("completion.fish", run("completions", "fish").raw), a_folder()
    ask = lambda line: [x.split("\t")[0] for x in subprocess.run(
        ["fish", "--no-config", "-c", f"source {script}; complete -C '{line}'"], capture_output=True, text=True, cwd=folder).stdout.splitlines()]
    equal(sorted(ask("bitnet run --template ")), sorted(["auto"] + run("list-templates").out.split()), "--template <tab>")
    check({"cpu", "cuda", "auto"} <= set(ask("bitnet run --device ")), "--device <tab>")
    check("one.gguf" in ask("bitnet run --model ") and "one.gguf" in ask("bitnet chat "), "models")
    check({"run", "chat"} <= set(ask("bitnet ")), "commands")


def test_scripts_have_valid_syntax():
    for shell, how in (("bash", ["bash", "-n"]), ("zsh", ["zsh", "-n"]), ("fish", ["fish", "-n"])):
        if not shutil.which(shell):
            print(f"  {shell} is not installed: its script was not checked")
            continue
        path = write("completion." + shell, run("completions", shell).raw)
        p = subprocess.run(how + [path], capture_output=True, text=True)
        equal((p.returncode, p.stderr), (0, ""), f"{shell} -n")


def test_unknown_names():
    fails(2, "run", "--temprature", "1", says="unknown option --temprature; did you mean --temperature")
    fails(2, "run", "--top_kk=1", says="did you mean --top-k")
    fails(2, "run", "--no-bso", says="did you mean --no-bos")
    fails(2, "run", "--zzzzzzzz", says="unknown option --zzzzzzzz .see bitnet help run")
    fails(2, "run", "-Z", says="unknown option -Z")
    fails(2, "run", "--" + "x" * 500, says="unknown option --x+")
    fails(2, "tokenise", "x", says="unknown command 'tokenise'; did you mean tokenize")
    fails(2, "frobnicate", says="unknown command 'frobnicate' .see bitnet help")
    fails(2, "score", "--stop", "x", says="score has no option --stop .see bitnet help score")
    fails(2, "serve", "--warmup", says="serve has no option --warmup")  # it always does
    fails(2, "help", "rnu", says="did you mean run")
    fails(2, "chat", "hello", says="unexpected argument 'hello'")
    fails(2, "completions", says="completions needs bash|zsh|fish")


def test_bad_numbers():
    for option, bad, says in (
            ("temperature", "abc", "0 to 100"), ("temperature", "-0.1", "0 to 100"), ("temperature", "nan", "0 to 100"),
            ("temperature", "inf", "0 to 100"), ("temperature", "0x1", "0 to 100"), ("temperature", "", "0 to 100"),
            ("temperature", "0.7 ", "0 to 100"), ("temperature", "1e999", "0 to 100"), ("top-p", "1.01", "0 to 1"),
            ("top-k", "1.5", "0 to 1000000"), ("top-k", "-1", "0 to 1000000"), ("threads", "1025", "0 to 1024"),
            ("threads", "99999999999999999999", "0 to 1024"), ("ctx", " 5", "0 to 1048576"), ("batch", "0", "1 to 65536"),
            ("max-tokens", "ten", "-1 to 1000000000"), ("max-tokens", "-2", "-1 to 1000000000"), ("stop-id", "-1", "0 to 2147483647"),
            ("seed", "-2", "not a seed"), ("seed", "18446744073709551616", "not a seed"), ("seed", "1x", "not a seed")):
        r = fails(2, "run", f"--{option}={bad}", "-p", "x", says=re.escape(says))
        check(f"--{option}: '{bad}'" in r.err, f"--{option}={bad}: the message names neither: {r.err}")
    fails(2, "run", "--kv", "f8", says=r"--kv: 'f8' is not one of f16\|f32\|int8")
    fails(2, "convert", "--type", "i2s", "a", "b", says="did you mean i2_s")


def test_missing_and_extra_values():
    fails(2, "run", "--temperature", says="--temperature needs a value .X.")
    fails(2, "run", "-m", says="-m needs a value .FILE.")
    fails(2, "run", "--model", "--json", says="not the option --json; .* write --model=--json")
    fails(2, "run", "--json=1", says="--json takes no value")
    fails(2, "run", "--no-bos=1", says="--no-bos takes no value")
    fails(2, "run", "--model", "", says="--model: the path is empty")
    fails(2, "run", "--stop", "", says="--stop: the text is empty")


def test_refused_options():
    for _, _, name, on, aliases, reason in (r for r in rows() if r[0] == "REFUSED"):
        command = "run" if on == ["*"] else {k: n for k, n, _ in commands()}[on[0]]
        for word in [dashes(w) for w in [name] + aliases]:
            r = fails(2, command, word, "x", says=f"{word} is refused: ")
            check(reason in r.err, f"{word}: the reason is not told: {r.err}")


def test_environment():
    m = model("nano")
    base = ("run", "-p", "Once", "-n", "3", "--json")
    for variable, bad in (("BITNET_SEED", "x"), ("BITNET_NUM_THREADS", "many"), ("BITNET_CPU_THREADS", "-3"),
                          ("BITNET_TEMPERATURE", "hot"), ("BITNET_TOP_K", "1.5"), ("BITNET_TOP_P", "2"),
                          ("BITNET_MAX_NEW_TOKENS", "-2"), ("BITNET_LOG", "loud"), ("BITNET_BATCH_SIZE", "0"),
                          ("BITNET_DETERMINISTIC", "perhaps"), ("BITNET_KV", "f8")):
        fails(2, "run", "-p", "Once", "-m", m, env={variable: bad}, says=f"{variable}: '{re.escape(bad)}'")
    fails(2, *base, "-m", m, env={"BITNET_CPU": "mmx"}, says="mmx")
    fails(2, *base, "-m", m, env={"BITNET_DEVICE": "toaster"}, says='BITNET_DEVICE: "toaster" is not a device')
    fails(11, *base, "-m", m, env={"BITNET_DEVICE": "vulkan:0"}, says="vulkan: Vulkan is not supported by this version")
    equal(expect(0, *base, env={"BITNET_GGUF": m, "BITNET_SEED": "7"}).json()["seed"], 7, "BITNET_SEED")
    equal(expect(0, *base, env={"BITNET_MODEL_PATH": m}).json()["model"]["path"], m, "BITNET_MODEL_PATH")
    equal(expect(0, *base, env={"BITNET_GGUF": m, "BITNET_MODEL_PATH": "/nowhere"}).json()["model"]["path"], m, "order")
    equal(expect(0, *base, "--seed", "9", env={"BITNET_GGUF": m, "BITNET_SEED": "7"}).json()["seed"], 9, "option beats env")
    equal(expect(0, *base, "--seed", "9", env={"BITNET_GGUF": m, "BITNET_SEED": ""}).json()["seed"], 9, "empty is unset")
    equal(expect(0, *base, env={"BITNET_GGUF": m, "BITNET_DETERMINISTIC": "1"}).json()["seed"], 42, "deterministic")
    r = expect(0, "run", "-p", "x", "--json", env={"BITNET_GGUF": m, "BITNET_MAX_NEW_TOKENS": "2", "BITNET_TOP_K": "3",
               "BITNET_TOP_P": "0.5", "BITNET_TEMPERATURE": "0.25", "BITNET_NUM_THREADS": "1"}).json()
    equal((r["counts"]["generated"], r["sampling"]["top_k"], r["sampling"]["top_p"], r["sampling"]["temperature"],
           r["threads"]), (2, 3, 0.5, 0.25, 1), "values from the environment")
    expect(0, "version", env={"BITNET_SEED": "x"})  # a variable of another command does not matter


def test_spellings_of_options():
    m = model("nano")
    want = expect(0, "run", "-m", m, "--greedy", "--max-tokens", "6", "--prompt", "Once upon").out
    for spelling in (["-m" + m, "--temperature=0", "-n6", "-pOnce upon"],
                     ["--model=" + m, "--temp", "0", "--max-new-tokens=6", "--prompt=Once upon"],
                     ["--model", m, "--greedy", "--n_predict", "6", "--", "Once", "upon"],
                     ["Once", "--model", m, "--greedy", "--n-predict", "6", "upon"],
                     ["--temperature", "5", "--greedy", "-m", m, "-n", "99", "-n", "6", "Once upon"]):
        equal(expect(0, "run", *spelling).out, want, f"{spelling}")
    equal(expect(0, "--model", m, "--greedy", "-n", "6", "run", "Once upon").out, want, "options before the command")
    equal(expect(0, "generate", "-m", m, "--greedy", "-n", "6", "Once upon").out, want, "generate")
    fails(2, "run", "-m", m, "-p", "a", "b", says="the text is given twice")


if __name__ == "__main__":
    main(globals())
