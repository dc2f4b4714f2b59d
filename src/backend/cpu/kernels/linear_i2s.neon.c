/* linear_i2s.neon.c - any ARMv8: widening multiplies. Bounds: a 16-bit lane takes 8 products of at
 * most 2 * 128 per block before it is folded into 32 bits: 2048, far below 32767. */
#include "backend/cpu/kernels.h"

#include <arm_neon.h>

static inline int16x8_t mla_plane(int16x8_t acc, uint8x16_t codes, const int8_t *x)
{
    int8x16_t c = vreinterpretq_s8_u8(codes), v = vld1q_s8(x);
    acc = vmlal_s8(acc, vget_low_s8(c), vget_low_s8(v));
    return vmlal_high_s8(acc, c, v);
}

static inline int32x4_t half_block(int32x4_t acc, const uint8_t *w, const int8_t *x)
{
    const uint8x16_t three = vdupq_n_u8(3);
    uint8x16_t b = vld1q_u8(w);
    int16x8_t s = vdupq_n_s16(0);
    s = mla_plane(s, vshrq_n_u8(b, 6), x);
    s = mla_plane(s, vandq_u8(vshrq_n_u8(b, 4), three), x + 32);
    s = mla_plane(s, vandq_u8(vshrq_n_u8(b, 2), three), x + 64);
    s = mla_plane(s, vandq_u8(b, three), x + 96);
    return vpadalq_s16(acc, s);
}

void bnet_linear_i2s_neon(const uint8_t *w, size_t n_blocks, size_t n_rows, const int8_t *x,
                          size_t x_stride, const int32_t *x_sum, size_t n_tokens, int32_t *acc)
{
    for (size_t i = 0; i < n_tokens * n_rows; i++) {
        const uint8_t *row = w + 32 * n_blocks * (i % n_rows);
        const int8_t *xt = x + x_stride * (i / n_rows);
        int32x4_t lo = vdupq_n_s32(0), hi = vdupq_n_s32(0);
        for (size_t b = 0; b < n_blocks; b++) {
            lo = half_block(lo, row + 32 * b, xt + 128 * b);
            hi = half_block(hi, row + 32 * b + 16, xt + 128 * b + 16);
        }
        acc[i] = vaddvq_s32(vaddq_s32(lo, hi)) - x_sum[i / n_rows];
    }
}
