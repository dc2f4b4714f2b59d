/* r16_pairs.h - packed groups of 16 rows times pairs of tokens, by 2x8 * 8x2 integer matrix
 * products (usmmla): the order of weights and tokens, and tiles straight from the packed lines.
 *
 * A step is two lines, 32 columns of 16 rows. The words of a row in both lines, side by side, are
 * the 8 bytes that usmmla wants of a row, and so are their four planes, shifted down: plane p is
 * columns 4p .. 4p+3 of the one line and of the other. So weights become operands in registers:
 * two moves and twelve shifts and masks for four rows of a step. Tokens are brought into the same
 * order before. Codes stay 0, 1, 2 and the sum of x is taken out at the end. 32-bit lanes: at most
 * 2 * 128 * K, safe for K < 2^23. */
#ifndef BNET_KERNELS_R16_PAIRS_H
#define BNET_KERNELS_R16_PAIRS_H

#include "backend/cpu/kernels/r16.h"
#include "backend/cpu/kernels/usmmla.h"

enum {
    STEP_COLS = 32,
    STEP_BYTES = 2 * BNET_R16_LINE, /* of packed lines */
    MOST_PAIRS = 8                  /* of tokens in a tile */
};

/* ---- tokens ---- */

static inline int64x2_t words_zip(int8x16_t a, int8x16_t b, const int half)
{
    int32x4_t x = vreinterpretq_s32_s8(a), y = vreinterpretq_s32_s8(b);
    return vreinterpretq_s64_s32(half ? vzip2q_s32(x, y) : vzip1q_s32(x, y));
}

/* One step of two tokens; its planes go n_plane bytes apart. */
static inline void pack_step(const int8_t *x0, const int8_t *x1, size_t n_plane, int8_t *to)
{
    int8x16_t a = vld1q_s8(x0), b = vld1q_s8(x0 + 16), c = vld1q_s8(x1), d = vld1q_s8(x1 + 16);
    int64x2_t x = words_zip(a, b, 0), y = words_zip(c, d, 0);
    vst1q_s8(to, vreinterpretq_s8_s64(vzip1q_s64(x, y)));
    vst1q_s8(to + n_plane, vreinterpretq_s8_s64(vzip2q_s64(x, y)));
    x = words_zip(a, b, 1), y = words_zip(c, d, 1);
    vst1q_s8(to + 2 * n_plane, vreinterpretq_s8_s64(vzip1q_s64(x, y)));
    vst1q_s8(to + 3 * n_plane, vreinterpretq_s8_s64(vzip2q_s64(x, y)));
}

/* Tokens t .. t + 2 n_pairs to [step][plane][pair][token][8]. In the place of a token that does not
 * exist stands the last one again: nobody stores what comes of it. */
static void pack_pairs(const bnet_r16 *a, size_t t, size_t n_pairs, int8_t *to)
{
    const int8_t *x[2 * MOST_PAIRS];
    for (size_t i = 0; i < 2 * n_pairs; i++)
        x[i] = a->x + BNET_MIN(t + i, a->n_tokens - 1) * a->x_stride;
    for (size_t k = 0; k < 16 * a->n_lines; k += STEP_COLS, to += 64 * n_pairs)
        for (size_t j = 0; j < n_pairs; j++)
            pack_step(x[2 * j] + k, x[2 * j + 1] + k, 16 * n_pairs, to + 16 * j);
}

/* ---- outputs ---- */

/* Sums of four rows and one token; rows that do not exist are not stored. */
static inline void store_four(const bnet_r16 *a, size_t row, size_t t, int32x4_t sums)
{
    float32x4_t v = vcvtq_f32_s32(vsubq_s32(sums, vdupq_n_s32(a->x_sum[t])));
    float *y = a->y + t * a->y_stride + row, out[4];
    v = vmulq_n_f32(v, a->x_scale[t] * a->w_scale);
    if (row + 4 <= a->n_rows) {
        vst1q_f32(y, v);
        return;
    }
    vst1q_f32(out, v);
    for (size_t r = 0; row + r < a->n_rows; r++)
        y[r] = out[r];
}

/* Sums of four rows and a pair of tokens: lo = [r0 t0, r0 t1, r1 t0, r1 t1], hi: r2 and r3. */
static inline void store_pair(const bnet_r16 *a, size_t row, size_t t, int32x4_t lo, int32x4_t hi)
{
    if (t < a->n_tokens)
        store_four(a, row, t, vuzp1q_s32(lo, hi));
    if (t + 1 < a->n_tokens)
        store_four(a, row, t + 1, vuzp2q_s32(lo, hi));
}

/* ---- weights ---- */

/* Words 2 * half and 2 * half + 1 of 16 bytes of a line, each with that of the next line. */
static inline uint8x16_t lines_zip(const uint8_t *w, const int half)
{
    uint32x4_t x = vreinterpretq_u32_u8(vld1q_u8(w));
    uint32x4_t y = vreinterpretq_u32_u8(vld1q_u8(w + BNET_R16_LINE));
    return vreinterpretq_u8_u32(half ? vzip2q_u32(x, y) : vzip1q_u32(x, y));
}

static inline uint8x16_t plane(uint8x16_t w, const int p)
{
    const uint8x16_t three = vdupq_n_u8(3);
    return p == 0   ? vandq_u8(w, three)
           : p == 1 ? vandq_u8(vshrq_n_u8(w, 2), three)
           : p == 2 ? vandq_u8(vshrq_n_u8(w, 4), three)
                    : vshrq_n_u8(w, 6);
}

/* The lines of a row's group, at the bytes of that row. */
static inline const uint8_t *lines_of(const bnet_r16 *a, size_t row)
{
    return a->w + (row / BNET_R16_ROWS * a->n_lines) * BNET_R16_LINE + row % BNET_R16_ROWS * 4;
}

/* ---- tiles from packed lines ---- */

/* One step of 4 n_q rows and n_p pairs of tokens: acc[pair of rows][pair of tokens]. */
static ALWAYS_INLINE void tile_step(const uint8_t *w, const int8_t *x, const int n_q, const int n_p,
                                    int32x4_t acc[][MOST_PAIRS])
{
    uint8x16_t rows[8];
    UNROLL for (int i = 0; i < 2 * n_q; i++) rows[i] = lines_zip(w + i / 2 * 16, i % 2);
    UNROLL for (int p = 0; p < 4; p++)
    {
        uint8x16_t codes[8];
        UNROLL for (int i = 0; i < 2 * n_q; i++) codes[i] = plane(rows[i], p);
        UNROLL for (int j = 0; j < n_p; j++)
        {
            int8x16_t v = vld1q_s8(x + 16 * (p * n_p + j));
            UNROLL for (int i = 0; i < 2 * n_q; i++) acc[i][j] = usmmla(acc[i][j], codes[i], v);
        }
    }
}

/* Rows row .. row + 4 n_q, of one group, times n_p pairs of tokens from t on, packed at x. The same
 * lines of the next group are called into the second-level cache meanwhile. */
static ALWAYS_INLINE void tile(const bnet_r16 *a, size_t row, size_t t, const int8_t *x,
                               const int n_q, const int n_p)
{
    const size_t n_group = BNET_R16_LINE * a->n_lines;
    const uint8_t *w = lines_of(a, row), *end = w + n_group;
    int32x4_t acc[8][MOST_PAIRS];
    UNROLL for (int i = 0; i < 2 * n_q; i++) UNROLL for (int j = 0; j < n_p; j++) acc[i][j] =
        vdupq_n_s32(0);
    for (; w < end; w += STEP_BYTES, x += 64 * n_p) {
        __builtin_prefetch(w + n_group, 0, 2);
        __builtin_prefetch(w + n_group + BNET_R16_LINE, 0, 2);
        tile_step(w, x, n_q, n_p, acc);
    }
    UNROLL for (int q = 0; q < n_q; q++) UNROLL for (int j = 0; j < n_p; j++)
        store_pair(a, row + 4 * (size_t)q, t + 2 * (size_t)j, acc[2 * q][j], acc[2 * q + 1][j]);
}

#endif
