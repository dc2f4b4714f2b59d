/* bench_profile.c - where the time of a decode step or of a prompt goes. By operations: the meter
 * of ops.c before and after, and what is left over. By kernels: the clock of the device. */
#include <stdlib.h>

#include "bench/bench.h"

enum { TIMES_MAX = 256 };

typedef struct reading {
    uint64_t n[BNET_ENTRIES], ns[BNET_ENTRIES];
} reading;

static void read_meter(const bitnet_engine *e, reading *r)
{
    for (int i = 0; i < BNET_ENTRIES; i++) {
        r->n[i] = e->meter.n[i];
        r->ns[i] = e->meter.ns[i];
    }
}

static int by_share(const void *a, const void *b)
{
    const bitnet_profile_entry *x = a, *y = b;
    return (x->ms < y->ms) - (x->ms > y->ms);
}

/* `total` is the whole time; "rest" is what no entry accounts for. */
static size_t make_entries(const reading *from, const reading *to, double total,
                           bitnet_profile_entry *out)
{
    size_t n = 0;
    double rest = total;
    for (int i = 0; i < BNET_ENTRIES; i++) {
        uint64_t calls = to->n[i] - from->n[i];
        double ms = (double)(to->ns[i] - from->ns[i]) / 1e6;
        rest -= ms;
        if (calls)
            out[n++] = (bitnet_profile_entry){bnet_entry_name((bnet_op_entry)i), calls, ms, 0};
    }
    out[n++] = (bitnet_profile_entry){"rest", 0, BNET_MAX(rest, 0), 0};
    for (size_t i = 0; i < n; i++)
        out[i].share = total > 0 ? out[i].ms / total : 0;
    qsort(out, n, sizeof *out, by_share);
    return n;
}

static bitnet_status measure_crowd(bitnet_bench *b, const bitnet_bench_test *t, reading *from,
                                   reading *to, double *total, bitnet_error *err)
{
    bitnet_bench_run r = {0};
    bitnet_status st = bnet_bench_crowd_open(b, t, err);
    read_meter(b->engine, from);
    if (st == BITNET_OK)
        st = bnet_bench_crowd_run(b, t, &r, err);
    *total = r.total_ms;
    read_meter(b->engine, to);
    return st;
}

/* The test once, with the meter before and after. Of steps the last token of the prompt belongs to
 * the call, so that n_tokens choices are n_tokens steps. */
static bitnet_status measure(bitnet_bench *b, const bitnet_bench_test *t, reading *from,
                             reading *to, double *total, bitnet_error *err)
{
    bitnet_generate_options o;
    bitnet_generate_result g;
    size_t n = (size_t)t->n_tokens, depth = (size_t)t->depth, n_prompt = BNET_MAX(depth, 1);
    bitnet_generate_options_init(&o);
    o.max_tokens = n;
    o.ignore_eos = true;
    bitnet_status st = bnet_bench_fill(b, t->prompt ? depth : n_prompt - 1, err);
    read_meter(b->engine, from);
    double start = bnet_now_ms();
    if (st == BITNET_OK)
        st = t->prompt ? bitnet_session_append(b->session, b->ids + depth, n, NULL, NULL, err)
                       : bitnet_generate(b->session, b->sampler, b->ids, n_prompt, &o, &g, err);
    *total = bnet_now_ms() - start;
    read_meter(b->engine, to);
    return st;
}

bitnet_status bitnet_bench_profile(bitnet_bench *b, const bitnet_bench_test *t,
                                   bitnet_profile_entry *out, size_t cap, size_t *n,
                                   double *total_ms, bitnet_error *err)
{
    bitnet_profile_entry all[BNET_ENTRIES + 1];
    reading from, to;
    double total = 0;
    if (!b || !t || !n || !total_ms || (cap && !out))
        return bnet_fail(err, BITNET_ARGUMENT,
                         "profile: bench, test, n, total_ms and out must not be NULL");
    bitnet_status st = bnet_bench_check(b, t, err);
    bnet_meter *kept = b->engine->backend->meter; /* NULL unless the runtime keeps statistics */
    b->engine->backend->meter = &b->engine->meter;
    if (st == BITNET_OK)
        st = (t->n_sessions > 0 ? measure_crowd : measure)(b, t, &from, &to, &total, err);
    b->engine->backend->meter = kept;
    if (st != BITNET_OK)
        return st;
    *n = make_entries(&from, &to, total, all);
    *total_ms = total;
    if (cap)
        memcpy(out, all, BNET_MIN(*n, cap) * sizeof *out);
    return BITNET_OK;
}

/* ---- kernel by kernel ---- */

static int by_time(const void *a, const void *b)
{
    const bitnet_kernel_time *x = a, *y = b;
    return (x->ms < y->ms) - (x->ms > y->ms);
}

/* Two runs as always, so that nothing is done for the first time; then one with every kernel timed
 * by itself. */
static bitnet_status run_timed(bitnet_bench *b, const bitnet_bench_test *t, double *total,
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

/* The kernels of one timed run, the longest first. */
static bitnet_status read_times(bitnet_bench *b, const bitnet_bench_test *t,
                                bitnet_kernel_time *all, size_t *n, double *total_ms,
                                bitnet_error *err)
{
    bnet_backend *be = b->engine->backend;
    bitnet_status st = run_timed(b, t, total_ms, err);
    size_t found = st == BITNET_OK ? bnet_profile_read(be, all, TIMES_MAX) : 0;
    bnet_profile(be, false);
    if (st != BITNET_OK)
        return st;
    *n = BNET_MIN(found, (size_t)TIMES_MAX);
    qsort(all, *n, sizeof *all, by_time);
    return BITNET_OK;
}

bitnet_status bitnet_bench_kernel_times(bitnet_bench *b, const bitnet_bench_test *t,
                                        bitnet_kernel_time *out, size_t cap, size_t *n,
                                        double *total_ms, bitnet_error *err)
{
    if (!b || !t || !n || !total_ms || (cap && !out))
        return bnet_fail(err, BITNET_ARGUMENT,
                         "bench: bench, test, n, total_ms and out must not be NULL");
    bnet_backend *be = b->engine->backend;
    if (!bnet_profile_possible(be))
        return bnet_fail(err, BITNET_NOT_AVAILABLE,
                         "bench: %s launches nothing; bitnet_bench_profile times its operations",
                         bnet_backend_name(be));
    bitnet_kernel_time *all = bnet_calloc(TIMES_MAX, sizeof *all);
    if (!all)
        return bnet_no_memory(err, "bench");
    bitnet_status st = read_times(b, t, all, n, total_ms, err);
    if (st == BITNET_OK && cap)
        memcpy(out, all, BNET_MIN(*n, cap) * sizeof *out);
    bnet_free(all);
    return st;
}
