/* simd_avx512.h - a vector of floats as the kernels that are written once for every vector width
 * see it: the names are the same in simd_neon.h. */
#ifndef BNET_SIMD_AVX512_H
#define BNET_SIMD_AVX512_H

#include <immintrin.h>
#include <string.h>

#include "base/base.h"

#define SIMD static inline __attribute__((always_inline))

typedef __m512 vf;    /* VF floats */
typedef __m128 v4;    /* 4 floats */
typedef __mmask16 vm; /* a mask for each lane of vf */
enum { VF = 16 };

SIMD vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
SIMD void vf_store(float *p, vf v)
{
    _mm512_storeu_ps(p, v);
}
SIMD vf vf_set(float x)
{
    return _mm512_set1_ps(x);
}
SIMD vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}
SIMD vf vf_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}
SIMD vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}
SIMD vf vf_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}
SIMD vf vf_neg(vf a)
{
    return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f));
}
SIMD vf vf_abs(vf a)
{
    return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), a);
}
/* a * b + c, rounded once */
SIMD vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
/* a > b ? a : b, so b where either is NaN */
SIMD vf vf_pick_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
/* One step to the largest magnitude; what is no number stays in *bad. */
SIMD void vf_amax(vf v, vf *max, vf *bad)
{
    *max = vf_pick_max(vf_abs(v), *max);
    *bad = vf_fma(v, vf_set(0), *bad);
}
SIMD vm vf_lt(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
SIMD vm vf_is_nan(vf a)
{
    return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
}
SIMD vf vf_select(vm m, vf yes, vf no)
{
    return _mm512_mask_blend_ps(m, no, yes);
}
SIMD vf vf_zero_where(vm m, vf v)
{
    return _mm512_maskz_mov_ps((vm)~m, v);
}
/* 2^(n >> 1) and 2^(n - (n >> 1)) of integers held as floats, |n| <= 252 */
SIMD void vf_pow2_halves(vf n, vf *a, vf *b)
{
    __m512i k = _mm512_cvttps_epi32(n), half = _mm512_srai_epi32(k, 1),
            bias = _mm512_set1_epi32(127);
    *a = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(half, bias), 23));
    *b = _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_add_epi32(_mm512_sub_epi32(k, half), bias), 23));
}
/* 2^n, -126 <= n <= 0, from the bits of n + 1.5 * 2^23 */
SIMD vf vf_pow2_low(vf t)
{
    __m512i k = _mm512_slli_epi32(_mm512_castps_si512(t), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(k, _mm512_set1_epi32(127 << 23)));
}
SIMD vf vf_from_f16(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
SIMD vf vf_round_f16(vf v)
{
    return _mm512_cvtph_ps(_mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
SIMD void vf_to_f16(uint8_t *p, vf v)
{
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
SIMD vf vf_from_i8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}

SIMD v4 v4_load(const float *p)
{
    return _mm_loadu_ps(p);
}
SIMD void v4_store(float *p, v4 v)
{
    _mm_storeu_ps(p, v);
}
SIMD v4 v4_set(float x)
{
    return _mm_set1_ps(x);
}
SIMD v4 v4_add(v4 a, v4 b)
{
    return _mm_add_ps(a, b);
}
SIMD v4 v4_mul(v4 a, v4 b)
{
    return _mm_mul_ps(a, b);
}
SIMD v4 v4_pick_max(v4 a, v4 b)
{
    return _mm_max_ps(a, b);
}
SIMD vf vf_repeat(v4 v)
{
    return _mm512_broadcast_f32x4(v);
}
/* Halves added until four lanes are left. */
SIMD v4 vf_fold(vf v)
{
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    return _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
}
/* Lane i: (x[i][0] + x[i][1]) + (x[i][2] + x[i][3]) */
SIMD v4 v4_fold_each(v4 a, v4 b, v4 c, v4 d)
{
    return _mm_hadd_ps(_mm_hadd_ps(a, b), _mm_hadd_ps(c, d));
}

/* Four weights of one position and the multiplication by one of them. */
typedef const float *vweights;
SIMD vweights vw_load(const float *p)
{
    return p;
}
#define vw_fma(v, w, lane, acc) vf_fma(v, vf_set((w)[lane]), acc)

/* ---- doubles ---- */

typedef __m512d vd; /* VD doubles */
enum { VD = 8 };

SIMD vd vd_set(double x)
{
    return _mm512_set1_pd(x);
}
SIMD vd vd_mul(vd a, vd b)
{
    return _mm512_mul_pd(a, b);
}
SIMD vd vd_fma(vd a, vd b, vd c)
{
    return _mm512_fmadd_pd(a, b, c);
}
SIMD void vd_store(double *p, vd v)
{
    _mm512_storeu_pd(p, v);
}
SIMD void vf_widen(vf v, vd out[VF / VD])
{
    out[0] = _mm512_cvtps_pd(_mm512_castps512_ps256(v));
    out[1] = _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
}
SIMD vf vf_narrow(const vd in[VF / VD])
{
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(in[0])),
                              _mm512_cvtpd_ps(in[1]), 1);
}

/* ---- integers ---- */

/* 16 doubles x[i] * s, none beyond +-127.5, rounded to nearest even, as int8, added to the sum. */
typedef __m512i vsum;
SIMD vsum vsum_zero(void)
{
    return _mm512_setzero_si512();
}
SIMD int32_t vsum_total(vsum s)
{
    return _mm512_reduce_add_epi32(s);
}
SIMD void round16_d(const float *x, vd s, int8_t *q, vsum *sum)
{
    vd v[2];
    vf_widen(vf_load(x), v);
    __m256i lo = _mm512_cvtpd_epi32(_mm512_mul_pd(v[0], s));
    __m256i hi = _mm512_cvtpd_epi32(_mm512_mul_pd(v[1], s));
    __m512i r = _mm512_inserti64x4(_mm512_castsi256_si512(lo), hi, 1);
    _mm_storeu_si128((__m128i *)(void *)q, _mm512_cvtepi32_epi8(r));
    *sum = _mm512_add_epi32(*sum, r);
}
/* 16 floats likewise: the larger *doubt becomes, the farther from an integer the worst of them was.
 */
SIMD void round16_v(const vf v[16 / VF], int8_t *q, vsum *sum, vf *doubt)
{
    __m512i r = _mm512_cvtps_epi32(v[0]);
    *doubt = _mm512_max_ps(*doubt, vf_abs(vf_sub(v[0], _mm512_cvtepi32_ps(r))));
    _mm_storeu_si128((__m128i *)(void *)q, _mm512_cvtepi32_epi8(r));
    *sum = _mm512_add_epi32(*sum, r);
}
/* The largest of all lanes of maxima that vf_amax made. */
SIMD float vf_max_lanes(vf a, vf b)
{
    return _mm512_reduce_max_ps(_mm512_max_ps(a, b));
}
SIMD bool vf_any_above(vf v, float limit)
{
    return vf_lt(vf_set(limit), v) != 0;
}
/* 16 floats, none beyond +-127.5, rounded to nearest even, as int8 */
SIMD void round16_f(const float *x, float s, uint8_t *q)
{
    __m512i r = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), _mm512_set1_ps(s)));
    _mm_storeu_si128((__m128i *)(void *)q, _mm512_cvtepi32_epi8(r));
}

/* 16 int8 times s, as floats */
SIMD void scale16_i8(const uint8_t *p, float s, float *to)
{
    for (int i = 0; i < 16; i += VF)
        vf_store(to + i, vf_mul(vf_from_i8(p + i), vf_set(s)));
}

/* VF pairs: first and second of each */
SIMD void vf_load_pairs(const float *p, vf *a, vf *b)
{
    const __m512i even =
        _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i odd = _mm512_or_si512(even, _mm512_set1_epi32(1));
    __m512 x = _mm512_loadu_ps(p), y = _mm512_loadu_ps(p + 16);
    *a = _mm512_permutex2var_ps(x, even, y);
    *b = _mm512_permutex2var_ps(x, odd, y);
}
SIMD void vf_store_pairs(float *p, vf a, vf b)
{
    const __m512i lo = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512i hi = _mm512_or_si512(lo, _mm512_set1_epi32(8));
    _mm512_storeu_ps(p, _mm512_permutex2var_ps(a, lo, b));
    _mm512_storeu_ps(p + 16, _mm512_permutex2var_ps(a, hi, b));
}

/* Eight floats of each of V8_ROWS rows, and how many such vectors of sums are held at once. */
typedef __m512 v8;
enum { V8_ROWS = 2, V8_TILE = 16 };
SIMD v8 v8_zero(void)
{
    return _mm512_setzero_ps();
}
/* rows `stride` floats apart */
SIMD v8 v8_load(const float *p, size_t stride)
{
    if (__builtin_constant_p(stride) && stride == 0)
        return _mm512_broadcast_f32x8(_mm256_loadu_ps(p));
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(p)),
                              _mm256_loadu_ps(p + stride), 1);
}
/* rows `stride` bytes apart */
SIMD v8 v8_from_f16(const uint8_t *p, size_t stride)
{
    __m256i h = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)p));
    h = _mm256_inserti128_si256(h, _mm_loadu_si128((const __m128i *)(const void *)(p + stride)), 1);
    return _mm512_cvtph_ps(h);
}
SIMD v8 v8_fma(v8 a, v8 b, v8 c)
{
    return _mm512_fmadd_ps(a, b, c);
}
/* Both halves of row r added. */
SIMD v4 v8_fold(v8 v, int r)
{
    __m256 h = r ? _mm512_extractf32x8_ps(v, 1) : _mm512_castps512_ps256(v);
    return _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
}

/* How 16 running sums are dealt with: N_PASSES passes over a row, each over N_CHUNKS vectors that
 * lie 8 apart in every 16; and how many vectors of an output row are held at once. */
enum { N_PASSES = 1, PASS_STEP = 16, N_CHUNKS = 1, OUT_VECTORS = 4, TILE = 16 };

#endif
