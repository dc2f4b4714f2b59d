/* r16.h - what every kernel on packed groups of 16 rows ends with. */
#ifndef BNET_KERNELS_R16_H
#define BNET_KERNELS_R16_H

#include "backend/cpu/kernels.h"
#include "backend/cpu/pack.h"

/* Sums of a group (its first row: `row`) for token t become outputs. */
static inline void r16_store(const bnet_r16 *a, size_t row, size_t t,
                             const int32_t acc[BNET_R16_ROWS])
{
    float scale = a->x_scale[t] * a->w_scale;
    float *y = a->y + t * a->y_stride + row;
    size_t n = a->n_rows - row;
    if (n >= BNET_R16_ROWS) { /* a fixed count: a few vector instructions */
        for (size_t r = 0; r < BNET_R16_ROWS; r++)
            y[r] = (float)acc[r] * scale;
        return;
    }
    for (size_t r = 0; r < n; r++)
        y[r] = (float)acc[r] * scale;
}

#endif
