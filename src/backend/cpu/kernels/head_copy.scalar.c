/* head_copy.scalar.c - what the scan of the head's copy means. */
#include "backend/cpu/kernels.h"

/* Eight columns of a row and of an input. */
static int32_t dot8(const uint8_t *w, const int8_t *x)
{
    int32_t sum = 0;
    for (int i = 0; i < 8; i++)
        sum += (w[i] - 128) * x[i];
    return sum;
}

static float scaled(const uint8_t *group, const bnet_head_eight *x, size_t n_cols, size_t r,
                    size_t t)
{
    int32_t low = 0, high = 0;
    float scale;
    for (size_t i = 0; i < n_cols / 8; i++)
        low += dot8(group + BNET_COPY_LINE * i + 8 * r, x->low + BNET_COPY_LINE * i + 8 * t);
    for (size_t i = 0; i < x->n_high; i++)
        high += dot8(group + BNET_COPY_LINE * (size_t)x->lines[i] + 8 * r,
                     x->high + BNET_COPY_LINE * i + 8 * t);
    memcpy(&scale, group + BNET_COPY_ROWS * n_cols + r * sizeof scale, sizeof scale);
    return ((float)high * BNET_COPY_HIGH + (float)low) * scale;
}

static void scan_eight(const uint8_t *group, const bnet_head_eight *x, size_t n_cols,
                       float (*y)[BNET_COPY_ROWS])
{
    for (size_t t = 0; t < x->n; t++)
        for (size_t r = 0; r < BNET_COPY_ROWS; r++)
            y[t][r] = scaled(group, x, n_cols, r, t);
}

BNET_HEAD_COPY(scalar, scan_eight)
