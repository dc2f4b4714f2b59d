/* mathf.h - float functions with one result on every machine: multiplies and adds in a fixed order,
 * no libm; fused only where bnet_fmaf stands. Fast kernels reproduce exactly these steps. */
#ifndef BNET_MATHF_H
#define BNET_MATHF_H

#include "base/base.h"

/* a * b + c rounded once, without the instruction. The product of two floats is exact in double;
 * their sum is rounded to odd (its last bit says "inexact"), which the 29 bits a double has more
 * than a float make harmless for the rounding that follows, subnormal results included. */
static inline float bnet_fmaf_soft(float a, float b, float c)
{
    double p = (double)a * (double)b, d = (double)c, s = p + d;
    double t = s - p, e = (p - (s - t)) + (d - t); /* s + e is the sum exactly */
    uint64_t bits;
    memcpy(&bits, &s, 8);
    bool inexact = e < 0 || e > 0; /* false for the NaN that infinities leave in e */
    if (inexact && (bits & 1) == 0)
        bits += (e > 0) == (s > 0) ? 1 : (uint64_t)-1;
    memcpy(&s, &bits, 8);
    return (float)s;
}

/* The same by the instruction, where the file's instruction set has one. */
static inline float bnet_fmaf(float a, float b, float c)
{
#if defined(__aarch64__) || defined(__FMA__)
    return __builtin_fmaf(a, b, c);
#else
    return bnet_fmaf_soft(a, b, c);
#endif
}

/* e^x, within 2 ulp for results in the normal range; below -87.3 it is 0, above 88.7 infinity, NaN
 * stays NaN. x = n ln2 + r with |r| <= ln2/2; e^r by a Taylor polynomial of degree 7 (remainder
 * below 2^-27). */
static inline float bnet_expf(float x)
{
    if (x != x)
        return x;
    if (x < -87.33654f)
        return 0.0f;
    if (x > 88.72283f)
        return __builtin_inff();
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer, half to even */
    float n = (x * 1.44269504f + magic) - magic;
    float r = (x - n * 0.693145752f) -
              n * 1.42860677e-6f; /* ln2 in two parts, the first exact for |n| < 2^9 */
    float p = 1.98412698e-4f;
    p = p * r + 1.38888889e-3f;
    p = p * r + 8.33333333e-3f;
    p = p * r + 4.16666667e-2f;
    p = p * r + 1.66666667e-1f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    /* 2^n in two factors, so that n = 128 (x near 88.7) and n = -126 stay in range */
    int32_t k = (int32_t)n, half = k >> 1;
    float a, b;
    uint32_t ba = (uint32_t)(half + 127) << 23, bb = (uint32_t)(k - half + 127) << 23;
    memcpy(&a, &ba, 4);
    memcpy(&b, &bb, 4);
    return p * a * b;
}

/* Sum of products in the one order all kernels use: 16 running sums, element i in sum i % 16,
 * folded 8, 4, 2, 1. */
static inline float bnet_fold16(float acc[16])
{
    for (int w = 8; w >= 1; w /= 2)
        for (int i = 0; i < w; i++)
            acc[i] += acc[i + w];
    return acc[0];
}

static inline float bnet_dot_f32(const float *a, const float *b, size_t n)
{
    float acc[16] = {0};
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (size_t l = 0; l < 16; l++)
            acc[l] += a[i + l] * b[i + l];
    for (size_t l = 0; i + l < n; l++)
        acc[l] += a[i + l] * b[i + l];
    return bnet_fold16(acc);
}

#endif
