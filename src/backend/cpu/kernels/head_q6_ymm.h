/* head_q6_ymm.h - registers of 32 bytes for head_q6_x86.h: eight rows. */
#ifndef BNET_HEAD_Q6_YMM_H
#define BNET_HEAD_Q6_YMM_H

#include "backend/cpu/kernels.h"
#include "backend/cpu/pack_q6.h"

#include <immintrin.h>

enum { V_GROUPS = 2 };
typedef __m256i vint;
typedef __m256 vfloat;

#define v_zero()        _mm256_setzero_si256()
#define v_bytes(c)      _mm256_set1_epi8(c)
#define v_maddubs(u, s) _mm256_maddubs_epi16(u, s)
#define v_add16(a, b)   _mm256_add_epi16(a, b)
#define v_add32(a, b)   _mm256_add_epi32(a, b)
#define v_sub16(a, b)   _mm256_sub_epi16(a, b)
#define v_mul16(v, c)   _mm256_mullo_epi16(v, _mm256_set1_epi16(c))
#define v_to_float(v)   _mm256_cvtepi32_ps(v)
#define vf_load(p)      _mm256_loadu_ps(p)
#define vf_store(p, v)  _mm256_storeu_ps(p, v)
#define vf_add(a, b)    _mm256_add_ps(a, b)
#define vf_mul(a, b)    _mm256_mul_ps(a, b)

static inline vint v_load(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

static inline void v_store(void *p, vint v)
{
    _mm256_storeu_si256((__m256i *)p, v);
}

/* Four bytes in every lane. */
static inline vint v_four(const uint8_t *p)
{
    return _mm256_set1_epi32((int)bnet_u32(p));
}

/* The f16 of V_GROUPS times four rows, `group` bytes from four to the next. */
static inline vfloat vf_halves(const uint8_t *p, size_t group)
{
    __m128i a = _mm_loadl_epi64((const __m128i *)(const void *)p);
    __m128i b = _mm_loadl_epi64((const __m128i *)(const void *)(p + group));
    return _mm256_cvtph_ps(_mm_unpacklo_epi64(a, b));
}

#endif
