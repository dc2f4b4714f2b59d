/* stats.c - statistics of an engine. Counts come from the dispatcher (kernel calls), from ops.c
 * (times) and from the device itself (transfers, pool); nothing here is estimated. A reset
 * remembers what was counted so far and subtracts it. */
#include "engine/engine.h"
#include "bitnet_tools.h"

#include <stdio.h>

/* ---- kernels ---- */

void bnet_engine_uses(const bitnet_engine *e, bnet_use_fn *each, void *user)
{
    if (e->backend)
        bnet_backend_each_kernel(e->backend, each, user);
    if (e->backend && e->n_fallbacks)
        bnet_backend_each_kernel(e->spare, each, user);
}

size_t bitnet_engine_kernels(const bitnet_engine *e, bitnet_kernel_use *out, size_t cap)
{
    bnet_uses list = {out, out ? cap : 0, 0};
    if (e)
        bnet_engine_uses(e, bnet_use_list, &list);
    return list.n;
}

uint64_t bitnet_engine_fallbacks(const bitnet_engine *e)
{
    if (!e)
        return 0;
    uint64_t n = e->backend ? bnet_backend_fallbacks(e->backend) : 0;
    return e->n_fallbacks ? n + bnet_backend_fallbacks(e->spare) : n;
}

/* ---- counts ---- */

typedef struct launches {
    const bnet_registry *registry;
    bnet_counts *counts;
} launches;

static void count_use(void *user, const bitnet_kernel_use *u)
{
    const launches *l = user;
    const bnet_kernel_record *k = bnet_registry_find(l->registry, u->id);
    l->counts->n_launches += u->n_calls;
    if (k && k->device != BNET_DEV_CPU)
        l->counts->n_gpu_launches += u->n_calls;
}

/* A device that counts launches knows better: one use of a kernel may be several. */
static void count_launches(const bitnet_engine *e, const bnet_backend_stats *d, bnet_counts *c)
{
    bnet_engine_uses(e, count_use, &(launches){e->runtime->registry, c});
    if (d->n_launches) {
        c->n_launches += d->n_launches - c->n_gpu_launches;
        c->n_gpu_launches = d->n_launches;
    }
}

static void count_device(const bnet_backend_stats *d, bnet_counts *c)
{
    c->n_h2d = d->n_h2d;
    c->n_d2h = d->n_d2h;
    c->h2d_bytes = d->h2d_bytes;
    c->d2h_bytes = d->d2h_bytes;
    c->cache_hits = d->cache_hits;
    c->cache_misses = d->cache_misses;
    c->fp16_ns = (uint64_t)(d->fp16_ms * 1e6);
    c->bf16_ns = (uint64_t)(d->bf16_ms * 1e6);
}

/* Everything since the engine was opened. */
static void count_all(const bitnet_engine *e, const bnet_backend_stats *d, bnet_counts *c)
{
    count_launches(e, d, c);
    c->n_replays = d->n_replays;
    c->n_unrecorded = d->n_unrecorded;
    count_device(d, c);
    c->n_dequantised = bitnet_engine_fallbacks(e);
    c->n_fallbacks = e->n_fallbacks;
    for (int i = 0; i < BNET_ENTRIES; i++) {
        bnet_op_class k = bnet_entry_class((bnet_op_entry)i);
        if (k != BNET_CLASS_NONE) {
            c->n[k] += e->meter.n[i];
            c->ns[k] += e->meter.ns[i];
        }
    }
}

static bnet_backend_stats ask_device(const bitnet_engine *e)
{
    bnet_backend_stats d;
    bnet_backend_stats_read(e->backend, &d);
    return d;
}

void bitnet_engine_stats_reset(bitnet_engine *e)
{
    if (!e)
        return;
    bnet_backend_stats d = ask_device(e);
    bnet_counts c = {0};
    count_all(e, &d, &c);
    atomic_uint_fast64_t *to = (atomic_uint_fast64_t *)&e->base, *from = (atomic_uint_fast64_t *)&c;
    for (size_t i = 0; i < sizeof c / sizeof *to; i++)
        to[i] = from[i];
}

static void subtract_base(const bitnet_engine *e, bnet_counts *c)
{
    const atomic_uint_fast64_t *base = (const atomic_uint_fast64_t *)&e->base;
    atomic_uint_fast64_t *to = (atomic_uint_fast64_t *)c;
    for (size_t i = 0; i < sizeof *c / sizeof *to; i++)
        to[i] -= base[i];
}

/* ---- the public form ---- */

void bitnet_stats_init(bitnet_stats *s)
{
    if (!s)
        return;
    *s = (bitnet_stats){.struct_size = sizeof *s};
}

static double mean_ms(uint64_t ns, uint64_t n)
{
    return n ? (double)ns / 1e6 / (double)n : 0;
}

static void fill_device(const bnet_counts *c, bitnet_device_stats *o)
{
    o->gpu_efficiency = c->n_launches ? (double)c->n_gpu_launches / (double)c->n_launches : 0;
    o->fallback_count = c->n_fallbacks;
    o->n_replays = c->n_replays;
    o->n_unrecorded = c->n_unrecorded;
    o->dequantised_calls = c->n_dequantised;
    o->n_quantize = c->n[BNET_CLASS_QUANTIZE];
    o->n_matmul = c->n[BNET_CLASS_MATMUL];
    o->avg_quantize_ms = mean_ms(c->ns[BNET_CLASS_QUANTIZE], o->n_quantize);
    o->avg_matmul_ms = mean_ms(c->ns[BNET_CLASS_MATMUL], o->n_matmul);
}

static void fill(const bnet_counts *c, const bnet_backend_stats *d, bitnet_stats *s)
{
    uint64_t ns = 0, n_ops = 0;
    for (int i = 0; i < BNET_CLASSES; i++) {
        ns += c->ns[i];
        n_ops += c->n[i];
    }
    s->performance = (bitnet_performance_stats){.n_launches = c->n_launches,
                                                .exec_ms = (double)ns / 1e6,
                                                .n_h2d = c->n_h2d,
                                                .n_d2h = c->n_d2h,
                                                .h2d_bytes = c->h2d_bytes,
                                                .d2h_bytes = c->d2h_bytes,
                                                .cache_hits = c->cache_hits,
                                                .cache_misses = c->cache_misses};
    uint64_t narrow = c->fp16_ns + c->bf16_ns;
    s->precision =
        (bitnet_precision_stats){.n_ops = n_ops,
                                 .fp16_ms = (double)c->fp16_ns / 1e6,
                                 .bf16_ms = (double)c->bf16_ns / 1e6,
                                 .fp32_ms = ns > narrow ? (double)(ns - narrow) / 1e6 : 0,
                                 .memory_allocated = d->memory_allocated,
                                 .memory_peak = d->memory_peak,
                                 .n_h2d = c->n_h2d,
                                 .n_d2h = c->n_d2h,
                                 .h2d_bytes = c->h2d_bytes,
                                 .d2h_bytes = c->d2h_bytes};
    fill_device(c, &s->on_device);
}

/* Asked anew each time: memory changes. */
static void host_memory(bitnet_device_stats *o)
{
    bitnet_host_memory m = {0};
    bnet_host_memory_read("", &m);
    o->memory_used = m.process_bytes;
    o->memory_total = m.total_bytes;
}

bitnet_status bitnet_engine_stats(const bitnet_engine *e, bitnet_stats *stats, bitnet_error *err)
{
    if (!e || !stats)
        return bnet_fail(err, BITNET_ARGUMENT, "statistics: engine and stats must not be NULL");
    size_t given = stats->struct_size;
    if (given < sizeof given || given > sizeof *stats)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "statistics: struct_size is %zu, must be %zu..%zu; call bitnet_stats_init",
                         given, sizeof given, sizeof *stats);
    bnet_backend_stats d = ask_device(e);
    bnet_counts c = {0};
    count_all(e, &d, &c);
    subtract_base(e, &c);
    bitnet_stats s = {.struct_size = given,
                      .timed = e->runtime->statistics,
                      .device = e->backend ? bnet_backend_name(e->backend) : "",
                      .provider = e->selection.kind == BNET_DEV_CPU
                                      ? bnet_runtime_cpu_provider(e->runtime)->name
                                      : bitnet_runtime_provider(e->runtime),
                      .ran_in = bitnet_precision_text(d.precision)};
    fill(&c, &d, &s);
    s.on_device.memory_used = d.memory_used;
    s.on_device.memory_total = d.memory_total;
    if (!d.memory_total)
        host_memory(&s.on_device);
    memcpy(stats, &s, given);
    return BITNET_OK;
}

void bitnet_memory_use_init(bitnet_memory_use *u)
{
    if (u)
        *u = (bitnet_memory_use){.struct_size = sizeof *u};
}

bitnet_status bitnet_engine_memory_use(const bitnet_engine *e, bitnet_memory_use *u,
                                       bitnet_error *err)
{
    if (!e || !u || u->struct_size != sizeof *u)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "memory: engine and use must not be NULL; call bitnet_memory_use_init");
    bitnet_memory_use d;
    uint64_t reclaimable;
    if (!bnet_backend_usage(e->backend, &d, &reclaimable))
        return bnet_fail(err, BITNET_NOT_AVAILABLE,
                         "memory: this device has none of its own; see bitnet_host_memory_read");
    *u = d;
    u->struct_size = sizeof *u;
    return BITNET_OK;
}

bool bitnet_stats_gpu_effective(const bitnet_stats *s)
{
    return s ? s->on_device.gpu_efficiency > 0.8 : false;
}

size_t bitnet_stats_summary(const bitnet_stats *s, char *buf, size_t cap)
{
    if (!s)
        return 0;
    const bitnet_device_stats *d = &s->on_device;
    double share = d->memory_total ? 100.0 * (double)d->memory_used / (double)d->memory_total : 0;
    int n = snprintf(
        buf, buf ? cap : 0,
        "device %s (%s): %llu kernel calls, %.1f ms, matmul %.4f ms, quantize %.4f ms, gpu %.0f%%, "
        "fallbacks %llu, memory %.1f of %.1f MB (%.1f%%)",
        s->device ? s->device : "", s->provider ? s->provider : "",
        (unsigned long long)s->performance.n_launches, s->performance.exec_ms, d->avg_matmul_ms,
        d->avg_quantize_ms, 100 * d->gpu_efficiency, (unsigned long long)d->fallback_count,
        (double)d->memory_used / 1e6, (double)d->memory_total / 1e6, share);
    return n < 0 ? 0 : (size_t)n;
}
