/* program_kernel.h - a program's kernel for GPUs whose memory is the host's (the driver "host", the
 * emulated CUDA): ternary matrices by the layout that bitnet_kernel.h documents, written anew. */
#ifndef BNET_TEST_PROGRAM_KERNEL_H
#define BNET_TEST_PROGRAM_KERNEL_H

#include <stdint.h>

#include "bitnet_kernel.h"

static int program_fails; /* what the kernel returns instead of computing */
static void *program_stream;

/* -1, 0, +1 of one place of a matrix */
static int program_trit(const bitnet_gpu_linear *c, size_t row, size_t column)
{
    const uint8_t *w = (const uint8_t *)(uintptr_t)c->w; /* NOLINT: the device's memory is ours */
    const uint8_t *unit = w + 512 * (row / 16 * (c->w_stride / 128) + column / 128);
    size_t in_tile = row % 16, at = column % 128, g = in_tile % 8, s = at / 32;
    size_t r = in_tile / 8 + 2 * (at % 32 / 16), t = at % 16 / 4, b = at % 4;
    return (unit[16 * (4 * g + t) + 4 * r + b] >> 2 * s & 3) - 1;
}

static int program_linear(const bitnet_gpu_linear *c)
{
    const int8_t *x = (const int8_t *)(uintptr_t)c->x;
    const float *scale = (const float *)(uintptr_t)c->x_scale;
    float *y = (float *)(uintptr_t)c->y;
    program_stream = c->stream;
    if (program_fails)
        return program_fails;
    for (size_t r = 0; r < c->n; r++) {
        int8_t row[4096];
        for (size_t i = 0; i < c->k; i++)
            row[i] = (int8_t)program_trit(c, r, i);
        for (size_t t = 0; t < c->m; t++) {
            int32_t sum = 0;
            for (size_t i = 0; i < c->k; i++)
                sum += row[i] * x[t * c->x_stride + i];
            y[t * c->n + r] = (float)sum * (scale[t] * c->w_scale);
        }
    }
    return 0;
}

static inline bitnet_kernel program_kernel(const char *id, const char *device)
{
    bitnet_kernel k;
    bitnet_kernel_init(&k);
    k.id = id;
    k.op = "linear", k.format = "i2s", k.dtype = "i8";
    k.device = device;
    k.tier = BITNET_TIER_EXTREMELY;
    k.fn = (void (*)(void))program_linear;
    return k;
}

#endif
