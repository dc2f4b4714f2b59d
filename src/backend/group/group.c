/* group.c - several GPUs as one backend: opening it, its objects, its facts. */
#include "backend/group/group.h"

#include <stdio.h>

static void group_close(bnet_backend *b)
{
    gpu_group *g = group_of(b);
    bnet_group_say_memory(g);
    bnet_group_records_free(g);
    if (g->exchange)
        g->exchange->c->close(g->exchange);
    for (int r = 0; r < g->n; r++)
        bnet_backend_close(g->rank[r]);
    pthread_mutex_destroy(&g->lock);
    bnet_free(g->seqs);
    bnet_free(g->ids);
    bnet_free(g);
}

int bnet_group_rank_of(const gpu_group *g, int layer)
{
    int r = 0;
    while (r + 1 < g->n && layer >= 0 && (uint64_t)layer >= g->layers[r + 1])
        r++;
    return r;
}

/* ---- buffers ---- */

static void group_buffer_free(bnet_backend *b, bnet_buffer *buf)
{
    gpu_group *g = group_of(b);
    group_buffer *all = group_buf(buf);
    group_lock(g);
    bnet_group_forget(g, all);
    for (int r = 0; r < g->n; r++)
        if (all->at[r])
            g->rank[r]->v->buffer_free(g->rank[r], all->at[r]);
    group_unlock(g);
    bnet_free(all);
}

static bnet_buffer *group_buffer_new(bnet_backend *b, size_t n_bytes)
{
    gpu_group *g = group_of(b);
    group_buffer *all = bnet_calloc(1, sizeof *all);
    bool ok = all != NULL;
    group_lock(g);
    for (int r = 0; ok && r < g->n; r++) {
        all->at[r] = g->rank[r]->v->buffer_new(g->rank[r], n_bytes);
        ok = all->at[r] != NULL;
        if (!ok)
            bnet_group_missing(g, r);
    }
    group_unlock(g);
    if (!ok && all)
        group_buffer_free(b, (bnet_buffer *)(void *)all);
    if (!ok)
        return NULL;
    all->n_bytes = n_bytes;
    all->whole = all_ranks(g);
    return (bnet_buffer *)(void *)all;
}

static void group_write(bnet_backend *b, bnet_buffer *buf, const void *bytes, size_t n_bytes)
{
    gpu_group *g = group_of(b);
    group_buffer *all = group_buf(buf);
    group_lock(g);
    bnet_group_make(g, all, all_ranks(g));
    for (int r = 0; r < g->n; r++)
        g->rank[r]->v->write(g->rank[r], all->at[r], bytes, n_bytes);
    group_unlock(g);
}

static bitnet_status verdict(gpu_group *g, bool wait, bitnet_error *err)
{
    bitnet_status st = BITNET_OK;
    for (int r = 0; r < g->n; r++) { /* all are asked: each forgets its failure */
        bitnet_error why;
        bnet_backend *be = g->rank[r];
        be->v->hold(be);
        bitnet_status s = wait ? be->v->sync(be, &why) : BITNET_OK;
        bitnet_status late = be->v->release(be, s == BITNET_OK ? &why : NULL);
        s = s == BITNET_OK ? late : s;
        if (s != BITNET_OK && st == BITNET_OK)
            st = bnet_fail(err, s, "rank %d of %d: %s", r, g->n, why.message);
    }
    if (st == BITNET_OK && g->no_memory)
        st = bnet_no_memory(err, "several devices");
    g->no_memory = false;
    return st;
}

static bitnet_status group_sync(bnet_backend *b, bitnet_error *err)
{
    gpu_group *g = group_of(b);
    group_lock(g);
    if (g->exchange->c->ask) /* before anybody waits for what will not come */
        g->exchange->c->ask(g->exchange);
    bitnet_status st = verdict(g, true, err);
    group_unlock(g);
    return st;
}

static void group_hold(bnet_backend *b)
{
    group_lock(group_of(b));
}

static bitnet_status group_release(bnet_backend *b, bitnet_error *err)
{
    gpu_group *g = group_of(b);
    bitnet_status st = verdict(g, false, err);
    group_unlock(g);
    return st;
}

/* ---- weights ---- */

static bitnet_status group_expect(bnet_backend *b, const bnet_expect *e, const bnet_log *log,
                                  bitnet_error *err)
{
    gpu_group *g = group_of(b);
    const gpu_layers l = {e->file, e->n_layers, e->layer_bytes, e->first_bytes, e->last_bytes};
    if (g->split == BNET_SPLIT_TENSOR && e->n_kv_heads < g->n)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "%s: %d key/value heads cannot be divided among %d devices; name at most "
                         "%d, or use --split layer",
                         e->file, e->n_kv_heads, g->n, e->n_kv_heads);
    if (g->split == BNET_SPLIT_TENSOR)
        return BITNET_OK;
    bitnet_status st = bnet_gpu_share_layers(g->facts, g->n, &l, g->layers, err);
    for (int r = 0; st == BITNET_OK && r < g->n; r++)
        bnet_logf(log, BITNET_LOG_INFO, "gpu", "rank %d: layers %llu to %llu", r,
                  (unsigned long long)g->layers[r], (unsigned long long)g->layers[r + 1] - 1);
    return st;
}

static void group_weight_free(bnet_backend *b, bnet_weight *w)
{
    gpu_group *g = group_of(b);
    group_weight *all = (group_weight *)(void *)w;
    group_lock(g);
    g->epoch++;
    for (int r = 0; r < g->n; r++)
        if (all->at[r])
            g->rank[r]->v->weight_free(g->rank[r], all->at[r]);
    if (g->embd == all)
        g->embd = NULL;
    group_unlock(g);
    bnet_free(all);
}

/* Which ranks have it, and which rows of it. */
static bitnet_status divide(const gpu_group *g, const bnet_weight_request *r, group_weight *w,
                            bitnet_error *err)
{
    uint64_t n = r->source.tensor->ne[1], units = (uint64_t)r->n_units;
    if (g->split == BNET_SPLIT_LAYER) {
        w->ranks = (rank_set)1 << bnet_group_rank_of(g, r->layer);
        return BITNET_OK;
    }
    w->ranks = all_ranks(g);
    w->divided = r->source.tensor->n_dims > 1;
    if (!w->divided)
        return BITNET_OK;
    bool ok = units ? n % units == 0 && bnet_gpu_shares(g->facts, g->n, units, w->first)
                    : bnet_gpu_share_rows(g->facts, g->n, n, w->first);
    for (int i = 0; ok && units && i <= g->n; i++)
        w->first[i] *= n / units;
    if (ok)
        return BITNET_OK;
    return bnet_fail(err, BITNET_ARGUMENT,
                     "%s: tensor %s: %llu rows cannot be divided among %d devices; name fewer, or "
                     "use --split layer",
                     r->source.file, r->source.tensor->name, (unsigned long long)n, g->n);
}

static bitnet_status prepare_on(gpu_group *g, int r, const bnet_weight_request *request,
                                const bnet_log *log, group_weight *w, bitnet_error *err)
{
    bnet_weight_request part = *request;
    if (w->divided) {
        part.first_row = w->first[r];
        part.n_rows = w->first[r + 1] - w->first[r];
    }
    bnet_backend *be = g->rank[r];
    bitnet_status st = be->v->weight_prepare(be, &part, log, &w->at[r], err);
    if (st == BITNET_OK && w->info.n_in == 0)
        w->info = *be->v->weight_info(w->at[r]);
    return st == BITNET_OK ? st : bnet_wrap(err, st, "rank %d of %d", r, g->n);
}

static bitnet_status group_weight_prepare(bnet_backend *b, const bnet_weight_request *request,
                                          const bnet_log *log, bnet_weight **out, bitnet_error *err)
{
    gpu_group *g = group_of(b);
    group_weight *w = bnet_calloc(1, sizeof *w);
    if (!w)
        return bnet_no_memory(err, request->source.tensor->name);
    bitnet_status st = divide(g, request, w, err);
    group_lock(g);
    for (int r = 0; st == BITNET_OK && r < g->n; r++)
        if (has_rank(w->ranks, r)) { /* warnings are said once */
            st = prepare_on(g, r, request, log, w, err);
            log = NULL;
        }
    group_unlock(g);
    if (st != BITNET_OK) {
        group_weight_free(b, (bnet_weight *)(void *)w);
        return st;
    }
    if (w->divided)
        w->info.n_out = w->first[g->n];
    *out = (bnet_weight *)(void *)w;
    return BITNET_OK;
}

static const bnet_weight_info *group_weight_info(const bnet_weight *w)
{
    return &group_w(w)->info;
}

/* ---- opening ---- */

/* Ranks on one device share what is free there. */
static void find_facts(gpu_group *g)
{
    for (int r = 0; r < g->n; r++) {
        gpu_backend *be = gpu_of(g->rank[r]);
        uint64_t left = 0, total = 0, n = 0;
        bnet_gpu_enter(be);
        be->d->c->memory(be->d, &left, &total);
        bnet_gpu_leave(be);
        for (int i = 0; i < g->n; i++)
            n += bnet_group_gpu(g, i)->device_id == bnet_group_gpu(g, r)->device_id;
        g->facts[r] =
            (gpu_rank_facts){left / n, (double)BNET_MAX(bnet_group_gpu(g, r)->multiprocessors, 1)};
    }
}

static bnet_backend_vtable table_of(const char *name, int n)
{
    bnet_backend_vtable v = {.name = name,
                             .n_ranks = n,
                             .close = group_close,
                             .buffer_new = group_buffer_new,
                             .buffer_free = group_buffer_free,
                             .read = bnet_group_read,
                             .write = group_write,
                             .sync = group_sync,
                             .hold = group_hold,
                             .release = group_release,
                             .expect = group_expect,
                             .weight_prepare = group_weight_prepare,
                             .weight_free = group_weight_free,
                             .weight_info = group_weight_info};
    bnet_group_fill_kv(&v);
    bnet_group_fill_ops(&v);
    return v;
}

static void say(const gpu_group *g, const bnet_selection_ranks *ranks)
{
    int n = bnet_ranks_devices(ranks);
    bool virtual = n < g->n;
    bnet_logf(&g->log, BITNET_LOG_INFO, "gpu",
              "%d %sranks on %d device%s, split by %s, joined by %s", g->n,
              virtual ? "virtual " : "", n, n == 1 ? "" : "s",
              g->split == BNET_SPLIT_LAYER ? "layers" : "rows", g->exchange->name);
    bnet_logf(
        &g->log, BITNET_LOG_INFO, "gpu",
        "memory policy %s, as rank %d has it: recorded steps of up to %d timelines, passes of "
        "up to %d tokens",
        g->plan.policy, g->least, g->plan.max_batch, g->pass.batch_limit(&g->base));
}

/* Networks whose composed passes group_record.c can repeat: it knows every operation they consist
 * of.
 */
static const bnet_features in_repeats =
    BNET_FEATURE(RELU2) | BNET_FEATURE(SILU) | BNET_FEATURE(SUB_NORMS) | BNET_FEATURE(SCALES) |
    BNET_FEATURE(BLOCK_SCALES) | BNET_FEATURE(FLOAT_MATRICES) | BNET_FEATURE(TIED_HEAD) |
    BNET_FEATURE(FLOAT_HEAD) | BNET_FEATURE(QUANTISED_HEAD) | BNET_FEATURE(ROPE_PAIRS) |
    BNET_FEATURE(ROPE_HALVES) | BNET_FEATURE(ROPE_FACTORS);

/* Takes the ranks and the exchange, also on failure. */
static bitnet_status make(const bnet_backend_want *w, bnet_backend *const *ranks,
                          gpu_exchange *exchange, bnet_backend **out, bitnet_error *err)
{
    gpu_group *g = bnet_calloc(1, sizeof *g);
    if (!g) {
        exchange->c->close(exchange);
        for (int r = 0; r < w->ranks.n; r++)
            bnet_backend_close(ranks[r]);
        return bnet_no_memory(err, "several devices");
    }
    bnet_gpu_lock_init(&g->lock);
    g->n = w->ranks.n;
    memcpy(g->rank, ranks, (size_t)g->n * sizeof *ranks);
    g->exchange = exchange;
    g->split = w->ranks.split;
    g->log = w->log ? *w->log : (bnet_log){NULL, NULL};
    g->table = table_of(ranks[0]->v->name, g->n);
    bnet_group_fill_report(g);
    g->pass.features = in_repeats;
    g->pass.repeat = bnet_group_repeat;
    g->pass.composed = bnet_group_composed;
    g->base.v = &g->table;
    g->base.pass = &g->pass;
    g->base.inspect = &g->inspect;
    find_facts(g);
    bnet_group_plan(g);
    say(g, &w->ranks);
    *out = &g->base;
    return BITNET_OK;
}

/* A driver has all of these calls or none (gpu/driver.h). */
static bitnet_status can_join(const gpu_driver *d, bitnet_error *err)
{
    if (d->c->after && d->c->reach && d->c->fetch && d->c->copy_rows)
        return BITNET_OK;
    return bnet_fail(err, BITNET_NOT_AVAILABLE,
                     "%s: this driver cannot divide a model among several devices; name one: %s:%d",
                     d->c->name, d->c->name, d->gpu.device_id);
}

bitnet_status bnet_group_open(const bnet_backend_want *w, const gpu_group_vendor *vendor,
                              bnet_backend **out, bitnet_error *err)
{
    bnet_backend *ranks[GPU_RANKS] = {NULL};
    gpu_backend *gpus[GPU_RANKS] = {NULL};
    gpu_exchange *exchange = NULL;
    bitnet_status st = BITNET_OK;
    int n = w->ranks.n;
    for (int r = 0; st == BITNET_OK && r < n; r++) {
        bnet_backend_want one = *w;
        one.index = w->ranks.index[r];
        one.ranks.n = 0;
        st = vendor->open_one(&one, &ranks[r], err);
        gpus[r] = gpu_of(ranks[r]);
        if (st == BITNET_OK)
            gpus[r]->head_loaded = NULL; /* each rank has a part of the head */
        if (st != BITNET_OK)
            bnet_wrap(err, st, "rank %d of %d", r, n);
    }
    if (st == BITNET_OK)
        st = can_join(gpus[0]->d, err);
    if (st == BITNET_OK)
        st = vendor->join(gpus, n, w->log, &exchange, err);
    if (st == BITNET_OK)
        return make(w, ranks, exchange, out, err);
    for (int r = 0; r < n; r++)
        bnet_backend_close(ranks[r]);
    return st;
}
