"""test_json_memory.py - JSON of a checkpoint made of nothing but small values: a tree of it would be a hundred times its text.
Every case is converted or refused within 64 MiB and four times its input, and a second of CPU."""
import os
import resource
import shutil
import struct
import subprocess
import sys
import tempfile

import memory

MANY = b"{}," * (4 << 20)  # 12 MiB
DRIVER = os.path.join(memory.BUILD, "tests", "convert_driver")


def edit(path, old, new):
    with open(path, "rb") as f:
        data = f.read()
    assert old in data, (path, old)
    with open(path, "wb") as f:
        f.write(data.replace(old, new, 1))


def edit_header(path, old, new):
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        header, data = f.read(n), f.read()
    assert old in header, (header[:200], old)
    header = header.replace(old, new, 1)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header + data)


def index(path):
    names = b",".join(b'"t%d":"x.safetensors"' % i for i in range(300000))
    os.rename(path + "/model.safetensors", path + "/x.safetensors")
    with open(path + "/model.safetensors.index.json", "wb") as f:
        f.write(b'{"weight_map":{' + names + b"}}")


# what is done to a good checkpoint, and what the driver must say (None: it is converted)
CASES = [
    ("a part nobody reads", lambda d: edit(d + "/tokenizer.json", b"{", b'{"x":[' + MANY + b"0],"), None),
    ("normalizer", lambda d: edit(d + "/tokenizer.json", b'"normalizer": null', b'"normalizer":[' + MANY + b"0]"),
     "key normalizer: has 12582915 bytes and 4194305 values; at most 1048576 and 16384 are read"),
    ("merges", lambda d: edit(d + "/tokenizer.json", b'"merges": [', b'"merges":[' + MANY), "merge 0 is neither"),
    ("added tokens", lambda d: edit(d + "/tokenizer.json", b'"added_tokens": [', b'"added_tokens":[' + MANY), "content: is missing"),
    ("tokenizer_config.json", lambda d: edit(d + "/tokenizer_config.json", b"{", b'{"x":[' + MANY + b"0],"), "more than 262144 values"),
    ("config.json", lambda d: edit(d + "/config.json", b"{", b'{"x":[' + MANY[:3 << 20] + b"0],"), "more than 262144 values"),
    ("a tensor's entry", lambda d: edit_header(d + "/model.safetensors", b'"dtype"', b'"x":[' + MANY + b'0],"dtype"'), None),
    ("metadata", lambda d: edit_header(d + "/model.safetensors", b"{", b'{"__metadata__":{' + b",".join(b'"%x":""' % i for i in range(70000)) + b"},"),
     "more than 65536 members"),
    ("index", index, "more than 262144 values"),
]


def limits():
    resource.setrlimit(resource.RLIMIT_CPU, (10, 10))


def run(made, name, change, says):
    change(made)
    n_input = sum(os.path.getsize(os.path.join(made, f)) for f in os.listdir(made))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([DRIVER, made, made + ".gguf", "--rss"], capture_output=True, text=True, check=False, preexec_fn=limits)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    peak, most = int(done.stdout or 0) << 10, (64 << 20) + 4 * n_input
    print("%s: %.1f MiB in, peak %.1f of %.1f MiB, %.2f s: %s" % (name, n_input / 2**20, peak / 2**20, most / 2**20, cpu,
                                                                 done.stderr.strip()[-120:] or "converted"))
    if (done.returncode == 0) != (says is None) or (says or "") not in done.stderr:
        sys.exit("%s: exit %d, %s" % (name, done.returncode, done.stderr))
    if peak > most or cpu > 1 or peak == 0:
        sys.exit("%s: %d bytes and %.2f s are too much" % (name, peak, cpu))


def main():
    if not os.path.exists(DRIVER):
        memory.skip("convert_driver is not built")
    if memory.sanitized():
        memory.skip("a sanitizer's shadow memory is no measure")
    with tempfile.TemporaryDirectory(dir=memory.BUILD) as folder:
        good = os.path.join(folder, "good")
        subprocess.run([sys.executable, os.path.join(memory.SOURCE, "tools", "make_hf_model"), good, "--layers", "1", "--width", "256",
                        "--ffn", "512", "--heads", "4", "--kv-heads", "2", "--vocab", "512"], check=True, stdout=subprocess.DEVNULL)
        for i, (name, change, says) in enumerate(CASES):
            made = os.path.join(folder, "made%d" % i)
            shutil.copytree(good, made)
            run(made, name, change, says)
            shutil.rmtree(made)


main()
