/* merge.h - the heart of both tokenizers: symbols side by side, of which the best adjacent pair is
 * joined until no pair is left that may be. Hides: the heap and the linked symbols. O(n log n) in
 * the symbols of a piece. */
#ifndef BNET_MERGE_H
#define BNET_MERGE_H

#include "base/progress.h"
#include "base/str.h"

#define BNET_NO_SYMBOL UINT32_MAX
#define BNET_ROOM      8

typedef struct bnet_symbol {
    uint32_t at, n; /* bytes [at, at + n) of the scratch text; n 0: joined to its left neighbour */
    uint32_t prev, next; /* BNET_NO_SYMBOL at the ends */
} bnet_symbol;

typedef struct bnet_pair {
    uint64_t
        order; /* rank in the upper half, left symbol in the lower: the least is joined first */
    uint32_t n_left,
        n_right; /* lengths when the pair was found: tell a stale pair from a live one */
} bnet_pair;

/* Work space of one tokenize call, reused from piece to piece. Zero-initialise. */
typedef struct bnet_scratch {
    bnet_str text; /* begins behind BNET_ROOM unused bytes, which the hash may read */
    bnet_symbol *symbols;
    size_t n, cap;
    bnet_pair *heap;
    size_t n_heap, cap_heap;
    bnet_cancel cancel; /* who may end the call */
    size_t n_since;     /* steps since that was asked */
    bool cancelled;     /* the answer was yes */
} bnet_scratch;

enum { BNET_ASK_EVERY = 1 << 16 }; /* steps or bytes: a few milliseconds */

/* So many steps were done. False: the call is to end. */
static inline bool bnet_scratch_go_on(bnet_scratch *s, size_t n_steps)
{
    s->n_since += n_steps;
    if (s->n_since < BNET_ASK_EVERY)
        return true;
    s->n_since = 0;
    s->cancelled = s->cancelled || bnet_cancelled(&s->cancel);
    return !s->cancelled;
}
/* Why what works with the scratch returned false: CANCELLED or MEMORY. */
bitnet_status bnet_scratch_fail(const bnet_scratch *s, bitnet_error *err);

void bnet_scratch_free(bnet_scratch *s);

/* May the n_left bytes at s and the n_right bytes behind them be joined, and how early (*rank,
 * least first)? BNET_ROOM bytes before s may be read. */
typedef bool (*bnet_pair_fn)(const void *owner, const char *s, size_t n_left, size_t n_right,
                             uint32_t *rank);

/* Appends a symbol of n bytes behind the last one. False: no memory, or cancelled. */
bool bnet_symbol_add(bnet_scratch *s, uint32_t n);
/* Joins pairs of s->symbols (leftmost first among equals) until none may be. False: no memory, or
 * cancelled. */
bool bnet_merge(bnet_scratch *s, bnet_pair_fn pair, const void *owner);

#endif
