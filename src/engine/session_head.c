/* session_head.c - the logits after a pass. Hides: that a generation computes exactly only those
 * its sampler can need; all of them follow, if somebody asks, from the hidden state the session
 * keeps.
 */
#include "engine/engine.h"
#include "sampler/sampler.h"

enum { PATIENCE = 16 }; /* steps after one where less than all did not pay */

bitnet_status bnet_session_open_hidden(bitnet_session *s, bitnet_error *err)
{
    s->hidden = bnet_hidden_open(bnet_session_model(s));
    s->fresh = bnet_hidden_open(bnet_session_model(s));
    if (s->hidden && s->fresh)
        return BITNET_OK;
    bnet_backend *be = s->fallen ? s->engine->spare : s->engine->backend;
    uint64_t need = 2 * (uint64_t)s->engine->info.n_embd * sizeof(float);
    return bnet_op_no_memory(be, "the last hidden state of a session", need,
                             "close other sessions or use a smaller n_ctx", err);
}

void bnet_session_close_hidden(bitnet_session *s)
{
    bnet_hidden_close(bnet_session_model(s), s->hidden);
    bnet_hidden_close(bnet_session_model(s), s->fresh);
    s->hidden = s->fresh = NULL;
}

/* Sets s->top where that is enough to choose from, else s->all. */
static bitnet_status compute_choice(bitnet_session *s, bitnet_error *err)
{
    bnet_workspace *ws = s->scratch->ws;
    bnet_top_want want;
    bool served = false;
    s->all = NULL;
    if (s->n_whole > 0)
        s->n_whole--;
    else if (!s->always_full && bnet_sampler_want(s->chooser, s->tokens, s->n_pos, &want)) {
        bitnet_status st = bnet_head_top(ws, 0, &want, &s->top, &served, err);
        if (st != BITNET_OK)
            return st;
        s->n_whole = served ? 0 : PATIENCE;
    }
    return served ? BITNET_OK : bnet_hidden_head(ws, s->fresh, &s->all, err);
}

bitnet_status bnet_session_answer(bitnet_session *s, bitnet_error *err)
{
    return s->chooser ? compute_choice(s, err) : BITNET_OK;
}

void bnet_session_adopt(bitnet_session *s)
{
    bnet_buffer *fresh = s->fresh;
    bnet_session_forget(s);
    s->fresh = s->hidden;
    s->hidden = fresh;
    s->has_logits = true;
}

bitnet_status bnet_session_choose(bitnet_session *s, bitnet_error *err)
{
    bnet_meter *meter = s->engine->backend->meter;
    double begun = bnet_meter_start(meter);
    bitnet_status st =
        s->all ? bnet_sampler_pick_all(s->chooser, s->all, s->tokens, s->n_pos, &s->chosen, err)
               : bnet_sampler_pick_among(s->chooser, &s->top, s->tokens, s->n_pos, &s->chosen, err);
    bnet_meter_stop(meter, BNET_ENTRY_SAMPLE, begun);
    return st == BITNET_OK ? st : bnet_wrap(err, st, "position %zu", s->n_pos);
}

void bnet_session_forget(bitnet_session *s)
{
    s->has_logits = false;
    bnet_row_return(&s->engine->workspaces, s->row);
    s->row = NULL;
}

static bitnet_status fetch(bitnet_session *s, float *logits, bitnet_error *err)
{
    const float *all;
    bitnet_status st = bnet_session_borrow(s, err);
    if (st != BITNET_OK)
        return st;
    st = bnet_hidden_head(s->scratch->ws, s->hidden, &all, err);
    if (st == BITNET_OK)
        memcpy(logits, all, (size_t)s->engine->info.n_vocab * sizeof *all);
    bnet_session_return(s);
    return st;
}

/* Once more on the CPU if the backend fails. */
static bool fetch_safely(bitnet_session *s, float *logits)
{
    bitnet_error err = {0};
    bitnet_status st = fetch(s, logits, &err);
    if (st != BITNET_OK && bnet_session_fall_back(s, st, &err) == BITNET_OK)
        st = fetch(s, logits, &err);
    if (st != BITNET_OK)
        bnet_logf(&s->engine->log, BITNET_LOG_WARN, "session", "logits: %s", err.message);
    return st == BITNET_OK;
}

const float *bitnet_session_logits(const bitnet_session *session)
{
    if (!session || !session->has_logits)
        return NULL;
    bitnet_session *s = (bitnet_session *)session; /* the answer is the same before and after */
    bnet_workspaces *w = &s->engine->workspaces;
    if (s->row)
        return s->row;
    if (s->scratch) /* a callback of a pass asks */
        return NULL;
    float *row = bnet_row_borrow(w, (size_t)s->engine->info.n_vocab);
    if (!row)
        return NULL;
    if (!fetch_safely(s, row)) {
        bnet_row_return(w, row);
        return NULL;
    }
    s->row = row;
    return row;
}
