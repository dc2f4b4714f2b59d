/* simd_avx2.h - a vector of floats as the kernels that are written once for every vector width see
 * it: the names are the same in simd_neon.h. */
#ifndef BNET_SIMD_AVX2_H
#define BNET_SIMD_AVX2_H

#include <immintrin.h>
#include <string.h>

#include "base/base.h"

#define SIMD static inline __attribute__((always_inline))

typedef __m256 vf; /* VF floats */
typedef __m128 v4; /* 4 floats */
typedef __m256 vm; /* a mask for each lane of vf */
enum { VF = 8 };

SIMD vf vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
SIMD void vf_store(float *p, vf v)
{
    _mm256_storeu_ps(p, v);
}
SIMD vf vf_set(float x)
{
    return _mm256_set1_ps(x);
}
SIMD vf vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}
SIMD vf vf_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}
SIMD vf vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}
SIMD vf vf_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}
SIMD vf vf_neg(vf a)
{
    return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f));
}
SIMD vf vf_abs(vf a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}
/* a * b + c, rounded once */
SIMD vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
/* a > b ? a : b, so b where either is NaN */
SIMD vf vf_pick_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
/* One step to the largest magnitude; what is no number stays in *bad. */
SIMD void vf_amax(vf v, vf *max, vf *bad)
{
    *max = vf_pick_max(vf_abs(v), *max);
    *bad = vf_fma(v, vf_set(0), *bad);
}
SIMD vm vf_lt(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_LT_OQ);
}
SIMD vm vf_is_nan(vf a)
{
    return _mm256_cmp_ps(a, a, _CMP_UNORD_Q);
}
SIMD vf vf_select(vm m, vf yes, vf no)
{
    return _mm256_blendv_ps(no, yes, m);
}
SIMD vf vf_zero_where(vm m, vf v)
{
    return _mm256_andnot_ps(m, v);
}
/* 2^(n >> 1) and 2^(n - (n >> 1)) of integers held as floats, |n| <= 252 */
SIMD void vf_pow2_halves(vf n, vf *a, vf *b)
{
    __m256i k = _mm256_cvttps_epi32(n), half = _mm256_srai_epi32(k, 1),
            bias = _mm256_set1_epi32(127);
    *a = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
    *b = _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(k, half), bias), 23));
}
/* 2^n, -126 <= n <= 0, from the bits of n + 1.5 * 2^23 */
SIMD vf vf_pow2_low(vf t)
{
    __m256i k = _mm256_slli_epi32(_mm256_castps_si256(t), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(k, _mm256_set1_epi32(127 << 23)));
}
SIMD vf vf_from_f16(const uint8_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
SIMD vf vf_round_f16(vf v)
{
    return _mm256_cvtph_ps(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
SIMD void vf_to_f16(uint8_t *p, vf v)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
SIMD vf vf_from_i8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
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
    return _mm256_broadcast_ps(&v);
}
/* Halves added until four lanes are left. */
SIMD v4 vf_fold(vf v)
{
    return _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
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

typedef __m256d vd; /* VD doubles */
enum { VD = 4 };

SIMD vd vd_set(double x)
{
    return _mm256_set1_pd(x);
}
SIMD vd vd_mul(vd a, vd b)
{
    return _mm256_mul_pd(a, b);
}
SIMD vd vd_fma(vd a, vd b, vd c)
{
    return _mm256_fmadd_pd(a, b, c);
}
SIMD void vd_store(double *p, vd v)
{
    _mm256_storeu_pd(p, v);
}
SIMD void vf_widen(vf v, vd out[VF / VD])
{
    out[0] = _mm256_cvtps_pd(_mm256_castps256_ps128(v));
    out[1] = _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
}
SIMD vf vf_narrow(const vd in[VF / VD])
{
    return _mm256_set_m128(_mm256_cvtpd_ps(in[1]), _mm256_cvtpd_ps(in[0]));
}

/* ---- integers ---- */

/* Four times four int32 in -128..127 as int8 */
SIMD __m128i pack16(const __m128i r[4])
{
    return _mm_packs_epi16(_mm_packs_epi32(r[0], r[1]), _mm_packs_epi32(r[2], r[3]));
}
/* 16 doubles x[i] * s, none beyond +-127.5, rounded to nearest even, as int8, added to the sum. */
typedef __m128i vsum;
SIMD vsum vsum_zero(void)
{
    return _mm_setzero_si128();
}
SIMD int32_t vsum_total(vsum s)
{
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}
SIMD void round16_d(const float *x, vd s, int8_t *q, vsum *sum)
{
    __m128i r[4];
    for (int i = 0; i < 4; i++)
        r[i] = _mm256_cvtpd_epi32(_mm256_mul_pd(_mm256_cvtps_pd(_mm_loadu_ps(x + 4 * i)), s));
    _mm_storeu_si128((__m128i *)(void *)q, pack16(r));
    *sum = _mm_add_epi32(*sum, _mm_add_epi32(_mm_add_epi32(r[0], r[1]), _mm_add_epi32(r[2], r[3])));
}
/* 16 floats likewise: the larger *doubt becomes, the farther from an integer the worst of them was.
 */
SIMD void round16_v(const vf v[16 / VF], int8_t *q, vsum *sum, vf *doubt)
{
    __m128i r[4];
    for (int i = 0; i < 2; i++) {
        __m256i k = _mm256_cvtps_epi32(v[i]);
        *doubt = _mm256_max_ps(*doubt, vf_abs(vf_sub(v[i], _mm256_cvtepi32_ps(k))));
        r[2 * i] = _mm256_castsi256_si128(k);
        r[2 * i + 1] = _mm256_extracti128_si256(k, 1);
    }
    _mm_storeu_si128((__m128i *)(void *)q, pack16(r));
    *sum = _mm_add_epi32(*sum, _mm_add_epi32(_mm_add_epi32(r[0], r[1]), _mm_add_epi32(r[2], r[3])));
}
/* The largest of all lanes of maxima that vf_amax made. */
SIMD float vf_max_lanes(vf a, vf b)
{
    vf m = _mm256_max_ps(a, b);
    __m128 h = _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
    h = _mm_max_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_max_ss(h, _mm_shuffle_ps(h, h, 1)));
}
SIMD bool vf_any_above(vf v, float limit)
{
    return _mm256_movemask_ps(vf_lt(vf_set(limit), v)) != 0;
}
/* 16 floats, none beyond +-127.5, rounded to nearest even, as int8 */
SIMD void round16_f(const float *x, float s, uint8_t *q)
{
    __m128i r[4];
    for (int i = 0; i < 4; i++)
        r[i] = _mm_cvtps_epi32(_mm_mul_ps(_mm_loadu_ps(x + 4 * i), _mm_set1_ps(s)));
    _mm_storeu_si128((__m128i *)(void *)q, pack16(r));
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
    __m256 x = _mm256_loadu_ps(p), y = _mm256_loadu_ps(p + 8);
    __m256 lo = _mm256_permute2f128_ps(x, y, 0x20), hi = _mm256_permute2f128_ps(x, y, 0x31);
    *a = _mm256_shuffle_ps(lo, hi, 0x88);
    *b = _mm256_shuffle_ps(lo, hi, 0xdd);
}
SIMD void vf_store_pairs(float *p, vf a, vf b)
{
    __m256 lo = _mm256_unpacklo_ps(a, b), hi = _mm256_unpackhi_ps(a, b);
    _mm256_storeu_ps(p, _mm256_permute2f128_ps(lo, hi, 0x20));
    _mm256_storeu_ps(p + 8, _mm256_permute2f128_ps(lo, hi, 0x31));
}

/* Eight floats of each of V8_ROWS rows, and how many such vectors of sums are held at once. */
typedef __m256 v8;
enum { V8_ROWS = 1, V8_TILE = 8 };
SIMD v8 v8_zero(void)
{
    return _mm256_setzero_ps();
}
/* rows `stride` floats apart */
SIMD v8 v8_load(const float *p, size_t stride)
{
    (void)stride;
    return _mm256_loadu_ps(p);
}
/* rows `stride` bytes apart */
SIMD v8 v8_from_f16(const uint8_t *p, size_t stride)
{
    (void)stride;
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
SIMD v8 v8_fma(v8 a, v8 b, v8 c)
{
    return _mm256_fmadd_ps(a, b, c);
}
/* Both halves of row r added. */
SIMD v4 v8_fold(v8 v, int r)
{
    (void)r;
    return _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
}

/* How 16 running sums are dealt with: N_PASSES passes over a row, each over N_CHUNKS vectors that
 * lie 8 apart in every 16; and how many vectors of an output row are held at once. */
enum { N_PASSES = 2, PASS_STEP = 8, N_CHUNKS = 1, OUT_VECTORS = 2, TILE = 8 };

#endif
