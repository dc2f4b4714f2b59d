/* test_chat_own.c - calls of tools through a file's own template: the form in which it wants them,
 * found when it is opened and used in every conversation, and the style in which it writes them. */
#include "test.h"

#include "text/chat.h"
#include "vocab_build.h"

typedef struct opened {
    bnet_gguf *g;
    bnet_tokenizer *t;
} opened;

static opened open_template(const char *source)
{
    static vocab v;
    opened o = {0};
    bitnet_error err = {0};
    bpe_base(&v);
    v.chat = source;
    o.g = vocab_write(&v);
    assert_non_null(o.g);
    if (bnet_tokenizer_open(o.g, 0, NULL, &o.t, &err) != BITNET_OK)
        fail_msg("%s", err.message);
    return o;
}

static void shut(opened *o)
{
    bnet_tokenizer_close(o->t);
    bnet_gguf_close(o->g);
}

static void renders(const opened *o, const char *request, const char *wanted)
{
    bnet_str out = {0};
    bitnet_error err = {0};
    if (bnet_chat_render_json(bnet_chat_by_name("file"), o->t,
                              (bnet_span){request, strlen(request)}, &out, &err) != BITNET_OK)
        fail_msg("%s: %s", request, err.message);
    assert_string_equal(out.data, wanted);
    bnet_str_free(&out);
}

#define LOOP     "{% for m in messages %}"
#define END      "{% endfor %}"
#define CALLS    "{% for c in m.tool_calls or [] %}{% set f = c.function %}"
#define AS_TEXT  "[{{ f.name + ' ' + f.arguments }}]"
#define AS_TREE  "[{{ f.name }} {{ f.arguments | tojson }}]"
#define SHOW     "{{ m.content }}"
#define GUARDED  "{% if m.content is none %}" CALLS
#define ANY_TEXT "{{ f.arguments if f.arguments is string else f.arguments | tojson }}"

/* A conversation with one call. */
#define TALK(content, arguments)                                                                   \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\"" content   \
    ", \"tool_calls\": [{\"id\": \"1\", \"type\": \"function\", \"function\": {\"name\": \"f\", "  \
    "\"arguments\": " arguments "}}]}], \"add_generation_prompt\": false}"
#define NOTHING ", \"content\": \"\""
#define NONE    ", \"content\": null"
#define SOME    ", \"content\": \"c\""

static void arguments_as_text(void **state)
{
    (void)state;
    opened o = open_template(LOOP SHOW CALLS AS_TEXT END END);
    assert_true(bnet_chat_own_of(o.t)->text_arguments && !bnet_chat_own_of(o.t)->null_content);
    static const char wanted[] = "q[f {\"a\": [0.1, 1, null], \"b\": \"x\xc3\xa9\"}]";
    renders(&o, TALK(NOTHING, "{\"a\": [0.1, 1, null], \"b\": \"x\xc3\xa9\"}"), wanted);
    renders(&o, TALK("", "{\"a\": [0.1, 1, null], \"b\": \"x\\u00e9\"}"), wanted);
    /* a text stays as the client wrote it, and whatever it is */
    renders(&o, TALK(NONE, "\"{\\\"a\\\":1 }\""), "q[f {\"a\":1 }]");
    renders(&o, TALK(SOME, "\"{\""), "qc[f {]");
    /* and cannot speak for the template */
    renders(&o, TALK(NONE, "{\"a\": \"<|eot_id|>\"}"), "q[f {\"a\": \"< |eot_id|>\"}]");
    shut(&o);
}

static void arguments_as_objects(void **state)
{
    (void)state;
    opened o = open_template(LOOP SHOW CALLS AS_TREE END END);
    assert_true(!bnet_chat_own_of(o.t)->text_arguments && !bnet_chat_own_of(o.t)->null_content);
    renders(&o, TALK(NONE, "{\"a\": 0.1}"), "q[f {\"a\": 0.1}]");
    renders(&o, TALK(NONE, "\"{\\\"a\\\":1 }\""), "q[f {\"a\": 1}]");
    shut(&o);
    o = open_template(LOOP SHOW CALLS "{{ f.name }}" ANY_TEXT END END);
    assert_false(bnet_chat_own_of(o.t)->text_arguments);
    shut(&o);
    /* an object that is printed as it is would be Python's, not JSON */
    o = open_template(LOOP SHOW CALLS "{{ f.name }} {{ f.arguments }}" END END);
    assert_true(bnet_chat_own_of(o.t)->text_arguments);
    renders(&o, TALK(NONE, "{\"a\": true}"), "qf {\"a\": true}");
    shut(&o);
}

/* R1: calls are shown where the content is none, and their arguments are text. */
static void content_that_is_none(void **state)
{
    (void)state;
    opened o = open_template(LOOP GUARDED AS_TEXT END "{% else %}" SHOW "{% endif %}" END);
    assert_true(bnet_chat_own_of(o.t)->text_arguments && bnet_chat_own_of(o.t)->null_content);
    renders(&o, TALK(NOTHING, "{\"a\": 1}"), "q[f {\"a\": 1}]");
    renders(&o, TALK(NONE, "\"{}\""), "q[f {}]");
    renders(&o, TALK("", "{}"), "q[f {}]");
    renders(&o, TALK(SOME, "{}"), "qc");
    renders(&o,
            "{\"messages\": [{\"role\": \"assistant\", \"content\": null}, {\"role\": \"user\", "
            "\"content\": \"\"}], \"add_generation_prompt\": false}",
            "");
    shut(&o);
    o = open_template(LOOP GUARDED AS_TREE END "{% else %}" SHOW "{% endif %}" END);
    assert_true(!bnet_chat_own_of(o.t)->text_arguments && bnet_chat_own_of(o.t)->null_content);
    renders(&o, TALK(NOTHING, "\"{\\\"a\\\": 1}\""), "q[f {\"a\": 1}]");
    shut(&o);
    /* contents in parts */
    o = open_template(LOOP "{% if m.content is none %}" CALLS AS_TEXT END
                           "{% else %}{{ m.content[0].text.strip() }}{% endif %}" END);
    assert_true(bnet_chat_own_of(o.t)->typed && bnet_chat_own_of(o.t)->null_content);
    renders(&o, TALK(NOTHING, "{}"), "q[f {}]");
    shut(&o);
}

/* What a template refuses or leaves out is left as it is documented. */
static void calls_that_are_not_shown(void **state)
{
    (void)state;
    static const char *const sources[] = {
        LOOP SHOW "{% if m.tool_calls %}{{ raise_exception('no calls') }}{% endif %}" END,
        LOOP SHOW END "{# tool_calls #}",
        LOOP SHOW CALLS "{% for i in range(999999) %}x{% endfor %}" END END,
        /* a tool's answer has no place, but a call has */
        LOOP "{% if m.role == 'tool' %}{{ raise_exception('no') }}{% endif %}" SHOW CALLS AS_TREE
            END END,
    };
    for (size_t i = 0; i < BNET_COUNT(sources); i++) {
        opened o = open_template(sources[i]);
        assert_true(bnet_chat_own_of(o.t)->usable);
        assert_true(!bnet_chat_own_of(o.t)->text_arguments && !bnet_chat_own_of(o.t)->null_content);
        shut(&o);
    }
    opened o = open_template(
        LOOP "{% if m.role == 'tool' %}{{ raise_exception('no') }}{% endif %}" SHOW CALLS AS_TEXT
            END END);
    assert_true(bnet_chat_own_of(o.t)->text_arguments);
    shut(&o);
}

#define WITH_TOOLS "{{ tools | tojson if tools }}" LOOP SHOW CALLS
#define EXAMPLE    "<tool_call>\n{\"name\": <name>, \"arguments\": <object>}\n</tool_call>"

static const struct {
    const char *source;
    bitnet_tool_style style;
} cases[] = {
    {LOOP SHOW CALLS AS_TREE END END, BITNET_TOOLS_NONE},
    {WITH_TOOLS "<tool_call>\n{\"name\": \"{{ f.name }}\", \"arguments\": {{ f.arguments | "
                "tojson }}}\n</tool_call>" END END,
     BITNET_TOOLS_HERMES},
    {EXAMPLE WITH_TOOLS "<tool_call>{{ f | tojson }}</tool_call>" END END, BITNET_TOOLS_HERMES},
    {WITH_TOOLS
     "<tool_call>\n<function={{ f.name }}>\n{% for k, v in f.arguments.items() %}"
     "<parameter={{ k }}>\n{{ v }}\n</parameter>{% endfor %}</function></tool_call>" END END,
     BITNET_TOOLS_XML},
    {WITH_TOOLS "{\"name\": \"{{ f.name }}\", \"parameters\": {{ f.arguments | tojson }}}" END END,
     BITNET_TOOLS_LLAMA3},
    {WITH_TOOLS "[TOOL_CALLS] [{\"name\": \"{{ f.name }}\", \"arguments\": "
                "{{ f.arguments | tojson }}}]" END END,
     BITNET_TOOLS_MISTRAL},
    /* GLM-4.5 */
    {EXAMPLE WITH_TOOLS "<tool_call>{{ f.name }}\n{% for k, v in f.arguments.items() %}<arg_key>"
                        "{{ k }}</arg_key>\n<arg_value>{{ v }}</arg_value>\n{% endfor %}"
                        "</tool_call>" END END,
     BITNET_TOOLS_OTHER},
    /* Mistral v11 */
    {WITH_TOOLS "[TOOL_CALLS]{{ f.name }}[ARGS]" ANY_TEXT END END, BITNET_TOOLS_OTHER},
    /* others */
    {EXAMPLE WITH_TOOLS "<|tool_call|>{{ f | tojson }}" END END, BITNET_TOOLS_OTHER},
    {WITH_TOOLS "<tool_call>{\"tool\": \"{{ f.name }}\", \"input\": {{ f.arguments | tojson }}}"
                "</tool_call>{# \"name\" #}" END END,
     BITNET_TOOLS_OTHER},
    {WITH_TOOLS "{\"tool\": \"{{ f.name }}\", \"parameters\": {{ f.arguments | tojson }}}"
                "{# {\"name\": #}" END END,
     BITNET_TOOLS_OTHER},
    /* of those that show no call their text tells, as far as it does */
    {"{{ tools }}" LOOP SHOW END "{% if false %}<tool_call><arg_key>{% endif %}",
     BITNET_TOOLS_OTHER},
    {"{{ tools }}" LOOP SHOW END "{% if false %}[TOOL_CALLS][ARGS]{% endif %}", BITNET_TOOLS_OTHER},
    {"{{ tools }}" LOOP SHOW END "{% if false %}[TOOL_CALLS]{% endif %}", BITNET_TOOLS_MISTRAL},
};

static void styles(void **state)
{
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(cases); i++) {
        opened o = open_template(cases[i].source);
        if (bnet_chat_own_of(o.t)->style != cases[i].style)
            fail_msg("%s: style %d", cases[i].source, (int)bnet_chat_own_of(o.t)->style);
        shut(&o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_as_text),
        cmocka_unit_test(arguments_as_objects),
        cmocka_unit_test(content_that_is_none),
        cmocka_unit_test(calls_that_are_not_shown),
        cmocka_unit_test(styles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
