/* stream.h - generated text on its way to the caller: held back while it may become a stop string.
 */
#ifndef BNET_STREAM_H
#define BNET_STREAM_H

#include "engine/stops.h"

typedef enum bnet_stream_state {
    BNET_STREAM_OPEN,
    BNET_STREAM_STOPPED, /* a stop string is complete; what came before it was shown */
    BNET_STREAM_REFUSED, /* the callback returned false */
    BNET_STREAM_NO_MEMORY,
} bnet_stream_state;

typedef struct bnet_stream {
    const char *const *stops;
    size_t n_stops;
    bitnet_text_fn on_text; /* may be NULL */
    void *user;
    bnet_str *tail; /* text not yet shown; borrowed */
} bnet_stream;

/* The n bytes of text (whole characters) that token id completed. Calls back exactly once, with
 * what may be shown now (possibly nothing), unless there is no memory. last: no text follows, so
 * nothing is held back. */
bnet_stream_state bnet_stream_push(bnet_stream *s, const char *text, size_t n, int32_t id,
                                   bool last);

#endif
