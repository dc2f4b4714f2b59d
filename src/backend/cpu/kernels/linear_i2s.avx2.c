/* linear_i2s.avx2.c - 256-bit byte multiplies. Codes 0,1,2 are the unsigned side of vpmaddubsw, x
 * the signed side. Bounds: a 16-bit lane takes 2 products of at most 2 * 128 from each of 4 planes:
 * |s| <= 2048; folded into 32 bits every block. */
#include "backend/cpu/kernels.h"

#include <immintrin.h>

static inline __m256i load(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

static inline __m256i block(__m256i acc, const uint8_t *w, const int8_t *x)
{
    const __m256i three = _mm256_set1_epi8(3), ones = _mm256_set1_epi16(1);
    __m256i b = load(w);
    __m256i c0 = _mm256_and_si256(_mm256_srli_epi16(b, 6), three);
    __m256i c1 = _mm256_and_si256(_mm256_srli_epi16(b, 4), three);
    __m256i c2 = _mm256_and_si256(_mm256_srli_epi16(b, 2), three);
    __m256i c3 = _mm256_and_si256(b, three);
    __m256i s01 =
        _mm256_add_epi16(_mm256_maddubs_epi16(c0, load(x)), _mm256_maddubs_epi16(c1, load(x + 32)));
    __m256i s23 = _mm256_add_epi16(_mm256_maddubs_epi16(c2, load(x + 64)),
                                   _mm256_maddubs_epi16(c3, load(x + 96)));
    return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_add_epi16(s01, s23), ones));
}

static inline int32_t fold(__m256i v)
{
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
    return _mm_cvtsi128_si32(s);
}

void bnet_linear_i2s_avx2(const uint8_t *w, size_t n_blocks, size_t n_rows, const int8_t *x,
                          size_t x_stride, const int32_t *x_sum, size_t n_tokens, int32_t *acc)
{
    for (size_t i = 0; i < n_tokens * n_rows; i++) {
        const uint8_t *row = w + 32 * n_blocks * (i % n_rows);
        const int8_t *xt = x + x_stride * (i / n_rows);
        __m256i sum = _mm256_setzero_si256();
        for (size_t b = 0; b < n_blocks; b++)
            sum = block(sum, row + 32 * b, xt + 128 * b);
        acc[i] = fold(sum) - x_sum[i / n_rows];
    }
}
