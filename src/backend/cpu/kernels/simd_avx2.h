/* simd_avx2.h - vectors of AVX2 for the kernels that are written once for every vector width; what
 * each name means is said in simd_neon.h. */
#ifndef BNET_SIMD_AVX2_H
#define BNET_SIMD_AVX2_H

#include <immintrin.h>
#include <string.h>

#include "base/base.h"

#define SIMD static inline __attribute__((always_inline))

typedef __m256 vf;
typedef __m128 v4;
typedef __m256d vd;
typedef __m256 vm;
enum { VF = 8, VD = 4 };
#define ROW(name) bnet_##name##_avx2

SIMD vf vf_set(float x)
{
    return _mm256_set1_ps(x);
}
SIMD vf vf_abs(vf a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}
SIMD vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
SIMD vf vf_pick_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
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

SIMD vf vf_repeat(v4 v)
{
    return _mm256_broadcast_ps(&v);
}
SIMD v4 vf_fold(vf v)
{
    return _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
}

/* ---- doubles ---- */

SIMD vd vd_set(double x)
{
    return _mm256_set1_pd(x);
}
SIMD vd vd_fma(vd a, vd b, vd c)
{
    return _mm256_fmadd_pd(a, b, c);
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

typedef __m128i vsum;
SIMD int32_t vsum_total(vsum s)
{
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}
SIMD void narrow16(const __m128i r[4], int8_t *q, vsum *sum)
{
    __m128i all = _mm_packs_epi16(_mm_packs_epi32(r[0], r[1]), _mm_packs_epi32(r[2], r[3]));
    _mm_storeu_si128((__m128i *)(void *)q, all);
    *sum = _mm_add_epi32(*sum, _mm_add_epi32(_mm_add_epi32(r[0], r[1]), _mm_add_epi32(r[2], r[3])));
}
SIMD void round16_d(const float *x, vd s, int8_t *q, vsum *sum)
{
    __m128i r[4];
    for (int i = 0; i < 4; i++)
        r[i] = _mm256_cvtpd_epi32(_mm256_cvtps_pd(_mm_loadu_ps(x + 4 * i)) * s);
    narrow16(r, q, sum);
}
SIMD void round16_v(const vf v[16 / VF], int8_t *q, vsum *sum, vf *doubt)
{
    __m128i r[4];
    for (int i = 0; i < 2; i++) {
        __m256i k = _mm256_cvtps_epi32(v[i]);
        *doubt = _mm256_max_ps(*doubt, vf_abs(v[i] - _mm256_cvtepi32_ps(k)));
        r[2 * i] = _mm256_castsi256_si128(k);
        r[2 * i + 1] = _mm256_extracti128_si256(k, 1);
    }
    narrow16(r, q, sum);
}
SIMD void round16_f(const float *x, float s, int8_t *q)
{
    __m128i r[4], unused = _mm_setzero_si128();
    for (int i = 0; i < 4; i++)
        r[i] = _mm_cvtps_epi32(_mm_loadu_ps(x + 4 * i) * _mm_set1_ps(s));
    narrow16(r, q, &unused);
}
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

SIMD void vf_quads(const vf v[4], vf out[4])
{
    __m256 a = _mm256_unpacklo_ps(v[0], v[1]), b = _mm256_unpackhi_ps(v[0], v[1]);
    __m256 c = _mm256_unpacklo_ps(v[2], v[3]), d = _mm256_unpackhi_ps(v[2], v[3]);
    out[0] = _mm256_shuffle_ps(a, c, 0x44);
    out[1] = _mm256_shuffle_ps(a, c, 0xee);
    out[2] = _mm256_shuffle_ps(b, d, 0x44);
    out[3] = _mm256_shuffle_ps(b, d, 0xee);
}
SIMD void vf_parts(const vf *v, size_t step, vf out[VF / 4])
{
    out[0] = _mm256_permute2f128_ps(v[0], v[step], 0x20);
    out[1] = _mm256_permute2f128_ps(v[0], v[step], 0x31);
}

typedef __m256 v8;
enum { V8_ROWS = 1, V8_TILE = 8 };
SIMD v8 v8_zero(void)
{
    return _mm256_setzero_ps();
}
SIMD v8 v8_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
SIMD v8 v8_from_f16(const uint8_t *p, size_t stride)
{
    (void)stride;
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
SIMD v8 v8_fma(v8 a, v8 b, v8 c)
{
    return _mm256_fmadd_ps(a, b, c);
}
SIMD v4 v8_fold(v8 v, int r)
{
    (void)r;
    return _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
}

enum { N_PASSES = 2, PASS_STEP = 8, N_CHUNKS = 1, OUT_VECTORS = 2, IN_FLIGHT = 8, TILE = 8 };

#include "backend/cpu/kernels/simd_x86.h"

#endif
