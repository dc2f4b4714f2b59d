/* session.c - one timeline: tokens, their cache, the logits after the last of them. Hides: the
 * cutting of prompts into passes. Invariant: the bits of logits and cache depend on the tokens
 * alone, not on how they were cut. */
#include "engine/engine.h"

#include <stdio.h>

enum { CTX_MAX = 1 << 24, BATCH_MAX = 65536, CTX_DEFAULT = 4096, BATCH_DEFAULT = 512 };

static const char owner[] = "session options";

void bitnet_session_options_init(bitnet_session_options *o)
{
    if (o)
        *o = (bitnet_session_options){
            .struct_size = sizeof *o, .n_batch = BATCH_DEFAULT, .kv_type = BITNET_KV_F16};
}

/* ---- opening ---- */

/* What a shared cache decides: the type, and how long a timeline may be. */
static bitnet_status follow_pool(const bitnet_engine *e, bitnet_session_options *o, bool any_ctx,
                                 bitnet_error *err)
{
    int longest = o->kv_pool->o.max_sequence;
    if (o->kv_pool->engine != e)
        return bnet_fail(err, BITNET_ARGUMENT, "%s: kv_pool belongs to another engine", owner);
    o->kv_type = o->kv_pool->o.kv_type;
    if (any_ctx)
        o->n_ctx = BNET_MIN(o->n_ctx, longest);
    if (o->n_ctx > longest)
        return bnet_fail(err, BITNET_ARGUMENT, "%s: n_ctx is %d, max_sequence of kv_pool is %d",
                         owner, o->n_ctx, longest);
    return BITNET_OK;
}

/* Defaults filled in, every field in its range. A batch larger than the context would only cost
 * memory; what a device's memory is too small for is divided into several passes. */
static bitnet_status read_options(const bitnet_engine *e, const bitnet_session_options *given,
                                  bitnet_session_options *o, bitnet_error *err)
{
    bitnet_session_options_init(o);
    bitnet_status st = bnet_check_weights(e, err);
    if (st != BITNET_OK)
        return st;
    st = bnet_options_copy(o, sizeof *o, given, owner, err);
    if (st == BITNET_OK)
        st = bnet_check_int(owner, "n_ctx", o->n_ctx, 0, CTX_MAX, err);
    if (st == BITNET_OK)
        st = bnet_check_int(owner, "n_batch", o->n_batch, 1, BATCH_MAX, err);
    if (st == BITNET_OK)
        st = bnet_check_int(owner, "kv_type", (int)o->kv_type, BITNET_KV_F16, BITNET_KV_INT8, err);
    if (o->n_ctx == 0)
        o->n_ctx = BNET_MIN(e->info.n_ctx_train, CTX_DEFAULT);
    if (st == BITNET_OK && o->kv_pool)
        st = follow_pool(e, o, given->n_ctx == 0, err);
    o->n_batch = BNET_MIN(o->n_batch, o->n_ctx);
    o->n_batch = bnet_op_batch_limit(e->backend, o->n_batch);
    return st;
}

static size_t begins_words(int n_ctx)
{
    return (size_t)n_ctx / 64 + 1;
}

/* What a session and the layers below will ask of the allocator. */
static bitnet_session_cost cost_of(const bitnet_engine *e, const bitnet_session_options *o)
{
    return (bitnet_session_cost){
        .session_bytes = sizeof(bitnet_session) + (uint64_t)o->n_ctx * sizeof(int32_t) +
                         (e->invariant ? begins_words(o->n_ctx) * sizeof(uint64_t) : 0) +
                         2 * bnet_hidden_bytes(e->model) + bnet_stream_bytes(e->longest_token),
        .cache_bytes = o->kv_pool ? 0 : bnet_kv_bytes(e->model, o->n_ctx, o->kv_type),
        .workspace_bytes = bnet_scratch_bytes(e->model, o->n_batch)};
}

bitnet_status bitnet_session_memory(const bitnet_engine *e, const bitnet_session_options *options,
                                    bitnet_session_cost *cost, bitnet_error *err)
{
    if (!e || !cost)
        return bnet_fail(err, BITNET_ARGUMENT, "session: engine and cost must not be NULL");
    bitnet_session_options o;
    bitnet_status st = read_options(e, options, &o, err);
    if (st == BITNET_OK)
        *cost = cost_of(e, &o);
    return st;
}

/* Systems that overcommit would grant any size and kill the process later, so ask first. */
static bitnet_status check_memory(bitnet_engine *e, const bitnet_session_options *o, uint64_t *held,
                                  bitnet_error *err)
{
    char what[96];
    bitnet_session_cost c = cost_of(e, o);
    bool have_one = bnet_workspaces_have(&e->workspaces, e->model, o->n_batch);
    snprintf(what, sizeof what, "session: a context of %d with batch %d needs", o->n_ctx,
             o->n_batch);
    return bnet_check_memory(
        e, e->backend, c.session_bytes + c.cache_bytes + (have_one ? 0 : c.workspace_bytes), what,
        "ask for a smaller n_ctx or n_batch or kv_type int8, or close other sessions", held, err);
}

static bool make_buffers(bitnet_session *s)
{
    s->tokens = bnet_calloc((size_t)s->n_ctx, sizeof *s->tokens);
    if (s->engine->invariant && !(s->begins = bnet_calloc(begins_words(s->n_ctx), 8)))
        return false;
    return s->tokens && bnet_stream_reserve(&s->stream, s->engine->longest_token);
}

/* If `auto` chose the device and it is too small for the session, the CPU computes it. */
static bool may_leave(const bitnet_engine *e, bitnet_status why)
{
    return why == BITNET_MEMORY && e->selection.is_auto && e->selection.kind != BNET_DEV_CPU &&
           !e->runtime->strict;
}

bitnet_status bnet_session_make(bitnet_engine *e, const bitnet_session_options *o,
                                bitnet_session **out, bitnet_error *err)
{
    bitnet_status st = check_memory(e, o, NULL, err); /* before anything is allocated */
    if (st != BITNET_OK && !may_leave(e, st))
        return st;
    bitnet_session *s = bnet_calloc(1, sizeof *s);
    if (!s)
        return bnet_no_memory(err, "session");
    s->engine = e;
    s->n_ctx = o->n_ctx;
    s->n_batch = s->n_widest = o->n_batch;
    s->kv_type = o->kv_type;
    s->cancel = e->cancel;
    bnet_workspaces_enter(&e->workspaces);
    if (!make_buffers(s)) {
        bitnet_session_close(s);
        return bnet_no_memory(err, "session buffers");
    }
    *out = s;
    return BITNET_OK;
}

bitnet_status bnet_session_equip(bitnet_session *s, const bitnet_session_options *o,
                                 bitnet_error *err)
{
    uint64_t held = 0;
    bitnet_status st = s->fallen ? BITNET_OK : check_memory(s->engine, o, &held, err);
    if (st == BITNET_OK)
        st = bnet_session_open_kv(s, o->kv_pool, err);
    if (st == BITNET_OK)
        st = bnet_session_open_hidden(s, err);
    if (st == BITNET_OK)
        st = bnet_workspaces_need(&s->engine->workspaces, bnet_session_model(s), s->n_batch, err);
    atomic_fetch_sub(&s->engine->runtime->ledger.reserved, held);
    return may_leave(s->engine, st) ? bnet_session_fall_back(s, st, err) : st;
}

bitnet_status bitnet_session_open(bitnet_engine *e, const bitnet_session_options *options,
                                  bitnet_session **out, bitnet_error *err)
{
    if (!e || !out)
        return bnet_fail(err, BITNET_ARGUMENT, "session: engine and out must not be NULL");
    bitnet_session_options o;
    bitnet_session *s = NULL;
    bitnet_status st = read_options(e, options, &o, err);
    if (st == BITNET_OK && o.n_ctx > e->info.n_ctx_train)
        bnet_logf(&e->log, BITNET_LOG_WARN, "session",
                  "n_ctx %d is beyond the %d the model was trained with", o.n_ctx,
                  e->info.n_ctx_train);
    if (st == BITNET_OK)
        st = bnet_session_make(e, &o, &s, err);
    if (st == BITNET_OK)
        st = bnet_session_equip(s, &o, err);
    if (st != BITNET_OK) {
        bitnet_session_close(s);
        return st;
    }
    *out = s;
    return BITNET_OK;
}

void bitnet_session_close(bitnet_session *s)
{
    if (!s)
        return;
    if (s->busy) {
        bnet_logf(&s->engine->log, BITNET_LOG_ERROR, "session",
                  "not closed: a call that works with the session has not returned");
        return;
    }
    bnet_session_forget(s);
    bnet_session_close_kv(s);
    bnet_session_close_hidden(s);
    bnet_workspaces_leave(&s->engine->workspaces);
    bnet_free(s->tokens);
    bnet_free(s->begins);
    bnet_str_free(&s->stream.tail);
    bnet_free(s);
}

void bitnet_session_on_cancel(bitnet_session *s, bitnet_cancel_fn cancel, void *user)
{
    if (s)
        s->cancel = cancel ? (bnet_cancel){cancel, user} : s->engine->cancel;
}

/* ---- one call at a time ---- */

bitnet_status bnet_session_enter(const bitnet_session *s, const char *call, bitnet_error *err)
{
    if (!s)
        return bnet_fail(err, BITNET_ARGUMENT, "%s: session must not be NULL", call);
    return bnet_busy_enter(&((bitnet_session *)s)->busy, s, call, "session", err);
}

bitnet_status bnet_session_leave(const bitnet_session *s, bitnet_status st)
{
    bnet_busy_leave(&((bitnet_session *)s)->busy, s);
    return st;
}

/* ---- the timeline ---- */

bitnet_status bnet_session_borrow(bitnet_session *s, bitnet_error *err)
{
    bitnet_status st = bnet_scratch_borrow(&s->engine->workspaces, bnet_session_model(s),
                                           s->n_widest, s->before, &s->cancel, &s->scratch, err);
    if (st != BITNET_OK)
        return st;
    s->before = s->scratch;
    bnet_kernels_begin(s->scratch, s);
    return BITNET_OK;
}

void bnet_session_return(bitnet_session *s)
{
    if (!s->scratch)
        return;
    bnet_kernels_end(s->scratch, &s, 1);
    bnet_scratch_return(&s->engine->workspaces, s->scratch);
    s->scratch = NULL;
}

static bitnet_status forward(bitnet_session *s, const int32_t *ids, int n, int n_rows, int n_next,
                             bool next_last, bitnet_error *err)
{
    bnet_scratch *x = s->scratch;
    int32_t last = n_next - 1;
    memset(x->seq, 0, (size_t)BNET_MAX(n, n_next) * sizeof *x->seq);
    for (int i = 0; i < n + n_next; i++)
        x->pos[i] = (int32_t)s->n_pos + i;
    for (int i = 0; i < n_rows; i++)
        x->rows[i] = n - n_rows + i;
    bool some = s->chooser && !s->always_full && s->n_whole == 0; /* as bnet_session_answer asks */
    bnet_batch next = {n_next, ids + n,   x->pos + n, x->seq, &s->kv, 1,
                       &last,  next_last, false,      NULL,   NULL};
    bnet_batch b = {n, ids, x->pos, x->seq, &s->kv, 1, x->rows, n_rows, !some, NULL, NULL};
    b.next = n_next > 0 ? &next : NULL;
    b.keep = n_rows == 1 ? s->fresh : NULL;
    bnet_session_watch(s, n, n_rows > 1);
    bitnet_status st = bnet_forward(x->ws, &b, err);
    bnet_workspace_on_layer(x->ws, NULL, NULL);
    if (st == BITNET_CANCELLED)
        atomic_fetch_add(&s->engine->n_cut, 1);
    return st;
}

bitnet_status bnet_session_pass(bitnet_session *s, const int32_t *ids, int n, int n_rows,
                                int n_next, bool next_last, bitnet_error *err)
{
    bool lent = s->scratch != NULL;
    bitnet_status st = lent ? BITNET_OK : bnet_session_borrow(s, err);
    if (st == BITNET_OK)
        st = forward(s, ids, n, n_rows, n_next, next_last, err);
    if (!lent)
        bnet_session_return(s);
    if (st != BITNET_OK)
        return st;
    memmove(s->tokens + s->n_pos, ids, (size_t)n * sizeof *ids); /* ids may be s->tokens itself */
    bnet_session_note_pass(s, s->n_pos, (size_t)n);
    s->n_pos += (size_t)n;
    bnet_kv_filled(&s->entry, s->n_pos);
    return BITNET_OK;
}

static bitnet_status cancelled(const bitnet_session *s, bitnet_error *err)
{
    return bnet_fail(err, BITNET_CANCELLED, "cancelled at position %zu", s->n_pos);
}

/* Tokens to append and who wants their logits; `told`: how many of them have been handed out;
 * `cancelled`: by whoever was told. */
typedef struct appending {
    const int32_t *ids;
    size_t n_ids, told;
    bitnet_logits_fn each;
    void *user;
    bool cancelled;
} appending;

/* Hands out the logits of the n tokens of the last pass, ids[at, at + n), but for those told, then
 * keeps what those of the last one told follow from. If the caller cancels, that is where the
 * timeline ends. */
static bitnet_status deliver(bitnet_session *s, appending *a, size_t at, int n, bitnet_error *err)
{
    size_t n_vocab = (size_t)s->engine->info.n_vocab;
    int first = (int)(a->told - at);
    for (bool go_on = !a->cancelled; go_on && first < n;) {
        int k = BNET_MIN(BNET_HEAD_ROWS, n - first);
        const float *out;
        bitnet_status st = bnet_head(s->scratch->ws, first, k, &out, err);
        if (st != BITNET_OK)
            return st;
        for (int i = 0; i < k && go_on; i++, first++)
            go_on = a->each(a->user, a->told++, out + (size_t)i * n_vocab);
        go_on = go_on && bnet_session_delivered(s, first);
        a->cancelled = !go_on;
    }
    bitnet_status st = bnet_hidden_keep(s->scratch->ws, first - 1, s->fresh, err);
    if (st != BITNET_OK)
        return st;
    s->n_pos -= (size_t)(n - first);
    bnet_session_adopt(s);
    return a->cancelled ? cancelled(s, err) : BITNET_OK;
}

/* ids[at, at + n): one pass and the logits that are wanted of it. */
static bitnet_status step(bitnet_session *s, appending *a, size_t at, int n, bitnet_error *err)
{
    size_t left = a->n_ids - at - (size_t)n;
    int n_next = a->each ? 0 : (int)BNET_MIN((size_t)s->n_batch, left);
    bool last = left == 0;
    bitnet_status st = bnet_session_pass(s, a->ids + at, n, a->each ? n : last, n_next,
                                         left == (size_t)n_next, err);
    if (st != BITNET_OK)
        return st == BITNET_CANCELLED ? cancelled(s, err) : st;
    bnet_session_let_go(s); /* the caller's `each` may want the blocks for another session */
    if (a->each)
        return deliver(s, a, at, n, err);
    st = last ? bnet_session_answer(s, err) : BITNET_OK;
    if (last && st == BITNET_OK)
        bnet_session_adopt(s);
    else if (st == BITNET_OK)
        bnet_session_forget(s);
    return st;
}

/* The step, and once more on the CPU if the backend failed in it. */
static bitnet_status safe_step(bitnet_session *s, appending *a, size_t at, int n, bitnet_error *err)
{
    size_t before = s->n_pos;
    bitnet_status st = step(s, a, at, n, err);
    if (st == BITNET_OK || st == BITNET_CANCELLED)
        return st;
    s->n_pos = before;
    st = bnet_session_fall_back(s, st, err);
    return st == BITNET_OK ? step(s, a, at, n, err) : st;
}

/* All steps, with a workspace. */
static bitnet_status steps(bitnet_session *s, appending *a, bitnet_error *err)
{
    for (size_t i = 0; i < a->n_ids;) {
        if (bnet_session_cancelled(s))
            return cancelled(s, err);
        int n = (int)BNET_MIN((size_t)s->n_batch, a->n_ids - i);
        bitnet_status st = bnet_session_hold(s, s->n_pos + (size_t)n, err);
        if (st == BITNET_OK)
            st = safe_step(s, a, i, n, err);
        bnet_session_let_go(s);
        if (st != BITNET_OK)
            return st;
        i += (size_t)n;
        if (!bnet_session_passed(s, n))
            return cancelled(s, err);
    }
    return s->chooser && !a->each && a->n_ids ? bnet_session_choose(s, err) : BITNET_OK;
}

static bitnet_status run(bitnet_session *s, const int32_t *ids, size_t n_ids, bitnet_logits_fn each,
                         void *user, bitnet_error *err)
{
    appending a = {.ids = ids, .n_ids = n_ids, .each = each, .user = user};
    if (!s->in_score)
        bnet_session_count(s, n_ids, n_ids > 1);
    bitnet_status st = bnet_session_borrow(s, err);
    if (st == BITNET_OK)
        st = steps(s, &a, err);
    bnet_session_return(s);
    return st;
}

static bitnet_status check_room(const bitnet_session *s, size_t position, size_t n,
                                bitnet_error *err)
{
    if (n <= (size_t)s->n_ctx - position)
        return bnet_kv_fits(&s->entry, position + n, err);
    return bnet_fail(err, BITNET_CONTEXT,
                     "context is full: %zu tokens do not fit behind position %zu of %d; "
                     "open the session with a larger n_ctx or shorten the text",
                     n, position, s->n_ctx);
}

bitnet_status bnet_session_append(bitnet_session *s, const int32_t *ids, size_t n_ids,
                                  bitnet_logits_fn each, void *user, bitnet_error *err)
{
    bitnet_status st = check_room(s, s->n_pos, n_ids, err); /* before as many ids are read */
    if (st == BITNET_OK)
        st = bnet_check_ids(s->engine, "append", ids, n_ids, err);
    return st == BITNET_OK ? run(s, ids, n_ids, each, user, err) : st;
}

bitnet_status bitnet_session_append(bitnet_session *s, const int32_t *ids, size_t n_ids,
                                    bitnet_logits_fn each, void *user, bitnet_error *err)
{
    bitnet_status st = bnet_session_enter(s, "append", err);
    if (st != BITNET_OK)
        return st;
    return bnet_session_leave(s, bnet_session_append(s, ids, n_ids, each, user, err));
}

void bnet_session_cut(bitnet_session *s, size_t position)
{
    if (position != s->n_pos)
        bnet_session_forget(s);
    s->n_pos = position;
    bnet_kv_cut(&s->entry, position);
}

size_t bnet_session_common(const bitnet_session *s, const int32_t *ids, size_t n_ids)
{
    size_t n = 0;
    while (n < s->n_pos && n + 1 < n_ids && s->tokens[n] == ids[n])
        n++;
    return n;
}

bitnet_status bnet_session_sync(bitnet_session *s, const int32_t *ids, size_t n_ids,
                                size_t *n_reused, bitnet_error *err)
{
    bitnet_status st = check_room(s, 0, n_ids, err);
    if (st == BITNET_OK)
        st = bnet_check_ids(s->engine, "sync", ids, n_ids, err);
    if (st != BITNET_OK)
        return st;
    size_t same = bnet_session_common(s, ids, n_ids);
    bnet_session_cut(s, same);
    if (n_reused)
        *n_reused = same;
    return run(s, ids + same, n_ids - same, NULL, NULL, err);
}

bitnet_status bitnet_session_sync(bitnet_session *s, const int32_t *ids, size_t n_ids,
                                  size_t *n_reused, bitnet_error *err)
{
    bitnet_status st = bnet_session_enter(s, "sync", err);
    if (st != BITNET_OK)
        return st;
    return bnet_session_leave(s, bnet_session_sync(s, ids, n_ids, n_reused, err));
}

bitnet_status bitnet_session_rewind(bitnet_session *s, size_t position, bitnet_error *err)
{
    bitnet_status st = bnet_session_enter(s, "rewind", err);
    if (st != BITNET_OK)
        return st;
    if (position > s->n_pos)
        st = bnet_fail(err, BITNET_ARGUMENT, "rewind: position %zu is beyond the timeline's %zu",
                       position, s->n_pos);
    else
        bnet_session_cut(s, position);
    return bnet_session_leave(s, st);
}

size_t bitnet_session_position(const bitnet_session *s)
{
    return s ? s->n_pos : 0;
}

size_t bitnet_session_cached(const bitnet_session *s)
{
    return s ? bnet_kv_valid(&s->entry, s->n_pos) : 0;
}

size_t bitnet_session_context(const bitnet_session *s)
{
    return s ? (size_t)s->n_ctx : 0;
}

const int32_t *bitnet_session_tokens(const bitnet_session *s)
{
    return s ? s->tokens : NULL;
}
