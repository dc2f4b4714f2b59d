/* simd_math.h - base/mathf.h on vectors: the same operations in the same order, so the same bits.
 * Include after one of the simd_*.h. */
#ifndef BNET_SIMD_MATH_H
#define BNET_SIMD_MATH_H

/* e^r, |r| <= ln2/2 */
SIMD vf vf_exp_poly(vf r)
{
    vf p = vf_set(1.98412698e-4f);
    p = vf_add(vf_mul(p, r), vf_set(1.38888889e-3f));
    p = vf_add(vf_mul(p, r), vf_set(8.33333333e-3f));
    p = vf_add(vf_mul(p, r), vf_set(4.16666667e-2f));
    p = vf_add(vf_mul(p, r), vf_set(1.66666667e-1f));
    p = vf_add(vf_mul(p, r), vf_set(0.5f));
    p = vf_add(vf_mul(p, r), vf_set(1.0f));
    p = vf_add(vf_mul(p, r), vf_set(1.0f));
    return p;
}

/* e^x for x <= 0 or NaN: there 2^n is one factor (n >= -126) and nothing overflows. */
SIMD vf vf_exp_negative(vf x)
{
    const vf magic = vf_set(12582912.0f);
    vf t = vf_add(vf_mul(x, vf_set(1.44269504f)), magic), n = vf_sub(t, magic);
    vf r = vf_sub(vf_sub(x, vf_mul(n, vf_set(0.693145752f))), vf_mul(n, vf_set(1.42860677e-6f)));
    vf p = vf_exp_poly(r);
    return vf_zero_where(vf_lt(x, vf_set(-87.33654f)), vf_mul(p, vf_pow2_low(t)));
}

SIMD vf vf_exp(vf x)
{
    const vf magic = vf_set(12582912.0f);
    vf n = vf_sub(vf_add(vf_mul(x, vf_set(1.44269504f)), magic), magic);
    vf r = vf_sub(vf_sub(x, vf_mul(n, vf_set(0.693145752f))), vf_mul(n, vf_set(1.42860677e-6f)));
    vf p = vf_exp_poly(r);
    vf a, b;
    vf_pow2_halves(n, &a, &b);
    p = vf_mul(vf_mul(p, a), b);
    p = vf_select(vf_lt(x, vf_set(-87.33654f)), vf_set(0), p);
    p = vf_select(vf_lt(vf_set(88.72283f), x), vf_set(__builtin_inff()), p);
    return vf_select(vf_is_nan(x), x, p);
}

#endif
