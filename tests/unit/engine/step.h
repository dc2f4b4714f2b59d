/* step.h - one token for each of several sessions, by a batch opened for it. */
#ifndef BNET_TEST_STEP_H
#define BNET_TEST_STEP_H

#include "bitnet.h"

enum { STEP_MOST = 64 };

/* Samplers and next may be NULL. The sessions keep their logits where nothing is chosen. */
static inline bitnet_status step_each(bitnet_engine *engine, bitnet_session *const *sessions,
                                      bitnet_sampler *const *samplers, const int32_t *ids, size_t n,
                                      int32_t *next, bitnet_error *err)
{
    bitnet_batch *b = NULL;
    bitnet_batch_item items[STEP_MOST];
    bitnet_batch_options o;
    bitnet_batch_options_init(&o);
    o.n_tokens = 1024; /* what a small pool has given up is computed again in the same step */
    bitnet_status st = bitnet_batch_open(engine, &o, &b, err);
    if (st != BITNET_OK)
        return st;
    for (size_t i = 0; i < n; i++) {
        bitnet_batch_item_init(&items[i]);
        items[i].session = sessions[i];
        items[i].ids = &ids[i];
        items[i].n_ids = 1;
        items[i].sampler = samplers ? samplers[i] : NULL;
        items[i].keep_logits = !samplers;
    }
    st = bitnet_batch_step(b, items, n, err);
    for (size_t i = 0; next && st == BITNET_OK && i < n; i++)
        next[i] = items[i].next;
    bitnet_batch_close(b);
    return st;
}

#endif
