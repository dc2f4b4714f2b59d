/* simd_avx512.h - vectors of AVX-512 for the kernels that are written once for every vector width;
 * what each name means is said in simd_neon.h. */
#ifndef BNET_SIMD_AVX512_H
#define BNET_SIMD_AVX512_H

#include <immintrin.h>
#include <string.h>

#include "base/base.h"

#define SIMD static inline __attribute__((always_inline))

typedef __m512 vf;
typedef __m128 v4;
typedef __m512d vd;
typedef __mmask16 vm;
enum { VF = 16, VD = 8 };
#define ROW(name) bnet_##name##_avx512

SIMD vf vf_set(float x)
{
    return _mm512_set1_ps(x);
}
SIMD vf vf_abs(vf a)
{
    return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), a);
}
SIMD vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
SIMD vf vf_pick_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
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

SIMD vf vf_repeat(v4 v)
{
    return _mm512_broadcast_f32x4(v);
}
SIMD v4 vf_fold(vf v)
{
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    return _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
}

/* ---- doubles ---- */

SIMD vd vd_set(double x)
{
    return _mm512_set1_pd(x);
}
SIMD vd vd_fma(vd a, vd b, vd c)
{
    return _mm512_fmadd_pd(a, b, c);
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

typedef __m512i vsum;
SIMD int32_t vsum_total(vsum s)
{
    return _mm512_reduce_add_epi32(s);
}
SIMD void narrow16(__m512i r, int8_t *q, vsum *sum)
{
    _mm_storeu_si128((__m128i *)(void *)q, _mm512_cvtepi32_epi8(r));
    *sum = _mm512_add_epi32(*sum, r);
}
SIMD void round16_d(const float *x, vd s, int8_t *q, vsum *sum)
{
    vd v[2];
    vf_widen(_mm512_loadu_ps(x), v);
    __m256i lo = _mm512_cvtpd_epi32(v[0] * s), hi = _mm512_cvtpd_epi32(v[1] * s);
    narrow16(_mm512_inserti64x4(_mm512_castsi256_si512(lo), hi, 1), q, sum);
}
SIMD void round16_v(const vf v[16 / VF], int8_t *q, vsum *sum, vf *doubt)
{
    __m512i r = _mm512_cvtps_epi32(v[0]);
    *doubt = _mm512_max_ps(*doubt, vf_abs(v[0] - _mm512_cvtepi32_ps(r)));
    narrow16(r, q, sum);
}
SIMD void round16_f(const float *x, float s, int8_t *q)
{
    __m512i unused = _mm512_setzero_si512();
    narrow16(_mm512_cvtps_epi32(_mm512_loadu_ps(x) * vf_set(s)), q, &unused);
}
SIMD float vf_max_lanes(vf a, vf b)
{
    return _mm512_reduce_max_ps(_mm512_max_ps(a, b));
}
SIMD bool vf_any_above(vf v, float limit)
{
    return vf_lt(vf_set(limit), v) != 0;
}

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

SIMD void vf_quads(const vf v[4], vf out[4])
{
    __m512 a = _mm512_unpacklo_ps(v[0], v[1]), b = _mm512_unpackhi_ps(v[0], v[1]);
    __m512 c = _mm512_unpacklo_ps(v[2], v[3]), d = _mm512_unpackhi_ps(v[2], v[3]);
    out[0] = _mm512_shuffle_ps(a, c, 0x44);
    out[1] = _mm512_shuffle_ps(a, c, 0xee);
    out[2] = _mm512_shuffle_ps(b, d, 0x44);
    out[3] = _mm512_shuffle_ps(b, d, 0xee);
}
SIMD void vf_parts(const vf *v, size_t step, vf out[VF / 4])
{
    __m512 a = _mm512_shuffle_f32x4(v[0], v[step], 0x88);
    __m512 b = _mm512_shuffle_f32x4(v[0], v[step], 0xdd);
    __m512 c = _mm512_shuffle_f32x4(v[2 * step], v[3 * step], 0x88);
    __m512 d = _mm512_shuffle_f32x4(v[2 * step], v[3 * step], 0xdd);
    out[0] = _mm512_shuffle_f32x4(a, c, 0x88);
    out[1] = _mm512_shuffle_f32x4(b, d, 0x88);
    out[2] = _mm512_shuffle_f32x4(a, c, 0xdd);
    out[3] = _mm512_shuffle_f32x4(b, d, 0xdd);
}

typedef __m512 v8;
enum { V8_ROWS = 2, V8_TILE = 16 };
SIMD v8 v8_zero(void)
{
    return _mm512_setzero_ps();
}
SIMD v8 v8_load(const float *p)
{
    return _mm512_broadcast_f32x8(_mm256_loadu_ps(p));
}
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
SIMD v4 v8_fold(v8 v, int r)
{
    __m256 h = r ? _mm512_extractf32x8_ps(v, 1) : _mm512_castps512_ps256(v);
    return _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
}

enum { N_PASSES = 1, PASS_STEP = 16, N_CHUNKS = 1, OUT_VECTORS = 4, IN_FLIGHT = 16, TILE = 16 };

#include "backend/cpu/kernels/simd_x86.h"

#endif
