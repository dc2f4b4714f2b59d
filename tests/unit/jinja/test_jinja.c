/* test_jinja.c - templates: what they write (jinja/test_vs_jinja2.py asks the same of jinja2), what
 * is refused, and bounds that a stranger's template meets. */
#include "test.h"

#include "jinja/jinja.h"

static const char conversation[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \" Be kind. \"},"
    " {\"role\": \"user\", \"content\": \"H\\u00e9llo\"}], \"bos_token\": \"<s>\","
    " \"add_generation_prompt\": true, \"one\": 1, \"list\": [3, 1, 2], \"text\": \"abc def\"}";

static bitnet_status render(const char *source, const char *values, const bnet_jinja_limits *limits,
                            bnet_str *out, bitnet_error *err)
{
    bnet_str_puts(out, "");
    return bnet_jinja_render((bnet_span){source, strlen(source)},
                             (bnet_span){values, strlen(values)}, limits, out, err);
}

static void writes(const char *source, const char *wanted)
{
    bnet_str out = {0};
    bitnet_error err = {0};
    if (render(source, conversation, NULL, &out, &err) != BITNET_OK)
        fail_msg("%s: %s", source, err.message);
    assert_string_equal(out.data, wanted);
    bnet_str_free(&out);
}

/* Refused with this status, by a message that contains `part`. */
static void refused(const char *source, const char *values, bitnet_status status, const char *part)
{
    bnet_str out = {0};
    bitnet_error err = {0};
    assert_int_equal(render(source, values, NULL, &out, &err), status);
    if (!strstr(err.message, part))
        fail_msg("%s: \"%s\" is not in: %s", source, part, err.message);
    assert_int_equal(out.n, 0);
    bnet_str_free(&out);
}

static void test_conversation(void **state)
{
    (void)state;
    writes("{{ bos_token }}{% for m in messages %}\n"
           "    {%- if m.role == 'user' %}[INST] {{ m['content'] | trim }} [/INST]\n"
           "    {%- else %}<<{{ m.role | upper }}>> {{- m.content | trim -}} {% endif %}\n"
           "{% endfor %}{% if add_generation_prompt %}\nA:{% endif %}\n",
           "<s><<SYSTEM>>Be kind.[INST] H\xc3\xa9llo [/INST]A:");
    writes("{% set ns = namespace(n=0) %}{% for m in messages if m.role != 'system' %}"
           "{% set ns.n = ns.n + loop.length %}{% endfor %}{{ ns.n }}",
           "1");
    writes("{% macro turn(m, end='|') %}{{ m.role ~ end }}{% endmacro %}"
           "{{ turn(messages[0]) }}{{ turn(messages[-1], end='!') }}",
           "system|user!");
}

/* The condition of a loop runs when the loop gets there, or something looks ahead. */
static void test_loop_conditions(void **state)
{
    (void)state;
    writes("{% set x = namespace(found=false) %}{% for m in messages + messages "
           "if m.role == 'user' and not x.found %}{% set x.found = true %}{{ m.role }}{% endfor %}",
           "user");
    writes("{% set x = namespace(n=0) %}{% for i in range(9) if x.n < 2 %}"
           "{{ loop.last }}{{ loop.nextitem }}{% set x.n = x.n + 1 %},{% endfor %}",
           "False1,False2,True,");
    writes("{% set x = namespace(n=0) %}{% for i in range(3) if x.n < 2 %}"
           "{{ loop.length }}{{ loop.revindex }}{% set x.n = x.n + 1 %},{% endfor %}",
           "33,32,31,");
    writes("{% for a, b in [[1, 2], [3, 4]] if a %}{{ loop.nextitem }}{% endfor %}", "(3, 4)");
    writes("{% set x = namespace() %}{% for i in list %}{% set x.l = loop %}{% endfor %}"
           "{{ x.l.index }}{{ x.l.last }}",
           "3True");
    refused("{% set x = namespace(l=none) %}{% for i in list if not x.l or x.l.last %}"
            "{% set x.l = loop %}{% endfor %}",
            conversation, BITNET_TOKENIZER, "line 1: a loop's condition asks");
}

/* else of a loop: no round came to its end, be it for want of items, by break or by continue. */
static void test_loop_else(void **state)
{
    (void)state;
    writes("{% for x in list %}{{ x }}{% break %}{% else %}none{% endfor %}", "3none");
    writes("{% for x in list %}{{ x }}{% continue %}{% else %}none{% endfor %}", "312none");
    writes("{% for x in list %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% else %}none"
           "{% endfor %}",
           "3");
    writes("{% set y = 1 %}{% for x in [] %}{% else %}{% set y = 2 %}{{ y }}{% endfor %}{{ y }}",
           "21");
}

static void test_expressions(void **state)
{
    (void)state;
    writes("{{ 1 + 2 * 3 ** 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 1 / 4 }} {{ 'a' ~ 1 ~ none }}",
           "19 -4 2 0.25 a1None");
    writes("{{ list | sort | join(',') }} {{ list[::-1] }} {{ text[1:3] }} {{ text.split(' ') }}",
           "1,2,3 [2, 1, 3] bc ['abc', 'def']");
    writes("{{ {'a': [1.5, true, none, 'x\"']} | tojson }}",
           "{\"a\": [1.5, true, null, \"x\\\"\"]}");
    writes("{{ 'y' if nothing is defined else 'n' }}{{ nothing }}{{ nothing | default('d') }}",
           "nd");
    writes("{{ messages | selectattr('role', 'eq', 'user') | map(attribute='content') | first }}",
           "H\xc3\xa9llo");
    writes("{{ ['B', 'a'] | max }}{{ ['b', 'A', 'a'] | min }}{{ list | max }}{{ [] | min }}",
           "BA3");
    writes("{{ 'e\xc3\xa9' | length }}{{ 1 < 2 < 3 }}{{ 'b' in text }}{{ one is odd }}",
           "2TrueTrueTrue");
}

/* ensure_ascii, indent, separators, sort_keys: the order of transformers. */
static void test_json_arguments(void **state)
{
    (void)state;
    writes("{{ {'b': [1, 2], 'a': 3} | tojson(false, none, ('', '')) }}", "{\"b\"[12]\"a\"3}");
    writes("{{ {'b': [1, 2], 'a': 3} | tojson(false, none, none, true) }}",
           "{\"a\": 3, \"b\": [1, 2]}");
    writes("{{ [1, 2] | tojson(false, 1) }}", "[\n 1,\n 2\n]");
    writes("{{ [1, 2] | tojson(0, separators=(';', '='), indent=0) }}", "[\n1;\n2\n]");
    refused("{{ [1] | tojson(2) }}", conversation, BITNET_TOKENIZER, "ensure_ascii");
    refused("{{ [1] | tojson(separators=(',',)) }}", conversation, BITNET_TOKENIZER, "separators");
}

static void test_letters(void **state)
{
    (void)state;
    writes("{{ '\xc3\x89"
           "COLE stra\xc3\x9f"
           "e'|lower }} {{ '\xc3\xa9"
           "cole \xf0\x9f\x98\x80'.upper() }}",
           "\xc3\xa9"
           "cole stra\xc3\x9f"
           "e \xc3\x89"
           "COLE \xf0\x9f\x98\x80");
    writes(
        "{{ '\xc3\xa9T\xc3\x89 (\xd0\xb4\xd0\x90)'|title }} {{ '\xc3\xa9T\xc3\x89'|capitalize }}",
        "\xc3\x89t\xc3\xa9 (\xd0\x94\xd0\xb0) \xc3\x89t\xc3\xa9");
    writes("{{ \"they're 3d A_b\".title() }} {{ \"they're 3d A_b\"|title }}",
           "They'Re 3D A_B They're 3d A_b");
    refused("{{ 'stra\xc3\x9f"
            "e'|upper }}",
            conversation, BITNET_TOKENIZER, "U+00DF");
    refused("{{ '\xce\xa3'.lower() }}", conversation, BITNET_TOKENIZER, "U+03A3");
    refused("{{ '\xc3\xa9'.title() }}", conversation, BITNET_TOKENIZER, "title()");
    refused("{{ '\xc3\xa9' is lower }}", conversation, BITNET_TOKENIZER, "'lower'");
}

static void test_date(void **state)
{
    const bnet_jinja_limits fixed = {.now = 1700000000};
    bitnet_error err;
    bnet_str out = {0};
    size_t digits;
    (void)state;
    assert_int_equal(render("{{ strftime_now('%Y %f%z%Z %%f%') }}|{{ strftime_now('') }}", "{}",
                            &fixed, &out, &err),
                     BITNET_OK);
    assert_string_equal(out.data, "2023 000000 %f%|");
    out.n = 0;
    assert_int_equal(render("{{ strftime_now('%f') }}", "{}", NULL, &out, &err), BITNET_OK);
    digits = strspn(out.data, "0123456789");
    assert_int_equal(digits, 6);
    assert_int_equal(out.n, 6);
    bnet_str_free(&out);
    for (size_t i = 0; i < 2; i++) /* what reads a text costs steps by its length */
        refused(
            i ? "{% set x = ' ' * 100000 %}{% for i in range(9999) %}{{ x|int }}{% endfor %}"
              : "{% set x = ' ' * 100000 %}{% for i in range(9999) %}{{ x is upper }}{% endfor %}",
            "{}", BITNET_TOKENIZER, "steps");
    refused("{{ strftime_now('%Ez') }}", "{}", BITNET_TOKENIZER, "flags");
    refused("{{ strftime_now('%c' * 60) }}", "{}", BITNET_TOKENIZER, "cannot be written");
}

static void test_numbers_of_text(void **state)
{
    (void)state;
    writes(
        "{{ ' 3 '|int }} {{ '1_0'|int }} {{ '-0_7\n'|int }} {{ '1__0'|int }} {{ '0x10'|int }} {{ "
        "'_1'|int(5) }} {{ '1_0.9'|int }} {{ 'inf'|int }} {{ '9223372036854775807'|int }}",
        "3 10 -7 0 0 5 10 0 9223372036854775807");
    writes("{{ ' 1.5 '|float }} {{ '1_0e1_0'|float }} {{ '.5'|float }} {{ '0x10'|float }} {{ "
           "'-Infinity'|float }} {{ '1_.5'|float(2) }} {{ '.'|float }}",
           "1.5 100000000000.0 0.5 0.0 -inf 2 0.0");
    refused("{{ '9223372036854775808'|int }}", conversation, BITNET_TOKENIZER, "64 bits");
    refused("{{ 1e30|int }}", conversation, BITNET_TOKENIZER, "64 bits");
    refused("{{ '\xd9\xa3'|int }}", conversation, BITNET_TOKENIZER, "ASCII");
    refused("{{ nothing|int }}", conversation, BITNET_TOKENIZER, "undefined");
}

static void test_lines(void **state)
{
    (void)state;
    writes("{{ "
           "'a\\nb\\rc\\r\\nd\\x0be\\x0cf\\x1cg\\x1dh\\x1ei\\x85j\\u2028k\\u2029l'.splitlines()|"
           "join('|') }}",
           "a|b|c|d|e|f|g|h|i|j|k|l");
    writes("{{ 'a\\n\\r\\n'.splitlines() }}{{ ''.splitlines() }}{{ '\\n'.splitlines() }}",
           "['a', ''][]['']");
    writes("{{ ''|indent(2, true) }}|{{ 'a\\n\\n'|indent(2, blank=true) }}|{{ 'a\\n\\n'|indent }}",
           "  |a\n  \n  |a\n\n");
    writes("{{ '\\na\\r\\nb'|indent('> ', true) }}", "> \n> a\n> b");
    refused("{{ 5|indent }}", conversation, BITNET_TOKENIZER, "indent of int");
}

static void test_refusals(void **state)
{
    (void)state;
    refused("{{ raise_exception('only users ' ~ one) }}", conversation, BITNET_ARGUMENT,
            "only users 1");
    refused("a\nb{{ nothing.x }}", conversation, BITNET_TOKENIZER,
            "line 2: 'nothing' is undefined");
    refused("{% include 'x' %}", conversation, BITNET_TOKENIZER, "include");
    refused("{% for x in list %}", conversation, BITNET_TOKENIZER, "endfor");
    refused("{{ text | shuffle }}", conversation, BITNET_TOKENIZER, "no filter 'shuffle'");
    refused("{{ 9223372036854775 * 9223372036854775 }}", conversation, BITNET_TOKENIZER, "64 bits");
    refused("{{ list.append(4) }}", conversation, BITNET_TOKENIZER, "'append' is undefined");
    refused("\xff", conversation, BITNET_TOKENIZER, "UTF-8");
    refused("x", "[1]", BITNET_ARGUMENT, "no JSON object");
    refused("x", "{\"a\":", BITNET_ARGUMENT, "no JSON object");
}

/* None of these may take long, much memory or much stack, whatever it asks for. */
static void test_bounds(void **state)
{
    static const char *const greedy[] = {
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{{ 'x' * 100000000000 }}",
        "{{ range(100000000) }}",
        "{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}",
        "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(60) %}"
        "{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}",
        "{% set ns = namespace(l=[]) %}{% for i in range(100) %}{% set ns.l = [ns.l] %}{% endfor %}"
        "{{ ns.l }}",
        "{{ ((((((((((((((((((((((((((((((((((((((((((((((((1)))))))))))))))))))))))))))))))))))))"
        "))))))))))) }}",
        "{{ 'ab' | replace('a', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa') | list | map('list') | join('x' "
        "* "
        "1000000) | length + 2 ** 100 }}",
    };
    bitnet_error err;
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(greedy); i++) {
        bnet_str out = {0};
        double begin = bnet_now_ms();
        assert_int_equal(render(greedy[i], conversation, NULL, &out, &err), BITNET_TOKENIZER);
        if (bnet_now_ms() - begin > 20000)
            fail_msg("%s: %.0f ms", greedy[i], bnet_now_ms() - begin);
        bnet_str_free(&out);
    }
}

static void test_small_bounds(void **state)
{
    const bnet_jinja_limits steps = {.steps = 100}, output = {.output = 10},
                            memory = {.memory = 20000};
    bitnet_error err;
    bnet_str out = {0};
    (void)state;
    assert_int_equal(render("{% for i in range(200) %}{% endfor %}", "{}", &steps, &out, &err),
                     BITNET_TOKENIZER);
    assert_non_null(strstr(err.message, "100 steps"));
    assert_int_equal(render("01234567890", "{}", &output, &out, &err), BITNET_TOKENIZER);
    assert_non_null(strstr(err.message, "10 bytes"));
    assert_int_equal(render("{{ range(2000) }}", "{}", &memory, &out, &err), BITNET_TOKENIZER);
    assert_non_null(strstr(err.message, "20000 bytes"));
    bnet_str_free(&out);
}

static void test_public_call(void **state)
{
    char text[8];
    size_t n = 0;
    bitnet_error err;
    (void)state;
    assert_int_equal(bitnet_template_render("{{ a }}!", 8, "{\"a\": 12}", 9, text, 8, &n, &err),
                     BITNET_OK);
    assert_int_equal(n, 3);
    assert_memory_equal(text, "12!", 3);
    assert_int_equal(bitnet_template_render("{{ a }}!", 8, "{\"a\": 12}", 9, text, 2, &n, &err),
                     BITNET_ARGUMENT);
    assert_int_equal(n, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conversation),   cmocka_unit_test(test_loop_conditions),
        cmocka_unit_test(test_loop_else),      cmocka_unit_test(test_expressions),
        cmocka_unit_test(test_json_arguments), cmocka_unit_test(test_letters),
        cmocka_unit_test(test_date),           cmocka_unit_test(test_numbers_of_text),
        cmocka_unit_test(test_lines),          cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_bounds),         cmocka_unit_test(test_small_bounds),
        cmocka_unit_test(test_public_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
