/* plain_body.h - the bodies of plain.h's functions: loops that any compiler turns into vectors
 * where the file's instruction set has them. */
#ifndef BNET_PLAIN_BODY_H
#define BNET_PLAIN_BODY_H

#include "base/mathf.h"
#include "ops/plain.h"

#include <math.h>

enum { PLAIN_COLS = 64 };

static inline uint32_t plain_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float plain_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* Nearest, ties to even; NaN: quiet, upper payload kept. */
static inline uint16_t plain_to_f16(float f)
{
    uint32_t u = plain_bits(f), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    uint32_t nan = 0x7e00u | (a >> 13 & 0x1ffu);
    uint32_t normal = (a + 0xfffu + (a >> 13 & 1u) - 0x38000000u) >> 13;
    uint32_t small = plain_bits(plain_float(a) + 0.5f) - 0x3f000000u; /* rounds where it should */
    uint32_t r = a < 0x38800000u ? small : a >= 0x47800000u ? 0x7c00u : normal;
    return (uint16_t)(sign | (a > 0x7f800000u ? nan : r));
}

static inline uint16_t plain_to_bf16(float f)
{
    uint32_t u = plain_bits(f);
    uint32_t nan = u >> 16 | 0x40u, r = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? nan : r);
}

static inline float plain_from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, e = h >> 10 & 31u, m = h & 0x3ffu;
    uint32_t small = plain_bits((float)m * 0x1p-24f);
    uint32_t r = e == 31 ? 0x7f800000u | m << 13 : e ? (e + 112) << 23 | m << 13 : small;
    return plain_float(sign | r);
}

static inline void plain_convert(bitnet_conversion c, const void *in, size_t n, void *out)
{
    const float *f = in;
    const uint16_t *h = in;
    uint16_t *to_half = out;
    float *to_float = out;
    if (c == BITNET_F32_TO_F16)
        for (size_t i = 0; i < n; i++)
            to_half[i] = plain_to_f16(f[i]);
    else if (c == BITNET_F32_TO_BF16)
        for (size_t i = 0; i < n; i++)
            to_half[i] = plain_to_bf16(f[i]);
    else if (c == BITNET_F16_TO_F32)
        for (size_t i = 0; i < n; i++)
            to_float[i] = plain_from_f16(h[i]);
    else
        for (size_t i = 0; i < n; i++)
            to_float[i] = plain_float((uint32_t)h[i] << 16);
}

static inline float plain_relu2(float x)
{
    x = x > 0 ? x : 0;
    return x * x;
}

static inline float plain_silu(float x)
{
    return x / (1.0f + bnet_expf(-x));
}

#define PLAIN_EACH(expression)                                                                     \
    for (size_t i = 0; i < n; i++)                                                                 \
        y[i] = expression;                                                                         \
    break
static inline void plain_vector(bitnet_vector v, const float *x, const float *z, size_t n, float *y)
{
    switch (v) {
    case BITNET_VECTOR_ADD:
        PLAIN_EACH(x[i] + z[i]);
    case BITNET_VECTOR_MUL:
        PLAIN_EACH(x[i] * z[i]);
    case BITNET_VECTOR_RELU2:
        PLAIN_EACH(plain_relu2(x[i]));
    case BITNET_VECTOR_SILU:
        PLAIN_EACH(plain_silu(x[i]));
    case BITNET_VECTOR_GLU_RELU2:
        PLAIN_EACH(plain_relu2(x[i]) * z[i]);
    case BITNET_VECTOR_GLU_SILU:
        PLAIN_EACH(plain_silu(x[i]) * z[i]);
    }
}
#undef PLAIN_EACH

/* The row's largest value first, so that nothing overflows; a row without a finite value is NaN. */
static inline void plain_softmax(const float *x, size_t rows, size_t n, float *y)
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

static inline void plain_argmax(const float *x, size_t rows, size_t n, int32_t *id)
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

static inline void plain_matmul(const float *a, const float *b, float *c, size_t m, size_t n,
                                size_t k)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j += PLAIN_COLS) {
            size_t cols = BNET_MIN((size_t)PLAIN_COLS, n - j);
            float acc[PLAIN_COLS] = {0};
            for (size_t l = 0; l < k; l++)
                for (size_t e = 0; e < cols; e++)
                    acc[e] = bnet_fmaf(a[i * k + l], b[l * n + j + e], acc[e]);
            memcpy(c + i * n + j, acc, cols * sizeof *acc);
        }
}

#define PLAIN_FNS(isa)                                                                             \
    const bnet_plain_fns bnet_plain_##isa = {plain_convert, plain_vector, plain_softmax,           \
                                             plain_argmax, plain_matmul}

#endif
