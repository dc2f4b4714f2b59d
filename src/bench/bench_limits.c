/* bench_limits.c - what measurements are held against: the machine's limits, the bytes and
 * operations of one token, and the summary of several runs. */
#include <stdlib.h>

#include "bench/bench.h"

void bitnet_limits_init(bitnet_limits *l)
{
    if (l)
        *l = (bitnet_limits){.struct_size = sizeof *l};
}

bitnet_status bitnet_limits_measure(bitnet_runtime *r, bitnet_limits *l, bitnet_error *err)
{
    if (!r || !l || l->struct_size != sizeof *l)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "limits: runtime and limits must not be NULL; call bitnet_limits_init");
    bitnet_limits m = {.struct_size = sizeof m, .n_threads = bnet_pool_threads(r->pool)};
    if (r->selection.kind != BNET_DEV_CPU) {
        *l = m;
        return BITNET_OK;
    }
    bnet_cpu_reads reads = bnet_cpu_read_rate(r->pool, &r->caps, r->devices->cpu.l3_bytes);
    m.read_gb_s = reads.plain;
    m.read_best_gb_s = reads.best;
    if (!(m.read_gb_s > 0))
        return bnet_no_memory(err, "measuring how fast memory is read");
    m.n_peaks = bnet_cpu_peaks(r->pool, &r->caps, m.peaks, BITNET_PEAKS_MAX);
    *l = m;
    return BITNET_OK;
}

uint64_t bitnet_engine_token_bytes(const bitnet_engine *e)
{
    return e && e->model ? bnet_weight_bytes_per_token(e) : 0;
}

/* Two operations per weight of every matrix inside the layers. */
uint64_t bitnet_engine_token_ops(const bitnet_engine *e)
{
    uint64_t n = 0;
    for (size_t i = 0; e && e->model && i < bnet_gguf_n_tensors(e->gguf); i++) {
        const bnet_tensor *t = bnet_gguf_tensor_at(e->gguf, i);
        if (strncmp(t->name, "blk.", 4) == 0 && t->n_dims > 1)
            n += 2 * bnet_tensor_elems(t);
    }
    return n;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

bitnet_summary bitnet_summarize(double *v, size_t n)
{
    bitnet_summary s = {.n = n};
    if (!v || n == 0)
        return (bitnet_summary){0};
    qsort(v, n, sizeof *v, ascending);
    s.min = v[0];
    s.max = v[n - 1];
    s.median = n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
    s.spread = s.median > 0 ? (s.max - s.min) / 2 / s.median : 0;
    return s;
}
