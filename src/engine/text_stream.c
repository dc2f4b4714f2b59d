/* text_stream.c - the public text stream: tokens of an engine to text as they come. Hides: who owns
 * the stop strings. */
#include "engine/engine.h"

struct bitnet_stream {
    const bitnet_engine *engine;
    bool print_special, continues;
    char **stops; /* bnet_stops_copy */
    size_t n_stops;
    bnet_stream s;
};

void bitnet_stream_options_init(bitnet_stream_options *o)
{
    if (o)
        *o = (bitnet_stream_options){.struct_size = sizeof *o};
}

bitnet_status bitnet_stream_open(const bitnet_engine *engine, const bitnet_stream_options *options,
                                 bitnet_stream **out, bitnet_error *err)
{
    static const char who[] = "stream options";
    if (!engine || !out)
        return bnet_fail(err, BITNET_ARGUMENT, "stream: engine and out must not be NULL");
    bitnet_stream_options o;
    bitnet_stream_options_init(&o);
    bitnet_status st = bnet_options_copy(&o, sizeof o, options, who, err);
    if (st == BITNET_OK)
        st = bnet_stops_check(who, o.stops, o.n_stops, err);
    if (st != BITNET_OK)
        return st;
    bitnet_stream *s = bnet_calloc(1, sizeof *s);
    if (!s || !(s->stops = bnet_stops_copy(o.stops, o.n_stops)) ||
        !bnet_stream_reserve(&s->s, engine->longest_token)) {
        bitnet_stream_close(s);
        return bnet_no_memory(err, "text stream");
    }
    s->engine = engine;
    s->n_stops = o.n_stops;
    s->print_special = o.print_special;
    s->continues = o.continues;
    bitnet_stream_reset(s);
    *out = s;
    return BITNET_OK;
}

void bitnet_stream_close(bitnet_stream *s)
{
    if (!s)
        return;
    bnet_str_free(&s->s.tail);
    bnet_free(s->stops);
    bnet_free(s);
}

void bitnet_stream_reset(bitnet_stream *s)
{
    if (s)
        bnet_stream_begin(&s->s, s->engine->tokenizer, (const char *const *)s->stops, s->n_stops,
                          s->print_special, !s->continues);
}

bitnet_status bitnet_stream_push(bitnet_stream *s, int32_t id, const char **text, size_t *n_bytes,
                                 bool *stopped, bitnet_error *err)
{
    if (!s || !text || !n_bytes)
        return bnet_fail(err, BITNET_ARGUMENT, "stream: stream, text and n_bytes must not be NULL");
    bitnet_status st = bnet_check_ids(s->engine, "stream", &id, 1, err);
    if (st != BITNET_OK)
        return st;
    if (!bnet_stream_take(&s->s, &id, false, text, n_bytes))
        return bnet_no_memory(err, "text stream");
    if (stopped)
        *stopped = s->s.stopped;
    return BITNET_OK;
}

bitnet_status bitnet_stream_finish(bitnet_stream *s, const char **text, size_t *n_bytes,
                                   bitnet_error *err)
{
    if (!s || !text || !n_bytes)
        return bnet_fail(err, BITNET_ARGUMENT, "stream: stream, text and n_bytes must not be NULL");
    return bnet_stream_take(&s->s, NULL, true, text, n_bytes) ? BITNET_OK
                                                              : bnet_no_memory(err, "text stream");
}
