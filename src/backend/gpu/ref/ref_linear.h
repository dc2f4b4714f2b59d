/* ref_linear.h - reference kernels for matrices: one thread per result, in the CPU's order. */
#ifndef BNET_REF_LINEAR_H
#define BNET_REF_LINEAR_H

#include "backend/gpu/ref/ref_math.h"

/* 128 weights of one row of a unit. Its bytes lie as words of 4 in 8 lanes; byte i of them in order
 * holds columns i, 32 + i, 64 + i and 96 + i from its lowest bits on. */
REF_FN int32_t unit_dot(const uint8_t *unit, int row, const int8_t *x)
{
    const uint8_t *lanes = unit + 64 * (row % 8) + 4 * (row / 8);
    int8_t codes[32];
    int32_t acc = 0;
    for (int side = 0; side < 2; side++)
        for (int t = 0; t < 4; t++)
            for (int b = 0; b < 4; b++)
                codes[16 * side + 4 * t + b] = (int8_t)lanes[16 * t + 8 * side + b];
    for (int s = 0; s < 4; s++) {
        int32_t sum = 0;
        for (int i = 0; i < 32; i++)
            sum += ((codes[i] >> (2 * s) & 3) - 1) * x[32 * s + i];
        acc += sum;
    }
    return acc;
}

REF_KERNEL(bnet_ref_linear_i2s, ref_ternary_args)
{
    uint64_t i = REF_THREAD, t = i / (uint64_t)a.n;
    int r = (int)(i % (uint64_t)a.n);
    if (t >= (uint64_t)a.m)
        return;
    int tile = a.paired ? a.first_tile + r / 8 : a.first_tile + r / 16;
    int row = a.paired ? r % 8 + 8 * (a.paired - 1) : r % 16;
    const uint8_t *w = a.w + (uint64_t)tile * (uint64_t)a.n_chunks * BNET_W2_UNIT;
    const int8_t *q = a.act.q + t * (uint64_t)a.act.stride;
    if (!a.scales) {
        int32_t acc = 0;
        for (int c = 0; c < a.n_chunks; c++)
            acc += unit_dot(w + BNET_W2_UNIT * c, row, q + 128 * c);
        a.y[i] = (float)acc * (a.act.scale[t] * a.scale);
        return;
    }
    const float *scales = a.scales + (uint64_t)r * (uint64_t)(a.n_chunks / 2);
    float sum = 0;
    for (int c = 0; c < a.n_chunks; c += 2) {
        int32_t acc = unit_dot(w + BNET_W2_UNIT * c, row, q + 128 * c) +
                      unit_dot(w + BNET_W2_UNIT * (c + 1), row, q + 128 * c + 128);
        sum += scales[c / 2] * (float)acc;
    }
    a.y[i] = sum * a.act.scale[t];
}

/* A row times floats, or times int8 where x is 0, with 16 running sums. Called with a constant
 * type, so that no loop asks for it. */
REF_FN float row_dot(const bnet_dev_matrix *w, int type, uint64_t row, const float *x,
                     const int8_t *q)
{
    float acc[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    uint32_t k = 0;
    for (; k + 16 <= w->k; k += 16)
        for (uint32_t i = 0; i < 16; i++)
            acc[i] += ref_value(w, type, row, (int)(k + i)) * (x ? x[k + i] : (float)q[k + i]);
    for (uint32_t i = 0; k + i < w->k; i++)
        acc[i] += ref_value(w, type, row, (int)(k + i)) * (x ? x[k + i] : (float)q[k + i]);
    return ref_fold16(acc);
}

REF_KERNEL(bnet_ref_linear, ref_linear_args)
{
    uint64_t i = REF_THREAD, t = i / a.w.n_rows, r = i % a.w.n_rows;
    if (t >= (uint64_t)a.m)
        return;
    const float *x = a.x ? a.x + t * a.w.k : 0;
    const int8_t *q = a.x ? 0 : a.act.q + t * (uint64_t)a.act.stride;
    float y = a.type == REF_F32    ? row_dot(&a.w, REF_F32, r, x, q)
              : a.type == REF_F16  ? row_dot(&a.w, REF_F16, r, x, q)
              : a.type == REF_BF16 ? row_dot(&a.w, REF_BF16, r, x, q)
              : a.type == REF_Q8   ? row_dot(&a.w, REF_Q8, r, x, q)
                                   : row_dot(&a.w, REF_Q6K, r, x, q);
    a.y[i] = a.x ? y : y * (a.act.scale[t] * a.scale);
}

#endif
