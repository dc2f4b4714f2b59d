/* fallback.c - what becomes of a timeline whose backend failed in a step. The unit of fallback is
 * the step: the timeline is computed anew from its tokens on the CPU, with the plainest kernels if
 * it was the CPU that failed, and the step is repeated there. Nothing of the failed step is kept.
 * A caller who named the device, or who asked for strict mode, gets the error instead.
 */
#include "engine/engine.h"

static bitnet_status open_spare(bitnet_engine *e, bitnet_error *err)
{
    const bitnet_runtime *r = e->runtime;
    const char *isa = strcmp(bnet_backend_name(e->backend), "cpu") == 0 ? "scalar" : r->isa;
    bitnet_status st =
        bnet_backend_open_cpu(r->pool, r->registry, isa, r->strict, &e->log, &e->spare, err);
    if (st != BITNET_OK)
        return st;
    if (r->statistics)
        e->spare->meter = &e->meter;
    st = bnet_model_open(e->gguf, e->spare, e->layout, &e->log, NULL, &e->spare_model, err);
    if (st == BITNET_OK)
        bnet_model_count(e->spare_model, &e->runtime->ledger.reserved);
    else {
        bnet_backend_close(e->spare);
        e->spare = NULL;
    }
    return st;
}

/* The spare model, opened by whoever needs it first. */
static bitnet_status need_spare(bitnet_engine *e, bitnet_error *err)
{
    pthread_mutex_lock(&e->spare_lock);
    bitnet_status st = e->spare_model ? BITNET_OK : open_spare(e, err);
    pthread_mutex_unlock(&e->spare_lock);
    return st;
}

void bnet_spare_close(bitnet_engine *e)
{
    bnet_model_close(e->spare_model);
    bnet_backend_close(e->spare);
    pthread_mutex_destroy(&e->spare_lock);
}

/* What a session needs of the spare. */
typedef struct place {
    bnet_kv *kv;
    bnet_buffer *hidden[2];
} place;

static bitnet_status open_place(const bitnet_session *s, place *p, bitnet_error *err)
{
    bitnet_engine *e = s->engine;
    bitnet_status st = bnet_kv_open(e->spare_model, s->n_ctx, s->kv_type, &p->kv, err);
    if (st == BITNET_OK)
        st = bnet_workspaces_need(&e->workspaces, e->spare_model, s->n_batch, err);
    for (int i = 0; i < 2 && st == BITNET_OK; i++)
        if (!(p->hidden[i] = bnet_hidden_open(e->spare_model)))
            st = bnet_no_memory(err, "session buffers");
    return st;
}

/* Computes the timeline in its place on the spare, with what its logits follow from if they were
 * known, and moves it there when that is done; on failure it stays where it is. A session that had
 * a workspace has one of the spare's afterwards. */
static bitnet_status rebuild(bitnet_session *s, const place *p, bitnet_error *err)
{
    bool lent = s->scratch != NULL;
    bnet_session_return(s); /* its kernels are counted */
    bitnet_session there = *s;
    there.kv = p->kv;
    there.hidden = p->hidden[0];
    there.fresh = p->hidden[1];
    there.fallen = true;
    there.entry = (bnet_kv_entry){0};
    there.scratch = NULL;
    there.cancel = (bnet_cancel){0};
    there.n_pos = 0;
    bitnet_status st = bnet_session_borrow(&there, err);
    if (st == BITNET_OK)
        st = bnet_session_recompute(&there, s->n_pos, s->has_logits, err);
    if (!lent || st != BITNET_OK)
        bnet_session_return(&there);
    if (st != BITNET_OK)
        return st;
    bnet_session_close_kv(s);
    bnet_session_close_hidden(s);
    there.cancel = s->cancel;
    there.entry.n_valid = s->n_pos;
    *s = there;
    return BITNET_OK;
}

static void close_place(const bitnet_engine *e, const place *p)
{
    bnet_kv_close(p->kv);
    bnet_hidden_close(e->spare_model, p->hidden[0]);
    bnet_hidden_close(e->spare_model, p->hidden[1]);
}

/* May the CPU do what this engine's device could not? */
static bitnet_status allowed(const bitnet_session *s, bitnet_status why, bitnet_error *err)
{
    const bnet_selection *chosen = &s->engine->selection;
    if (s->engine->runtime->strict)
        return bnet_wrap(err, why, "strict mode allows no fallback: position %zu", s->n_pos);
    if (chosen->kind != BNET_DEV_CPU && !chosen->is_auto)
        return bnet_wrap(err, why,
                         "%s was asked for by name, so the CPU does not stand in for it (device "
                         "auto allows it): position %zu",
                         bnet_device_name(chosen->kind), s->n_pos);
    return BITNET_OK;
}

/* The weights, unless they are there, and the cache must fit this machine. */
static bitnet_status check_memory(const bitnet_session *s, bitnet_error *err)
{
    bitnet_engine *e = s->engine;
    uint64_t weights = e->n_fallbacks ? 0 : bnet_gguf_file_bytes(e->gguf);
    uint64_t cache = bnet_kv_bytes(e->model, s->n_ctx, s->kv_type);
    return bnet_check_memory(e, NULL, weights + cache, "the weights and the cache need",
                             "ask for a smaller n_ctx or kv_type int8", NULL, err);
}

bitnet_status bnet_session_fall_back(bitnet_session *s, bitnet_status why, bitnet_error *err)
{
    bitnet_engine *e = s->engine;
    place p = {0};
    if (s->fallen || e->backend->trace) /* a trace goes on nowhere else */
        return why;
    bitnet_status st = allowed(s, why, err);
    if (st != BITNET_OK)
        return st;
    bnet_logf(&e->log, BITNET_LOG_WARN, "engine",
              "position %zu: %s failed (%s); the timeline continues on the CPU", s->n_pos,
              bnet_backend_name(e->backend),
              err && err->message[0] ? err->message : bitnet_status_text(why));
    st = check_memory(s, err);
    if (st == BITNET_OK)
        st = need_spare(e, err);
    if (st == BITNET_OK)
        st = open_place(s, &p, err);
    if (st == BITNET_OK) {
        atomic_fetch_add(&e->n_fallbacks, 1); /* whoever sees it sees the spare too */
        st = rebuild(s, &p, err);
    }
    if (st == BITNET_OK)
        return st;
    close_place(e, &p);
    return bnet_wrap(err, st, "falling back to the CPU");
}
