/* bench_profile.c - where the time of a decode step or of a prompt goes: the meter of ops.c before
 * and after, and what is left over. */
#include <stdlib.h>

#include "bench/bench.h"

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

/* `total` is the whole time; what no entry accounts for is the rest. */
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

static bitnet_status measure_prompt(bitnet_bench *b, const bitnet_bench_test *t, reading *from,
                                    reading *to, double *total, bitnet_error *err)
{
    bitnet_status st = bnet_bench_fill(b, (size_t)t->depth, err);
    read_meter(b->engine, from);
    double start = bnet_now_ms();
    if (st == BITNET_OK)
        st = bitnet_session_append(b->session, b->ids + t->depth, (size_t)t->n_tokens, NULL, NULL,
                                   err);
    *total = bnet_now_ms() - start;
    read_meter(b->engine, to);
    return st;
}

/* The prompt's last token is computed by the call, so that n_tokens choices are n_tokens steps. */
static bitnet_status measure_steps(bitnet_bench *b, const bitnet_bench_test *t, reading *from,
                                   reading *to, double *total, bitnet_error *err)
{
    bitnet_generate_options o;
    bitnet_generate_result g;
    size_t n_prompt = t->depth > 0 ? (size_t)t->depth : 1;
    bitnet_generate_options_init(&o);
    o.max_tokens = (size_t)t->n_tokens;
    o.ignore_eos = true;
    bitnet_status st = bnet_bench_fill(b, n_prompt - 1, err);
    read_meter(b->engine, from);
    double start = bnet_now_ms();
    if (st == BITNET_OK)
        st = bitnet_generate(b->session, b->sampler, b->ids, n_prompt, &o, &g, err);
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
    if (t->n_sessions > 0)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "profile: it is of one timeline (pp, tg), not of many");
    bitnet_status st = bnet_bench_check(b, t, err);
    bnet_meter *kept = b->engine->backend->meter; /* NULL unless the runtime keeps statistics */
    b->engine->backend->meter = &b->engine->meter;
    if (st == BITNET_OK)
        st = (t->prompt ? measure_prompt : measure_steps)(b, t, &from, &to, &total, err);
    b->engine->backend->meter = kept;
    if (st != BITNET_OK)
        return st;
    *n = make_entries(&from, &to, total, all);
    *total_ms = total;
    memcpy(out, all, BNET_MIN(*n, cap) * sizeof *out);
    return BITNET_OK;
}
