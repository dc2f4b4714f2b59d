/* adjust.h - what changes a logit before a choice: bans, masks, biases, penalties for what was said
 * before. Hides: how the few ids that are treated apart are told from the others; memory follows
 * their number, not the size of the vocabulary (but for one bit of each id). */
#ifndef BNET_ADJUST_H
#define BNET_ADJUST_H

#include "sampler/constraints.h"

typedef struct bnet_occurrences {
    int32_t id;
    uint32_t n;    /* in the window of the repetition penalty */
    uint32_t said; /* among what the other two count; both 0: the slot is empty */
} bnet_occurrences;

typedef struct bnet_adjust {
    int n_vocab;
    float repetition, presence, frequency; /* penalties: 1, 0 and 0 mean none */
    size_t window;                         /* last tokens that count; 0: all */
    size_t from; /* presence and frequency count from here on; 0: in the window */
    bnet_constraints constraints;
    int32_t *forbidden; /* [n_forbidden] */
    size_t n_forbidden, forbidden_cap;
    /* one bit per id, of those that are forbidden or have a bias, and during a choice of those that
     * are counted; whole words */
    uint64_t *marked;
    bnet_occurrences *seen; /* [n_slots] what is counted, by hash; empty between choices */
    size_t n_slots;         /* 0 or a power of two, at least twice the tokens counted */
} bnet_adjust;

/* Requires checked options. Fails: MEMORY; then *a can be freed. */
bitnet_status bnet_adjust_open(bnet_adjust *a, const bitnet_sampler_options *o, int n_vocab,
                               bitnet_error *err);
void bnet_adjust_free(bnet_adjust *a);
/* As bitnet_sampler_constrain. */
bitnet_status bnet_adjust_constrain(bnet_adjust *a, const bitnet_constraints *c, bitnet_error *err);
/* Bans the id, or lifts the ban. False: no memory. */
bool bnet_adjust_forbid(bnet_adjust *a, int32_t id, bool forbid);
bool bnet_adjust_penalises(const bnet_adjust *a);
/* Around a choice: counts the tokens that penalties look at, and forgets them. _begin false: no
 * memory. */
bool bnet_adjust_begin(bnet_adjust *a, const int32_t *history, size_t n);
void bnet_adjust_end(bnet_adjust *a, const int32_t *history, size_t n);
/* The ids that have biases or penalties, each once, into ids [cap]; false if they are more. */
bool bnet_adjust_list(bnet_adjust *a, const int32_t *history, size_t n, int32_t *ids, size_t cap,
                      size_t *n_ids);
/* The logit of a marked id with its bias, then its penalties, between _begin and _end; false: it
 * must not be chosen. */
bool bnet_adjust_logit(const bnet_adjust *a, int32_t id, float *v);

static inline bool bnet_adjust_marked(const bnet_adjust *a, int32_t id)
{
    return a->marked[id / 64] >> (id % 64) & 1u;
}

#endif
