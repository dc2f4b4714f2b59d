/* stream.h - tokens to text as they come: whole characters, held back while they may become a stop
 * string. */
#ifndef BNET_STREAM_H
#define BNET_STREAM_H

#include "text/tokenizer.h"

typedef struct bnet_stream {
    bnet_detok detok;
    const char *const *stops; /* borrowed */
    size_t n_stops;
    bnet_str tail; /* n_shown bytes that the last call handed out, then text held back */
    size_t n_shown;
    bool stopped; /* a stop string is complete: no text follows */
} bnet_stream;

/* Every stop string must be non-empty valid UTF-8 of at most BITNET_STOP_MAX bytes. `owner` stands
 * in the message. */
bitnet_status bnet_stops_check(const char *owner, const char *const *stops, size_t n_stops,
                               bitnet_error *err);

/* The strings in one block, to be freed with bnet_free; NULL: no memory. */
char **bnet_stops_copy(const char *const *stops, size_t n_stops);

/* All the memory a stream needs whose longest token has so many bytes; _reserve returns false if
 * there is none. Release with bnet_str_free(&s->tail). */
size_t bnet_stream_bytes(size_t longest_token);
bool bnet_stream_reserve(bnet_stream *s, size_t longest_token);
/* Forgets the text before and begins another, which continues one unless at_start. */
void bnet_stream_begin(bnet_stream *s, const bnet_tokenizer *t, const char *const *stops,
                       size_t n_stops, bool special, bool at_start);
/* The text that may be shown after a token (NULL: none); valid until the next call. last: no text
 * follows, so nothing is held back. False: no memory, which cannot be after _reserve. */
bool bnet_stream_take(bnet_stream *s, const int32_t *id, bool last, const char **text,
                      size_t *n_bytes);
/* The parts of _take: makes room for text behind the tail; decides what of it may be shown. */
bnet_str *bnet_stream_room(bnet_stream *s);
bool bnet_stream_settle(bnet_stream *s, bool last, const char **text, size_t *n_bytes);

/* Some text is held back. */
static inline bool bnet_stream_holds(const bnet_stream *s)
{
    return s->tail.n > s->n_shown || s->detok.n_held > 0;
}

#endif
