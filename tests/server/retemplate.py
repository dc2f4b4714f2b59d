"""A copy of a GGUF file with another chat template: retemplate(old, new, template). Reads and writes the header with the
standard library alone; tensors are copied as they are."""
import struct

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY = 8, 9
KEY = b"tokenizer.chat_template"
ALIGNMENT = 32


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, form):
        value = struct.unpack_from("<" + form, self.data, self.at)[0]
        self.at += struct.calcsize(form)
        return value

    def text(self):
        n = self.number("Q")
        self.at += n
        return self.data[self.at - n:self.at]

    def value(self, kind):
        """Passes over a value."""
        if kind == STRING:
            self.text()
        elif kind == ARRAY:
            inner, n = self.number("I"), self.number("Q")
            if inner in SIZES:
                self.at += SIZES[inner] * n
            else:
                for _ in range(n):
                    self.value(inner)
        else:
            self.at += SIZES[kind]


def pairs_without_template(r, n):
    """The bytes of all pairs but the template's, and their number."""
    kept, count = [], 0
    for _ in range(n):
        start = r.at
        key = r.text()
        r.value(r.number("I"))
        if key != KEY:
            kept.append(r.data[start:r.at])
            count += 1
    return b"".join(kept), count


def retemplate(old, new, template):
    with open(old, "rb") as f:
        data = f.read()
    r = Reader(data)
    magic, n_tensors, n_pairs = r.data[:8], *struct.unpack_from("<QQ", data, 8)
    r.at = 24
    pairs, n_kept = pairs_without_template(r, n_pairs)
    begin = r.at
    for _ in range(n_tensors):
        r.text()
        n_dims = r.number("I")
        r.at += 8 * n_dims + 4 + 8
    infos, rest = data[begin:r.at], data[-(-r.at // ALIGNMENT) * ALIGNMENT:]
    text = template.encode()
    pairs += struct.pack("<Q", len(KEY)) + KEY + struct.pack("<IQ", STRING, len(text)) + text
    head = magic + struct.pack("<QQ", n_tensors, n_kept + 1) + pairs + infos
    with open(new, "wb") as f:
        f.write(head + b"\0" * (-len(head) % ALIGNMENT) + rest)
    return new


# How Hermes and Qwen models are shown tools and write calls, in its shortest form.
HERMES = """{%- if tools %}System: {% for tool in tools %}{{ tool | tojson }}
{% endfor %}{{ eos_token }}{% endif -%}
{%- for message in messages -%}
{%- if message.role == 'tool' -%}User: <tool_response>{{ message.content }}</tool_response>{{ eos_token }}
{%- elif message.tool_calls -%}
Assistant:{% for call in message.tool_calls %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}{{ eos_token }}
{%- else -%}{{ message.role | capitalize }}: {{ message.content }}{{ eos_token }}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}Assistant:{% if enable_thinking is defined and enable_thinking %} <think>
{% endif %}{%- endif -%}"""

# The same for models that write calls as Qwen3-Coder does.
XML = HERMES.replace("""{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}""",
                     """<function={{ call.function.name }}>
{% for key, value in call.function.arguments.items() %}<parameter={{ key }}>
{{ value }}
</parameter>
{% endfor %}</function>""")

# A model that always thinks, whatever it is told.
THINKS = HERMES.replace("{% if enable_thinking is defined and enable_thinking %} <think>\n{% endif %}", " <think>\n")
