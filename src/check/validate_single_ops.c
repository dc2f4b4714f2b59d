/* validate_single_ops.c - kernels of single operations (bitnet_single_op) on several shapes,
 * against the scalar functions of the CPU on the same made-up data. */
#include "check/validate.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

enum { CODES = 65536, SCALES = 5, ROWS = 7 };

static const case_shape matrices[] = {{1, 8, 64}, {64, 64, 64}, {33, 40, 130}, {256, 128, 512}};
static const case_shape vectors[] = {{1, 1003, 0}, {1, CODES, 0}};
static const case_shape rows[] = {{ROWS, 1, 0}, {ROWS, 1000, 0}};

typedef struct kind {
    bnet_op op;
    bitnet_single_kind plain;
    bnet_format formats[6]; /* the index is the type of the call; NONE: only one */
    const case_shape *shapes;
    size_t n_shapes;
} kind;

static const kind kinds[] = {
    {BNET_OP_MATMUL, BITNET_SINGLE_MATMUL, {0}, matrices, BNET_COUNT(matrices)},
    {BNET_OP_TERNARISE,
     BITNET_SINGLE_QUANTIZE,
     {BNET_FORMAT_I2S, BNET_FORMAT_TL1, BNET_FORMAT_TL2},
     vectors,
     BNET_COUNT(vectors)},
    {BNET_OP_GEMV, BITNET_SINGLE_QK256, {0}, matrices, BNET_COUNT(matrices)},
    {BNET_OP_CONVERT, BITNET_SINGLE_CONVERT, {0}, vectors, BNET_COUNT(vectors)},
    {BNET_OP_VECTOR,
     BITNET_SINGLE_VECTOR,
     {BNET_FORMAT_ADD, BNET_FORMAT_MUL, BNET_FORMAT_RELU2, BNET_FORMAT_SILU, BNET_FORMAT_GLU_RELU2,
      BNET_FORMAT_GLU_SILU},
     vectors,
     BNET_COUNT(vectors)},
    {BNET_OP_SOFTMAX, BITNET_SINGLE_SOFTMAX, {0}, rows, BNET_COUNT(rows)},
    {BNET_OP_ARGMAX, BITNET_SINGLE_ARGMAX, {0}, rows, BNET_COUNT(rows)}};

static const kind *kind_of(const bnet_kernel_record *k)
{
    for (size_t i = 0; i < BNET_COUNT(kinds); i++)
        if (kinds[i].op == k->op)
            return &kinds[i];
    return NULL;
}

bool bnet_case_single(const bnet_kernel_record *k)
{
    return kind_of(k) != NULL;
}

/* ---- data ---- */

typedef struct plain_case {
    bitnet_single_op call;
    uint8_t *in[3], *out[2], *want[2];
} plain_case;

static void close_case(plain_case *c)
{
    for (int i = 0; i < 3; i++)
        bnet_free(c->in[i]);
    for (int i = 0; i < 2; i++) {
        bnet_free(c->out[i]);
        bnet_free(c->want[i]);
    }
}

/* A float in -2..2, of either sign. */
static float random_float(uint64_t *seed)
{
    return (float)((int)(bnet_case_random(seed) % 4001) - 2000) / 1000.0f;
}

static bool add_input(plain_case *c, int i, size_t n_bytes, bool floats, uint64_t *seed)
{
    uint8_t *p = c->in[i] = bnet_alloc(BNET_MAX(n_bytes, 1));
    for (size_t k = 0; p && floats && k < n_bytes / 4; k++) {
        float f = random_float(seed);
        memcpy(p + 4 * k, &f, 4);
    }
    for (size_t k = 0; p && !floats && k < n_bytes; k++)
        p[k] = (uint8_t)bnet_case_random(seed);
    c->call.in[i] = p;
    c->call.in_bytes[i] = n_bytes;
    return p != NULL;
}

static bool add_output(plain_case *c, int i, size_t n_bytes)
{
    c->out[i] = bnet_calloc(BNET_MAX(n_bytes, 1), 1);
    c->want[i] = bnet_calloc(BNET_MAX(n_bytes, 1), 1);
    c->call.out[i] = c->out[i];
    c->call.out_bytes[i] = n_bytes;
    return c->out[i] && c->want[i];
}

static bool add_codes(plain_case *c, size_t n, uint64_t *seed)
{
    bool ok = add_input(c, 1, n, false, seed);
    for (size_t i = 0; ok && i < n; i++)
        c->in[1][i] %= 5;
    return ok;
}

/* Every pattern of 16 bits, or floats whose upper half is every pattern. */
static bool add_patterns(plain_case *c, bool narrow, size_t n, uint64_t *seed)
{
    bool ok = add_input(c, 0, n * (narrow ? 4 : 2), false, seed);
    for (size_t i = 0; ok && i < n; i++) {
        uint32_t f = (uint32_t)(i & 0xffff) << 16 | (uint32_t)(bnet_case_random(seed) & 0xffff);
        uint16_t h = (uint16_t)i;
        if (narrow)
            memcpy(c->in[0] + 4 * i, &f, 4);
        else
            memcpy(c->in[0] + 2 * i, &h, 2);
    }
    return ok && add_output(c, 0, n * (narrow ? 2 : 4));
}

static int conversion_of(const bnet_kernel_record *k)
{
    if (k->format != BNET_FORMAT_F32)
        return k->format == BNET_FORMAT_F16 ? BITNET_F32_TO_F16 : BITNET_F32_TO_BF16;
    return k->dtype == BNET_DTYPE_F16 ? BITNET_F16_TO_F32 : BITNET_BF16_TO_F32;
}

static bool open_matrix(plain_case *c, const bnet_kernel_record *k, uint64_t *seed)
{
    bitnet_single_op *p = &c->call;
    bool i2s = k->format == BNET_FORMAT_I2S;
    p->precision = bnet_validate_precision(k);
    if (i2s)
        p->op = BITNET_SINGLE_MATMUL_I2S;
    return add_input(c, 0, p->m * p->k * (i2s ? 1 : 4), !i2s, seed) &&
           (i2s ? add_codes(c, p->k * p->n, seed) : add_input(c, 1, p->k * p->n * 4, true, seed)) &&
           add_output(c, 0, p->m * p->n * 4);
}

static bool open_case(plain_case *c, const kind *t, const bnet_kernel_record *k, case_shape s)
{
    uint64_t seed = 5;
    bitnet_single_op *p = &c->call;
    *c = (plain_case){.call = {.op = t->plain, .m = s.m, .n = s.n, .k = s.k}};
    while (t->formats[p->type] && t->formats[p->type] != k->format)
        p->type++;
    switch (t->plain) {
    case BITNET_SINGLE_MATMUL:
        return open_matrix(c, k, &seed);
    case BITNET_SINGLE_QUANTIZE:
        p->k = SCALES;
        p->m = (p->n + SCALES - 1) / SCALES;
        return add_input(c, 0, p->n * 4, true, &seed) &&
               add_output(c, 0, bnet_ref_quantized_bytes((bitnet_qtype)p->type, p->n)) &&
               add_output(c, 1, SCALES * 4);
    case BITNET_SINGLE_QK256:
        return add_input(c, 0, p->m * ((p->k + 255) / 256) * 64, false, &seed) &&
               add_input(c, 1, p->m * ((p->k + 255) / 256) * 4, true, &seed) &&
               add_input(c, 2, p->k * 4, true, &seed) && add_output(c, 0, p->m * 4);
    case BITNET_SINGLE_CONVERT:
        p->type = conversion_of(k);
        return add_patterns(c, p->type <= BITNET_F32_TO_BF16, p->n, &seed);
    case BITNET_SINGLE_ARGMAX:
        return add_input(c, 0, p->m * p->n * 4, true, &seed) && add_output(c, 0, p->m * 4);
    default:
        return add_input(c, 0, p->m * p->n * 4, true, &seed) &&
               (t->plain != BITNET_SINGLE_VECTOR || p->type == BITNET_VECTOR_RELU2 ||
                p->type == BITNET_VECTOR_SILU || add_input(c, 1, p->n * 4, true, &seed)) &&
               add_output(c, 0, p->m * p->n * 4);
    }
}

/* ---- judging ---- */

static void judge(const plain_case *c, bitnet_accuracy *a)
{
    const bitnet_single_op *p = &c->call;
    bool equal = memcmp(c->out[0], c->want[0], p->out_bytes[0]) == 0 &&
                 (!p->out_bytes[1] || memcmp(c->out[1], c->want[1], p->out_bytes[1]) == 0);
    a->verdict = BITNET_VERDICT_PASS;
    snprintf(a->note, sizeof a->note, "against the scalar function, %zu bytes",
             p->out_bytes[0] + p->out_bytes[1]);
    if (equal)
        return;
    bnet_difference d = {0};
    if (a->bound > 0)
        d = bnet_difference_of((const float *)(const void *)c->out[0],
                               (const float *)(const void *)c->want[0], p->out_bytes[0] / 4);
    a->max_error = d.off / BNET_MAX(d.most, (double)FLT_MIN);
    if (a->bound > 0 && a->max_error <= a->bound)
        return;
    a->verdict = BITNET_VERDICT_FAIL;
    snprintf(a->note, sizeof a->note, "differs from the scalar function by up to %g", d.off);
}

/* Products of 16-bit floats are compared with products of the same values in 32 bits. */
static bool round_inputs(plain_case *c)
{
    const bnet_provider *p = bnet_provider_find("fallback");
    bool bf16 = c->call.precision == BITNET_PRECISION_BF16, ok = true;
    for (int i = 0; ok && i < 2 && c->call.precision != BITNET_PRECISION_FP32; i++) {
        size_t n = c->call.in_bytes[i] / 4;
        uint16_t *half = bnet_alloc(n * sizeof *half);
        bitnet_single_op down = {.op = BITNET_SINGLE_CONVERT,
                                 .n = n,
                                 .in = {c->in[i]},
                                 .out = {half}},
                         up = {
                             .op = BITNET_SINGLE_CONVERT, .n = n, .in = {half}, .out = {c->in[i]}};
        down.type = bf16 ? BITNET_F32_TO_BF16 : BITNET_F32_TO_F16;
        up.type = bf16 ? BITNET_BF16_TO_F32 : BITNET_F16_TO_F32;
        ok = half && bnet_provider_run(p, NULL, &down, NULL) == BITNET_OK &&
             bnet_provider_run(p, NULL, &up, NULL) == BITNET_OK;
        bnet_free(half);
    }
    return ok;
}

static bitnet_status run(validation_run *r, forced_kernel *f, plain_case *c, bitnet_accuracy *a)
{
    bitnet_status st = bnet_single_run(f->be, &c->call, 1, r->err);
    if (st != BITNET_OK)
        return st;
    if (strcmp(c->call.kernel, f->k->id) != 0) {
        bnet_validate_note(a, BITNET_VERDICT_FAIL, NOT_CALLED);
        return BITNET_OK;
    }
    bitnet_single_op want = c->call;
    want.out[0] = c->want[0];
    want.out[1] = c->want[1];
    st = round_inputs(c) ? bnet_provider_run(bnet_provider_find("fallback"), NULL, &want, r->err)
                         : bnet_no_memory(r->err, "validation");
    if (st == BITNET_OK)
        judge(c, a);
    return st;
}

static bitnet_status check(validation_run *r, forced_kernel *f, const void *which,
                           bitnet_accuracy *a)
{
    plain_case c;
    bitnet_status st =
        open_case(&c, which, f->k, f->s) ? run(r, f, &c, a) : bnet_no_memory(r->err, "validation");
    close_case(&c);
    return st;
}

bitnet_status bnet_validate_single_op(validation_run *r, const bnet_kernel_record *k)
{
    const kind *t = kind_of(k);
    bitnet_status st = BITNET_OK;
    for (size_t i = 0; st == BITNET_OK && i < t->n_shapes; i++) {
        bitnet_accuracy *a = bnet_validate_row(r, k, t->shapes[i]);
        st = a ? bnet_validate_forced(r, k, t->shapes[i], check, t, a) : BITNET_MEMORY;
    }
    return st;
}
