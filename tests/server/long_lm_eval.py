#!/usr/bin/env python3
"""Evaluation harnesses and frameworks against `bitnet serve`: lm-eval scores a task of ours by its adapter for completions and gets the
log-likelihoods that `bitnet score` prints, within 1e-3; langchain-openai and litellm chat, stream and embed. The packages are fetched into
build/judges-venv the first time."""
import json
import subprocess

from judges import judges, without_proxies
from serving import Server, check, equal, main, model, run, temp, write

JUDGES = ("judges-venv", ["lm-eval[api]", "langchain-openai", "litellm"])
# beginnings, how they may go on, which of these is right
TASK = [
    ("The fox ran", [" home to her mother.", " zebra seventeen purple of"], 0),
    ("Once upon a time", [" very the and", " there was a little girl named Lily."], 1),
    ("What is 7 + 5?", [" 12", " a house in the sea"], 0),
    ("Tom said:", [" \"I like the blue ball — très bien!\"", " Xylophonic quarks"], 0),
    ("The sun was shining, and", [" the children played outside.", " outside children the the was"], 0),
]

# a task of ours, from the file that is the second argument
LM_EVAL = """
import json
import sys
import urllib.request

import lm_eval
from lm_eval.models.openai_completions import LocalCompletionsAPI

url, path = sys.argv[1], sys.argv[2]


class Tokenizer:
    # the server's own: no tokenizer of another program takes part
    eot_token = 0

    def encode(self, text):
        if not isinstance(text, str):
            return [self.encode(t) for t in text]
        body = json.dumps({"content": text, "add_special": True}).encode()
        request = urllib.request.Request(url + "/tokenize", body, {"Content-Type": "application/json"})
        return json.load(urllib.request.urlopen(request))["tokens"]

    def decode(self, ids):
        return "</s>"  # nothing is generated


lm = LocalCompletionsAPI(base_url=url + "/v1/completions", model="story", tokenizer_backend=None, batch_size=1, max_retries=1)
lm.tokenizer_backend, lm.tokenizer, lm.tokenized_requests = "tiktoken", Tokenizer(), True
task = {"task": "endings", "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": path}}, "test_split": "test",
        "output_type": "multiple_choice", "doc_to_text": "{{text}}", "doc_to_choice": "{{choices}}", "doc_to_target": "{{label}}",
        "target_delimiter": "", "metric_list": [{"metric": "acc"}]}
done = lm_eval.simple_evaluate(model=lm, tasks=[task], log_samples=True, bootstrap_iters=0)
print(json.dumps({"acc": done["results"]["endings"]["acc,none"],
                  "samples": [{"doc": s["doc"], "logprobs": [r[0][0] for r in s["resps"]]} for s in done["samples"]["endings"]]}))
"""

FRAMEWORKS = """
import sys
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
url = sys.argv[1] + "/v1"
chat = ChatOpenAI(base_url=url, api_key="none", model="story", temperature=0, max_tokens=24)
said = chat.invoke("What is 7 + 5?").content
assert "12" in said, said
assert "".join(c.content for c in chat.stream("What is 7 + 5?")) == said
vectors = OpenAIEmbeddings(base_url=url, api_key="none", model="story", check_embedding_ctx_length=False).embed_documents(["a", "b"])
assert len(vectors) == 2
import litellm
kw = dict(model="openai/story", api_base=url, api_key="none", temperature=0, max_tokens=24,
          messages=[{"role": "user", "content": "What is 7 + 5?"}])
assert litellm.completion(**kw).choices[0].message.content == said
assert "".join(c.choices[0].delta.content or "" for c in litellm.completion(stream=True, **kw)) == said
print("good")
"""


def judge(program, server, *args):
    env = dict(without_proxies(), HF_HUB_OFFLINE="1", HF_DATASETS_CACHE=temp("datasets"))
    done = subprocess.run([judges(*JUDGES), "-c", program, server.url, *args], capture_output=True, text=True, check=False, env=env,
                          timeout=600)
    equal(done.returncode, 0, done.stderr[-2000:])
    return done.stdout


def nll(text):
    """What bitnet score says of a text."""
    scored = run("score", "-m", model("story"), "--json", "--quiet", stdin=text.encode()).json()
    return scored["nll"]


def test_lm_eval_gets_the_scores_of_the_command():
    """The whole harness with a task of ours: every log-likelihood, and with them the choice."""
    rows = [json.dumps({"text": text, "choices": choices, "label": label}) for text, choices, label in TASK]
    path = write("endings.jsonl", "\n".join(rows) + "\n")
    with Server("-m", model("story")) as server:
        got = json.loads(judge(LM_EVAL, server, path).splitlines()[-1])
    equal(len(got["samples"]), len(TASK), "samples")
    right = 0
    for sample, (text, choices, label) in zip(got["samples"], TASK):
        want = [nll(text) - nll(text + more) for more in choices]
        for more, a, b in zip(choices, sample["logprobs"], want):
            check(abs(a - b) < 1e-3, f"{text!r} {more!r}: lm-eval has {a}, bitnet score {b}")
        right += max(range(len(want)), key=lambda i: want[i]) == label
    check(right > 0 and abs(got["acc"] - right / len(TASK)) < 1e-9, f"lm-eval finds {got['acc']} right, bitnet score {right} of {len(TASK)}")


def test_frameworks():
    judges(*JUDGES)
    with Server("-m", model("story")) as server:
        check("good" in judge(FRAMEWORKS, server), "langchain-openai and litellm")


if __name__ == "__main__":
    main(globals())
