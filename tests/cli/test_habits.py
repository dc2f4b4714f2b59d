#!/usr/bin/env python3
"""What people type who know llama.cpp, ollama and llamafile: the model as the first argument, no command, their options and
commands; files that are no models; outputs that cannot be written."""
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import time

from harness import BITNET, SOURCE, check, clean_env, equal, expect, fails, main, model, shared, temp, write

GREEDY = ("--greedy", "-n", "6")


def nano_text():
    return expect(0, "run", "-m", model("nano"), *GREEDY, "-p", "Once upon").out


def on_terminal(*args, keys=b"/exit\n", seconds=60):
    """What the command shows on a terminal while `keys` are typed, and its exit code."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(BITNET, [BITNET, *args], {**clean_env(), "TERM": "dumb", "XDG_STATE_HOME": temp("state")})
    shown, end, typed = b"", time.monotonic() + seconds, False
    while select.select([fd], [], [], max(0, end - time.monotonic()))[0]:
        try:
            part = os.read(fd, 4096)
        except OSError:
            break
        if not part:
            break
        shown += part
        if not typed and b"> " in shown:
            os.write(fd, keys)
            typed = True
    os.close(fd)
    return shown.decode("utf-8", "replace"), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


# ---- the model as the first argument ----

def test_model_first():
    m, want = model("nano"), nano_text()
    equal(expect(0, "run", m, *GREEDY, "Once upon").out, want, "run FILE.gguf PROMPT")
    equal(expect(0, "run", *GREEDY, m, "Once", "upon").out, want, "options first, several words")
    equal(expect(0, "run", m, *GREEDY, "-p", "Once upon").out, want, "run FILE.gguf -p PROMPT")
    equal(expect(0, "run", m, *GREEDY, stdin=b"Once upon\n").out, want, "run FILE.gguf < PROMPT")
    equal(expect(0, "run", m, *GREEDY, "Once upon", env={"BITNET_GGUF": "/nowhere.gguf"}).out, want, "the argument beats the environment")
    check("assistant> " in expect(0, "chat", m, "-n", "4", stdin=b"Hi\n").out, "chat FILE.gguf")
    check("tokens\n" in expect(0, "tokenize", m, "Hello there").out, "tokenize FILE.gguf TEXT")
    text = write("texts.txt", "Once upon a time\n")
    equal(expect(0, "score", m, text, "--json").json()["ppl"], expect(0, "score", "-m", m, "-f", text, "--json").json()["ppl"], "score")
    equal(expect(0, "score", m, "--json", stdin=b"Once upon a time\n").json()["tokens"], expect(0, "score", m, text, "--json").json()["tokens"],
          "score FILE.gguf < TEXTS")
    equal(expect(0, "bench", m, "--tests", "tg2", "-r", "1", "--json").json()["model"], "nano.gguf", "bench FILE.gguf")
    check("nano.gguf" in expect(0, "inspect", m, "--no-stats").out, "inspect FILE.gguf")


def test_model_by_name_or_content():
    want = nano_text()
    upper, bare = temp("NANO.GGUF"), temp("a-model")
    shutil.copyfile(model("nano"), upper)
    shutil.copyfile(model("nano"), bare)
    equal(expect(0, "run", upper, *GREEDY, "Once upon").out, want, "a name in capitals")
    equal(expect(0, "run", bare, *GREEDY, "Once upon").out, want, "a GGUF file by its content")
    equal(expect(0, bare, *GREEDY, "Once upon").out, want, "and without a command")
    note = write("once", "some text")
    want = expect(0, "run", "-m", bare, *GREEDY, "-p", note + " upon").out
    equal(expect(0, "run", "-m", bare, *GREEDY, note, "upon").out, want, "another file's name is text")


def test_missing_model_is_an_error():
    for how in (("run", "gone.gguf", "hello"), ("chat", "gone.gguf"), ("gone.gguf",), ("GONE.GGUF", "-p", "hello"), ("run", "gone.gguf"),
                ("tokenize", "gone.gguf", "hello"), ("score", "gone.gguf"), ("bench", "gone.gguf"), ("inspect", "gone.gguf"),
                ("tune", "gone.gguf"), ("validate", "gone.gguf"), ("-m", "gone.gguf", "-p", "hello")):
        fails(5, *how, says="(?i)gone.gguf: cannot open: No such file", stdin=b"some text\n")
    fails(5, "run", "gone.gguf", "hello", says="if it is meant as text put -- before it")


def test_text_by_force():
    m = model("nano")
    want = expect(0, "run", "-m", m, *GREEDY, "-p", "gone.gguf").out
    equal(expect(0, "run", "-m", m, *GREEDY, "--", "gone.gguf").out, want, "--")
    equal(expect(0, "run", m, *GREEDY, "--", "gone.gguf").out, want, "a model, then --")
    equal(expect(0, "tokenize", "-m", m, "--json", "--", "gone.gguf").json()["text"], "gone.gguf", "tokenize --")


def test_two_models():
    m = model("nano")
    r = fails(2, "run", m, "-m", "other.gguf", "hello", says="two models are given")
    check(m in r.err and "--model other.gguf" in r.err, f"both are named: {r.err}")
    fails(2, "chat", m, "--model", m, says="two models are given")
    fails(2, "inspect", m, "-m", m, says="two models are given")
    fails(2, m, "-m", m, "-p", "x", says="two models are given")


# ---- without a command ----

def test_no_command_runs():
    m, want = model("nano"), nano_text()
    for how in (("-m", m, "-p", "Once upon"), (m, "-p", "Once upon"), (m, "Once upon"), (m, "Once", "upon"), ("-m", m, "Once upon"),
                ("--model=" + m, "--prompt=Once upon"), ("-m" + m, "-pOnce upon"), ("-m", m, "--", "Once", "upon"),
                ("-m", m, "-f", write("p.txt", "Once upon\n")),
                ("-dev", "cpu", "-ngl", "0", "-fa", "on", "-ub", "64", "-m", m, "-p", "Once upon")):
        equal(expect(0, *how, *([] if "--" in how else GREEDY), **({"env": {"BITNET_TEMPERATURE": "0", "BITNET_MAX_NEW_TOKENS": "6"}})).out,
              want, f"{how}")


def test_no_command_answers_standard_input():
    m = model("nano")
    want = expect(0, "run", "-m", m, "--template", "auto", "--json", *GREEDY, "-p", "Tell me\na story.").json()
    for how in ((m,), ("-m", m)):
        got = expect(0, *how, "--json", *GREEDY, stdin=b"Tell me\na story.\n").json()
        equal((got["prompt"], got["ids"]), (want["prompt"], want["ids"]), f"{how}: one message, with the template of the file")
    raw = expect(0, m, "--template", "raw", "--json", *GREEDY, stdin=b"Once upon\n").json()
    equal(raw["prompt"], "Once upon", "--template raw continues")
    fails(2, m, says="standard input is empty: nothing to answer", stdin=b"")
    plain = shared("third-party", "stories260K.bin")  # a model whose file names no template
    out = temp("plain.gguf")
    expect(0, "convert", plain, out, "--tokenizer", shared("third-party", "tok512.bin"), "--type", "f32", "--embedding", "f32")
    got = expect(0, out, "--json", *GREEDY, "--kv", "f32", stdin=b"Once upon\n")
    equal(got.json()["prompt"], "Once upon", "without a template the text is continued")
    equal(got.err, "", "and nothing is said about it")


def test_no_command_chats_on_a_terminal():
    m = model("nano")
    for how in ((m,), ("-m", m), ("-m", m, "-cnv"), (m, "-i", "--color")):
        shown, code = on_terminal(*how)
        check("you> " in shown and "/help" in shown and code == 0, f"{how}: exit {code}, {shown[:300]}")


def test_sentences_and_other_words():
    fails(2, "Once upon a time", says="is no command; to continue a text: bitnet run \"Once upon a time\"")
    fails(2, "-m", model("nano"), "chta", says="unknown command 'chta'; did you mean chat")
    fails(2, "chat", "hello", says="unexpected argument 'hello'")


# ---- options of other programs ----

def test_numbers_that_mean_no_limit():
    m = model("nano")
    r = expect(0, "run", m, "-n", "-1", "-c", "32", "--ignore-eos", "--json", "-p", "Once").json()
    check(r["counts"]["total"] >= 32, f"-n -1: {r['finish_reason']}, {r['counts']}")
    seeds = {expect(0, "run", m, "-s", "-1", "-n", "2", "--json", "-p", "Once").json()["seed"] for _ in range(3)}
    check(len(seeds) == 3, f"-s -1 gave {seeds}")
    expect(0, "run", m, "-t", "-1", "-n", "2", "-p", "Once")


def test_gpu_layers():
    m = model("nano")
    for spelling in ("-ngl", "--n-gpu-layers", "--gpu-layers", "--n_gpu_layers"):
        for n in ("0", "99", "-1", "all"):
            r = expect(0, "run", m, spelling, n, "-n", "2", "--json", "-p", "Once", env={"BITNET_DEVICE": "vulkan"})
            equal(len(r.json()["ids"]), 2, f"{spelling} {n}")
    expect(0, "run", m, "-ngl=0", "-n", "2", "-p", "Once")
    fails(2, "run", m, "-ngl", "many", "-p", "x", says="-ngl: 'many' is not a number of layers: 0 is --device cpu")
    fails(11, "run", m, "-ngl", "0", "--device", "vulkan", "-p", "x", says="vulkan")


def test_ignored_options():
    """They are told in one line each, and the work goes on."""
    m, want = model("nano"), nano_text()
    for habit, says in ((["--color"], "text is not coloured"), (["--mlock"], "not locked"), (["--no-mmap"], "--no-pack"),
                        (["-fa"], "always used"), (["-fa", "on"], "always used"), (["--flash-attn", "auto"], "always used"), (["-fa", "1"], "always used"), (["-mmp", "0"], "--no-pack"),
                        (["-ub", "512"], "--batch"), (["--ubatch-size=512"], "--batch"), (["-tb", "4"], "--threads"),
                        (["--jinja"], "--template"), (["--verbose-prompt"], "--dump-ids"), (["--log-disable"], "--quiet"),
                        (["--no-perf"], "not needed"), (["--keep", "4"], "oldest turns"), (["--numa", "distribute"], "--pin"), (["--simple-io"], "not needed")):
        r = expect(0, "run", m, *habit, *GREEDY, "Once upon")
        equal(r.out, want, f"{habit}")
        lines = [line for line in r.err.splitlines() if "is ignored: " in line]
        equal(len(lines), 1, f"{habit}: lines")
        check(lines[0].startswith(f"bitnet: warning: {habit[0].split('=')[0]} is ignored: ") and says in lines[0], lines[0])
    quiet = expect(0, "run", m, "--color", "--mlock", "-fa", "--quiet", *GREEDY, "Once upon")
    equal((quiet.out, quiet.err), (want, ""), "--quiet")
    equal(expect(0, "run", m, "-no-cnv", "--no-display-prompt", *GREEDY, "Once upon", "--quiet").err, "", "what run does anyway")
    equal(expect(0, "run", m, "--display-prompt", *GREEDY, "Once upon").out, "Once upon" + want, "--display-prompt")


def test_refused_options_name_the_equivalent():
    m = model("nano")
    for habit, says in ((["-cnv"], "use bitnet chat"), (["-i"], "use bitnet chat"), (["--interactive-first"], "use bitnet chat"),
                        (["-hf", "org/repo"], "never uses the network; .* bitnet run FILE.gguf"), (["--hf-repo", "x"], "never uses the network"),
                        (["-sm", "row"], "--split tensor"), (["-ctk", "q8_0"], "--kv f16"),
                        (["--mirostat", "2"], "--temperature"), (["--lora", "x"], "one GGUF file"), (["--port", "8080"], "bitnet serve listens"), (["--list-devices"], "bitnet devices")):
        r = fails(2, "run", m, *habit, "-p", "x", says=says)
        equal(len(r.err.splitlines()), 1, f"{habit}: lines")
        check(f"{habit[0]} is refused: " in r.err, r.err)
    fails(2, "-hf", "org/repo", says="-hf is refused: .*never uses the network")
    fails(2, "-hf", "org/repo", "-p", "hello", says="never uses the network")
    fails(2, "chat", m, "-p", "hello", says="-p is refused: .*--system TEXT .*bitnet run --template auto")
    fails(2, "chat", m, "-st", says="bitnet run --template auto")
    fails(2, "bench", m, "-p", "512", says="--tests pp512,tg128")


def test_one_dash_is_no_bundle():
    m = model("nano")
    fails(2, "run", m, "-temp", "0.5", "x", says="unknown option -temp; did you mean --temp[?]")
    fails(2, "run", m, "-prompt", "x", says="did you mean --prompt[?]")
    fails(2, "run", m, "-seed=1", "x", says="did you mean --seed[?]")
    fails(2, "run", m, "-xyz", says="unknown option -xyz")
    r = expect(0, "run", m, "-sys", "Be kind", "--template", "chatml", "-n", "1", "--json", "-p", "Hi").json()
    check("Be kind" in r["prompt"], "-sys")
    equal(expect(0, "run", m, "-n6", "-pOnce upon", "--greedy").out, nano_text(), "a value behind its letter")


def test_same_option_other_name():
    m = model("nano")
    r = expect(0, "run", m, "--temp", "0.5", "--repeat_penalty", "1.1", "--repeat-last-n", "32", "-b", "64", "-c", "64", "--predict", "3",
               "-s", "7", "--json", "-p", "Once").json()
    equal((r["sampling"]["temperature"], r["sampling"]["repetition_penalty"], r["context"], len(r["ids"]), r["seed"]),
          (0.5, 1.1, 64, 3, 7), "llama.cpp's names")
    text = expect(0, "run", m, "--greedy", "-n", "30", "--json", "-p", "Once upon").json()["text"]
    stop = text[10:14]
    equal(expect(0, "run", m, "--greedy", "-n", "30", "-r", stop, "--json", "-p", "Once upon").json()["text"], text[:text.index(stop)], "-r")


def test_prompt_twice():
    r = fails(2, "run", model("nano"), "-p", "first words", "-p", "second words", says="given twice")
    check("'first words'" in r.err and "'second words'" in r.err, f"both are named: {r.err}")
    fails(2, "tokenize", "--text", "a", "--text", "b", says="given twice")


def test_commands_of_other_programs():
    for name, says in (("ls", "bitnet inspect"), ("list", "bitnet inspect"), ("pull", "never uses the network"), ("start", "use bitnet serve"),
                       ("ps", "nothing runs in the background"), ("show", "bitnet inspect FILE.gguf"), ("rm", "models are files"),
                       ("create", "bitnet convert"), ("perplexity", "bitnet score"), ("quantize", "bitnet convert"), ("embed", "/v1/embeddings"),
                       ("completion", "bitnet completions")):
        for how in ((name,), (name, "llama3"), ("help", name)):
            r = fails(2, *how, says=f"there is no command '{name}': .*{says}")
            equal(len(r.err.splitlines()), 1, f"{how}: lines")


# ---- files that are no models ----

def test_files_that_are_no_models():
    good = open(model("nano"), "rb").read()
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4d" * 32 + b"\nsize 1187801280\n"
    for name, data, says in (
            ("lfs.gguf", pointer, r"git-lfs pointer .*\(1187801280 bytes\).*git lfs pull"),
            ("page.gguf", b"\n<!doctype HTML>\n<html><title>Sign in</title></html>", "an HTML page.*link of the file itself"),
            ("json.gguf", b'{"error":"Invalid credentials in Authorization header"}', "JSON text .*Invalid credentials.*download the file again"),
            ("text.gguf", b"Entry not found", "plain text .Entry not found.*download the file again"),
            ("cut.gguf", good[:len(good) // 2], f"incomplete, {len(good) // 2} of {len(good)} bytes are there: download or copy it again"),
            ("head.gguf", good[:2000], "cut or damaged: download or copy it again"),
            ("empty.gguf", b"", "the file is empty; download or copy it again"),
            ("model.safetensors", b"\x10\0\0\0\0\0\0\0" + b'{"a":{"dtype":1}' + bytes(9), "a safetensors file; .*bitnet convert FOLDER OUT.gguf"),
            ("pytorch_model.bin", b"PK\x03\x04" + bytes(40), "a ZIP archive, as PyTorch.*safetensors"),
            ("old.pt", b"\x80\x02}q\x00." + bytes(20), "a Python pickle.*safetensors"),
            ("old.ggml", b"lmgg" + bytes(40), "a GGML file from before GGUF; convert"),
            ("packed.gguf", b"\x1f\x8b\x08\0" + bytes(30), "gzip; unpack it first"),
            ("model-00001-of-00003.gguf", b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 11) + b"split.count" + struct.pack("<IH", 2, 3),
             "one of 3 parts of a model; join them"),
            ("blank.gguf", bytes(5000), "not finished; download the file again")):
        path = write(name, data)
        ways = [("run", path, "-p", "x"), ("run", path, "hello"), ("chat", path), (path,), ("run", "-m", path, "-p", "x")]
        for how in ways + ([] if b"split" in data else [("inspect", path)]):
            r = fails(3, *how, says=says, stdin=b"hello\n")
            check(path in r.err, f"{how}: the file is not named: {r.err}")


def test_folders():
    folder = temp("checkpoint")
    os.makedirs(folder)
    open(os.path.join(folder, "config.json"), "w").close()
    for how in (("run", folder, "hello"), ("run", "-m", folder, "-p", "x"), ("chat", folder), (folder,), ("bench", folder)):
        r = fails(5, *how, says="Hugging Face checkpoint; convert it first: bitnet convert ", stdin=b"hello\n")
        check(f"bitnet convert {folder} OUT.gguf" in r.err, r.err)
    r = fails(5, "run", os.path.dirname(model("nano")), "hello", says="is a directory; name a file in it, such as ")
    check(".gguf" in r.err, r.err)


# ---- outputs are tried first ----

def outputs():
    """Every option that names a file to be written, with a command line it is tried on; the model is never opened."""
    with open(os.path.join(SOURCE, "cli", "options.inc")) as f:
        rows = re.findall(r'^OPTION\((\w+), "([a-z-]+)", [^,]+, OUT, .*?((?:ON|TOP)\(.*)$', f.read(), flags=re.M)
    found = {(command.lower(), name) for _, name, on in rows for command in re.findall(r"(?:ON|TOP)\((\w+)\)", on)}
    check({("run", "output"), ("run", "json-out"), ("run", "receipt"), ("run", "dump-logits"), ("chat", "history"), ("bench", "save"),
           ("bench", "plot"), ("tune", "output"), ("convert", "output"), ("score", "json-out")} <= found, f"the table has only {found}")
    return sorted(found)


def try_output(command, name, path, says, code=5):
    other = ("-i", "no-such-input") if command == "convert" else ("-m", "no-such-model.gguf")
    r = fails(code, command, *other, f"--{name}", path, says=f"--{name}: {re.escape(path)}: cannot write: {says}", stdin=b"text\n")
    check("no-such" not in r.err, f"the input was opened first: {r.err}")


def test_outputs_are_tried_before_work():
    folder = temp("a-folder")
    os.makedirs(folder)
    listed = write("a-file", "x")
    for command, name in outputs():
        try_output(command, name, temp("missing/out"), "there is no folder .*missing")
        try_output(command, name, listed + "/out", ".*a-file is not a folder")
        if (command, name) != ("convert", "output"):  # that says so in its own words
            try_output(command, name, folder, "it is a directory; name a file in it")
        try_output(command, name, temp("x" * 300), ".*too long")
    fails(5, "convert", "no-such-input", temp("missing/out.gguf"), says="missing/out.gguf: cannot write: there is no folder")
    fails(5, "run", "-m", "no-such.gguf", says="--receipt: .*cannot write", *("--receipt", temp("missing/r")), stdin=b"")
    fails(5, "chat", "-m", "no-such.gguf", says="BITNET_HISTORY: .*cannot write", env={"BITNET_HISTORY": temp("missing/h")})
    for word in ("on", "off"):
        fails(5, "chat", "-m", "no-such.gguf", "--history", word, says="no-such.gguf")


def as_nobody():
    os.setgid(65534)
    os.setuid(65534)


def test_outputs_without_permission():
    if os.geteuid() != 0:
        drop = None
    else:
        drop = as_nobody
    closed, kept = temp("closed"), write("kept", "old")
    os.makedirs(closed)
    os.chmod(closed, 0o555)
    os.chmod(kept, 0o444)
    os.chmod(os.path.dirname(kept), 0o777)
    program = shutil.copy(BITNET, temp("bitnet"))
    for path, says in ((os.path.join(closed, "out"), b"no new file can be made in the folder"), (kept, b"Permission denied")):
        p = subprocess.run([program, "run", "-m", "no-such.gguf", "-p", "x", "-o", path], capture_output=True, stdin=subprocess.DEVNULL,
                           env=clean_env(), preexec_fn=drop)
        check(p.returncode == 5 and b"--output: " in p.stderr and says in p.stderr and b"no-such" not in p.stderr, f"{path}: {p.stderr}")


def test_trying_changes_nothing():
    folder = temp("quiet-folder")
    os.makedirs(folder)
    old, new = os.path.join(folder, "old"), os.path.join(folder, "new")
    with open(old, "w") as f:
        f.write("as it was")
    os.utime(old, (1, 1))
    os.utime(folder, (1, 1))
    for path in (old, new):
        fails(5, "run", "-m", "no-such.gguf", "-p", "x", "-o", path, says="no-such.gguf")
    equal((os.listdir(folder), open(old).read(), os.stat(old).st_mtime, os.stat(folder).st_mtime), (["old"], "as it was", 1, 1), "the folder")
    r = expect(0, "run", "-m", model("nano"), "-n", "2", "-p", "x", "-o", new, "--json-out", old)
    check(r.code == 0 and os.path.exists(new) and open(old).read().startswith("{"), "and then they are written")


def test_what_was_private_stays_private():
    path = write("private", "old")
    os.chmod(path, 0o600)
    expect(0, "run", "-m", model("nano"), "-n", "2", "-p", "x", "-o", path)
    equal(os.stat(path).st_mode & 0o777, 0o600, "the mode of a file that is replaced")


def test_two_outputs_in_one_file():
    path = temp("both")
    fails(2, "run", "-m", "no-such.gguf", "-o", path, "--json-out", path, says="--json-out and --output both name .*both", stdin=b"x")
    again = os.path.join(os.path.dirname(path), ".", "both")
    fails(2, "run", "-m", "no-such.gguf", "-o", path, "--json-out", again, says="both name", stdin=b"x")
    expect(0, "run", "-m", model("nano"), "-n", "2", "-p", "x", "-o", "/dev/null", "--json-out", "/dev/null")


def test_batch_takes_its_last_two_words():
    """A folder as IN is the input, not a model: what is wrong with it is said by name."""
    folder, out = temp("folder"), temp("out.jsonl")
    os.makedirs(folder, exist_ok=True)
    for args in ((folder, out), ("-m", model("nano"), folder, out), (model("nano"), folder, out), (folder, out, "-m", model("nano"))):
        fails(2, "batch", *args, says="folder: is no regular file")
    fails(2, "batch", model("nano"), out, says="batch needs IN.jsonl OUT.jsonl")
    check(not os.path.exists(out), "a file of results")
    help_ = " ".join(expect(0, "help", "batch").out.split())
    check("A request that fails has its error there, and the exit status is 0 all the same" in help_, help_)


if __name__ == "__main__":
    main(globals())
