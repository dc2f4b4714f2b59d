/* single_op_body.h - the bodies of single_op.h's functions: loops that any compiler turns into
 * vectors where the file's instruction set has them. */
#ifndef BNET_SINGLE_OP_BODY_H
#define BNET_SINGLE_OP_BODY_H

#include "base/mathf.h"
#include "ops/single_op.h"

#include <math.h>

enum { COLS = 64 };

static inline uint32_t single_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float single_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* Nearest, ties to even; NaN: quiet, upper payload kept. */
static inline uint16_t single_to_f16(float f)
{
    uint32_t u = single_bits(f), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    uint32_t nan = 0x7e00u | (a >> 13 & 0x1ffu);
    uint32_t normal = (a + 0xfffu + (a >> 13 & 1u) - 0x38000000u) >> 13;
    uint32_t small = single_bits(single_float(a) + 0.5f) - 0x3f000000u; /* rounds where it should */
    uint32_t r = a < 0x38800000u ? small : a >= 0x47800000u ? 0x7c00u : normal;
    return (uint16_t)(sign | (a > 0x7f800000u ? nan : r));
}

static inline uint16_t single_to_bf16(float f)
{
    uint32_t u = single_bits(f);
    uint32_t nan = u >> 16 | 0x40u, r = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? nan : r);
}

static inline float single_from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, e = h >> 10 & 31u, m = h & 0x3ffu;
    uint32_t small = single_bits((float)m * 0x1p-24f);
    uint32_t r = e == 31 ? 0x7f800000u | m << 13 : e ? (e + 112) << 23 | m << 13 : small;
    return single_float(sign | r);
}

static inline void single_convert(bitnet_conversion c, const void *in, size_t n, void *out)
{
    const float *f = in;
    const uint16_t *h = in;
    uint16_t *to_half = out;
    float *to_float = out;
    if (c == BITNET_F32_TO_F16)
        for (size_t i = 0; i < n; i++)
            to_half[i] = single_to_f16(f[i]);
    else if (c == BITNET_F32_TO_BF16)
        for (size_t i = 0; i < n; i++)
            to_half[i] = single_to_bf16(f[i]);
    else if (c == BITNET_F16_TO_F32)
        for (size_t i = 0; i < n; i++)
            to_float[i] = single_from_f16(h[i]);
    else
        for (size_t i = 0; i < n; i++)
            to_float[i] = single_float((uint32_t)h[i] << 16);
}

static inline float single_relu2(float x)
{
    x = x > 0 ? x : 0;
    return x * x;
}

static inline float single_silu(float x)
{
    return x / (1.0f + bnet_expf(-x));
}

#define EACH(expression)                                                                           \
    for (size_t i = 0; i < n; i++)                                                                 \
        y[i] = expression;                                                                         \
    break
static inline void single_vector(bitnet_vector v, const float *x, const float *z, size_t n,
                                 float *y)
{
    switch (v) {
    case BITNET_VECTOR_ADD:
        EACH(x[i] + z[i]);
    case BITNET_VECTOR_MUL:
        EACH(x[i] * z[i]);
    case BITNET_VECTOR_RELU2:
        EACH(single_relu2(x[i]));
    case BITNET_VECTOR_SILU:
        EACH(single_silu(x[i]));
    case BITNET_VECTOR_GLU_RELU2:
        EACH(single_relu2(x[i]) * z[i]);
    case BITNET_VECTOR_GLU_SILU:
        EACH(single_silu(x[i]) * z[i]);
    }
}
#undef EACH

/* The row's largest value first, so that nothing overflows; a row without a finite value is NaN. */
static inline void single_softmax(const float *x, size_t rows, size_t n, float *y)
{
    for (size_t r = 0; r < rows; r++, x += n, y += n) {
        float top = -INFINITY;
        double sum[8] = {0};
        for (size_t i = 0; i < n; i++)
            top = fmaxf(top, x[i]);
        for (size_t i = 0; i < n; i++)
            y[i] = bnet_expf(x[i] - top);
        for (size_t i = 0; i < n; i++)
            sum[i % 8] += (double)y[i];
        for (int w = 4; w >= 1; w /= 2)
            for (int i = 0; i < w; i++)
                sum[i] += sum[i + w];
        for (size_t i = 0; i < n; i++)
            y[i] = (float)((double)y[i] / sum[0]);
    }
}

static inline void single_argmax(const float *x, size_t rows, size_t n, int32_t *id)
{
    for (size_t r = 0; r < rows; r++, x += n) {
        float top = -INFINITY;
        for (size_t i = 0; i < n; i++)
            top = x[i] > top && x[i] < INFINITY ? x[i] : top;
        size_t at = 0;
        while (at < n && !(x[at] == top && isfinite(x[at])))
            at++;
        id[r] = at < n ? (int32_t)at : -1;
    }
}

static inline void single_matmul(const float *a, const float *b, float *c, size_t m, size_t n,
                                 size_t k)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j += COLS) {
            size_t cols = BNET_MIN((size_t)COLS, n - j);
            float acc[COLS] = {0};
            for (size_t l = 0; l < k; l++)
                for (size_t e = 0; e < cols; e++)
                    acc[e] = bnet_fmaf(a[i * k + l], b[l * n + j + e], acc[e]);
            memcpy(c + i * n + j, acc, cols * sizeof *acc);
        }
}

/* ---- matmul_i2s: four rows of a share each decoded stretch of b. Products are at most 128, sums
 * below 2^31 for k < 2^24; a sum becomes a float at the end ---- */

enum { ROWS = 4 };

static inline void decode_codes(const uint8_t *b, size_t n, int8_t trits[COLS])
{
    for (size_t j = 0; j < n; j++)
        trits[j] = bnet_ref_trit(b[j]);
}

static inline void tile_i2s(const int8_t *a, const uint8_t *b, size_t rows, size_t cols, size_t n,
                            size_t k, float *c)
{
    int32_t acc[ROWS][COLS] = {{0}};
    int8_t trits[COLS] = {0};
    for (size_t l = 0; l < k; l++) {
        decode_codes(b + l * n, cols, trits);
        for (size_t i = 0; i < rows; i++) {
            int16_t x = a[i * k + l];
            for (size_t j = 0; j < COLS; j++)
                acc[i][j] += (int16_t)(x * trits[j]);
        }
    }
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++)
            c[i * n + j] = (float)acc[i][j];
}

static inline void single_matmul_i2s(const int8_t *a, const uint8_t *b, float *c, size_t m,
                                     size_t n, size_t k)
{
    for (size_t j = 0; j < n; j += COLS)
        for (size_t i = 0; i < m; i += ROWS)
            tile_i2s(a + i * k, b + j, BNET_MIN((size_t)ROWS, m - i), BNET_MIN((size_t)COLS, n - j),
                     n, k, c + i * n + j);
}

#define SINGLE_FNS(isa)                                                                            \
    const bnet_single_fns bnet_single_##isa = {single_convert, single_vector, single_softmax,      \
                                               single_argmax, single_matmul};                      \
    void bnet_ref_matmul_##isa(const int8_t *a, const uint8_t *b, float *c, size_t m, size_t n,    \
                               size_t k)                                                           \
    {                                                                                              \
        single_matmul_i2s(a, b, c, m, n, k);                                                       \
    }

#endif
