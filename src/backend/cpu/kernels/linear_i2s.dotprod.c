/* linear_i2s.dotprod.c - ARMv8.2 dot products, four rows at a time so that each load of x serves
 * four. Codes stay 0,1,2; the -1 is taken out once per row through the sum of x. 32-bit lanes: at
 * most K/4 * 2 * 128, safe for K < 2^24. */
#include "backend/cpu/kernels.h"

#include <arm_neon.h>

static inline int32x4_t dot_planes(int32x4_t acc, uint8x16_t b, const int8x16_t x[4])
{
    const uint8x16_t three = vdupq_n_u8(3);
    acc = vdotq_s32(acc, vreinterpretq_s8_u8(vshrq_n_u8(b, 6)), x[0]);
    acc = vdotq_s32(acc, vreinterpretq_s8_u8(vandq_u8(vshrq_n_u8(b, 4), three)), x[1]);
    acc = vdotq_s32(acc, vreinterpretq_s8_u8(vandq_u8(vshrq_n_u8(b, 2), three)), x[2]);
    return vdotq_s32(acc, vreinterpretq_s8_u8(vandq_u8(b, three)), x[3]);
}

/* n rows, 1 or 4, known at compile time after inlining */
static inline void rows(const uint8_t *w, size_t n_blocks, const int8_t *x, int32_t x_sum, int n,
                        int32_t *acc)
{
    int32x4_t sum[4] = {vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0)};
    for (size_t b = 0; b < 2 * n_blocks; b++) { /* half blocks of 16 bytes */
        const int8_t *xb = x + 128 * (b / 2) + 16 * (b % 2);
        const int8x16_t v[4] = {vld1q_s8(xb), vld1q_s8(xb + 32), vld1q_s8(xb + 64),
                                vld1q_s8(xb + 96)};
        for (int r = 0; r < n; r++)
            sum[r] = dot_planes(sum[r], vld1q_u8(w + 32 * n_blocks * (size_t)r + 16 * b), v);
    }
    for (int r = 0; r < n; r++)
        acc[r] = vaddvq_s32(sum[r]) - x_sum;
}

void bnet_linear_i2s_dotprod(const uint8_t *w, size_t n_blocks, size_t n_rows, const int8_t *x,
                             size_t x_stride, const int32_t *x_sum, size_t n_tokens, int32_t *acc)
{
    for (size_t t = 0; t < n_tokens; t++, x += x_stride, acc += n_rows) {
        size_t r = 0;
        for (; r + 4 <= n_rows; r += 4)
            rows(w + 32 * n_blocks * r, n_blocks, x, x_sum[t], 4, acc + r);
        for (; r < n_rows; r++)
            rows(w + 32 * n_blocks * r, n_blocks, x, x_sum[t], 1, acc + r);
    }
}
