/* ref_linear.h - reference kernels for matrices: one thread per result, in the CPU's order. */
#ifndef BNET_REF_LINEAR_H
#define BNET_REF_LINEAR_H

#include "backend/gpu/ref/ref_math.h"

/* 128 weights of one row of a unit: word r of lane 4 g + t holds 4 columns of each of 4 groups. */
REF_FN int32_t unit_dot(const uint8_t *unit, int row, const int8_t *x)
{
    int32_t acc = 0;
    for (int t = 0; t < 4; t++)
        for (int half = 0; half < 2; half++) {
            const uint8_t *word = unit + 16 * (4 * (row % 8) + t) + 4 * (row / 8 + 2 * half);
            for (int b = 0; b < 4; b++)
                for (int s = 0; s < 4; s++)
                    acc += ((word[b] >> (2 * s) & 3) - 1) * x[32 * s + 16 * half + 4 * t + b];
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

REF_KERNEL(bnet_ref_linear, ref_linear_args)
{
    uint64_t i = REF_THREAD, t = i / a.w.n_rows, r = i % a.w.n_rows;
    if (t >= (uint64_t)a.m)
        return;
    float acc[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    for (uint32_t k = 0; k < a.w.k; k++) {
        float x = a.x ? a.x[t * a.w.k + k] : (float)a.act.q[t * (uint64_t)a.act.stride + k];
        acc[k % 16] += ref_value(&a.w, a.type, r, (int)k) * x;
    }
    float y = ref_fold16(acc);
    a.y[i] = a.x ? y : y * (a.act.scale[t] * a.scale);
}

#endif
