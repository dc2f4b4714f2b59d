/* candidates.h - tokens with what orders them: the best k of many, and the best one by one. */
#ifndef BNET_CANDIDATES_H
#define BNET_CANDIDATES_H

#include "base/base.h"

typedef struct bnet_candidate {
    float key; /* larger is better; of equal keys the lower id */
    float x;   /* for the caller */
    int32_t id;
} bnet_candidate;

/* c[0 .. n - n_sorted) is a heap, c[n - 1], c[n - 2], ... are the best ones in order. */
typedef struct bnet_candidates {
    bnet_candidate *c; /* room for as many as are added */
    size_t n, n_sorted;
} bnet_candidates;

/* Keeps the k best of those offered since n was 0; unordered until _restart. k is 1.. */
void bnet_candidates_offer(bnet_candidates *h, size_t k, bnet_candidate fresh);
/* Makes a heap of c[0 .. n), best on top, after keys were set or changed. */
void bnet_candidates_restart(bnet_candidates *h);
/* The i-th best, i < n; puts as many in order as needed. Requires _restart. */
const bnet_candidate *bnet_candidates_nth(bnet_candidates *h, size_t i);
/* Sorts c[0 .. n) by ascending id. Ids must be below 2^23; keys are unspecified afterwards. */
void bnet_candidates_by_id(bnet_candidates *h);

static inline bool bnet_better(const bnet_candidate *a, const bnet_candidate *b)
{
    return a->key > b->key || (a->key == b->key && a->id < b->id);
}

#endif
