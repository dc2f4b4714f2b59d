/* bench.c - measuring kernels for tuning: a weight and activations of a given shape, filled with
 * valid values, and one timed pass at a time through the same code that serves models. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/pack_q6.h"
#include "format/codec.h"

struct bnet_bench {
    cpu_backend *be;
    bnet_weight w;
    bnet_buffer q, scale, sum; /* int8 activations */
    bnet_act8 act;
    float *x; /* float activations */
    float *y;
    size_t m;
};

enum { SHAPE_MAX = 1 << 24, BYTES_MAX = 1 << 30 };

static uint32_t next_random(uint32_t *s)
{
    *s = *s * 1664525u + 1013904223u;
    return *s >> 8;
}

/* Codes 0, 1, 2 in every field. */
static void fill_ternary(bnet_bench *b, uint32_t *seed)
{
    size_t n = b->w.info.n_out * b->w.row_bytes;
    for (size_t i = 0; i < n; i++) {
        unsigned byte = 0;
        for (int f = 0; f < 4; f++)
            byte = byte << 2 | next_random(seed) % 3;
        b->w.owned[i] = (uint8_t)byte;
    }
}

/* Random floats through the type's own encoder, the first row copied to the others. */
static bool fill_float(bnet_bench *b, bnet_type type, uint32_t *seed)
{
    size_t n = b->w.info.n_in;
    for (size_t i = 0; i < n; i++)
        b->x[i] = (float)(next_random(seed) % 2001) / 1000.0f - 1.0f;
    if (!bnet_encode_row(type, b->x, b->w.owned, n))
        return false;
    for (size_t r = 1; r < b->w.info.n_out; r++)
        memcpy(b->w.owned + r * b->w.row_bytes, b->w.owned, b->w.row_bytes);
    return true;
}

static bool take(bnet_buffer *buf, size_t n, size_t size)
{
    *buf = (bnet_buffer){n * size, bnet_calloc(n, size)};
    return buf->data != NULL;
}

static bool allocate(bnet_bench *b)
{
    bnet_weight *w = &b->w;
    size_t k = w->info.n_in, n = w->info.n_out, stride = (k + 127) / 128 * 128;
    size_t rows = w->packed ? bnet_r16_groups(n) * BNET_R16_ROWS
                  : w->r4   ? bnet_q6r4_groups(n) * BNET_Q6R4_ROWS
                            : n;
    w->owned = bnet_calloc(rows, w->row_bytes);
    w->block_scales = w->block_scales ? bnet_calloc(n * (k / 256 + 1), sizeof(float)) : NULL;
    b->x = bnet_calloc(b->m * k, sizeof *b->x);
    b->y = bnet_calloc(b->m * n, sizeof *b->y);
    bool ok = take(&b->q, b->m * stride, 1) && take(&b->scale, b->m, sizeof(float)) &&
              take(&b->sum, b->m, sizeof(int32_t));
    b->act = (bnet_act8){&b->q, &b->scale, &b->sum, stride};
    w->data = w->owned;
    return ok && w->owned && b->x && b->y;
}

/* Rows of the query's format, or why there can be none. */
static bitnet_status plan(bnet_bench *b, const bnet_kernel_query *q, bnet_type *type,
                          bitnet_error *err)
{
    bnet_weight *w = &b->w;
    uint64_t row_bytes = 0;
    bool scaled = q->format == BNET_FORMAT_I2S_B256;
    w->packed = q->format == BNET_FORMAT_I2S_R16;
    w->r4 = q->format == BNET_FORMAT_Q6_K_R4; /* any bytes are groups of rows */
    const bnet_type_info *t = bnet_format_type(w->r4 ? BNET_FORMAT_Q6_K : q->format);
    if (q->op != BNET_OP_LINEAR)
        return bnet_fail(err, BITNET_ARGUMENT, "tuning: op '%s' is not tuned, only linear is",
                         bnet_op_name(q->op));
    if (q->m == 0 || q->n == 0 || q->k == 0 || q->m > SHAPE_MAX || q->n > SHAPE_MAX ||
        q->k > SHAPE_MAX)
        return bnet_fail(err, BITNET_ARGUMENT, "tuning: m %llu, n %llu, k %llu must be 1..%d",
                         (unsigned long long)q->m, (unsigned long long)q->n,
                         (unsigned long long)q->k, SHAPE_MAX);
    w->info = (bnet_weight_info){.n_in = q->k, .n_out = q->n, .scale = 1};
    w->info.ternary = scaled || w->packed || q->format == BNET_FORMAT_I2S;
    if (w->info.ternary && q->k % (scaled ? 256 : 128) == 0)
        row_bytes = q->k / 4;
    else if (!w->info.ternary && t && bnet_can_decode(t->type))
        bnet_type_bytes(t->type, q->k, 1, &row_bytes);
    if (row_bytes == 0 || row_bytes > BYTES_MAX / q->n || q->k > BYTES_MAX / q->m / 4 ||
        q->n > BYTES_MAX / q->m / 4)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "tuning: no weight of format '%s' and shape n %llu, k %llu, m %llu can be "
                         "made to measure with",
                         bnet_format_name(q->format), (unsigned long long)q->n,
                         (unsigned long long)q->k, (unsigned long long)q->m);
    w->row_bytes = (size_t)row_bytes;
    w->block_scales = scaled ? &w->info.scale : NULL; /* allocated next */
    *type = t ? t->type : BNET_I2_S;
    w->info.type = *type;
    return BITNET_OK;
}

static bool fill(bnet_bench *b, bnet_type type)
{
    uint32_t seed = 1;
    bool ok = true;
    if (b->w.info.ternary)
        fill_ternary(b, &seed);
    else
        ok = fill_float(b, type, &seed);
    for (size_t i = 0; i < b->m * b->w.info.n_in; i++)
        b->x[i] = (float)(next_random(&seed) % 2001) / 1000.0f - 1.0f;
    int8_t *q = b->q.data;
    for (size_t t = 0; t < b->m; t++) {
        int32_t sum = 0;
        for (size_t i = 0; i < b->w.info.n_in; i++)
            sum += q[t * b->act.stride + i] = (int8_t)(next_random(&seed) % 255 - 127);
        ((int32_t *)b->sum.data)[t] = sum;
        ((float *)b->scale.data)[t] = 1;
    }
    return ok;
}

bitnet_status bnet_cpu_bench_new(bnet_backend *backend, const bnet_kernel_query *q,
                                 bnet_bench **out, bitnet_error *err)
{
    bnet_bench *b = bnet_calloc(1, sizeof *b);
    bnet_type type = BNET_F32;
    if (!b)
        return bnet_no_memory(err, "tuning");
    b->be = (cpu_backend *)backend;
    bitnet_status st = plan(b, q, &type, err);
    if (st != BITNET_OK) {
        bnet_free(b);
        return st;
    }
    b->m = (size_t)q->m;
    if (!allocate(b))
        st = bnet_no_memory(err, "tuning");
    else if (!fill(b, type))
        st = bnet_fail(err, BITNET_ARGUMENT, "tuning: format '%s' has no encoder",
                       bnet_format_name(q->format));
    if (st != BITNET_OK) {
        bnet_cpu_bench_free(b);
        return st;
    }
    *out = b;
    return BITNET_OK;
}

double bnet_cpu_bench_run(bnet_bench *b, const bnet_kernel_record *k, bitnet_launch *shape)
{
    (void)shape;
    double start = bnet_now_ms();
    bnet_cpu_linear_with(b->be, &b->w, k, b->w.info.ternary ? &b->act : NULL, b->x, b->m, b->y);
    return bnet_now_ms() - start;
}

void bnet_cpu_bench_free(bnet_bench *b)
{
    if (!b)
        return;
    bnet_free(b->w.owned);
    bnet_free(b->w.block_scales);
    bnet_free(b->q.data);
    bnet_free(b->scale.data);
    bnet_free(b->sum.data);
    bnet_free(b->x);
    bnet_free(b->y);
    bnet_free(b);
}
