/* json_reader.h - JSON pulled from bytes one event at a time: no tree, no allocation, bounded
 * depth.
 *
 * What is JSON is decided as Python's json module does with a str, in its strict mode, but for four
 * things: NaN and Infinity are no numbers; a lone surrogate (\ud800) is refused, for no UTF-8 has
 * it; the bytes must be UTF-8 without a mark in front; at most BNET_JSON_DEPTH arrays and objects
 * may be open at a time. So \u0000 is a character like others (whoever needs C strings looks for
 * it), a number may have any size (whoever wants a value asks for its range), text behind the value
 * is refused, and a key may come twice: only who reads an object knows its keys, and must refuse
 * one that it has seen. */
#ifndef BNET_JSON_READER_H
#define BNET_JSON_READER_H

#include "base/str.h"

#define BNET_JSON_DEPTH 64

typedef enum bnet_json_event {
    BNET_JSON_END, /* of the text, which was whole; again at every further call */
    BNET_JSON_BAD, /* what follows `at` is no JSON, see `why`; again at every further call */
    BNET_JSON_OBJECT,
    BNET_JSON_OBJECT_END,
    BNET_JSON_ARRAY,
    BNET_JSON_ARRAY_END,
    BNET_JSON_KEY, /* the event of its value follows */
    BNET_JSON_STRING,
    BNET_JSON_INTEGER, /* no fraction and no exponent */
    BNET_JSON_REAL,
    BNET_JSON_TRUE,
    BNET_JSON_FALSE,
    BNET_JSON_NULL,
} bnet_json_event;

/* All fields but the first two are the reader's; `at`, `event`, `raw`, `n_values` and `why` may be
 * read. A copy continues from the same place. */
typedef struct bnet_json_reader {
    const char *data;
    size_t n;
    size_t at; /* bytes taken so far */
    bnet_json_event event;
    bnet_span raw;    /* of a key or string: what stands between the quotes; of a number: all */
    bool escaped;     /* raw has backslashes */
    uint64_t objects; /* bit d: the container at depth d is an object */
    int depth;
    int state;
    size_t n_values; /* begun so far, members and elements; a key is not one */
    const char *why; /* of BAD */
} bnet_json_reader;

bnet_json_reader bnet_json_reader_of(const char *data, size_t n);
bnet_json_event bnet_json_next(bnet_json_reader *r);
/* After a value's first event: passes over what is left of it. BAD, or what it ended with. */
bnet_json_event bnet_json_skip(bnet_json_reader *r);

/* Of a key or string: appends the characters it stands for. No memory: s->failed. */
void bnet_json_text(const bnet_json_reader *r, bnet_str *s);
/* The key or string is these characters (`text` needs no escapes). */
bool bnet_json_text_is(const bnet_json_reader *r, const char *text);
/* Of an INTEGER. False: it does not fit. */
bool bnet_json_int64(const bnet_json_reader *r, int64_t *out);

/* "an object", "a string": what an event begins, for messages. */
const char *bnet_json_event_name(bnet_json_event e);
/* "line 3, column 7, byte 41: why" of BAD. Returns buf. */
const char *bnet_json_where(const bnet_json_reader *r, char *buf, size_t cap);

/* Reads all of a text that a parser with a tree will be given: such a tree may take two hundred
 * bytes for two of the text. NULL: it is JSON of at most max_values values. Else what it is
 * instead, "not valid JSON" or "too much JSON", and `why` has the place and the reason. */
const char *bnet_json_measure(const char *data, size_t n, size_t max_values, char *why, size_t cap);
/* What that asks of every text here: the trees stay below 64 MiB. */
#define BNET_JSON_VALUES ((size_t)1 << 18)

#endif
