#!/usr/bin/env python3
"""The server's own API: inference and its stream, models on request, tokens and templates, and what the server tells of
itself. Every reply has its fields, every refusal its code."""
import json
import os
import re
import shutil
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from serving import SLOW, Server, check, equal, main, model, temp  # noqa: E402
from harness import copy_of_model, fails, WORK  # noqa: E402

CALM = {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 20}
_running = []


def server():
    if not _running:
        _running.append(Server("--model", model("story"), "--model-dir", WORK, "--max-tokens", "950"))
    return _running[0]


def refused(method, path, body, status, code, field=None, says=""):
    r = server().json(method, path, body, status=status)
    equal(r["error_code"], code, f"{path}: code of {r}")
    check(r["request_id"].startswith("req_"), f"{path}: {r}")
    check(says in r["error"], f"{path}: {r['error']!r} does not say {says!r}")
    if field:
        equal(r["details"], {"field": field}, f"{path}: details")


def test_inference():
    r = server().json("POST", "/v1/inference", CALM)
    equal(r["tokens_generated"], 20, "tokens")
    check(len(r["text"]) > 20 and r["inference_time_ms"] > 0 and r["tokens_per_second"] > 0 and r["queue_time_ms"] >= 0, f"{r}")
    equal((r["device_used"], r["quantization_type"], r["batch_size"] >= 1, bool(r["batch_id"])), ("cpu", "I2_S", True, True), f"{r}")
    old = server().json("POST", "/inference", CALM)
    equal(sorted(old), ["inference_time_ms", "text", "tokens_generated", "tokens_per_second"], "fields of the older form")
    equal(old["text"], r["text"], "its text")


def test_S_1_inference_is_what_the_command_says():
    from serving import run
    said = run("run", "-m", model("story"), "--greedy", "-n", "20", "--json", "Once upon a time").json()
    equal(server().json("POST", "/v1/inference", CALM)["text"], said["text"], "text")


def test_defaults():
    r = server().json("POST", "/v1/inference", {"prompt": "Once upon a time", "ignore_eos": True, "seed": 3})
    equal(r["tokens_generated"], 64, "tokens without max_tokens")


def test_refusals_have_codes():
    refused("POST", "/v1/inference", {}, 400, "MISSING_FIELD", "prompt")
    refused("POST", "/v1/inference", {"prompt": 3}, 400, "INVALID_FIELD_VALUE", "prompt")
    refused("POST", "/v1/inference", {**CALM, "top_p": 2}, 400, "INVALID_FIELD_VALUE", "top_p")
    refused("POST", "/v1/inference", {**CALM, "max_tokens": 10**9}, 400, "TOO_MANY_TOKENS", "max_tokens")
    refused("POST", "/v1/inference", {**CALM, "prompt": "word " * 3000}, 400, "PROMPT_TOO_LONG")
    refused("POST", "/v1/inference", {**CALM, "model": "nobody"}, 404, "MODEL_NOT_FOUND", "model")
    refused("POST", "/v1/inference", {**CALM, "priority": "now"}, 400, "INVALID_FIELD_VALUE", "priority")
    refused("POST", "/inference", {**CALM, "temperature": "hot"}, 400, "INVALID_FIELD_VALUE", "temperature")
    refused("GET", "/v1/receipts/none", None, 404, "RECEIPT_NOT_FOUND")
    refused("POST", "/tokenize", {}, 400, "MISSING_FIELD", "content")
    refused("POST", "/detokenize", {"tokens": [10**6]}, 400, "INVALID_FIELD_VALUE", "tokens")
    refused("POST", "/detokenize", {"tokens": [-1]}, 400, "INVALID_FIELD_VALUE", "tokens")
    refused("POST", "/apply-template", {}, 400, "MISSING_FIELD", "messages")


def test_a_deadline_ends_it():
    body = {**CALM, "max_tokens": 900, "ignore_eos": True, "timeout_ms": 1}
    refused("POST", "/v1/inference", body, 408, "TIMEOUT")
    events = server().events("/v1/inference/stream", {**body, "timeout_ms": None, "timeout_seconds": 0.02})
    name, data = events[-1]
    equal((name, data["error_type"]), ("error", "timeout"), f"{events[-1]}")
    end = time.monotonic() + 5
    while server().json("GET", "/slots") and time.monotonic() < end:
        time.sleep(0.02)
    equal(server().json("GET", "/slots"), [], "slots after that")
    check(data["recovery_hints"] and data["tokens_before_error"] == len(events) - 1, f"{data}, {len(events)} events")


def test_the_stream():
    events = server().events("/v1/inference/stream", CALM)
    tokens = [d for n, d in events if n == "token"]
    equal("".join(t["token"] for t in tokens), server().json("POST", "/v1/inference", CALM)["text"], "text")
    with_id = [t for t in tokens if t["token_id"] is not None]
    equal([t["position"] for t in with_id], list(range(20)), "positions")
    times = [t["cumulative_time_ms"] for t in tokens]
    check(times == sorted(times) and times[0] > 0, f"times {times}")
    name, end = events[-1]
    equal((name, end["total_tokens"], end["completed_normally"], end["completion_reason"]), ("complete", 20, True, "length"), "end")


def test_tokens_there_and_back():
    text = "The fox said: \u00fcber \u2603!"
    ids = server().json("POST", "/tokenize", {"content": text})["tokens"]
    equal(server().json("POST", "/detokenize", {"tokens": ids})["content"], text, "there and back")
    with_bos = server().json("POST", "/tokenize", {"content": text, "add_special": True})["tokens"]
    equal(with_bos[1:], ids, "with the first token")
    pieces = server().json("POST", "/tokenize", {"content": text, "with_pieces": True})["tokens"]
    joined = b"".join(p["piece"].encode() if isinstance(p["piece"], str) else bytes(p["piece"]) for p in pieces)
    equal(joined.decode(), text, "pieces")
    special = server().json("POST", "/tokenize", {"content": "<|eot_id|>"})["tokens"]
    plain = server().json("POST", "/tokenize", {"content": "<|eot_id|>", "parse_special": False})["tokens"]
    check(len(special) == 1 and len(plain) > 1, f"{special} {plain}")
    half = server().json("POST", "/detokenize", {"tokens": server().json("POST", "/tokenize", {"content": "\u2603"})["tokens"][:1]})
    check(half["content"] in ("\ufffd", "\u2603"), f"half a character: {half}")


def test_the_template():
    r = server().json("POST", "/apply-template", {"messages": [{"role": "user", "content": "Hi"}]})
    check(re.search(r"User: Hi<\|eot_id\|>Assistant:$", r["prompt"]), f"{r}")


def test_props_and_slots():
    p = server().json("GET", "/props")
    equal((p["model"], p["n_ctx"], p["device"], p["n_vocab"]), ("story", 1024, "cpu", 4096), "props")
    check("selected=cpu" in p["summary"] and p["version"] and p["chat_template"], f"{p}")
    equal(p["modalities"], {"vision": False, "audio": False}, "modalities")
    server().json("GET", "/props?model=nobody", status=404)
    equal(server().json("GET", "/slots"), [], "slots of a server that does nothing")


def test_silence_is_broken_every_second():
    """One place, four long answers before it: a stream that waits says so."""
    with Server("--model", model("story"), "--parallel", "1") as s:
        body = {"prompt": "Once upon a time", "max_tokens": 100 if SLOW else 900, "ignore_eos": True}
        threads = [threading.Thread(target=lambda: s.post("/v1/inference", {**body, "priority": "high"})) for _ in range(4)]
        for t in threads:
            t.start()
        while s.json("GET", "/v1/stats")["models"][0]["batching"]["queued"] < 3:
            pass
        began = time.monotonic()
        status, _, data = s.post("/v1/inference/stream", {**CALM, "priority": "low", "timeout_seconds": 300})
        took = time.monotonic() - began
        for t in threads:
            t.join()
        n = data.count(b": keep-alive\n\n")
        equal(status, 200, "status")
        check(b"event: complete" in data and n <= took, f"{n} comments in {took:.1f} s: {data[-200:]!r}")
        least = took * (0.8 if SLOW else 0.97) - 2  # each may come a little late
        check(n >= least and (n > 0 or took < 1.5), f"{n} comments in {took:.1f} s")


def test_another_method_is_refused_in_the_same_words():
    r = server().json("GET", "/v1/inference", status=405)
    check("error_code" in r, f"{r}")
    equal(server().json("GET", "/v1/messages", status=405)["type"], "error", "Anthropic's")
    equal(list(server().json("DELETE", "/api/chat", status=405)), ["error"], "Ollama's")


def test_slots_have_no_text():
    body = {"prompt": "zebra zebra zebra", "max_tokens": 100 if SLOW else 900, "ignore_eos": True}
    threads = [threading.Thread(target=lambda: server().post("/v1/inference", body)) for _ in range(3)]
    for t in threads:
        t.start()
    seen = []
    end = time.monotonic() + 20
    while not seen and time.monotonic() < end:
        seen = server().json("GET", "/slots")
    for t in threads:
        t.join()
    check(seen and seen[0]["is_processing"] and seen[0]["n_prompt_tokens"] > 2, f"{seen}")
    check("zebra" not in json.dumps(seen), f"{seen}")


def test_stats_and_devices():
    s = server().json("GET", "/v1/stats")
    check(s["uptime_seconds"] >= 0 and s["memory"]["process_bytes"] > 1000000 and isinstance(s["requests"], dict), f"{s}")
    m = next(m for m in s["models"] if m["model"] == "story")
    equal((m["state"], m["device"]), ("loaded", "cpu"), f"{m}")
    check(m["batching"]["jobs"] > 0 and m["batching"]["generated_tokens"] > 0 and m["batching"]["max_active"] > 0, f"{m}")
    d = server().json("GET", "/v1/devices")
    check("cpu" in json.dumps(d["machine"]) and d["requested"], f"{d}")


def test_models_come_and_go():
    path = copy_of_model("nano", "guest.gguf")
    r = server().json("POST", "/v1/models/load", {"model_path": path})
    equal((r["model_id"], r["status"]), ("guest", "loaded"), "loaded")
    equal(server().json("POST", "/v1/inference", {**CALM, "model": "guest"})["tokens_generated"] > 0, True, "it answers")
    equal(server().json("POST", "/v1/models/load", {"model_path": path})["model_id"], "guest", "loaded once more")
    other = copy_of_model("nano", "another.gguf")
    refused("POST", "/v1/models/load", {"model_path": other, "model_id": "guest"}, 400, "INVALID_FIELD_VALUE", says="taken")
    status, _, body = server().request("DELETE", "/v1/models/guest")
    equal((status, body), (204, b""), "deleted")
    refused("POST", "/v1/inference", {**CALM, "model": "guest"}, 404, "MODEL_NOT_FOUND")
    refused("DELETE", "/v1/models/guest", None, 404, "MODEL_NOT_FOUND")
    r = server().json("POST", "/v1/models/load", {"model_path": path, "model_id": "other-name", "device": "auto"})
    equal(r["model_id"], "other-name", "a name of its own")


def test_only_allowed_folders():
    for path in (model("nano"), "/etc/passwd", os.path.join(WORK, "..", os.path.basename(WORK), "..", "x.gguf"), "guest.gguf/../../x"):
        status, _, body = server().post("/v1/models/load", {"model_path": path})
        check(status in (400, 403, 404), f"{path}: {status} {body}")
    link = os.path.join(WORK, "link.gguf")
    if not os.path.lexists(link):
        os.symlink(model("nano"), link)
    status, _, body = server().post("/v1/models/load", {"model_path": link})
    check(status in (400, 403, 404), f"a link out of the folder: {status} {body}")
    refused("POST", "/v1/models/load", {"model_path": ""}, 400, "MISSING_FIELD", "model_path")
    refused("POST", "/v1/models/load", {"model_path": "x.gguf", "model_id": "a/../b"}, 400, "INVALID_FIELD_VALUE", "model_id")
    refused("POST", "/v1/models/load", {"model_path": "x.gguf", "tokenizer_path": "t.json"}, 400, "INVALID_FIELD_VALUE", "tokenizer_path")
    refused("POST", "/v1/models/load", {"model_path": "x.gguf", "device": "cuda:7"}, 400, "INVALID_FIELD_VALUE", "device")


def test_what_is_no_model():
    for name, data in (("notes.txt", b"not a model"), ("cut.gguf", open(model("nano"), "rb").read(2000))):
        with open(os.path.join(WORK, name), "wb") as f:
            f.write(data)
        refused("POST", "/v1/models/load", {"model_path": name}, 400, "INVALID_FIELD_VALUE", "model_path")


def test_a_model_may_be_loaded_by_its_file():
    folder = temp("own")
    os.makedirs(folder, exist_ok=True)
    shutil.copy(model("nano"), folder)
    with Server("--model", os.path.relpath(os.path.join(folder, "nano.gguf")), "--model-dir", folder) as s:
        equal(s.json("POST", "/v1/models/load", {"model_path": "nano.gguf"})["model_id"], "nano", "by its path")


def test_a_budget_is_told():
    with Server("--model", model("nano"), "--model", model("story"), "--model-memory", "8") as s:
        r = s.json("POST", "/v1/inference", {"prompt": "x", "model": "story"}, status=404)
        check("--model-memory" in r["error"], f"{r}")
        equal([m["state"] for m in s.json("GET", "/v1/models")["data"]], ["loaded", "broken"], "nobody was unloaded")
        equal(s.json("GET", "/health")["status"], "healthy", "health")


def test_figures_of_prompts():
    body = {"prompt": "The tower on the hill was old and grey. " * 6, "max_tokens": 1}
    for _ in range(3):
        server().json("POST", "/v1/inference", body)
    b = next(m for m in server().json("GET", "/v1/stats")["models"] if m["model"] == "story")["batching"]
    check(0 < b["cached_tokens"] < b["prompt_tokens"], f"{b}")


def test_how_long_to_wait():
    with Server("--model", model("story"), "--parallel", "1", "--max-queued", "1") as s:
        long = {"prompt": "Once", "max_tokens": 60 if SLOW else 900, "ignore_eos": True, "temperature": 0}
        s.post("/v1/completions", long)  # how long one takes is known then
        got = []
        threads = [threading.Thread(target=lambda: got.append(s.post("/v1/completions", long))) for _ in range(5)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        told = [(headers["retry-after"], body) for status, headers, body in got if status == 503]
        check(told and all(f"try again in {wait} s".encode() in body for wait, body in told), f"{got}")


def test_models_are_fixed_unless_told():
    with Server("--model", model("nano")) as s:
        equal(s.json("POST", "/v1/models/load", {"model_path": model("story")}, status=403)["error_code"], "LOADING_NOT_ALLOWED", "load")
        equal(s.json("DELETE", "/v1/models/nano", status=403)["error_code"], "LOADING_NOT_ALLOWED", "delete")


def test_names_of_the_host():
    for bad in ("https://b.example.org", "b.example.org/x", "b.example.org:", ""):
        fails(2, "serve", "--model", model("nano"), "--allowed-host", bad, "--port", "0", says="--allowed-host")
    with Server("--model", model("nano"), "--allowed-host", "chat.example.org:8443") as s:
        for host, status in (("chat.example.org:8443", 200), ("chat.example.org", 200), ("other.example.org:8443", 403)):
            got, _, body = s.get("/health", headers={"Host": host})
            equal(got, status, f"{host}: {body!r}")
        check(b"other.example.org" in s.get("/health", headers={"Host": "other.example.org"})[2], "the name is told")
        check(b"/v1/nothing" in s.get("/v1/nothing")[2], "the path is told")


def test_receipts():
    status, headers, _ = server().post("/v1/inference", CALM)
    equal(status, 200, "status")
    if "x-bitnet-receipt" not in headers:
        return  # receipts are an option
    r = server().json("GET", "/v1/receipts/" + headers["x-bitnet-receipt"])  # it is written on another thread: who asks at once waits
    check(r["kernels"] and r["compute_path"] == "real", f"{r}")
    began = time.monotonic()
    refused("GET", "/v1/receipts/rcp_" + "0" * 32, None, 404, "RECEIPT_NOT_FOUND")
    check(time.monotonic() - began < 1, "nobody waits for what nobody has heard of")


def test_refused_requests_drive_out_no_receipt():
    """1,024 receipts are kept. Those of answers, not of requests that the scheduler has refused."""
    too_much = {"prompt": "Once", "max_tokens": 100000, "n": 8}
    with Server("--model", model("story"), "--kv-pool", "1", "--no-log-requests") as s:
        path = "/v1/receipts/" + s.post("/v1/completions", {"prompt": "Once", "max_tokens": 1})[1]["x-bitnet-receipt"]
        end = time.monotonic() + 10
        while s.get(path)[0] != 200:
            check(time.monotonic() < end, "there is no receipt")
            time.sleep(0.02)
        equal({s.post("/v1/completions", too_much)[0] for _ in range(1030)}, {400}, "what is refused")
        equal(s.get(path)[0], 200, "the receipt")


def test_the_description_is_served():
    spec = server().json("GET", "/openapi.json")
    check(spec["openapi"].startswith("3.") and len(spec["paths"]) > 25, "no description")


def test_zz_the_server_ends_well():
    _running.pop().stop()


main(globals())
