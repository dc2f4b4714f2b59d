/* validate_pass_kernels.c - kernels that serve inside whole passes of a GPU, each called alone,
 * against what the reference makes of the same data by single operations: the cases, and running
 * them. Floats are within the record's bound, or within the one of their row below. */
#include "check/validate_pass_kernels.h"

#include <stdio.h>

enum { F16 = BITNET_KV_F16, F32 = BITNET_KV_F32, I8 = BITNET_KV_INT8, BY_FORMAT = 100 };
enum { OTHER = 1, NEOX = 2 };

#define OP(key) BNET_OP_##key
/* A case has ulps of its own where those of the record are not meant for it. Attention over tiles
 * rounds scaled queries and the weights of the softmax to halves, 2^-11 each, but not the weights
 * it divides by; with an f16 cache the scalar kernel rounds unscaled queries, the weights and their
 * sum, so two roundings differ: 2^-10. With an int8 cache the scalar kernel computes in floats,
 * while the tiles round keys and values to halves too; these further roundings are of either sign
 * and cancel over many positions. On this data an NVIDIA H200 is off by 0.64 to 0.86 thousandths
 * with f16 and by 0.75 to 0.81 with int8; the bound is 0.98. */
static const struct alone_case {
    bnet_op op;
    case_shape s;
    int variant; /* type of the cache, or of packed rows; which kernel of a row */
    case_fill fill;
    double ulps; /* 0: the record's */
    const char *what;
    unsigned how; /* OTHER: the other way it can be called; NEOX: rotated in halves */
} cases[] = {
    {OP(NORM_QUANTIZE), {1, 64, 0}, 0, CASE_RANDOM, 0, "norm and quantisation", 0},
    {OP(NORM_QUANTIZE), {3, 1000, 0}, 0, CASE_RANDOM, 0, "norm and quantisation", 0},
    {OP(NORM_QUANTIZE), {70, 2560, 0}, 0, CASE_RANDOM, 0, "norm and quantisation", 0},
    {OP(NORM_TILES), {1, 64, 0}, 0, CASE_RANDOM, 0, "norm and quantisation", 0},
    {OP(NORM_TILES), {12, 1000, 0}, 0, CASE_RANDOM, 0, "norm and quantisation", 0},
    {OP(NORM_TILES), {70, 2560, 0}, 0, CASE_RANDOM, 0, "norm and quantisation", 0},
    {OP(LINEAR_TILES), {12, 256, 256}, 0, CASE_RANDOM, 0, "one tile", 0},
    {OP(LINEAR_TILES), {64, 1030, 2560}, 0, CASE_RANDOM, 0, "one tile", 0},
    {OP(LINEAR_TILES), {64, 256, 6912}, 0, CASE_EXTREME_PLUS, 0, "one tile, extremes", 0},
    {OP(LINEAR_TILES), {70, 520, 256}, 0, CASE_RANDOM, 0, "a prompt", 0},
    {OP(LINEAR_TILES), {300, 256, 1024}, 0, CASE_EXTREME_MINUS, 0, "prompt, extremes", 0},
    {OP(LINEAR_TILES), {64, 300, 512}, 1, CASE_RANDOM, 0, "128 rows", 0},
    {OP(LINEAR_TILES), {64, 300, 512}, 2, CASE_RANDOM, 0, "256 rows", 0},
    {OP(LINEAR_TILES), {200, 300, 512}, 3, CASE_RANDOM, 0, "128 tokens", 0},
    {OP(LINEAR_TILES), {200, 300, 512}, 4, CASE_RANDOM, 0, "96 tokens", 0},
    {OP(LINEAR_TILES), {64, 300, 1100}, 5, CASE_RANDOM, 0, "64 rows", 0},
    {OP(LINEAR_TILES), {13, 300, 1100}, 6, CASE_RANDOM, 0, "128 rows, 16 tokens", 0},
    {OP(LINEAR_TILES), {27, 300, 1100}, 7, CASE_RANDOM, 0, "128 rows, 32 tokens", 0},
    {OP(LINEAR_TILES), {16, 300, 1100}, 8, CASE_RANDOM, 0, "64 rows, 16 tokens", 0},
    {OP(LINEAR_TILES), {16, 300, 6912}, 0, CASE_EXTREME_PLUS, 0, "few tokens, extremes", 0},
    {OP(LINEAR_TILES), {17, 1030, 6912}, 0, CASE_RANDOM, 0, "few tokens", 0},
    {OP(ROPE_APPEND), {70, 256, 64}, F16, CASE_RANDOM, 0, "f16 cache", 0},
    {OP(ROPE_APPEND), {70, 256, 64}, F32, CASE_RANDOM, 0, "f32 cache", 0},
    {OP(ROPE_APPEND), {70, 256, 64}, I8, CASE_RANDOM, 0, "int8 cache", 0},
    {OP(ROPE_APPEND), {130, 512, 128}, F16, CASE_RANDOM, 0, "f16 cache", 0},
    {OP(ROPE_APPEND), {130, 512, 128}, I8, CASE_RANDOM, 0, "int8 cache, no queries", OTHER},
    {OP(ROPE_APPEND), {130, 512, 128}, F16, CASE_RANDOM, 0, "f16 cache, neox", NEOX},
    {OP(PREFILL), {70, 256, 64}, F16, CASE_RANDOM, 8192, "f16 cache", 0},
    {OP(PREFILL), {130, 512, 128}, F16, CASE_RANDOM, 8192, "f16 cache", 0},
    {OP(PREFILL), {70, 256, 64}, I8, CASE_RANDOM, 8192, "int8 cache", 0},
    {OP(PREFILL), {130, 512, 128}, I8, CASE_RANDOM, 8192, "int8 cache", 0},
    {OP(PREFILL), {130, 512, 128}, F16, CASE_RANDOM, 8192, "f16 cache, rotated inside", OTHER},
    {OP(PREFILL), {70, 256, 64}, I8, CASE_RANDOM, 8192, "int8 cache, rotated inside", OTHER},
    {OP(PREFILL), {130, 512, 128}, F16, CASE_RANDOM, 8192, "f16 cache, neox inside", OTHER | NEOX},
    {OP(PREFILL), {70, 256, 64}, I8, CASE_RANDOM, 8192, "int8 cache, neox inside", OTHER | NEOX},
    {OP(ATTENTION), {140, 512, 128}, BY_FORMAT, CASE_RANDOM, 0, "heads of 128", 0},
    {OP(ATTENTION), {1100, 256, 128}, BY_FORMAT, CASE_RANDOM, 0, "the last of 1100", OTHER},
    {OP(STEP), {12, 64, 64}, F16, CASE_RANDOM, 0, "fetched", 0},
    {OP(STEP), {500, 64, 64}, I8, CASE_RANDOM, 0, "fetched", 0},
    {OP(TOPK), {1, 40, 0}, 0, CASE_RANDOM, 0, "fewer than are asked for", 0},
    {OP(TOPK), {1, 512, 0}, 0, CASE_RANDOM, 0, "sorted", 0},
    {OP(TOPK), {3, 128256, 0}, 0, CASE_RANDOM, 0, "sorted", 0},
    {OP(TOPK), {12, 33000, 0}, 0, CASE_RANDOM, 0, "sorted", 0},
    {OP(TOPK), {16, 33000, 0}, 0, CASE_RANDOM, 0, "sorted", 0},
    {OP(TOPK), {2, 5000, 0}, 0, CASE_EXTREME_PLUS, 0, "sorted, ties", 0},
    {OP(TOPK), {18, 40000, 0}, 0, CASE_EXTREME_PLUS, 0, "sorted, ties", 0},
    {OP(TOPK), {2, 700, 0}, 0, CASE_EXTREME_MINUS, 0, "sorted, extreme values", 0},
    {OP(TOPK), {17, 70000, 0}, 0, CASE_EXTREME_MINUS, 0, "sorted, extreme values", 0},
    {OP(BEST), {1, 40, 64}, 0, CASE_RANDOM, 0, "fewer than are asked for", 0},
    {OP(BEST), {1, 5000, 256}, 0, CASE_RANDOM, 0, "sorted", 0},
    {OP(BEST), {8, 4243, 200}, 0, CASE_RANDOM, 0, "sorted", 0},
    {OP(BEST), {3, 4300, 320}, 0, CASE_EXTREME_PLUS, 0, "sorted, ties", 0},
    {OP(BEST), {2, 5000, 128}, 0, CASE_EXTREME_MINUS, 0, "rows that are not finite", 0},
    {OP(BEST), {9, 40, 64}, 0, CASE_RANDOM, 0, "fewer than are asked for", 0},
    {OP(BEST), {16, 4243, 200}, 0, CASE_RANDOM, 0, "sorted", 0},
    {OP(BEST), {20, 4300, 160}, 0, CASE_EXTREME_PLUS, 0, "sorted, ties", 0},
    {OP(BEST), {64, 3000, 128}, 0, CASE_EXTREME_MINUS, 0, "rows that are not finite", 0},
    {OP(GATHER), {3, 64, 0}, 0, CASE_RANDOM, 0, "rows", 0},
    {OP(GATHER), {70, 512, 0}, 0, CASE_RANDOM, 0, "rows", 0},
    {OP(ROPE_TABLE), {3, 64, 64}, 0, CASE_RANDOM, 0, "angles", 0},
    {OP(ROPE_TABLE), {70, 128, 128}, 0, CASE_RANDOM, 0, "angles", 0},
    {OP(PACK), {256, 40, 256}, 0, CASE_RANDOM, 0, "i2s", 0},
    {OP(PACK), {130, 33, 200}, 0, CASE_RANDOM, 0, "i2s", 0},
    {OP(PACK), {16, 256, 0}, 1, CASE_RANDOM, 0, "f32", 0},
    {OP(PACK), {16, 256, 0}, 2, CASE_RANDOM, 0, "f16", 0},
    {OP(PACK), {16, 256, 0}, 3, CASE_RANDOM, 0, "bf16", 0},
    {OP(PACK), {16, 320, 0}, 4, CASE_RANDOM, 0, "q8_0", 0},
    {OP(PACK), {16, 320, 0}, 5, CASE_RANDOM, 0, "q4_0", 0},
    {OP(PACK), {16, 512, 0}, 6, CASE_RANDOM, 0, "q6_k", 0},
};
#undef OP

bool bnet_case_alone(const bnet_kernel_record *k)
{
    return k->device != BNET_DEV_CPU && bnet_kernel_op(k->op) != NULL;
}

bool bnet_case_alone_only(const bnet_kernel_record *k)
{
    return bnet_case_alone(k) && k->op != BNET_OP_ATTENTION;
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
                       .other = (t->how & OTHER) != 0,
                       .neox = (t->how & NEOX) != 0,
                       .kv_type = t->variant == BY_FORMAT ? bnet_case_kv_type(k->format)
                                  : t->variant <= I8      ? (bitnet_kv_type)t->variant
                                                          : BITNET_KV_F16,
                       .head = t->s.k ? (int)t->s.k : CASE_HEAD};
    if (!bnet_kernel_op(k->op)->open(c))
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
    const kernel_op *op = bnet_kernel_op(c->rec->op);
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
        if (t->op != k->op || !takes)
            continue;
        bitnet_accuracy *a = bnet_validate_row(r, k, t->s);
        if (a && t->ulps > 0)
            a->bound = t->ulps * BNET_ULP;
        st = a ? bnet_validate_forced(r, k, t->s, check, t, a) : BITNET_MEMORY;
    }
    return st;
}
