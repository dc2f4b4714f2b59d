/* batch.c - one token for each of several timelines in a single pass. Hides: whose scratch memory
 * carries the pass. Positions move only after every pass succeeded. */
#include "engine/engine.h"
#include "engine/sampler.h"

/* What is wanted of a step beside its logits. */
typedef struct choice {
    bitnet_sampler *const *samplers;
    int32_t *next;
} choice;

static bitnet_status check_session(const bitnet_session *s, const bitnet_session *first, size_t i,
                                   int32_t id, bitnet_error *err)
{
    if (!s)
        return bnet_fail(err, BITNET_ARGUMENT, "batch: session %zu is NULL", i);
    if (s->engine != first->engine)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "batch: session %zu belongs to another engine than session 0", i);
    if (s->in_batch)
        return bnet_fail(err, BITNET_ARGUMENT, "batch: session %zu is named twice", i);
    if (bnet_session_cancelled(s))
        return bnet_fail(err, BITNET_CANCELLED, "batch: cancelled by session %zu", i);
    if (s->n_pos >= (size_t)s->n_ctx)
        return bnet_fail(err, BITNET_CONTEXT,
                         "context is full: session %zu stands at position %zu of %d", i, s->n_pos,
                         s->n_ctx);
    bitnet_status st = bnet_kv_fits(&s->entry, s->n_pos + 1, err);
    return st == BITNET_OK ? bnet_check_ids(s->engine, "batch", &id, 1, err) : st;
}

static void unmark(bitnet_session *const *sessions, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sessions[i]->in_batch = false;
}

static bitnet_status check_all(bitnet_session *const *sessions, const int32_t *ids, size_t n,
                               bitnet_error *err)
{
    for (size_t i = 0; i < n; i++) {
        bitnet_status st = check_session(sessions[i], sessions[0], i, ids[i], err);
        if (st != BITNET_OK) {
            unmark(sessions, i);
            return st;
        }
        sessions[i]->in_batch = true;
    }
    unmark(sessions, n);
    return BITNET_OK;
}

/* The session with the largest scratch memory on this side carries the others. It is one that has
 * not had its turn in this step: should it fall back, nothing is lost. */
static bitnet_session *choose_carrier(bitnet_session *const *sessions, size_t n, bool fallen)
{
    bitnet_session *best = NULL;
    for (size_t i = 0; i < n; i++)
        if (sessions[i]->fallen == fallen && (!best || sessions[i]->n_batch > best->n_batch))
            best = sessions[i];
    return best;
}

/* Copies the logits of the last pass to their sessions. */
static bitnet_status share_logits(bitnet_session *carrier, bitnet_session *const *sessions, int n,
                                  bitnet_error *err)
{
    size_t n_vocab = (size_t)carrier->engine->info.n_vocab;
    for (int first = 0; first < n; first += BNET_HEAD_ROWS) {
        int k = BNET_MIN(BNET_HEAD_ROWS, n - first);
        const float *out;
        bitnet_status st = bnet_head(carrier->ws, first, k, &out, err);
        if (st != BITNET_OK)
            return st;
        for (int i = 0; i < k; i++) {
            bitnet_session *s = sessions[first + i];
            memcpy(s->logits, out + (size_t)i * n_vocab, n_vocab * sizeof *out);
            s->is_kept = s->has_logits =
                false; /* until the position moves, these belong to no token of the timeline */
        }
    }
    return BITNET_OK;
}

/* From the pass's best logits where they are enough, else from those the head still computes. */
static bitnet_status choose_row(bitnet_session *carrier, const bitnet_session *s, int row,
                                bitnet_sampler *sampler, int32_t *next, bitnet_error *err)
{
    bnet_workspace *ws = carrier->ws;
    size_t n = s->n_pos + 1;
    bnet_top_want want;
    bnet_top top;
    const float *all;
    bitnet_status st = BITNET_OK;
    bool wanted = bnet_sampler_want(sampler, s->tokens, n, &want), served = false;
    if (wanted && !(served = bnet_best_top(ws, row, &want, &top)))
        st = bnet_head_top(ws, row, &want, &top, &served, err);
    if (st == BITNET_OK && served)
        return bnet_sampler_pick_among(sampler, &top, s->tokens, n, next, err);
    if (st == BITNET_OK)
        st = bnet_head(ws, row, 1, &all, err);
    return st == BITNET_OK ? bitnet_sampler_pick(sampler, all, s->tokens, n, next, err) : st;
}

static bitnet_status choose_all(bitnet_session *carrier, bitnet_session *const *sessions,
                                const int32_t *ids, int n, const choice *c, bitnet_error *err)
{
    bitnet_status st = BITNET_OK;
    for (int i = 0; st == BITNET_OK && i < n; i++) {
        bitnet_session *s = sessions[i];
        s->tokens[s->n_pos] = ids[i]; /* beyond the position: nobody else sees it yet */
        s->has_logits = s->is_kept = s->has_top = false;
        st = choose_row(carrier, s, i, c->samplers[i], &c->next[i], err);
        if (st != BITNET_OK)
            st = bnet_wrap(err, st, "batch: session %d", i);
    }
    return st;
}

static bitnet_status pass(bitnet_session *carrier, bitnet_session *const *sessions,
                          const int32_t *ids, int n, const choice *c, bitnet_error *err)
{
    for (int i = 0; i < n; i++) {
        carrier->ids[i] = ids[i];
        carrier->pos[i] = (int32_t)sessions[i]->n_pos;
        carrier->seq[i] = i;
        carrier->rows[i] = i;
        carrier->kvs[i] = sessions[i]->kv;
    }
    bnet_batch b = {n, carrier->ids, carrier->pos, carrier->seq, carrier->kvs, n, carrier->rows,
                    n, !c,           NULL};
    bitnet_status st = bnet_forward(carrier->ws, &b, err);
    if (st != BITNET_OK)
        return st;
    return c ? choose_all(carrier, sessions, ids, n, c, err)
             : share_logits(carrier, sessions, n, err);
}

/* A pass that can be carried whole: n sessions on the same side. If the backend fails, all of them
 * go on on the spare, which computes the pass again. */
static bitnet_status safe_pass(bitnet_session *carrier, bitnet_session *const *sessions,
                               const int32_t *ids, int n, const choice *c, bitnet_error *err)
{
    bitnet_status st = pass(carrier, sessions, ids, n, c, err);
    if (st == BITNET_OK)
        return st;
    bitnet_status why = st;
    st = bnet_session_fall_back(carrier, why, err);
    for (int i = 0; i < n && st == BITNET_OK; i++)
        if (sessions[i] != carrier)
            st = bnet_session_fall_back(sessions[i], why, err);
    return st == BITNET_OK ? pass(carrier, sessions, ids, n, c, err) : st;
}

/* How many sessions from the first on are on its side, at most `most`. */
static size_t same_side(bitnet_session *const *sessions, size_t n, size_t most)
{
    size_t k = 1;
    while (k < n && k < most && sessions[k]->fallen == sessions[0]->fallen)
        k++;
    return k;
}

/* One token for the first of the sessions and for as many after it as can go together: on one side,
 * with scratch and cache for all; *n_done says how many. Their positions do not move, but their
 * tokens and caches are ready for it. */
static bitnet_status step_group(bitnet_session *const *sessions, const int32_t *ids,
                                size_t n_sessions, const choice *c, size_t *n_done,
                                bitnet_error *err)
{
    bitnet_session *carrier = choose_carrier(sessions, n_sessions, sessions[0]->fallen);
    size_t n = same_side(sessions, n_sessions, (size_t)carrier->n_batch);
    *n_done = 0;
    bitnet_status st = bnet_session_hold_group(sessions, n, &n, err);
    if (st != BITNET_OK)
        return st;
    /* one may have changed sides while its cache was computed again: then the group is formed anew
     */
    if (same_side(sessions, n, n) == n && sessions[0]->fallen == carrier->fallen) {
        st = safe_pass(carrier, sessions, ids, (int)n, c, err);
        *n_done = st == BITNET_OK ? n : 0;
    }
    for (size_t i = 0; i < n; i++) {
        bitnet_session *s = sessions[i];
        if (*n_done) {
            s->tokens[s->n_pos] = ids[i];
            bnet_kv_filled(&s->entry, s->n_pos + 1);
        }
        bnet_session_let_go(s);
    }
    return st;
}

static bitnet_status step(bitnet_session *const *sessions, const int32_t *ids, size_t n_sessions,
                          const choice *c, bitnet_error *err)
{
    bitnet_status st = check_all(sessions, ids, n_sessions, err);
    if (st != BITNET_OK)
        return st;
    for (size_t i = 0; i < n_sessions; i++)
        bnet_kv_want(&sessions[i]->entry, true);
    for (size_t i = 0, n; i < n_sessions && st == BITNET_OK; i += n) {
        const choice mine = {c ? c->samplers + i : NULL, c ? c->next + i : NULL};
        st = step_group(sessions + i, ids + i, n_sessions - i, c ? &mine : NULL, &n, err);
    }
    for (size_t i = 0; i < n_sessions; i++) {
        bitnet_session *s = sessions[i];
        bnet_kv_want(&s->entry, false);
        s->n_pos += st == BITNET_OK;
        s->has_logits |= st == BITNET_OK && !c;
    }
    return st;
}

bitnet_status bitnet_batch_step(bitnet_session *const *sessions, const int32_t *ids,
                                size_t n_sessions, bitnet_error *err)
{
    if (n_sessions == 0)
        return BITNET_OK;
    if (!sessions || !ids || !sessions[0])
        return bnet_fail(err, BITNET_ARGUMENT, "batch: sessions and ids must not be NULL");
    return step(sessions, ids, n_sessions, NULL, err);
}

bitnet_status bitnet_batch_sample(bitnet_session *const *sessions, bitnet_sampler *const *samplers,
                                  const int32_t *ids, size_t n_sessions, int32_t *next,
                                  bitnet_error *err)
{
    if (n_sessions == 0)
        return BITNET_OK;
    if (!sessions || !samplers || !ids || !next || !sessions[0])
        return bnet_fail(err, BITNET_ARGUMENT,
                         "batch: sessions, samplers, ids and next must not be NULL");
    for (size_t i = 0; i < n_sessions; i++)
        if (!samplers[i] || bnet_sampler_vocab(samplers[i]) != sessions[0]->engine->info.n_vocab)
            return bnet_fail(err, BITNET_ARGUMENT,
                             "batch: sampler %zu is NULL or of another vocabulary", i);
    const choice c = {samplers, next};
    return step(sessions, ids, n_sessions, &c, err);
}
