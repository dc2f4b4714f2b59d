/* softmax.h - how blocks of attention are joined: by ascending position, one at a time,
 * whichever thread computed them, so that neither threads nor batches change a bit. */
#ifndef BNET_SOFTMAX_H
#define BNET_SOFTMAX_H

#include <math.h>

#include "backend/cpu/kernels.h"
#include "base/mathf.h"

/* The state of a query that has seen nothing. */
static inline bnet_softmax bnet_softmax_start(float *o, size_t head_dim)
{
    memset(o, 0, head_dim * sizeof *o);
    return (bnet_softmax){-INFINITY, 0};
}

/* One of the two is always the maximum. */
static inline float bnet_softmax_weight(float below_top)
{
    return below_top == 0 ? 1.0f : bnet_expf(below_top); /* e^0 is 1 exactly */
}

/* Joins a block (b, ob) to what came before it (run, o). */
static inline void bnet_softmax_merge(bnet_softmax *run, float *restrict o, const bnet_softmax *b,
                                      const float *restrict ob, size_t head_dim)
{
    float top = b->m > run->m ? b->m : run->m;
    float x = bnet_softmax_weight(run->m - top), y = bnet_softmax_weight(b->m - top);
    run->m = top;
    run->l = run->l * x + b->l * y;
    for (size_t i = 0; i < head_dim; i++)
        o[i] = o[i] * x + ob[i] * y;
}

static inline void bnet_softmax_finish(const bnet_softmax *run, float *o, size_t head_dim)
{
    float norm = 1.0f / run->l;
    for (size_t i = 0; i < head_dim; i++)
        o[i] *= norm;
}

#endif
