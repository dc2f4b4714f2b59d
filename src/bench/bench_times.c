/* bench_times.c - kernel by kernel through a test, by the clock of the device that runs them. */
#include <stdlib.h>

#include "bench/bench.h"

enum { TIMES_MAX = 256 };

static int by_time(const void *a, const void *b)
{
    const bitnet_kernel_time *x = a, *y = b;
    return (x->ms < y->ms) - (x->ms > y->ms);
}

/* Twice as always, so that everything is there, then alone. */
static bitnet_status run(bitnet_bench *b, const bitnet_bench_test *t, double *total,
                         bitnet_error *err)
{
    bnet_backend *be = b->engine->backend;
    bitnet_bench_run r = {0};
    bitnet_status st = BITNET_OK;
    for (int i = 0; st == BITNET_OK && i < 2; i++)
        st = bitnet_bench_once(b, t, &r, err);
    *total = r.ms;
    if (st == BITNET_OK && !bnet_profile(be, true))
        return bnet_fail(err, BITNET_NOT_AVAILABLE, "bench: %s has no clock for single kernels",
                         bnet_backend_name(be));
    return st == BITNET_OK ? bitnet_bench_once(b, t, &r, err) : st;
}

bitnet_status bitnet_bench_kernel_times(bitnet_bench *b, const bitnet_bench_test *t,
                                        bitnet_kernel_time *out, size_t cap, size_t *n,
                                        double *total_ms, bitnet_error *err)
{
    bitnet_kernel_time all[TIMES_MAX];
    if (!b || !t || !n || !total_ms || (cap && !out))
        return bnet_fail(err, BITNET_ARGUMENT,
                         "bench: bench, test, n, total_ms and out must not be NULL");
    bnet_backend *be = b->engine->backend;
    if (!bnet_profile_possible(be))
        return bnet_fail(err, BITNET_NOT_AVAILABLE,
                         "bench: %s launches nothing; bitnet_bench_profile times its operations",
                         bnet_backend_name(be));
    bitnet_status st = run(b, t, total_ms, err);
    size_t found = st == BITNET_OK ? bnet_profile_read(be, all, TIMES_MAX) : 0;
    bnet_profile(be, false);
    if (st != BITNET_OK)
        return st;
    *n = BNET_MIN(found, (size_t)TIMES_MAX);
    qsort(all, *n, sizeof *all, by_time);
    memcpy(out, all, BNET_MIN(*n, cap) * sizeof *out);
    return BITNET_OK;
}
