/* validate_ops.c - every kernel of the registry on several shapes, against the reference. A kernel
 * is not asked whether it would be chosen: a registry of its own makes it the choice. */
#include "check/validate.h"

#include <stdio.h>
#include <stdlib.h>

static const case_shape ternary_shapes[] = {{1, 64, 64},     {64, 64, 64},       {256, 256, 256},
                                            {1, 1024, 1024}, {1024, 1024, 1024}, {2048, 1024, 512}};
/* Rows as long as models have them, whose sums do not fit 16 bits. */
static const case_shape long_shapes[] = {{1, 64, 6912}, {4, 64, 8192}};
static const char *const fill_notes[] = {"", ", extreme values", ", extreme values"};
static const case_shape float_shapes[] = {
    {1, 64, 64}, {64, 64, 64}, {8, 256, 256}, {12, 300, 256}, {256, 256, 256}};
static const case_shape head_shapes[] = {{1, 64, 256}, {1, 512, 512}, {1, 1030, 2560}};
static const case_shape vector_shapes[] = {{1, 64, 0}, {3, 256, 0}, {70, 512, 0}};

static bool is_ternary(const bnet_kernel_record *k)
{
    return bnet_case_linear(k) && bnet_format_ternary(k->format);
}

/* The shapes of a record; with `quick` those of small matrices alone. */
static const case_shape *shapes_of(const bnet_kernel_record *k, bool quick, size_t *n)
{
    const struct {
        bool its;
        const case_shape *shapes;
        size_t n, n_quick;
    } all[] = {
        {bnet_case_head(k), head_shapes, BNET_COUNT(head_shapes), BNET_COUNT(head_shapes)},
        {!bnet_case_linear(k), vector_shapes, BNET_COUNT(vector_shapes), BNET_COUNT(vector_shapes)},
        {is_ternary(k), ternary_shapes, BNET_COUNT(ternary_shapes), 3},
        {true, float_shapes, BNET_COUNT(float_shapes), 4}};
    size_t i = 0;
    while (!all[i].its)
        i++;
    *n = quick ? all[i].n_quick : all[i].n;
    return all[i].shapes;
}

/* ---- a kernel made the choice ---- */

bitnet_precision bnet_validate_precision(const bnet_kernel_record *k)
{
    if (!bnet_case_product(k) || k->device == BNET_DEV_CPU)
        return BITNET_PRECISION_FP32;
    return k->dtype == BNET_DTYPE_F16    ? BITNET_PRECISION_FP16
           : k->dtype == BNET_DTYPE_BF16 ? BITNET_PRECISION_BF16
                                         : BITNET_PRECISION_FP32;
}

static bitnet_status open_forced(const validation_run *r, forced_kernel *f)
{
    bitnet_status st = bnet_registry_open(&f->registry, r->err);
    if (st == BITNET_OK && !bnet_registry_find(f->registry, f->k->id))
        st = bnet_registry_add(f->registry, f->k, r->err);
    if (st == BITNET_OK)
        st = bnet_registry_tune(f->registry, &f->query, f->k->id, r->err);
    validation_run forced = *r;
    forced.device.precision = bnet_validate_precision(f->k);
    return st == BITNET_OK ? bnet_validate_open_device(&forced, f->registry, NULL, &f->be) : st;
}

bitnet_status bnet_validate_forced(validation_run *r, const bnet_kernel_record *k, case_shape s,
                                   forced_fn use, const void *what, bitnet_accuracy *a)
{
    char reason[120];
    forced_kernel f = {.k = k, .s = s, .query = bnet_case_query(k, s)};
    if (*bnet_kernel_veto(k, &r->caps, &f.query, reason, sizeof reason)) {
        if (a)
            bnet_validate_note(a, BITNET_VERDICT_SKIP, reason);
        return BITNET_OK;
    }
    bitnet_status st = open_forced(r, &f);
    if (st == BITNET_OK)
        st = use(r, &f, what, a);
    bnet_backend_close(f.be);
    bnet_registry_close(f.registry);
    return st;
}

/* ---- rows of the result ---- */

bitnet_accuracy *bnet_validate_row(validation_run *r, const bnet_kernel_record *k, case_shape s)
{
    bitnet_validation *v = r->out;
    if (!bnet_grow(&v->accuracy, &r->cap_accuracy, v->n_accuracy + 1, sizeof *v->accuracy)) {
        bnet_no_memory(r->err, "validation");
        return NULL;
    }
    bitnet_accuracy *a = &v->accuracy[v->n_accuracy++];
    *a = (bitnet_accuracy){.kernel = k->id,
                           .op = bnet_op_name(k->op),
                           .format = bnet_format_name(k->format),
                           .dtype = bnet_dtype_name(k->dtype),
                           .agreement = k->agreement,
                           .bound = bnet_agreement_ulps(k) * BNET_ULP,
                           .m = s.m,
                           .n = s.n,
                           .k = s.k};
    return a;
}

void bnet_validate_note(bitnet_accuracy *a, bitnet_verdict verdict, const char *note)
{
    a->verdict = verdict;
    snprintf(a->note, sizeof a->note, "%s", note);
}

uint64_t bnet_validate_calls(const bnet_backend *be, const char *id)
{
    bitnet_kernel_use uses[64];
    size_t n = bnet_backend_kernels(be, uses, BNET_COUNT(uses));
    for (size_t i = 0; i < n && i < BNET_COUNT(uses); i++)
        if (strcmp(uses[i].id, id) == 0)
            return uses[i].n_calls;
    return 0;
}

/* ---- a kernel against the reference ---- */

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

bitnet_status bnet_validate_open_tee(const validation_run *r, const bnet_registry *registry,
                                     bnet_backend **be)
{
    bnet_backend *second = NULL, *tee = NULL;
    bitnet_status st = bnet_validate_open_reference(r, &second);
    bnet_tee_side a = {*be, registry}, b = {second, r->reference};
    if (st == BITNET_OK)
        st = bnet_backend_open_tee(&a, &b, &tee, r->err);
    if (st == BITNET_OK)
        *be = tee;
    else
        bnet_backend_close(second);
    return st;
}

/* Does the reference compute with this very kernel? */
static bool is_reference(const validation_run *r, const forced_kernel *f)
{
    const bnet_kernel_record *ref = NULL;
    return f->k->device == r->ref_caps.device &&
           bnet_registry_select(r->reference, &r->ref_caps, &f->query, &ref, NULL) == BITNET_OK &&
           ref->fn == f->k->fn;
}

static bitnet_status run_case(validation_run *r, kernel_case *c, bool same, bitnet_accuracy *a)
{
    if (same)
        return bnet_validate_double(c, a, r->err);
    bnet_case_load(c);
    bitnet_status st = bnet_case_run(c, r->err);
    if (st == BITNET_OK)
        judge_tee(c->be, c->fill, a);
    return st;
}

static bitnet_status check_case(validation_run *r, forced_kernel *f, const void *fill,
                                bitnet_accuracy *a)
{
    kernel_case c;
    const char *skip;
    bool same = bnet_case_head(f->k) || bnet_case_fused(f->k) || is_reference(r, f);
    bitnet_status st = same ? BITNET_OK : bnet_validate_open_tee(r, f->registry, &f->be);
    if (st == BITNET_OK)
        st = bnet_case_open(f->be, f->k, f->s, *(const case_fill *)fill, &c, &skip, r->err);
    if (st != BITNET_OK)
        return st;
    if (skip) {
        bnet_validate_note(a, BITNET_VERDICT_SKIP, skip);
        return BITNET_OK;
    }
    st = run_case(r, &c, same, a);
    if (st == BITNET_OK && !bnet_validate_calls(f->be, f->k->id)) {
        bool nvrtc = strcmp(f->k->isa, "nvrtc") == 0;
        bnet_validate_note(a, nvrtc ? BITNET_VERDICT_SKIP : BITNET_VERDICT_FAIL,
                           nvrtc ? "it could not be compiled here (is NVRTC installed?); another "
                                   "kernel served"
                                 : NOT_CALLED);
    }
    bnet_case_close(&c);
    return st;
}

static bitnet_status check_shapes(validation_run *r, const bnet_kernel_record *k,
                                  const case_shape *s, size_t n, case_fill fill)
{
    bitnet_status st = BITNET_OK;
    for (size_t i = 0; st == BITNET_OK && i < n; i++) {
        st = bnet_validate_poll(r);
        bitnet_accuracy *a = st == BITNET_OK ? bnet_validate_row(r, k, s[i]) : NULL;
        if (st == BITNET_OK)
            st = a ? bnet_validate_forced(r, k, s[i], check_case, &fill, a) : BITNET_MEMORY;
    }
    return st;
}

/* Kernels checked only in passes: the device's are checked there, all others are listed. */
static bitnet_status list_pass_only(validation_run *r, const bnet_kernel_record *k)
{
    char reason[120];
    const case_shape s = {1, 0, 0};
    const bnet_kernel_query q = bnet_case_query(k, s);
    if (k->device == r->device.device)
        return BITNET_OK;
    bitnet_accuracy *a = bnet_validate_row(r, k, s);
    if (!a)
        return BITNET_MEMORY;
    bnet_validate_note(a, BITNET_VERDICT_SKIP,
                       bnet_kernel_veto(k, &r->caps, &q, reason, sizeof reason));
    return BITNET_OK;
}

/* Every case of one record. */
static bitnet_status check_kernel(validation_run *r, const bnet_kernel_record *k)
{
    size_t n;
    const case_shape *s = shapes_of(k, r->o.quick, &n);
    if (bnet_case_pass_only(k))
        return list_pass_only(r, k);
    if (bnet_case_single(k))
        return bnet_validate_single_op(r, k);
    bitnet_status st = bnet_case_alone(k) ? bnet_validate_pass_kernel(r, k) : BITNET_OK;
    if (st != BITNET_OK || bnet_case_alone_only(k))
        return st;
    st = check_shapes(r, k, s, n, CASE_RANDOM);
    for (int fill = CASE_RANDOM; st == BITNET_OK && is_ternary(k) && fill <= CASE_EXTREME_MINUS;
         fill++)
        st = check_shapes(r, k, long_shapes, BNET_COUNT(long_shapes), (case_fill)fill);
    return st;
}

bitnet_status bnet_validate_accuracy(validation_run *r)
{
    const bnet_kernel_record *k;
    bitnet_status st = BITNET_OK;
    size_t work = bnet_validate_work(r, SIZE_MAX);
    for (size_t i = 0; st == BITNET_OK && (k = bnet_registry_at(r->runtime->registry, i)); i++) {
        if (!bnet_validate_wants(r, k))
            continue;
        st = bnet_validate_at(r, bnet_validate_work(r, i) - 1, work);
        if (st == BITNET_OK)
            st = check_kernel(r, k);
    }
    return st == BITNET_OK ? bnet_validate_passes(r) : st;
}
