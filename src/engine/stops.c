/* stops.c - matching. Stop strings are few and short and the tail is one token long, so plain
 * comparison is enough. Since stop strings are valid UTF-8 they begin and end at characters, so a
 * cut never splits one. */
#include "engine/stops.h"

bitnet_status bnet_stops_check(const char *const *stops, size_t n_stops, bitnet_error *err)
{
    if (n_stops && !stops)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "generate options: stops must not be NULL when n_stops is %zu", n_stops);
    for (size_t i = 0; i < n_stops; i++) {
        size_t n = stops[i] ? strnlen(stops[i], BITNET_STOP_MAX + 1) : 0;
        if (n < 1 || n > BITNET_STOP_MAX)
            return bnet_fail(err, BITNET_ARGUMENT,
                             "generate options: stops[%zu] has %s bytes, must have 1..%d", i,
                             n ? "too many" : "0", BITNET_STOP_MAX);
        for (size_t at = 0; at < n;) {
            int len = bnet_utf8_len(stops[i] + at, n - at);
            if (len <= 0)
                return bnet_fail(err, BITNET_ARGUMENT,
                                 "generate options: stops[%zu] is not UTF-8 at byte %zu", i, at);
            at += (size_t)len;
        }
    }
    return BITNET_OK;
}

/* Does the text at `at` agree with the stop string as far as both go? *whole: the stop string is
 * complete. */
static bool agrees(const char *stop, const char *at, size_t n, bool *whole)
{
    size_t n_stop = strlen(stop);
    *whole = n_stop <= n;
    return memcmp(stop, at, BNET_MIN(n_stop, n)) == 0;
}

size_t bnet_stops_scan(const char *const *stops, size_t n_stops, const char *tail, size_t n,
                       bool *hit)
{
    size_t hold = n; /* where the first possible beginning lies */
    *hit = false;
    for (size_t at = 0; at < n; at++)
        for (size_t i = 0; i < n_stops; i++) {
            bool whole;
            if (!agrees(stops[i], tail + at, n - at, &whole))
                continue;
            if (whole) {
                *hit = true;
                return at;
            }
            hold = BNET_MIN(hold, at);
        }
    return hold;
}
