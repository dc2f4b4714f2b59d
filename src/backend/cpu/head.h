/* head.h - the input of the scan that finds which rows of the head can matter (ops_head.c).
 *
 * The scan computes an approximate logit of every row. Block formats: from integers, the row's
 * codes as they are, the input as int8 with a small integer multiplier per 16 columns (Q8_0: 32).
 * 16-bit floats: with fused operations, which the exact kernels may not use. Every kernel computes
 * the same integers and the same float operations in the same order, so an approximate logit has
 * the same bits on every CPU. */
#ifndef BNET_HEAD_H
#define BNET_HEAD_H

#include "base/base.h"

enum {
    BNET_HEAD_MULT = 15,
    BNET_HEAD_ALIGN = 64,
    BNET_HEAD_TWO = 192 /* bytes for a quarter of two inputs */
};

/* x[i] is about unit * mult[i / 16] * q[i]; |q| <= 127, 0 <= mult <= BNET_HEAD_MULT; Q8_0: the same
 * for both halves of 32 columns. The other arrays are the same numbers in the order some kernel
 * reads them: "quarters" of pack_q6.h, and every value four times, once for each row of a group. */
typedef struct bnet_head_x {
    const int8_t *q;       /* [n_cols] */
    const int8_t *mult;    /* [n_cols / 16] */
    const int8_t *mult4;   /* [n_cols / 64][g][4], g: sub-block of a quarter */
    const int32_t *start4; /* [n_cols / 64][g][4]: -32 times the sum of q of the sub-block */
    const int8_t *q4;      /* [n_cols / 4][4][4]: four columns of q, four times */
    const uint8_t *up;     /* [n_cols] q + 128 */
    const int16_t *pairs4; /* [n_cols / 4][4][2]: -32 (q0 + q1), -32 (q2 + q3) of four columns */
    /* Q6_K, inputs 0, 2, 4 and so on of a call with two or more: this one and the next, zeros where
     * there is none. For every quarter 8 times eight columns of q of this one and of the next, in
     * the order of sub-blocks; then for each of these mult as int32, [this, this, next, next].
     */
    const int8_t *two;
    /* 16-bit floats only */
    const float *x;      /* [n_cols] as it is, |x| < 2^15 */
    const float *raised; /* [n_cols] x times 2^112 */
} bnet_head_x;

/* y[t][r] = approximate logit / unit of input x[t] for n_rows rows of n_cols columns.
 *
 * q6_k_r4: rows in groups of four (pack_q6.h), n_rows a multiple of 4. Per 256 columns the integer
 *   t = sum over sub-blocks s of scale[s] mult[s] sum over columns of (code - 32) q
 * is exact in int32: |t| <= 256 * 32 * 127 * 128 * 15 = 1997537280 < 2^31. Then, in ascending order
 * of blocks, y += (float)t * d, product and sum rounded.
 *
 * q8_0: rows as in the file. Per 32 columns t = mult * sum of w q, |t| <= 15 * 32 * 128 * 127 <
 * 2^23, so (float)t is exact. Block b adds (float)t * d to running sum b % 4, product and sum
 * rounded; the result is (sum 0 + sum 2) + (sum 1 + sum 3).
 *
 * f16, bf16: rows as in the file, n_cols a multiple of 32, all weights finite. Column i adds w x to
 * running sum i % 32, rounded once; the sums are folded 16, 8, 4, 2, 1. */
typedef void bnet_fn_head_scan(const uint8_t *w, size_t n_rows, const bnet_head_x *x, size_t n_x,
                               size_t n_cols, float *const *y);

/* A kernel that serves its inputs one after the other: one(w, n_rows, x, n_cols, y). */
#define BNET_HEAD_SCAN(name, one)                                                                  \
    void bnet_head_scan_##name(const uint8_t *w, size_t n_rows, const bnet_head_x *x, size_t n_x,  \
                               size_t n_cols, float *const *y)                                     \
    {                                                                                              \
        for (size_t t = 0; t < n_x; t++)                                                           \
            one(w, n_rows, &x[t], n_cols, y[t]);                                                   \
    }

/* y[t][r] = dot(row r, x[t]) of the four rows of a q6_k_r4 group, each in the order of
 * bnet_dot_f32; up to BNET_LINEAR_TOKENS tokens. */
typedef void bnet_fn_linear_r4(const uint8_t *group, const float *x, size_t x_stride, size_t n_cols,
                               size_t n_tokens, float *y);

#endif
