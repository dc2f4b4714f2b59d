/* split.h - cuts running text into the pieces inside which byte pairs may merge. Hides: PCRE2, the
 * two patterns, what happens to bytes that are no UTF-8. */
#ifndef BNET_SPLIT_H
#define BNET_SPLIT_H

#include "base/base.h"

typedef enum bnet_split_kind { BNET_SPLIT_LLAMA3, BNET_SPLIT_GPT2 } bnet_split_kind;

typedef struct bnet_splitter bnet_splitter;

bitnet_status bnet_splitter_open(bnet_split_kind kind, bnet_splitter **out, bitnet_error *err);
void bnet_splitter_close(bnet_splitter *s);

/* Receives the pieces in order; every byte of the text is in exactly one. A piece of no bytes
 * between them is the question whether to go on with a long text. Not OK: stops the walk. */
typedef bitnet_status (*bnet_piece_fn)(void *user, const char *piece, size_t n, bitnet_error *err);

/* Bytes that are no valid UTF-8 come as pieces of one byte. Safe from several threads at once. */
bitnet_status bnet_split_text(const bnet_splitter *s, const char *text, size_t n, bnet_piece_fn fn,
                              void *user, bitnet_error *err);

#endif
