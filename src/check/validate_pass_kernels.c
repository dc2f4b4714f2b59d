/* validate_pass_kernels.c - kernels that serve inside whole passes of a GPU, each called alone,
 * against what the reference makes of the same data by single operations: the cases, and running
 * them. Floats are within the record's bound, or within the one of their row below. */
#include "check/validate_pass_kernels.h"

#include <stdio.h>

enum { F16 = BITNET_KV_F16, F32 = BITNET_KV_F32, I8 = BITNET_KV_INT8, BY_FORMAT = 100 };

/* Ulps: of the case, where the record's hold for another one. Attention over tiles rounds scaled
 * queries and the weights of the softmax to halves, 2^-11 each, but not the weights it divides by;
 * with an f16 cache the scalar one rounds unscaled queries and both, so two roundings differ:
 * 2^-10. With an int8 cache the scalar one has floats, and keys and values become halves, too;
 * there are as many roundings again, but over many positions they are of either sign. Of this data
 * an NVIDIA H200 has 0.64 to 0.86 and 0.75 to 0.81 thousandths, the bound is 0.98. */
static const struct alone_case {
    const char *op;
    case_shape s;
    int variant; /* type of the cache, or of packed rows; which kernel of a row */
    case_fill fill;
    double ulps; /* 0: the record's */
    const char *what;
    bool other; /* the other way it can be called */
    bool neox;  /* rotated in halves, not in neighbours */
} cases[] = {
    {"norm_quantize", {1, 64, 0}, 0, CASE_RANDOM, 0, "norm and quantisation", false, false},
    {"norm_quantize", {3, 1000, 0}, 0, CASE_RANDOM, 0, "norm and quantisation", false, false},
    {"norm_quantize", {70, 2560, 0}, 0, CASE_RANDOM, 0, "norm and quantisation", false, false},
    {"norm_tiles", {1, 64, 0}, 0, CASE_RANDOM, 0, "norm and quantisation", false, false},
    {"norm_tiles", {12, 1000, 0}, 0, CASE_RANDOM, 0, "norm and quantisation", false, false},
    {"norm_tiles", {70, 2560, 0}, 0, CASE_RANDOM, 0, "norm and quantisation", false, false},
    {"linear_tiles", {12, 256, 256}, 0, CASE_RANDOM, 0, "one tile", false, false},
    {"linear_tiles", {64, 1030, 2560}, 0, CASE_RANDOM, 0, "one tile", false, false},
    {"linear_tiles", {64, 256, 6912}, 0, CASE_EXTREME_PLUS, 0, "one tile, extremes", false, false},
    {"linear_tiles", {70, 520, 256}, 0, CASE_RANDOM, 0, "a prompt", false, false},
    {"linear_tiles", {300, 256, 1024}, 0, CASE_EXTREME_MINUS, 0, "prompt, extremes", false, false},
    {"linear_tiles", {64, 300, 512}, 1, CASE_RANDOM, 0, "128 rows", false, false},
    {"linear_tiles", {64, 300, 512}, 2, CASE_RANDOM, 0, "256 rows", false, false},
    {"linear_tiles", {200, 300, 512}, 3, CASE_RANDOM, 0, "128 tokens", false, false},
    {"linear_tiles", {200, 300, 512}, 4, CASE_RANDOM, 0, "96 tokens", false, false},
    {"linear_tiles", {64, 300, 1100}, 5, CASE_RANDOM, 0, "64 rows", false, false},
    {"rope_append", {70, 256, 64}, F16, CASE_RANDOM, 0, "f16 cache", false, false},
    {"rope_append", {70, 256, 64}, F32, CASE_RANDOM, 0, "f32 cache", false, false},
    {"rope_append", {70, 256, 64}, I8, CASE_RANDOM, 0, "int8 cache", false, false},
    {"rope_append", {130, 512, 128}, F16, CASE_RANDOM, 0, "f16 cache", false, false},
    {"rope_append", {130, 512, 128}, I8, CASE_RANDOM, 0, "int8 cache, no queries", true, false},
    {"rope_append", {130, 512, 128}, F16, CASE_RANDOM, 0, "f16 cache, neox", false, true},
    {"prefill", {70, 256, 64}, F16, CASE_RANDOM, 8192, "f16 cache", false, false},
    {"prefill", {130, 512, 128}, F16, CASE_RANDOM, 8192, "f16 cache", false, false},
    {"prefill", {70, 256, 64}, I8, CASE_RANDOM, 8192, "int8 cache", false, false},
    {"prefill", {130, 512, 128}, I8, CASE_RANDOM, 8192, "int8 cache", false, false},
    {"prefill", {130, 512, 128}, F16, CASE_RANDOM, 8192, "f16 cache, rotated inside", true, false},
    {"prefill", {70, 256, 64}, I8, CASE_RANDOM, 8192, "int8 cache, rotated inside", true, false},
    {"prefill", {130, 512, 128}, F16, CASE_RANDOM, 8192, "f16 cache, neox inside", true, true},
    {"prefill", {70, 256, 64}, I8, CASE_RANDOM, 8192, "int8 cache, neox inside", true, true},
    {"attention", {140, 512, 128}, BY_FORMAT, CASE_RANDOM, 0, "heads of 128", false, false},
    {"attention", {1100, 256, 128}, BY_FORMAT, CASE_RANDOM, 0, "the last of 1100", true, false},
    {"step", {12, 64, 64}, F16, CASE_RANDOM, 0, "fetched", false, false},
    {"step", {500, 64, 64}, I8, CASE_RANDOM, 0, "fetched", false, false},
    {"topk", {1, 40, 0}, 0, CASE_RANDOM, 0, "fewer than are asked for", false, false},
    {"topk", {1, 512, 0}, 0, CASE_RANDOM, 0, "sorted", false, false},
    {"topk", {3, 128256, 0}, 0, CASE_RANDOM, 0, "sorted", false, false},
    {"topk", {12, 33000, 0}, 0, CASE_RANDOM, 0, "sorted", false, false},
    {"topk", {2, 5000, 0}, 0, CASE_EXTREME_PLUS, 0, "sorted, ties", false, false},
    {"topk", {12, 40000, 0}, 0, CASE_EXTREME_PLUS, 0, "sorted, ties", false, false},
    {"topk", {2, 700, 0}, 0, CASE_EXTREME_MINUS, 0, "sorted, extreme values", false, false},
    {"topk", {5, 70000, 0}, 0, CASE_EXTREME_MINUS, 0, "sorted, extreme values", false, false},
    {"best", {1, 40, 64}, 0, CASE_RANDOM, 0, "fewer than are asked for", false, false},
    {"best", {1, 5000, 256}, 0, CASE_RANDOM, 0, "sorted", false, false},
    {"best", {8, 4243, 200}, 0, CASE_RANDOM, 0, "sorted", false, false},
    {"best", {3, 4300, 320}, 0, CASE_EXTREME_PLUS, 0, "sorted, ties", false, false},
    {"best", {2, 5000, 128}, 0, CASE_EXTREME_MINUS, 0, "rows that are not finite", false, false},
    {"best", {9, 40, 64}, 0, CASE_RANDOM, 0, "fewer than are asked for", false, false},
    {"best", {16, 4243, 200}, 0, CASE_RANDOM, 0, "sorted", false, false},
    {"best", {20, 4300, 160}, 0, CASE_EXTREME_PLUS, 0, "sorted, ties", false, false},
    {"best", {64, 3000, 128}, 0, CASE_EXTREME_MINUS, 0, "rows that are not finite", false, false},
    {"gather", {3, 64, 0}, 0, CASE_RANDOM, 0, "rows", false, false},
    {"gather", {70, 512, 0}, 0, CASE_RANDOM, 0, "rows", false, false},
    {"rope_table", {3, 64, 64}, 0, CASE_RANDOM, 0, "angles", false, false},
    {"rope_table", {70, 128, 128}, 0, CASE_RANDOM, 0, "angles", false, false},
    {"pack", {256, 40, 256}, 0, CASE_RANDOM, 0, "i2s", false, false},
    {"pack", {130, 33, 200}, 0, CASE_RANDOM, 0, "i2s", false, false},
    {"pack", {16, 256, 0}, 1, CASE_RANDOM, 0, "f32", false, false},
    {"pack", {16, 256, 0}, 2, CASE_RANDOM, 0, "f16", false, false},
    {"pack", {16, 256, 0}, 3, CASE_RANDOM, 0, "bf16", false, false},
    {"pack", {16, 320, 0}, 4, CASE_RANDOM, 0, "q8_0", false, false},
    {"pack", {16, 320, 0}, 5, CASE_RANDOM, 0, "q4_0", false, false},
    {"pack", {16, 512, 0}, 6, CASE_RANDOM, 0, "q6_k", false, false},
};

bool bnet_case_alone(const bnet_kernel_record *k)
{
    return k->device != BNET_DEV_CPU && bnet_alone_op(k->op) != NULL;
}

bool bnet_case_alone_only(const bnet_kernel_record *k)
{
    return bnet_case_alone(k) && strcmp(k->op, "attention") != 0;
}

static bitnet_status open_side(kernel_case *c, bnet_backend *be, const bnet_kernel_record *k,
                               const struct alone_case *t, bitnet_error *err)
{
    *c = (kernel_case){.be = be,
                       .rec = k,
                       .s = t->s,
                       .fill = t->fill,
                       .seed = 1,
                       .variant = t->variant,
                       .other = t->other,
                       .neox = t->neox,
                       .kv_type = t->variant == BY_FORMAT ? bnet_case_kv_type(k->format)
                                  : t->variant <= I8      ? (bitnet_kv_type)t->variant
                                                          : BITNET_KV_F16,
                       .head = t->s.k ? (int)t->s.k : CASE_HEAD};
    if (!bnet_alone_op(k->op)->open(c))
        return bnet_no_memory(err, "validation");
    bitnet_status st = c->tensor.data ? bnet_case_prepare(c, err) : BITNET_OK;
    if (st == BITNET_OK)
        bnet_case_load(c);
    return st;
}

static void judge(pair *p, const struct alone_case *t, bitnet_accuracy *a)
{
    a->max_error = p->worst;
    a->verdict = p->differs ? BITNET_VERDICT_FAIL : BITNET_VERDICT_PASS;
    if (p->differs)
        snprintf(a->note, sizeof a->note, "%s: %s", t->what, p->note);
    else
        snprintf(a->note, sizeof a->note, "alone, against the reference, %s, %zu values%s", t->what,
                 p->n_values, p->n_ties ? ", ties accepted" : "");
}

/* Both sides are open; runs and compares them. */
static bitnet_status compare(validation_run *r, pair *p, const struct alone_case *t,
                             bitnet_accuracy *a)
{
    kernel_case *c = &p->side[0];
    const alone_op *op = bnet_alone_op(c->rec->op);
    bool served = true;
    if (op->alone)
        served = op->alone(c);
    else
        op->run(c);
    bitnet_status st = bnet_op_sync(c->be, r->err);
    op->run(&p->side[1]);
    if (st == BITNET_OK)
        st = bnet_op_sync(p->side[1].be, r->err);
    if (st != BITNET_OK)
        return st;
    op->compare(p);
    judge(p, t, a);
    if (!served)
        bnet_validate_note(a, BITNET_VERDICT_SKIP, "the device has no call for it alone");
    else if (!bnet_validate_calls(c->be, c->rec->id))
        bnet_validate_note(a, BITNET_VERDICT_FAIL, NOT_CALLED);
    return bnet_op_sync(c->be, r->err);
}

static bitnet_status check(validation_run *r, forced_kernel *f, const void *which,
                           bitnet_accuracy *a)
{
    bnet_backend *reference = NULL;
    pair p = {.ulps = a->bound / BNET_ULP};
    bitnet_status st = bnet_validate_open_reference(r, &reference);
    for (int i = 0; st == BITNET_OK && i < 2; i++)
        st = open_side(&p.side[i], i ? reference : f->be, f->k, which, r->err);
    if (st == BITNET_OK)
        st = compare(r, &p, which, a);
    for (int i = 0; i < 2; i++)
        if (p.side[i].be)
            bnet_case_close(&p.side[i]);
    bnet_backend_close(reference);
    return st;
}

bitnet_status bnet_validate_pass_kernel(validation_run *r, const bnet_kernel_record *k)
{
    bitnet_status st = BITNET_OK;
    for (size_t i = 0; st == BITNET_OK && i < BNET_COUNT(cases); i++) {
        const struct alone_case *t = &cases[i];
        bool takes = t->s.m >= k->m.min && (k->m.max == 0 || t->s.m <= k->m.max);
        if (strcmp(t->op, k->op) != 0 || !takes)
            continue;
        bitnet_accuracy *a = bnet_validate_row(r, k, t->s);
        if (a && t->ulps > 0)
            a->bound = t->ulps * BNET_ULP;
        st = a ? bnet_validate_forced(r, k, t->s, check, t, a) : BITNET_MEMORY;
    }
    return st;
}
