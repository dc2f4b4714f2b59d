/* validate_double.c - what a case must give, computed in double without any kernel. Kernels that
 * are the reference themselves are compared with this. */
#include "check/validate.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

enum { HEAD = CASE_HEAD, MATRIX_ROWS = 4 }; /* tokens of a matrix that are recomputed */

/* One row of results, c->s.n of them; w: a row of the weight, to be decoded into. */
typedef void (*expect_fn)(const kernel_case *c, uint64_t row, float *w, double *out);

static void expect_linear(const kernel_case *c, uint64_t t, float *w, double *out)
{
    for (uint64_t r = 0; r < c->s.n; r++) {
        bool decoded = bnet_case_weight_row(c, r, w);
        out[r] = decoded ? 0 : NAN;
        for (uint64_t i = 0; i < c->s.k; i++)
            out[r] += (double)w[i] * (c->q ? (double)c->q[t * c->act.stride + i]
                                           : (double)c->host[0][t * c->s.k + i]);
        if (c->q)
            out[r] *= (double)c->scales[t];
    }
}

static void norm_in_place(const kernel_case *c, float *w, double *x)
{
    double sum = 0;
    memcpy(w, c->bytes, (size_t)c->s.n * sizeof *w);
    for (uint64_t i = 0; i < c->s.n; i++)
        sum += x[i] * x[i];
    for (uint64_t i = 0; i < c->s.n; i++)
        x[i] = x[i] / sqrt(sum / (double)c->s.n + 1e-5) * (double)w[i];
}

static void expect_norm(const kernel_case *c, uint64_t t, float *w, double *out)
{
    for (uint64_t i = 0; i < c->s.n; i++)
        out[i] = (double)c->host[0][t * c->s.n + i];
    norm_in_place(c, w, out);
}

static void expect_embed(const kernel_case *c, uint64_t t, float *w, double *out)
{
    memcpy(w, c->bytes + (size_t)c->ids[t] * (size_t)c->s.n * sizeof *w,
           (size_t)c->s.n * sizeof *w);
    for (uint64_t i = 0; i < c->s.n; i++)
        out[i] = (double)w[i];
}

/* The quantised value is compared with x itself. */
static void expect_quantize(const kernel_case *c, uint64_t t, float *w, double *out)
{
    (void)w;
    for (uint64_t i = 0; i < c->s.n; i++)
        out[i] = (double)c->host[0][t * c->s.n + i];
}

static void expect_rope(const kernel_case *c, uint64_t t, float *w, double *out)
{
    const float *x = c->host[1] + t * c->s.n;
    (void)w;
    for (uint64_t h = 0; h < c->s.n; h += HEAD)
        for (uint64_t j = 0; j < HEAD / 2; j++) {
            uint64_t a = h + (c->rope.neox ? j : 2 * j), b = c->rope.neox ? a + HEAD / 2 : a + 1;
            double angle = (double)c->pos[t] * c->inv_freq[j];
            out[a] = (double)x[a] * cos(angle) - (double)x[b] * sin(angle);
            out[b] = (double)x[a] * sin(angle) + (double)x[b] * cos(angle);
        }
}

static void expect_glu(const kernel_case *c, uint64_t t, float *w, double *out)
{
    bool relu2 = c->rec->format == BNET_FORMAT_RELU2;
    (void)w;
    for (uint64_t i = 0; i < c->s.n; i++) {
        double g = (double)c->host[0][t * c->s.n + i], u = (double)c->host[1][t * c->s.n + i];
        out[i] = relu2 ? (g > 0 ? g * g * u : 0) : g / (1 + exp(-g)) * u;
    }
}

static void expect_add(const kernel_case *c, uint64_t t, float *w, double *out)
{
    (void)w;
    for (uint64_t i = 0; i < c->s.n; i++)
        out[i] = (double)c->host[0][t * c->s.n + i] + (double)c->host[1][t * c->s.n + i];
}

/* The quantised values are compared with the normed sum, or product, itself. */
static void expect_add_norm(const kernel_case *c, uint64_t t, float *w, double *out)
{
    expect_add(c, t, w, out);
    norm_in_place(c, w, out);
}

static void expect_glu_norm(const kernel_case *c, uint64_t t, float *w, double *out)
{
    expect_glu(c, t, w, out);
    norm_in_place(c, w, out);
}

/* One query head over positions 0..t; k and v of its group begin at `at`, `step` floats apart. */
static void attend(const kernel_case *c, uint64_t t, const float *q, uint64_t at, uint64_t step,
                   double *out)
{
    double total = 0;
    memset(out, 0, HEAD * sizeof *out);
    for (uint64_t p = 0; p <= t; p++) {
        const float *k = c->host[0] + p * step + at, *v = c->host[1] + p * step + at;
        double dot = 0;
        for (int i = 0; i < HEAD; i++)
            dot += (double)q[i] * (double)k[i];
        double weight = exp(dot / sqrt((double)HEAD));
        total += weight;
        for (int i = 0; i < HEAD; i++)
            out[i] += weight * (double)v[i];
    }
    for (int i = 0; i < HEAD; i++)
        out[i] /= total;
}

static void expect_attention(const kernel_case *c, uint64_t t, float *w, double *out)
{
    uint64_t heads = c->s.n / HEAD, kv_heads = BNET_MAX(heads / 2, 1), group = heads / kv_heads;
    (void)w;
    for (uint64_t h = 0; h < heads; h++)
        attend(c, t, c->host[2] + t * c->s.n + h * HEAD, h / group * HEAD, kv_heads * HEAD,
               out + h * HEAD);
}

static const struct {
    bnet_op op;
    expect_fn expect;
} table[] = {
    {BNET_OP_HEAD_SCAN, expect_linear},
    {BNET_OP_LINEAR, expect_linear},
    {BNET_OP_RMSNORM, expect_norm},
    {BNET_OP_EMBED, expect_embed},
    {BNET_OP_QUANTIZE, expect_quantize},
    {BNET_OP_ROPE, expect_rope},
    {BNET_OP_GLU, expect_glu},
    {BNET_OP_KV_STORE, expect_attention},
    {BNET_OP_ATTENTION, expect_attention},
    {BNET_OP_ADD, expect_add},
    {BNET_OP_NORM_QUANTIZE, expect_norm},
    {BNET_OP_ADD_NORM_QUANTIZE, expect_add_norm},
    {BNET_OP_GLU_NORM_QUANTIZE, expect_glu_norm},
};

/* Half a step of int8; the loss of a cache of 16 or 8 bits; otherwise the rounding of floats. */
static double bound_of(const bnet_kernel_record *k)
{
    bool cache = k->op == BNET_OP_KV_STORE || k->op == BNET_OP_ATTENTION;
    if (bnet_case_quantizes(k))
        return 0.5001 / 127;
    if (cache && k->format == BNET_FORMAT_F16)
        return 2e-3;
    return cache && k->format == BNET_FORMAT_I8 ? 2e-2 : 1e-5;
}

static double got(const kernel_case *c, const void *y, const float *scales, uint64_t t, uint64_t i)
{
    return scales ? (double)((const int8_t *)y)[t * c->act.stride + i] * (double)scales[t]
                  : (double)((const float *)y)[t * c->s.n + i];
}

static void compare(kernel_case *c, expect_fn expect, float *w, double *want, bitnet_accuracy *a)
{
    bool quantize = bnet_case_quantizes(c->rec);
    size_t m = (size_t)c->s.m;
    const void *y =
        quantize ? bnet_op_read(c->be, c->act.q, m * c->act.stride) : bnet_case_result(c);
    const float *scales = quantize ? bnet_op_read(c->be, c->act.scale, m * sizeof *scales) : NULL;
    uint64_t n_rows = bnet_case_linear(c->rec) ? BNET_MIN(c->s.m, (uint64_t)MATRIX_ROWS) : c->s.m;
    bool there = y && (scales || !quantize); /* else the device failed */
    a->bound = bound_of(c->rec);
    a->verdict = there ? BITNET_VERDICT_PASS : BITNET_VERDICT_FAIL;
    a->max_error = there ? 0 : NAN;
    for (uint64_t t = 0; there && t < n_rows; t++) {
        double most = 0, off = 0;
        expect(c, t, w, want);
        for (uint64_t i = 0; i < c->s.n; i++) {
            double d = fabs(got(c, y, scales, t, i) - want[i]);
            most = BNET_MAX(most, fabs(want[i]));
            off = d > off || isnan(d) ? d : off;
        }
        off /= BNET_MAX(most, (double)FLT_MIN);
        a->max_error = off > a->max_error || isnan(off) ? off : a->max_error;
        if (!(off <= a->bound))
            a->verdict = BITNET_VERDICT_FAIL;
    }
}

bitnet_status bnet_validate_double(kernel_case *c, bitnet_accuracy *a, bitnet_error *err)
{
    expect_fn expect = NULL;
    for (size_t i = 0; i < BNET_COUNT(table); i++)
        if (table[i].op == c->rec->op)
            expect = table[i].expect;
    assert(expect); /* a case exists for these alone */
    float *w = bnet_alloc((size_t)BNET_MAX(c->s.k, c->s.n) * sizeof *w);
    double *want = bnet_alloc((size_t)c->s.n * sizeof *want);
    bitnet_status st = w && want ? BITNET_OK : bnet_no_memory(err, "validation");
    bnet_case_load(c);
    if (st == BITNET_OK)
        st = bnet_case_run(c, err);
    if (st == BITNET_OK) {
        compare(c, expect, w, want, a);
        snprintf(a->note, sizeof a->note, "%s; against %s",
                 bnet_case_head(c->rec)    ? "both stages of the head"
                 : bnet_case_fused(c->rec) ? "several operations in one"
                                           : "is the reference",
                 a->verdict == BITNET_VERDICT_PASS ? "plain sums in double"
                                                   : "plain sums in double it is wrong");
    }
    bnet_free(w);
    bnet_free(want);
    return st;
}
