/* Text as it comes: stop strings split across tokens, overlapping, at the end; never half a
 * character; any cut of any bytes into tokens gives what bitnet_detokenize gives. */
#include "nano.h"

#include "text/stream.h"

typedef struct sink {
    char text[4096];
    size_t n, n_calls;
    size_t cuts[256], n_cuts; /* where pieces of any bytes ended */
} sink;

static void show(sink *s, const char *text, size_t n)
{
    memcpy(s->text + s->n, text, n);
    s->n += n;
    s->text[s->n] = '\0';
    for (size_t i = 0; i < n;) {
        int len = bnet_utf8_len(text + i, n - i);
        if (len < 0)
            fail_msg("half a character was shown: %zu bytes of \"%.*s\"", n, (int)n, text);
        i += len > 0 ? (size_t)len : 1;
    }
    s->n_calls++;
}

/* One piece of whole characters. True: a stop string is complete. */
static bool add(bnet_stream *s, const char *piece, size_t n, bool last, sink *out)
{
    const char *text;
    size_t n_bytes;
    bnet_str_add(bnet_stream_room(s), piece, n);
    assert_true(bnet_stream_settle(s, last, &text, &n_bytes));
    show(out, text, n_bytes);
    return s->stopped;
}

/* Feeds the pieces (ended by NULL), the last one with last = true. True: it stopped. */
static bool feed(const char *const *pieces, const char *const *stops, size_t n_stops, sink *out)
{
    bnet_stream s = {.stops = stops, .n_stops = n_stops};
    bool stopped = false;
    for (size_t i = 0; pieces[i] && !stopped; i++) {
        stopped = add(&s, pieces[i], strlen(pieces[i]), pieces[i + 1] == NULL, out);
        assert_int_equal(out->n_calls, i + 1);
    }
    assert_false(bnet_stream_holds(&s));
    bnet_str_free(&s.tail);
    return stopped;
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
        bool stopped = feed(rows[i].pieces, rows[i].stops, n_stops, &out);
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
        sink out = {0};
        bnet_stream cut = {.stops = stops, .n_stops = 2};
        bool stopped = false;
        for (size_t at = 0; at < sizeof text - 1 && !stopped;) {
            size_t n = 0, n_chars = test_rand(&rng) % 5;
            for (size_t c = 0; c < n_chars && at + n < sizeof text - 1; c++)
                n += (size_t)bnet_utf8_len(text + at + n, sizeof text - 1 - at - n);
            stopped = add(&cut, text + at, n, at + n == sizeof text - 1, &out);
            at += n;
        }
        assert_true(stopped);
        assert_string_equal(out.text, want);
        bnet_str_free(&cut.tail);
    }
}

static void bad_stops_are_refused(void **state)
{
    (void)state;
    char longest[BITNET_STOP_MAX + 2];
    memset(longest, 'x', sizeof longest);
    longest[BITNET_STOP_MAX] = '\0';
    bitnet_error err = {0};
    const char *stops[2] = {"ok", longest};
    assert_int_equal(bnet_stops_check("generate options", stops, 2, &err), BITNET_OK);
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
        assert_int_equal(bnet_stops_check("generate options", stops, 2, &err), BITNET_ARGUMENT);
        assert_non_null(strstr(err.message, rows[i].text));
    }
    stops[1] = longest;
    assert_int_equal(bnet_stops_check("generate options", stops, 2, &err), BITNET_ARGUMENT);
    assert_non_null(strstr(err.message, "too many bytes"));
    assert_int_equal(bnet_stops_check("generate options", NULL, 1, &err), BITNET_ARGUMENT);
    assert_int_equal(bnet_stops_check("generate options", NULL, 0, &err), BITNET_OK);
}

/* ---- the public stream ---- */

enum { N_IDS = 120, BYTES_MAX = 8192 };

static const char *const models[] = {TEST_SOURCE_DIR "/models/nano.gguf",
                                     TEST_SOURCE_DIR "/models/story.gguf"};

static nano open_model(const char *path)
{
    nano n = {0};
    bitnet_runtime_options ro;
    bitnet_engine_options eo;
    bitnet_runtime_options_init(&ro);
    bitnet_engine_options_init(&eo);
    ro.n_threads = 1;
    eo.vocab_only = true;
    OK(bitnet_runtime_open(&ro, &n.runtime, &err));
    OK(bitnet_engine_open(n.runtime, path, &eo, &n.engine, &err));
    n.n_vocab = bitnet_engine_model(n.engine)->n_vocab;
    return n;
}

/* Mostly tokens of a byte or two, so that characters are torn and bytes invalid; some of any kind.
 */
static size_t roll_ids(const nano *n, uint64_t *rng, int32_t *ids)
{
    size_t n_ids = 1 + test_rand(rng) % N_IDS;
    for (size_t i = 0; i < n_ids; i++)
        do {
            ids[i] = (int32_t)(test_rand(rng) % (unsigned)n->n_vocab);
            size_t n_bytes;
            bitnet_token_bytes(n->engine, ids[i], &n_bytes);
            if (n_bytes <= 2)
                break;
        } while (test_rand(rng) % 4);
    return n_ids;
}

/* All text of the ids; *stopped_at: after how many of them it stopped, n_ids + 1 for never. */
static void stream_all(bitnet_stream *s, const int32_t *ids, size_t n_ids, sink *out,
                       size_t *stopped_at)
{
    const char *text;
    size_t n_bytes;
    bool stopped = false;
    memset(out, 0, sizeof *out);
    *stopped_at = n_ids + 1;
    for (size_t i = 0; i < n_ids; i++) {
        OK(bitnet_stream_push(s, ids[i], &text, &n_bytes, &stopped, &err));
        if (*stopped_at <= n_ids)
            assert_true(stopped && n_bytes == 0);
        if (stopped && *stopped_at > n_ids)
            *stopped_at = i + 1;
        memcpy(out->text + out->n, text, n_bytes);
        out->n += n_bytes;
        out->cuts[out->n_cuts++] = out->n;
    }
    OK(bitnet_stream_finish(s, &text, &n_bytes, &err));
    memcpy(out->text + out->n, text, n_bytes); /* bytes that remain no character come now */
    out->n += n_bytes;
}

/* No piece ended inside a character of the whole text. */
static void check_cuts(const sink *out, const char *whole, size_t n)
{
    size_t at = 0;
    for (size_t i = 0; i < out->n_cuts; i++) {
        while (at < out->cuts[i]) {
            int len = bnet_utf8_len(whole + at, n - at);
            at += len > 0 ? (size_t)len : 1;
        }
        assert_int_equal(at, out->cuts[i]);
    }
}

static void stream_equals_detokenize(void **state)
{
    (void)state;
    uint64_t rng = 17;
    static char whole[BYTES_MAX];
    for (size_t m = 0; m < 2; m++) {
        nano n = open_model(models[m]);
        for (int special = 0; special < 2; special++) {
            bitnet_stream_options o;
            bitnet_stream_options_init(&o);
            o.print_special = special;
            bitnet_stream *s = NULL;
            OK(bitnet_stream_open(n.engine, &o, &s, &err));
            for (int round = 0; round < 500; round++) {
                int32_t ids[N_IDS];
                size_t n_bytes, at, n_ids = roll_ids(&n, &rng, ids);
                sink out;
                OK(bitnet_detokenize(n.engine, ids, n_ids, special ? BITNET_TEXT_SPECIAL : 0, whole,
                                     sizeof whole, &n_bytes, &err));
                if (n_bytes >= sizeof out.text)
                    continue;
                stream_all(s, ids, n_ids, &out, &at);
                assert_int_equal(out.n, n_bytes);
                assert_memory_equal(out.text, whole, n_bytes);
                check_cuts(&out, whole, n_bytes);
                bitnet_stream_reset(s);
            }
            bitnet_stream_close(s);
        }
        nano_close(&n);
    }
}

/* The text ends where the first of the stop strings that are complete soonest begins, in plain
 * words: the shortest prefix of the tokens whose whole characters hold one, its earliest place. */
static size_t plain_stop(const char *text, size_t n, const char *const *stops, size_t n_stops,
                         bool *hit)
{
    size_t first = n;
    for (size_t i = 0; i < n_stops; i++) {
        const char *at = memmem(text, n, stops[i], strlen(stops[i]));
        if (at && (size_t)(at - text) < first)
            first = (size_t)(at - text);
    }
    *hit = first < n;
    return first;
}

static void stops_never_leak(void **state)
{
    (void)state;
    uint64_t rng = 18;
    size_t n_stopped = 0;
    static char whole[BYTES_MAX];
    nano n = open_model(models[0]);
    for (int round = 0; round < 1500; round++) {
        int32_t ids[N_IDS];
        size_t n_bytes, at, n_ids = roll_ids(&n, &rng, ids);
        OK(bitnet_detokenize(n.engine, ids, n_ids, 0, whole, sizeof whole, &n_bytes, &err));
        char stop[2][8];
        const char *stops[2];
        size_t n_stops = 0;
        for (int i = 0; i < 2; i++) { /* something of the text, where that is UTF-8 */
            size_t len = 1 + test_rand(&rng) % 7, from = n_bytes ? test_rand(&rng) % n_bytes : 0;
            if (from + len > n_bytes)
                continue;
            memcpy(stop[n_stops], whole + from, len);
            stop[n_stops][len] = '\0';
            stops[n_stops] = stop[n_stops];
            if (bnet_stops_check("", stops + n_stops, 1, NULL) == BITNET_OK)
                n_stops++;
        }
        bitnet_stream_options o;
        bitnet_stream_options_init(&o);
        o.stops = stops;
        o.n_stops = n_stops;
        bitnet_stream *s = NULL;
        OK(bitnet_stream_open(n.engine, &o, &s, &err));
        sink out;
        if (n_bytes < sizeof out.text) {
            bool hit;
            stream_all(s, ids, n_ids, &out, &at);
            for (size_t i = 0; i < n_stops; i++)
                assert_null(memmem(out.text, out.n, stops[i], strlen(stops[i])));
            assert_memory_equal(out.text, whole, out.n);
            check_cuts(&out, whole, n_bytes);
            size_t end = plain_stop(whole, n_bytes, stops, n_stops, &hit);
            assert_int_equal(hit, at <= n_ids);
            assert_true(out.n >= end); /* a later one may have been complete sooner */
            if (n_stops < 2)
                assert_int_equal(out.n, end);
            n_stopped += hit;
        }
        bitnet_stream_close(s);
    }
    print_message("%zu stopped\n", n_stopped);
    assert_true(n_stopped > 300);
    nano_close(&n);
}

static void wrong_use(void **state)
{
    (void)state;
    nano n = open_model(models[0]);
    bitnet_stream *s = NULL;
    const char *text, *empty[] = {""};
    size_t n_bytes;
    bitnet_stream_options o;
    bitnet_stream_options_init(&o);
    o.stops = empty;
    o.n_stops = 1;
    FAILS(bitnet_stream_open(n.engine, &o, &s, &err), BITNET_ARGUMENT,
          "stream options: stops[0] has 0 bytes");
    OK(bitnet_stream_open(n.engine, NULL, &s, &err));
    FAILS(bitnet_stream_push(s, n.n_vocab, &text, &n_bytes, NULL, &err), BITNET_ARGUMENT, "stream");
    FAILS(bitnet_stream_push(s, -1, &text, &n_bytes, NULL, &err), BITNET_ARGUMENT, "-1");
    FAILS(bitnet_stream_push(s, 1, NULL, &n_bytes, NULL, &err), BITNET_ARGUMENT, "NULL");
    bitnet_stream_close(s);
    nano_close(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table),
        cmocka_unit_test(every_cut_is_the_same),
        cmocka_unit_test(bad_stops_are_refused),
        cmocka_unit_test(stream_equals_detokenize),
        cmocka_unit_test(stops_never_leak),
        cmocka_unit_test(wrong_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
