/* linear_q6_k_r4.avx2.c - exact rows of packed Q6_K against float activations: 256 columns of four
 * rows are decoded once, then each token's 16 running sums of bnet_dot_f32 go over them. Same
 * products and sums as the scalar kernel, without fused operations, so the same bits. */
#include "backend/cpu/kernels.h"
#include "backend/cpu/pack_q6.h"
#include "base/mathf.h"

#include <immintrin.h>

typedef struct sums {
    __m256 v[2];
} sums;

/* Four columns of two rows, eight bytes; to: where the first row's go. */
static inline void decode_two(__m128i bytes, __m256 scale, float *to)
{
    __m256i code = _mm256_sub_epi32(_mm256_cvtepu8_epi32(bytes), _mm256_set1_epi32(32));
    __m256 v = _mm256_mul_ps(scale, _mm256_cvtepi32_ps(code));
    _mm_storeu_ps(to, _mm256_castps256_ps128(v));
    _mm_storeu_ps(to + 256, _mm256_extractf128_ps(v, 1));
}

/* Four columns of four rows; row: the four rows' scales. */
static inline void decode(__m128i code, __m128 row, float *to)
{
    __m256 twice = _mm256_set_m128(row, row);
    __m256 s01 = _mm256_permutevar8x32_ps(twice, _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
    __m256 s23 = _mm256_permutevar8x32_ps(twice, _mm256_setr_epi32(2, 2, 2, 2, 3, 3, 3, 3));
    decode_two(code, s01, to);
    decode_two(_mm_srli_si128(code, 8), s23, to + 512);
}

static inline __m128i fourth(__m128i a, __m128i b, __m128i c)
{
    __m128i high = _mm_and_si128(_mm_srli_epi16(a, 2), _mm_set1_epi8(0x30));
    __m128i mid = _mm_and_si128(_mm_srli_epi16(b, 4), _mm_set1_epi8(0x0c));
    __m128i low = _mm_and_si128(_mm_srli_epi16(c, 6), _mm_set1_epi8(0x03));
    return _mm_or_si128(_mm_or_si128(high, mid), low);
}

static inline __m128i load(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* d times the rows' scales of sub-block g of a quarter */
static inline __m128 scale_of(const uint8_t *w, int g, __m128 d)
{
    __m128i four = _mm_cvtsi32_si128((int)bnet_u32(w + 192 + 4 * g));
    return _mm_mul_ps(d, _mm_cvtepi32_ps(_mm_cvtepi8_epi32(four)));
}

static void decode_block(const uint8_t *block, const uint8_t *f16, float *out)
{
    const __m128i six = _mm_set1_epi8(0x3f);
    __m128 d = _mm_cvtph_ps(_mm_loadl_epi64((const __m128i *)(const void *)f16));
    for (size_t k = 0; k < 4; k++) {
        const uint8_t *w = block + BNET_Q6R4_QUARTER * k;
        float *to = out + 128 * (k / 2) + 16 * (k % 2);
        __m128 s0 = scale_of(w, 0, d), s1 = scale_of(w, 1, d), s2 = scale_of(w, 2, d);
        __m128 s3 = scale_of(w, 3, d);
        for (size_t j = 0; j < 4; j++, w += 16, to += 4) {
            __m128i a = load(w), b = load(w + 64), c = load(w + 128);
            decode(_mm_and_si128(a, six), s0, to);
            decode(_mm_and_si128(b, six), s1, to + 32);
            decode(_mm_and_si128(c, six), s2, to + 64);
            decode(fourth(a, b, c), s3, to + 96);
        }
    }
}

static inline void mul_add(sums *acc, const float *w, const float *x)
{
    for (int i = 0; i < 2; i++)
        acc->v[i] = _mm256_add_ps(
            acc->v[i], _mm256_mul_ps(_mm256_loadu_ps(w + 8 * i), _mm256_loadu_ps(x + 8 * i)));
}

/* 256 columns of four rows for one token */
static inline void four_rows(sums acc[4], const float *w, const float *x)
{
    sums a = acc[0], b = acc[1], c = acc[2], d = acc[3];
    for (size_t i = 0; i < 256; i += 16) {
        mul_add(&a, w + i, x + i);
        mul_add(&b, w + 256 + i, x + i);
        mul_add(&c, w + 512 + i, x + i);
        mul_add(&d, w + 768 + i, x + i);
    }
    acc[0] = a, acc[1] = b, acc[2] = c, acc[3] = d;
}

static inline float fold(const sums *acc)
{
    float all[16];
    for (int i = 0; i < 2; i++)
        _mm256_storeu_ps(all + 8 * i, acc->v[i]);
    return bnet_fold16(all);
}

void bnet_linear_q6_k_r4_avx2(const uint8_t *group, const float *x, size_t x_stride, size_t n_cols,
                              size_t n_tokens, float *y)
{
    const uint8_t *f16 = group + n_cols / 256 * BNET_Q6R4_BLOCK;
    sums acc[BNET_LINEAR_TOKENS][BNET_Q6R4_ROWS];
    float w[BNET_Q6R4_ROWS * 256];
    memset(acc, 0, n_tokens * sizeof acc[0]);
    for (size_t b = 0; b < n_cols / 256; b++) {
        decode_block(group + b * BNET_Q6R4_BLOCK, f16 + 8 * b, w);
        for (size_t t = 0; t < n_tokens; t++)
            four_rows(acc[t], w, x + t * x_stride + 256 * b);
    }
    for (size_t t = 0; t < n_tokens; t++)
        for (size_t r = 0; r < BNET_Q6R4_ROWS; r++)
            y[t * BNET_Q6R4_ROWS + r] = fold(&acc[t][r]);
}
