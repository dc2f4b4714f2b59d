/* test_json_reader.c - what the pull reader offers besides its events, which
 * tests/format/test_json_vs_python.py compares with Python's: texts, integers, skipping, places,
 * limits. */
#include "test.h"

#include "base/json_reader.h"

static bnet_json_reader reader(const char *text)
{
    return bnet_json_reader_of(text, strlen(text));
}

/* The events of a text, one letter each; '!' at the end: bad. */
static const char *letters(const char *text, char *buf)
{
    static const char names[] = ".!{}[]ksirtfn";
    size_t n = 0;
    bnet_json_reader r = reader(text);
    do
        buf[n++] = names[bnet_json_next(&r)];
    while (r.event > BNET_JSON_BAD && n < 60);
    assert_int_equal(bnet_json_next(&r), r.event); /* and stays there */
    buf[n] = '\0';
    return buf;
}

static void test_events(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"{\"a\":[1,-2.5,\"x\"],\"b\":{}}", "{k[irs]k{}}."},
        {" [true,false,null]\n", "[tfn]."},
        {"[1,2", "[ii!"},
        {"{\"a\" 1}", "{!"},
        {"7", "i."},
        {"", "!"},
        {"[] []", "[]!"},
    };
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        char buf[64];
        assert_string_equal(letters(rows[i][0], buf), rows[i][1]);
    }
}

static void test_texts(void **state)
{
    (void)state;
    static const struct {
        const char *text, *is, *is_not;
        size_t n;
    } rows[] = {
        {"\"abc\"", "abc", "abcd", 3},
        {"\"abc\"", "abc", "ab", 3},
        {"\"a\\u0062c\"", "abc", "a\\u0062c", 3},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t", "\"", 8},
        {"\"\\u00e9\\ud83d\\ude00\"", "\xc3\xa9\xf0\x9f\x98\x80", "\xc3\xa9", 6},
        {"\"\"", "", "a", 0},
    };
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        bnet_str s = {0};
        bnet_json_reader r = reader(rows[i].text);
        assert_int_equal(bnet_json_next(&r), BNET_JSON_STRING);
        assert_true(bnet_json_text_is(&r, rows[i].is));
        assert_false(bnet_json_text_is(&r, rows[i].is_not));
        bnet_str_puts(&s, "+");
        bnet_json_text(&r, &s);
        assert_int_equal(s.n, 1 + rows[i].n);
        assert_string_equal(s.data + 1, rows[i].is);
        bnet_str_free(&s);
    }
    bnet_json_reader r = reader("\"a\\u0000\""); /* a NUL is a character, and ends no comparison */
    bnet_json_next(&r);
    assert_false(bnet_json_text_is(&r, "a"));
}

static void test_integers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool fits;
        int64_t value;
    } rows[] = {
        {"0", true, 0},
        {"-0", true, 0},
        {"9223372036854775807", true, INT64_MAX},
        {"-9223372036854775808", true, INT64_MIN},
        {"9223372036854775808", false, 0},
        {"-9223372036854775809", false, 0},
        {"99999999999999999999999", false, 0},
    };
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        int64_t value = 0;
        bnet_json_reader r = reader(rows[i].text);
        assert_int_equal(bnet_json_next(&r), BNET_JSON_INTEGER);
        assert_int_equal(bnet_json_int64(&r, &value), rows[i].fits);
        assert_true(value == rows[i].value);
    }
}

static void test_skip(void **state)
{
    (void)state;
    bnet_json_reader r = reader("{\"a\":[[1],{\"b\":2}],\"c\":3}");
    bnet_json_next(&r);
    bnet_json_next(&r);
    assert_int_equal(bnet_json_next(&r), BNET_JSON_ARRAY);
    assert_int_equal(bnet_json_skip(&r), BNET_JSON_ARRAY_END);
    assert_int_equal(bnet_json_next(&r), BNET_JSON_KEY);
    assert_true(bnet_json_text_is(&r, "c"));
    bnet_json_next(&r);
    assert_int_equal(bnet_json_skip(&r), BNET_JSON_INTEGER); /* a number is over at once */
    assert_int_equal(r.n_values, 7);
    r = reader("[[[1,}]]");
    bnet_json_next(&r);
    assert_int_equal(bnet_json_skip(&r), BNET_JSON_BAD);
}

static void test_measure(void **state)
{
    (void)state;
    char why[200] = "";
    static const char text[] = "[1,\n [2, 3]]";
    assert_null(bnet_json_measure(text, strlen(text), 5, why, sizeof why));
    assert_string_equal(bnet_json_measure(text, strlen(text), 4, why, sizeof why), "too much JSON");
    assert_string_equal(why, "line 2, column 7, byte 10: more than 4 values");
    assert_string_equal(bnet_json_measure(text, 7, 5, why, sizeof why), "not valid JSON");
    assert_string_equal(why,
                        "line 2, column 4, byte 7: a comma or the closing bracket was expected");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_events), cmocka_unit_test(test_texts),
                                       cmocka_unit_test(test_integers), cmocka_unit_test(test_skip),
                                       cmocka_unit_test(test_measure)};
    return cmocka_run_group_tests_name("json_reader", tests, NULL, NULL);
}
