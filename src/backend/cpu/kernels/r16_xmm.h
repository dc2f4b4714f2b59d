/* r16_xmm.h - the words r16_madd.h is written in, for 16-byte registers: a line is four. */
#ifndef BNET_KERNELS_R16_XMM_H
#define BNET_KERNELS_R16_XMM_H

#include <smmintrin.h>

#include "backend/cpu/kernels/r16.h"
#include "backend/cpu/kernels/unroll.h"

typedef __m128i vec;
enum { PARTS = 4 };

static inline vec v_load(const void *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}
static inline void v_store(void *p, vec v)
{
    _mm_storeu_si128((__m128i *)p, v);
}
static inline vec v_bytes(int b)
{
    return _mm_set1_epi8((char)b);
}
/* Four activations, everywhere. */
static inline vec v_spread(const int8_t *x)
{
    int32_t v;
    memcpy(&v, x, sizeof v);
    return _mm_set1_epi32(v);
}
static inline vec v_zero(void)
{
    return _mm_setzero_si128();
}
#define v_set32         _mm_set1_epi32
#define v_set16         _mm_set1_epi16
#define v_and           _mm_and_si128
#define v_add32         _mm_add_epi32
#define v_sub32         _mm_sub_epi32
#define v_add16         _mm_add_epi16
#define v_maddubs       _mm_maddubs_epi16
#define v_madd16        _mm_madd_epi16
#define v_right16(v, n) _mm_srli_epi16(v, n)
#define v_right32(v, n) _mm_srai_epi32(v, n)

#endif
