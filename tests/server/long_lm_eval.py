#!/usr/bin/env python3
"""Evaluation harnesses and frameworks against `bitnet serve`: lm-eval's adapter for completions gets the log-likelihoods that
`bitnet score` prints, within 1e-3; langchain-openai and litellm chat, stream and embed. The packages are fetched into
build/judges-venv the first time."""
import subprocess

from judges import judges, without_proxies
from serving import Server, check, equal, main, model, run

JUDGES = ("judges-venv", ["lm-eval[api]", "langchain-openai", "litellm"])
TEXTS = [("The fox ran", " home to her mother."), ("Once upon a time", " there was a little girl named Lily."),
         ("What is 7 + 5?", " 12"), ("Tom said:", " \"I like the blue ball — très bien!\"")]

LM_EVAL = """
import sys
from lm_eval.models.openai_completions import LocalCompletionsAPI
url = sys.argv[1]
# tokens by the server: no tokenizer of another program takes part
lm = LocalCompletionsAPI(base_url=url + "/v1/completions", model="story", tokenizer_backend=None, batch_size=1, max_retries=1)
lm.tokenized_requests = True
texts = eval(sys.stdin.read())
import json, urllib.request


def ids(text):
    body = json.dumps({"content": text, "add_special": True}).encode()
    request = urllib.request.Request(url + "/tokenize", body, {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))["tokens"]


for context, more in texts:
    whole, n = ids(context + more), len(ids(context))
    outputs = lm.model_call([whole], generate=False, gen_kwargs={"temperature": 0})
    ((logprob, greedy),) = lm.parse_logprobs(outputs, [whole], [n])
    print(repr((logprob, greedy, n, len(whole))))
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


def judge(program, server, stdin=""):
    done = subprocess.run([judges(*JUDGES), "-c", program, server.url], input=stdin, capture_output=True, text=True, check=False,
                          env=without_proxies(), timeout=600)
    equal(done.returncode, 0, done.stderr[-2000:])
    return done.stdout


def nll(text):
    """What bitnet score says of a text."""
    scored = run("score", "-m", model("story"), "--json", "--quiet", stdin=text.encode()).json()
    return scored["nll"]


def test_lm_eval_gets_the_scores_of_the_command():
    judges(*JUDGES)
    with Server("-m", model("story")) as server:
        lines = judge(LM_EVAL, server, repr(TEXTS)).splitlines()
    equal(len(lines), len(TEXTS), "results")
    for (context, more), line in zip(TEXTS, lines):
        logprob, _, n, n_whole = eval(line)  # our own program printed it
        want = nll(context) - nll(context + more)
        check(n < n_whole and abs(logprob - want) < 1e-3, f"{more!r}: lm-eval has {logprob}, bitnet score {want}")


def test_frameworks():
    judges(*JUDGES)
    with Server("-m", model("story")) as server:
        check("good" in judge(FRAMEWORKS, server), "langchain-openai and litellm")


if __name__ == "__main__":
    main(globals())
