/* session_head.c - the logits after a pass. Hides: that a generation computes exactly only those
 * its sampler can need; all of them follow, if somebody asks, from the hidden state the workspace
 * keeps.
 */
#include "engine/engine.h"
#include "engine/sampler.h"

enum { PATIENCE = 16 }; /* steps after one where less than all did not pay */

static bitnet_status whole_row(bitnet_session *s, bitnet_error *err)
{
    const float *row;
    bitnet_status st = bnet_head(s->ws, 0, 1, &row, err);
    if (st != BITNET_OK)
        return st;
    memcpy(s->logits, row, (size_t)s->engine->info.n_vocab * sizeof *row);
    s->has_logits = true;
    s->is_kept = false;
    return BITNET_OK;
}

bitnet_status bnet_session_answer(bitnet_session *s, bitnet_error *err)
{
    bnet_top_want want;
    bool served = false;
    s->has_top = false;
    if (s->n_whole > 0)
        s->n_whole--;
    else if (s->chooser && !s->always_full &&
             bnet_sampler_want(s->chooser, s->tokens, s->n_pos, &want)) {
        bitnet_status st = bnet_head_top(s->ws, 0, &want, &s->top, &served, err);
        if (st != BITNET_OK)
            return st;
        s->n_whole = served ? 0 : PATIENCE;
    }
    if (!served)
        return whole_row(s, err);
    s->has_top = s->has_logits = s->is_kept = true;
    return BITNET_OK;
}

const float *bitnet_session_logits(const bitnet_session *session)
{
    if (!session || !session->has_logits)
        return NULL;
    if (!session->is_kept)
        return session->logits;
    bitnet_session *s =
        (bitnet_session *)session; /* what it answers is the same before and after */
    const float *row;
    s->has_logits = bnet_head_kept(s->ws, &row, NULL) == BITNET_OK;
    s->is_kept = false;
    if (!s->has_logits)
        return NULL;
    memcpy(s->logits, row, (size_t)s->engine->info.n_vocab * sizeof *row);
    return s->logits;
}
