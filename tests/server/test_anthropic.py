#!/usr/bin/env python3
"""Anthropic's API, judged by its own client (`anthropic` of PyPI), and by the bytes where the client hides them."""
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from serving import Server, check, equal, main, model, packages, parse_events, temp  # noqa: E402
from retemplate import HERMES, THINKS, retemplate  # noqa: E402

packages("anthropic")
import anthropic  # noqa: E402

HELLO = [{"role": "user", "content": "Tell me a story about a fox"}]
BODY = {"model": "story", "max_tokens": 24, "messages": HELLO}
GREEDY = {"temperature": 0.0}  # the client has no argument for it
CALM = {**BODY, "extra_body": GREEDY}
_running = {}


def server():
    if "story" not in _running:
        _running["story"] = Server("--model", model("story"))
    return _running["story"]


def client():
    return anthropic.Anthropic(base_url=server().url, api_key="none", max_retries=0)


def text_of(message):
    return "".join(b.text for b in message.content if b.type == "text")


def test_a_message():
    m = client().messages.create(**CALM)
    check(m.id.startswith("msg_"), f"id is {m.id}")
    equal((m.type, m.role, m.model), ("message", "assistant", "story"), "type, role, model")
    equal([b.type for b in m.content], ["text"], "blocks")
    check(len(m.content[0].text) > 10, f"text is {m.content[0].text!r}")
    equal(m.stop_reason, "max_tokens", "stop reason")
    equal(m.usage.output_tokens, 24, "tokens of the answer")
    check(m._request_id.startswith("req_"), f"request id {m._request_id}")


def test_tokens_add_up():
    c = client()
    counted = c.messages.count_tokens(model="story", messages=HELLO).input_tokens
    u = c.messages.create(**CALM).usage
    equal(u.input_tokens + u.cache_read_input_tokens, counted, "tokens of the prompt")
    longer = c.messages.count_tokens(model="story", messages=HELLO, system="You are brief.").input_tokens
    check(longer > counted, f"a system text adds nothing: {longer} and {counted}")


def test_a_prompt_that_is_too_long_is_counted():
    long = [{"role": "user", "content": "a fox and an owl " * 4000}]
    n = client().messages.count_tokens(model="story", messages=long).input_tokens
    check(n > 16000, f"{n} tokens")
    refused(anthropic.BadRequestError, 400, f"prompt is too long: {n} tokens > 1024 maximum", messages=long)


def test_the_context_may_end_an_answer():
    n = client().messages.count_tokens(model="story", messages=[{"role": "user", "content": "fox " * 900}]).input_tokens
    request = {**CALM, "max_tokens": 4000, "messages": [{"role": "user", "content": "fox " * (900 + 1018 - n)}]}
    m = client().messages.create(**request, timeout=60)
    equal((m.stop_reason, m.usage.output_tokens < 20), ("model_context_window_exceeded", True), f"{m.usage}")
    with client().messages.stream(**request) as stream:
        equal(stream.get_final_message().stop_reason, m.stop_reason, "streamed")


def test_a_prompt_may_be_read_ahead():
    messages = [{"role": "user", "content": "Tell me about the tall tower on the grey hill. " * 8}]
    m = client().messages.create(model="story", max_tokens=0, messages=messages)
    equal((m.content, m.stop_reason, m.usage.output_tokens), ([], "max_tokens", 0), f"{m}")
    again = client().messages.create(model="story", max_tokens=1, messages=messages)
    check(again.usage.cache_read_input_tokens > 100, f"{again.usage}")
    names = [n for n, _ in server().events("/v1/messages", {**BODY, "max_tokens": 0, "stream": True})]
    equal((names[0], names[-1]), ("message_start", "message_stop"), "streamed")


def test_the_system_may_speak_between_turns():
    turns = [HELLO[0], {"role": "assistant", "content": "Once."}, {"role": "user", "content": "Go on"}]
    between = turns[:2] + [{"role": "system", "content": [{"type": "text", "text": "Be brief."}]}] + turns[2:]
    counts = [client().messages.count_tokens(model="story", messages=m).input_tokens for m in (turns, between)]
    check(counts[1] > counts[0], f"{counts}")


def test_every_reply_has_the_id_its_clients_read():
    for status, headers, _ in (server().get("/v1/messages"), server().post("/v1/messages", {}), server().post("/v1/messages", BODY)):
        equal(headers.get("request-id", "none"), headers["x-request-id"], f"{status}: request-id")


def test_the_stream_says_what_the_whole_says():
    c = client()
    whole = text_of(c.messages.create(**CALM))
    with c.messages.stream(**CALM) as stream:
        pieces = list(stream.text_stream)
        final = stream.get_final_message()
    equal("".join(pieces), whole, "text of the stream")
    equal(text_of(final), whole, "text of the final message")
    check(len(pieces) > 5, f"{len(pieces)} pieces")
    equal((final.stop_reason, final.usage.output_tokens), ("max_tokens", 24), "its end")


def test_events_come_in_their_order():
    events = server().events("/v1/messages", {**BODY, **GREEDY, "stream": True})
    names = [n for n, _ in events]
    equal(names[:4], ["message_start", "content_block_start", "ping", "content_block_delta"], "the first events")
    equal(names[-3:], ["content_block_stop", "message_delta", "message_stop"], "the last events")
    for name, data in events:
        equal(data["type"], name, "type of an event's data")
    start, end = events[0][1]["message"], events[-2][1]
    equal((start["content"], start["stop_reason"]), ([], None), "the message at its start")
    equal(end["delta"], {"stop_reason": "max_tokens", "stop_sequence": None, "stop_details": None, "container": None}, "the end")
    equal(end["usage"]["input_tokens"] + end["usage"]["cache_read_input_tokens"], start["usage"]["input_tokens"], "prompt tokens")


def test_a_stop_sequence_ends_it():
    c = client()
    whole = text_of(c.messages.create(**{**CALM, "max_tokens": 60}))
    word = whole.split()[3]
    m = c.messages.create(**{**CALM, "max_tokens": 60}, stop_sequences=[word])
    equal((m.stop_reason, m.stop_sequence), ("stop_sequence", word), "what ended it")
    equal(text_of(m), whole[:whole.index(word)], "text before it")


def test_an_answer_that_ends_by_itself():
    m = client().messages.create(**{**CALM, "max_tokens": 400, "messages": [{"role": "user", "content": "What is 7 + 5?"}]})
    equal((m.stop_reason, m.stop_sequence), ("end_turn", None), f"what ended {text_of(m)!r}")


def test_system_and_content_as_blocks():
    c = client()
    plain = c.messages.create(**CALM, system="You are a fox.")
    blocks = c.messages.create(**{**CALM, "messages": [{"role": "user", "content": [{"type": "text", "text": HELLO[0]["content"]}]}]},
                               system=[{"type": "text", "text": "You are a fox.", "cache_control": {"type": "ephemeral"}}])
    equal(text_of(blocks), text_of(plain), "text")


LOOK = {"name": "look", "description": "Looks at an animal.", "input_schema": {
    "type": "object", "properties": {"at": {"enum": ["fox", "owl"]}}, "required": ["at"], "additionalProperties": False}}


def tool_client():
    """A model whose template has tools."""
    if "tools" not in _running:
        path = retemplate(model("story"), temp("tools.gguf"), HERMES)
        _running["tools"] = Server("--model", path)
    return anthropic.Anthropic(base_url=_running["tools"].url, api_key="none", max_retries=0)


def test_turns_of_tools_are_part_of_the_prompt():
    c = tool_client()
    turns = HELLO + [{"role": "assistant", "content": [{"type": "text", "text": "I look."},
                                                       {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": "fox"}}]},
                     {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "a red fox"},
                                                  {"type": "text", "text": "And now?"}]}]
    counts = [c.messages.count_tokens(model="tools", **m).input_tokens for m in (
        {"messages": HELLO}, {"messages": HELLO, "tools": [LOOK]}, {"messages": turns, "tools": [LOOK]})]
    check(counts[0] + 10 < counts[1] and counts[1] + 10 < counts[2], f"turns or tools were lost: {counts}")


def test_results_of_tools_may_have_blocks_of_other_types():
    """Their text is read; of a picture the model hears that there was one. A refusal would end the conversation for good."""
    def count(content, **more):
        turns = HELLO + [{"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "look", "input": {"at": "fox"}}]},
                         {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": content, **more}]}]
        return tool_client().messages.count_tokens(model="tools", tools=[LOOK], messages=turns).input_tokens
    text = lambda *words: [{"type": "text", "text": w} for w in words]  # noqa: E731
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA" * 1000}}
    page = {"type": "search_result", "source": "https://a.example", "title": "Foxes", "content": text("They are red.")}
    paper = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "A fox is red."}}
    for block, words in ((picture, ("[an image, which this model cannot see]",)), (page, ("Foxes", "They are red.")),
                         (paper, ("A fox is red.",)), ({"type": "tool_reference", "tool_name": "look"}, ("look",))):
        equal(count([block]), count(text(*words)), f"tokens of {block['type']}")
    equal(count(text("no fox"), is_error=True), count(text("Error:", "no fox")), "a tool that failed")
    equal(count("no fox", is_error=True), count(text("Error:", "no fox")), "a tool that failed, as a text")
    for bad in ({"type": "audio"}, {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AA"}}, {"type": "search_result"}):
        try:
            count([bad])
            raise AssertionError(f"{bad} was read")
        except anthropic.BadRequestError as e:
            check(bad["type"] in str(e), f"{bad}: {e}")


def test_models_as_its_client_lists_them():
    page = client().models.list()
    equal([(m.id, m.type, m.display_name) for m in page.data], [("story", "model", "story")], "models")
    check(page.data[0].created_at.year > 2020 and not page.has_more, f"{page}")
    equal(client().models.retrieve("story").display_name, "story", "one")


def test_a_tool_is_called():
    request = {"model": "tools", "max_tokens": 60, "messages": HELLO, "tools": [LOOK, {"type": "web_search_20250305", "name": "web_search"}],
               "tool_choice": {"type": "tool", "name": "look"}}
    m = tool_client().messages.create(**request)
    calls = [b for b in m.content if b.type == "tool_use"]
    equal((m.stop_reason, len(calls)), ("tool_use", 1), f"{m}")
    check(calls[0].name == "look" and calls[0].input["at"] in ("fox", "owl"), f"{calls}")
    turns = HELLO + [{"role": "assistant", "content": [b.model_dump() for b in m.content]},
                     {"role": "user", "content": [{"type": "tool_result", "tool_use_id": calls[0].id, "content": "red"}]}]
    check(tool_client().messages.create(model="tools", max_tokens=4, messages=turns, tools=[LOOK]).usage.output_tokens > 0,
          "blocks that go back as they came")
    with tool_client().messages.stream(**request) as stream:
        events = [e for e in stream]
        final = stream.get_final_message()
    check(any(e.type == "content_block_delta" and e.delta.type == "input_json_delta" for e in events), "arguments did not come in pieces")
    equal((final.stop_reason, final.content[0].type), ("tool_use", "tool_use"), f"{final}")
    check(final.content[0].input["at"] in ("fox", "owl"), f"{final}")


def test_a_call_that_was_cut_is_left_out():
    request = {"model": "tools", "messages": HELLO, "tools": [LOOK], "tool_choice": {"type": "tool", "name": "look"}, "extra_body": GREEDY}
    whole = 0
    for n in (*range(1, 40, 2), 80, 160):
        m = tool_client().messages.create(max_tokens=n, **request)
        check(all(b.type == "tool_use" and b.input.get("at") for b in m.content), f"{n} tokens: {m}")
        equal(m.stop_reason == "tool_use" and not m.content, False, f"{n} tokens: {m}")
        whole += m.stop_reason == "tool_use"
        if whole:
            break
    check(n > 5 and whole, "no call was cut, or none was whole")
    m = tool_client().messages.create(max_tokens=60, stop_sequences=["look", "at"], **request)
    equal((m.stop_reason, len(m.content)), ("tool_use", 1), f"{m}")


def test_thoughts_are_blocks_of_their_own():
    request = {"model": "tools", "max_tokens": 12, "messages": HELLO, "extra_body": GREEDY, "thinking": {"type": "enabled", "budget_tokens": 1024}}
    m = tool_client().messages.create(**request)
    equal([b.type for b in m.content], ["thinking"], f"blocks of {m}")
    with tool_client().messages.stream(**request) as stream:
        thought = "".join(e.delta.thinking for e in stream if e.type == "content_block_delta" and e.delta.type == "thinking_delta")
        equal(stream.get_final_message().content[0].thinking, m.content[0].thinking, "the final message")
    equal(thought, m.content[0].thinking, "the stream's thoughts")
    plain = tool_client().messages.create(**{**request, "thinking": {"type": "disabled"}})
    equal([b.type for b in plain.content], ["text"], "blocks without thinking")


def test_thoughts_that_nobody_asked_for_are_not_told():
    with Server("--model", retemplate(model("story"), temp("thinks.gguf"), THINKS)) as s:
        c = anthropic.Anthropic(base_url=s.url, api_key="none", max_retries=0)
        request = {"model": "thinks", "max_tokens": 12, "messages": HELLO, "extra_body": GREEDY}
        for thinking, want in ({"type": "enabled", "budget_tokens": 1024}, ["thinking"]), ({"type": "disabled"}, []), (None, []), ({"type": "adaptive", "display": "omitted"}, []), (
                {"type": "between_tools"}, ["thinking"]):
            more = {"thinking": thinking} if thinking else {}
            m = c.messages.create(**request, **more)
            equal(([b.type for b in m.content], m.usage.output_tokens), (want, 12), f"{thinking}: {m}")
            with c.messages.stream(**request, **more) as stream:
                equal([b.type for b in stream.get_final_message().content], want, f"{thinking}: streamed")


ALL = """{% for m in messages %}{{ m.role }}: [{{ m.reasoning_content }}] {{ m.content }} {{ m.tool_calls | tojson if m.tool_calls }}{{ eos_token }}{% endfor %}"""


def test_turns_of_one_speaker_are_one():
    """As many tokens as in one message, thoughts and texts included."""
    parts = [{"type": "thinking", "thinking": "aaa bbb ccc", "signature": ""}, {"type": "text", "text": "I look."},
             {"type": "thinking", "thinking": "ddd", "signature": ""}, {"type": "tool_use", "id": "a", "name": "look", "input": {"at": "fox"}}]
    result = [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "red"}]}]
    with Server("--model", retemplate(model("story"), temp("all.gguf"), ALL)) as s:
        c = anthropic.Anthropic(base_url=s.url, api_key="none", max_retries=0)

        def tokens(*turns):
            spoken = [{"role": "assistant", "content": turn} for turn in turns]
            return c.messages.count_tokens(model="all", messages=HELLO + spoken + result).input_tokens
        want = tokens(parts)
        equal([tokens(parts[:2], parts[2:]), tokens(parts[:1], parts[1:3], parts[3:]), tokens(parts, [])], [want] * 3, "tokens of the prompt")
        check(tokens(parts[1:]) < want - 2 and tokens(parts[:2] + parts[3:]) < want, "the thoughts are not in it")


def test_no_more_than_one_call():
    look = {"name": "look", "description": "Looks.", "input_schema": {"type": "object", "properties": {"at": {"type": "string"}}}}
    request = {"model": "tools", "max_tokens": 4, "messages": HELLO, "tools": [look]}
    for off in (True, False, None):
        check(tool_client().messages.create(**request, tool_choice={"type": "auto", "disable_parallel_tool_use": off}).usage.output_tokens == 4, f"{off}")
    refused(anthropic.BadRequestError, 400, "disable_parallel_tool_use", tools=[look], tool_choice={"type": "auto", "disable_parallel_tool_use": "yes"})


def refused(error, status, says, **request):
    try:
        client().messages.create(**{**CALM, **request})
    except error as e:
        equal(e.status_code, status, f"{says}: status")
        equal((e.body["type"], "request_id" in e.body), ("error", True), f"{says}: shape of {e.body}")
        check(says in e.body["error"]["message"], f"the message does not say {says!r}: {e.body}")
        return e.body["error"]["type"]
    raise AssertionError(f"{request} was not refused")


def test_a_schema_holds_the_answer():
    schema = {"type": "object", "properties": {"animal": {"enum": ["fox", "owl"]}}, "required": ["animal"], "additionalProperties": False}
    form = {"type": "json_schema", "schema": schema}
    for more in ({"output_config": {"format": form}}, {"output_format": form}):
        said = json.loads(text_of(client().messages.create(**BODY, extra_body=more)))
        check(said["animal"] in ("fox", "owl") and len(said) == 1, f"{said}")
    for bad in ({"output_format": {"type": "json_schema"}}, {"output_config": {"format": {"type": "xml"}}}):
        refused(anthropic.BadRequestError, 400, "json_schema", extra_body=bad)


def test_what_is_empty():
    count = client().messages.count_tokens
    equal(count(model="story", messages=HELLO, system="").input_tokens, count(model="story", messages=HELLO).input_tokens, "no system's words")
    refused(anthropic.BadRequestError, 400, "messages.1.content", messages=HELLO + [{"role": "user", "content": []}])
    refused(anthropic.BadRequestError, 400, "priority", extra_body={"priority": "bogus"})


def test_errors_have_its_shape():
    bad = anthropic.BadRequestError
    equal(refused(bad, 400, "temperature", extra_body={"temperature": 1.5}), "invalid_request_error", "type")
    equal(refused(anthropic.NotFoundError, 404, "nobody", model="nobody"), "not_found_error", "type")
    refused(bad, 400, "image", messages=[{"role": "user", "content": [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}]}])
    refused(bad, 400, "messages", messages=[])
    refused(bad, 400, "max_tokens", max_tokens=-1)
    refused(bad, 400, "stop_sequences", stop_sequences=["x" * 300])
    refused(bad, 400, "stop_sequences", stop_sequences=["x"] * 17)
    refused(bad, 400, "tool_choice", tool_choice={"type": "perhaps"})
    refused(bad, 400, "role", messages=[{"role": "wizard", "content": "hello"}])
    status, _, body = server().post("/v1/messages", {k: v for k, v in BODY.items() if k != "max_tokens"})
    equal((status, json.loads(body)["error"]["type"]), (400, "invalid_request_error"), "without max_tokens")


LONG = {"type": "json_schema", "schema": {"type": "string", "minLength": 4000}}  # more than 900 tokens of the story model


def cut_in_a_block(s):
    """Whether a stream of S was cut after its block had begun; each one that was cut ends as it should."""
    for _ in range(20):  # its time may also be over before the stream begins
        status, _, data = s.post("/v1/messages", {**BODY, "max_tokens": 900, "stream": True, "output_format": LONG})
        if status == 200:
            break
        equal((status, json.loads(data)["error"]["type"]), (504, "timeout_error"), "before the stream")
    else:
        return False
    events = list(parse_events(data))
    names = [n for n, _ in events]
    if names[-1] == "message_stop":
        return False  # it was quicker
    equal((events[-1][0], events[-1][1]["error"]["type"]), ("error", "timeout_error"), f"{events[-1]}")
    check("message_stop" not in names and "message_delta" not in names, "it ended as if all was well")
    equal(names.count("content_block_stop"), 0, f"ends of the block that was cut: {names[-3:]}")
    return "content_block_start" in names


def test_a_stream_that_cannot_go_on_says_so():
    for timeout in (0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.45, 0.7, 1, 1.5, 3):
        with Server("--model", model("story"), "--timeout", str(timeout)) as s:
            if any(cut_in_a_block(s) for _ in range(3)):
                return
    raise AssertionError("no stream was cut in a block")


def test_a_larger_wish_is_cut_to_what_there_is():
    m = client().messages.create(**{**CALM, "max_tokens": 1000000, "messages": [{"role": "user", "content": "What is 7 + 5?"}]}, timeout=60)
    check(m.stop_reason in ("end_turn", "max_tokens"), f"stop reason {m.stop_reason}")


def test_zz_the_server_ends_well():
    for each in _running.values():
        each.stop()


main(globals())
