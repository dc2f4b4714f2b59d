/* jinja_sort.c - pairs of values in the order of their keys: runs that are sorted are merged, two
 * by two, until one is left. Pairs of equal keys stay as they were. */
#include "jinja/jinja_impl.h"

/* The sorted runs from..middle and middle..end of `pairs` become one in `out`. */
static void merge(jinja *m, const jinja_pair *pairs, size_t from, size_t middle, size_t end,
                  bool back, jinja_pair *out)
{
    size_t left = from, right = middle;
    for (size_t i = from; i < end && bnet_jinja_step(m, sizeof *pairs); i++) {
        bool later = left == middle;
        if (!later && right < end) {
            int order = bnet_jinja_order(m, pairs[left].key, pairs[right].key);
            later = back ? order < 0 : order > 0;
        }
        out[i] = later ? pairs[right++] : pairs[left++];
    }
}

void bnet_jinja_sort(jinja *m, jinja_pair *pairs, size_t n, bool back)
{
    jinja_pair *from = pairs, *to = bnet_jinja_alloc(m, n * sizeof *pairs);
    for (size_t run = 1; run < n && !m->failed; run *= 2) {
        for (size_t i = 0; i < n && !m->failed; i += 2 * run)
            merge(m, from, i, BNET_MIN(i + run, n), BNET_MIN(i + 2 * run, n), back, to);
        jinja_pair *other = from;
        from = to;
        to = other;
    }
    if (from != pairs && !m->failed)
        memcpy(pairs, from, n * sizeof *pairs);
}
