#!/usr/bin/env python3
"""What is kept between runs: it is told of once, it is used only while it is surely of this model and this user's alone, it keeps
within its room, and `bitnet cache` shows and removes it."""
import hashlib
import json
import os
import shutil
import subprocess
import time

from harness import Skip, check, copy_of_model, equal, expect, fails, main, temp, write


def packed(folder, suffix=".pack"):
    return sorted(os.path.join(folder, f) for f in os.listdir(folder) if f.endswith(suffix)) if os.path.isdir(folder) else []


def settle():
    time.sleep(0.15)  # a file that was changed a moment ago is not remembered


def generate(path, folder, *more, code=0, **kw):
    return expect(code, "run", "-m", path, "-n", "4", "--greedy", "--cache", folder, "--cache-min", "0", "--device", "cpu", *more,
                  "Once upon", **kw)


def filled(name, which="nano"):
    """A folder with the packed weights of one model, and the model."""
    path, folder = copy_of_model(which, name + ".gguf"), temp(name)
    settle()
    r = generate(path, folder)
    if not packed(folder):
        raise Skip("nothing is packed on this CPU")
    return path, folder, r


def test_first_write_is_told_once():
    path, folder, r = filled("first")
    told = [line for line in r.err.splitlines() if folder in line]
    equal(len(told), 1, f"lines that name the folder in {r.err}")
    check("MB" in told[0] and "bitnet cache clear" in told[0], f"how large, and how to be rid of it: {told[0]}")
    check(folder not in generate(path, folder).err, "the second run says nothing")
    again = copy_of_model("story", "first2.gguf")
    settle()
    check(folder not in generate(again, folder).err, "nor does another model")
    equal(len(packed(folder)), 2, "packs")
    shutil.rmtree(folder)
    check(folder not in generate(path, folder, "--quiet").err, "--quiet is quiet")
    equal(len(packed(folder)), 1, "packs")


def test_files_are_the_users_alone():
    path, folder, _ = filled("mode")
    os.umask(0)
    try:
        generate(path, temp("wide"))
    finally:
        os.umask(0o022)
    for f in (temp("wide"), *packed(temp("wide"))):
        equal(os.stat(f).st_mode & 0o077, 0, f"{f}: rights of others")
    pack = packed(folder)[0]
    os.chmod(pack, 0o664)
    generate(path, folder, says=r"warning: cache: .*\.pack: others may write to it \(mode 0664\): ignored; chmod go-w")
    equal(os.stat(pack).st_mode & 0o777, 0o600, "it was written anew")
    check("warning" not in generate(path, folder).err, "and serves again")


def test_folder_of_others_is_not_used():
    path, folder, _ = filled("shared")
    before = os.stat(packed(folder)[0]).st_mtime_ns
    os.chmod(folder, 0o777)
    r = generate(path, folder, says=r"warning: cache: nothing is kept: .*shared: others may write to it \(mode 0777\)")
    check(f"chmod go-w '{folder}'" in r.err, f"no remedy: {r.err}")
    equal(os.stat(packed(folder)[0]).st_mtime_ns, before, "the pack was used")
    if os.geteuid() == 0:
        os.chmod(folder, 0o755)
        os.chown(folder, 12345, -1)
        generate(path, folder, says=r"shared: belongs to user 12345 and you are user 0: ignored; choose a folder of your own")
        os.chown(folder, 0, -1)
        os.chown(packed(folder)[0], 12345, -1)
        generate(path, folder, says=r"\.pack: belongs to user 12345 and you are user 0: ignored; remove it")


def test_truncated_pack_is_named_and_made_again():
    path, folder, _ = filled("cut")
    pack, size = packed(folder)[0], os.path.getsize(packed(folder)[0])
    want = generate(path, folder).out
    for left in (size - 1, size // 2, 4096, 100, 24):
        os.truncate(pack, left)
        r = generate(path, folder, says=rf"warning: cache: .*\.pack: truncated: {left} of {size} bytes")
        equal((r.out, os.path.getsize(pack)), (want, size), f"text and pack after a cut at {left}")
    os.truncate(pack, 3)
    generate(path, folder, says=r"truncated: 3 of at least 24 bytes")
    check("warning" not in generate(path, folder).err, "whole again")


def test_unfinished_files_are_swept_and_counted():
    path, folder, _ = filled("swept")
    alive = os.path.join(folder, "0123456789abcdef.pack.living.tmp")
    for name in ("0123456789abcdef.pack.abcdef.tmp", "0123456789abcdef.sha256.ghijkl.tmp"):
        write(os.path.join(folder, name), b"x" * 500000)
    write(os.path.join(folder, "mine.tmp"), b"not ours")
    write(alive, b"half")
    with subprocess.Popen(["flock", alive, "cat"], stdin=subprocess.PIPE) as holder:
        time.sleep(0.2)
        generate(path, folder, "-v", says=r"removed 2 unfinished files of processes that are gone \(1\.0 MB\)")
        left = sorted(f for f in os.listdir(folder) if f.endswith(".tmp"))
        holder.stdin.close()
        holder.wait()
    equal(left, [os.path.basename(alive), "mine.tmp"], "what is left")
    generate(path, folder, "-v", says=r"removed 1 unfinished file ")


def test_size_is_obeyed():
    big, folder, _ = filled("room", "story")
    size = os.path.getsize(packed(folder)[0])
    check(size > 3 << 20, "the packed story model is too small for this test")
    first = packed(folder)[0]
    os.utime(first, (1000, 1000))
    other = copy_of_model("story", "room2.gguf")
    settle()
    limit = size * 3 // 2 >> 20
    generate(other, folder, "--cache-size", str(limit))
    check(not os.path.exists(first), "the one that was not used for longest goes")
    equal(len(packed(folder)), 1, "packs")
    check(sum(os.path.getsize(p) for p in packed(folder)) <= limit << 20, "the folder's size")
    write(os.path.join(folder, "0.sha256"), b"x" * (limit << 20))  # counts too, and is older
    os.utime(os.path.join(folder, "0.sha256"), (1000, 1000))
    generate(other, folder, "--cache-size", str(limit))
    check(not os.path.exists(os.path.join(folder, "0.sha256")), "all files count")
    equal(len(packed(folder)), 1, "packs")
    generate(big, folder, "-v", "--cache-size", "1", says="packed weights are not kept: they take .* MB, the cache has room for 1")
    equal(packed(folder), [], "nothing that is larger than the room")


def digest_of(path, folder):
    out = temp("receipt.json")
    generate(path, folder, "--receipt", out)
    with open(out, encoding="utf-8") as f:
        return json.load(f)["model_info"]["sha256"]


def sha256(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def test_digest_is_never_of_another_file():
    """A model is changed behind the cache: equal size and time, in place or by another file of the same name."""
    path, folder, _ = filled("stale")
    equal(digest_of(path, folder), sha256(path), "digest")
    check(packed(folder, ".sha256"), "it was not remembered")
    times, text = os.stat(path), generate(path, folder).out
    with open(path, "rb") as f:
        whole = f.read()
    for name, at in (("at the end", len(whole) - 40), ("in the middle", len(whole) * 2 // 3)):
        changed = bytearray(whole)
        for i in range(at, at + 32):
            changed[i] ^= 0x11
        with open(path, "r+b") as f:
            f.write(changed)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        settle()
        equal(digest_of(path, folder), sha256(path), f"digest after a change {name}")
        plain = generate(path, temp("none"), "--cache", "off").out
        equal(generate(path, folder).out, plain, f"text after a change {name}")
    with open(path + ".new", "wb") as f:
        f.write(whole)
    os.utime(path + ".new", ns=(times.st_atime_ns, times.st_mtime_ns))
    os.replace(path + ".new", path)
    settle()
    equal((digest_of(path, folder), generate(path, folder).out), (hashlib.sha256(whole).hexdigest(), text), "the first bytes again")


def test_side_file_that_others_may_write():
    path, folder, _ = filled("side")
    digest_of(path, folder)
    side = packed(folder, ".sha256")[0]
    with open(side, "r+b") as f:
        f.write(b"a" * 64)
    os.chmod(side, 0o666)
    equal(digest_of(path, folder), sha256(path), "digest")


def test_list_clear_path():
    path, folder, _ = filled("shown")
    digest_of(path, folder)
    write(os.path.join(folder, "notes.txt"), b"mine")
    sizes = [os.path.getsize(p) for p in packed(folder) + packed(folder, ".sha256")]
    equal(expect(0, "cache", "path", "--cache", folder).out, folder + "\n", "path")
    home = {"XDG_CACHE_HOME": temp("xdg")}
    equal(expect(0, "cache", "path", env=home).out, temp("xdg") + "/bitnet\n", "path by XDG_CACHE_HOME")
    equal(expect(0, "cache", "path", "--json", env={"BITNET_CACHE": folder}).json(), {"folder": folder}, "path as JSON")
    lines = expect(0, "cache", "--cache", folder).out.splitlines()
    equal(len(lines), 3, "lines")
    check(any(path in line and "packed weights" in line for line in lines), f"the model's name: {lines}")
    check(lines[-1].startswith("2 files, ") and lines[-1].endswith(folder), lines[-1])
    j = expect(0, "cache", "list", "--json", "--cache", folder).json()
    equal((j["folder"], j["count"], j["bytes"]), (folder, 2, sum(sizes)), "list as JSON")
    equal({f["kind"]: f["model"] for f in j["files"]}, {"packed weights": path, "checksum": None}, "kinds and models")
    check(all(abs(f["used"] - time.time()) < 600 for f in j["files"]), "times of use")
    equal(expect(0, "cache", "clear", "--json", "--cache", folder).json(),
          {"folder": folder, "removed": 2, "bytes": sum(sizes)}, "clear as JSON")
    equal(os.listdir(folder), ["notes.txt"], "only our files are removed")
    equal(expect(0, "cache", "clear", "--cache", folder).out, f"removed 0 files, 0.0 MB, from {folder}\n", "clear again")
    equal(expect(0, "cache", "list", "--cache", temp("nowhere")).out, f"0 files, 0.0 MB, in {temp('nowhere')}\n", "no folder")


def test_cache_misuse():
    fails(2, "cache", "purge", says="'purge' is not one of list, clear, path")
    fails(2, "cache", "list", "list", says="argument")
    fails(1, "cache", "path", "--cache", "off", says="nothing is kept")
    equal(expect(0, "cache", "clear", "--cache", "off").out, "nothing is kept: --cache is off\n", "off")
    equal(expect(0, "cache", "list", "--json", "--cache", "off").json(), {"folder": None, "files": [], "count": 0, "bytes": 0}, "off")
    fails(5, "cache", "list", "--cache", write("a-file", b"x"), says="a-file: cannot be listed: Not a directory")


def test_escapes_in_names():
    path, folder, _ = filled("esc\x1b[31m")
    out = expect(0, "cache", "list", "--cache", folder).raw
    check(b"\x1b" not in out.rsplit(b"\n", 2)[0], "the name of a model reaches the terminal raw")
    check(os.path.exists(path), "model")


def test_help_and_completion():
    check("list shows each" in expect(0, "help", "cache").out, "help")
    check("bitnet cache clear" in expect(0, "man").out.replace("\\", ""), "man page")
    for shell in ("bash", "zsh", "fish"):
        check("list clear path" in expect(0, "completions", shell).out, f"completion of {shell}")


if __name__ == "__main__":
    main(globals())
