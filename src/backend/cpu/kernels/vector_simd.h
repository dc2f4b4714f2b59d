/* vector_simd.h - the operations on single vectors for any width: include one of simd_*.h first.
 * The bits are those of vector_rows.h; tails and values that are no numbers take its path. */
#ifndef BNET_VECTOR_SIMD_H
#define BNET_VECTOR_SIMD_H

#include "backend/cpu/kernels/simd_math.h"
#include "backend/cpu/kernels/vector_rows.h"

/* Eight running sums folded 4, 2, 1. A square of a float is exact in double, so the fused sum is
 * the plain one. */
SIMD double sum_squares(const float *x, size_t n)
{
    vd acc[8 / VD];
    double sum[8];
    size_t i = 0;
    for (int k = 0; k < 8 / VD; k++)
        acc[k] = vd_set(0);
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8 / VD; k++) {
            vd v = vd_from_float(x + i + (size_t)(k * VD));
            acc[k] = vd_fma(v, v, acc[k]);
        }
    for (int k = 0; k < 8 / VD; k++)
        vd_store(sum + k * VD, acc[k]);
    for (size_t l = 0; i + l < n; l++)
        sum[l] += (double)x[i + l] * x[i + l];
    for (int f = 4; f >= 1; f /= 2)
        for (int l = 0; l < f; l++)
            sum[l] += sum[l + f];
    return sum[0];
}

SIMD void rmsnorm_simd(const float *x, const float *w, size_t n, float eps, float *y)
{
    double scale = 1.0 / sqrt(sum_squares(x, n) / (double)n + (double)eps);
    vd s = vd_set(scale);
    size_t i = 0;
    for (; i + VD <= n; i += VD)
        vd_to_float(y + i, vd_mul(vd_mul(vd_from_float(x + i), s), vd_from_float(w + i)));
    for (; i < n; i++)
        y[i] = (float)((double)x[i] * scale * (double)w[i]);
}

/* The largest magnitude, at least `least`. False: some value is infinite or no number, and *out
 * says nothing. */
SIMD bool amax_simd(const float *x, size_t n, float least, float *out)
{
    vf max[4] = {vf_set(least), vf_set(least), vf_set(least), vf_set(least)}, bad = vf_set(0);
    size_t i = 0;
    for (; i + 4 * VF <= n; i += 4 * VF)
        for (int k = 0; k < 4; k++)
            vf_amax(vf_load(x + i + (size_t)(k * VF)), &max[k], &bad);
    for (; i + VF <= n; i += VF)
        vf_amax(vf_load(x + i), &max[0], &bad);
    float m[4 * VF], b[VF], wrong = 0, most = least;
    for (int k = 0; k < 4; k++)
        vf_store(m + k * VF, max[k]);
    vf_store(b, bad);
    for (int l = 0; l < VF; l++)
        wrong += b[l];
    for (int l = 0; l < 4 * VF; l++) {
        wrong += m[l] * 0.0f;
        most = m[l] > most ? m[l] : most;
    }
    for (size_t k = i; k < n; k++)
        wrong += x[k] * 0.0f;
    *out = amax_from(x, i, n, most);
    return wrong == 0;
}

SIMD float quantize_simd(const float *x, size_t n, size_t stride, int8_t *q, int32_t *sum)
{
    float amax;
    size_t i = 0;
    vsum total = vsum_zero();
    if (amax_simd(x, n, 1e-5f, &amax)) {
        vd s = vd_set(127.0 / (double)amax);
        for (; i + 16 <= n; i += 16)
            round16_d(x + i, s, q + i, &total);
    } else {
        amax = amax_from(x, 0, n, 1e-5f);
    }
    *sum = vsum_total(total) + quantize_from(x, i, n, 127.0 / (double)amax, q);
    memset(q + n, 0, stride - n);
    return amax / 127.0f;
}

SIMD void rotate_simd(vf *a, vf *b, vf c, vf s)
{
    vf x = *a, y = *b;
    *a = vf_sub(vf_mul(x, c), vf_mul(y, s));
    *b = vf_add(vf_mul(x, s), vf_mul(y, c));
}

SIMD void rope_norm_simd(float *x, const float *cs, size_t n_rot)
{
    size_t j = 0;
    for (; j + VF <= n_rot / 2; j += VF) {
        vf a, b, c, s;
        vf_load_pairs(cs + 2 * j, &c, &s);
        vf_load_pairs(x + 2 * j, &a, &b);
        rotate_simd(&a, &b, c, s);
        vf_store_pairs(x + 2 * j, a, b);
    }
    rope_norm_from(x, cs, j, n_rot);
}

SIMD void rope_neox_simd(float *x, const float *cs, size_t n_rot)
{
    size_t j = 0;
    for (; j + VF <= n_rot / 2; j += VF) {
        vf a = vf_load(x + j), b = vf_load(x + j + n_rot / 2), c, s;
        vf_load_pairs(cs + 2 * j, &c, &s);
        rotate_simd(&a, &b, c, s);
        vf_store(x + j, a);
        vf_store(x + j + n_rot / 2, b);
    }
    rope_neox_from(x, cs, j, n_rot);
}

SIMD void glu_relu2_simd(const float *gate, const float *up, size_t n, float *y)
{
    size_t i = 0;
    for (; i + VF <= n; i += VF) {
        vf g = vf_pick_max(vf_load(gate + i), vf_set(0));
        vf_store(y + i, vf_mul(vf_mul(g, g), vf_load(up + i)));
    }
    glu_relu2_from(gate, up, i, n, y);
}

SIMD void glu_silu_simd(const float *gate, const float *up, size_t n, float *y)
{
    size_t i = 0;
    for (; i + VF <= n; i += VF) {
        vf g = vf_load(gate + i);
        vf d = vf_add(vf_set(1.0f), vf_exp(vf_neg(g)));
        vf_store(y + i, vf_mul(vf_div(g, d), vf_load(up + i)));
    }
    glu_silu_from(gate, up, i, n, y);
}

SIMD void add_simd(float *x, const float *y, size_t n)
{
    size_t i = 0;
    for (; i + VF <= n; i += VF)
        vf_store(x + i, vf_add(vf_load(x + i), vf_load(y + i)));
    for (; i < n; i++)
        x[i] += y[i];
}

SIMD void kv_store_f16_simd(const float *x, size_t head_dim, size_t pos, uint8_t *part)
{
    uint8_t *to = part + 2 * pos * head_dim;
    size_t i = 0;
    for (; i + VF <= head_dim; i += VF)
        vf_to_f16(to + 2 * i, vf_load(x + i));
    kv_store_f16_from(x, i, head_dim, to);
}

/* A whole group of 32; with s = 127 / amax no product lies beyond 127 by as much as a half. A tiny
 * amax makes s infinite: then the slow way. */
SIMD float store_group_simd(const float *x, uint8_t *q)
{
    float amax;
    bool sound = amax_simd(x, BNET_KV_GROUP, 0, &amax);
    float s = amax > 0 ? 127.0f / amax : 0;
    if (!sound || isinf(s))
        return store_group_i8(x, BNET_KV_GROUP, q);
    round16_f(x, s, q);
    round16_f(x + 16, s, q + 16);
    return amax / 127.0f;
}

SIMD void kv_store_i8_simd(const float *x, size_t head_dim, size_t pos, uint8_t *part)
{
    uint8_t *scales = kv_scales(part, head_dim, pos), *q = part + pos * head_dim;
    size_t at = 0;
    for (; at + BNET_KV_GROUP <= head_dim; at += BNET_KV_GROUP, scales += 4)
        bnet_put_f32(scales, store_group_simd(x + at, q + at));
    if (at < head_dim)
        bnet_put_f32(scales, store_group_i8(x + at, head_dim - at, q + at));
}

/* The rows of one instruction set. */
#define BNET_VECTOR_ROWS(isa)                                                                      \
    void bnet_rmsnorm_f32_##isa(const float *x, const float *w, size_t n, float eps, float *y)     \
    {                                                                                              \
        rmsnorm_simd(x, w, n, eps, y);                                                             \
    }                                                                                              \
    float bnet_quantize_i8_##isa(const float *x, size_t n, size_t stride, int8_t *q, int32_t *sum) \
    {                                                                                              \
        return quantize_simd(x, n, stride, q, sum);                                                \
    }                                                                                              \
    void bnet_rope_norm_##isa(float *x, const float *cs, size_t n_rot)                             \
    {                                                                                              \
        rope_norm_simd(x, cs, n_rot);                                                              \
    }                                                                                              \
    void bnet_rope_neox_##isa(float *x, const float *cs, size_t n_rot)                             \
    {                                                                                              \
        rope_neox_simd(x, cs, n_rot);                                                              \
    }                                                                                              \
    void bnet_glu_relu2_##isa(const float *gate, const float *up, size_t n, float *y)              \
    {                                                                                              \
        glu_relu2_simd(gate, up, n, y);                                                            \
    }                                                                                              \
    void bnet_glu_silu_##isa(const float *gate, const float *up, size_t n, float *y)               \
    {                                                                                              \
        glu_silu_simd(gate, up, n, y);                                                             \
    }                                                                                              \
    void bnet_add_f32_##isa(float *x, const float *y, size_t n)                                    \
    {                                                                                              \
        add_simd(x, y, n);                                                                         \
    }                                                                                              \
    void bnet_kv_store_f16_##isa(const float *x, size_t head_dim, size_t pos, uint8_t *part)       \
    {                                                                                              \
        kv_store_f16_simd(x, head_dim, pos, part);                                                 \
    }                                                                                              \
    void bnet_kv_store_i8_##isa(const float *x, size_t head_dim, size_t pos, uint8_t *part)        \
    {                                                                                              \
        kv_store_i8_simd(x, head_dim, pos, part);                                                  \
    }

#endif
