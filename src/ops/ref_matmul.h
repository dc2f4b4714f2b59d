/* ref_matmul.h - the body of matmul_i2s, compiled once per instruction set: plain loops that any
 * compiler turns into vectors. Four rows of a share each decoded stretch of b. Products are at most
 * 128, sums below 2^31 for k < 2^24; a sum becomes a float at the end. */
#ifndef BNET_REF_MATMUL_H
#define BNET_REF_MATMUL_H

#include "ops/reference.h"

enum { REF_COLS = 64, REF_ROWS = 4 };

static inline void ref_decode(const uint8_t *b, size_t n, int8_t trits[REF_COLS])
{
    for (size_t j = 0; j < n; j++)
        trits[j] = bnet_ref_trit(b[j]);
}

static inline void ref_tile(const int8_t *a, const uint8_t *b, size_t rows, size_t cols, size_t n,
                            size_t k, float *c)
{
    int32_t acc[REF_ROWS][REF_COLS] = {{0}};
    int8_t trits[REF_COLS] = {0};
    for (size_t l = 0; l < k; l++) {
        ref_decode(b + l * n, cols, trits);
        for (size_t i = 0; i < rows; i++) {
            int16_t x = a[i * k + l];
            for (size_t j = 0; j < REF_COLS; j++)
                acc[i][j] += (int16_t)(x * trits[j]);
        }
    }
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++)
            c[i * n + j] = (float)acc[i][j];
}

static inline void ref_matmul(const int8_t *a, const uint8_t *b, float *c, size_t m, size_t n,
                              size_t k)
{
    for (size_t j = 0; j < n; j += REF_COLS)
        for (size_t i = 0; i < m; i += REF_ROWS)
            ref_tile(a + i * k, b + j, BNET_MIN((size_t)REF_ROWS, m - i),
                     BNET_MIN((size_t)REF_COLS, n - j), n, k, c + i * n + j);
}

#endif
