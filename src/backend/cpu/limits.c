/* limits.c - what this machine could do at best, measured now: how fast its threads together read
 * memory, and how fast their integer units are. Hides: which loops serve which instruction set,
 * sizes and repetitions. The second best of several rounds counts: a limit is not a median, and a
 * single reading of a clock that jumped must not set it. */
#include <sys/mman.h>

#include "backend/cpu/peak.h"
#include "ops/open.h"

enum { PEAK_TRIES = 16, READ_TRIES = 4, STREAMS_MAX = 4 };
static const double peak_ms = 4;    /* one try */
static const double read_ms = 1500; /* all of them */
static const size_t read_min = (size_t)128 << 20, read_max = (size_t)512 << 20;

typedef struct best_two {
    double first, second;
} best_two;

static void keep(best_two *b, double rate)
{
    double lower = BNET_MIN(rate, b->first);
    b->first = BNET_MAX(rate, b->first);
    b->second = BNET_MAX(b->second, lower);
}

/* ---- integer units ---- */

static const struct peak {
    const char *name, *isa;
    bnet_fn_peak *run;
} peaks[] = {
#define PEAK(name, isa, arch) BNET_ON_##arch({#name, #isa, bnet_peak_##name##_##isa}, )
#include "backend/cpu/peaks.inc"
#undef PEAK
};

typedef struct peak_job {
    bnet_fn_peak *run;
    size_t n_rounds;
    atomic_uint_fast64_t n_ops, sink;
} peak_job;

static void run_peak(void *arg, bnet_share part)
{
    peak_job *j = arg;
    uint64_t sink = 1;
    (void)part;
    atomic_fetch_add(&j->n_ops, j->run(j->n_rounds, &sink));
    atomic_fetch_add(&j->sink, sink);
}

static double time_peak(bnet_pool *pool, peak_job *j)
{
    j->n_ops = 0;
    double start = bnet_now_ms();
    bnet_pool_each(pool, run_peak, j);
    return bnet_now_ms() - start;
}

/* Rounds that keep one thread busy long enough: by the quicker of two runs, so that an
 * interruption is not mistaken for work. */
static size_t rounds_for(bnet_fn_peak *run)
{
    for (size_t n = 256;; n *= 2) {
        double quickest = 1e9;
        uint64_t sink = 1;
        for (int i = 0; i < 2; i++) {
            double start = bnet_now_ms();
            run(n, &sink);
            quickest = BNET_MIN(quickest, bnet_now_ms() - start);
        }
        if (quickest >= peak_ms || n >= (size_t)1 << 40)
            return n;
    }
}

/* Gop/s of all threads. */
static double measure_peak(bnet_pool *pool, bnet_fn_peak *run)
{
    peak_job j = {.run = run, .n_rounds = rounds_for(run)};
    best_two best = {0};
    for (int i = 0; i < PEAK_TRIES; i++) {
        double ms = time_peak(pool, &j);
        keep(&best, ms > 0 ? (double)j.n_ops / ms / 1e6 : 0);
    }
    return best.second;
}

static bool can_run(const bnet_capabilities *c, const char *isa)
{
    uint32_t needs = 0;
    return bnet_cpu_isa_needs(isa, &needs, NULL) == BITNET_OK && (needs & ~c->has) == 0;
}

size_t bnet_cpu_peaks(bnet_pool *pool, const bnet_capabilities *c, bitnet_peak *out, size_t cap)
{
    size_t n = 0;
    for (size_t i = 0; i < BNET_COUNT(peaks) && n < cap; i++)
        if (can_run(c, peaks[i].isa))
            out[n++] = (bitnet_peak){peaks[i].name, peaks[i].isa, measure_peak(pool, peaks[i].run)};
    return n;
}

/* ---- memory ---- */

static const struct reader {
    const char *isa;
    bnet_fn_reader *run;
} readers[] = {
    BNET_ON_X86({"avx512", bnet_reader_avx512}, {"avx2", bnet_reader_avx2}, )
        BNET_ON_ARM({"neon", bnet_reader_neon}, ){"scalar", bnet_reader_scalar},
};

typedef struct read_job {
    bnet_fn_reader *run;
    uint8_t *data;
    size_t n_bytes; /* of each thread */
    size_t n_streams, ahead;
    atomic_uint_fast64_t sink;
} read_job;

/* Every thread writes its own part first, so that the pages lie where it will read them. */
static void touch_part(void *arg, bnet_share part)
{
    read_job *j = arg;
    memset(j->data + (size_t)part.index * j->n_bytes, part.index + 1, j->n_bytes);
}

static void read_part(void *arg, bnet_share part)
{
    read_job *j = arg;
    uint64_t sink = 0;
    j->run(j->data + (size_t)part.index * j->n_bytes, j->n_bytes, j->n_streams, j->ahead, &sink);
    atomic_fetch_add(&j->sink, sink);
}

/* More than the last-level cache holds, however many threads share it. */
static size_t bytes_per_thread(int n_threads, uint64_t cache_bytes)
{
    size_t want = 4 * (size_t)cache_bytes / (size_t)n_threads;
    want = BNET_MIN(BNET_MAX(want, read_min), read_max);
    return want & ~(((size_t)1 << 20) - 1);
}

static double time_read(bnet_pool *pool, read_job *j)
{
    double start = bnet_now_ms();
    bnet_pool_each(pool, read_part, j);
    return bnet_now_ms() - start;
}

/* All ways of reading in turn, several times, or until the time is up (an emulator takes long). One
 * stream without hints is what "read bandwidth" means anywhere; several streams with prefetch show
 * what the memory gives at most. */
static bnet_cpu_reads measure_read(bnet_pool *pool, read_job *j, int n_threads)
{
    best_two best = {0}, plain = {0};
    double start = bnet_now_ms();
    for (int i = 0; i < READ_TRIES; i++)
        for (j->n_streams = 1; j->n_streams <= STREAMS_MAX; j->n_streams *= 2)
            for (j->ahead = 0; j->ahead <= 2048; j->ahead += 1024) {
                double ms = time_read(pool, j), rate = (double)j->n_bytes * n_threads / 1e6;
                keep(&best, ms > 0 ? rate / ms : 0);
                if (j->n_streams == 1 && j->ahead == 0)
                    keep(&plain, ms > 0 ? rate / ms : 0);
                if (plain.second > 0 && bnet_now_ms() - start > read_ms)
                    return (bnet_cpu_reads){plain.second, best.second};
            }
    return (bnet_cpu_reads){plain.second, best.second};
}

bnet_cpu_reads bnet_cpu_read_rate(bnet_pool *pool, const bnet_capabilities *c, uint64_t cache_bytes)
{
    int n_threads = bnet_pool_threads(pool);
    read_job j = {.n_bytes = bytes_per_thread(n_threads, cache_bytes)};
    size_t total = j.n_bytes * (size_t)n_threads;
    for (size_t i = 0; !j.run; i++)
        if (can_run(c, readers[i].isa))
            j.run = readers[i].run;
    void *p = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return (bnet_cpu_reads){0, 0};
#ifdef MADV_HUGEPAGE
    madvise(p, total, MADV_HUGEPAGE);
#endif
    j.data = p;
    bnet_pool_each(pool, touch_part, &j);
    bnet_cpu_reads rates = measure_read(pool, &j, n_threads);
    munmap(p, total);
    return rates;
}
