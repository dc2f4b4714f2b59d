/* head_copy.dotprod.c - the scan of the head's copy with sdot: a register holds eight columns of
 * two rows, and eight columns of an input twice; a row's sum is in two lanes. */
#include "backend/cpu/kernels.h"

#include <arm_neon.h>

enum { PAIRS = 4, FEW = 4 }; /* of rows; inputs at once */

typedef struct four_sums {
    int32x4_t at[FEW][PAIRS];
} four_sums;

static inline int8x16_t twice(const int8_t *x)
{
    return vreinterpretq_s8_s64(vld1q_dup_s64((const int64_t *)(const void *)x));
}

/* Sums of the lines w + 64 lines[i], or of all, with four inputs from x on. */
static inline four_sums add_lines(const uint8_t *w, const uint32_t *lines, const int8_t *x,
                                  size_t n, size_t ahead)
{
    const uint8x16_t middle = vdupq_n_u8(128);
    four_sums s;
    for (int t = 0; t < FEW; t++)
        for (int i = 0; i < PAIRS; i++)
            s.at[t][i] = vdupq_n_s32(0);
    for (size_t k = 0; k < n; k++, x += BNET_COPY_LINE) {
        const uint8_t *line = w + BNET_COPY_LINE * (lines ? lines[k] : k);
        int8x16_t rows[PAIRS];
        __builtin_prefetch(line + ahead, 0, 2);
        for (int i = 0; i < PAIRS; i++)
            rows[i] = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(line + 16 * i), middle));
        for (int t = 0; t < FEW; t++) {
            int8x16_t v = twice(x + 8 * t);
            for (int i = 0; i < PAIRS; i++)
                s.at[t][i] = vdotq_s32(s.at[t][i], rows[i], v);
        }
    }
    return s;
}

static inline float32x4_t four_rows(const int32x4_t *pairs)
{
    return vcvtq_f32_s32(vpaddq_s32(pairs[0], pairs[1]));
}

static void scan_four(const uint8_t *group, const bnet_head_eight *x, size_t first, size_t n_cols,
                      float (*y)[BNET_COPY_ROWS])
{
    const float *scales = (const float *)(const void *)(group + BNET_COPY_ROWS * n_cols);
    size_t at = 8 * first;
    four_sums high = add_lines(group, x->lines, x->high + at, x->n_high, 0);
    four_sums low = add_lines(group, NULL, x->low + at, n_cols / 8, bnet_copy_group_bytes(n_cols));
    for (int t = 0; t < FEW; t++)
        for (int h = 0; h < 2; h++) {
            float32x4_t v = vmulq_n_f32(four_rows(high.at[t] + 2 * h), BNET_COPY_HIGH);
            v = vaddq_f32(v, four_rows(low.at[t] + 2 * h));
            vst1q_f32(y[t] + 4 * h, vmulq_f32(v, vld1q_f32(scales + 4 * h)));
        }
}

static void scan_eight(const uint8_t *group, const bnet_head_eight *x, size_t n_cols,
                       float (*y)[BNET_COPY_ROWS])
{
    for (size_t t = 0; t < x->n; t += FEW)
        scan_four(group, x, t, n_cols, y + t);
}

BNET_HEAD_COPY(dotprod, scan_eight)
