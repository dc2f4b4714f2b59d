/* linear_i2s.avx2.c - 256-bit byte multiplies; with several tokens each weight is unpacked once for
 * four of them. Codes 0,1,2 are the unsigned side of vpmaddubsw, x the signed side. Bounds: a
 * 16-bit lane takes 2 products of at most 2 * 128 from each of 4 planes: |s| <= 2048; folded into
 * 32 bits every block. */
#include "backend/cpu/kernels.h"

#include <immintrin.h>

static inline __m256i load(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

static inline void unpack(const uint8_t *w, __m256i plane[4])
{
    const __m256i three = _mm256_set1_epi8(3);
    __m256i b = load(w);
    plane[0] = _mm256_and_si256(_mm256_srli_epi16(b, 6), three);
    plane[1] = _mm256_and_si256(_mm256_srli_epi16(b, 4), three);
    plane[2] = _mm256_and_si256(_mm256_srli_epi16(b, 2), three);
    plane[3] = _mm256_and_si256(b, three);
}

static inline __m256i dot(__m256i acc, const __m256i plane[4], const int8_t *x)
{
    __m256i s01 = _mm256_add_epi16(_mm256_maddubs_epi16(plane[0], load(x)),
                                   _mm256_maddubs_epi16(plane[1], load(x + 32)));
    __m256i s23 = _mm256_add_epi16(_mm256_maddubs_epi16(plane[2], load(x + 64)),
                                   _mm256_maddubs_epi16(plane[3], load(x + 96)));
    return _mm256_add_epi32(acc,
                            _mm256_madd_epi16(_mm256_add_epi16(s01, s23), _mm256_set1_epi16(1)));
}

static inline int32_t fold(__m256i v)
{
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
    return _mm_cvtsi128_si32(s);
}

/* One row by n_t tokens (1, 4), known at compile time after inlining */
static inline __attribute__((always_inline)) void tile(const uint8_t *w, size_t n_blocks,
                                                       const int8_t *x, size_t x_stride,
                                                       const int32_t *x_sum, int n_t,
                                                       size_t acc_stride, int32_t *acc)
{
    __m256i sum[4], plane[4];
    for (int t = 0; t < n_t; t++)
        sum[t] = _mm256_setzero_si256();
    for (size_t b = 0; b < n_blocks; b++) {
        unpack(w + 32 * b, plane);
        for (int t = 0; t < n_t; t++)
            sum[t] = dot(sum[t], plane, x + x_stride * (size_t)t + 128 * b);
    }
    for (int t = 0; t < n_t; t++)
        acc[acc_stride * (size_t)t] = fold(sum[t]) - x_sum[t];
}

void bnet_linear_i2s_avx2(const uint8_t *w, size_t n_blocks, size_t n_rows, const int8_t *x,
                          size_t x_stride, const int32_t *x_sum, size_t n_tokens, int32_t *acc)
{
    for (size_t t = 0; t < n_tokens; t++, x += x_stride, acc += n_rows)
        for (size_t r = 0; r < n_rows; r++)
            tile(w + 32 * n_blocks * r, n_blocks, x, x_stride, x_sum + t, 1, n_rows, acc + r);
}

void bnet_matmul_i2s_avx2(const uint8_t *w, size_t n_blocks, size_t n_rows, const int8_t *x,
                          size_t x_stride, const int32_t *x_sum, size_t n_tokens, int32_t *acc)
{
    size_t t = 0;
    for (; t + 4 <= n_tokens; t += 4, x += 4 * x_stride, acc += 4 * n_rows)
        for (size_t r = 0; r < n_rows; r++)
            tile(w + 32 * n_blocks * r, n_blocks, x, x_stride, x_sum + t, 4, n_rows, acc + r);
    bnet_linear_i2s_avx2(w, n_blocks, n_rows, x, x_stride, x_sum + t, n_tokens - t, acc);
}
