/* head_copy.i8mm.c - the scan of the head's copy by 2x8 * 8x2 integer matrix products: a line of
 * weights is four operands, a line of inputs four more, and each meets each. Nothing else is left
 * to do, so of 128256 x 2560 Neoverse V1 scans 16 inputs in a third of the time of Q6_K. */
#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/usmmla.h"

enum { PAIRS = 4 }; /* of rows, and of inputs at most */

/* Sums of the lines w + 64 at[i], or of all, with lines of inputs: sums[rows][inputs]. */
static ALWAYS_INLINE void add_lines(const uint8_t *w, const uint32_t *at, const int8_t *x, size_t n,
                                    size_t ahead, const int n_p, int32x4_t sums[][PAIRS])
{
    UNROLL for (int i = 0; i < PAIRS; i++) UNROLL for (int j = 0; j < n_p; j++) sums[i][j] =
        vdupq_n_s32(0);
    for (size_t k = 0; k < n; k++, x += BNET_COPY_LINE) {
        const uint8_t *line = w + BNET_COPY_LINE * (at ? at[k] : k);
        uint8x16_t rows[PAIRS];
        if (!at)
            __builtin_prefetch(line + ahead, 0, 2);
        UNROLL for (int i = 0; i < PAIRS; i++) rows[i] = vld1q_u8(line + 16 * i);
        UNROLL for (int j = 0; j < n_p; j++)
        {
            int8x16_t v = vld1q_s8(x + 16 * j);
            UNROLL for (int i = 0; i < PAIRS; i++) sums[i][j] = usmmla(sums[i][j], rows[i], v);
        }
    }
}

/* Rows 4 half .. 4 half + 3 of input t as floats. */
static ALWAYS_INLINE float32x4_t four_rows(int32x4_t sums[][PAIRS], int t, int half, int32_t less)
{
    int32x4_t a = sums[2 * half][t / 2], b = sums[2 * half + 1][t / 2];
    int32x4_t v = t % 2 ? vuzp2q_s32(a, b) : vuzp1q_s32(a, b);
    return vcvtq_f32_s32(vsubq_s32(v, vdupq_n_s32(less)));
}

static ALWAYS_INLINE void scan(const uint8_t *group, const bnet_head_eight *x, size_t n_cols,
                               float (*y)[BNET_COPY_ROWS], const int n_p)
{
    const float *scales = (const float *)(const void *)(group + BNET_COPY_ROWS * n_cols);
    float32x4_t scale[2] = {vld1q_f32(scales), vld1q_f32(scales + 4)};
    int32x4_t sums[PAIRS][PAIRS];
    float high[2 * PAIRS][BNET_COPY_ROWS];
    add_lines(group, x->lines, x->high, x->n_high, 0, n_p, sums);
    UNROLL for (int t = 0; t < 2 * n_p; t++) UNROLL for (int h = 0; h < 2; h++) vst1q_f32(
        high[t] + 4 * h, vmulq_n_f32(four_rows(sums, t, h, x->high_sum[t]), BNET_COPY_HIGH));
    add_lines(group, NULL, x->low, n_cols / 8, bnet_copy_group_bytes(n_cols), n_p, sums);
    UNROLL for (int t = 0; t < 2 * n_p; t++) UNROLL for (int h = 0; h < 2; h++)
    {
        float32x4_t v = vaddq_f32(vld1q_f32(high[t] + 4 * h), four_rows(sums, t, h, x->low_sum[t]));
        vst1q_f32(y[t] + 4 * h, vmulq_f32(v, scale[h]));
    }
}

static void scan_eight(const uint8_t *group, const bnet_head_eight *x, size_t n_cols,
                       float (*y)[BNET_COPY_ROWS])
{
    if (x->n <= 2)
        scan(group, x, n_cols, y, 1);
    else if (x->n <= 4)
        scan(group, x, n_cols, y, 2);
    else
        scan(group, x, n_cols, y, 4);
}

BNET_HEAD_COPY(i8mm, scan_eight)
