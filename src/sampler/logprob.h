/* logprob.h - log-probabilities of a row of logits: ln softmax, in nats. The sum is made of doubles
 * in the order of ids, so the bits do not depend on what else was computed. */
#ifndef BNET_LOGPROB_H
#define BNET_LOGPROB_H

#include "base/base.h"

/* What a row has in common for all its ids. */
typedef struct bnet_logprob_row {
    float largest;
    double log_sum; /* ln of the sum of e^(logit - largest) */
} bnet_logprob_row;

/* False: a logit is NaN or +infinity, or none is finite. -infinity has probability 0. */
bool bnet_logprob_begin(const float *logits, size_t n_vocab, bnet_logprob_row *out);

/* ln p of the id that has this logit. */
static inline double bnet_logprob_of(const bnet_logprob_row *r, float logit)
{
    return ((double)logit - (double)r->largest) - r->log_sum;
}

#endif
