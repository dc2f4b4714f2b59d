/* test_split.c - what is said, thought and called comes out the same however the text is cut into
 * pieces, and what only looks like a call stays text. */
#include "test.h"

#include "../../../server/ask/json_text.c"
#include "../../../server/ask/split.h"
#include "../../../server/ask/textbuf.c"
#include "../../../server/http/json_limits.c"

/* Everything a split tells, as one text: said as it is, thoughts in (), calls as {index name args},
 * with ... where the arguments were cut. */
typedef struct told {
    srv_textbuf text;
    srv_delta_kind last;
} told;

static void open_piece(told *t, const srv_piece *p)
{
    char index[16];
    if (t->last == SRV_DELTA_REASONING && p->kind != SRV_DELTA_REASONING)
        srv_textbuf_str(&t->text, ")");
    if (p->kind == SRV_DELTA_REASONING && t->last != SRV_DELTA_REASONING)
        srv_textbuf_str(&t->text, "(");
    if (p->kind == SRV_DELTA_TOOL_BEGIN) {
        snprintf(index, sizeof index, "{%d ", p->tool_index);
        srv_textbuf_str(&t->text, index);
    }
}

static void take(told *t, srv_split *s)
{
    srv_piece p;
    while (srv_split_next(s, &p)) {
        open_piece(t, &p);
        srv_textbuf_add(&t->text, p.text, p.n_text);
        if (p.kind == SRV_DELTA_TOOL_BEGIN) {
            assert_int_equal(p.text[p.n_text], 0);
            srv_textbuf_str(&t->text, " ");
        }
        if (p.kind == SRV_DELTA_TOOL_END)
            srv_textbuf_str(&t->text, p.cut ? "...}" : "}");
        t->last = p.kind;
    }
}

/* The text cut after every `step` bytes. */
static void expect_cut(srv_split_options o, const char *text, const char *want, size_t step)
{
    told t = {.last = SRV_DELTA_TEXT};
    size_t n = strlen(text);
    srv_split *s = srv_split_open(&o);
    assert_non_null(s);
    for (size_t i = 0; i < n; i += step) {
        assert_true(srv_split_push(s, text + i, n - i < step ? n - i : step));
        take(&t, s);
    }
    assert_true(srv_split_finish(s));
    take(&t, s);
    if (t.last == SRV_DELTA_REASONING)
        srv_textbuf_str(&t.text, ")");
    assert_string_equal(t.text.n ? t.text.data : "", want);
    srv_textbuf_free(&t.text);
    srv_split_close(s);
}

static void expect_one(srv_split_options o, const char *text, const char *want)
{
    for (size_t step = 1; step <= strlen(text) + 1; step++)
        expect_cut(o, text, want, step);
}

/* The same where calls are told as they come, and where they are told whole. */
static void expect(srv_split_options o, const char *text, const char *want)
{
    o.whole = true;
    expect_one(o, text, want);
    o.whole = false;
    expect_one(o, text, want);
}

/* It stays text where calls are told whole; `want`: what is told of it as it comes. */
static void expect_broken(srv_split_options o, const char *text, const char *want)
{
    o.whole = true;
    expect_one(o, text, text);
    o.whole = false;
    expect_one(o, text, want);
}

static json_t *two_tools(void)
{
    return json_pack("[{s:{s:s}}, {s:{s:s}}]", "function", "name", "add", "function", "name",
                     "look");
}

static void test_plain_text_is_untouched(void **state)
{
    (void)state;
    expect((srv_split_options){0}, " Hello <think> [TOOL_CALLS] {\"name\": 1} ",
           " Hello <think> [TOOL_CALLS] {\"name\": 1} ");
    expect((srv_split_options){0}, "", "");
}

static void test_thoughts_come_apart(void **state)
{
    srv_split_options o = {.reasoning = true}, inside = {.reasoning = true, .thinking = true};
    (void)state;
    expect(o, "<think>\nI see.\n</think>\n\nYes.", "(I see.)Yes.");
    expect(o, "\n<think>a < b </thin> c</think>d", "(a < b </thin> c)d");
    expect(o, "<thin>no</thin>", "<thin>no</thin>");
    expect(o, "Yes <think>no</think>", "Yes <think>no</think>");
    expect(o, "<think>never ends", "(never ends)");
    expect(o, "<think>\n\n</think>\n\nYes", "Yes");
    expect(inside, "\nI see.</think>Yes.", "(I see.)Yes.");
}

static void test_hermes_calls(void **state)
{
    json_t *tools = two_tools();
    srv_split_options o = {.style = SRV_TOOLS_HERMES, .tools = tools};
    (void)state;
    expect(o,
           "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": [1, {}], \"b\": \"}\\\"{\"}}\n"
           "</tool_call>",
           "{0 add {\"a\": [1, {}], \"b\": \"}\\\"{\"}}");
    expect(o,
           "Well.\n<tool_call>{\"name\":\"add\",\"arguments\":{}}</tool_call>\n<tool_call>"
           "{\"name\":\"look\",\"arguments\":{\"x\":1}}</tool_call>\n",
           "Well.{0 add {}}{1 look {\"x\":1}}");
    expect(o, "<tool_call>{\"arguments\": {\"x\": 1}, \"name\": \"look\"}</tool_call> Done.",
           "{0 look {\"x\": 1}}Done.");
    expect(o, "<tool_call>{\"name\": \"look\", \"id\": {}, \"arguments\": {\"x\": 1}}</tool_call>",
           "{0 look {\"x\": 1}}");
    /* what stands behind null is another member's */
    expect(o, "<tool_call>{\"name\":\"look\",\"arguments\":null,\"id\":{\"x\":1}}</tool_call>",
           "<tool_call>{\"name\":\"look\",\"arguments\":null,\"id\":{\"x\":1}}</tool_call>");
    json_decref(tools);
}

static void test_what_is_said_around_calls_is_parted(void **state)
{
#define ADD "<tool_call>{\"name\":\"add\",\"arguments\":{}}</tool_call>"
    json_t *tools = two_tools();
    srv_split_options o = {.style = SRV_TOOLS_HERMES, .tools = tools};
    (void)state;
    expect(o, "Sure. " ADD " done", "Sure.{0 add {}} done");
    expect(o, "Sure.\n\n" ADD "\n" ADD "\nDone. " ADD "\n",
           "Sure.{0 add {}}{1 add {}}\n\nDone.{2 add {}}");
    expect(o, "Sure." ADD "done", "Sure.{0 add {}} done");
    expect(o, "Sure. " ADD " \n", "Sure.{0 add {}}");
    expect(o, " " ADD " done", "{0 add {}}done");
    expect(o, "a " ADD " b " ADD "\nc", "a{0 add {}} b{1 add {}} c");
    expect(o, "a " ADD " <tool_call>b", "a{0 add {}} <tool_call>b");
    o.style = SRV_TOOLS_XML;
    expect(o, "Sure. <tool_call><function=add></function></tool_call> done",
           "Sure.{0 add {}} done");
    json_decref(tools);
#undef ADD
}

/* A tool with a schema, and one without. */
static json_t *typed_tools(void)
{
    return json_pack(
        "[{s:{s:s, s:{s:{s:{s:s}, s:{s:s}, s:{s:[ss]}, s:{}, s:{s:s}, s:{s:[ss]}}}}}, {s:{s:s}}]",
        "function", "name", "add", "parameters", "properties", "text", "type", "string", "n",
        "type", "integer", "e", "enum", "1", "2", "any", "l", "type", "array", "maybe", "type",
        "string", "null", "function", "name", "look");
}

static void test_xml_calls(void **state)
{
    json_t *tools = typed_tools();
    srv_split_options o = {.style = SRV_TOOLS_XML, .tools = tools};
    (void)state;
    expect(o,
           "I see.\n<tool_call>\n<function=add>\n<parameter=text>\n12\n</parameter>\n"
           "<parameter=n>\n12\n</parameter>\n</function>\n</tool_call>",
           "I see.{0 add {\"text\": \"12\", \"n\": 12}}");
    expect(o,
           "<tool_call><function=look></function></tool_call>\n<tool_call>\n<function=look>"
           "<parameter=x>5</parameter></function></tool_call> Done.",
           "{0 look {}}{1 look {\"x\": \"5\"}}Done.");
    expect(o,
           "<tool_call><function=add><parameter=text>\n\na < b </param> \"q\"\n\n</parameter>"
           "<parameter=e>1</parameter><parameter=any>{\"a\": [1]}</parameter>"
           "<parameter=l>[1, </parameter><parameter=n>True</parameter></function></tool_call>",
           "{0 add {\"text\": \"\\na < b </param> \\\"q\\\"\\n\", \"e\": \"1\", "
           "\"any\": {\"a\": [1]}, \"l\": \"[1, \", \"n\": true}}");
    expect(o, "<tool_call><function=add><parameter=maybe>123</parameter></function></tool_call>",
           "{0 add {\"maybe\": \"123\"}}");
    /* a name once, as it was told first; in the next call it is new */
    expect(o,
           "<tool_call><function=add><parameter=n>1</parameter><parameter=n>2</parameter>"
           "</function></tool_call><tool_call><function=add><parameter=n>3</parameter></function>"
           "</tool_call>",
           "{0 add {\"n\": 1}}{1 add {\"n\": 3}}");
    /* something between parameters is nobody's */
    expect(o, "<tool_call><function=add>x <y> <parameter=n>1</parameter>z</function>\n</tool_call>",
           "{0 add {\"n\": 1}}");
    json_decref(tools);
}

static void test_xml_that_is_cut_or_no_call(void **state)
{
    static const char *const texts[] = {
        "<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>",
        "<tool_call>\n<function=sub><parameter=n>1</parameter></function></tool_call>",
        "<tool_call><function=></function></tool_call>",
        "<tool_call><function=a\ndd></function></tool_call>",
        "<tool_call><functio",
        "<function=add></function>",
        "<tool_call>",
    };
    json_t *tools = typed_tools();
    srv_split_options o = {.style = SRV_TOOLS_XML, .tools = tools};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        expect(o, texts[i], texts[i]);
    expect(o, "<tool_call><function=add>", "{0 add ...}");
    expect(o, "<tool_call><function=add><parameter=n>1</parameter><parameter=text>abc</para",
           "{0 add {\"n\": 1...}");
    expect(o, "<tool_call><function=add><parameter=n>1</parameter></function>",
           "{0 add {\"n\": 1}}");
    expect(o, "<tool_call><function=add></function></tool_", "{0 add {}}");
    json_decref(tools);
}

static void test_what_is_no_call_stays_text(void **state)
{
    static const char *const texts[] = {
        "<tool_call>hello</tool_call>",
        "<tool_call>{\"name\": \"fly\", \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"add\", \"arguments\": 3}</tool_call>",
        "<tool_call>{\"name\": \"add\"",
        "<tool_call>",
        "<tool_cal",
        "a <b> c",
        "<tool_call>{nonsense}</tool_call>",
        ("Well. <tool_call>\n{\"name\": \"fly\", \"arguments\": {\"a\": 7, \"b\": [5, \"}\"]}}\n"
         "</tool_call>"),
    };
    json_t *tools = two_tools();
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        expect((srv_split_options){.style = SRV_TOOLS_HERMES, .tools = tools}, texts[i], texts[i]);
    json_decref(tools);
}

static void test_what_turns_out_to_be_no_json_is_no_call(void **state)
{
    json_t *tools = two_tools();
    srv_split_options o = {.style = SRV_TOOLS_HERMES, .tools = tools};
    (void)state;
    expect_broken(o, "<tool_call>{\"name\":\"add\",\"arguments\":{bad}}</tool_call>",
                  "{0 add {bad...}}}</tool_call>");
    expect_broken(o, "<tool_call>{\"name\":\"add\",\"arguments\":{\"x\":1]}}</tool_call> z",
                  "{0 add {\"x\":1...}]}}</tool_call> z");
    expect_broken(o, "<tool_call>{\"name\":\"add\",\"arguments\":{\"x\":[1}}}</tool_call>",
                  "{0 add {\"x\":[1...}}}}</tool_call>");
    expect_broken(o, "<tool_call>{\"name\":\"add\",\"arguments\":{\"x\":1,}}</tool_call>",
                  "{0 add {\"x\":1,...}}}</tool_call>");
    /* the arguments are good, what is around them is not */
    expect_broken(o, "<tool_call>{\"name\":\"add\",\"arguments\":{\"x\":1}, oops}</tool_call>",
                  "{0 add {\"x\":1}...}, oops}</tool_call>");
    expect_broken(o, "<tool_call>{\"name\":\"add\",\"arguments\":{}]</tool_call>",
                  "{0 add {}...}]</tool_call>");
    expect_broken(o, "<tool_call>{\"name\":\"add\",\"arguments\":{\"x\":1}, \"id\":7]</tool_call>",
                  "{0 add {\"x\":1}...}, \"id\":7]</tool_call>");
    /* the outer brace is missing: the mark ends it */
    expect_broken(o, "<tool_call>{\"name\":\"add\",\"arguments\":{\"x\":1}</tool_call> and more",
                  "{0 add {\"x\":1}...}</tool_call> and more");
    /* JSON, but of no kind that can be handed on as a value */
    expect_broken(o, "<tool_call>{\"name\":\"add\",\"arguments\":{\"\\u0000\":1}}</tool_call>",
                  "{0 add {\"\\u0000\":1...}}}</tool_call>");
    expect(o, "<tool_call>{\"arguments\":{bad},\"name\":\"add\"}</tool_call>",
           "<tool_call>{\"arguments\":{bad},\"name\":\"add\"}</tool_call>");
    json_decref(tools);
}

/* What follows is looked at as before; the answer as a whole is one with a call that is cut. */
static void test_a_call_behind_one_that_is_none(void **state)
{
    static const char text[] = "<tool_call>{\"name\":\"add\",\"arguments\":{1}}</tool_call>"
                               "<tool_call>{\"name\":\"look\",\"arguments\":{}}</tool_call>";
    json_t *tools = two_tools();
    srv_split_options o = {.style = SRV_TOOLS_HERMES, .tools = tools};
    (void)state;
    expect_one(o, text, "{0 add {1...}}}</tool_call>{1 look {}}");
    srv_split *s = srv_split_open(&o);
    assert_true(s && srv_split_push(s, text, strlen(text)) && srv_split_finish(s));
    assert_true(srv_split_cut(s) && srv_split_calls(s) == 2);
    srv_split_close(s);
    o.whole = true;
    expect_one(o, text, "<tool_call>{\"name\":\"add\",\"arguments\":{1}}</tool_call>{0 look {}}");
    s = srv_split_open(&o);
    assert_true(s && srv_split_push(s, text, strlen(text)) && srv_split_finish(s));
    assert_true(!srv_split_cut(s) && srv_split_calls(s) == 1);
    srv_split_close(s);
    json_decref(tools);
}

static void test_a_call_that_is_too_deep_is_none(void **state)
{
    json_t *tools = two_tools();
    srv_split_options o = {.style = SRV_TOOLS_HERMES, .tools = tools, .whole = true};
    srv_textbuf text = {0};
    (void)state;
    srv_textbuf_str(&text, "<tool_call>{\"name\":\"add\",\"arguments\":{\"a\":");
    for (int i = 0; i < 3000; i++)
        srv_textbuf_str(&text, "[");
    for (int i = 0; i < 3000; i++)
        srv_textbuf_str(&text, "]");
    srv_textbuf_str(&text, "}}</tool_call>");
    assert_false(text.failed);
    expect_cut(o, text.data, text.data, 100);
    srv_textbuf_free(&text);
    json_decref(tools);
}

static void test_a_call_that_is_cut_short_ends(void **state)
{
    json_t *tools = two_tools();
    (void)state;
    srv_split_options o = {.style = SRV_TOOLS_HERMES, .tools = tools};
    expect(o, "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1", "{0 add {\"a\": 1...}");
    expect(o, "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1}", "{0 add {\"a\": 1}}");
    json_decref(tools);
}

static void test_what_is_cut_around_a_call_is_no_text(void **state)
{
    json_t *tools = two_tools();
    srv_split_options o = {.style = SRV_TOOLS_HERMES, .tools = tools};
    (void)state;
    expect(o, "<tool_call>{\"name\": \"add\", \"arguments\": {}}\n</tool_c", "{0 add {}}");
    o.calling = true;
    expect(o, "{\"name\": \"add\", \"argu", "");
    expect(o, "{", "");
    expect(o, "{\"name\": \"add\", \"arguments\": {\"a\": 1", "{0 add {\"a\": 1...}");
    json_decref(tools);
}

/* In both orders of the keys: streamed, and read as a whole. */
static void test_all_that_json_allows_is_a_call(void **state)
{
    json_t *tools = two_tools();
    srv_split_options o = {.style = SRV_TOOLS_HERMES, .tools = tools};
    (void)state;
    expect(o, "<tool_call>{\"arguments\": {\"a\": \"x\\u0000\"}, \"name\": \"add\"}</tool_call>",
           "{0 add {\"a\": \"x\\u0000\"}}");
    expect(
        o,
        "<tool_call>{\"arguments\": {\"a\": 18446744073709551616}, \"name\": \"add\"}</tool_call>",
        "{0 add {\"a\": 1.8446744073709552e19}}");
    expect(
        o,
        "<tool_call>{\"id\": 18446744073709551616, \"name\": \"add\", \"arguments\": {\"a\": 1}}",
        "{0 add {\"a\": 1}}");
    expect(o, "<tool_call>{\"name\": \"add\\u0000\", \"arguments\": {}}",
           "<tool_call>{\"name\": \"add\\u0000\", \"arguments\": {}}");
    json_decref(tools);
}

/* `want` NULL: there is no such value. */
static void expect_arguments(const char *text, const char *want)
{
    srv_textbuf b = {0};
    srv_textbuf_str(&b, text);
    json_t *value = srv_json_arguments(&b);
    char *got = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    if (want)
        assert_string_equal(got, want);
    else
        assert_null(value);
    free(got);
    json_decref(value);
    srv_textbuf_free(&b);
}

static void test_arguments_are_objects(void **state)
{
    (void)state;
    expect_arguments("{\"a\": 1}", "{\"a\":1}");
    expect_arguments("{\"a\": 1, \"a\": 2}", "{\"a\":2}");
    expect_arguments("{\"a\": \"\\u0000\"}", "{\"a\":\"\\u0000\"}");
    expect_arguments("{\"a\": 9223372036854775808}", "{\"a\":9.2233720368547758e18}");
    expect_arguments("{\"\\u0000\": 1}", NULL);
    expect_arguments("{bad}", NULL);
    expect_arguments("[1]", NULL);
    expect_arguments("", NULL);
}

static void test_llama3_calls(void **state)
{
    json_t *tools = two_tools();
    srv_split_options o = {.style = SRV_TOOLS_LLAMA3, .tools = tools};
    (void)state;
    expect(o, "{\"name\": \"add\", \"parameters\": {\"a\": 1}}", "{0 add {\"a\": 1}}");
    expect(o, "\n{\"name\": \"add\", \"parameters\": {}}; {\"name\": \"look\", \"parameters\": {}}",
           "{0 add {}}{1 look {}}");
    expect(o, "{\"name\": \"Tom\", \"age\": {\"y\": 3}}",
           "{\"name\": \"Tom\", \"age\": {\"y\": 3}}");
    expect(o, "Hi {\"name\": \"add\", \"parameters\": {}}",
           "Hi {\"name\": \"add\", \"parameters\": {}}");
    json_decref(tools);
}

static void test_mistral_calls(void **state)
{
    json_t *tools = two_tools();
    srv_split_options o = {.style = SRV_TOOLS_MISTRAL, .tools = tools};
    (void)state;
    expect(o,
           "[TOOL_CALLS] [{\"name\": \"add\", \"arguments\": {\"a\": 1}}, {\"name\": \"look\", "
           "\"arguments\": {}}]",
           "{0 add {\"a\": 1}}{1 look {}}");
    expect(o, "a [TOOL_CALLS] b", "a [TOOL_CALLS] b");
    json_decref(tools);
}

static void test_a_forced_call_needs_no_mark(void **state)
{
    json_t *tools = two_tools();
    (void)state;
    expect((srv_split_options){.style = SRV_TOOLS_HERMES, .tools = tools, .calling = true},
           "{\"name\": \"add\", \"arguments\": {\"a\": 1}}", "{0 add {\"a\": 1}}");
    expect((srv_split_options){.style = SRV_TOOLS_MISTRAL, .tools = tools, .calling = true},
           "{\"name\": \"add\", \"arguments\": {\"a\": 1}}", "{0 add {\"a\": 1}}");
    json_decref(tools);
}

static void test_utf8_is_made_valid(void **state)
{
    srv_textbuf b = {0};
    (void)state;
    srv_textbuf_utf8(&b, "a\xc3\xa9\xe2\x98z\xff\xed\xa0\x80\xf0\x9f\x98\x80", 14);
    assert_string_equal(b.data, "a\xc3\xa9\xef\xbf\xbd\xef\xbf\xbdz\xef\xbf\xbd\xef\xbf\xbd\xef\xbf"
                                "\xbd\xef\xbf\xbd\xf0\x9f\x98\x80");
    assert_int_equal(srv_utf8_count(b.data, b.n), 10);
    srv_textbuf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_text_is_untouched),
        cmocka_unit_test(test_thoughts_come_apart),
        cmocka_unit_test(test_hermes_calls),
        cmocka_unit_test(test_what_is_said_around_calls_is_parted),
        cmocka_unit_test(test_xml_calls),
        cmocka_unit_test(test_xml_that_is_cut_or_no_call),
        cmocka_unit_test(test_what_is_no_call_stays_text),
        cmocka_unit_test(test_what_turns_out_to_be_no_json_is_no_call),
        cmocka_unit_test(test_a_call_behind_one_that_is_none),
        cmocka_unit_test(test_a_call_that_is_too_deep_is_none),
        cmocka_unit_test(test_a_call_that_is_cut_short_ends),
        cmocka_unit_test(test_what_is_cut_around_a_call_is_no_text),
        cmocka_unit_test(test_all_that_json_allows_is_a_call),
        cmocka_unit_test(test_arguments_are_objects),
        cmocka_unit_test(test_llama3_calls),
        cmocka_unit_test(test_mistral_calls),
        cmocka_unit_test(test_a_forced_call_needs_no_mark),
        cmocka_unit_test(test_utf8_is_made_valid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
