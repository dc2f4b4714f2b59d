/* group_report.c - what a group says of itself: the sum of what its ranks do, each device once. */
#include "backend/group/group.h"
#include "backend/gpu/precision.h"

#include <stdio.h>

/* The same kernel of several ranks is one kernel. */
static void group_kernels(const bnet_backend *b, bnet_use_fn *each, void *user)
{
    const gpu_group *g = (const gpu_group *)b;
    const bnet_kernel_record *k;
    for (size_t i = 0; (k = bnet_registry_at(gpu_of(g->rank[0])->registry, i)) != NULL; i++) {
        bitnet_kernel_use use = {k->id, 0};
        for (int r = 0; r < g->n; r++)
            use.n_calls +=
                atomic_load_explicit(&gpu_of(g->rank[r])->calls[k->slot], memory_order_relaxed);
        if (use.n_calls)
            each(user, &use);
    }
}

static size_t group_shapes(const bnet_backend *b, bnet_kernel_query *out, size_t cap)
{
    const bnet_backend *first = ((const gpu_group *)b)->rank[0];
    return first->inspect->shapes(first, out, cap);
}

const bnet_gpu *bnet_group_gpu(const gpu_group *g, int r)
{
    return &gpu_of(g->rank[r])->d->gpu;
}

/* Is an earlier rank on the same device? */
static bool again(const gpu_group *g, int r)
{
    for (int i = 0; i < r; i++)
        if (bnet_group_gpu(g, i)->device_id == bnet_group_gpu(g, r)->device_id)
            return true;
    return false;
}

/* The cast is safe: reading counters changes no state that callers can see. */
static gpu_group *lock_of(const gpu_group *g)
{
    return (gpu_group *)(uintptr_t)(const void *)g;
}

static void group_stats(const bnet_backend *b, bnet_backend_stats *out)
{
    const gpu_group *g = (const gpu_group *)b;
    *out = (bnet_backend_stats){0};
    for (int r = 0; r < g->n; r++) {
        bnet_backend_stats s;
        pthread_mutex_lock(&lock_of(g)->lock);
        g->rank[r]->inspect->stats(g->rank[r], &s);
        pthread_mutex_unlock(&lock_of(g)->lock);
        out->n_h2d += s.n_h2d;
        out->n_d2h += s.n_d2h;
        out->h2d_bytes += s.h2d_bytes;
        out->d2h_bytes += s.d2h_bytes;
        out->cache_hits += s.cache_hits;
        out->cache_misses += s.cache_misses;
        out->memory_allocated += s.memory_allocated;
        out->memory_peak += s.memory_peak;
        out->memory_used += again(g, r) ? 0 : s.memory_used;
        out->memory_total += again(g, r) ? 0 : s.memory_total;
        out->n_launches += s.n_launches;
        out->n_replays += s.n_replays;
        out->n_unrecorded += s.n_unrecorded;
        if (r == 0)
            memcpy(out->device, s.device, sizeof out->device);
        out->fp16_ms += s.fp16_ms;
        out->bf16_ms += s.bf16_ms;
        out->settled = s.settled; /* the same of all: the same kernels, the same check */
        out->precision = BNET_MAX(out->precision, s.precision);
    }
}

static void group_usage(bnet_backend *b, bitnet_memory_use *out, uint64_t *reclaimable)
{
    gpu_group *g = group_of(b);
    *out = (bitnet_memory_use){0};
    *reclaimable = 0;
    for (int r = 0; r < g->n; r++) {
        bitnet_memory_use u;
        uint64_t of_rank;
        group_lock(g);
        g->rank[r]->inspect->usage(g->rank[r], &u, &of_rank);
        group_unlock(g);
        *reclaimable += of_rank;
        out->weights += u.weights;
        out->caches += u.caches;
        out->workspace += u.workspace;
        out->own += u.own;
        out->own_peak += u.own_peak;
        out->foreign += again(g, r) ? 0 : u.foreign; /* a later rank's has the earlier one in it */
        out->total += again(g, r) ? 0 : u.total;
        out->load_bytes += u.load_bytes;
        out->load_ms = BNET_MAX(out->load_ms, u.load_ms);
    }
}

void bnet_group_say_memory(gpu_group *g)
{
    for (int r = 0; r < g->n; r++) {
        bitnet_memory_use u;
        uint64_t reclaimable;
        g->rank[r]->inspect->usage(g->rank[r], &u, &reclaimable);
        bnet_logf(&g->log, BITNET_LOG_INFO, "gpu",
                  "rank %d: at most %.1f MB were ours on device %d", r, (double)u.own_peak / 1e6,
                  bnet_group_gpu(g, r)->device_id);
    }
}

/* The rank with the least memory sets the plan, because every rank has a part of every pass. */
void bnet_group_plan(gpu_group *g)
{
    for (int r = 0; r < g->n; r++)
        if (bnet_group_gpu(g, r)->total_memory < bnet_group_gpu(g, g->least)->total_memory)
            g->least = r;
    g->plan = gpu_of(g->rank[g->least])->plan;
}

static int group_batch_limit(const bnet_backend *b)
{
    const gpu_group *g = (const gpu_group *)b;
    return g->rank[g->least]->pass->batch_limit(g->rank[g->least]);
}

void bnet_group_missing(gpu_group *g, int r)
{
    gpu_backend *be = gpu_of(g->rank[r]);
    uint64_t total = 0;
    g->missing.any = true;
    g->missing.rank = r;
    bnet_gpu_enter(be);
    be->d->c->memory(be->d, &g->missing.left, &total);
    bnet_gpu_leave(be);
}

static void group_short_of(bnet_backend *b, char *out, size_t cap)
{
    gpu_group *g = group_of(b);
    *out = '\0';
    group_lock(g);
    if (g->missing.any)
        snprintf(out, cap, "too many for rank %d of %d (device %d, %.2f GB free)", g->missing.rank,
                 g->n, bnet_group_gpu(g, g->missing.rank)->device_id,
                 (double)g->missing.left / 1e9);
    group_unlock(g);
}

/* ---- measuring ---- */

/* Measures each device alone, then all of them together. Requires the lock: it reads each rank's
 * failures, which belong to whoever holds the group. */
static double group_read_limit(bnet_backend *b)
{
    gpu_group *g = group_of(b);
    gpu_rank_read ranks[GPU_RANKS];
    group_lock(g);
    for (int r = 0; r < g->n; r++)
        ranks[r] =
            (gpu_rank_read){bnet_group_gpu(g, r)->device_id, gpu_of(g->rank[r])->weight_bytes,
                            g->rank[r]->inspect->read_limit(g->rank[r])};
    group_unlock(g);
    return bnet_gpu_read_rate(ranks, g->n, g->split == BNET_SPLIT_TENSOR);
}

static const bnet_capabilities *group_capabilities(const bnet_backend *b)
{
    const bnet_backend *first = ((const gpu_group *)b)->rank[0];
    return first->inspect->capabilities(first);
}

/* One kernel is measured on one device. */
static bitnet_status group_bench_new(bnet_backend *b, const bnet_kernel_query *q, bnet_bench **out,
                                     bitnet_error *err)
{
    bnet_backend *first = group_of(b)->rank[0];
    return first->inspect->bench_new(first, q, out, err);
}

static bool group_profile(bnet_backend *b, bool on)
{
    gpu_group *g = group_of(b);
    bool can = true;
    for (int r = 0; r < g->n; r++)
        can = g->rank[r]->inspect->profile(g->rank[r], on) && can;
    return can;
}

/* Rank 0's: the others do as much at the same time, or other layers. */
static size_t group_profile_read(bnet_backend *b, bitnet_kernel_time *out, size_t cap)
{
    bnet_backend *first = group_of(b)->rank[0];
    return first->inspect->profile_read(first, out, cap);
}

/* What each rank has now, once all weights are there; that of floats may all lie on one. */
static void group_weights_done(bnet_backend *b, const bnet_log *log)
{
    gpu_group *g = group_of(b);
    size_t n_half = 0;
    for (int r = 0; r < g->n; r++) {
        gpu_backend *be = gpu_of(g->rank[r]);
        n_half += be->n_half;
        bnet_logf(log, BITNET_LOG_INFO, "gpu", "rank %d: device %d (%s): %.1f MB of weights", r,
                  be->d->gpu.device_id, be->d->gpu.name, (double)be->weight_bytes / 1e6);
    }
    bnet_gpu_precision_used(gpu_of(g->rank[0]), n_half, log);
}

void bnet_group_fill_report(gpu_group *g)
{
    const bnet_inspect_ops *first = g->rank[0]->inspect;
    g->table.weights_done = group_weights_done;
    g->pass.batch_limit = group_batch_limit;
    g->inspect = (bnet_inspect_ops){.own_clock = first->own_clock,
                                    .kernels = group_kernels,
                                    .shapes = group_shapes,
                                    .stats = group_stats,
                                    .usage = group_usage,
                                    .read_limit = group_read_limit,
                                    .short_of = group_short_of,
                                    .capabilities = group_capabilities,
                                    .bench_new = group_bench_new,
                                    .bench_run = first->bench_run,
                                    .bench_free = first->bench_free,
                                    .profile = group_profile,
                                    .profile_read = group_profile_read};
}
