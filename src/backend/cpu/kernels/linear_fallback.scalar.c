/* linear_fallback.scalar.c - rows of types no kernel knows: decoded 256 values at a time by the
 * format layer's own decoder, then multiplied in the order of bnet_dot_f32. Right, and slow. */
#include "backend/cpu/kernels.h"
#include "base/mathf.h"
#include "format/codec.h"

enum { CHUNK = 256 }; /* a multiple of every block */

static void decode(bnet_type type, const uint8_t *row, size_t first, size_t n, float *w)
{
    bool known = bnet_decode_part(type, row, first, n, w);
    assert(known);
    (void)known;
}

void bnet_linear_fallback_scalar(bnet_type type, const uint8_t *row, const float *x,
                                 size_t x_stride, size_t n_cols, size_t n_tokens, float *y)
{
    float acc[BNET_LINEAR_TOKENS][16] = {{0}}, w[CHUNK];
    for (size_t i = 0; i < n_cols; i += CHUNK) {
        size_t n = BNET_MIN((size_t)CHUNK, n_cols - i);
        decode(type, row, i, n, w);
        for (size_t t = 0; t < n_tokens; t++)
            for (size_t e = 0; e < n; e++)
                acc[t][e % 16] += w[e] * x[t * x_stride + i + e];
    }
    for (size_t t = 0; t < n_tokens; t++)
        y[t] = bnet_fold16(acc[t]);
}

void bnet_linear_fallback_i8_scalar(bnet_type type, const uint8_t *row, const int8_t *q,
                                    size_t q_stride, size_t n_cols, size_t n_tokens, float *y)
{
    float acc[BNET_LINEAR_TOKENS][16] = {{0}}, w[CHUNK];
    for (size_t i = 0; i < n_cols; i += CHUNK) {
        size_t n = BNET_MIN((size_t)CHUNK, n_cols - i);
        decode(type, row, i, n, w);
        for (size_t t = 0; t < n_tokens; t++)
            for (size_t e = 0; e < n; e++)
                acc[t][e % 16] += w[e] * (float)q[t * q_stride + i + e];
    }
    for (size_t t = 0; t < n_tokens; t++)
        y[t] = bnet_fold16(acc[t]);
}
