/* limits.c - what measurements are held against: the bytes and operations of one token, the rate at
 * which memory is read and the operations are done; and the summary of several runs. */
#include <stdlib.h>

#include "base/company.h"
#include "bench/read_limit.h"
#include "bitnet_tools.h"

enum { PASSES_MIN = 3, PASSES_MAX = 200, PART = 4096 };
static const double measure_ms = 50;
static const size_t measured_bytes = (size_t)256 << 20, pass_bytes = (size_t)16 << 20;

static bool begins(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

/* Projections of a ternary model are held in 2 bits whatever the file has; a row of the embedding
 * is nothing unless the table is the head too. */
uint64_t bnet_weight_bytes(const bnet_gguf *g, const bnet_hparams *h)
{
    uint64_t total = 0;
    for (size_t i = 0; i < bnet_gguf_n_tensors(g); i++) {
        const bnet_tensor *t = bnet_gguf_tensor_at(g, i);
        if (begins(t->name, "token_embd") && !h->tied_head)
            continue;
        bool projection = h->ternary_required && begins(t->name, "blk.") && t->n_dims > 1;
        uint64_t packed = bnet_tensor_elems(t) / 4;
        total += projection ? BNET_MIN(packed, t->n_bytes) : t->n_bytes;
    }
    return total;
}

uint64_t bnet_weight_bytes_per_token(const bitnet_engine *e)
{
    return bnet_weight_bytes(e->gguf, bnet_model_hparams(e->model));
}

typedef struct reading {
    const uint8_t *data;
    size_t n_bytes;
    int n_times; /* small models are read several times, so that starting the threads costs little
                  */
    atomic_uint_fast64_t sum;    /* so that the reads are not optimised away */
    atomic_uint_fast64_t cpu_ns; /* CPU time of all threads */
} reading;

static void read_part(void *arg, bnet_share part)
{
    reading *r = arg;
    size_t begin, end;
    uint64_t sums[8] = {0};
    double begun = bnet_thread_ms();
    bnet_split(r->n_bytes, PART, part.index, part.count, &begin, &end);
    for (int t = 0; t < r->n_times; t++)
        for (size_t i = begin; i + 64 <= end; i += 64) {
            uint64_t line[8]; /* whole: a sanitizer looks at lines then, not at every byte */
            memcpy(line, r->data + i, sizeof line);
            for (size_t k = 0; k < 8; k++)
                sums[k] += line[k] ^ (uint64_t)t;
        }
    for (size_t k = 1; k < 8; k++)
        sums[0] += sums[k];
    atomic_fetch_add_explicit(&r->sum, sums[0], memory_order_relaxed);
    uint64_t ns = (uint64_t)((bnet_thread_ms() - begun) * 1e6);
    atomic_fetch_add_explicit(&r->cpu_ns, ns, memory_order_relaxed);
}

/* GB/s. The clock is that of the threads: time in which other programs had their CPUs is not
 * counted, so the limit of a busy machine is that of the machine. n_at_once: threads that can run
 * at the same time. */
static double read_once(bnet_pool *pool, int n_at_once, reading *r)
{
    atomic_store(&r->cpu_ns, 0);
    bnet_pool_each(pool, read_part, r);
    double ns = (double)atomic_load(&r->cpu_ns) / n_at_once;
    return ns > 0 ? (double)r->n_bytes * r->n_times / ns : 0;
}

double bnet_read_limit(const bitnet_engine *e)
{
    double of_device;
    if (bnet_backend_read_limit(e->backend, &of_device))
        return of_device;
    size_t n = (size_t)BNET_MIN(bnet_gguf_file_bytes(e->gguf), (uint64_t)measured_bytes);
    int n_times = (int)((pass_bytes + n - 1) / n);
    reading r = {.data = bnet_gguf_file_data(e->gguf), .n_bytes = n, .n_times = n_times};
    int n_threads = bnet_pool_threads(e->runtime->pool), n_cpus = e->runtime->devices->cpu.n_usable;
    int n_at_once = n_cpus > 0 ? BNET_MIN(n_threads, n_cpus) : n_threads;
    double start = bnet_now_ms(), best = 0;
    for (int i = 0; i < PASSES_MAX; i++) {
        best = BNET_MAX(best, read_once(e->runtime->pool, n_at_once, &r));
        if (i + 1 >= PASSES_MIN && bnet_now_ms() - start > measure_ms)
            break;
    }
    return best;
}

/* ---- for programs ---- */

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
