/* linear_simd.h - weight rows against float activations for any width of vector: include one of
 * simd_*.h first. The 16 running sums of bnet_dot_f32 are PARTS vectors; every product and sum is
 * the scalar kernel's, in its order, without fused operations, so the bits are the same. */
#ifndef BNET_LINEAR_SIMD_H
#define BNET_LINEAR_SIMD_H

#include "backend/cpu/kernels.h"
#include "backend/cpu/pack_q6.h"
#include "base/mathf.h"

enum {
    STEP = 16,
    PARTS = STEP / VF,
    FEW = 4,                   /* tokens whose sums stay in registers */
    MANY = VF == 4 ? FEW : 8,  /* most that a row is decoded once for */
    R4_ROWS = VF == 4 ? 2 : 4, /* rows of a group whose sums do */
    AHEAD = 1024               /* bytes to ask for early */
};

typedef struct sums {
    vf v[PARTS];
} sums;

/* acc += w * x for 16 values */
SIMD void mul_add(sums *acc, const vf w[PARTS], const float *x)
{
    for (int i = 0; i < PARTS; i++)
        acc->v[i] += w[i] * vf_load(x + VF * i);
}

SIMD float fold(const sums *acc)
{
    float all[STEP];
    for (int i = 0; i < PARTS; i++)
        vf_store(all + VF * i, acc->v[i]);
    return bnet_fold16(all);
}

/* ---- rows as they are in the file ---- */

/* Weights [i, i + 16) of a row as floats. What takes such a function, or a number of tokens, must
 * be inlined with it. */
typedef void decode_fn(const uint8_t *row, size_t i, vf w[PARTS]);

/* What is left of a row of two-byte weights behind the last whole 16, filled up with zeros: the
 * sums that get a zero do not change (none of them is ever -0), and element i is in sum i, as
 * everywhere. */
SIMD void tail(decode_fn *decode, const uint8_t *row, const float *x, size_t n, sums *acc)
{
    uint8_t bytes[2 * STEP] = {0};
    float xs[STEP] = {0};
    vf w[PARTS];
    memcpy(bytes, row, 2 * n);
    memcpy(xs, x, n * sizeof *x);
    decode(bytes, 0, w);
    mul_add(acc, w, xs);
}

/* n tokens, a constant: the row is decoded once for them. unroll: steps decoded together, so that
 * their places are constants. */
SIMD void some(decode_fn *decode, size_t unroll, const uint8_t *row, const float *x,
               size_t x_stride, size_t n_cols, size_t n, float *y)
{
    sums acc[MANY];
    size_t whole = n_cols / STEP * STEP;
    for (size_t t = 0; t < n; t++)
        for (int i = 0; i < PARTS; i++)
            acc[t].v[i] = vf_set(0);
    for (size_t i = 0; i < whole; i += unroll * STEP) {
        __builtin_prefetch(row + i + AHEAD); /* a byte per weight, about */
        for (size_t u = 0; u < unroll; u++) {
            vf w[PARTS];
            decode(row, i + u * STEP, w);
            for (size_t t = 0; t < n; t++)
                mul_add(&acc[t], w, x + t * x_stride + i + u * STEP);
        }
    }
    for (size_t t = 0; t < n; t++) {
        if (unroll == 1 && whole < n_cols) /* blocks leave nothing */
            tail(decode, row + 2 * whole, x + t * x_stride + whole, n_cols - whole, &acc[t]);
        y[t] = fold(&acc[t]);
    }
}

SIMD void linear(decode_fn *decode, size_t unroll, const uint8_t *row, const float *x,
                 size_t x_stride, size_t n_cols, size_t n_tokens, float *y)
{
    size_t t = 0;
    for (; t + MANY <= n_tokens; t += MANY)
        some(decode, unroll, row, x + t * x_stride, x_stride, n_cols, MANY, y + t);
    for (; MANY > FEW && t + FEW <= n_tokens; t += FEW)
        some(decode, unroll, row, x + t * x_stride, x_stride, n_cols, FEW, y + t);
    for (; t < n_tokens; t++)
        some(decode, unroll, row, x + t * x_stride, x_stride, n_cols, 1, y + t);
}

#define BNET_LINEAR_ROW(name, unroll)                                                              \
    void ROW(linear_##name)(const uint8_t *row, const float *x, size_t x_stride, size_t n_cols,    \
                            size_t n_tokens, float *y)                                             \
    {                                                                                              \
        linear(decode_##name, unroll, row, x, x_stride, n_cols, n_tokens, y);                      \
    }

/* ---- packed Q6_K: 256 columns of four rows are decoded once for all tokens ---- */

/* Out: 256 columns of row 0, then of rows 1, 2, 3. f16: the rows' scales. */
static void decode_r4(const uint8_t *block, const uint8_t *f16, float *out);

/* R4_ROWS rows for one token */
SIMD void add_256(sums *acc, const float *w, const float *x)
{
    sums a[R4_ROWS];
    vf v[PARTS];
    for (int r = 0; r < R4_ROWS; r++)
        a[r] = acc[r];
    for (size_t i = 0; i < 256; i += STEP)
        for (size_t r = 0; r < R4_ROWS; r++) {
            for (size_t k = 0; k < PARTS; k++)
                v[k] = vf_load(w + 256 * r + i + VF * k);
            mul_add(&a[r], v, x + i);
        }
    for (int r = 0; r < R4_ROWS; r++)
        acc[r] = a[r];
}

void ROW(linear_q6_k_r4)(const uint8_t *group, const float *x, size_t x_stride, size_t n_cols,
                         size_t n_tokens, float *y)
{
    const uint8_t *f16 = group + n_cols / 256 * BNET_Q6R4_BLOCK;
    sums acc[BNET_LINEAR_TOKENS][BNET_Q6R4_ROWS];
    float w[BNET_Q6R4_ROWS * 256];
    memset(acc, 0, n_tokens * sizeof acc[0]);
    for (size_t b = 0; b < n_cols / 256; b++) {
        decode_r4(group + b * BNET_Q6R4_BLOCK, f16 + 8 * b, w);
        for (size_t t = 0; t < n_tokens; t++)
            for (size_t r = 0; r < BNET_Q6R4_ROWS; r += R4_ROWS)
                add_256(acc[t] + r, w + 256 * r, x + t * x_stride + 256 * b);
    }
    for (size_t t = 0; t < n_tokens; t++)
        for (size_t r = 0; r < BNET_Q6R4_ROWS; r++)
            y[t * BNET_Q6R4_ROWS + r] = fold(&acc[t][r]);
}

#endif
