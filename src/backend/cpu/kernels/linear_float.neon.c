/* linear_float.neon.c - weight rows of F16, BF16, Q8_0, Q4_0 and Q6_K against float activations.
 * The 16 running sums of bnet_dot_f32 are four registers; every product and sum is the scalar
 * kernel's, in its order, without fused operations, so the bits are the same. */
#include "backend/cpu/kernels.h"
#include "base/mathf.h"

#include <arm_neon.h>

enum { STEP = 16, AHEAD = 1024 }; /* AHEAD: bytes to ask for early */

typedef struct sums {
    float32x4_t v[4];
} sums;

/* acc += w * x for 16 values */
static inline void mul_add(sums *acc, const float32x4_t w[4], const float *x)
{
    for (int i = 0; i < 4; i++)
        acc->v[i] = vaddq_f32(acc->v[i], vmulq_f32(w[i], vld1q_f32(x + 4 * i)));
}

static inline float fold(const sums *acc)
{
    float all[STEP];
    for (int i = 0; i < 4; i++)
        vst1q_f32(all + 4 * i, acc->v[i]);
    return bnet_fold16(all);
}

/* 16 signed bytes times one scale: (float)q * d */
static inline void scale_bytes(int8x16_t q, float32x4_t d, float32x4_t w[4])
{
    int16x8_t lo = vmovl_s8(vget_low_s8(q)), hi = vmovl_high_s8(q);
    w[0] = vmulq_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(lo))), d);
    w[1] = vmulq_f32(vcvtq_f32_s32(vmovl_high_s16(lo)), d);
    w[2] = vmulq_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(hi))), d);
    w[3] = vmulq_f32(vcvtq_f32_s32(vmovl_high_s16(hi)), d);
}

static inline float half_at(const uint8_t *p)
{
    __fp16 h;
    memcpy(&h, p, sizeof h);
    return (float)h;
}

static inline void clear(sums *acc, size_t n)
{
    for (size_t t = 0; t < n; t++)
        for (int i = 0; i < 4; i++)
            acc[t].v[i] = vdupq_n_f32(0);
}

/* 16 weights of two bytes, as floats. What takes such a function must be inlined with it: a call
 * per 16 weights would cost more than they do. */
#define INLINE static inline __attribute__((always_inline))
typedef void load_fn(const uint8_t *p, float32x4_t w[4]);

INLINE void load_f16(const uint8_t *p, float32x4_t w[4])
{
    for (int k = 0; k < 4; k++)
        w[k] = vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p + 8 * k)));
}

/* A bfloat16 is the upper half of a float. */
INLINE void load_bf16(const uint8_t *p, float32x4_t w[4])
{
    for (int k = 0; k < 4; k++)
        w[k] = vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p + 8 * k)), 16));
}

/* What is left of a row behind the last whole 16, filled up with zeros: the sums that get a zero
 * do not change (none of them is ever -0), and element i is in sum i, as everywhere. */
INLINE void tail(load_fn *load, const uint8_t *row, const float *x, size_t n, sums *acc)
{
    uint8_t bytes[2 * STEP] = {0};
    float xs[STEP] = {0};
    float32x4_t w[4];
    memcpy(bytes, row, 2 * n);
    memcpy(xs, x, n * sizeof *x);
    load(bytes, w);
    mul_add(acc, w, xs);
}

INLINE void linear_16bit(load_fn *load, const uint8_t *row, const float *x, size_t x_stride,
                         size_t n_cols, size_t n_tokens, float *y)
{
    sums acc[BNET_LINEAR_TOKENS];
    size_t whole = n_cols / STEP * STEP;
    clear(acc, n_tokens);
    for (size_t i = 0; i < whole; i += STEP) {
        float32x4_t w[4];
        load(row + 2 * i, w);
        for (size_t t = 0; t < n_tokens; t++)
            mul_add(&acc[t], w, x + t * x_stride + i);
    }
    for (size_t t = 0; t < n_tokens; t++) {
        if (whole < n_cols)
            tail(load, row + 2 * whole, x + t * x_stride + whole, n_cols - whole, &acc[t]);
        y[t] = fold(&acc[t]);
    }
}

/* One token: its sums stay in registers. */
INLINE float linear_one(load_fn *load, const uint8_t *row, const float *x, size_t n_cols)
{
    sums acc;
    float32x4_t w[4];
    size_t whole = n_cols / STEP * STEP;
    clear(&acc, 1);
    for (size_t i = 0; i < whole; i += STEP) {
        __builtin_prefetch(row + 2 * i + AHEAD);
        load(row + 2 * i, w);
        mul_add(&acc, w, x + i);
    }
    if (whole < n_cols)
        tail(load, row + 2 * whole, x + whole, n_cols - whole, &acc);
    return fold(&acc);
}

void bnet_linear_f16_neon(const uint8_t *row, const float *x, size_t x_stride, size_t n_cols,
                          size_t n_tokens, float *y)
{
    if (n_tokens == 1)
        y[0] = linear_one(load_f16, row, x, n_cols);
    else
        linear_16bit(load_f16, row, x, x_stride, n_cols, n_tokens, y);
}

void bnet_linear_bf16_neon(const uint8_t *row, const float *x, size_t x_stride, size_t n_cols,
                           size_t n_tokens, float *y)
{
    if (n_tokens == 1)
        y[0] = linear_one(load_bf16, row, x, n_cols);
    else
        linear_16bit(load_bf16, row, x, x_stride, n_cols, n_tokens, y);
}

void bnet_linear_q8_0_neon(const uint8_t *row, const float *x, size_t x_stride, size_t n_cols,
                           size_t n_tokens, float *y)
{
    sums acc[BNET_LINEAR_TOKENS];
    clear(acc, n_tokens);
    for (size_t b = 0; b < n_cols / 32; b++, row += 34) {
        float32x4_t d = vdupq_n_f32(half_at(row)), w[4];
        for (size_t h = 0; h < 2; h++) {
            scale_bytes(vld1q_s8((const int8_t *)row + 2 + 16 * h), d, w);
            for (size_t t = 0; t < n_tokens; t++)
                mul_add(&acc[t], w, x + t * x_stride + 32 * b + 16 * h);
        }
    }
    for (size_t t = 0; t < n_tokens; t++)
        y[t] = fold(&acc[t]);
}

/* Low nibbles are elements 0..15 of a block, high ones 16..31; 8 is subtracted. */
void bnet_linear_q4_0_neon(const uint8_t *row, const float *x, size_t x_stride, size_t n_cols,
                           size_t n_tokens, float *y)
{
    sums acc[BNET_LINEAR_TOKENS];
    clear(acc, n_tokens);
    for (size_t b = 0; b < n_cols / 32; b++, row += 18) {
        float32x4_t d = vdupq_n_f32(half_at(row)), w[4];
        uint8x16_t q = vld1q_u8(row + 2);
        for (size_t h = 0; h < 2; h++) {
            uint8x16_t code = h ? vshrq_n_u8(q, 4) : vandq_u8(q, vdupq_n_u8(15));
            scale_bytes(vsubq_s8(vreinterpretq_s8_u8(code), vdupq_n_s8(8)), d, w);
            for (size_t t = 0; t < n_tokens; t++)
                mul_add(&acc[t], w, x + t * x_stride + 32 * b + 16 * h);
        }
    }
    for (size_t t = 0; t < n_tokens; t++)
        y[t] = fold(&acc[t]);
}

/* 16 values of one sub-block: four low bits from ql, two high bits from qh, minus 32. */
static inline int8x16_t q6_bytes(const uint8_t *block, int s)
{
    int h = s / 8, g = s % 8 / 2, l = 16 * (s % 2);
    uint8x16_t ql = vld1q_u8(block + 64 * h + 32 * (g & 1) + l);
    uint8x16_t qh = vld1q_u8(block + 128 + 32 * h + l);
    uint8x16_t low = g < 2 ? vandq_u8(ql, vdupq_n_u8(15)) : vshrq_n_u8(ql, 4);
    uint8x16_t high = vandq_u8(vshlq_u8(qh, vdupq_n_s8((int8_t)(-2 * g))), vdupq_n_u8(3));
    uint8x16_t q = vorrq_u8(low, vshlq_n_u8(high, 4));
    return vsubq_s8(vreinterpretq_s8_u8(q), vdupq_n_s8(32));
}

void bnet_linear_q6_k_neon(const uint8_t *row, const float *x, size_t x_stride, size_t n_cols,
                           size_t n_tokens, float *y)
{
    sums acc[BNET_LINEAR_TOKENS];
    clear(acc, n_tokens);
    for (size_t b = 0; b < n_cols / 256; b++, row += 210) {
        float d = half_at(row + 208);
        for (int s = 0; s < 16; s++) {
            float32x4_t w[4];
            scale_bytes(q6_bytes(row, s), vdupq_n_f32(d * (float)(int8_t)row[192 + s]), w);
            for (size_t t = 0; t < n_tokens; t++)
                mul_add(&acc[t], w, x + t * x_stride + 256 * b + 16 * (size_t)s);
        }
    }
    for (size_t t = 0; t < n_tokens; t++)
        y[t] = fold(&acc[t]);
}
