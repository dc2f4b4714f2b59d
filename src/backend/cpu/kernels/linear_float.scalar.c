/* linear_float.scalar.c - one row of a float or block format against float activations. The row is
 * decoded 256 values at a time; since 256 is a multiple of 16 the sums run in the order of
 * bnet_dot_f32, whatever the format. */
#include "backend/cpu/half_inline.h"
#include "backend/cpu/kernels.h"
#include "base/mathf.h"

enum { CHUNK = 256 };

typedef void decode_fn(const uint8_t *src, float *dst, size_t n);

static inline void mul_add(float acc[16], const float *a, const float *b, size_t n)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (size_t l = 0; l < 16; l++)
            acc[l] += a[i + l] * b[i + l];
    for (size_t l = 0; i + l < n; l++)
        acc[l] += a[i + l] * b[i + l];
}

static inline void linear(decode_fn *decode, size_t chunk_bytes, const uint8_t *row, const float *x,
                          size_t x_stride, size_t n_cols, size_t n_tokens, float *y)
{
    float acc[BNET_LINEAR_TOKENS][16] = {{0}}, w[CHUNK];
    for (size_t i = 0; i < n_cols; i += CHUNK, row += chunk_bytes) {
        size_t n = BNET_MIN((size_t)CHUNK, n_cols - i);
        decode(row, w, n);
        for (size_t t = 0; t < n_tokens; t++)
            mul_add(acc[t], w, x + t * x_stride + i, n);
    }
    for (size_t t = 0; t < n_tokens; t++)
        y[t] = bnet_fold16(acc[t]);
}

static inline void decode_f32(const uint8_t *src, float *dst, size_t n)
{
    memcpy(dst, src, 4 * n);
}

static inline void decode_f16(const uint8_t *src, float *dst, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = half_to_float(bnet_u16(src + 2 * i));
}

static inline void decode_bf16(const uint8_t *src, float *dst, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = bf16_to_float(bnet_u16(src + 2 * i));
}

static inline void decode_q8_0(const uint8_t *src, float *dst, size_t n)
{
    for (size_t b = 0; b < n / 32; b++, src += 34) {
        float d = half_to_float(bnet_u16(src));
        for (size_t i = 0; i < 32; i++)
            dst[32 * b + i] = (float)(int8_t)src[2 + i] * d;
    }
}

static inline void decode_q4_0(const uint8_t *src, float *dst, size_t n)
{
    bnet_decode_row(BNET_Q4_0, src, dst, n);
}

/* 16 values of one sub-block: low nibbles or high ones, two more bits from qh; see docs/FORMATS.md
 */
static inline void q6_group(const uint8_t *ql, const uint8_t *qh, int lo_shift, int hi_shift,
                            float scale, float *dst)
{
    for (int i = 0; i < 16; i++) {
        int q = (ql[i] >> lo_shift & 15) | (qh[i] >> hi_shift & 3) << 4;
        dst[i] = scale * (float)(q - 32);
    }
}

static inline void decode_q6_k(const uint8_t *src, float *dst, size_t n)
{
    (void)n; /* always one block of 256 */
    const uint8_t *qh = src + 128, *sc = src + 192;
    float d = half_to_float(bnet_u16(src + 208));
    for (int s = 0; s < 16; s++) {
        int h = s / 8, g = s % 8 / 2, l = 16 * (s % 2);
        float scale = d * (float)(int8_t)sc[s];
        q6_group(src + 64 * h + 32 * (g & 1) + l, qh + 32 * h + l, g < 2 ? 0 : 4, 2 * g, scale,
                 dst + 16 * s);
    }
}

#define LINEAR(name, chunk_bytes)                                                                  \
    void bnet_linear_##name##_scalar(const uint8_t *row, const float *x, size_t x_stride,          \
                                     size_t n_cols, size_t n_tokens, float *y)                     \
    {                                                                                              \
        linear(decode_##name, chunk_bytes, row, x, x_stride, n_cols, n_tokens, y);                 \
    }
LINEAR(f32, 1024)
LINEAR(f16, 512)
LINEAR(bf16, 512)
LINEAR(q8_0, 8 * 34)
LINEAR(q4_0, 8 * 18)
LINEAR(q6_k, 210)
