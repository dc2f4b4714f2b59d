/* r16_mmla.h - packed groups of 16 rows, and tokens, brought into the order in which ARM's integer
 * matrix products (2x8 by 8x2) read them: 8 columns of one row, 8 of the next. */
#ifndef BNET_R16_MMLA_H
#define BNET_R16_MMLA_H

#include "backend/cpu/kernels/r16.h"

#include <arm_neon.h>

enum {
    TOKENS = 8,                      /* of a tile */
    PIECE = 320,                     /* steps of 8 columns between stores of the sums */
    ROWS_BYTES = BNET_TEMP_WIDE,     /* of temp: expanded rows */
    TOKENS_BYTES = BNET_TEMP_TOKENS, /* then a tile of tokens, 8 K; then sums, 32 bytes a row */
};

/* One line (16 rows x 16 columns) to two steps of 8 columns, each 4 pairs of rows x 16 bytes, for
 * either half of the group; half, step: bytes from one to the other. */
static inline void expand_line(const uint8_t *line, uint8_t *to, size_t half, size_t step)
{
    const uint8x16_t three = vdupq_n_u8(3);
    for (size_t q = 0; q < 4; q++) {
        uint8x16_t w = vld1q_u8(line + 16 * q);
        uint32x4_t p0 = vreinterpretq_u32_u8(vandq_u8(w, three));
        uint32x4_t p1 = vreinterpretq_u32_u8(vandq_u8(vshrq_n_u8(w, 2), three));
        uint32x4_t p2 = vreinterpretq_u32_u8(vandq_u8(vshrq_n_u8(w, 4), three));
        uint32x4_t p3 = vreinterpretq_u32_u8(vshrq_n_u8(w, 6));
        uint8_t *at = to + q / 2 * half + q % 2 * 32;
        vst1q_u8(at, vreinterpretq_u8_u32(vzip1q_u32(p0, p1)));
        vst1q_u8(at + 16, vreinterpretq_u8_u32(vzip2q_u32(p0, p1)));
        vst1q_u8(at + step, vreinterpretq_u8_u32(vzip1q_u32(p2, p3)));
        vst1q_u8(at + step + 16, vreinterpretq_u8_u32(vzip2q_u32(p2, p3)));
    }
}

/* Eight tokens to steps of 8 columns, each 4 pairs of tokens x 16 bytes; missing tokens are zero.
 */
static void pack_tokens(const bnet_r16 *a, size_t first, int8_t *to)
{
    size_t n = a->n_tokens - first, n_cols = 16 * a->n_lines;
    for (size_t p = 0; p < TOKENS / 2; p++) {
        const int8_t *x0 = a->x + (first + 2 * p) * a->x_stride, *x1 = x0 + a->x_stride;
        for (size_t k = 0; k < n_cols; k += 16) {
            int64x2_t v0 = vdupq_n_s64(0), v1 = v0;
            if (2 * p < n)
                v0 = vreinterpretq_s64_s8(vld1q_s8(x0 + k));
            if (2 * p + 1 < n)
                v1 = vreinterpretq_s64_s8(vld1q_s8(x1 + k));
            vst1q_s8(to + 8 * k + 16 * p, vreinterpretq_s8_s64(vzip1q_s64(v0, v1)));
            vst1q_s8(to + 8 * k + 64 + 16 * p, vreinterpretq_s8_s64(vzip2q_s64(v0, v1)));
        }
    }
}

#endif
