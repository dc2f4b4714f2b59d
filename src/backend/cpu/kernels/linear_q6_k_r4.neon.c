/* linear_q6_k_r4.neon.c - exact rows of packed Q6_K against float activations: 256 columns of four
 * rows are decoded once, then each token's 16 running sums of bnet_dot_f32 go over them. Same
 * products and sums as the scalar kernel, so the same bits.
 *
 * A code c becomes a float without a conversion: the half words 0 and 0x4300 | c are the float
 * 128 + c, and 160 less is c - 32, exactly. */
#include "backend/cpu/kernels.h"
#include "backend/cpu/pack_q6.h"
#include "base/mathf.h"

#include <arm_neon.h>

typedef struct sums {
    float32x4_t v[4];
} sums;

/* Four columns of four rows; to: where row 0's go, the next row's lie 256 further. */
static inline void decode(uint8x16_t code, float32x4_t scale, float *to)
{
    const uint8x16_t exponent = vdupq_n_u8(0x43);
    const uint16x8_t zero = vdupq_n_u16(0);
    const float32x4_t bias = vdupq_n_f32(160.0f);
    uint16x8_t rows01 = vreinterpretq_u16_u8(vzip1q_u8(code, exponent));
    uint16x8_t rows23 = vreinterpretq_u16_u8(vzip2q_u8(code, exponent));
    float32x4_t r0 = vreinterpretq_f32_u16(vzip1q_u16(zero, rows01));
    float32x4_t r1 = vreinterpretq_f32_u16(vzip2q_u16(zero, rows01));
    float32x4_t r2 = vreinterpretq_f32_u16(vzip1q_u16(zero, rows23));
    float32x4_t r3 = vreinterpretq_f32_u16(vzip2q_u16(zero, rows23));
    vst1q_f32(to, vmulq_laneq_f32(vsubq_f32(r0, bias), scale, 0));
    vst1q_f32(to + 256, vmulq_laneq_f32(vsubq_f32(r1, bias), scale, 1));
    vst1q_f32(to + 512, vmulq_laneq_f32(vsubq_f32(r2, bias), scale, 2));
    vst1q_f32(to + 768, vmulq_laneq_f32(vsubq_f32(r3, bias), scale, 3));
}

static inline uint8x16_t fourth(uint8x16_t a, uint8x16_t b, uint8x16_t c)
{
    return vshrq_n_u8(vsriq_n_u8(a, vsriq_n_u8(b, c, 2), 2), 2);
}

/* d times the four rows' scales of each sub-block of a quarter */
static inline void scales(const uint8_t *p, float32x4_t d, float32x4_t out[4])
{
    int8x16_t s = vld1q_s8((const int8_t *)p);
    int16x8_t lo = vmovl_s8(vget_low_s8(s)), hi = vmovl_high_s8(s);
    out[0] = vmulq_f32(d, vcvtq_f32_s32(vmovl_s16(vget_low_s16(lo))));
    out[1] = vmulq_f32(d, vcvtq_f32_s32(vmovl_high_s16(lo)));
    out[2] = vmulq_f32(d, vcvtq_f32_s32(vmovl_s16(vget_low_s16(hi))));
    out[3] = vmulq_f32(d, vcvtq_f32_s32(vmovl_high_s16(hi)));
}

static void decode_block(const uint8_t *block, const uint8_t *f16, float *out)
{
    const uint8x16_t low = vdupq_n_u8(0x3f);
    float32x4_t d = vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(f16))), s[4];
    for (size_t k = 0; k < 4; k++) {
        const uint8_t *w = block + BNET_Q6R4_QUARTER * k;
        float *to = out + 128 * (k / 2) + 16 * (k % 2);
        scales(w + 192, d, s);
        for (size_t j = 0; j < 4; j++, w += 16, to += 4) {
            uint8x16_t a = vld1q_u8(w), b = vld1q_u8(w + 64), c = vld1q_u8(w + 128);
            decode(vandq_u8(a, low), s[0], to);
            decode(vandq_u8(b, low), s[1], to + 32);
            decode(vandq_u8(c, low), s[2], to + 64);
            decode(fourth(a, b, c), s[3], to + 96);
        }
    }
}

static inline void mul_add(sums *acc, const float *w, const float *x)
{
    for (int i = 0; i < 4; i++)
        acc->v[i] = vaddq_f32(acc->v[i], vmulq_f32(vld1q_f32(w + 4 * i), vld1q_f32(x + 4 * i)));
}

/* 256 columns of two rows for one token */
static inline void two_rows(sums acc[2], const float *w, const float *x)
{
    sums a = acc[0], b = acc[1];
    for (size_t i = 0; i < 256; i += 16) {
        mul_add(&a, w + i, x + i);
        mul_add(&b, w + 256 + i, x + i);
    }
    acc[0] = a;
    acc[1] = b;
}

static inline float fold(const sums *acc)
{
    float all[16];
    for (int i = 0; i < 4; i++)
        vst1q_f32(all + 4 * i, acc->v[i]);
    return bnet_fold16(all);
}

void bnet_linear_q6_k_r4_neon(const uint8_t *group, const float *x, size_t x_stride, size_t n_cols,
                              size_t n_tokens, float *y)
{
    const uint8_t *f16 = group + n_cols / 256 * BNET_Q6R4_BLOCK;
    sums acc[BNET_LINEAR_TOKENS][BNET_Q6R4_ROWS];
    float w[BNET_Q6R4_ROWS * 256];
    memset(acc, 0, n_tokens * sizeof acc[0]);
    for (size_t b = 0; b < n_cols / 256; b++) {
        decode_block(group + b * BNET_Q6R4_BLOCK, f16 + 8 * b, w);
        for (size_t t = 0; t < n_tokens; t++) {
            two_rows(acc[t], w, x + t * x_stride + 256 * b);
            two_rows(acc[t] + 2, w + 512, x + t * x_stride + 256 * b);
        }
    }
    for (size_t t = 0; t < n_tokens; t++)
        for (size_t r = 0; r < BNET_Q6R4_ROWS; r++)
            y[t * BNET_Q6R4_ROWS + r] = fold(&acc[t][r]);
}
