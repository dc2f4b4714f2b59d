/* linear_i2s.scalar.c - the reference: what a ternary row times an int8 vector is. */
#include "backend/cpu/kernels.h"

static int32_t block_dot(const uint8_t *w, const int8_t *x)
{
    int32_t acc = 0;
    for (int j = 0; j < 32; j++) {
        int b = w[j];
        acc += ((b >> 6) - 1) * x[j] + ((b >> 4 & 3) - 1) * x[32 + j] +
               ((b >> 2 & 3) - 1) * x[64 + j] + ((b & 3) - 1) * x[96 + j];
    }
    return acc;
}

void bnet_linear_i2s_scalar(const uint8_t *w, size_t n_blocks, size_t n_rows, const int8_t *x,
                            size_t x_stride, const int32_t *x_sum, size_t n_tokens, int32_t *acc)
{
    (void)x_sum; /* fast kernels sum codes and subtract it once; the reference decodes */
    for (size_t t = 0; t < n_tokens; t++)
        for (size_t r = 0; r < n_rows; r++) {
            const uint8_t *row = w + 32 * n_blocks * r;
            int32_t sum = 0;
            for (size_t b = 0; b < n_blocks; b++)
                sum += block_dot(row + 32 * b, x + t * x_stride + 128 * b);
            acc[t * n_rows + r] = sum;
        }
}

static float row_dot_b256(const uint8_t *w, size_t n_blocks, const float *scales, const int8_t *x)
{
    float sum = 0;
    for (size_t b = 0; b < n_blocks; b += 2) {
        int32_t acc =
            block_dot(w + 32 * b, x + 128 * b) + block_dot(w + 32 * b + 32, x + 128 * b + 128);
        sum += scales[b / 2] * (float)acc;
    }
    return sum;
}

void bnet_linear_i2s_b256_scalar(const uint8_t *w, size_t n_blocks, const float *scales,
                                 size_t n_rows, const int8_t *x, size_t x_stride, size_t n_tokens,
                                 float *y)
{
    for (size_t t = 0; t < n_tokens; t++)
        for (size_t r = 0; r < n_rows; r++)
            y[t * n_rows + r] = row_dot_b256(w + 32 * n_blocks * r, n_blocks,
                                             scales + n_blocks / 2 * r, x + t * x_stride);
}
