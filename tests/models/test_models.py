#!/usr/bin/env python3
"""The models in models/ are what their card says: made by `bitnet convert` from the training checkpoints, byte for byte,
with an embedding type that costs less than 0.5 % of perplexity against F16."""
import hashlib
import json
import os
import subprocess
import sys
import tempfile

SOURCE, SHARED, BITNET = (os.environ[name] for name in ("BITNET_SOURCE", "BITNET_SHARED", "BITNET"))
QUICK = os.environ.get("BITNET_GOLDEN_QUICK", "") not in ("", "0")
# model, checkpoint, embedding type
ROWS = [("story", "story", "q6_k"), ("nano", "nano", "f16")]


def sha256(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def convert(checkpoint, out, embedding):
    subprocess.run([BITNET, "convert", os.path.join(SHARED, "story-model", checkpoint), out, "--quiet", "--embedding",
                    embedding], check=True)


def perplexity(model, text):
    done = subprocess.run([BITNET, "score", "--model", model, "--file", text, "--json", "--quiet"], check=True,
                          capture_output=True)
    return json.loads(done.stdout)["ppl"]


def test_made_from_checkpoint(model, checkpoint, embedding, work):
    made = os.path.join(work, "made.gguf")
    convert(checkpoint, made, embedding)
    shipped = os.path.join(SOURCE, "models", model + ".gguf")
    assert sha256(made) == sha256(shipped), f"convert gives other bytes than models/{model}.gguf"


def test_perplexity(model, checkpoint, _, work):
    f16 = os.path.join(work, "f16.gguf")
    convert(checkpoint, f16, "f16")
    text = os.path.join(SHARED, "story-model", checkpoint, "golden", "score.txt")
    if QUICK:
        with open(text, encoding="utf-8") as f:
            some = "<|endoftext|>\n".join(f.read().split("<|endoftext|>\n")[:3])
        text = os.path.join(work, "some.txt")
        with open(text, "w", encoding="utf-8") as f:
            f.write(some)
    ours, reference = perplexity(os.path.join(SOURCE, "models", model + ".gguf"), text), perplexity(f16, text)
    print(f"{model}: perplexity {ours:.5f}, with F16 embeddings {reference:.5f}")
    assert ours <= reference * 1.005


def main():
    if not os.path.isdir(os.path.join(SHARED, "story-model")):
        print(f"no checkpoints at {SHARED}/story-model (set BITNET_SHARED)")
        return 77
    passed = failed = 0
    for row in ROWS:
        for test in (test_made_from_checkpoint, test_perplexity):
            with tempfile.TemporaryDirectory() as work:
                try:
                    test(*row, work)
                    passed += 1
                except (AssertionError, OSError, subprocess.CalledProcessError) as e:
                    failed += 1
                    print(f"FAILED {test.__name__} {row[0]}: {e}")
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
