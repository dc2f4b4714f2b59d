"""templates.py - chat templates in the forms of well-known families, written for these tests: what such a template writes is
the family's, how it says so is ours. `published()` has those that other projects ship, where a copy was fetched."""
import glob
import os

TURN = "{% for message in messages %}"
JSON_CALL = ("{% for call in message.tool_calls %}{% set f = call.function if call.function is defined else call %}"
             "\n<tool_call>\n{\"name\": \"{{ f.name }}\", \"arguments\": {{ f.arguments if f.arguments is string else f.arguments | tojson }}}"
             "\n</tool_call>{% endfor %}")

FORMS = {
    "chatml": TURN + "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
              "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "chatml-default-system": "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}{% endif %}"
              + TURN + "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] | trim + '<|im_end|>' + '\\n' }}{% endfor %}"
              "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    "hermes-tools": """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{% endif %}
    {{- 'Call functions inside <tools></tools>:\\n<tools>' }}
    {%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{% endfor %}
    {{- '\\n</tools>\\nAnswer <tool_call>\\n{\"name\": <name>, \"arguments\": <object>}\\n</tool_call><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) or (message.role == 'assistant' and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant' }}{% if message.content %}{{- '\\n' + message.content }}{% endif %}
        """ + JSON_CALL + """{{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.index0 == 0 or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{% endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{% endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}
""",
    "thinking": """{%- set ns = namespace(last=-1) %}
{%- for message in messages %}{% if message.role == 'user' and not message.content.startswith('<tool_response>') %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == 'assistant' %}
        {%- set thought = '' %}
        {%- if message.reasoning_content is string %}{% set thought = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if loop.index0 > ns.last and thought %}{{- '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' }}{% endif %}
        {{- content }}{{- '<|im_end|>\\n' }}
    {%- else %}{{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{% endif %}
{%- endif %}""",
    "llama2": "{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set sys = '<<SYS>>\\n' + messages[0]['content'] + '\\n<</SYS>>\\n\\n' %}"
              "{% else %}{% set rest = messages %}{% set sys = '' %}{% endif %}{% for m in rest %}"
              "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate user/assistant') }}{% endif %}"
              "{% if m['role'] == 'user' %}{{ bos_token + '[INST] ' + (sys if loop.first else '') + m['content'].strip() + ' [/INST]' }}"
              "{% elif m['role'] == 'assistant' %}{{ ' ' + m['content'].strip() + ' ' + eos_token }}{% endif %}{% endfor %}",
    "llama3-tools": """{{- bos_token }}
{%- if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}
{%- if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] | trim %}{% set messages = messages[1:] %}{% else %}{% set system = '' %}{% endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}
{%- if tools is not none %}{{- 'Environment: ipython\\n' }}{% endif %}
{{- 'Today: ' + date_string + '\\n\\n' }}
{%- if tools is not none %}
    {{- 'Answer {"name": function name, "parameters": dictionary of arguments}.\\n\\n' }}
    {%- for t in tools %}{{- t | tojson(indent=4) }}{{- '\\n\\n' }}{% endfor %}
{%- endif %}
{{- system + '<|eot_id|>' }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if message.tool_calls | length != 1 %}{{- raise_exception('one call at a time') }}{% endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' + call.name + '", "parameters": ' }}
        {{- call.arguments | tojson }}{{- '}<|eot_id|>' }}
    {%- else %}
        {{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' }}
        {%- if message.content is mapping or message.content is iterable %}{{- message.content | tojson }}{% else %}{{- message.content }}{% endif %}
        {{- '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}
""",
    "mistral-tools": """{%- if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] %}{% set loop_messages = messages[1:] %}{% else %}{% set loop_messages = messages %}{% endif %}
{{- bos_token }}
{%- for m in loop_messages %}
    {%- if m.role == 'user' %}
        {%- if tools and loop.index0 == 0 %}{{- '[AVAILABLE_TOOLS] [' }}{% for t in tools %}{{- t.function | tojson }}{{- ', ' if not loop.last }}{% endfor %}{{- '][/AVAILABLE_TOOLS]' }}{% endif %}
        {{- '[INST] ' + (system + '\\n\\n' if loop.last and system is defined else '') + m.content + '[/INST]' }}
    {%- elif m.tool_calls is defined %}
        {{- '[TOOL_CALLS] [' }}{% for c in m.tool_calls %}{{- '{"name": "' + c.function.name + '", "arguments": ' }}{{- c.function.arguments | tojson }}{{- '}' + (', ' if not loop.last else ']') }}{% endfor %}{{- eos_token }}
    {%- elif m.role == 'assistant' %}{{- ' ' + m.content + eos_token }}
    {%- elif m.role == 'tool' %}{{- '[TOOL_RESULTS] {"content": ' + m.content | string + '}[/TOOL_RESULTS]' }}
    {%- else %}{{- raise_exception('Only user, assistant and tool') }}
    {%- endif %}
{%- endfor %}""",
    "phi3": TURN + "{% if message['role'] in ['system', 'user', 'assistant'] %}{{ '<|' + message['role'] + '|>\\n' + message['content'] + '<|end|>\\n' }}"
            "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}",
    "zephyr": TURN + "\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + message['content'] + eos_token }}\n"
              "{% elif message['role'] == 'system' %}\n{{ '<|system|>\n' + message['content'] + eos_token }}\n"
              "{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\n' + message['content'] + eos_token }}\n{% endif %}\n"
              "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}",
    "gemma": "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" + TURN +
             "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}"
             "{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}"
             "{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}"
             "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}",
    "fullwidth": "{% set ns = namespace(system='') %}{% for m in messages if m.role == 'system' %}{% set ns.system = ns.system + m.content %}{% endfor %}"
                 "{{ bos_token ~ ns.system }}{% for m in messages %}{% if m.role == 'user' %}{{ '<\uff5cUser\uff5c>' + m.content }}"
                 "{% elif m.role == 'assistant' %}{{ '<\uff5cAssistant\uff5c>' + m.content.split('</think>')[-1] + '<\uff5cend\u2581of\u2581sentence\uff5c>' }}"
                 "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<\uff5cAssistant\uff5c>' }}{% endif %}",
    "command": "{{ bos_token }}" + TURN + "<|START_OF_TURN_TOKEN|>{% if message.role == 'user' %}<|USER_TOKEN|>{% elif message.role == 'assistant' %}"
               "<|CHATBOT_TOKEN|>{% else %}<|SYSTEM_TOKEN|>{% endif %}{{ message.content.strip() }}<|END_OF_TURN_TOKEN|>{% endfor %}"
               "{% if add_generation_prompt %}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{% endif %}",
    "granite": "{%- if tools %}{{- '<|start_of_role|>available_tools<|end_of_role|>\\n' + tools | map('tojson') | join('\\n') + '<|end_of_text|>\\n' }}{%- endif %}"
               "{%- for m in messages %}{{- '<|start_of_role|>' + m['role'] + '<|end_of_role|>' + (m['content'] if not m.tool_calls else '<|tool_call|>' + m.tool_calls | tojson) + '<|end_of_text|>\\n' }}{%- endfor %}"
               "{%- if add_generation_prompt %}{{- '<|start_of_role|>assistant<|end_of_role|>' }}{% endif %}",
    "glm": "[gMASK]<sop>{% if tools %}<|system|>\n# Tools{% for t in tools %}\n## {{ t.function.name }}\n{{ t.function | tojson(indent=4) }}{% endfor %}{% endif %}"
           "{% for m in messages %}{% if m.role == 'tool' %}<|observation|>\n{{ m.content }}{% elif m.tool_calls %}<|assistant|>{{ m.tool_calls[0].function.name }}\n"
           "{{ m.tool_calls[0].function.arguments | tojson }}{% else %}<|{{ m.role }}|>\n{{ m.content }}{% endif %}{% endfor %}"
           "{% if add_generation_prompt %}<|assistant|>{% endif %}",
    "deepseek-r1": "{{ bos_token }}{% set ns = namespace(first=true) %}{% for m in messages %}{% if m['role'] == 'user' %}{{ '<\uff5cUser\uff5c>' + m['content'] }}{% endif %}"
                   "{% if m['role'] == 'assistant' and m['content'] is none %}{% for t in m['tool_calls'] %}{{ ('<\uff5cAssistant\uff5c>' if loop.first else '\\n') + '<\uff5ctool\u2581call\u2581begin\uff5c>'"
                   " + t['type'] + '<\uff5ctool\u2581sep\uff5c>' + t['function']['name'] + '\\n```json\\n' + t['function']['arguments'] + '\\n```<\uff5ctool\u2581call\u2581end\uff5c>' }}{% endfor %}{% endif %}"
                   "{% if m['role'] == 'assistant' and m['content'] is not none %}{{ '<\uff5cAssistant\uff5c>' + m['content'].split('</think>')[-1] + '<\uff5cend\u2581of\u2581sentence\uff5c>' }}{% endif %}"
                   "{% if m['role'] == 'tool' %}{{ '<\uff5ctool\u2581output\u2581begin\uff5c>' + m['content'] + '<\uff5ctool\u2581output\u2581end\uff5c>' }}{% endif %}{% endfor %}"
                   "{% if add_generation_prompt %}{{ '<\uff5cAssistant\uff5c><think>\\n' }}{% endif %}",
    "deepseek-v3": "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}{{ '<\uff5cUser\uff5c>' + m['content'] }}{% elif m['role'] == 'assistant' and 'tool_calls' in m %}"
                   "{{ '<\uff5cAssistant\uff5c>' + (m['content'] if m['content'] is not none else '') }}{% for t in m['tool_calls'] %}{{ t['type'] + '<\uff5ctool\u2581sep\uff5c>' + t['function']['name'] + '\\n'"
                   " + t['function']['arguments'] + '\\n' }}{% endfor %}{% elif m['role'] == 'tool' %}{{ '<\uff5ctool\u2581output\u2581begin\uff5c>' + m['content'] }}{% elif m['role'] == 'assistant' %}"
                   "{{ '<\uff5cAssistant\uff5c>' + m['content'] + '<\uff5cend\u2581of\u2581sentence\uff5c>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<\uff5cAssistant\uff5c>' }}{% endif %}",
    "glm-4.5": "[gMASK]<sop>{% if tools %}<|system|>\n<tools>{% for t in tools %}\n{{ t | tojson }}{% endfor %}\n</tools>\n<tool_call>{function-name}\n<arg_key>{key}</arg_key>\n</tool_call>{% endif %}"
               "{% for m in messages %}{% if m.role == 'tool' %}<|observation|>\n<tool_response>\n{{ m.content }}\n</tool_response>{% else %}<|{{ m.role }}|>\n{{ m.content }}{% for c in m.tool_calls or [] %}"
               "\n<tool_call>{{ c.function.name }}\n{% for k, v in c.function.arguments.items() %}<arg_key>{{ k }}</arg_key>\n<arg_value>{{ v if v is string else v | tojson }}</arg_value>\n{% endfor %}</tool_call>"
               "{% endfor %}{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}",
    "mistral-v11": "{{- bos_token }}{%- if tools %}{{- '[AVAILABLE_TOOLS]' + tools | tojson + '[/AVAILABLE_TOOLS]' }}{%- endif %}{%- for m in messages %}{%- if m.role == 'user' %}{{- '[INST]' + m.content + '[/INST]' }}"
                   "{%- elif m.role == 'system' %}{{- '[SYSTEM_PROMPT]' + m.content + '[/SYSTEM_PROMPT]' }}{%- elif m.role == 'tool' %}{{- '[TOOL_RESULTS]' + m.content + '[/TOOL_RESULTS]' }}"
                   "{%- elif m.tool_calls %}{%- for c in m.tool_calls %}{%- set a = c.function.arguments %}{{- '[TOOL_CALLS]' + c.function.name + '[ARGS]' + (a if a is string else a | tojson) }}{%- endfor %}{{- eos_token }}"
                   "{%- else %}{{- m.content + eos_token }}{%- endif %}{%- endfor %}",
    "falcon": "{% if tools %}{{ '<|system|>\\nTools: ' }}{% for t in tools %}{{ t | tojson }}{% endfor %}{{ '\\n' }}{% endif %}" + TURN +
              "{% if message['role'] == 'system' and not loop.first %}{{ raise_exception('a late system message') }}{% endif %}"
              "{{ '<|' ~ message['role'] ~ '|>\\n' ~ message['content'] ~ ('\\n' if not loop.last or message['role'] != 'assistant' else eos_token) }}"
              "{% if message.tool_calls %}" + JSON_CALL + "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}",
    "functions": """{%- macro show(tool) %}<function>
<name>{{ tool.name }}</name>
{% for k, v in (tool.parameters.properties | default({})).items() %}<parameter name="{{ k }}">{{ v | tojson }}</parameter>
{% endfor %}</function>{% endmacro %}
{%- if tools %}<|im_start|>system
<tools>{% for t in tools %}{{ show(t.function) }}{% endfor %}</tools><|im_end|>
{% endif %}
{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls | default([]) %}
<tool_call>
<function={{ c.function.name }}>
{% for k, v in c.function.arguments.items() %}<parameter={{ k }}>
{{ v if v is string else v | tojson }}
</parameter>
{% endfor %}</function>
</tool_call>{% endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}""",
    "channels": """{%- for m in messages %}
    {%- if m.role in ['system', 'developer'] %}{{- '<|start|>developer<|message|># Instructions\\n\\n' + m.content + '<|end|>' }}
    {%- elif m.role == 'assistant' %}
        {%- if m.reasoning_content %}{{- '<|start|>assistant<|channel|>analysis<|message|>' + m.reasoning_content + '<|end|>' }}{% endif %}
        {{- '<|start|>assistant<|channel|>final<|message|>' + m.content + '<|end|>' }}
    {%- elif m.role == 'tool' %}{{- '<|start|>functions.' + m.name | default('tool') + ' to=assistant<|channel|>commentary<|message|>' + m.content | tojson + '<|end|>' }}
    {%- else %}{{- '<|start|>user<|message|>' + m.content + '<|end|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|start|>assistant{% endif %}""",
    "parts": "{% for m in messages %}<|im_start|>{{ m.role }}\n{% for part in m.content %}{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
             "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "words": "{% for m in messages %}{% if m.role == 'system' %}{{ m.content + '\\n\\n' }}{% elif m.role == 'user' %}{{ '### Instruction:\\n' + m.content + '\\n\\n' }}"
             "{% else %}{{ '### Response:\\n' + m.content + eos_token + '\\n\\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '### Response:\\n' }}{% endif %}",
    "capital-untrimmed": TURN + "{{ (bos_token if loop.first else '') + message['role'] | capitalize + ': ' + message['content'] + '<|eot_id|>' }}{% endfor %}"
                         "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}",
}
TYPED = {"parts"}
CALL_FORMS = {"deepseek-r1": (True, True), "deepseek-v3": (True, False)}  # arguments as text; null beside calls


def published(source):
    """(name, text) of templates that other projects ship."""
    for path in sorted(glob.glob(os.path.join(source, "build", "venv", "lib", "python3*", "site-packages", "axolotl", "**", "*.jinja"), recursive=True)):
        with open(path, encoding="utf-8") as f:
            yield os.path.basename(path), f.read()
