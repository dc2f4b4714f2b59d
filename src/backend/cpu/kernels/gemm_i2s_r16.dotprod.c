/* gemm_i2s_r16.dotprod.c - many tokens against packed groups of 16 rows by dot products. A group's
 * codes are expanded to bytes once, plane by plane in the order of the columns, and stay in the
 * cache while all tokens pass, four at a time: 16 rows x 4 tokens are 16 accumulators, and 4 loads
 * of weights serve 16 products. 32-bit lanes: at most 2 * 128 * K, safe for K < 2^23. */
#include "backend/cpu/kernels/r16.h"

#include <arm_neon.h>

enum { TOKENS = 4 };

/* A line to four steps of 4 columns, each 16 rows x 4 bytes. */
static inline void expand_line(const uint8_t *line, int8_t *to)
{
    const uint8x16_t three = vdupq_n_u8(3);
    for (size_t q = 0; q < 4; q++) {
        uint8x16_t w = vld1q_u8(line + 16 * q);
        vst1q_s8(to + 16 * q, vreinterpretq_s8_u8(vandq_u8(w, three)));
        vst1q_s8(to + 64 + 16 * q, vreinterpretq_s8_u8(vandq_u8(vshrq_n_u8(w, 2), three)));
        vst1q_s8(to + 128 + 16 * q, vreinterpretq_s8_u8(vandq_u8(vshrq_n_u8(w, 4), three)));
        vst1q_s8(to + 192 + 16 * q, vreinterpretq_s8_u8(vshrq_n_u8(w, 6)));
    }
}

/* Four columns of 16 rows, lane p of every token's 16. */
#define STEP(p)                                                                                    \
    for (int q = 0; q < 4; q++) {                                                                  \
        int8x16_t v = vld1q_s8(w + 64 * (p) + 16 * q);                                             \
        for (int t = 0; t < TOKENS; t++)                                                           \
            acc[t][q] = vdotq_laneq_s32(acc[t][q], v, x[t], p);                                    \
    }

static inline void tile(const int8_t *w, size_t n_lines, const int8_t *const from[TOKENS],
                        int32_t sums[TOKENS][BNET_R16_ROWS])
{
    int32x4_t acc[TOKENS][4];
    for (int t = 0; t < TOKENS; t++)
        for (int q = 0; q < 4; q++)
            acc[t][q] = vdupq_n_s32(0);
    for (size_t l = 0; l < n_lines; l++, w += 256) {
        int8x16_t x[TOKENS];
        for (int t = 0; t < TOKENS; t++)
            x[t] = vld1q_s8(from[t] + 16 * l);
        STEP(0)
        STEP(1)
        STEP(2)
        STEP(3)
    }
    for (int t = 0; t < TOKENS; t++)
        for (int q = 0; q < 4; q++)
            vst1q_s32(sums[t] + 4 * q, acc[t][q]);
}

/* Tokens t .. t + 3; those that do not exist repeat the last one and are not stored. */
static void four_tokens(const bnet_r16 *a, size_t row, size_t t)
{
    int32_t sums[TOKENS][BNET_R16_ROWS];
    const int8_t *from[TOKENS];
    for (size_t i = 0; i < TOKENS; i++)
        from[i] = a->x + BNET_MIN(t + i, a->n_tokens - 1) * a->x_stride;
    tile((const int8_t *)a->temp, a->n_lines, from, sums);
    for (size_t i = 0; i < TOKENS && t + i < a->n_tokens; i++) {
        for (size_t r = 0; r < BNET_R16_ROWS; r++)
            sums[i][r] -= a->x_sum[t + i];
        r16_store(a, row, t + i, sums[i]);
    }
}

void bnet_gemm_i2s_r16_dotprod(const bnet_r16 *a)
{
    for (size_t row = 0; row < a->n_rows; row += BNET_R16_ROWS) {
        const uint8_t *w = a->w + row * 4 * a->n_lines;
        for (size_t l = 0; l < a->n_lines; l++)
            expand_line(w + l * BNET_R16_LINE, (int8_t *)a->temp + 256 * l);
        for (size_t t = 0; t < a->n_tokens; t += TOKENS)
            four_tokens(a, row, t);
    }
}
