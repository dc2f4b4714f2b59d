/* test_gbnf.c - grammars in GBNF: the texts they have and do not have, what is refused, and how
 * hostile ones end. */
#include "unit/grammar/grammar_test.h"

typedef struct row {
    const char *grammar;
    const char *has[6], *lacks[6];
} row;

static const row rows[] = {
    {"root ::= \"yes\" | \"no\"", {"yes", "no"}, {"", "y", "yesno", "maybe"}},
    {"root ::= \"a\"* \"b\"", {"b", "ab", "aaaab"}, {"", "a", "ba"}},
    {"root ::= \"a\"+ \"b\"?", {"a", "ab", "aa"}, {"", "b", "abb"}},
    {"root ::= [a-c]{2,3}", {"ab", "cba"}, {"a", "abcd", "ad"}},
    {"root ::= [a-c]{2}", {"ab"}, {"a", "abc"}},
    {"root ::= [a-c]{2,}", {"ab", "abcabc"}, {"a", ""}},
    {"root ::= [^a-c\\n]", {"d", "\xc3\xa9", "\xf0\x9f\x98\x80", "\xe2\x82\xac"}, {"a", "\n", ""}},
    {"root ::= .", {"d", "\n", "\xc3\xa9"}, {"", "ab"}},
    {"root ::= [\xc3\xa0-\xc3\xbc]", {"\xc3\xa9", "\xc3\xa0"}, {"e", "\xc3\xbd", "\xc4\xa9"}},
    {"root ::= [\\u4e00-\\u9fff]+", {"\xe4\xb8\x80", "\xe9\xbf\xbf\xe5\xad\x97"}, {"\xea\x80\x80"}},
    {"root ::= [\\U00010000-\\U0010FFFF]",
     {"\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"},
     {"\xef\xbf\xbf"}},
    {"root ::= \"\\x41\\u00e9\\\"\\\\\\n\"", {"A\xc3\xa9\"\\\n"}, {"A"}},
    {"root ::= [\\]\\[a-]", {"]", "[", "a", "-"}, {"b", "\\"}},
    {"root ::= (\"a\" | \"b\" (\"c\" | \"d\"))+", {"a", "bc", "abd"}, {"b", "ac"}},
    {"# first\nroot ::= # so\n  \"a\" # then\n\n\nother ::= \"b\"", {"a"}, {"b"}},
    {"root ::= x |\n  y\nx ::= \"1\"\ny ::= (\n \"2\"\n \"3\"\n)", {"1", "23"}, {"2"}},
    {"root ::= \"(\" root? \")\"", {"()", "((()))"}, {"(", "(()", "())"}},
    {"root ::= expr\nexpr ::= term ([-+] term)*\nterm ::= [0-9]+ | \"(\" expr \")\"",
     {"1", "12+(3-4)", "((1))"},
     {"1+", "+1", "(1"}},
    {"root ::= (\"a\"?){3,5} \"b\"", {"b", "aaaaab", "ab"}, {"aaaaaab", "a"}},
    {"root ::= ((\"a\"*)*)* \"b\"", {"b", "aab"}, {"a"}},
    {"root ::= \"\" \"a\" \"\"", {"a"}, {""}},
    {"root ::= \"a\" | ", {"a", ""}, {"b"}},
    {"root ::= \"a\"{0} \"b\"", {"b"}, {"ab"}},
    {"root ::= w+ ([ \\t\\n] w+)*\r\nw ::= [!\"#$%&'()*+,-./:;<=>?@[\\\\\\]^_`{|}~] | [a-z]\r\n",
     {"a b", "x!]\\[^-", "~\t\""},
     {"", " a", "A"}},
    /* ways that never end are not taken */
    {"root ::= \"a\" | \"b\" loop\nloop ::= \"x\" loop", {"a"}, {"b", "bx"}},
    {"root ::= (\"a\"{2}){2,3} \"a\"", {"aaaaa", "aaaaaaa"}, {"aaaa", "aaaaaa", "aaaaaaaa"}},
    {"root ::= \"a\"{0,1000000} \"b\"", {"b", "aaaaaaaaaaaab"}, {"a"}},
    {"root ::= (\"a\"?){0,1000000} \"b\"", {"b", "aaaaaaaaaaaab"}, {"a"}},
};

static void test_texts(void **state)
{
    (void)state;
    words w = words_open(false);
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        bitnet_grammar *g = grammar_of(&w, BITNET_GRAMMAR_GBNF, rows[i].grammar);
        for (size_t k = 0; k < 6 && rows[i].has[k]; k++)
            if (!grammar_has(&w, g, rows[i].has[k]))
                fail_msg("%s: does not have \"%s\"", rows[i].grammar, rows[i].has[k]);
        for (size_t k = 0; k < 6 && rows[i].lacks[k]; k++)
            if (grammar_has(&w, g, rows[i].lacks[k]))
                fail_msg("%s: has \"%s\"", rows[i].grammar, rows[i].lacks[k]);
        bitnet_grammar_close(g);
    }
    words_close(&w);
}

static void test_every_character(void **state)
{
    (void)state;
    words w = words_open(false);
    bitnet_grammar *g = grammar_of(&w, BITNET_GRAMMAR_GBNF, "root ::= [^\\U00000080-\\U00000fff]");
    uint32_t step = test_quick() ? 97 : 7;
    for (uint32_t c = 0; c <= 0x10ffff; c += c < 0x1100 ? 1 : step) {
        char utf8[4];
        bool done, wanted = (c < 0x80 || c > 0xfff) && (c < 0xd800 || c > 0xdfff);
        int n = bnet_utf8_encode(c, utf8);
        bool has = grammar_takes(&w, g, utf8, (size_t)n, &done) == (size_t)n && done;
        if (has != wanted)
            fail_msg("U+%04X: %d instead of %d", (unsigned)c, has, wanted);
    }
    bool done;
    assert_int_equal(grammar_takes(&w, g, "\xc0\x80", 2, &done), 0); /* a long form of NUL */
    assert_int_equal(grammar_takes(&w, g, "\xf4\x90\x80\x80", 4, &done), 1);
    assert_int_equal(grammar_takes(&w, g, "\x80", 1, &done), 0);
    bitnet_grammar_close(g);
    words_close(&w);
}

static void refused(const words *w, const char *text, size_t n, const char *part)
{
    bitnet_grammar *g = NULL;
    bitnet_error err = {0};
    bitnet_status st =
        bnet_grammar_open(w->t, w->n, BITNET_GRAMMAR_GBNF, (bnet_span){text, n}, &g, &err);
    if (st != BITNET_ARGUMENT || !strstr(err.message, part))
        fail_msg("%.60s: status %d, \"%s\" is not in: %s", text, st, part, err.message);
    assert_null(g);
}

static void test_refusals(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"", "no rule \"root\""},
        {"a ::= \"b\"", "no rule \"root\""},
        {"root ::= x", "rule \"x\" is used"},
        {"root ::= \"a", "no second quote"},
        {"root ::= [a", "no closing bracket"},
        {"root ::= [z-a]", "ends before it begins"},
        {"root ::= []", "empty"},
        {"root ::= [^\\x00-\\U0010FFFF]", "empty"},
        {"root ::= (\"a\"", "no closing parenthesis"},
        {"root ::= \"a\")", "was expected"},
        {"root ::= \"a\"{2", "no closing brace"},
        {"root ::= \"a\"{x}", "wants numbers"},
        {"root ::= \"a\"{3,2}", "more than it allows"},
        {"root ::= \"a\"{99999999999}", "too large"},
        {"root ::= \"a\"**", "wants a group"},
        {"root ::= \"\\q\"", "no such escape"},
        {"root ::= \"\\xg0\"", "hexadecimal"},
        {"root ::= \"\\ud800\"", "no character"},
        {"root ::= \"\\U00110000\"", "no character"},
        {"root = \"a\"", "\"::=\" is missing"},
        {"root ::= \"a\"\nroot ::= \"b\"", "line 2"},
        {"root ::= \"a\"\nroot ::= \"b\"", "defined before"},
        {"::= \"a\"", "wants a name"},
        {"root ::= root \"a\" | \"b\"", "rule \"root\" begins with itself"},
        {"root ::= x\nx ::= y \"a\" | \"b\"\ny ::= \"\"? x", "begins with itself"},
        {"root ::= \"a\" b\nb ::= \"c\"* b \"d\" | \"e\"", "rule \"b\" begins with itself"},
        {"root ::= (root | \"a\")*", "begins with itself"},
        {"root ::= \"a\" root", "ever ends"},
        {"root ::= \"a\" x\nx ::= \"b\" y\ny ::= \"c\" x", "ever ends"},
        {"root ::= \"\xff\"", "no UTF-8"},
    };
    words w = words_open(false);
    for (size_t i = 0; i < BNET_COUNT(cases); i++)
        refused(&w, cases[i][0], strlen(cases[i][0]), cases[i][1]);
    words_close(&w);
}

static void test_bounds(void **state)
{
    (void)state;
    words w = words_open(false);
    bnet_str text = {0};
    bnet_str_puts(&text, "root ::= ");
    for (int i = 0; i < 100; i++)
        bnet_str_puts(&text, "(");
    refused(&w, text.data, text.n, "nested");
    text.n = 9;
    bnet_str_puts(&text, "\"");
    for (int i = 0; i < 300000; i++)
        bnet_str_puts(&text, "x");
    bnet_str_puts(&text, "\"");
    refused(&w, text.data, text.n, "instructions");
    for (int i = 0; i < 800000; i++)
        bnet_str_puts(&text, " ");
    refused(&w, text.data, text.n, "1048576 are allowed");
    text.n = 0;
    for (int i = 0; i < 70000; i++)
        bnet_str_addf(&text, "r%d ::= \"\"\n", i);
    refused(&w, text.data, text.n, "rules");
    bnet_str_free(&text);
    words_close(&w);
}

/* Texts that can be read in ever more ways end with a message, before long. */
static void test_ambiguity_is_bounded(void **state)
{
    (void)state;
    static const char *const hostile[] = {
        "root ::= ((\"a\"{0,9999}){0,9999}){0,9999} \"b\"",
        "root ::= (\"a\" \"a\"? \"a\"? | \"a\"{1,7}){0,99999} (\"a\"{0,99999}){0,99999}",
        "root ::= s \"b\"\ns ::= \"a\" s \"a\"? s? | \"a\"",
    };
    words w = words_open(false);
    for (size_t i = 0; i < BNET_COUNT(hostile); i++) {
        bitnet_grammar *g = grammar_of(&w, BITNET_GRAMMAR_GBNF, hostile[i]);
        bitnet_matcher *m = NULL;
        bitnet_error err = {0};
        bitnet_status st = bitnet_matcher_open(g, true, &m, &err);
        double begun = bnet_now_ms();
        for (int k = 0; k < 20000 && st == BITNET_OK; k++)
            st = bitnet_matcher_accept(m, 'a', &err);
        if (st != BITNET_OK)
            assert_non_null(strstr(err.message, "too many ways"));
        assert_true(bnet_now_ms() - begun < 60e3);
        bitnet_matcher_close(m);
        bitnet_grammar_close(g);
    }
    words_close(&w);
}

/* Two to the power of 40 ways through rules that are all alike are one. */
static void test_equal_ways_are_one(void **state)
{
    (void)state;
    words w = words_open(false);
    bnet_str text = {0};
    bnet_str_puts(&text, "root ::= r0\n");
    for (int i = 0; i < 40; i++)
        bnet_str_addf(&text, "r%d ::= r%d | r%d\n", i, i + 1, i + 1);
    bnet_str_puts(&text, "r40 ::= \"a\"\n");
    bitnet_grammar *g = grammar_of(&w, BITNET_GRAMMAR_GBNF, text.data);
    assert_true(grammar_has(&w, g, "a"));
    bitnet_grammar_close(g);
    /* and where something follows each, there are too many */
    bnet_str_free(&text);
    bnet_str_puts(&text, "root ::= r0\n");
    for (int i = 0; i < 40; i++)
        bnet_str_addf(&text, "r%d ::= r%d \"x\" | r%d \"y\"\n", i, i + 1, i + 1);
    bnet_str_puts(&text, "r40 ::= \"a\"\n");
    bitnet_error err = {0};
    g = NULL;
    assert_int_equal(grammar_try(&w, BITNET_GRAMMAR_GBNF, text.data, &g, &err), BITNET_ARGUMENT);
    assert_non_null(strstr(err.message, "too many ways"));
    bnet_str_free(&text);
    words_close(&w);
}

/* Rules that lead to one another in a long row are looked at once each. */
static void test_long_chains(void **state)
{
    (void)state;
    words w = words_open(false);
    for (int backward = 0; backward < 2; backward++) {
        bnet_str text = {0};
        double begun = bnet_now_ms();
        bnet_str_puts(&text, "root ::= r0\n");
        for (int k = 0; k < 20000; k++) {
            int i = backward ? 19999 - k : k;
            bnet_str_addf(&text, "r%d ::= r%d\n", i, i + 1);
        }
        bnet_str_puts(&text, "r20000 ::= \"a\"\n");
        bitnet_grammar *g = grammar_of(&w, BITNET_GRAMMAR_GBNF, text.data);
        assert_true(grammar_has(&w, g, "a"));
        bitnet_grammar_close(g);
        bnet_str_free(&text);
        assert_true(bnet_now_ms() - begun < 20e3);
    }
    words_close(&w);
}

static void test_json_object(void **state)
{
    (void)state;
    static const char *const has[] = {"{}", "{\"a\":1}", "{\"a\": [1, -2.5e+10, true, null, \"\"]}",
                                      "{\n  \"a\": {\n    \"b\": false\n  }\n}",
                                      "{\"\\u00e9\\ud83d\\ude00\\n\": \"\xc3\xa9\"}"};
    static const char *const lacks[] = {"",
                                        "[]",
                                        "1",
                                        "{",
                                        "{\"a\"}",
                                        "{\"a\":01}",
                                        "{\"a\":1,}",
                                        "{\"a\":\"\n\"}",
                                        "{\"a\":\"\\ud800\"}",
                                        "{} ",
                                        " {}",
                                        "{  }",
                                        "{\"a\":1.}",
                                        "{\"a\":.5}",
                                        "{\"a\":nul}"};
    words w = words_open(false);
    bitnet_grammar *g = grammar_of(&w, BITNET_GRAMMAR_JSON_OBJECT, "");
    for (size_t i = 0; i < BNET_COUNT(has); i++)
        if (!grammar_has(&w, g, has[i]))
            fail_msg("not taken: %s", has[i]);
    for (size_t i = 0; i < BNET_COUNT(lacks); i++)
        if (grammar_has(&w, g, lacks[i]))
            fail_msg("taken: %s", lacks[i]);
    bitnet_grammar_close(g);
    words_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_every_character),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_ambiguity_is_bounded),
        cmocka_unit_test(test_equal_ways_are_one),
        cmocka_unit_test(test_long_chains),
        cmocka_unit_test(test_json_object),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
