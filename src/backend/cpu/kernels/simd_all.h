/* simd_all.h - what is the same for vectors of every width: loads and stores, and base/mathf.h on
 * vectors with the same operations in the same order, so the same bits. Each simd_*.h ends with it.
 * Sums, differences, products and quotients of vectors are the compiler's own operators. */
#ifndef BNET_SIMD_ALL_H
#define BNET_SIMD_ALL_H

/* Vectors in memory, wherever a float may lie. */
typedef vf vf_at __attribute__((aligned(4), may_alias));
typedef v4 v4_at __attribute__((aligned(4), may_alias));
typedef vd vd_at __attribute__((aligned(8), may_alias));

SIMD vf vf_load(const float *p)
{
    return *(const vf_at *)p;
}
SIMD void vf_store(float *p, vf v)
{
    *(vf_at *)p = v;
}
SIMD v4 v4_load(const float *p)
{
    return *(const v4_at *)p;
}
SIMD void v4_store(float *p, v4 v)
{
    *(v4_at *)p = v;
}
SIMD v4 v4_set(float x)
{
    return (v4){x, x, x, x};
}
SIMD void vd_store(double *p, vd v)
{
    *(vd_at *)p = v;
}

typedef int32_t vi __attribute__((vector_size(sizeof(vf)))); /* as many integers as vf has floats */
typedef uint32_t vu __attribute__((vector_size(sizeof(vf))));

/* 2^k, -126 <= k <= 127 */
SIMD vf vf_pow2(vi k)
{
    return (vf)(((vu)k + 127u) << 23);
}

/* e^r, |r| <= ln2/2 */
SIMD vf vf_exp_poly(vf r)
{
    vf p = vf_set(1.98412698e-4f);
    p = p * r + vf_set(1.38888889e-3f);
    p = p * r + vf_set(8.33333333e-3f);
    p = p * r + vf_set(4.16666667e-2f);
    p = p * r + vf_set(1.66666667e-1f);
    p = p * r + vf_set(0.5f);
    p = p * r + vf_set(1.0f);
    return p * r + vf_set(1.0f);
}

/* x = n ln2 + r: returns n + 1.5 * 2^23, whose last bits are the integer n. */
SIMD vf vf_exp_split(vf x, vf *n, vf *r)
{
    const vf magic = vf_set(12582912.0f);
    vf t = x * vf_set(1.44269504f) + magic;
    *n = t - magic;
    *r = (x - *n * vf_set(0.693145752f)) - *n * vf_set(1.42860677e-6f);
    return t;
}

/* e^x for x <= 0 or NaN: there 2^n is one factor (n >= -126) and nothing overflows. */
SIMD vf vf_exp_negative(vf x)
{
    vf n, r, t = vf_exp_split(x, &n, &r);
    vf power = (vf)(((vu)t << 23) + (127u << 23));
    return vf_zero_where(vf_lt(x, vf_set(-87.33654f)), vf_exp_poly(r) * power);
}

SIMD vf vf_exp(vf x)
{
    vf n, r;
    vf_exp_split(x, &n, &r);
    vi k = __builtin_convertvector(n, vi), half = k >> 1; /* |k| <= 252: 2^k in two factors */
    vf p = vf_exp_poly(r) * vf_pow2(half) * vf_pow2(k - half);
    p = vf_select(vf_lt(x, vf_set(-87.33654f)), vf_set(0), p);
    p = vf_select(vf_lt(vf_set(88.72283f), x), vf_set(__builtin_inff()), p);
    return vf_select(vf_is_nan(x), x, p);
}

#endif
