/* gpu.c - opening the backend of a GPU, its failures, its counters, its table; launching by record.
 */
#include "backend/gpu/gpu.h"
#include "backend/gpu/precision.h"
#include "backend/gpu/time.h"

#include <stdio.h>

/* A few threads load weights faster than all: with one per core they wait for each other, for the
 * driver's threads, and for the system to map the file's pages. */
enum { LOAD_THREADS = 4 };
enum { FEW_ROWS = 8 };

/* ---- who is inside, what failed ---- */

void bnet_gpu_lock_init(pthread_mutex_t *lock)
{
    pthread_mutexattr_t again;
    pthread_mutexattr_init(&again);
    pthread_mutexattr_settype(&again, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(lock, &again);
    pthread_mutexattr_destroy(&again);
}

void bnet_gpu_enter(gpu_backend *be)
{
    pthread_mutex_lock(&be->lock);
    if (be->depth++ == 0)
        be->inside = bnet_gpu_ok(be, "entering the device", be->d->c->enter(be->d));
}

void bnet_gpu_leave(gpu_backend *be)
{
    if (--be->depth == 0 && be->inside)
        be->d->c->leave(be->d);
    pthread_mutex_unlock(&be->lock);
}

bool bnet_gpu_ok(gpu_backend *be, const char *what, gpu_result r)
{
    if (r == GPU_OK)
        return true;
    be->lost = be->lost || r == GPU_LOST;
    if (be->failed == GPU_OK) {
        be->failed = r;
        be->failed_as = be->d->c->explain(be->d, what, r, &be->why);
    }
    return false;
}

/* After a failure, transfers under way may not have arrived: step and angles are uploaded again,
 * and work that was recorded is not repeated. */
static void distrust(gpu_backend *be)
{
    be->step_bytes = 0;
    bnet_free(be->inv_freq);
    be->inv_freq = NULL;
    be->epoch++;
}

/* A lost device stays failed; after any other failure work can continue. */
bitnet_status bnet_gpu_verdict(gpu_backend *be, bitnet_error *err)
{
    bitnet_status st = BITNET_OK;
    if (be->failed) {
        st = bnet_fail(err, be->failed_as, "%s", be->why.message);
        distrust(be);
    }
    if (!be->lost)
        be->failed = GPU_OK;
    return st;
}

static bitnet_status gpu_sync(bnet_backend *b, bitnet_error *err)
{
    gpu_backend *be = gpu_of(b);
    bnet_gpu_enter(be);
    if (gpu_alive(be))
        bnet_gpu_ok(be, "waiting for the device", be->d->c->wait(be->d));
    bitnet_status st = bnet_gpu_verdict(be, err);
    bnet_gpu_leave(be);
    return st;
}

static void gpu_hold(bnet_backend *b)
{
    pthread_mutex_lock(&gpu_of(b)->lock);
}

static bitnet_status gpu_release(bnet_backend *b, bitnet_error *err)
{
    bitnet_status st = bnet_gpu_verdict(gpu_of(b), err);
    pthread_mutex_unlock(&gpu_of(b)->lock);
    return st;
}

/* ---- kernels ---- */

static const gpu_kernel_row *row_of(const gpu_backend *be, const char *id)
{
    for (size_t i = 0; i < be->n_kernel_rows; i++)
        if (strcmp(be->rows[i].id, id) == 0)
            return &be->rows[i];
    return NULL;
}

/* The n-th word of a list. */
static bool word(const char *list, int n, char *out, size_t cap)
{
    for (; n > 0 && list; n--) {
        list = strchr(list, ' ');
        list = list ? list + 1 : NULL;
    }
    if (!list || !*list)
        return false;
    snprintf(out, cap, "%.*s", (int)strcspn(list, " "), list);
    return true;
}

static gpu_kernel find(gpu_backend *be, const bnet_kernel_record *k, int symbol)
{
    gpu_kernel *code = &be->code[k->slot][symbol];
    char name[96];
    if (*code)
        return *code;
    const gpu_kernel_row *row = row_of(be, k->id);
    if (!row || !word(row->symbols, symbol, name, sizeof name))
        bnet_gpu_ok(be, k->id, GPU_NO_KERNEL);
    else
        bnet_gpu_ok(be, row->id, be->d->c->find(be->d, name, code));
    return *code;
}

gpu_result bnet_gpu_try(gpu_backend *be, const gpu_launch *l, const gpu_arg *args, int n_args)
{
    const bnet_kernel_record *k = l->kernel;
    bool counts = !l->more;
    if (!gpu_alive(be))
        return GPU_OK;
    gpu_kernel code = find(be, k, l->symbol);
    if (!code || !l->dims.grid[0] || !l->dims.grid[1] || !l->dims.grid[2])
        return GPU_OK;
    if (counts)
        be->last = *l;
    int span = bnet_gpu_time_launch(be, l);
    gpu_result r = be->d->c->launch(be->d, code, &l->dims, args, n_args);
    bnet_gpu_time_end(be, span);
    if (r == GPU_OK && be->recording)
        be->n_recorded++;
    else if (r == GPU_OK)
        atomic_fetch_add_explicit(&be->n_launches, 1, memory_order_relaxed);
    if (r == GPU_OK && counts && be->recording)
        be->recording[k->slot]++;
    else if (r == GPU_OK && counts)
        atomic_fetch_add_explicit(&be->calls[k->slot], 1, memory_order_relaxed);
    return r;
}

void bnet_gpu_launch(gpu_backend *be, const gpu_launch *l, const gpu_arg *args, int n_args)
{
    bnet_gpu_ok(be, l->kernel->id, bnet_gpu_try(be, l, args, n_args));
}

const bnet_kernel_record *bnet_gpu_pick(gpu_backend *be, const gpu_weight *w, size_t m)
{
    bnet_picks *picks = &((gpu_weight *)(uintptr_t)(const void *)w)->picks;
    return bnet_registry_pick(be->registry, &be->caps, &w->query, m, picks);
}

/* Who is asked for the kernel of some rows: what a weight remembers, or (w NULL) the registry. */
typedef struct picker {
    gpu_backend *be;
    const gpu_weight *w;
    bnet_serving s;
    bnet_kernel_query q; /* m is not read */
} picker;

static const bnet_kernel_record *pick(const picker *p, size_t m)
{
    const bnet_kernel_record *k = NULL;
    bnet_kernel_query q = p->q;
    q.m = m;
    if (p->w)
        return bnet_gpu_pick(p->be, p->w, m);
    return bnet_registry_select(p->s.registry, p->s.caps, &q, &k, NULL) == BITNET_OK ? k : NULL;
}

/* The kernel for *m rows; where that is the reference or none, a better one for the first *m of
 * them. NULL: there is no kernel at all. */
static const bnet_kernel_record *pick_divided(const picker *p, size_t *m)
{
    const bnet_kernel_record *best = pick(p, *m);
    bnet_kernel_query q = p->q;
    q.m = 0;
    if (best && (best->tier != BITNET_TIER_REFERENCE ||
                 bnet_registry_tuned(p->s.registry, p->s.caps, &q))) /* measured, or asked for */
        return best;
    for (size_t n = BNET_MIN(*m, (size_t)FEW_ROWS); n >= 1; n /= 2) {
        const bnet_kernel_record *k = pick(p, n);
        if (k && (!best || k->tier > best->tier)) {
            *m = n;
            return k;
        }
    }
    return best;
}

const bnet_kernel_record *bnet_gpu_pick_for(gpu_backend *be, const gpu_weight *w, size_t *m)
{
    const picker p = {be, w, {.registry = be->registry, .caps = &be->caps}, w->query};
    if (be->batch_invariant && w->layout != GPU_W2) /* kernels of more rows sum in another order */
        *m = BNET_MIN(*m, (size_t)FEW_ROWS);
    const bnet_kernel_record *k = pick_divided(&p, m);
    if (!k)
        bnet_gpu_ok(be, "linear", GPU_NO_KERNEL);
    return k;
}

void bnet_gpu_divide(const bnet_serving *s, bnet_kernel_query *q)
{
    const picker p = {.s = *s, .q = *q};
    size_t m = (size_t)q->m;
    if (m && pick_divided(&p, &m))
        q->m = m;
}

static void gpu_kernels(const bnet_backend *b, bnet_use_fn *each, void *user)
{
    const gpu_backend *be = (const gpu_backend *)b;
    const bnet_kernel_record *k;
    for (size_t i = 0; (k = bnet_registry_at(be->registry, i)) != NULL; i++) {
        uint64_t calls = atomic_load_explicit(&be->calls[k->slot], memory_order_relaxed);
        if (calls)
            each(user, &(bitnet_kernel_use){k->id, calls});
    }
}

static size_t gpu_shapes(const bnet_backend *b, bnet_kernel_query *out, size_t cap)
{
    const gpu_backend *be = (const gpu_backend *)b;
    for (size_t i = 0; i < be->n_shapes && i < cap; i++)
        out[i] = be->shapes[i];
    return be->n_shapes;
}

/* ---- facts ---- */

static const bnet_weight_info *gpu_weight_info(const bnet_weight *w)
{
    return &gpu_w(w)->info;
}

static const bnet_capabilities *gpu_capabilities(const bnet_backend *b)
{
    return &((const gpu_backend *)b)->caps;
}

static void gpu_stats(const bnet_backend *b, bnet_backend_stats *out)
{
    gpu_backend *be = (gpu_backend *)(uintptr_t)(const void *)b;
    bnet_gpu_enter(be);
    uint64_t left = 0, total = 0;
    be->d->c->memory(be->d, &left, &total);
    bnet_gpu_time_read(be);
    *out = (bnet_backend_stats){.n_h2d = be->n_h2d,
                                .n_d2h = be->n_d2h,
                                .h2d_bytes = be->h2d_bytes,
                                .d2h_bytes = be->d2h_bytes,
                                .cache_hits = be->buffers.n_hits,
                                .cache_misses = be->buffers.n_misses,
                                .n_replays = be->n_replays,
                                .n_unrecorded = be->n_unrecorded,
                                .n_launches = be->n_launches,
                                .memory_allocated = be->own_bytes,
                                .memory_peak = be->own_peak,
                                .memory_pool = be->buffers.held_bytes,
                                .memory_used = total - left,
                                .memory_total = total,
                                .fp16_ms = be->half_ms[BITNET_PRECISION_FP16],
                                .bf16_ms = be->half_ms[BITNET_PRECISION_BF16],
                                .settled = be->precision,
                                .precision = be->n_half ? be->precision : BITNET_PRECISION_FP32};
    const bnet_gpu *g = &be->d->gpu;
    snprintf(out->device, sizeof out->device, "%.70s, %.32s, %.16s", g->name, be->d->chip,
             be->d->version);
    bnet_gpu_leave(be);
}

static void gpu_weights_done(bnet_backend *b, const bnet_log *log)
{
    const gpu_backend *be = gpu_of(b);
    bnet_gpu_weights_done(b, log);
    bnet_gpu_precision_used(be, be->n_half, log);
}

/* ---- opening ---- */

bool bnet_gpu_has(gpu_backend *be, const bnet_kernel_record *k, int symbol)
{
    char name[96];
    const gpu_kernel_row *row = row_of(be, k->id);
    gpu_kernel *code = &be->code[k->slot][symbol];
    return *code || (row && word(row->symbols, symbol, name, sizeof name) &&
                     be->d->c->find(be->d, name, code) == GPU_OK);
}

static void gpu_close(bnet_backend *b)
{
    gpu_backend *be = gpu_of(b);
    if (be->d) {
        bnet_gpu_enter(be);
        if (be->net)
            be->net_free(be, be->net);
        if (be->compiled)
            be->compiled_free(be, be->compiled);
        bnet_gpu_usage_end(be);
        bnet_gpu_memory_close(be);
        if (be->lost)
            bnet_logf(&be->log, BITNET_LOG_WARN, be->d->c->name,
                      "device %d had failed: given back, which resets it unless others of this "
                      "process still use it",
                      be->d->gpu.device_id);
        bnet_gpu_leave(be);
        be->d->c->close(be->d);
    }
    bnet_pool_close(be->pool);
    pthread_mutex_destroy(&be->lock);
    bnet_free(be->step_shadow);
    bnet_free(be->ahead.bytes);
    bnet_free(be->inv_freq);
    if (be->clock)
        bnet_free(be->clock->each);
    bnet_free(be->clock);
    bnet_free(be);
}

static bnet_backend_vtable table_of(const char *name)
{
    bnet_backend_vtable v = {.name = name,
                             .close = gpu_close,
                             .buffer_new = bnet_gpu_buffer_new,
                             .buffer_free = bnet_gpu_buffer_free,
                             .read = bnet_gpu_read,
                             .write = bnet_gpu_write,
                             .sync = gpu_sync,
                             .hold = gpu_hold,
                             .release = gpu_release,
                             .weight_prepare = bnet_gpu_weight_prepare,
                             .weight_free = bnet_gpu_weight_free,
                             .weight_info = gpu_weight_info,
                             .weights_done = gpu_weights_done,
                             .kv_new = bnet_gpu_kv_new,
                             .kv_free = bnet_gpu_kv_free,
                             .kv_get = bnet_gpu_kv_get,
                             .kv_put = bnet_gpu_kv_put,
                             .kv_clear = bnet_gpu_kv_clear,
                             .kv_copy = bnet_gpu_kv_copy};
    bnet_gpu_fill_ops(&v);
    return v;
}

static const bnet_inspect_ops inspect = {
    .usage = bnet_gpu_usage,
    .kernels = gpu_kernels,
    .shapes = gpu_shapes,
    .stats = gpu_stats,
    .own_clock = true,
    .capabilities = gpu_capabilities,
    .bench_new = bnet_gpu_bench_new,
    .bench_run = bnet_gpu_bench_run,
    .bench_free = bnet_gpu_bench_free,
    .profile = bnet_gpu_profile,
    .profile_read = bnet_gpu_profile_read,
    .single = bnet_gpu_single,
    .read_limit = bnet_gpu_read_limit,
};

/* Ops whose kernel does not depend on the shape. */
static bitnet_status choose(gpu_backend *be, bitnet_error *err)
{
    gpu_choice *u = &be->use;
    const bnet_fixed fixed[] = {
        {BNET_OP_RMSNORM, BNET_FORMAT_F32, &u->rmsnorm},
        {BNET_OP_QUANTIZE, BNET_FORMAT_I8, &u->quantize},
        {BNET_OP_ROPE, BNET_FORMAT_NORM, &u->rope_norm},
        {BNET_OP_ROPE, BNET_FORMAT_NEOX, &u->rope_neox},
        {BNET_OP_ROPE_TABLE, BNET_FORMAT_F32, &u->table},
        {BNET_OP_GLU, BNET_FORMAT_RELU2, &u->glu_relu2},
        {BNET_OP_GLU, BNET_FORMAT_SILU, &u->glu_silu},
        {BNET_OP_ADD, BNET_FORMAT_F32, &u->add},
        {BNET_OP_GATHER, BNET_FORMAT_F32, &u->gather},
        {BNET_OP_TOPK, BNET_FORMAT_F32, &u->topk},
        {BNET_OP_PACK, BNET_FORMAT_ANY, &u->pack},
        {BNET_OP_KV_STORE, BNET_FORMAT_F32, &u->kv_store[BITNET_KV_F32]},
        {BNET_OP_KV_STORE, BNET_FORMAT_F16, &u->kv_store[BITNET_KV_F16]},
        {BNET_OP_KV_STORE, BNET_FORMAT_I8, &u->kv_store[BITNET_KV_INT8]},
        {BNET_OP_ATTENTION, BNET_FORMAT_F32, &u->attention[BITNET_KV_F32]},
        {BNET_OP_ATTENTION, BNET_FORMAT_F16, &u->attention[BITNET_KV_F16]},
        {BNET_OP_ATTENTION, BNET_FORMAT_I8, &u->attention[BITNET_KV_INT8]},
    };
    return bnet_registry_select_all(be->registry, &be->caps, fixed, BNET_COUNT(fixed), err);
}

static void say(const gpu_backend *be, const bnet_log *log)
{
    const bnet_gpu *g = &be->d->gpu;
    const bnet_memory_plan *plan = &be->plan;
    bnet_logf(log, BITNET_LOG_INFO, be->d->c->name,
              "device %d: %s, %s, %d multiprocessors, %.1f GB; opened in "
              "%.0f ms; memory policy %s: recorded steps of up to %d timelines, passes "
              "of up to %d tokens",
              g->device_id, g->name, be->d->chip, g->multiprocessors, (double)g->total_memory / 1e9,
              be->d->open_ms, plan->policy, plan->max_batch, bnet_gpu_batch_limit(&be->base));
}

typedef struct gpu_with_table {
    gpu_backend be;
    bnet_backend_vtable table;
    bnet_pass_ops pass;
    bnet_inspect_ops inspect;
} gpu_with_table;

bitnet_status bnet_gpu_open(const bnet_backend_want *w, gpu_driver *d, const gpu_vendor *vendor,
                            bnet_backend **out, bitnet_error *err)
{
    gpu_with_table *both = bnet_calloc(1, sizeof *both);
    if (!both) {
        d->c->close(d);
        return bnet_no_memory(err, d->c->name);
    }
    gpu_backend *be = &both->be;
    both->table = table_of(d->c->name);
    be->base.v = &both->table;
    be->d = d;
    be->kind = w->device;
    both->pass = (bnet_pass_ops){.features = vendor->features,
                                 .pass = vendor->pass,
                                 .pass_bytes = vendor->pass_bytes,
                                 .pass_reserve = vendor->pass_reserve,
                                 .batch_limit = bnet_gpu_batch_limit};
    both->inspect = inspect;
    both->inspect.call_kernel = vendor->call_kernel;
    be->base.pass = &both->pass;
    be->base.inspect = &both->inspect;
    be->head_loaded = vendor->head_loaded;
    be->rows = vendor->rows;
    be->n_kernel_rows = vendor->n_rows;
    be->registry = w->registry;
    be->strict = w->strict;
    be->batch_invariant = w->batch_invariant;
    be->log = w->log ? *w->log : (bnet_log){NULL, NULL};
    be->caps = d->caps;
    if (bnet_gpu_has_programs(w->registry, w->device)) { /* passes know the tree's kernels alone */
        be->caps.has |= BNET_NEED_PROGRAM;
        both->pass = (bnet_pass_ops){.batch_limit = bnet_gpu_batch_limit};
    }
    bnet_gpu_lock_init(&be->lock);
    be->clock = bnet_calloc(1, sizeof *be->clock);
    bitnet_status st = be->clock ? BITNET_OK : bnet_no_memory(err, d->c->name);
    if (st == BITNET_OK)
        st =
            bnet_pool_open(BNET_MIN(bnet_pool_threads(w->pool), (int)LOAD_THREADS), &be->pool, err);
    bnet_gpu_enter(be);
    if (st == BITNET_OK)
        st = bnet_gpu_verdict(be, err); /* of entering */
    if (st == BITNET_OK)
        bnet_gpu_usage_begin(be);
    if (st == BITNET_OK)
        st = bnet_gpu_memory_open(be, err);
    if (st == BITNET_OK)
        st = choose(be, err);
    if (st == BITNET_OK)
        st = bnet_gpu_precision(be, w->precision, err);
    bnet_gpu_leave(be);
    if (st != BITNET_OK) {
        gpu_close(&be->base);
        return st;
    }
    say(be, w->log);
    *out = &be->base;
    return BITNET_OK;
}
