/* ref_math.h - the small functions of the reference kernels: half floats, e^x, sums of products,
 * rows of every format, each step for step as the CPU's (base/mathf.h, cpu/half_inline.h). */
#ifndef BNET_REF_MATH_H
#define BNET_REF_MATH_H

#include "backend/gpu/ref/ref_args.h"

REF_FN uint32_t ref_u16(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

REF_FN uint32_t ref_u32(const uint8_t *p)
{
    return ref_u16(p) | ref_u16(p + 2) << 16;
}

/* The bits moved to where a float has them are 2^112 times too small, subnormals too; that product
 * is exact. What then is 65536 or more is infinity or NaN. */
REF_FN float ref_half(uint32_t h)
{
    float v = REF_FLOAT_BITS((h & 0x7fffu) << 13) * 5.192296858534827628530496329220096e33f;
    uint32_t special = v >= 65536.0f ? 0x7f800000u : 0;
    return REF_FLOAT_BITS(REF_BITS(v) | special | (h & 0x8000u) << 16);
}

/* Round to nearest, ties to even; NaN stays a quiet NaN. */
REF_FN uint32_t ref_to_half(float f)
{
    uint32_t u = REF_BITS(f), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u)
        return sign | 0x7e00u | (a >> 13 & 0x3ffu);
    if (a >= 0x477ff000u)
        return sign | 0x7c00u;
    if (a < 0x38800000u) { /* subnormal: adding 0.5 puts the rounding where it belongs */
        float r = REF_FLOAT_BITS(a) + 0.5f;
        return sign | (REF_BITS(r) - 0x3f000000u);
    }
    return sign | ((a + 0xfffu + (a >> 13 & 1u) - 0x38000000u) >> 13);
}

REF_FN float ref_bf16(uint32_t h)
{
    return REF_FLOAT_BITS(h << 16);
}

REF_FN float ref_exp(float x)
{
    if (x != x)
        return x;
    if (x < -87.33654f)
        return 0.0f;
    if (x > 88.72283f)
        return REF_FLOAT_BITS(0x7f800000u);
    const float magic = 12582912.0f;
    float n = (x * 1.44269504f + magic) - magic;
    float r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
    float p = 1.98412698e-4f;
    p = p * r + 1.38888889e-3f;
    p = p * r + 8.33333333e-3f;
    p = p * r + 4.16666667e-2f;
    p = p * r + 1.66666667e-1f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    int32_t k = (int32_t)n, low = k / 2;
    float a = REF_FLOAT_BITS((uint32_t)(low + 127) << 23),
          b = REF_FLOAT_BITS((uint32_t)(k - low + 127) << 23);
    return p * a * b;
}

REF_FN float ref_fold16(float *acc)
{
    for (int w = 8; w >= 1; w /= 2)
        for (int i = 0; i < w; i++)
            acc[i] += acc[i + w];
    return acc[0];
}

/* ---- one value of a row ---- */

REF_FN float ref_q6_k(const bnet_dev_matrix *m, uint64_t at)
{
    uint64_t group = at / 32;
    int i = (int)(at % 32);
    int low = m->w[0][16 * group + (uint64_t)(i % 16)] >> (i / 16 * 4) & 15;
    int high = m->w[1][8 * group + (uint64_t)(i % 8)] >> (i / 8 * 2) & 3;
    float scale = ref_half(ref_u16(m->w[3] + 2 * (at / 256))) * (float)(int8_t)m->w[2][at / 16];
    return scale * (float)((low | high << 4) - 32);
}

REF_FN float ref_value(const bnet_dev_matrix *m, int type, uint64_t row, int i)
{
    uint64_t at = row * (uint64_t)m->stride + (uint64_t)i;
    switch (type) {
    case REF_F32:
        return REF_FLOAT_BITS(ref_u32(m->w[0] + 4 * at));
    case REF_F16:
        return ref_half(ref_u16(m->w[0] + 2 * at));
    case REF_BF16:
        return ref_bf16(ref_u16(m->w[0] + 2 * at));
    case REF_Q8:
        return (float)(int8_t)m->w[0][at] * ref_half(ref_u16(m->w[1] + 2 * (at / 32)));
    default:
        return ref_q6_k(m, at);
    }
}

#endif
