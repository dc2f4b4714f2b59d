/* tee_compare.c - what counts as the same. Results of kernels that promise exactness must have
 * equal bits; "close(n ulp)" allows n units in the last place of the largest value of the row.
 * Integers are equal, but a value quantised to int8 may be one off where it stood within 1e-5 of a
 * rounding tie. */
#include "check/tee.h"

#include "ops/kv_block.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define TIE 1e-5

/* ---- who ran ---- */

static void snapshot(tee_side *s)
{
    s->n_before = bnet_backend_kernels(s->be, s->before, BNET_KERNELS_MAX);
}

tee_call bnet_tee_begin(tee_backend *t, const char *op, const tee_weight *w, size_t n_rows,
                        size_t n_cols)
{
    snapshot(&t->side[0]);
    snapshot(&t->side[1]);
    return (tee_call){.tee = t,
                      .op = op,
                      .tensor = w ? w->name : "",
                      .layer = t->layer,
                      .n_rows = n_rows,
                      .n_cols = n_cols};
}

static uint64_t calls_before(const tee_side *s, const char *id)
{
    for (size_t i = 0; i < s->n_before; i++)
        if (s->before[i].id == id || strcmp(s->before[i].id, id) == 0)
            return s->before[i].n_calls;
    return 0;
}

/* The i-th kernel (from *i on) that was called during the operation; NULL: no more. */
static const char *next_ran(const tee_side *s, size_t n_after, size_t *i)
{
    for (; *i < n_after; ++*i)
        if (s->after[*i].n_calls != calls_before(s, s->after[*i].id))
            return s->after[(*i)++].id;
    return NULL;
}

double bnet_agreement_ulps(const bnet_kernel_record *k)
{
    if (!k || !k->agreement || strncmp(k->agreement, "close(", 6) != 0)
        return 0;
    double ulps = strtod(k->agreement + 6, NULL);
    return ulps > 0 ? ulps : 0;
}

void bnet_tee_ran(tee_call *c)
{
    double loosest = 0;
    bool stated = false;
    for (int s = 0; s < 2; s++) {
        tee_side *side = &c->tee->side[s];
        size_t n = bnet_backend_kernels(side->be, side->after, BNET_KERNELS_MAX), i = 0;
        const char *id;
        while ((id = next_ran(side, n, &i)) != NULL) {
            double ulps = bnet_agreement_ulps(bnet_registry_find(side->registry, id));
            loosest = BNET_MAX(loosest, ulps);
            stated = true;
        }
    }
    if (stated)
        c->ulps = loosest;
}

static void name_kernels(tee_side *side, char out[BNET_TEE_KERNELS])
{
    size_t n = bnet_backend_kernels(side->be, side->after, BNET_KERNELS_MAX), i = 0, at = 0;
    const char *id;
    out[0] = '\0';
    while ((id = next_ran(side, n, &i)) != NULL && at < BNET_TEE_KERNELS)
        at += (size_t)snprintf(out + at, BNET_TEE_KERNELS - at, "%s%s", at ? " " : "", id);
}

/* ---- what differs ---- */

static void differs(tee_call *c, size_t row, size_t element, double a, double b, double bound)
{
    tee_backend *t = c->tee;
    if (!c->differs && t->report.n_differ == 0) {
        bnet_tee_diff *d = &t->report.diff;
        *d = (bnet_tee_diff){.op = c->op,
                             .layer = c->layer,
                             .row = (int)row,
                             .position = t->now && row < t->now->n_pos ? t->now->pos[row] : -1,
                             .element = element,
                             .first = a,
                             .second = b,
                             .bound = bound};
        snprintf(d->tensor, sizeof d->tensor, "%s", c->tensor);
        name_kernels(&t->side[0], d->kernels[0]);
        name_kernels(&t->side[1], d->kernels[1]);
    }
    c->differs = true;
}

void bnet_tee_end(const tee_call *c)
{
    c->tee->report.n_ops++;
    c->tee->report.n_differ += c->differs;
}

static bool same_bits(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

bnet_difference bnet_difference_of(const float *values, const float *wanted, size_t n)
{
    bnet_difference d = {0, 0, 0};
    for (size_t i = 0; i < n; i++) {
        double off = fabs((double)values[i] - (double)wanted[i]);
        d.most = fmax(d.most, fabs((double)wanted[i]));
        if (!same_bits(values[i], wanted[i]) && !(off <= d.off) && !isnan(d.off)) {
            d.off = off;
            d.at = i;
        }
    }
    return d;
}

static double largest(const float *a, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(a[i]) && fabs((double)a[i]) > most)
            most = fabs((double)a[i]);
    return most;
}

static void float_row(tee_call *c, size_t row, const float *a, const float *b, size_t n)
{
    c->tee->report.n_values += n;
    if (memcmp(a, b, n * sizeof *a) == 0)
        return;
    double most = largest(a, n), bound = c->ulps > 0 ? c->ulps * BNET_ULP * most : 0;
    bnet_tee_report *r = &c->tee->report;
    for (size_t i = 0; i < n; i++) {
        if (same_bits(a[i], b[i]))
            continue;
        double off = fabs((double)a[i] - (double)b[i]);
        if (isfinite(off)) {
            r->max_error = BNET_MAX(r->max_error, off);
            r->max_share = BNET_MAX(r->max_share, off / BNET_MAX(most, (double)FLT_MIN));
        }
        bool both_nan = isnan(a[i]) && isnan(b[i]);
        if (c->ulps == 0 || !(off <= bound || both_nan))
            differs(c, row, i, (double)a[i], (double)b[i], bound);
    }
}

void bnet_tee_floats(tee_call *c, const float *a, const float *b)
{
    for (size_t r = 0; r < c->n_rows; r++)
        float_row(c, r, a + r * c->n_cols, b + r * c->n_cols, c->n_cols);
}

/* May x / scale be rounded to two neighbouring integers? */
static bool on_a_tie(float x, float scale)
{
    double v = fabs((double)x / (double)scale);
    return fabs(v - floor(v) - 0.5) <= TIE;
}

/* Values of one row quantised with one scale; true if all were equal. */
static bool int8_row(tee_call *c, size_t row, size_t element, const float *x, float scale,
                     const int8_t *a, const int8_t *b, size_t n)
{
    c->tee->report.n_values += n;
    if (memcmp(a, b, n) == 0)
        return true;
    for (size_t i = 0; i < n; i++) {
        if (a[i] == b[i])
            continue;
        if (abs(a[i] - b[i]) == 1 && on_a_tie(x[i], scale))
            c->tee->report.n_ties++;
        else
            differs(c, row, element + i, a[i], b[i], 0);
    }
    return false;
}

static void padding_row(tee_call *c, size_t row, const int8_t *b, size_t first, size_t n)
{
    for (size_t i = first; i < n; i++)
        if (b[i] != 0)
            differs(c, row, i, 0, b[i], 0);
}

void bnet_tee_quantized(tee_call *c, const float *x, size_t stride, const tee_quantized *a,
                        const tee_quantized *b)
{
    for (size_t r = 0; r < c->n_rows; r++) {
        size_t n = c->n_cols;
        const int8_t *qb = b->q + r * stride;
        float_row(c, r, a->scale + r, b->scale + r, 1);
        bool equal = int8_row(c, r, 0, x + r * n, a->scale[r], a->q + r * stride, qb, n);
        padding_row(c, r, qb, n, stride);
        int32_t want = a->sum[r];
        if (!equal) {
            want = 0;
            for (size_t i = 0; i < n; i++)
                want += qb[i];
        }
        if (b->sum[r] != want)
            differs(c, r, n, want, b->sum[r], 0);
    }
}

/* ---- the cache ---- */

static void cached_i8(tee_call *c, size_t row, size_t element, size_t hd, size_t pos,
                      const float *x, const uint8_t *a, const uint8_t *b)
{
    size_t groups = bnet_kv_groups(hd), at = bnet_kv_scale_offset(hd) + pos * groups * 4;
    for (size_t g = 0; g < groups; g++) {
        size_t first = g * BNET_KV_GROUP, n = BNET_MIN((size_t)BNET_KV_GROUP, hd - first);
        float sa = bnet_f32(a + at + 4 * g), sb = bnet_f32(b + at + 4 * g);
        double bound = BNET_ULP * fabs((double)sa); /* a scale may be one unit off */
        if (!same_bits(sa, sb) && !(fabs((double)sa - (double)sb) <= bound))
            differs(c, row, element + first, (double)sa, (double)sb, bound);
        int8_row(c, row, element + first, x + first, sa, (const int8_t *)a + pos * hd + first,
                 (const int8_t *)b + pos * hd + first, n);
    }
}

static double cached_value(const uint8_t *p, size_t i, size_t size)
{
    return size == 4 ? (double)bnet_f32(p + 4 * i) : (double)bnet_f16_to_f32(bnet_u16(p + 2 * i));
}

void bnet_tee_cached(tee_call *c, size_t row, size_t element, const tee_kv *kv, size_t pos,
                     const float *x, const uint8_t *a, const uint8_t *b)
{
    size_t hd = (size_t)kv->shape.head_dim, size = bnet_kv_elem(kv->shape.type);
    if (kv->shape.type == BITNET_KV_INT8) {
        cached_i8(c, row, element, hd, pos, x, a, b);
        return;
    }
    a += pos * hd * size;
    b += pos * hd * size;
    c->tee->report.n_values += hd;
    for (size_t i = 0; i < hd; i++) {
        if (memcmp(a + i * size, b + i * size, size) == 0)
            continue;
        differs(c, row, element + i, cached_value(a, i, size), cached_value(b, i, size), 0);
    }
}
