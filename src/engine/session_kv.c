/* session_kv.c - the cache of a session before and after it is used: on its own, or in a pool where
 * others may have taken blocks of it. What is missing is computed again from the tokens. On the CPU
 * bits do not depend on how tokens are divided into passes, so the result is the same. */
#include "engine/engine.h"

enum { BLOCKS_MAX = 1 << 24 };

/* ---- a pool ---- */

bitnet_status bitnet_kv_pool_open(bitnet_engine *e, const bitnet_kv_pool_options *options,
                                  bitnet_kv_pool **out, bitnet_error *err)
{
    if (!e || !out)
        return bnet_fail(err, BITNET_ARGUMENT, "cache pool: engine and out must not be NULL");
    bitnet_kv_pool_options o;
    bitnet_status st = bnet_check_weights(e, err);
    if (st == BITNET_OK)
        st = bnet_kv_pool_options(options, &o, err);
    if (st != BITNET_OK)
        return st;
    uint64_t each = bnet_kv_block_bytes(e->model, o.kv_type);
    uint64_t n = BNET_MIN(o.max_bytes / each, (uint64_t)BLOCKS_MAX);
    if (n == 0)
        return bnet_fail(err, BITNET_MEMORY,
                         "cache pool options: max_bytes %llu holds no block of this model, which "
                         "has %llu bytes",
                         (unsigned long long)o.max_bytes, (unsigned long long)each);
    uint64_t held = 0;
    st = bnet_check_memory(e, e->backend, n * each, "cache pool options: max_bytes asks for",
                           "ask for less, or close other sessions", &held, err);
    if (st == BITNET_OK)
        st = bnet_kv_pool_make(e->model, &o, (int)n, out, err);
    atomic_fetch_sub(&e->runtime->ledger.reserved, held);
    if (st == BITNET_OK) {
        (*out)->engine = e;
        (*out)->log = e->log;
    }
    return st;
}

/* ---- a session's cache ---- */

bitnet_status bnet_session_open_kv(bitnet_session *s, bitnet_kv_pool *pool, bitnet_error *err)
{
    return pool ? bnet_kv_join(pool, &s->entry, s->n_ctx, &s->kv, err)
                : bnet_kv_open(bnet_session_model(s), s->n_ctx, s->kv_type, &s->kv, err);
}

/* The cache of a new session from that of another on the same side: shared in a pool, else copied.
 */
static bitnet_status inherit(bitnet_session *s, const bitnet_session *from, bitnet_error *err)
{
    if (!s->entry.pool) {
        s->entry.n_valid = bnet_kv_valid(&from->entry, s->n_pos);
        return bnet_kv_copy(s->kv, from->kv, (int)s->entry.n_valid, err);
    }
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
    if (s->begins)
        memcpy(s->begins, from->begins, ((size_t)s->n_ctx / 64 + 1) * sizeof *s->begins);
    s->n_widest = from->n_widest;
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
    if (session->scratch)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "fork: the session is in use by a call that has not returned");
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

/* ---- how tokens were divided into passes ---- */

static bool begins_pass(const bitnet_session *s, size_t at)
{
    return s->begins[at / 64] >> (at % 64) & 1u;
}

void bnet_session_note_pass(bitnet_session *s, size_t at, size_t n)
{
    for (size_t i = at; s->begins && i < at + n; i++) {
        uint64_t bit = (uint64_t)1 << (i % 64);
        s->begins[i / 64] = (s->begins[i / 64] & ~bit) | (i == at ? bit : 0);
    }
    if (s->begins)
        s->n_widest = BNET_MAX(s->n_widest, (int)n);
}

/* The first token of the pass that computed the one at this position, if that is known and of
 * interest. */
static size_t pass_begin(const bitnet_session *s, size_t at)
{
    while (s->begins && at > 0 && at < s->n_pos && !begins_pass(s, at))
        at--;
    return at;
}

/* How many tokens from s->n_pos on go through the model together. */
static size_t pass_length(const bitnet_session *s, size_t end)
{
    size_t n = 1, most = BNET_MIN((size_t)s->n_widest, end - s->n_pos);
    if (!s->begins)
        return BNET_MIN((size_t)s->n_batch, most);
    while (n < most && !begins_pass(s, s->n_pos + n))
        n++;
    return n;
}

/* ---- computing again ---- */

bitnet_status bnet_session_recompute(bitnet_session *s, size_t end, bool logits, bitnet_error *err)
{
    bitnet_status st = BITNET_OK;
    bool counting = s->counting;
    s->counting = false; /* these tokens were counted when they came */
    while (st == BITNET_OK && s->n_pos < end) {
        size_t n = pass_length(s, end);
        bool last = logits && s->n_pos + n == end;
        st = bnet_session_cancelled(s)
                 ? bnet_fail(err, BITNET_CANCELLED, "cancelled")
                 : bnet_session_pass(s, s->tokens + s->n_pos, (int)n, last, 0, false, err);
        if (st == BITNET_OK && last)
            st = bnet_hidden_keep(s->scratch->ws, 0, s->hidden, err);
    }
    s->counting = counting;
    return st;
}

/* The end of lost tokens that a step computes again: at most `budget` from `begin` on, completed to
 * a whole pass where the division into passes matters. */
static size_t refill_end(const bitnet_session *s, size_t begin, size_t budget)
{
    size_t at = begin + budget;
    while (s->begins && at < s->n_pos && !begins_pass(s, at))
        at++;
    return BNET_MIN(at, s->n_pos);
}

/* The blocks are pinned; computes at most *budget of the tokens whose keys and values were lost,
 * the rest of a pass included (refill_end). Fails AGAIN if they are more. If the backend fails, the
 * session leaves the pool for the spare. */
static bitnet_status refill(bitnet_session *s, size_t *budget, bitnet_error *err)
{
    size_t end = s->n_pos, begin = s->entry.n_valid;
    if (begin >= end)
        return BITNET_OK;
    size_t stop = refill_end(s, begin, *budget);
    s->n_pos = begin;
    bitnet_status st = bnet_session_recompute(s, stop, false, err);
    bnet_kv_rebuilt(&s->entry, s->n_pos - begin);
    *budget -= BNET_MIN(s->n_pos - begin, *budget);
    size_t left = end - s->n_pos;
    s->n_pos = end;
    if (st == BITNET_OK && left)
        return bnet_fail(err, BITNET_AGAIN,
                         "position %zu: %zu tokens of a cache that was given up are still to be "
                         "computed again; repeat the step",
                         end, left);
    if (st == BITNET_CANCELLED)
        return bnet_fail(err, st, "cancelled at position %zu, while the cache was computed again",
                         end);
    return st == BITNET_OK ? st : bnet_session_fall_back(s, st, err);
}

/* ---- holding ---- */

/* What was lost in the middle of a pass is lost from its beginning. What fits the pool and still
 * fails is the backend's failure. */
static bitnet_status pin(bitnet_session *s, size_t n_need, bool wait, bool *pinned,
                         bitnet_error *err)
{
    bitnet_status st;
    size_t whole = bitnet_session_cached(s);
    do {
        if (pass_begin(s, whole) < whole)
            bnet_kv_cut(&s->entry, pass_begin(s, whole));
        st = bnet_kv_pin(&s->entry, s->n_pos, n_need, wait ? &s->cancel : NULL, pinned, err);
        whole = bitnet_session_cached(s);
        if (st == BITNET_OK && *pinned && pass_begin(s, whole) < whole)
            bnet_session_let_go(s); /* it lost more meanwhile */
    } while (st == BITNET_OK && *pinned && pass_begin(s, whole) < whole);
    if (st == BITNET_OK || st == BITNET_CONTEXT || st == BITNET_CANCELLED)
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
    size_t budget = s->n_pos;
    bitnet_status st = pin(s, n_need, !s->scratch, &pinned, err);
    if (st == BITNET_OK && !pinned)
        st = wait_for_blocks(s, n_need, err);
    if (st == BITNET_OK)
        st = refill(s, &budget, err);
    if (st != BITNET_OK)
        bnet_session_let_go(s);
    return st;
}

void bnet_session_let_go(bitnet_session *s)
{
    bnet_kv_unpin(&s->entry);
}

/* Blocks are not taken from others for a session that cannot be made whole now. */
static bitnet_status pin_within(bitnet_session *s, size_t n_need, bool wait, size_t budget,
                                bool *pinned, bitnet_error *err)
{
    *pinned = false;
    size_t lost = s->n_pos - bitnet_session_cached(s);
    if (lost > 0 && budget == 0)
        return bnet_fail(err, BITNET_AGAIN,
                         "position %zu: %zu tokens of a cache that was given up are to be computed "
                         "again; repeat the step",
                         s->n_pos, lost);
    return pin(s, n_need, wait, pinned, err);
}

bitnet_status bnet_session_hold_group(bitnet_session *const *sessions, const size_t *ends, size_t n,
                                      size_t *n_held, size_t *budget, bitnet_error *err)
{
    bitnet_status st = BITNET_OK;
    size_t k = 0;
    for (bool pinned = true; k < n && st == BITNET_OK; k += pinned) {
        st = pin_within(sessions[k], ends[k], k == 0, *budget, &pinned, err);
        if (!pinned)
            break;
    }
    size_t n_whole = st == BITNET_OK ? 0 : k;
    while (st == BITNET_OK && n_whole < k) {
        st = refill(sessions[n_whole], budget, err);
        n_whole += st == BITNET_OK;
    }
    for (size_t i = 0; i < k && st != BITNET_OK; i++)
        bnet_session_let_go(sessions[i]);
    *n_held = n_whole;
    return st;
}

/* ---- texts that sessions of a pool have in common ---- */

static bitnet_status reuse(bitnet_session *s, uint64_t scope, const int32_t *ids, size_t n_ids,
                           size_t *n_reused, bitnet_error *err)
{
    bitnet_status st = bnet_check_ids(s->engine, "reuse", ids, n_ids, err);
    if (st != BITNET_OK)
        return st;
    size_t own = BNET_MIN(bnet_session_common(s, ids, n_ids), bitnet_session_cached(s));
    size_t most = n_ids > 0 ? BNET_MIN(n_ids - 1, (size_t)s->n_ctx) : 0;
    bnet_session_cut(s, own);
    size_t found = bnet_kv_adopt(&s->entry, scope, ids, most);
    if (found > own) {
        memcpy(s->tokens + own, ids + own, (found - own) * sizeof *ids);
        s->n_pos = found;
        if (s->begins) /* how the blocks were computed is not known */
            memset(s->begins, 0, (found / 64 + 1) * sizeof *s->begins);
        bnet_session_forget(s);
    }
    if (n_reused)
        *n_reused = s->n_pos;
    return BITNET_OK;
}

bitnet_status bitnet_session_reuse(bitnet_session *s, uint64_t scope, const int32_t *ids,
                                   size_t n_ids, size_t *n_reused, bitnet_error *err)
{
    bitnet_status st = bnet_session_enter(s, "reuse", err);
    if (st != BITNET_OK)
        return st;
    return bnet_session_leave(s, reuse(s, scope, ids, n_ids, n_reused, err));
}

static bitnet_status publish(bitnet_session *s, uint64_t scope, bool whole, bitnet_error *err)
{
    bitnet_status st = bnet_session_enter(s, "publish", err);
    if (st != BITNET_OK)
        return st;
    return bnet_session_leave(s, bnet_kv_publish(&s->entry, scope, s->tokens, whole, err));
}

bitnet_status bitnet_session_publish(bitnet_session *s, uint64_t scope, bitnet_error *err)
{
    return publish(s, scope, false, err);
}

bitnet_status bitnet_session_publish_all(bitnet_session *s, uint64_t scope, bitnet_error *err)
{
    return publish(s, scope, true, err);
}
