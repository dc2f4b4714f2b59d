"""test_tokenizers.py - well-known vocabularies written as tokenizer.json, converted, and asked for the ids of their
published test texts: llama-3 and gpt-2 (byte-level), llama-2 (SentencePiece form, whose scores come from merge ranks)."""
import importlib.util
import json
import os
import subprocess
import sys
import tempfile

SOURCE = os.environ.get("BITNET_SOURCE") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
SHARED = os.environ.get("BITNET_SHARED") or os.path.join(SOURCE, "..", "shared")
VENV = os.environ.get("BITNET_VENV") or os.path.join(SOURCE, "build", "venv")
PYTHON = os.environ.get("BITNET_PYTHON") or os.path.join(VENV, "bin", "python")
BITNET = os.environ.get("BITNET") or os.path.join(SOURCE, "build", "release", "bitnet")


def skip(why):
    print("skipped:", why)
    sys.exit(77)


if importlib.util.find_spec("numpy") is None:
    if not os.path.exists(PYTHON) or os.environ.get("BITNET_REEXEC"):
        skip("the Python package numpy is not there (tools/setup fetches it)")
    os.environ["BITNET_REEXEC"] = "1"
    os.execv(PYTHON, [PYTHON] + sys.argv)

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import i2s_reader  # noqa: E402

MARK = "\u2581"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_level(keys, splitter):
    tokens = [t.decode() for t in keys["tokenizer.ggml.tokens"]]
    types = keys["tokenizer.ggml.token_type"]
    added = [{"id": i, "content": t, "special": True} for i, t in enumerate(tokens) if types[i] == 3]
    steps = [{"type": "ByteLevel", "add_prefix_space": False, "use_regex": splitter is None}]
    if splitter:
        steps.insert(0, {"type": "Split", "pattern": {"Regex": splitter}, "behavior": "Isolated", "invert": False})
    return {"added_tokens": added, "normalizer": None, "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
            "model": {"type": "BPE", "ignore_merges": splitter is not None, "byte_fallback": False,
                      "vocab": {t: i for i, t in enumerate(tokens) if types[i] != 3},
                      "merges": [m.decode() for m in keys["tokenizer.ggml.merges"]]}}


def sentencepiece(keys):
    """Merges as the fast tokenizers derive them: every split of a piece into two pieces, best piece first."""
    tokens = [t.decode() for t in keys["tokenizer.ggml.tokens"]]
    types, scores = keys["tokenizer.ggml.token_type"], keys["tokenizer.ggml.scores"]
    vocab = {t: i for i, t in enumerate(tokens)}
    merges = []
    for i, t in enumerate(tokens):
        if types[i] == 1:
            merges += [(-scores[i], vocab[t[:k]], vocab[t[k:]], [t[:k], t[k:]]) for k in range(1, len(t))
                       if t[:k] in vocab and t[k:] in vocab]
    added = [{"id": i, "content": t, "special": True} for i, t in enumerate(tokens) if types[i] in (2, 3)]
    return {"added_tokens": added, "pre_tokenizer": None,
            "normalizer": {"type": "Sequence", "normalizers": [
                {"type": "Prepend", "prepend": MARK}, {"type": "Replace", "pattern": {"String": " "}, "content": MARK}]},
            "model": {"type": "BPE", "unk_token": "<unk>", "byte_fallback": True, "vocab": vocab,
                      "merges": [m[3] for m in sorted(merges, key=lambda m: m[:3])]}}


def convert(folder, document, n_vocab):
    """A model as small as can be around the vocabulary."""
    made, out = os.path.join(folder, "model"), os.path.join(folder, "out.gguf")
    subprocess.run([sys.executable, os.path.join(SOURCE, "tools", "make_hf_model"), made, "--layers", "1", "--width", "128",
                    "--ffn", "128", "--heads", "2", "--kv-heads", "1", "--vocab", str(n_vocab)], check=True)
    with open(os.path.join(made, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump(document, f)
    with open(os.path.join(made, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        f.write("{}")
    done = subprocess.run([BITNET, "convert", made, out], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit("conversion failed: " + done.stderr)
    return out


def ids(model, text):
    done = subprocess.run([BITNET, "tokenize", "--model", model, "--no-bos", "--no-special", "--json", "--file", "-"],
                          input=text.encode(), capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit("tokenize failed: " + done.stderr.decode())
    return json.loads(done.stdout)["ids"]


def compare(name, vocab_file, document_of):
    base = os.path.join(SHARED, "vocab", "ggml-vocab-%s.gguf" % name)
    keys = i2s_reader.File(os.path.join(SHARED, "vocab", vocab_file)).keys
    with open(base + ".inp", encoding="utf-8", newline="") as f:
        texts = f.read().split("\n__ggml_vocab_test__\n")[:-1]
    with open(base + ".out", encoding="utf-8") as f:
        want = [[int(x) for x in line.split()] for line in f.read().split("\n")[:len(texts)]]
    n_bad = 0
    with tempfile.TemporaryDirectory() as folder:
        model = convert(folder, document_of(keys), len(keys["tokenizer.ggml.tokens"]))
        for text, expected in zip(texts, want):
            found = ids(model, text)
            if found != expected:
                n_bad += 1
                print("FAILED: %s: %r: %s, %s was expected" % (name, text, found, expected))
    print("%s: %d texts, %d differ" % (name, len(texts), n_bad))
    return n_bad == 0 and len(texts) == 46


def main():
    if not os.path.exists(BITNET):
        skip("the command is not built")
    if not os.path.isdir(os.path.join(SHARED, "vocab")):
        skip("no reference data at %s (set BITNET_SHARED)" % SHARED)
    rows = [("gpt-2", "ggml-vocab-gpt-2.gguf", lambda k: byte_level(k, None)),
            ("llama-bpe", "llama-bpe-rebuilt.gguf", lambda k: byte_level(k, LLAMA3)),
            ("llama-spm", "ggml-vocab-llama-spm.gguf", sentencepiece)]
    sys.exit(0 if all([compare(*row) for row in rows]) else 1)


if __name__ == "__main__":
    main()
