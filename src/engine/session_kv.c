/* session_kv.c - the cache of a session before and after it is used: on its own, or in a pool where
 * others may have taken blocks of it. What is missing is computed again from the tokens. On the CPU
 * bits do not depend on how tokens are divided into passes, so the result is the same. */
#include "engine/engine.h"

bitnet_status bnet_session_open_kv(bitnet_session *s, bitnet_kv_pool *pool, bitnet_error *err)
{
    return pool ? bnet_kv_join(pool, &s->entry, s->n_ctx, &s->kv, err)
                : bnet_kv_open(bnet_session_model(s), s->n_ctx, s->kv_type, &s->kv, err);
}

/* The cache of a new session from that of another on the same side: shared in a pool, else copied.
 */
static bitnet_status inherit(bitnet_session *s, const bitnet_session *from, bitnet_error *err)
{
    if (!s->entry.pool)
        return bnet_kv_copy(s->kv, from->kv, (int)s->n_pos, err);
    bnet_kv_fork(&s->entry, &from->entry, s->n_pos);
    return BITNET_OK;
}

static bitnet_status fork_checked(const bitnet_session *from, size_t position, bitnet_session **out,
                                  bitnet_error *err)
{
    const bitnet_session_options o = {.n_ctx = from->n_ctx,
                                      .n_batch = from->n_batch,
                                      .kv_type = from->kv_type,
                                      .kv_pool = from->entry.pool};
    bitnet_session *s = NULL;
    bitnet_status st = bnet_session_make(from->engine, &o, &s, err);
    if (st != BITNET_OK)
        return st;
    s->fallen = from->fallen;
    s->n_pos = position;
    memcpy(s->tokens, from->tokens, position * sizeof *s->tokens);
    st = bnet_session_equip(s, &o, err);
    if (st == BITNET_OK && s->fallen == from->fallen) /* else it computed its own */
        st = inherit(s, from, err);
    if (st != BITNET_OK) {
        bitnet_session_close(s);
        return st;
    }
    *out = s;
    return BITNET_OK;
}

bitnet_status bitnet_session_fork(const bitnet_session *session, size_t position,
                                  bitnet_session **out, bitnet_error *err)
{
    if (!session || !out)
        return bnet_fail(err, BITNET_ARGUMENT, "fork: session and out must not be NULL");
    if (position > session->n_pos)
        return bnet_fail(err, BITNET_ARGUMENT, "fork: position %zu is beyond the timeline's %zu",
                         position, session->n_pos);
    return fork_checked(session, position, out, err);
}

void bnet_session_close_kv(bitnet_session *s)
{
    if (s->entry.pool)
        bnet_kv_leave(&s->entry);
    else
        bnet_kv_close(s->kv);
    s->kv = NULL;
}

/* Computes positions from n_valid on; s->n_pos says how far it came. */
static bitnet_status recompute(bitnet_session *s, size_t n_valid, bitnet_error *err)
{
    size_t end = s->n_pos;
    s->n_pos = n_valid;
    while (s->n_pos < end) {
        if (bnet_session_cancelled(s))
            return bnet_fail(err, BITNET_CANCELLED,
                             "cancelled at position %zu, while the cache was computed again", end);
        int n = (int)BNET_MIN((size_t)s->n_batch, end - s->n_pos);
        bitnet_status st = bnet_session_pass(s, s->tokens + s->n_pos, n, 0, 0, false, err);
        if (st != BITNET_OK)
            return st;
    }
    return BITNET_OK;
}

/* The blocks are pinned; fills them. If the backend fails, the session leaves the pool for the
 * spare. */
static bitnet_status refill(bitnet_session *s, bitnet_error *err)
{
    size_t end = s->n_pos;
    if (!s->entry.pool || s->entry.n_valid >= end)
        return BITNET_OK;
    bitnet_status st = recompute(s, s->entry.n_valid, err);
    bnet_kv_filled(&s->entry, s->n_pos);
    s->n_pos = end;
    if (st != BITNET_OK && st != BITNET_CANCELLED)
        st = bnet_session_fall_back(s, st, err);
    return st;
}

/* What fits the pool and still fails is the backend's failure. */
static bitnet_status pin(bitnet_session *s, size_t n_need, bool wait, bool *pinned,
                         bitnet_error *err)
{
    bitnet_status st = bnet_kv_pin(&s->entry, s->n_pos, n_need, wait, pinned, err);
    if (st == BITNET_OK || st == BITNET_CONTEXT)
        return st;
    st = bnet_session_fall_back(s, st, err);
    *pinned = st == BITNET_OK; /* its cache is its own now */
    return st;
}

/* Whoever has blocks may wait for a workspace, so a session does not wait for blocks with one. */
static bitnet_status wait_for_blocks(bitnet_session *s, size_t n_need, bitnet_error *err)
{
    bool pinned;
    bnet_session_return(s);
    bitnet_status st = pin(s, n_need, true, &pinned, err);
    return st == BITNET_OK ? bnet_session_borrow(s, err) : st;
}

bitnet_status bnet_session_hold(bitnet_session *s, size_t n_need, bitnet_error *err)
{
    bool pinned;
    bitnet_status st = pin(s, n_need, !s->scratch, &pinned, err);
    if (st == BITNET_OK && !pinned)
        st = wait_for_blocks(s, n_need, err);
    if (st == BITNET_OK)
        st = refill(s, err);
    if (st != BITNET_OK)
        bnet_session_let_go(s);
    return st;
}

void bnet_session_let_go(bitnet_session *s)
{
    bnet_kv_unpin(&s->entry);
}

bitnet_status bnet_session_hold_group(bitnet_session *const *sessions, const size_t *ends, size_t n,
                                      size_t *n_held, bitnet_error *err)
{
    bitnet_status st = BITNET_OK;
    size_t k = 0;
    for (bool pinned = true; k < n && st == BITNET_OK; k += pinned) {
        bitnet_session *s = sessions[k];
        st = pin(s, ends[k], k == 0, &pinned, err);
        if (!pinned)
            break;
    }
    size_t n_whole = st == BITNET_OK ? 0 : k;
    while (st == BITNET_OK && n_whole < k) {
        st = refill(sessions[n_whole], err);
        n_whole += st == BITNET_OK;
    }
    for (size_t i = 0; i < k && st != BITNET_OK; i++)
        bnet_session_let_go(sessions[i]);
    *n_held = n_whole;
    return st;
}
