/* jinja.h - a model file's own chat template, rendered: the part of Jinja that published chat
 * templates use, as transformers sets it up (trim_blocks, lstrip_blocks, tojson without escapes of
 * its own, break and continue, raise_exception, strftime_now, generation blocks).
 *
 * A template is a stranger's program. It sees the values it is given and the time, nothing else;
 * the steps it makes, how deep its parts nest, the memory it takes and the text it writes are
 * bounded: with the usual limits it ends within a few seconds, whatever it does, and 64 KB of
 * the caller's stack are enough (a sanitizer's build: 600 KB). Macros may call macros 40 deep,
 * where the expressions that call them are simple: tools may have schemas of any depth that JSON
 * has here. A call has at most 64 arguments. What it uses beyond our part of the language is
 * refused by name, never skipped. Differences from Jinja: integers have 64 bits. */
#ifndef BNET_JINJA_H
#define BNET_JINJA_H

#include "base/str.h"

typedef struct bnet_jinja_limits { /* 0: the default */
    uint64_t steps;                /* evaluations, and bytes moved or compared / 64 [4,000,000] */
    size_t memory;                 /* bytes of all values, template included [64 MiB] */
    size_t output;                 /* bytes [16 MiB] */
    int64_t now;                   /* seconds since 1970 for strftime_now; 0: the clock's */
} bnet_jinja_limits;

/* Appends to *out what `source` renders with the members of `context`, a JSON object, as its
 * variables. `limits` may be NULL. Fails: ARGUMENT (the template called raise_exception, or context
 * is no JSON object), TOKENIZER (the template is no Jinja, uses what is not supported, asks a value
 * for what it cannot do, or reached a bound; the message has the template's line), MEMORY; *out
 * is as before then. */
bitnet_status bnet_jinja_render(bnet_span source, bnet_span context,
                                const bnet_jinja_limits *limits, bnet_str *out, bitnet_error *err);

#endif
