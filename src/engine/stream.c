/* stream.c - the tail between detokeniser and callback. */
#include "engine/stream.h"

static bool show(const bnet_stream *s, size_t n, int32_t id)
{
    return !s->on_text || s->on_text(s->user, s->tail->data ? s->tail->data : "", n, id);
}

static void drop(bnet_str *tail, size_t n)
{
    if (n == 0)
        return;
    memmove(tail->data, tail->data + n, tail->n - n);
    tail->n -= n;
    tail->data[tail->n] = '\0';
}

bnet_stream_state bnet_stream_push(bnet_stream *s, const char *text, size_t n, int32_t id,
                                   bool last)
{
    bnet_str_add(s->tail, text, n);
    if (s->tail->failed)
        return BNET_STREAM_NO_MEMORY;
    bool hit;
    size_t safe = bnet_stops_scan(s->stops, s->n_stops, s->tail->data, s->tail->n, &hit);
    if (last && !hit)
        safe = s->tail->n;
    bool go_on = show(s, safe, id);
    drop(s->tail, hit ? s->tail->n : safe);
    if (hit)
        return BNET_STREAM_STOPPED;
    return go_on ? BNET_STREAM_OPEN : BNET_STREAM_REFUSED;
}
