/* batch.c - one token for each of several timelines in a single pass. Hides: which of them
 * can go together. Positions move only after every pass succeeded. */
#include "engine/choose.h"
#include "engine/engine.h"

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

/* Tokens of a pass: what the largest of the sessions asked for. */
static int largest_batch(bitnet_session *const *sessions, size_t n)
{
    int most = 0;
    for (size_t i = 0; i < n; i++)
        most = BNET_MAX(most, sessions[i]->n_batch);
    return most;
}

/* Keeps what each session's logits follow from; they count once the position has moved. */
static bitnet_status keep_all(bnet_workspace *ws, bitnet_session *const *sessions, int n,
                              bitnet_error *err)
{
    bitnet_status st = BITNET_OK;
    for (int i = 0; st == BITNET_OK && i < n; i++) {
        bnet_session_forget(sessions[i]);
        st = bnet_hidden_keep(ws, i, sessions[i]->hidden, err);
    }
    return st;
}

static bitnet_status choose_all(bnet_workspace *ws, bitnet_session *const *sessions,
                                const int32_t *ids, int n, const choice *c, bitnet_error *err)
{
    bnet_choice rows[BNET_HEAD_ROWS];
    bitnet_status st = BITNET_OK;
    for (int first = 0, k; st == BITNET_OK && first < n; first += k) {
        k = BNET_MIN(BNET_HEAD_ROWS, n - first);
        for (int i = 0; i < k; i++) {
            bitnet_session *s = sessions[first + i];
            s->tokens[s->n_pos] = ids[first + i]; /* beyond the position: nobody else sees it yet */
            bnet_session_forget(s);
            rows[i] = (bnet_choice){c->samplers[first + i], s->tokens, s->n_pos + 1, 0};
        }
        int failed = 0;
        st = bnet_choose(ws, first, rows, k, &failed, err);
        if (st != BITNET_OK)
            return failed < 0 ? st : bnet_wrap(err, st, "batch: session %d", first + failed);
        for (int i = 0; i < k; i++)
            c->next[first + i] = rows[i].next;
    }
    return st;
}

static bitnet_status pass(bnet_scratch *x, bitnet_session *const *sessions, const int32_t *ids,
                          int n, const choice *c, bitnet_error *err)
{
    for (int i = 0; i < n; i++) {
        x->ids[i] = ids[i];
        x->pos[i] = (int32_t)sessions[i]->n_pos;
        x->seq[i] = i;
        x->rows[i] = i;
        x->kvs[i] = sessions[i]->kv;
    }
    bnet_batch b = {n, x->ids, x->pos, x->seq, x->kvs, n, x->rows, n, !c, NULL};
    bitnet_status st = bnet_forward(x->ws, &b, err);
    if (st != BITNET_OK)
        return st;
    return c ? choose_all(x->ws, sessions, ids, n, c, err) : keep_all(x->ws, sessions, n, err);
}

/* A pass of n sessions on the same side, with a workspace of that side. */
static bitnet_status lent_pass(bitnet_session *const *sessions, const int32_t *ids, int n,
                               const choice *c, bitnet_error *err)
{
    bnet_workspaces *w = &sessions[0]->engine->workspaces;
    bnet_scratch *x;
    bitnet_status st =
        bnet_scratch_borrow(w, bnet_session_model(sessions[0]), n, sessions[0]->before, &x, err);
    if (st != BITNET_OK)
        return st;
    st = pass(x, sessions, ids, n, c, err);
    bnet_scratch_return(w, x);
    return st;
}

/* If the backend fails, all of them continue on the spare, which computes the pass again. */
static bitnet_status safe_pass(bitnet_session *const *sessions, const int32_t *ids, int n,
                               const choice *c, bitnet_error *err)
{
    bitnet_status st = lent_pass(sessions, ids, n, c, err);
    if (st == BITNET_OK)
        return st;
    bitnet_status why = st;
    st = BITNET_OK;
    for (int i = 0; i < n && st == BITNET_OK; i++)
        st = bnet_session_fall_back(sessions[i], why, err);
    return st == BITNET_OK ? lent_pass(sessions, ids, n, c, err) : st;
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
    bool fallen = sessions[0]->fallen;
    size_t n = same_side(sessions, n_sessions, (size_t)largest_batch(sessions, n_sessions));
    *n_done = 0;
    bitnet_status st = bnet_session_hold_group(sessions, n, &n, err);
    if (st != BITNET_OK)
        return st;
    /* one may have changed sides while its cache was computed again: then the group is formed anew
     */
    if (same_side(sessions, n, n) == n && sessions[0]->fallen == fallen) {
        st = safe_pass(sessions, ids, (int)n, c, err);
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
