/* linear_float.neon.c - weight rows of F16, BF16, Q8_0, Q4_0 and Q6_K against float activations.
 * The 16 running sums of bnet_dot_f32 are four registers; every product and sum is the scalar
 * kernel's, in its order, without fused operations, so the bits are the same. Tokens pass in fours,
 * whose sums stay in registers while the row is decoded once for them. */
#include "backend/cpu/kernels.h"
#include "base/mathf.h"

#include <arm_neon.h>

enum { STEP = 16, MANY = 4, AHEAD = 1024 }; /* AHEAD: bytes to ask for early */

/* What takes a function or a number of tokens must be inlined with it. */
#define INLINE static inline __attribute__((always_inline))

typedef struct sums {
    float32x4_t v[4];
} sums;

/* Weights [i, i + 16) of a row as floats. */
typedef void decode_fn(const uint8_t *row, size_t i, float32x4_t w[4]);

/* ---- formats ---- */

INLINE float half_at(const uint8_t *p)
{
    __fp16 h;
    memcpy(&h, p, sizeof h);
    return (float)h;
}

INLINE void decode_f16(const uint8_t *row, size_t i, float32x4_t w[4])
{
    for (size_t k = 0; k < 4; k++)
        w[k] = vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(row + 2 * i + 8 * k)));
}

/* A bfloat16 is the upper half of a float. */
INLINE void decode_bf16(const uint8_t *row, size_t i, float32x4_t w[4])
{
    for (size_t k = 0; k < 4; k++) {
        uint16x4_t h = vreinterpret_u16_u8(vld1_u8(row + 2 * i + 8 * k));
        w[k] = vreinterpretq_f32_u32(vshll_n_u16(h, 16));
    }
}

/* 16 bytes c become (float)(c - bias) * d. The bytes c, 0, 0, 0x4b are the float 2^23 + c: no
 * conversion, of which there could be but one in a cycle. */
INLINE void scale_codes(uint8x16_t c, float bias, float d, float32x4_t w[4])
{
    const uint8x16_t zero = vdupq_n_u8(0);
    const uint16x8_t exponent = vdupq_n_u16(0x4b00);
    const float32x4_t less = vdupq_n_f32(8388608.0f + bias), scale = vdupq_n_f32(d);
    uint16x8_t lo = vreinterpretq_u16_u8(vzip1q_u8(c, zero));
    uint16x8_t hi = vreinterpretq_u16_u8(vzip2q_u8(c, zero));
    w[0] = vreinterpretq_f32_u16(vzip1q_u16(lo, exponent));
    w[1] = vreinterpretq_f32_u16(vzip2q_u16(lo, exponent));
    w[2] = vreinterpretq_f32_u16(vzip1q_u16(hi, exponent));
    w[3] = vreinterpretq_f32_u16(vzip2q_u16(hi, exponent));
    for (int k = 0; k < 4; k++)
        w[k] = vmulq_f32(vsubq_f32(w[k], less), scale);
}

INLINE void decode_q8_0(const uint8_t *row, size_t i, float32x4_t w[4])
{
    const uint8_t *block = row + i / 32 * 34;
    uint8x16_t q = vld1q_u8(block + 2 + i % 32);
    scale_codes(veorq_u8(q, vdupq_n_u8(0x80)), 128, half_at(block), w);
}

/* Low nibbles are elements 0..15 of a block, high ones 16..31. */
INLINE void decode_q4_0(const uint8_t *row, size_t i, float32x4_t w[4])
{
    const uint8_t *block = row + i / 32 * 18;
    uint8x16_t q = vld1q_u8(block + 2);
    q = i % 32 ? vshrq_n_u8(q, 4) : vandq_u8(q, vdupq_n_u8(15));
    scale_codes(q, 8, half_at(block), w);
}

/* Four low bits from ql, two high bits from qh. */
INLINE void decode_q6_k(const uint8_t *row, size_t i, float32x4_t w[4])
{
    const uint8_t *block = row + i / 256 * 210;
    size_t s = i % 256 / 16, h = s / 8, g = s % 8 / 2, l = 16 * (s % 2);
    uint8x16_t ql = vld1q_u8(block + 64 * h + 32 * (g & 1) + l);
    uint8x16_t qh = vld1q_u8(block + 128 + 32 * h + l);
    uint8x16_t low = g < 2 ? vandq_u8(ql, vdupq_n_u8(15)) : vshrq_n_u8(ql, 4);
    uint8x16_t high = vandq_u8(vshlq_u8(qh, vdupq_n_s8((int8_t)(-2 * (int)g))), vdupq_n_u8(3));
    float scale = half_at(block + 208) * (float)(int8_t)block[192 + s];
    scale_codes(vsliq_n_u8(low, high, 4), 32, scale, w);
}

/* ---- sums ---- */

/* acc += w * x for 16 values */
INLINE void mul_add(sums *acc, const float32x4_t w[4], const float *x)
{
    for (int i = 0; i < 4; i++)
        acc->v[i] = vaddq_f32(acc->v[i], vmulq_f32(w[i], vld1q_f32(x + 4 * i)));
}

INLINE float fold(const sums *acc)
{
    float all[STEP];
    for (int i = 0; i < 4; i++)
        vst1q_f32(all + 4 * i, acc->v[i]);
    return bnet_fold16(all);
}

/* What is left of a row of two-byte weights behind the last whole 16, filled up with zeros: the
 * sums that get a zero do not change (none of them is ever -0), and element i is in sum i, as
 * everywhere. */
INLINE void tail(decode_fn *decode, const uint8_t *row, const float *x, size_t n, sums *acc)
{
    uint8_t bytes[2 * STEP] = {0};
    float xs[STEP] = {0};
    float32x4_t w[4];
    memcpy(bytes, row, 2 * n);
    memcpy(xs, x, n * sizeof *x);
    decode(bytes, 0, w);
    mul_add(acc, w, xs);
}

/* n tokens, a constant. unroll: steps decoded together, so that their places are constants. */
INLINE void some(decode_fn *decode, size_t unroll, const uint8_t *row, const float *x,
                 size_t x_stride, size_t n_cols, size_t n, float *y)
{
    sums acc[MANY];
    size_t whole = n_cols / STEP * STEP;
    for (size_t t = 0; t < n; t++)
        for (int i = 0; i < 4; i++)
            acc[t].v[i] = vdupq_n_f32(0);
    for (size_t i = 0; i < whole; i += unroll * STEP) {
        __builtin_prefetch(row + i + AHEAD); /* a byte per weight, about */
        for (size_t u = 0; u < unroll; u++) {
            float32x4_t w[4];
            decode(row, i + u * STEP, w);
            for (size_t t = 0; t < n; t++)
                mul_add(&acc[t], w, x + t * x_stride + i + u * STEP);
        }
    }
    for (size_t t = 0; t < n; t++) {
        if (unroll == 1 && whole < n_cols) /* blocks leave nothing */
            tail(decode, row + 2 * whole, x + t * x_stride + whole, n_cols - whole, &acc[t]);
        y[t] = fold(&acc[t]);
    }
}

INLINE void linear(decode_fn *decode, size_t unroll, const uint8_t *row, const float *x,
                   size_t x_stride, size_t n_cols, size_t n_tokens, float *y)
{
    size_t t = 0;
    for (; t + MANY <= n_tokens; t += MANY)
        some(decode, unroll, row, x + t * x_stride, x_stride, n_cols, MANY, y + t);
    for (; t < n_tokens; t++)
        some(decode, unroll, row, x + t * x_stride, x_stride, n_cols, 1, y + t);
}

#define LINEAR(name, unroll)                                                                       \
    void bnet_linear_##name##_neon(const uint8_t *row, const float *x, size_t x_stride,            \
                                   size_t n_cols, size_t n_tokens, float *y)                       \
    {                                                                                              \
        linear(decode_##name, unroll, row, x, x_stride, n_cols, n_tokens, y);                      \
    }
LINEAR(f16, 1)
LINEAR(bf16, 1)
LINEAR(q8_0, 2)
LINEAR(q4_0, 2)
LINEAR(q6_k, 16)
