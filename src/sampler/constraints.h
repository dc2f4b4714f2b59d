/* constraints.h - which tokens may be chosen and what is added to their logits. */
#ifndef BNET_CONSTRAINTS_H
#define BNET_CONSTRAINTS_H

#include "base/base.h"

typedef struct bnet_constraints {
    bool masked;         /* some id inside the vocabulary is not allowed */
    size_t n_allowed;    /* where masked */
    uint32_t *allowed;   /* where masked: an even number of words, 0 beyond the vocabulary */
    bitnet_bias *biases; /* [n_biases], ids ascending */
    size_t n_biases;
} bnet_constraints;

/* Copies what the caller gave (NULL: no constraints) for a vocabulary of n_vocab. Allocates only
 * what did not fit before. On failure *c is unchanged. */
bitnet_status bnet_constraints_set(bnet_constraints *c, const bitnet_constraints *from, int n_vocab,
                                   bitnet_error *err);
void bnet_constraints_free(bnet_constraints *c);
/* The bias of an id; false: it has none. */
bool bnet_constraints_bias(const bnet_constraints *c, int32_t id, float *bias);
/* Writes the n_allowed ids of a mask, ascending. */
void bnet_constraints_list(const bnet_constraints *c, int32_t *ids);

static inline bool bnet_constraints_allow(const bnet_constraints *c, int32_t id)
{
    return !c->masked || (c->allowed[id / 32] >> (id % 32) & 1u);
}

/* Whether one of the 64 ids from `first`, a multiple of 64, is allowed. */
static inline bool bnet_constraints_allow_any(const bnet_constraints *c, size_t first)
{
    return !c->masked || (c->allowed[first / 32] | c->allowed[first / 32 + 1]) != 0;
}

#endif
