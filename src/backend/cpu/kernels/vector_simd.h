/* vector_simd.h - the operations on single vectors for any width: include one of simd_*.h first.
 * The bits are those of vector_rows.h; tails and NaN take its path. */
#ifndef BNET_VECTOR_SIMD_H
#define BNET_VECTOR_SIMD_H

#include "backend/cpu/kernels/vector_rows.h"

/* ---- sums of squares: eight running sums, element i in sum i % 8, folded 4, 2, 1. A square of a
 * float is exact in double, so the fused sum is the plain one. ---- */

enum { CHUNK = VF > 8 ? VF : 8 };

typedef struct vsquares {
    vd acc[8 / VD];
} vsquares;

SIMD vsquares squares_zero(void)
{
    vsquares s;
    for (int k = 0; k < 8 / VD; k++)
        s.acc[k] = vd_set(0);
    return s;
}

/* VF values that begin `at` elements into a chunk. */
SIMD void squares_add(vsquares *s, int at, vf v)
{
    vd d[VF / VD];
    vf_widen(v, d);
    for (int k = 0; k < VF / VD; k++) {
        vd *acc = &s->acc[(at + k * VD) % 8 / VD];
        *acc = vd_fma(d[k], d[k], *acc);
    }
}

/* With x[i..n), which were not added yet; i is a multiple of 8. */
SIMD double squares_total(const vsquares *s, const float *x, size_t i, size_t n)
{
    double sum[8];
    for (int k = 0; k < 8 / VD; k++)
        vd_store(sum + k * VD, s->acc[k]);
    for (size_t l = 0; i + l < n; l++)
        sum[l % 8] += (double)x[i + l] * x[i + l];
    for (int f = 4; f >= 1; f /= 2)
        for (int l = 0; l < f; l++)
            sum[l] += sum[l + f];
    return sum[0];
}

SIMD double sum_squares(const float *x, size_t n)
{
    vsquares s = squares_zero();
    size_t i = 0;
    for (; i + CHUNK <= n; i += CHUNK)
        for (int k = 0; k < CHUNK; k += VF)
            squares_add(&s, k, vf_load(x + i + (size_t)k));
    return squares_total(&s, x, i, n);
}

/* ---- norm ---- */

/* x * s * w in double, rounded once */
SIMD vf vf_normed(vf x, vd s, vf w)
{
    vd a[VF / VD], b[VF / VD];
    vf_widen(x, a);
    vf_widen(w, b);
    for (int k = 0; k < VF / VD; k++)
        a[k] = a[k] * s * b[k];
    return vf_narrow(a);
}

void ROW(rmsnorm_f32)(const float *x, const float *w, size_t n, float eps, float *y)
{
    double scale = norm_scale(sum_squares(x, n), n, eps);
    vd s = vd_set(scale);
    size_t i = 0;
    for (; i + VF <= n; i += VF)
        vf_store(y + i, vf_normed(vf_load(x + i), s, vf_load(w + i)));
    norm_from(x, w, i, n, scale, y);
}

/* ---- int8 ---- */

typedef struct vamax {
    vf max[4], bad;
} vamax;

SIMD vamax amax_start(float least)
{
    vf l = vf_set(least);
    return (vamax){{l, l, l, l}, vf_set(0)};
}

/* The largest magnitude seen and of x[i..n). False: some value is infinite or NaN, and *out is
 * meaningless. */
SIMD bool amax_end(const vamax *a, const float *x, size_t i, size_t n, float *out)
{
    float m[4 * VF], b[VF], wrong = 0, most = 0;
    for (int k = 0; k < 4; k++)
        vf_store(m + k * VF, a->max[k]);
    vf_store(b, a->bad);
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

/* The largest magnitude, at least `least`. */
SIMD bool amax_simd(const float *x, size_t n, float least, float *out)
{
    vamax a = amax_start(least);
    size_t i = 0;
    for (; i + 4 * VF <= n; i += 4 * VF)
        for (int k = 0; k < 4; k++)
            vf_amax(vf_load(x + i + (size_t)(k * VF)), &a.max[k], &a.bad);
    for (; i + VF <= n; i += VF)
        vf_amax(vf_load(x + i), &a.max[0], &a.bad);
    return amax_end(&a, x, i, n, out);
}

/* Rounds whole sixteens of x * (127 / amax); returns how many values. What counts is the product in
 * double. In floats it is off by two roundings, 127 * 2^-23 < 1.6e-5 at most, so that it gives the
 * same integer wherever it is farther than that from a half; 64 values that are not all so are
 * rounded again. */
SIMD size_t round_simd(const float *x, size_t n, float amax, int8_t *q, vsum *total)
{
    enum { STEP = 64 };
    const double exact = 127.0 / (double)amax;
    const vf s = vf_set((float)exact);
    size_t i = 0;
    for (; i + STEP <= n; i += STEP) {
        vsum before = *total;
        vf doubt = vf_set(0);
        for (size_t k = i; k < i + STEP; k += 16) {
            vf v[16 / VF];
            for (size_t l = 0; l < 16 / VF; l++)
                v[l] = vf_load(x + k + l * VF) * s;
            round16_v(v, q + k, total, &doubt);
        }
        if (vf_any_above(doubt, 0.49998f)) {
            *total = before;
            for (size_t k = i; k < i + STEP; k += 16)
                round16_d(x + k, vd_set(exact), q + k, total);
        }
    }
    for (; i + 16 <= n; i += 16)
        round16_d(x + i, vd_set(exact), q + i, total);
    return i;
}

/* With amax known; unsound: some value is infinite or NaN. */
SIMD float quantize_with(const float *x, size_t n, float amax, bool sound, size_t stride, int8_t *q,
                         int32_t *sum)
{
    size_t i = 0;
    vsum total = {0};
    if (sound)
        i = round_simd(x, n, amax, q, &total);
    else
        amax = amax_from(x, 0, n, 1e-5f);
    *sum = vsum_total(total) + quantize_from(x, i, n, 127.0 / (double)amax, q);
    memset(q + n, 0, stride - n);
    return amax / 127.0f;
}

float ROW(quantize_i8)(const float *x, size_t n, size_t stride, int8_t *q, int32_t *sum)
{
    float amax;
    bool sound = amax_simd(x, n, 1e-5f, &amax);
    return quantize_with(x, n, amax, sound, stride, q, sum);
}

/* ---- rope, gates, sums, the cache ---- */

SIMD void rotate_simd(vf *a, vf *b, vf c, vf s)
{
    vf x = *a, y = *b;
    *a = x * c - y * s;
    *b = x * s + y * c;
}

void ROW(rope_norm)(float *x, const float *cs, size_t n_rot)
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

void ROW(rope_neox)(float *x, const float *cs, size_t n_rot)
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

SIMD vf vf_relu2(vf gate, vf up)
{
    vf g = vf_pick_max(gate, vf_set(0));
    return g * g * up;
}

SIMD vf vf_silu(vf gate, vf up)
{
    return gate / (vf_set(1.0f) + vf_exp(-gate)) * up;
}

void ROW(glu_relu2)(const float *gate, const float *up, size_t n, float *y)
{
    size_t i = 0;
    for (; i + VF <= n; i += VF)
        vf_store(y + i, vf_relu2(vf_load(gate + i), vf_load(up + i)));
    glu_relu2_from(gate, up, i, n, y);
}

void ROW(glu_silu)(const float *gate, const float *up, size_t n, float *y)
{
    size_t i = 0;
    for (; i + VF <= n; i += VF)
        vf_store(y + i, vf_silu(vf_load(gate + i), vf_load(up + i)));
    glu_silu_from(gate, up, i, n, y);
}

void ROW(add_f32)(float *x, const float *y, size_t n)
{
    size_t i = 0;
    for (; i + VF <= n; i += VF)
        vf_store(x + i, vf_load(x + i) + vf_load(y + i));
    add_from(x, y, i, n);
}

void ROW(kv_store_f16)(const float *x, size_t head_dim, size_t pos, uint8_t *part)
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
    round16_f(x, s, (int8_t *)q);
    round16_f(x + 16, s, (int8_t *)q + 16);
    return amax / 127.0f;
}

void ROW(kv_store_i8)(const float *x, size_t head_dim, size_t pos, uint8_t *part)
{
    uint8_t *scales = kv_scales(part, head_dim, pos), *q = part + pos * head_dim;
    size_t at = 0;
    for (; at + BNET_KV_GROUP <= head_dim; at += BNET_KV_GROUP, scales += 4)
        bnet_put_f32(scales, store_group_simd(x + at, q + at));
    if (at < head_dim)
        bnet_put_f32(scales, store_group_i8(x + at, head_dim - at, q + at));
}

#endif
