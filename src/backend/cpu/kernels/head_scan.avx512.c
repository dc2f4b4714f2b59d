/* head_scan.avx512.c - the scan of packed Q6_K. Several inputs: head_q6_x86.h. One: a register
 * holds a sub-block of four rows, four times four columns, a 32-bit lane is a row. The sums and
 * their bounds are those of the AVX2 kernel; there is nothing that VNNI would save, since the
 * scales want 16-bit products anyway. */
#include "backend/cpu/kernels/head_q6_zmm.h"

#define v_dot(acc, pairs, scale) v_add32(acc, _mm512_madd_epi16(pairs, scale))
#include "backend/cpu/kernels/head_q6_x86.h"

enum { AHEAD = 2048 }; /* bytes */

static inline __m512i load(const void *p)
{
    return _mm512_loadu_si512(p);
}

/* The rows' scales of sub-block g, twice each, in all four parts. */
static inline __m512i scale_of(__m512i all, short g)
{
    const __m512i pairs = _mm512_set_epi16(3, 3, 2, 2, 1, 1, 0, 0, 3, 3, 2, 2, 1, 1, 0, 0, 3, 3, 2,
                                           2, 1, 1, 0, 0, 3, 3, 2, 2, 1, 1, 0, 0);
    return _mm512_permutexvar_epi16(_mm512_add_epi16(pairs, _mm512_set1_epi16((short)(4 * g))),
                                    all);
}

/* A whole sub-block: pairs times the rows' scales, added to t. */
static inline __m512i add_products(__m512i t, __m512i codes, const int8_t *q4,
                                   const int16_t *pairs4, __m512i scale)
{
    __m512i p = _mm512_add_epi16(_mm512_maddubs_epi16(codes, load(q4)), load(pairs4));
    return _mm512_add_epi32(t, _mm512_madd_epi16(p, scale));
}

/* The fourth sub-block's codes, two bits from each; 0xca selects by the first operand. */
static inline __m512i fourth(__m512i a, __m512i b, __m512i c)
{
    __m512i low = _mm512_ternarylogic_epi32(_mm512_set1_epi8(0x0c), _mm512_srli_epi16(b, 4),
                                            _mm512_srli_epi16(c, 6), 0xca);
    __m512i all =
        _mm512_ternarylogic_epi32(_mm512_set1_epi8(0x30), _mm512_srli_epi16(a, 2), low, 0xca);
    return _mm512_and_si512(all, _mm512_set1_epi8(0x3f));
}

/* Adds the four sub-blocks of a quarter. q4, pairs4: of its first sub-block; the next one's lie two
 * sub-blocks further. */
static inline __m512i quarter(__m512i t, const uint8_t *w, const int8_t *q4, const int16_t *pairs4,
                              const int8_t *mult)
{
    const __m512i six = _mm512_set1_epi8(0x3f);
    __m256i scale = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(w + 192)));
    __m256i m = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)mult));
    __m512i s = _mm512_castsi256_si512(_mm256_mullo_epi16(scale, m));
    __m512i a = load(w), b = load(w + 64), c = load(w + 128);
    t = add_products(t, _mm512_and_si512(a, six), q4, pairs4, scale_of(s, 0));
    t = add_products(t, _mm512_and_si512(b, six), q4 + 128, pairs4 + 64, scale_of(s, 1));
    t = add_products(t, _mm512_and_si512(c, six), q4 + 256, pairs4 + 128, scale_of(s, 2));
    return add_products(t, fourth(a, b, c), q4 + 384, pairs4 + 192, scale_of(s, 3));
}

/* Integers of the four rows from the four parts. */
static inline __m128i add_parts(__m512i t)
{
    __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(t), _mm512_extracti64x4_epi64(t, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

static void scan_one(const uint8_t *w, size_t n_rows, const bnet_head_x *x, size_t n_cols, float *y)
{
    size_t n_blocks = n_cols / 256, group = bnet_q6r4_group_bytes(n_cols);
    for (size_t r = 0; r < n_rows; r += 4, w += group) {
        const uint8_t *p = w, *f16 = w + n_blocks * BNET_Q6R4_BLOCK;
        __m128 sum = _mm_setzero_ps();
        for (size_t b = 0; b < n_blocks; b++, f16 += 8) {
            __m512i t = _mm512_setzero_si512();
            for (size_t k = 0; k < 4; k++, p += BNET_Q6R4_QUARTER) {
                size_t s = 16 * b + 8 * (k / 2) + k % 2; /* the first sub-block */
                for (int line = 0; line < 4; line++)
                    _mm_prefetch((const char *)p + AHEAD + 64 * line, _MM_HINT_T0);
                t = quarter(t, p, x->q4 + 64 * s, x->pairs4 + 32 * s, x->mult4 + 64 * b + 16 * k);
            }
            __m128 d = _mm_cvtph_ps(_mm_loadl_epi64((const __m128i *)(const void *)f16));
            sum = _mm_add_ps(sum, _mm_mul_ps(_mm_cvtepi32_ps(add_parts(t)), d));
        }
        _mm_storeu_ps(y + r, sum);
    }
}

static BNET_HEAD_SCAN(one_by_one, scan_one)

    void bnet_head_scan_q6_k_r4_avx512(const uint8_t *w, size_t n_rows, const bnet_head_x *x,
                                       size_t n_x, size_t n_cols, float *const *y)
{
    scan_all(w, n_rows, x, n_x, n_cols, y, bnet_head_scan_one_by_one);
}
