/* linear_float.avx2.c - weight rows of F16, BF16, Q8_0, Q4_0 and Q6_K against float activations.
 * The 16 running sums of bnet_dot_f32 are two registers; every product and sum is the scalar
 * kernel's, in its order, without fused operations, so the bits are the same. */
#include "backend/cpu/kernels.h"
#include "base/mathf.h"

#include <immintrin.h>

enum { STEP = 16 };

typedef struct sums {
    __m256 v[2];
} sums;

/* acc += w * x for 16 values */
static inline void mul_add(sums *acc, const __m256 w[2], const float *x)
{
    for (int i = 0; i < 2; i++)
        acc->v[i] = _mm256_add_ps(acc->v[i], _mm256_mul_ps(w[i], _mm256_loadu_ps(x + 8 * i)));
}

static inline float fold(const sums *acc)
{
    float all[STEP];
    for (int i = 0; i < 2; i++)
        _mm256_storeu_ps(all + 8 * i, acc->v[i]);
    return bnet_fold16(all);
}

/* 16 signed bytes times one scale: (float)q * d */
static inline void scale_bytes(__m128i q, __m256 d, __m256 w[2])
{
    w[0] = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)), d);
    w[1] = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(q, 8))), d);
}

static inline float half_at(const uint8_t *p)
{
    return _cvtsh_ss(bnet_u16(p));
}

static inline void clear(sums *acc, size_t n)
{
    for (size_t t = 0; t < n; t++)
        for (int i = 0; i < 2; i++)
            acc[t].v[i] = _mm256_setzero_ps();
}

/* 16 weights of two bytes, as floats. What takes such a function must be inlined with it: a call
 * per 16 weights would cost more than they do. */
#define INLINE static inline __attribute__((always_inline))
typedef void load_fn(const uint8_t *p, __m256 w[2]);

static inline __m128i load_half(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

INLINE void load_f16(const uint8_t *p, __m256 w[2])
{
    w[0] = _mm256_cvtph_ps(load_half(p));
    w[1] = _mm256_cvtph_ps(load_half(p + 16));
}

/* A bfloat16 is the upper half of a float. */
INLINE void load_bf16(const uint8_t *p, __m256 w[2])
{
    for (int i = 0; i < 2; i++)
        w[i] = _mm256_castsi256_ps(
            _mm256_slli_epi32(_mm256_cvtepu16_epi32(load_half(p + 16 * i)), 16));
}

/* What is left of a row behind the last whole 16, filled up with zeros: the sums that get a zero
 * do not change (none of them is ever -0), and element i is in sum i, as everywhere. */
INLINE void tail(load_fn *load, const uint8_t *row, const float *x, size_t n, sums *acc)
{
    uint8_t bytes[2 * STEP] = {0};
    float xs[STEP] = {0};
    __m256 w[2];
    memcpy(bytes, row, 2 * n);
    memcpy(xs, x, n * sizeof *x);
    load(bytes, w);
    mul_add(acc, w, xs);
}

INLINE void linear_16bit(load_fn *load, const uint8_t *row, const float *x, size_t x_stride,
                         size_t n_cols, size_t n_tokens, float *y)
{
    sums acc[BNET_LINEAR_TOKENS];
    size_t whole = n_cols / STEP * STEP;
    clear(acc, n_tokens);
    for (size_t i = 0; i < whole; i += STEP) {
        __m256 w[2];
        load(row + 2 * i, w);
        for (size_t t = 0; t < n_tokens; t++)
            mul_add(&acc[t], w, x + t * x_stride + i);
    }
    for (size_t t = 0; t < n_tokens; t++) {
        if (whole < n_cols)
            tail(load, row + 2 * whole, x + t * x_stride + whole, n_cols - whole, &acc[t]);
        y[t] = fold(&acc[t]);
    }
}

void bnet_linear_f16_avx2(const uint8_t *row, const float *x, size_t x_stride, size_t n_cols,
                          size_t n_tokens, float *y)
{
    linear_16bit(load_f16, row, x, x_stride, n_cols, n_tokens, y);
}

void bnet_linear_bf16_avx2(const uint8_t *row, const float *x, size_t x_stride, size_t n_cols,
                           size_t n_tokens, float *y)
{
    linear_16bit(load_bf16, row, x, x_stride, n_cols, n_tokens, y);
}

void bnet_linear_q8_0_avx2(const uint8_t *row, const float *x, size_t x_stride, size_t n_cols,
                           size_t n_tokens, float *y)
{
    sums acc[BNET_LINEAR_TOKENS];
    clear(acc, n_tokens);
    for (size_t b = 0; b < n_cols / 32; b++, row += 34) {
        __m256 d = _mm256_set1_ps(half_at(row)), w[2];
        for (size_t h = 0; h < 2; h++) {
            const uint8_t *q = row + 2 + 16 * h;
            scale_bytes(_mm_loadu_si128((const __m128i *)(const void *)q), d, w);
            for (size_t t = 0; t < n_tokens; t++)
                mul_add(&acc[t], w, x + t * x_stride + 32 * b + 16 * h);
        }
    }
    for (size_t t = 0; t < n_tokens; t++)
        y[t] = fold(&acc[t]);
}

/* Low nibbles are elements 0..15 of a block, high ones 16..31; 8 is subtracted. */
void bnet_linear_q4_0_avx2(const uint8_t *row, const float *x, size_t x_stride, size_t n_cols,
                           size_t n_tokens, float *y)
{
    sums acc[BNET_LINEAR_TOKENS];
    clear(acc, n_tokens);
    for (size_t b = 0; b < n_cols / 32; b++, row += 18) {
        __m256 d = _mm256_set1_ps(half_at(row)), w[2];
        __m128i q = load_half(row + 2);
        for (size_t h = 0; h < 2; h++) {
            __m128i code = _mm_and_si128(h ? _mm_srli_epi16(q, 4) : q, _mm_set1_epi8(15));
            scale_bytes(_mm_sub_epi8(code, _mm_set1_epi8(8)), d, w);
            for (size_t t = 0; t < n_tokens; t++)
                mul_add(&acc[t], w, x + t * x_stride + 32 * b + 16 * h);
        }
    }
    for (size_t t = 0; t < n_tokens; t++)
        y[t] = fold(&acc[t]);
}

/* 16 values of one sub-block: four low bits from ql, two high bits from qh, minus 32. Shifts are of
 * 16-bit lanes; the masks drop what crosses a byte. */
static inline __m128i q6_bytes(const uint8_t *block, int s)
{
    int h = s / 8, g = s % 8 / 2, l = 16 * (s % 2);
    const void *pl = block + 64 * h + 32 * (g & 1) + l, *ph = block + 128 + 32 * h + l;
    __m128i ql = _mm_loadu_si128((const __m128i *)pl), qh = _mm_loadu_si128((const __m128i *)ph);
    __m128i low = _mm_and_si128(g < 2 ? ql : _mm_srli_epi16(ql, 4), _mm_set1_epi8(15));
    __m128i high = _mm_and_si128(_mm_srl_epi16(qh, _mm_cvtsi32_si128(2 * g)), _mm_set1_epi8(3));
    return _mm_sub_epi8(_mm_or_si128(low, _mm_slli_epi16(high, 4)), _mm_set1_epi8(32));
}

void bnet_linear_q6_k_avx2(const uint8_t *row, const float *x, size_t x_stride, size_t n_cols,
                           size_t n_tokens, float *y)
{
    sums acc[BNET_LINEAR_TOKENS];
    clear(acc, n_tokens);
    for (size_t b = 0; b < n_cols / 256; b++, row += 210) {
        float d = half_at(row + 208);
        for (int s = 0; s < 16; s++) {
            __m256 w[2];
            scale_bytes(q6_bytes(row, s), _mm256_set1_ps(d * (float)(int8_t)row[192 + s]), w);
            for (size_t t = 0; t < n_tokens; t++)
                mul_add(&acc[t], w, x + t * x_stride + 256 * b + 16 * (size_t)s);
        }
    }
    for (size_t t = 0; t < n_tokens; t++)
        y[t] = fold(&acc[t]);
}
