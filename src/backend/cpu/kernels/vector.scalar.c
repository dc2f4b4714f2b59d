/* vector.scalar.c - the operations on single vectors: norm, quantisation, rope, gates, sums,
 * embedding rows, positions of the cache. */
#include "backend/cpu/kernels/vector_rows.h"
#include "format/codec.h"

void bnet_embed_row_scalar(bnet_type type, const uint8_t *row, size_t n_cols, float *y)
{
    bool known = bnet_decode_part(type, row, 0, n_cols, y);
    assert(known);
    (void)known;
}

/* Sum of squares in eight running sums folded 4, 2, 1. */
void bnet_rmsnorm_f32_scalar(const float *x, const float *w, size_t n, float eps, float *y)
{
    double acc[8] = {0};
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (size_t l = 0; l < 8; l++)
            acc[l] += (double)x[i + l] * x[i + l];
    for (size_t l = 0; i + l < n; l++)
        acc[l] += (double)x[i + l] * x[i + l];
    for (int f = 4; f >= 1; f /= 2)
        for (int l = 0; l < f; l++)
            acc[l] += acc[l + f];
    norm_from(x, w, 0, n, norm_scale(acc[0], n, eps), y);
}

float bnet_quantize_i8_scalar(const float *x, size_t n, size_t stride, int8_t *q, int32_t *sum)
{
    float amax = amax_from(x, 0, n, 1e-5f);
    *sum = quantize_from(x, 0, n, 127.0 / (double)amax, q);
    memset(q + n, 0, stride - n);
    return amax / 127.0f;
}

/* Several operations in one call are these operations one after the other. */
float bnet_norm_quantize_scalar(const float *x, const bnet_normed *to)
{
    bnet_rmsnorm_f32_scalar(x, to->w, to->n, to->eps, to->y);
    return bnet_quantize_i8_scalar(to->y, to->n, to->stride, to->q, to->sum);
}

float bnet_add_norm_quantize_scalar(float *x, const float *b, const bnet_normed *to)
{
    bnet_add_f32_scalar(x, b, to->n);
    return bnet_norm_quantize_scalar(x, to);
}

float bnet_glu_relu2_norm_quantize_scalar(const float *gate, const float *up, const bnet_normed *to)
{
    bnet_glu_relu2_scalar(gate, up, to->n, to->y);
    return bnet_norm_quantize_scalar(to->y, to);
}

float bnet_glu_silu_norm_quantize_scalar(const float *gate, const float *up, const bnet_normed *to)
{
    bnet_glu_silu_scalar(gate, up, to->n, to->y);
    return bnet_norm_quantize_scalar(to->y, to);
}

void bnet_rope_norm_scalar(float *x, const float *cs, size_t n_rot)
{
    rope_norm_from(x, cs, 0, n_rot);
}

void bnet_rope_neox_scalar(float *x, const float *cs, size_t n_rot)
{
    rope_neox_from(x, cs, 0, n_rot);
}

void bnet_glu_relu2_scalar(const float *gate, const float *up, size_t n, float *y)
{
    glu_relu2_from(gate, up, 0, n, y);
}

void bnet_glu_silu_scalar(const float *gate, const float *up, size_t n, float *y)
{
    glu_silu_from(gate, up, 0, n, y);
}

void bnet_add_f32_scalar(float *x, const float *y, size_t n)
{
    add_from(x, y, 0, n);
}

void bnet_kv_store_f32_scalar(const float *x, size_t head_dim, size_t pos, uint8_t *part)
{
    memcpy(part + 4 * pos * head_dim, x, 4 * head_dim);
}

void bnet_kv_store_f16_scalar(const float *x, size_t head_dim, size_t pos, uint8_t *part)
{
    kv_store_f16_from(x, 0, head_dim, part + 2 * pos * head_dim);
}

void bnet_kv_store_i8_scalar(const float *x, size_t head_dim, size_t pos, uint8_t *part)
{
    uint8_t *scales = kv_scales(part, head_dim, pos);
    for (size_t at = 0; at < head_dim; at += BNET_KV_GROUP, scales += 4) {
        size_t n = BNET_MIN(head_dim - at, (size_t)BNET_KV_GROUP);
        bnet_put_f32(scales, store_group_i8(x + at, n, part + pos * head_dim + at));
    }
}
