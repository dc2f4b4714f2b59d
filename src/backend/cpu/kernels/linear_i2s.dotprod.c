/* linear_i2s.dotprod.c - ARMv8.2 dot products: each load of x serves several rows, and with several
 * tokens each weight is unpacked once for four of them. Two rows by four tokens keep 8 sums, 8
 * unpacked planes and 4 loads of x in registers. Codes stay 0,1,2; the -1 is taken out once per row
 * through the sum of x. 32-bit lanes: at most K/4 * 2 * 128, safe for K < 2^24. */
#include "backend/cpu/kernels.h"

#include <arm_neon.h>

#define INLINE static inline __attribute__((always_inline))

INLINE void unpack(const uint8_t *w, int8x16_t plane[4])
{
    const uint8x16_t three = vdupq_n_u8(3);
    uint8x16_t b = vld1q_u8(w);
    plane[0] = vreinterpretq_s8_u8(vshrq_n_u8(b, 6));
    plane[1] = vreinterpretq_s8_u8(vandq_u8(vshrq_n_u8(b, 4), three));
    plane[2] = vreinterpretq_s8_u8(vandq_u8(vshrq_n_u8(b, 2), three));
    plane[3] = vreinterpretq_s8_u8(vandq_u8(b, three));
}

/* n_r rows (up to 4) by n_t tokens (up to 4), known at compile time after inlining; acc[t][row]
 * with a stride of acc_stride between tokens */
INLINE void tile(const uint8_t *w, size_t n_blocks, const int8_t *x, size_t x_stride,
                 const int32_t *x_sum, int n_r, int n_t, size_t acc_stride, int32_t *acc)
{
    int32x4_t sum[4][4];
    for (int r = 0; r < n_r; r++)
        for (int t = 0; t < n_t; t++)
            sum[r][t] = vdupq_n_s32(0);
    for (size_t b = 0; b < 2 * n_blocks; b++) { /* half blocks of 16 bytes */
        const int8_t *xb = x + 128 * (b / 2) + 16 * (b % 2);
        int8x16_t plane[4][4];
        for (int r = 0; r < n_r; r++)
            unpack(w + 32 * n_blocks * (size_t)r + 16 * b, plane[r]);
        for (int t = 0; t < n_t; t++)
            for (int p = 0; p < 4; p++) {
                int8x16_t v = vld1q_s8(xb + x_stride * (size_t)t + 32 * p);
                for (int r = 0; r < n_r; r++)
                    sum[r][t] = vdotq_s32(sum[r][t], plane[r][p], v);
            }
    }
    for (int r = 0; r < n_r; r++)
        for (int t = 0; t < n_t; t++)
            acc[acc_stride * (size_t)t + (size_t)r] = vaddvq_s32(sum[r][t]) - x_sum[t];
}

/* All rows by n_t tokens, n_r rows at a time. */
INLINE void all_rows(const uint8_t *w, size_t n_blocks, size_t n_rows, const int8_t *x,
                     size_t x_stride, const int32_t *x_sum, int n_r, int n_t, int32_t *acc)
{
    size_t r = 0;
    for (; r + (size_t)n_r <= n_rows; r += (size_t)n_r)
        tile(w + 32 * n_blocks * r, n_blocks, x, x_stride, x_sum, n_r, n_t, n_rows, acc + r);
    for (; r < n_rows; r++)
        tile(w + 32 * n_blocks * r, n_blocks, x, x_stride, x_sum, 1, n_t, n_rows, acc + r);
}

void bnet_linear_i2s_dotprod(const uint8_t *w, size_t n_blocks, size_t n_rows, const int8_t *x,
                             size_t x_stride, const int32_t *x_sum, size_t n_tokens, int32_t *acc)
{
    for (size_t t = 0; t < n_tokens; t++, x += x_stride, acc += n_rows)
        all_rows(w, n_blocks, n_rows, x, x_stride, x_sum + t, 4, 1, acc);
}

void bnet_matmul_i2s_dotprod(const uint8_t *w, size_t n_blocks, size_t n_rows, const int8_t *x,
                             size_t x_stride, const int32_t *x_sum, size_t n_tokens, int32_t *acc)
{
    size_t t = 0;
    for (; t + 4 <= n_tokens; t += 4, x += 4 * x_stride, acc += 4 * n_rows)
        all_rows(w, n_blocks, n_rows, x, x_stride, x_sum + t, 2, 4, acc);
    bnet_linear_i2s_dotprod(w, n_blocks, n_rows, x, x_stride, x_sum + t, n_tokens - t, acc);
}
