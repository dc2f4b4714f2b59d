/* fuzz_json.c - the pull reader beside jansson, another program's: both take a text or both refuse
 * it, but for numbers that do not fit and what lies deeper than BNET_JSON_DEPTH; both count the
 * same values; what is skipped is as long as what is read. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/json_reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "fuzz_json: %s\n", #what);                                             \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static void check_text(const bnet_json_reader *r)
{
    bnet_str s = {0};
    bnet_json_text(r, &s);
    CHECK(!s.failed && s.n <= r->raw.n && (r->escaped || s.n == r->raw.n));
    for (size_t i = 0; i < s.n;) {
        int n = bnet_utf8_len(s.data + i, s.n - i);
        CHECK(n > 0);
        i += (size_t)n;
    }
    if (s.n && !memchr(s.data, '\0', s.n))
        CHECK(bnet_json_text_is(r, s.data) && !bnet_json_text_is(r, s.data + 1));
    bnet_str_free(&s);
}

static void check_event(const bnet_json_reader *r)
{
    int64_t value;
    bnet_json_reader skipping = *r, walking = *r;
    if (r->event == BNET_JSON_KEY || r->event == BNET_JSON_STRING)
        check_text(r);
    if (r->event == BNET_JSON_INTEGER && bnet_json_int64(r, &value))
        CHECK((value < 0) == (r->raw.data[0] == '-' && value != 0));
    CHECK(bnet_json_event_name(r->event)[0]);
    if (r->event != BNET_JSON_ARRAY || r->depth > 2) /* else the cost grows with the depth */
        return;
    bnet_json_skip(&skipping);
    while (walking.depth >= r->depth && bnet_json_next(&walking) != BNET_JSON_BAD)
        continue;
    CHECK(skipping.at == walking.at && skipping.event == walking.event);
}

/* Returns whether the text is JSON; *deep: it is too deep for us. */
static bool walk(const char *data, size_t n, bool *deep)
{
    char where[128];
    bnet_json_reader r = bnet_json_reader_of(data, n);
    while (bnet_json_next(&r) > BNET_JSON_BAD) {
        CHECK(r.depth >= 0 && r.depth <= BNET_JSON_DEPTH && r.at <= n);
        check_event(&r);
    }
    *deep = r.event == BNET_JSON_BAD && strstr(r.why, "deep");
    if (r.event == BNET_JSON_BAD)
        CHECK(strncmp(bnet_json_where(&r, where, sizeof where), "line ", 5) == 0);
    char why[128] = "";
    const char *wrong = bnet_json_measure(data, n, 100, why, sizeof why);
    CHECK(!wrong == (r.event == BNET_JSON_END && r.n_values <= 100));
    return r.event == BNET_JSON_END;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    bool deep;
    json_error_t e = {0};
    const char *text = (const char *)data;
    bool ours = walk(text, n_bytes, &deep);
    json_t *tree = json_loadb(text ? text : "", n_bytes, JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
    if (tree)
        CHECK(ours || deep || memchr(text, '\0', n_bytes)); /* jansson passes over a NUL */
    else if (ours)
        CHECK(json_error_code(&e) == json_error_numeric_overflow);
    json_decref(tree);
    return 0;
}
