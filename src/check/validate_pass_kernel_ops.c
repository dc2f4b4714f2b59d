/* validate_pass_kernel_ops.c - the operations of kernels that serve inside whole passes: data, the
 * same by single operations, the call of the kernel itself, and what counts as the same. Integers,
 * bytes and order are exact. */
#include "check/validate_pass_kernels.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- comparing ---- */

static void differs(pair *p, const char *what, size_t row, size_t i, double got, double want)
{
    if (!p->differs)
        snprintf(p->note, sizeof p->note, "%s: row %zu, element %zu is %.9g instead of %.9g", what,
                 row, i, got, want);
    p->differs = true;
}

static const void *result(pair *p, int side, int buffer)
{
    kernel_case *c = &p->side[side];
    const void *view = bnet_op_read(c->be, c->buf[buffer], c->n_bytes[buffer]);
    if (!view)
        differs(p, "cannot be read", 0, 0, NAN, NAN);
    return view;
}

static void float_row(pair *p, const char *what, size_t row, const float *a, const float *b,
                      size_t n)
{
    bool exact = memcmp(a, b, n * sizeof *a) == 0;
    bnet_difference d = bnet_difference_of(a, b, n);
    double share = exact ? 0 : d.off / BNET_MAX(d.most, (double)FLT_MIN);
    p->n_values += n;
    p->worst = isnan(share) || share > p->worst ? share : p->worst;
    if (!exact && !(p->ulps > 0 && share <= p->ulps * BNET_ULP))
        differs(p, what, row, d.at, (double)a[d.at], (double)b[d.at]);
}

static void float_rows(pair *p, int buffer, size_t n_cols)
{
    const float *a = result(p, 0, buffer), *b = result(p, 1, buffer);
    size_t n_rows = p->side[0].n_bytes[buffer] / sizeof *a / n_cols;
    for (size_t r = 0; a && b && r < n_rows; r++)
        float_row(p, "result", r, a + r * n_cols, b + r * n_cols, n_cols);
}

static void compare_result(pair *p)
{
    float_rows(p, p->side[0].result, (size_t)p->side[0].s.n);
}

/* Codes are equal, except where the value is so close to a rounding tie that the accepted error of
 * the floats before it may decide; sums are those of the codes. */
static void act_row(pair *p, size_t row, const int8_t *a, const int8_t *b, const float *x,
                    float scale, int32_t sum)
{
    const kernel_case *c = &p->side[0];
    double tie = BNET_MAX(1e-5, 2 * 127 * p->ulps * BNET_ULP);
    int32_t total = 0;
    p->n_values += c->act.stride;
    for (size_t i = 0; i < c->act.stride; i++) {
        double v = i < (size_t)c->s.n ? fabs((double)x[i] / (double)scale) : 0;
        total += a[i];
        if (a[i] == b[i])
            continue;
        if (abs(a[i] - b[i]) == 1 && fabs(v - floor(v) - 0.5) <= tie)
            p->n_ties++;
        else
            differs(p, "int8", row, i, a[i], b[i]);
    }
    if (sum != total)
        differs(p, "sum", row, 0, sum, total);
}

static void compare_act(pair *p)
{
    const void *q[2], *scale[2], *sum[2];
    size_t m = (size_t)p->side[0].s.m, stride = p->side[0].act.stride;
    const float *normed = result(p, 1, 1); /* what the reference quantised */
    for (int i = 0; i < 2; i++) {
        kernel_case *c = &p->side[i];
        q[i] = bnet_op_read(c->be, c->act.q, m * stride);
        scale[i] = bnet_op_read(c->be, c->act.scale, m * sizeof(float));
        sum[i] = bnet_op_read(c->be, c->act.sum, m * sizeof(int32_t));
        if (!q[i] || !scale[i] || !sum[i] || !normed) {
            differs(p, "cannot be read", 0, 0, NAN, NAN);
            return;
        }
    }
    for (size_t r = 0; r < m; r++) {
        const float *s[2] = {(const float *)scale[0] + r, (const float *)scale[1] + r};
        float_row(p, "scale", r, s[0], s[1], 1);
        act_row(p, r, (const int8_t *)q[0] + r * stride, (const int8_t *)q[1] + r * stride,
                normed + r * p->side[0].s.n, *s[1], ((const int32_t *)sum[0])[r]);
    }
}

static void compare_bytes(pair *p, const char *what, size_t row, const uint8_t *a, const uint8_t *b,
                          size_t n)
{
    p->n_values += n;
    for (size_t i = 0; i < n && !p->differs; i++)
        if (a[i] != b[i])
            differs(p, what, row, i, a[i], b[i]);
}

/* Every byte of the cache, and the rotated queries. */
static void compare_cache(pair *p)
{
    kernel_case *c = p->side;
    size_t n = (size_t)bnet_kv_layer_bytes(&c[1].kv_shape);
    uint8_t *a = bnet_alloc(n), *b = bnet_alloc(n);
    for (int i = 0; a && b && i < c->kv_shape.n_blocks; i++) {
        bnet_op_kv_get(c[0].be, c[0].kv, 0, i, a);
        bnet_op_kv_get(c[1].be, c[1].kv, 0, i, b);
        compare_bytes(p, "cache block", (size_t)i, a, b, n);
    }
    if (!a || !b)
        differs(p, "no memory", 0, 0, NAN, NAN);
    bnet_free(a);
    bnet_free(b);
    compare_result(p);
}

static void compare_ids(pair *p)
{
    const uint8_t *a = result(p, 0, 2), *b = result(p, 1, 2);
    if (a && b)
        compare_bytes(p, "byte of the ids", 0, a, b, p->side[0].n_bytes[2]);
}

static void compare_best(pair *p)
{
    const float *a = result(p, 0, 1), *b = result(p, 1, 1);
    const int32_t *ids = result(p, 1, 2);
    compare_ids(p);
    for (size_t r = 0, n; a && b && ids && r < (size_t)p->side[0].s.m; r++) {
        const size_t at = r * BNET_BEST;
        for (n = 0; n < BNET_BEST && ids[at + n] >= 0; n++)
            ;
        float_row(p, "value", r, a + at, b + at, n);
    }
}

/* ---- norms and tiles ---- */

static const float eps = 1e-5f;

static bool call(kernel_case *c, bnet_kernel_call a)
{
    a.kernel = c->rec;
    a.step = &c->step;
    a.rope = &c->rope;
    a.w = c->w;
    a.act = &c->act;
    a.m = (int)c->s.m;
    a.n = (size_t)c->s.n;
    a.n_heads = c->kv ? c->kv_shape.n_heads : 0;
    a.eps = eps;
    return bnet_kernel_call_run(c->be, &a);
}

static void run_norm_quantize(kernel_case *c)
{
    bnet_op_rmsnorm(c->be, c->buf[0], c->w, eps, (int)c->s.m, c->buf[1]);
    bnet_op_quantize_i8(c->be, c->buf[1], (int)c->s.m, (size_t)c->s.n, &c->act);
}

static bool alone_norm(kernel_case *c)
{
    return call(c, (bnet_kernel_call){.x = c->buf[0]});
}

static bool open_tiles(kernel_case *c)
{
    const char *skip = NULL;
    return bnet_case_weight(c, &skip, NULL) == BITNET_OK && !skip && bnet_case_matrix(c);
}

static void run_tiles(kernel_case *c)
{
    bnet_op_linear_ternary(c->be, c->w, &c->act, (int)c->s.m, c->buf[0]);
}

static bool alone_tiles(kernel_case *c)
{
    return call(c, (bnet_kernel_call){.y = c->buf[0], .way = c->variant});
}

/* ---- cache and attention; the shape's k is the width of a head ---- */

/* Buffers: keys, values, table, queries. */
static bool open_append(kernel_case *c)
{
    return bnet_case_cache(c) && bnet_case_rope(c);
}

static void rotate(kernel_case *c, int n_heads, int buffer)
{
    bnet_op_rope(c->be, &c->rope, c->buf[2], (int)c->s.m, n_heads, c->buf[buffer]);
}

/* The other way: without the queries. */
static void run_append(kernel_case *c)
{
    bnet_op_rope_table(c->be, &c->rope, &c->step, c->buf[2]);
    if (!c->other)
        rotate(c, c->kv_shape.n_heads, 3);
    rotate(c, c->kv_shape.n_kv_heads, 0);
    bnet_op_kv_append(c->be, &c->step, 0, c->buf[0], c->buf[1]);
}

static bool alone_append(kernel_case *c)
{
    bnet_op_rope_table(c->be, &c->rope, &c->step, c->buf[2]);
    return call(
        c, (bnet_kernel_call){
               .x = c->other ? NULL : c->buf[3], .k = c->buf[0], .v = c->buf[1], .cs = c->buf[2]});
}

/* The same and the result. */
static bool open_prefill(kernel_case *c)
{
    return open_append(c) && bnet_case_buffer(c, (size_t)(c->s.m * c->s.n), false);
}

/* The other way: queries are rotated inside. */
static void run_prefill(kernel_case *c)
{
    bnet_op_rope_table(c->be, &c->rope, &c->step, c->buf[2]);
    if (c->other)
        rotate(c, c->kv_shape.n_heads, 3);
    bnet_op_kv_append(c->be, &c->step, 0, c->buf[0], c->buf[1]);
    bnet_op_attention(c->be, &c->step, 0, c->kv_shape.n_heads, c->buf[3], c->buf[4]);
}

static bool alone_prefill(kernel_case *c)
{
    bnet_op_rope_table(c->be, &c->rope, &c->step, c->buf[2]);
    bnet_op_kv_append(c->be, &c->step, 0, c->buf[0], c->buf[1]);
    return call(
        c, (bnet_kernel_call){.x = c->buf[3], .y = c->buf[4], .cs = c->other ? c->buf[2] : NULL});
}

/* Of single tokens: no rotation. The other way: only the last token attends, with the first row of
 * queries, so that several blocks of a device share its context. */
static void run_attention(kernel_case *c)
{
    bnet_step s = c->step;
    bnet_op_kv_append(c->be, &s, 0, c->buf[0], c->buf[1]);
    if (c->other) {
        s.ids += s.n_tokens - 1;
        s.pos += s.n_tokens - 1;
        s.seq += s.n_tokens - 1;
        s.n_tokens = 1;
        c->n_bytes[c->result] = (size_t)c->s.n * sizeof(float);
    }
    bnet_op_attention(c->be, &s, 0, c->kv_shape.n_heads, c->buf[2], c->buf[3]);
}

/* ---- the step ---- */

static bool open_step(kernel_case *c)
{
    if (!bnet_case_cache(c) || !bnet_case_buffer(c, 3 * (size_t)c->s.m, false))
        return false;
    for (uint64_t i = 0; i < c->s.m; i++)
        c->ids[i] = (int32_t)(1000 * i + 7);
    return true;
}

static void run_step(kernel_case *c)
{
    size_t m = (size_t)c->s.m;
    const int32_t *lists[] = {c->ids, c->pos, c->seq};
    int32_t *all = bnet_alloc(3 * m * sizeof *all);
    for (size_t i = 0; all && i < BNET_COUNT(lists); i++)
        memcpy(all + i * m, lists[i], m * sizeof *all);
    if (all)
        bnet_op_write(c->be, c->buf[2], all, 3 * m * sizeof *all);
    bnet_free(all);
}

static bool alone_step(kernel_case *c)
{
    return call(c, (bnet_kernel_call){.ids = c->buf[2]});
}

/* ---- the best of a row; fills: random, ties, extremes ---- */

static float awkward(uint64_t i)
{
    static const float values[] = {-FLT_MAX, FLT_MAX, 0.0f,   FLT_MIN,
                                   -FLT_MIN, 1e-42f,  -1e30f, 1e30f};
    return values[i % BNET_COUNT(values)];
}

static bool open_best(kernel_case *c)
{
    size_t n = (size_t)(c->s.m * c->s.n), best = (size_t)c->s.m * BNET_BEST;
    bool ok = bnet_case_buffer(c, n, true) && bnet_case_buffer(c, best, false) &&
              bnet_case_buffer(c, best, false);
    for (size_t i = 0; ok && i < n; i++) {
        uint64_t r = bnet_case_random(&c->seed);
        if (c->fill == CASE_EXTREME_PLUS) /* few values, each many times */
            c->host[0][i] = (float)(r % 5) - 2.5f;
        if (c->fill == CASE_EXTREME_MINUS)
            c->host[0][i] = r % 3 ? awkward(r / 3) : (float)(r % 1000);
    }
    return ok;
}

static void best_of(const float *x, size_t n, float *value, int32_t *id)
{
    size_t have = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(x[i]) || (have == BNET_BEST && !(x[i] > value[have - 1])))
            continue;
        size_t at = have < BNET_BEST ? have++ : have - 1;
        for (; at > 0 && x[i] > value[at - 1]; at--) {
            value[at] = value[at - 1];
            id[at] = id[at - 1];
        }
        value[at] = x[i];
        id[at] = (int32_t)i;
    }
}

static void write_best(kernel_case *c, const float *x)
{
    size_t n = (size_t)c->s.m * BNET_BEST, cols = (size_t)c->s.n;
    float *value = bnet_calloc(n, sizeof *value);
    int32_t *id = bnet_alloc(n * sizeof *id);
    if (value && id) {
        memset(id, -1, n * sizeof *id);
        for (size_t r = 0; r < (size_t)c->s.m; r++)
            best_of(x + r * cols, cols, value + r * BNET_BEST, id + r * BNET_BEST);
        bnet_op_write(c->be, c->buf[1], value, n * sizeof *value);
        bnet_op_write(c->be, c->buf[2], id, n * sizeof *id);
    }
    bnet_free(value);
    bnet_free(id);
}

static void run_best(kernel_case *c)
{
    write_best(c, c->host[0]);
}

static bool alone_best(kernel_case *c)
{
    return call(c, (bnet_kernel_call){.x = c->buf[0], .y = c->buf[1], .ids = c->buf[2]});
}

/* ---- the best logits of a head; fills: random, integers (all sums are exact, many are equal), the
 * same with rows that are not finite ---- */

static bool whole_rows(kernel_case *c)
{
    uint64_t row_bytes = c->tensor.n_bytes / c->s.n;
    float *x = bnet_alloc((size_t)c->s.k * sizeof *x);
    bool ok = x != NULL;
    for (uint64_t r = 0; ok && r < c->s.n; r++) {
        for (uint64_t i = 0; i < c->s.k; i++)
            x[i] = (float)((int)(bnet_case_random(&c->seed) % 7) - 3);
        if (c->fill == CASE_EXTREME_MINUS && r % 50 == 3)
            x[r % c->s.k] = r % 100 == 3 ? INFINITY : NAN;
        ok = bnet_encode_row(c->tensor.type, x, c->bytes + r * row_bytes, (size_t)c->s.k);
    }
    bnet_free(x);
    return ok;
}

/* Buffers: x, values, ids, all logits. */
static bool open_screen(kernel_case *c)
{
    const char *skip = NULL;
    size_t n = (size_t)(c->s.m * c->s.k), best = (size_t)c->s.m * BNET_BEST;
    bool ok = bnet_case_weight(c, &skip, NULL) == BITNET_OK && !skip &&
              (c->fill == CASE_RANDOM || whole_rows(c)) && bnet_case_buffer(c, n, true) &&
              bnet_case_buffer(c, best, false) && bnet_case_buffer(c, best, false) &&
              bnet_case_buffer(c, (size_t)(c->s.m * c->s.n), false);
    for (size_t i = 0; ok && c->fill != CASE_RANDOM && i < n; i++)
        c->host[0][i] = (float)((int)(bnet_case_random(&c->seed) % 9) - 4);
    return ok;
}

static void run_screen(kernel_case *c)
{
    bnet_op_linear_float(c->be, c->w, c->buf[0], (int)c->s.m, c->buf[3]);
    const float *logits = bnet_op_read(c->be, c->buf[3], c->n_bytes[3]);
    if (logits)
        write_best(c, logits);
}

/* ---- single operations that no other case looks at ---- */

static bool open_gather(kernel_case *c)
{
    size_t n = (size_t)(c->s.m * c->s.n);
    c->ids = bnet_alloc((size_t)c->s.m * sizeof *c->ids);
    for (uint64_t i = 0; c->ids && i < c->s.m; i++)
        c->ids[i] = (int32_t)((5 * i + 2) % c->s.m); /* no two rows in their order */
    return c->ids && bnet_case_buffer(c, n, true) && bnet_case_buffer(c, n, false);
}

static void run_gather(kernel_case *c)
{
    bnet_op_gather(c->be, c->buf[0], c->ids, (int)c->s.m, (size_t)c->s.n, c->buf[1]);
}

static bool open_table(kernel_case *c)
{
    bool ok = bnet_case_rope(c);
    for (uint64_t i = 0; ok && i < c->s.m; i++)
        c->pos[i] = (int32_t)(41 * i); /* beyond the angles that a device makes when it opens */
    c->result = 0;
    return ok;
}

static void run_table(kernel_case *c)
{
    bnet_op_rope_table(c->be, &c->rope, &c->step, c->buf[0]);
}

static void compare_table(pair *p)
{
    float_rows(p, 0, (size_t)p->side[0].head);
}

/* Rows of floats come back as embeddings; ternary ones as products with unit vectors. */
static const bnet_format packed[] = {BNET_FORMAT_I2S,  BNET_FORMAT_F32,  BNET_FORMAT_F16,
                                     BNET_FORMAT_BF16, BNET_FORMAT_Q8_0, BNET_FORMAT_Q4_0,
                                     BNET_FORMAT_Q6_K};

static bool open_pack(kernel_case *c)
{
    bnet_format type = packed[c->variant];
    if (type != BNET_FORMAT_I2S)
        return bnet_case_embedding(c, type);
    bnet_kernel_record ternary = *c->rec;
    const bnet_kernel_record *rec = c->rec;
    const char *skip = NULL;
    ternary.format = type;
    ternary.dtype = BNET_DTYPE_I8;
    c->rec = &ternary;
    bool ok = bnet_case_weight(c, &skip, NULL) == BITNET_OK && !skip && bnet_case_matrix(c);
    c->rec = rec;
    for (uint64_t t = 0; ok && t < c->s.m; t++) {
        memset(c->q + t * c->act.stride, 0, c->act.stride);
        c->q[t * c->act.stride + t % c->s.k] = 1;
        c->sums[t] = 1;
    }
    return ok;
}

static void run_pack(kernel_case *c)
{
    if (c->act.q)
        run_tiles(c);
    else
        bnet_op_embed(c->be, c->w, &c->step, c->buf[0]);
}

static const kernel_op ops[] = {
    {BNET_OP_NORM_QUANTIZE, bnet_case_norm_quantize, run_norm_quantize, alone_norm, compare_act},
    {BNET_OP_NORM_TILES, bnet_case_norm_quantize, run_norm_quantize, alone_norm, compare_act},
    {BNET_OP_LINEAR_TILES, open_tiles, run_tiles, alone_tiles, compare_result},
    {BNET_OP_ROPE_APPEND, open_append, run_append, alone_append, compare_cache},
    {BNET_OP_PREFILL, open_prefill, run_prefill, alone_prefill, compare_result},
    {BNET_OP_ATTENTION, bnet_case_attention, run_attention, NULL, compare_result},
    {BNET_OP_STEP, open_step, run_step, alone_step, compare_ids},
    {BNET_OP_TOPK, open_best, run_best, alone_best, compare_best},
    {BNET_OP_BEST, open_screen, run_screen, alone_best, compare_best},
    {BNET_OP_GATHER, open_gather, run_gather, NULL, compare_result},
    {BNET_OP_ROPE_TABLE, open_table, run_table, NULL, compare_table},
    {BNET_OP_PACK, open_pack, run_pack, NULL, compare_result},
};

const kernel_op *bnet_kernel_op(bnet_op op)
{
    for (size_t i = 0; i < BNET_COUNT(ops); i++)
        if (ops[i].op == op)
            return &ops[i];
    return NULL;
}
