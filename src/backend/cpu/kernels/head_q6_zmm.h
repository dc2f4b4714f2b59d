/* head_q6_zmm.h - registers of 64 bytes for head_q6_x86.h: 16 rows. */
#ifndef BNET_HEAD_Q6_ZMM_H
#define BNET_HEAD_Q6_ZMM_H

#include "backend/cpu/kernels.h"
#include "backend/cpu/pack_q6.h"

#include <immintrin.h>

enum { V_GROUPS = 4 };
typedef __m512i vint;
typedef __m512 vfloat;

#define v_zero()        _mm512_setzero_si512()
#define v_bytes(c)      _mm512_set1_epi8(c)
#define v_maddubs(u, s) _mm512_maddubs_epi16(u, s)
#define v_add16(a, b)   _mm512_add_epi16(a, b)
#define v_add32(a, b)   _mm512_add_epi32(a, b)
#define v_sub16(a, b)   _mm512_sub_epi16(a, b)
#define v_mul16(v, c)   _mm512_mullo_epi16(v, _mm512_set1_epi16(c))
#define v_to_float(v)   _mm512_cvtepi32_ps(v)
#define vf_load(p)      _mm512_loadu_ps(p)
#define vf_store(p, v)  _mm512_storeu_ps(p, v)
#define vf_add(a, b)    _mm512_add_ps(a, b)
#define vf_mul(a, b)    _mm512_mul_ps(a, b)

static inline vint v_load(const void *p)
{
    return _mm512_loadu_si512(p);
}

static inline void v_store(void *p, vint v)
{
    _mm512_storeu_si512(p, v);
}

/* Four bytes in every lane. */
static inline vint v_four(const uint8_t *p)
{
    return _mm512_set1_epi32((int)bnet_u32(p));
}

/* The f16 of V_GROUPS times four rows, `group` bytes from four to the next. */
static inline vfloat vf_halves(const uint8_t *p, size_t group)
{
    uint8_t all[32];
    for (size_t i = 0; i < V_GROUPS; i++)
        memcpy(all + 8 * i, p + i * group, 8);
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)all));
}

#endif
