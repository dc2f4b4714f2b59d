/* validate_ops.c - every kernel of the registry on several shapes, against the reference. A kernel
 * is not asked whether it would be chosen: a registry of its own makes it the choice. */
#include "check/validate.h"

#include <stdio.h>
#include <stdlib.h>

static const case_shape ternary_shapes[] = {{1, 64, 64},     {64, 64, 64},       {256, 256, 256},
                                            {1, 1024, 1024}, {1024, 1024, 1024}, {2048, 1024, 512}};
/* Rows as long as models have them, where sums of 16 bits no longer do. */
static const case_shape long_shapes[] = {{1, 64, 6912}, {4, 64, 8192}};
static const case_fill fills[] = {CASE_RANDOM, CASE_EXTREME_PLUS, CASE_EXTREME_MINUS};
static const char *const fill_notes[] = {"", ", extreme values", ", extreme values"};
static const case_shape float_shapes[] = {
    {1, 64, 64}, {64, 64, 64}, {8, 256, 256}, {12, 300, 256}, {256, 256, 256}};
static const case_shape head_shapes[] = {{1, 64, 256}, {1, 512, 512}, {1, 1030, 2560}};
static const case_shape vector_shapes[] = {{1, 64, 0}, {3, 256, 0}, {70, 512, 0}};

enum { QUICK_SHAPES = 3, QUICK_FLOATS = 4 }; /* blocks of 256, few tokens and more */

static bool is_ternary(const bnet_kernel_record *k)
{
    return bnet_case_linear(k) && strncmp(k->format, "i2s", 3) == 0;
}

static const case_shape *shapes_of(const validation_run *r, const bnet_kernel_record *k, size_t *n)
{
    if (bnet_case_head(k)) {
        *n = BNET_COUNT(head_shapes);
        return head_shapes;
    }
    if (!bnet_case_linear(k)) {
        *n = BNET_COUNT(vector_shapes);
        return vector_shapes;
    }
    if (!is_ternary(k)) {
        *n = r->o.quick ? QUICK_FLOATS : BNET_COUNT(float_shapes);
        return float_shapes;
    }
    *n = r->o.quick ? QUICK_SHAPES : BNET_COUNT(ternary_shapes);
    return ternary_shapes;
}

bitnet_status bnet_validate_open_forced(const validation_run *r, const bnet_kernel_record *k,
                                        const bnet_kernel_query *q, bnet_registry **registry,
                                        bnet_backend **be)
{
    bitnet_status st = bnet_registry_open(registry, r->err);
    if (st == BITNET_OK && !bnet_registry_find(*registry, k->id))
        st = bnet_registry_add(*registry, k, r->err);
    if (st == BITNET_OK)
        st = bnet_registry_tune(*registry, q, k->id, r->err);
    validation_run forced = *r;
    forced.device.precision = bnet_validate_precision(k);
    if (st == BITNET_OK)
        st = bnet_validate_open_device(&forced, *registry, NULL, be);
    return st;
}

bitnet_precision bnet_validate_precision(const bnet_kernel_record *k)
{
    bool product = strcmp(k->op, "linear") == 0 || strcmp(k->op, "matmul") == 0;
    if (!product || k->device == BNET_DEV_CPU)
        return BITNET_PRECISION_FP32;
    return strcmp(k->dtype, "f16") == 0    ? BITNET_PRECISION_FP16
           : strcmp(k->dtype, "bf16") == 0 ? BITNET_PRECISION_BF16
                                           : BITNET_PRECISION_FP32;
}

/* ---- rows of the result ---- */

static double bound_of(const bnet_kernel_record *k)
{
    return strncmp(k->agreement, "close(", 6) == 0 ? strtod(k->agreement + 6, NULL) / 8388608.0 : 0;
}

bitnet_accuracy *bnet_validate_row(validation_run *r, const bnet_kernel_record *k, case_shape s)
{
    bitnet_validation *v = r->out;
    if (!bnet_grow(&v->accuracy, &r->cap_accuracy, v->n_accuracy + 1, sizeof *v->accuracy)) {
        bnet_no_memory(r->err, "validation");
        return NULL;
    }
    bitnet_accuracy *a = &v->accuracy[v->n_accuracy++];
    *a = (bitnet_accuracy){.kernel = k->id,
                           .op = k->op,
                           .format = k->format,
                           .dtype = k->dtype,
                           .agreement = k->agreement,
                           .bound = bound_of(k),
                           .m = s.m,
                           .n = s.n,
                           .k = s.k};
    return a;
}

void bnet_validate_skip(bitnet_accuracy *a, const char *why)
{
    a->verdict = BITNET_VERDICT_SKIP;
    snprintf(a->note, sizeof a->note, "%s", why);
}

/* ---- a kernel against the reference ---- */

uint64_t bnet_validate_calls(const bnet_backend *be, const char *id)
{
    bitnet_kernel_use uses[64];
    size_t n = bnet_backend_kernels(be, uses, BNET_COUNT(uses));
    for (size_t i = 0; i < n && i < BNET_COUNT(uses); i++)
        if (strcmp(uses[i].id, id) == 0)
            return uses[i].n_calls;
    return 0;
}

static void judge_tee(const bnet_backend *tee, case_fill fill, bitnet_accuracy *a)
{
    const bnet_tee_report *t = bnet_tee_result(tee);
    const bnet_tee_diff *d = &t->diff;
    /* a case may need other operations too, which have bounds of their own */
    a->max_error = a->bound > 0 || t->n_differ ? t->max_share : 0;
    a->verdict = t->n_differ ? BITNET_VERDICT_FAIL : BITNET_VERDICT_PASS;
    if (t->n_differ)
        snprintf(a->note, sizeof a->note, "%s: row %d, element %zu is %.9g instead of %.9g%s",
                 d->op, d->row, d->element, d->first, d->second, fill_notes[fill]);
    else
        snprintf(a->note, sizeof a->note, "against the reference, %llu values%s%s",
                 (unsigned long long)t->n_values, t->n_ties ? ", ties accepted" : "",
                 fill_notes[fill]);
}

/* Owns both backends from here on. */
static bitnet_status open_tee(validation_run *r, bnet_backend *first, const bnet_registry *registry,
                              bnet_backend **tee)
{
    bnet_backend *second = NULL;
    bitnet_status st = bnet_validate_open_reference(r, &second);
    bnet_tee_side a = {first, registry}, b = {second, r->reference};
    if (st == BITNET_OK)
        st = bnet_backend_open_tee(&a, &b, tee, r->err);
    if (st != BITNET_OK) {
        bnet_backend_close(first);
        bnet_backend_close(second);
    }
    return st;
}

static bool is_reference(const validation_run *r, const bnet_kernel_record *k,
                         const bnet_kernel_query *q)
{
    const bnet_kernel_record *ref = NULL;
    return k->device == r->ref_caps.device &&
           bnet_registry_select(r->reference, &r->ref_caps, q, &ref, NULL) == BITNET_OK &&
           ref->fn == k->fn;
}

static bitnet_status check_case(validation_run *r, const bnet_kernel_record *k, bnet_backend *be,
                                case_fill fill, bool same, bitnet_accuracy *a)
{
    kernel_case c;
    const char *skip;
    const case_shape s = {a->m, a->n, a->k};
    bitnet_status st = bnet_case_open_filled(be, k, s, fill, &c, &skip, r->err);
    if (st != BITNET_OK)
        return st;
    if (skip) {
        bnet_validate_skip(a, skip);
        return BITNET_OK;
    }
    if (same)
        st = bnet_validate_double(&c, a, r->err);
    else {
        bnet_case_load(&c);
        st = bnet_case_run(&c, r->err);
        if (st == BITNET_OK)
            judge_tee(be, fill, a);
    }
    if (st == BITNET_OK && !bnet_validate_calls(be, k->id) && strcmp(k->isa, "nvrtc") == 0)
        bnet_validate_skip(
            a, "it could not be compiled here (is NVRTC installed?); another kernel served");
    else if (st == BITNET_OK && !bnet_validate_calls(be, k->id)) {
        a->verdict = BITNET_VERDICT_FAIL;
        snprintf(a->note, sizeof a->note, "the kernel was not called");
    }
    bnet_case_close(&c);
    return st;
}

static bitnet_status check_shape(validation_run *r, const bnet_kernel_record *k, case_shape s,
                                 case_fill fill)
{
    char reason[120];
    bnet_registry *registry = NULL;
    bnet_backend *be = NULL;
    bitnet_accuracy *a = bnet_validate_row(r, k, s);
    bnet_kernel_query q = bnet_case_query(k, s);
    if (!a)
        return BITNET_MEMORY;
    if (*bnet_kernel_veto(k, &r->caps, &q, reason, sizeof reason)) {
        bnet_validate_skip(a, reason);
        return BITNET_OK;
    }
    bool same = bnet_case_head(k) || bnet_case_fused(k) || is_reference(r, k, &q);
    bitnet_status st = bnet_validate_open_forced(r, k, &q, &registry, &be);
    if (st == BITNET_OK && !same) {
        bnet_backend *first = be;
        be = NULL;
        st = open_tee(r, first, registry, &be);
    }
    if (st == BITNET_OK)
        st = check_case(r, k, be, fill, same, a);
    bnet_backend_close(be);
    bnet_registry_close(registry);
    return st;
}

static bitnet_status check_shapes(validation_run *r, const bnet_kernel_record *k,
                                  const case_shape *s, size_t n, case_fill fill)
{
    bitnet_status st = BITNET_OK;
    for (size_t i = 0; st == BITNET_OK && i < n; i++) {
        st = bnet_validate_poll(r);
        if (st == BITNET_OK)
            st = check_shape(r, k, s[i], fill);
    }
    return st;
}

/* Kernels checked only in passes: the device's are checked there, all others are listed. */
static bitnet_status pass_only(validation_run *r, const bnet_kernel_record *k)
{
    char reason[120];
    const case_shape s = {1, 0, 0};
    const bnet_kernel_query q = bnet_case_query(k, s);
    if (k->device == r->device.device)
        return BITNET_OK;
    bitnet_accuracy *a = bnet_validate_row(r, k, s);
    if (!a)
        return BITNET_MEMORY;
    bnet_validate_skip(a, bnet_kernel_veto(k, &r->caps, &q, reason, sizeof reason));
    return BITNET_OK;
}

bitnet_status bnet_validate_accuracy(validation_run *r)
{
    const bnet_kernel_record *k;
    bitnet_status st = BITNET_OK;
    size_t work = bnet_validate_work(r, SIZE_MAX);
    for (size_t i = 0; st == BITNET_OK && (k = bnet_registry_at(r->runtime->registry, i)); i++) {
        size_t n;
        const case_shape *s = shapes_of(r, k, &n);
        bool alone = bnet_case_alone(k);
        if (!bnet_validate_wants(r, k))
            continue;
        st = bnet_validate_at(r, bnet_validate_work(r, i) - 1, work);
        if (st != BITNET_OK)
            break;
        if (bnet_case_pass_only(k)) {
            st = pass_only(r, k);
            continue;
        }
        if (alone || bnet_case_plain(k)) {
            st = bnet_validate_poll(r);
            if (st == BITNET_OK)
                st = alone ? bnet_validate_pass_kernel(r, k) : bnet_validate_single_op(r, k);
            if (st != BITNET_OK || !alone || bnet_case_alone_only(k))
                continue;
        }
        st = check_shapes(r, k, s, n, CASE_RANDOM);
        for (size_t j = 0; st == BITNET_OK && is_ternary(k) && j < BNET_COUNT(fills); j++)
            st = check_shapes(r, k, long_shapes, BNET_COUNT(long_shapes), fills[j]);
    }
    return st == BITNET_OK ? bnet_validate_passes(r) : st;
}
