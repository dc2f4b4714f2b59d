#!/usr/bin/env python3
"""The models in models/ are what their card says: made by `bitnet convert` from the training checkpoints, byte for byte,
with an embedding type that costs less than 0.1 % of perplexity against F16; the story model has the abilities its card
states, and no dead matrix."""
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile

SOURCE, SHARED, BITNET = (os.environ[name] for name in ("BITNET_SOURCE", "BITNET_SHARED", "BITNET"))
STORY = os.path.join(SOURCE, "models", "story.gguf")
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
    assert ours <= reference * 1.001


def test_no_dead_matrix(_):
    """Strict inspection passes, and every ternary matrix has at least 40 % weights that are not zero."""
    done = subprocess.run([BITNET, "inspect", "--strict", "--json", STORY], check=True, capture_output=True)
    for tensor in json.loads(done.stdout)["tensors"]:
        if tensor["type"] == "I2_S":
            share = 1 - tensor["stats"]["n_zero"] / tensor["n_elems"]
            assert share >= 0.4, f"{tensor['name']}: only {share:.1%} of the weights are not zero"


# key of the report, row of the card, least (most where negative)
ABILITIES = [("topic_named", "stories that name the topic asked for", 64),
             ("topic_seen", "of these, topics of the training text", 0), ("topic_unseen", "topics it never saw", 0),
             ("capitals", "capitals of ten countries", 9), ("sums", "sums and differences below 20", 19),
             ("opposites", "opposites", 9), ("empty", "empty replies", -0.5),
             ("not_ended", "replies that do not end by themselves", -3),
             ("hero_consistent", "stories whose hero keeps his or her name", 0)]


def test_abilities(_):
    """What the card says is what its command measures; the same seeds give the same texts everywhere."""
    done = subprocess.run([sys.executable, os.path.join(SOURCE, "tools", "eval_story.py"), "--cmd", BITNET, "-m", STORY],
                          check=True, capture_output=True)
    report = json.loads(done.stdout)
    with open(os.path.join(SOURCE, "models", "README.md"), encoding="utf-8") as f:
        card = dict(re.findall(r"^\| ([^|]+) \| (\d+ of \d+) \|$", f.read(), re.M))
    for key, row, bound in ABILITIES:
        value = report[key] if isinstance(report[key], str) else f"{report[key]}/{report['requests']}"
        measured = value.replace("/", " of ")
        print(f"{row}: {measured}")
        n = int(measured.split()[0])
        assert n >= bound if bound >= 0 else n <= -bound, f"{row}: {measured}"
        assert card.get(row) == measured, f"models/README.md says {card.get(row)} for '{row}', measured {measured}"


def jobs():
    """(test, arguments, name), or a reason why there are none of a kind."""
    rows = [] if QUICK else [(test_no_dead_matrix, (), "story"), (test_abilities, (), "story")]
    if os.path.isdir(os.path.join(SHARED, "story-model")):
        return rows + [(test, row, row[0]) for row in ROWS for test in (test_made_from_checkpoint, test_perplexity)]
    print(f"SKIPPED conversion: no checkpoints at {SHARED}/story-model (set BITNET_SHARED)")
    return rows


def main():
    passed = failed = 0
    rows = jobs()
    for test, row, name in rows:
        with tempfile.TemporaryDirectory() as work:
            try:
                test(*row, work)
                passed += 1
            except (AssertionError, OSError, subprocess.CalledProcessError) as e:
                failed += 1
                print(f"FAILED {test.__name__} {name}: {e}")
    if not rows:
        return 77
    print(f"{passed} passed, {failed} failed, {0 if len(rows) > 2 else 4} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
