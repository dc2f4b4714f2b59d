"""test_chat_forms.py - conversations through a file's own chat template, as bitnet_chat_render_json renders them: ordinary texts
give what jinja2 writes, byte for byte; texts with special tokens and marks in them, wherever in a request they stand, give the
special tokens and marks of the same request without them."""
import datetime
import functools
import json
import os
import re
import struct
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import test_vs_jinja2 as vs  # noqa: E402  (starts again in build/venv where jinja2 is missing)
from templates import CALL_FORMS, FORMS, TYPED, published  # noqa: E402

ARGUMENT, TOKENIZER = 2, 4
BOS, EOS = "<|begin_of_text|>", "<|end_of_text|>"
CONTROL = [BOS, "<|eot_id|>", "<|im_end|>", "<|assistant|>", "</s>", "[/INST]"]
THOUGHTS = ("<think>", "</think>")
TEXTS = ["Hello!", " two\nlines \n", "a < b > c <b>bold</b> [1] [x, y] <<< >>> [/x] <|> |", "h\u00e9llo \u4f60\u597d \U0001f600 \U0010abcd",
         "quotes \" ' \\ {{ x }} {% if %} \t", "</b> <unknown> <a href='x'>", "    four spaces", "x" * 3000]


def tools():
    return [{"type": "function", "function": {"name": "get_weather", "description": "Weather <b>of</b> a \"city\" [now]",
             "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days<n>": {"type": "integer"}}, "required": ["city"]}}}]


def nested(levels):
    return {"k": nested(levels - 1), "l": [levels]} if levels else {"end": True}


def deep_tools():
    """Parameters that nest 12 deep: objects, arrays, arrays of objects."""
    inner = [{"type": "string", "enum": ["a", "b"]}] * 3
    for level in range(12):
        inner = [{"type": "object", "description": f"level {level}", "properties": {"p": inner[0], "q": {"type": "integer"}}, "required": ["p"]},
                 {"type": "array", "items": inner[1]},
                 {"type": "array", "items": {"type": "object", "properties": {"p": inner[2]}, "required": ["p"]}}]
    for name, schema in zip(("objects", "arrays", "both"), inner):
        yield {"type": "function", "function": {"name": name, "description": "Deep", "parameters": {
            "type": "object", "properties": {"x": schema}, "required": ["x"]}}}


def conversations(text):
    user, reply = {"role": "user", "content": text}, {"role": "assistant", "content": "Yes, " + text}
    system = {"role": "system", "content": "Be kind. " + text}
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "a1b2c3d4e", "type": "function", "function": {
        "name": "get_weather", "arguments": {"city": text, "days": 2, "f": 1.5, "ok": True, "none": None, "l": [text]}}}]}
    answer = {"role": "tool", "tool_call_id": "a1b2c3d4e", "name": "get_weather", "content": text}
    yield {"messages": [user]}
    yield {"messages": [system, user], "add_generation_prompt": False}
    yield {"messages": [user, reply, user]}
    yield {"messages": [system, user, reply, user], "chat_template_kwargs": {"enable_thinking": False, "date_string": "1 May 2026"}}
    yield {"messages": [user, {**reply, "reasoning_content": "hm " + text}, user, reply]}
    yield {"messages": [user], "tools": tools()}
    if text == TEXTS[0]:
        yield {"messages": [user, {**call, "tool_calls": [{**call["tool_calls"][0], "function": {"name": "f", "arguments": nested(12)}}]}, answer, user],
               "tools": [*deep_tools()]}
    yield {"messages": [system, user, call, answer, reply, user], "tools": tools()}
    yield {"messages": [user, call, answer, reply, user]}
    yield {"messages": [user, {**call, "content": text}, answer, user]}
    yield {"messages": [user, user]}


class Generation(vs.jinja2.ext.Extension):
    """What transformers adds for training: the body as it is."""
    tags = {"generation"}

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


class Renderer:
    def __init__(self):
        self.env = vs.environment()
        self.env.add_extension(Generation)
        self.env.globals["strftime_now"] = lambda f: datetime.datetime.now().strftime(f)
        self.ours = subprocess.Popen([os.path.join(vs.BUILD, "tests", "chat_driver")], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.passed = self.failed = 0

    def record(self):
        n, = struct.unpack("<I", self.ours.stdout.read(4))
        return self.ours.stdout.read(n).decode("utf-8", "replace")

    def our(self, source, request):
        for record in (source.encode(), json.dumps(request).encode()):
            self.ours.stdin.write(struct.pack("<I", len(record)) + record)
        self.ours.stdin.flush()
        status, = struct.unpack("<i", self.ours.stdout.read(4))
        return status, self.record(), self.record().split("\n")[:-1]

    def their(self, source, request, typed, form=(False, False)):
        values = json.loads(json.dumps(request))
        for m in values["messages"]:
            calls = m.get("tool_calls") or []
            for call in calls if form[0] else []:
                call["function"]["arguments"] = json.dumps(call["function"]["arguments"], ensure_ascii=False)
            if form[1] and calls and not m["content"]:
                m["content"] = None
        more = values.pop("chat_template_kwargs", {})
        values = {"tools": None, "documents": None, "add_generation_prompt": True, "bos_token": BOS, "eos_token": EOS, **values, **more}
        if typed:
            for m in values["messages"]:
                m["content"] = m["content"] and [{"type": "text", "text": m["content"]}]
        try:
            return self.compiled(source).render(**values), None
        except Exception as e:  # whatever it raises, it refuses
            return None, str(e)

    @functools.lru_cache(maxsize=1)
    def compiled(self, source):
        return self.env.from_string(source)

    def check(self, fine, what):
        self.passed += bool(fine)
        self.failed += not fine
        if not fine and self.failed < 40:
            print(f"FAILED: {what}")
        return fine

    def call_form(self, source, typed):
        """Arguments as text, and null beside calls: the first form in which jinja2 shows the call, as JSON or in a form of the template's."""
        call = {"id": "a71930264", "type": "function", "function": {"name": "f71930264", "arguments": {"k71930264": "v71930264"}}}
        request = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "", "tool_calls": [call]},
                                {"role": "tool", "tool_call_id": "a71930264", "name": "t", "content": "r"}], "tools": tools()}
        for messages in (request["messages"], request["messages"][:2]):
            for form in ((False, False), (True, False), (False, True), (True, True)):
                shown = self.their(source, {**request, "messages": messages}, typed, form)[0] or ""
                if all(x in shown for x in ("f71930264", "k71930264", "v71930264")) and "'k71930264'" not in shown:
                    return form
        return False, False

    def ordinary(self, name, source):
        question = {"messages": [{"role": "user", "content": "71930264"}]}
        typed = ("71930264" not in (self.their(source, question, False)[0] or "")
                 and "71930264" in (self.their(source, question, True)[0] or ""))
        self.check(typed == (name in TYPED), f"{name}: typed contents: {typed}")
        form = self.call_form(source, typed)
        self.check(name not in FORMS or form == CALL_FORMS.get(name, (False, False)), f"{name}: arguments as text, content null: {form}")
        for text in TEXTS:
            for request in conversations(text):
                if "tools" in request and "tools" not in source:
                    continue
                status, ours, names = self.our(source, request)
                theirs, why = self.their(source, request, typed, form)
                same = ours == theirs if status == 0 else theirs is None and (status != ARGUMENT or why in ours)
                self.check(same, f"{name}: {json.dumps(request)[:300]}\n  ours   {status} {ours!r:.600}\n  jinja2 {theirs!r:.600} {why}")
                if same and status == 0:
                    self.check(names.count(BOS) == max(theirs.count(BOS), 1) and names[0] == BOS, f"{name}: BOS in {names[:4]}")


def marks_of(source):
    found = set(re.findall(r"<[^\s<>\"'{}()\[\]\\,+%]{1,62}>|\[/?[A-Z][A-Z0-9_]*\]", source))
    if re.search(r"<\|(['\"]|\{\{)", source):
        found |= {"<|user|>", "<|any|>"}
    return sorted(found)


def places(mark):
    """Requests with the text X, and the same with the mark in the place of X; (where, with X, with the mark)."""
    half = len(mark) // 2
    a, b = mark[:half], mark[half:]

    def talk(system="S", user="U", reply="R", name="f", result="T", value="V", key="k", about="A", thought=None, more=None):
        r = {"messages": [{"role": "system", "content": system}, {"role": "user", "content": user},
                          {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "id": "123456789", "function": {
                              "name": name, "arguments": json.dumps({key: value})}}]},
                          {"role": "tool", "content": result, "name": name, "tool_call_id": "123456789"},
                          {"role": "assistant", "content": reply}, {"role": "user", "content": user}],
             "tools": [{"type": "function", "function": {"name": name, "description": about, "parameters": {
                 "type": "object", "properties": {key: {"type": "string", "description": about}}}}}]}
        if thought:
            r["messages"][4]["reasoning_content"] = thought
        if more:
            r["chat_template_kwargs"] = {"date_string": more}
        return r
    for field in ("system", "user", "result", "value", "key", "about", "name", "thought", "more", "reply"):
        yield field, talk(**{field: "xXy"}), talk(**{field: "x" + mark + "y"})
        yield field + " alone", talk(**{field: "X"}), talk(**{field: mark})
    yield "parts", talk(user=[{"type": "text", "text": "X"}]), talk(user=[{"type": "text", "text": mark}])
    yield "two texts", talk(system="X", user="X"), talk(system=a, user=b)
    yield "two texts more", talk(result="X", reply="X"), talk(result="x" + a, reply=b + "y")
    yield "inside out", talk(user="X"), talk(user=a + mark + b)


def plain(request, calls):
    """Without what a template without tools has no place for, unless it shows calls."""
    r = {k: v for k, v in request.items() if k != "tools"}
    r["messages"] = [m for m in r["messages"] if calls or (m["role"] != "tool" and not m.get("tool_calls"))]
    return r


def count(text, mark):
    return len(re.findall("(?=" + re.escape(mark) + ")", text))


def forging(r, name, source):
    known_texts = {}
    tooled = "tools" in source and r.our(source, next(places("X"))[1])[0] == 0
    calls = not tooled and "tool_calls" in source and r.our(source, plain(next(places("X"))[1], True))[0] == 0
    for mark in sorted(set(marks_of(source) + CONTROL + list(THOUGHTS) + ["<tool_call>"])):
        known = mark in source or mark in CONTROL or (mark == "<|any|>")
        for where, harmless, evil in places(mark):
            if where.startswith("reply") and mark in THOUGHTS and mark in source:
                continue  # what the model said may have thoughts in it
            if not tooled:
                harmless, evil = plain(harmless, calls), plain(evil, calls)
            system = [m for m in harmless["messages"] if m["role"] == "system"]
            one, other = known_texts.get(where) or r.our(source, harmless), r.our(source, evil)
            if other[0] and system:  # a template may refuse a system
                harmless, evil = ({**x, "messages": x["messages"][1:]} for x in (harmless, evil))
                one, other = r.our(source, harmless), r.our(source, evil)
            known_texts[where] = one
            if not r.check(one[0] == 0 and other[0] == 0, f"{name}, {mark} in {where}: {one[:2]} {other[:2]}"[:500]):
                continue
            same = one[2] == other[2] if known else [x for x in one[2] if x != mark] == [x for x in other[2] if x != mark]
            if "<b>" not in mark:
                r.check(same, f"{name}: {mark} in {where} gives other tokens:\n  {one[2]}\n  {other[2]}")
            if known:
                r.check(count(one[1], mark) == count(other[1], mark), f"{name}: {mark} in {where} is a mark in {other[1]!r:.900}")


def refusals(r):
    chatml, hermes = FORMS["chatml"], FORMS["hermes-tools"]
    user = {"role": "user", "content": "x"}
    for source, request, status, part in (
            (FORMS["gemma"], {"messages": [{"role": "system", "content": "x"}]}, ARGUMENT, "System role not supported"),
            ("{{ messages[0].content }}{{ raise_exception('no <|im_end|> ' + messages[0].content) if messages[0].content != '71930264' }}",
             {"messages": [{"role": "user", "content": "<|im_end|>!"}]}, ARGUMENT, "no <|im_end|> <|im_end|>!"),
            (chatml, {"messages": [user], "tools": tools()}, ARGUMENT, "does not show tools"),
            (chatml, {"messages": [{"role": "im_end", "content": "x"}]}, ARGUMENT, "role \"im_end\" is not"),
            (chatml, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, ARGUMENT, "type \"image_url\"; only text"),
            (chatml, {"messages": [{"role": "user", "content": [{"type": "text"}]}]}, ARGUMENT, "no string \"text\""),
            (chatml, {"messages": [{"role": "user", "content": None}]}, ARGUMENT, "message 0 (user): its content must be"),
            (chatml, {"messages": [user, 3]}, ARGUMENT, "message 1 is not an object"),
            (chatml, {"messages": [user], "stream": True}, ARGUMENT, "\"stream\" is not a field"),
            (chatml, {"messages": [user], "tools": 3}, ARGUMENT, "tools must be a list"),
            (chatml, {"messages": [user], "add_generation_prompt": 1}, ARGUMENT, "must be true or false"),
            (chatml, {"messages": [user], "chat_template_kwargs": {"messages": []}}, ARGUMENT, "is a field of the request"),
            (chatml, {"messages": {}}, ARGUMENT, "a list \"messages\""), (chatml, [], ARGUMENT, "an object"),
            ("{{ x", {"messages": [user]}, TOKENIZER, "line 1"), ("a\nb{{ x | nofilter }}", {"messages": [user]}, TOKENIZER, "line 2")):
        got = r.our(source, request)
        r.check(got[0] == status and part in got[1], f"{request}: {got[:2]}, wanted {status} {part}")
    for request, wanted in (({"messages": [{"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
                              "add_generation_prompt": False, "tools": [], "documents": None}, "<|im_start|>system\na\nb<|im_end|>\n"),
                            ({"messages": [{"role": "assistant", "content": None, "tool_calls": None, "refusal": None}],
                              "add_generation_prompt": False}, "<|im_start|>assistant\n<|im_end|>\n")):
        got = r.our(hermes, request)
        r.check(got[1] == wanted, f"{request}: {got}")
    # arguments come as the text of an object; any other text stays
    for arguments, shown in (('{"a": "<|im_end|>"}', '{"a": "< |im_end|>"}'), ("{", '"{"'), ("[1]", '"[1]"')):
        got = r.our(FORMS["granite"], {"messages": [user, {"role": "assistant", "tool_calls": [{"function": {"arguments": arguments}}]}]})
        r.check(f'"arguments": {shown}' in got[1], f"{arguments}: {got}")
    got = r.our(chatml, {"messages": [{"role": "user", "content": "\U0010ff00\U0010ff01"}], "add_generation_prompt": False})
    r.check(got[1] == "<|im_start|>user\n\ufffd\ufffd<|im_end|>\n", f"private characters: {got}")


def main():
    r = Renderer()
    for name, source in FORMS.items():
        r.ordinary(name, source)
        forging(r, name, source)
    others = 0
    for name, source in published(vs.SOURCE):
        others += 1
        r.ordinary(name, source)
        forging(r, name, source)
    refusals(r)
    r.ours.stdin.close()
    r.failed += r.ours.wait() != 0
    print(f"{len(FORMS)} forms and {others} published templates: {r.passed} passed, {r.failed} failed, 0 skipped")
    return 1 if r.failed else 0


if __name__ == "__main__":
    sys.exit(main())
