/* Stop strings over a stream of pieces: split across tokens, overlapping, at the end; and never
 * half a character. */
#include "test.h"

#include "engine/stream.h"

typedef struct sink {
    char text[4096];
    size_t n, n_calls;
    int32_t last_id;
    size_t refuse_after; /* calls; 0: never */
} sink;

static bool on_text(void *user, const char *text, size_t n, int32_t id)
{
    sink *s = user;
    memcpy(s->text + s->n, text, n);
    s->n += n;
    s->text[s->n] = '\0';
    for (size_t i = 0; i < n;) {
        int len = bnet_utf8_len(text + i, n - i);
        if (len < 0)
            fail_msg("half a character was shown: %zu bytes of \"%.*s\"", n, (int)n, text);
        i += len > 0 ? (size_t)len : 1;
    }
    s->last_id = id;
    return ++s->n_calls != s->refuse_after;
}

/* Feeds the pieces (ended by NULL); the last one with last = true. Returns the final state. */
static bnet_stream_state feed(const char *const *pieces, const char *const *stops, size_t n_stops,
                              sink *out)
{
    bnet_str tail = {0};
    bnet_stream s = {stops, n_stops, on_text, out, &tail};
    bnet_stream_state state = BNET_STREAM_OPEN;
    for (int32_t i = 0; pieces[i] && state == BNET_STREAM_OPEN; i++) {
        state = bnet_stream_push(&s, pieces[i], strlen(pieces[i]), i, pieces[i + 1] == NULL);
        assert_int_equal(out->n_calls, i + 1);
        assert_int_equal(out->last_id, i);
    }
    if (state == BNET_STREAM_OPEN)
        assert_int_equal(tail.n, 0);
    bnet_str_free(&tail);
    return state;
}

static void table(void **state)
{
    (void)state;
    static const struct {
        const char *pieces[8], *stops[3];
        const char *text;
        bool stopped;
    } rows[] = {
        {{"Hello", " world"}, {0}, "Hello world", false},
        {{"Hello", " STOP", " there"}, {"STOP"}, "Hello ", true},
        {{"Hello S", "T", "O", "P there"}, {"STOP"}, "Hello ", true},
        {{"a S", "TO", " b"}, {"STOP"}, "a STO b", false}, /* a false beginning is shown later */
        {{"a ST", "STO", "P"}, {"STOP"}, "a ST", true},    /* beginning again inside a beginning */
        {{"a ST"}, {"STOP"}, "a ST", false},               /* the end releases what was held */
        {{"ab", "ab", "ac"}, {"abac"}, "ab", true},        /* self-overlap */
        {{"xaab"}, {"aab", "ab"}, "x", true},              /* earliest wins */
        {{"xab", "c"}, {"abcd", "bc"}, "xa", true},        /* inner one completes first */
        {{"\n", "\n", "\nUser:"}, {"\n\nUser:"}, "\n", true},
        {{"caf\xc3\xa9", " noir"}, {"\xc3\xa9 n"}, "caf", true},
        {{"caf\xc3\xa9", " blanc"}, {"\xc3\xa9 n"}, "caf\xc3\xa9 blanc", false},
        {{"\xe2\x82\xac", "\xe2\x82\xac"}, {"\xe2\x82\xac\xe2\x82\xac"}, "", true},
        {{"\xe2\x82\xac", "\xe2\x82\xac!"}, {"\xe2\x82\xad"}, "\xe2\x82\xac\xe2\x82\xac!", false},
        {{"", "", "x", ""}, {"y"}, "x", false}, /* tokens without text */
        {{"\xff\xfe", "STOP"},
         {"STOP"},
         "\xff\xfe",
         true}, /* bytes that are no UTF-8 pass through */
        {{"STOP"}, {"STOP"}, "", true},
        {{"one two three"}, {"three", "two"}, "one ", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t n_stops = 0;
        while (n_stops < 3 && rows[i].stops[n_stops])
            n_stops++;
        sink out = {0};
        bool stopped = feed(rows[i].pieces, rows[i].stops, n_stops, &out) == BNET_STREAM_STOPPED;
        if (stopped != rows[i].stopped || strcmp(out.text, rows[i].text) != 0)
            fail_msg("row %zu: \"%s\" stopped %d, wanted \"%s\" %d", i, out.text, stopped,
                     rows[i].text, rows[i].stopped);
    }
}

/* Any cutting of a text into characters-wise pieces gives the same text and the same end. */
static void every_cut_is_the_same(void **state)
{
    (void)state;
    static const char text[] = "ab\xc3\xa9"
                               "aab\xe2\x82\xac"
                               "aa\xf0\x9f\x98\x80"
                               "bab\xe2\x82\xac"
                               "cc";
    static const char *const stops[] = {"b\xe2\x82\xac"
                                        "c",
                                        "aa\xf0\x9f\x98\x81"};
    static const char want[] = "ab\xc3\xa9"
                               "aab\xe2\x82\xac"
                               "aa\xf0\x9f\x98\x80"
                               "ba";
    uint64_t rng = 11;
    for (int round = 0; round < 2000; round++) {
        bnet_str tail = {0};
        sink out = {0};
        bnet_stream s = {stops, 2, on_text, &out, &tail};
        bnet_stream_state st = BNET_STREAM_OPEN;
        for (size_t at = 0; at < sizeof text - 1 && st == BNET_STREAM_OPEN;) {
            size_t n = 0, n_chars = test_rand(&rng) % 5;
            for (size_t c = 0; c < n_chars && at + n < sizeof text - 1; c++)
                n += (size_t)bnet_utf8_len(text + at + n, sizeof text - 1 - at - n);
            st = bnet_stream_push(&s, text + at, n, 0, at + n == sizeof text - 1);
            at += n;
        }
        assert_int_equal(st, BNET_STREAM_STOPPED);
        assert_string_equal(out.text, want);
        bnet_str_free(&tail);
    }
}

static void refusal_ends_the_stream(void **state)
{
    (void)state;
    static const char *const pieces[] = {"a", "b", "c", NULL};
    sink out = {.refuse_after = 2};
    assert_int_equal(feed(pieces, NULL, 0, &out), BNET_STREAM_REFUSED);
    assert_string_equal(out.text, "ab");
}

static void bad_stops_are_refused(void **state)
{
    (void)state;
    char longest[BITNET_STOP_MAX + 2];
    memset(longest, 'x', sizeof longest);
    longest[BITNET_STOP_MAX] = '\0';
    bitnet_error err = {0};
    const char *stops[2] = {"ok", longest};
    assert_int_equal(bnet_stops_check(stops, 2, &err), BITNET_OK);
    longest[BITNET_STOP_MAX] = 'x';
    longest[BITNET_STOP_MAX + 1] = '\0';
    static const struct {
        const char *stop, *text;
    } rows[] = {{"", "stops[1] has 0 bytes, must have 1..256"},
                {NULL, "stops[1] has 0 bytes"},
                {"a\xc3", "stops[1] is not UTF-8 at byte 1"},
                {"\xa9", "stops[1] is not UTF-8 at byte 0"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        stops[1] = rows[i].stop;
        assert_int_equal(bnet_stops_check(stops, 2, &err), BITNET_ARGUMENT);
        assert_non_null(strstr(err.message, rows[i].text));
    }
    stops[1] = longest;
    assert_int_equal(bnet_stops_check(stops, 2, &err), BITNET_ARGUMENT);
    assert_non_null(strstr(err.message, "too many bytes"));
    assert_int_equal(bnet_stops_check(NULL, 1, &err), BITNET_ARGUMENT);
    assert_int_equal(bnet_stops_check(NULL, 0, &err), BITNET_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table), cmocka_unit_test(every_cut_is_the_same),
        cmocka_unit_test(refusal_ends_the_stream), cmocka_unit_test(bad_stops_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
