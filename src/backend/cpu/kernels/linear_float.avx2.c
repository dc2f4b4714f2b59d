/* linear_float.avx2.c - weight rows of F16, BF16, Q8_0, Q4_0 and Q6_K, as in the file and packed,
 * against float activations. */
#include "backend/cpu/kernels/simd_avx2.h"
#include "backend/cpu/kernels/linear_simd.h"

SIMD float half_at(const uint8_t *p)
{
    return _cvtsh_ss(bnet_u16(p));
}

SIMD __m128i load(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

SIMD void decode_f16(const uint8_t *row, size_t i, vf w[PARTS])
{
    for (size_t k = 0; k < PARTS; k++)
        w[k] = vf_from_f16(row + 2 * i + 16 * k);
}

/* A bfloat16 is the upper half of a float. */
SIMD void decode_bf16(const uint8_t *row, size_t i, vf w[PARTS])
{
    for (size_t k = 0; k < PARTS; k++)
        w[k] = _mm256_castsi256_ps(
            _mm256_slli_epi32(_mm256_cvtepu16_epi32(load(row + 2 * i + 16 * k)), 16));
}

/* 16 signed bytes times one scale: (float)q * d */
SIMD void scale_bytes(__m128i q, float d, vf w[PARTS])
{
    w[0] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)) * vf_set(d);
    w[1] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(q, 8))) * vf_set(d);
}

SIMD void decode_q8_0(const uint8_t *row, size_t i, vf w[PARTS])
{
    const uint8_t *block = row + i / 32 * 34;
    scale_bytes(load(block + 2 + i % 32), half_at(block), w);
}

/* Low nibbles are elements 0..15 of a block, high ones 16..31; 8 is subtracted. */
SIMD void decode_q4_0(const uint8_t *row, size_t i, vf w[PARTS])
{
    const uint8_t *block = row + i / 32 * 18;
    __m128i q = load(block + 2);
    __m128i code = _mm_and_si128(i % 32 ? _mm_srli_epi16(q, 4) : q, _mm_set1_epi8(15));
    scale_bytes(_mm_sub_epi8(code, _mm_set1_epi8(8)), half_at(block), w);
}

/* Four low bits from ql, two high bits from qh, minus 32. Shifts are of 16-bit lanes; the masks
 * drop what crosses a byte. */
SIMD void decode_q6_k(const uint8_t *row, size_t i, vf w[PARTS])
{
    const uint8_t *block = row + i / 256 * 210;
    size_t s = i % 256 / 16, h = s / 8, g = s % 8 / 2, l = 16 * (s % 2);
    __m128i ql = load(block + 64 * h + 32 * (g & 1) + l), qh = load(block + 128 + 32 * h + l);
    __m128i low = _mm_and_si128(g < 2 ? ql : _mm_srli_epi16(ql, 4), _mm_set1_epi8(15));
    __m128i shift = _mm_cvtsi32_si128(2 * (int)g);
    __m128i high = _mm_and_si128(_mm_srl_epi16(qh, shift), _mm_set1_epi8(3));
    __m128i code = _mm_sub_epi8(_mm_or_si128(low, _mm_slli_epi16(high, 4)), _mm_set1_epi8(32));
    scale_bytes(code, half_at(block + 208) * (float)(int8_t)block[192 + s], w);
}

BNET_LINEAR_ROW(f16, 1)
BNET_LINEAR_ROW(bf16, 1)
BNET_LINEAR_ROW(q8_0, 2)
BNET_LINEAR_ROW(q4_0, 2)
BNET_LINEAR_ROW(q6_k, 16)

/* ---- packed Q6_K ---- */

/* Four columns of two rows, eight bytes; to: where the first row's go. */
SIMD void decode_two(__m128i bytes, __m256 scale, float *to)
{
    __m256i code = _mm256_sub_epi32(_mm256_cvtepu8_epi32(bytes), _mm256_set1_epi32(32));
    __m256 v = _mm256_mul_ps(scale, _mm256_cvtepi32_ps(code));
    _mm_storeu_ps(to, _mm256_castps256_ps128(v));
    _mm_storeu_ps(to + 256, _mm256_extractf128_ps(v, 1));
}

/* Four columns of four rows; row: the four rows' scales. */
SIMD void decode_four(__m128i code, __m128 row, float *to)
{
    __m256 twice = _mm256_set_m128(row, row);
    __m256 s01 = _mm256_permutevar8x32_ps(twice, _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
    __m256 s23 = _mm256_permutevar8x32_ps(twice, _mm256_setr_epi32(2, 2, 2, 2, 3, 3, 3, 3));
    decode_two(code, s01, to);
    decode_two(_mm_srli_si128(code, 8), s23, to + 512);
}

SIMD __m128i fourth(__m128i a, __m128i b, __m128i c)
{
    __m128i high = _mm_and_si128(_mm_srli_epi16(a, 2), _mm_set1_epi8(0x30));
    __m128i mid = _mm_and_si128(_mm_srli_epi16(b, 4), _mm_set1_epi8(0x0c));
    __m128i low = _mm_and_si128(_mm_srli_epi16(c, 6), _mm_set1_epi8(0x03));
    return _mm_or_si128(_mm_or_si128(high, mid), low);
}

/* d times the rows' scales of sub-block g of a quarter */
SIMD __m128 scale_of(const uint8_t *w, int g, __m128 d)
{
    __m128i four = _mm_cvtsi32_si128((int)bnet_u32(w + 192 + 4 * g));
    return _mm_mul_ps(d, _mm_cvtepi32_ps(_mm_cvtepi8_epi32(four)));
}

static void decode_r4(const uint8_t *block, const uint8_t *f16, float *out)
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
            decode_four(_mm_and_si128(a, six), s0, to);
            decode_four(_mm_and_si128(b, six), s1, to + 32);
            decode_four(_mm_and_si128(c, six), s2, to + 64);
            decode_four(fourth(a, b, c), s3, to + 96);
        }
    }
}
