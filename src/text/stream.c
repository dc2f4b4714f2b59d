/* stream.c - detokeniser and stop strings in one buffer. Stop strings are few and short and the
 * tail is one token long, so plain comparison is enough. Since stop strings are valid UTF-8 they
 * begin and end at characters, so a cut never splits one. */
#include "text/stream.h"

enum { HELD_MAX = 8 }; /* bytes of an unfinished character, and a NUL */

/* ---- stop strings ---- */

bitnet_status bnet_stops_check(const char *owner, const char *const *stops, size_t n_stops,
                               bitnet_error *err)
{
    if (n_stops && !stops)
        return bnet_fail(err, BITNET_ARGUMENT, "%s: stops must not be NULL when n_stops is %zu",
                         owner, n_stops);
    for (size_t i = 0; i < n_stops; i++) {
        size_t n = stops[i] ? strnlen(stops[i], BITNET_STOP_MAX + 1) : 0;
        if (n < 1 || n > BITNET_STOP_MAX)
            return bnet_fail(err, BITNET_ARGUMENT, "%s: stops[%zu] has %s bytes, must have 1..%d",
                             owner, i, n ? "too many" : "0", BITNET_STOP_MAX);
        for (size_t at = 0; at < n;) {
            int len = bnet_utf8_len(stops[i] + at, n - at);
            if (len <= 0)
                return bnet_fail(err, BITNET_ARGUMENT, "%s: stops[%zu] is not UTF-8 at byte %zu",
                                 owner, i, at);
            at += (size_t)len;
        }
    }
    return BITNET_OK;
}

char **bnet_stops_copy(const char *const *stops, size_t n_stops)
{
    size_t n_bytes = n_stops * sizeof *stops;
    for (size_t i = 0; i < n_stops; i++)
        n_bytes += strlen(stops[i]) + 1;
    char **copy = bnet_calloc(n_bytes + 1, 1);
    char *at = copy ? (char *)(copy + n_stops) : NULL;
    for (size_t i = 0; at && i < n_stops; i++) {
        size_t length = strlen(stops[i]) + 1;
        copy[i] = memcpy(at, stops[i], length);
        at += length;
    }
    return copy;
}

/* Does the text at `at` agree with the stop string as far as both go? *whole: the stop string is
 * complete. */
static bool agrees(const char *stop, const char *at, size_t n, bool *whole)
{
    size_t n_stop = strlen(stop);
    *whole = n_stop <= n;
    return memcmp(stop, at, BNET_MIN(n_stop, n)) == 0;
}

/* How many bytes of the tail may be shown now: up to the earliest stop string if one is complete,
 * else all but the longest end that could be the beginning of one. */
static size_t scan(const bnet_stream *s, bool *hit)
{
    const char *tail = s->tail.data;
    size_t n = s->tail.n, hold = n; /* where the first possible beginning lies */
    *hit = false;
    for (size_t at = 0; at < n; at++)
        for (size_t i = 0; i < s->n_stops; i++) {
            bool whole;
            if (!agrees(s->stops[i], tail + at, n - at, &whole))
                continue;
            if (whole) {
                *hit = true;
                return at;
            }
            hold = BNET_MIN(hold, at);
        }
    return hold;
}

/* ---- the stream ---- */

size_t bnet_stream_bytes(size_t longest_token)
{
    return BITNET_STOP_MAX + longest_token + HELD_MAX;
}

bool bnet_stream_reserve(bnet_stream *s, size_t longest_token)
{
    if (!bnet_grow(&s->tail.data, &s->tail.cap, bnet_stream_bytes(longest_token), 1))
        return false;
    s->tail.data[0] = '\0';
    return true;
}

void bnet_stream_begin(bnet_stream *s, const bnet_tokenizer *t, const char *const *stops,
                       size_t n_stops, bool special, bool at_start)
{
    bnet_detok_init(&s->detok, t, special, at_start);
    s->stops = stops;
    s->n_stops = n_stops;
    s->tail.n = s->n_shown = 0;
    s->tail.failed = s->stopped = false;
}

bnet_str *bnet_stream_room(bnet_stream *s)
{
    if (s->n_shown) {
        s->tail.n -= s->n_shown;
        memmove(s->tail.data, s->tail.data + s->n_shown, s->tail.n);
        s->n_shown = 0;
    }
    return &s->tail;
}

bool bnet_stream_settle(bnet_stream *s, bool last, const char **text, size_t *n_bytes)
{
    bool hit;
    if (s->tail.failed)
        return false;
    s->n_shown = scan(s, &hit);
    if (hit) {
        s->tail.n = s->n_shown;
        s->stopped = true;
    } else if (last) {
        s->n_shown = s->tail.n;
    }
    *text = s->tail.data ? s->tail.data : "";
    *n_bytes = s->n_shown;
    return true;
}

bool bnet_stream_take(bnet_stream *s, const int32_t *id, bool last, const char **text,
                      size_t *n_bytes)
{
    bnet_str *tail = bnet_stream_room(s);
    if (id && !s->stopped)
        bnet_detok_push(&s->detok, *id, tail);
    if (last && !s->stopped)
        bnet_detok_finish(&s->detok, tail);
    return bnet_stream_settle(s, last, text, n_bytes);
}
