/* test_hostile.c - schemas and grammars that are made to take long: each is refused by a count, or
 * takes no more than a few times as long as one of its size that is easy. */
#include "unit/grammar/grammar_test.h"

/* Compiles a text, which is freed. The message is empty where it is not refused. */
static double compile(const words *w, bitnet_grammar_kind kind, bnet_str *text, bitnet_error *err)
{
    bitnet_grammar *g = NULL;
    assert_false(text->failed);
    *err = (bitnet_error){0};
    double begun = bnet_now_ms();
    bitnet_status st = grammar_try(w, kind, text->data, &g, err);
    double took = bnet_now_ms() - begun;
    assert_true(st == BITNET_OK || st == BITNET_ARGUMENT);
    bitnet_grammar_close(g);
    bnet_str_free(text);
    return took;
}

/* `part` NULL: it is not refused. */
static void says(const words *w, bnet_str *schema, const char *part)
{
    bitnet_error err;
    bnet_str text = *schema;
    *schema = (bnet_str){0};
    compile(w, BITNET_GRAMMAR_JSON_SCHEMA, &text, &err);
    if (part ? !strstr(err.message, part) : err.message[0] != '\0')
        fail_msg("\"%s\" is not in: \"%s\"", part ? part : "", err.message);
}

static void repeat(bnet_str *text, const char *part, int n)
{
    for (int i = 0; i < n; i++)
        bnet_str_puts(text, part);
}

/* ---- references ---- */

/* One reference in an allOf, whose text has n bytes in all. */
static bnet_str reference_of(int n)
{
    bnet_str s = {0};
    bnet_str_puts(&s, "{\"allOf\":[{\"$ref\":\"#/$defs/");
    repeat(&s, "x", n - 8);
    bnet_str_puts(&s, "\"}],\"$defs\":{\"");
    repeat(&s, "x", n - 8);
    bnet_str_puts(&s, "\":{\"type\":\"null\"}}}");
    return s;
}

static void test_length_of_references(void **state)
{
    (void)state;
    words w = words_open(false);
    bnet_str s = reference_of(4096);
    says(&w, &s, NULL);
    s = reference_of(4097);
    says(&w, &s, "schema: keyword \"$ref\" at #: \"#/$defs/xxxx");
    s = reference_of(4097);
    says(&w, &s, "is longer than 4096 bytes");
    words_close(&w);
}

/* An index is spelt in one way alone (RFC 6901). */
static void test_zeros(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"0", NULL},
        {"10", NULL},
        {"00", "names nothing"},
        {"010", "names nothing"},
        {"11", "names nothing"},
        {"", "names nothing"},
    };
    words w = words_open(false);
    for (size_t i = 0; i < BNET_COUNT(cases); i++) {
        bnet_str s = {0};
        bnet_str_addf(&s,
                      "{\"$ref\":\"#/$defs/a/anyOf/%s\",\"$defs\":{\"0\":{},\"a\":{\"anyOf\":[{}",
                      cases[i][0]);
        repeat(&s, ",{}", 10);
        bnet_str_puts(&s, "]}}}");
        says(&w, &s, cases[i][1]);
    }
    bnet_str s = {0}; /* of an object it is a name like any other */
    bnet_str_puts(&s, "{\"$ref\":\"#/$defs/00\",\"$defs\":{\"00\":{\"type\":\"null\"}}}");
    says(&w, &s, NULL);
    words_close(&w);
}

/* Schemas that are told apart by "k" alone, and require `n_z` times before it what a chain of
 * references leads to; all names of the chain have so many bytes. */
static bnet_str one_of(int n_items, int n_z, int n_chain, int n_name)
{
    bnet_str s = {0};
    bnet_str_puts(&s, "{\"oneOf\":[");
    for (int i = 0; i < n_items; i++) {
        bnet_str_addf(&s, "%s{\"type\":\"object\",\"required\":[", i ? "," : "");
        repeat(&s, "\"z\",", n_z);
        bnet_str_addf(&s,
                      "\"k\"],\"properties\":{\"z\":{\"$ref\":\"#/$defs/%0*d\"},"
                      "\"k\":{\"const\":%d}}}",
                      n_name, 0, i);
    }
    bnet_str_puts(&s, "],\"$defs\":{");
    for (int i = 0; i < n_chain; i++)
        bnet_str_addf(&s, "\"%0*d\":{\"$ref\":\"#/$defs/%0*d\"},", n_name, i, n_name, i + 1);
    bnet_str_addf(&s, "\"%0*d\":{\"type\":\"string\"}}}", n_name, n_chain);
    return s;
}

/* What it takes to follow references counts when schemas are told apart. */
static void test_references_apart(void **state)
{
    (void)state;
    words w = words_open(false);
    bnet_str s = one_of(100, 3, 1, 4);
    says(&w, &s, NULL);
    s = one_of(100, 3, 1, 1900); /* of long ones the bytes */
    says(&w, &s, "keyword \"oneOf\"");
    s = one_of(80, 50, 1, 4);
    says(&w, &s, NULL);
    s = one_of(80, 50, 7, 4); /* of short ones the number */
    says(&w, &s, "keyword \"oneOf\"");
    s = one_of(2, 1, 1, 5000);
    says(&w, &s, "keyword \"$ref\"");
    words_close(&w);
}

/* Alternatives, each with a property whose schema puts `n_parts` together, which a chain of
 * references leads to. */
static bnet_str all_of(int n_ones, int n_parts, int n_chain, int n_name)
{
    bnet_str s = {0};
    bnet_str_puts(&s, "{\"anyOf\":[{}");
    repeat(&s, ",{}", n_ones - 1);
    bnet_str_puts(&s, "],\"properties\":{\"p\":{\"allOf\":[true");
    for (int i = 0; i < n_parts; i++)
        bnet_str_puts(&s, ",{\"$ref\":\"#/$defs/a\"}");
    bnet_str_addf(&s, "]}},\"$defs\":{\"a\":{\"$ref\":\"#/$defs/%0*d\"},", n_name, 0);
    for (int i = 0; i < n_chain; i++)
        bnet_str_addf(&s, "\"%0*d\":{\"$ref\":\"#/$defs/%0*d\"},", n_name, i, n_name, i + 1);
    bnet_str_addf(&s, "\"%0*d\":true}}", n_name, n_chain);
    return s;
}

/* ...and when they are put together. */
static void test_references_together(void **state)
{
    (void)state;
    words w = words_open(false);
    bnet_str s = all_of(100, 200, 1, 4);
    says(&w, &s, NULL);
    s = all_of(100, 200, 20, 4);
    says(&w, &s, "put together");
    s = all_of(100, 200, 1, 1900);
    says(&w, &s, "put together");
    s = all_of(100, 5000, 0, 4);
    says(&w, &s, "put together");
    words_close(&w);
}

/* Lists of types and long names count, too. */
static void test_lists_apart(void **state)
{
    (void)state;
    words w = words_open(false);
    for (int kind = 0; kind < 2; kind++) {
        bnet_str s = one_of(100, 1, 0, 4);
        s.n -= strlen("\"string\"}}}");
        bnet_str_puts(&s, kind ? "\"object\",\"required\":[\"" : "[\"string\"");
        repeat(&s, kind ? "y" : ",\"string\"", kind ? 10000 : 2000);
        bnet_str_puts(&s, kind ? "\"]}}}" : "]}}}");
        says(&w, &s, "keyword \"oneOf\"");
    }
    words_close(&w);
}

/* ---- times, against something of the same size ---- */

static void add_char(bnet_str *s, uint32_t c)
{
    char utf8[4];
    bnet_str_add(s, utf8, (size_t)bnet_utf8_encode(c, utf8));
}

/* Names of one character each, every second one there is. */
static bnet_str names_of(int n, const char *value, const char *others)
{
    bnet_str s = {0};
    bnet_str_puts(&s, "{\"type\":\"object\",\"properties\":{");
    for (int i = 0; i < n; i++) {
        bnet_str_puts(&s, i ? ",\"" : "\"");
        add_char(&s, 0x100 + 2 * (uint32_t)i);
        bnet_str_addf(&s, "\":%s", value);
    }
    bnet_str_addf(&s, "},\"additionalProperties\":%s}", others);
    return s;
}

/* A choice of n, and k groups of nothing behind it. */
static bnet_str groups_of(int n, int k)
{
    bnet_str s = {0};
    bnet_str_puts(&s, "a ::= \"x\"\nroot ::= (a");
    repeat(&s, "|a", n - 1);
    bnet_str_puts(&s, ")");
    repeat(&s, "()", k);
    return s;
}

static double ms_of(const words *w, bool names, bool hard)
{
    bitnet_error err;
    bnet_str s = names ? names_of(13000, "{}", hard ? "{}" : "false")
                       : groups_of(hard ? 25000 : 50000, hard ? 25000 : 1);
    double ms = compile(w, names ? BITNET_GRAMMAR_JSON_SCHEMA : BITNET_GRAMMAR_GBNF, &s, &err);
    assert_int_equal(err.message[0] != '\0', names); /* so many names are too many, in the end */
    return ms;
}

/* Once in three times: others need the machine, too. */
static void check_time(bool names)
{
    words w = words_open(false);
    double easy = 0, hard = 0;
    bool good = false;
    for (int i = 0; i < 3 && !good; i++) {
        easy = ms_of(&w, names, false);
        hard = ms_of(&w, names, true);
        good = hard < 10 * easy + 100;
    }
    if (!good)
        fail_msg("it took %.0f ms, an easy one of its size %.0f ms", hard, easy);
    words_close(&w);
}

static void test_time_of_names(void **state)
{
    (void)state;
    check_time(true);
}

static void test_time_of_groups(void **state)
{
    (void)state;
    check_time(false);
}

/* Names that are known, and those between them. */
static void test_names(void **state)
{
    (void)state;
    enum { N = 300 };
    words w = words_open(false);
    bnet_str s = names_of(N, "{\"type\":\"null\"}", "{\"type\":\"boolean\"}");
    bitnet_grammar *g = grammar_of(&w, BITNET_GRAMMAR_JSON_SCHEMA, s.data);
    for (uint32_t c = 0xf0; c < 0x100 + 2 * N + 16; c++) {
        bool known = c >= 0x100 && c < 0x100 + 2 * N && c % 2 == 0;
        for (int i = 0; i < 2; i++) {
            s.n = 0;
            bnet_str_puts(&s, "{\"");
            add_char(&s, c);
            bnet_str_puts(&s, i ? "\":null}" : "\":true}");
            if (grammar_has(&w, g, s.data) != (known == (i == 1)))
                fail_msg("%s is wrong", s.data);
        }
    }
    bitnet_grammar_close(g);
    bnet_str_free(&s);
    words_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_length_of_references), cmocka_unit_test(test_zeros),
        cmocka_unit_test(test_references_apart),     cmocka_unit_test(test_references_together),
        cmocka_unit_test(test_lists_apart),          cmocka_unit_test(test_time_of_names),
        cmocka_unit_test(test_time_of_groups),       cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
