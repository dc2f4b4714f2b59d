/* r16_zmm.h - the words r16_madd.h and r16_vnni.h are written in, for 64-byte registers: a line is
 * one. */
#ifndef BNET_KERNELS_R16_ZMM_H
#define BNET_KERNELS_R16_ZMM_H

#include <immintrin.h>

#include "backend/cpu/kernels/r16.h"
#include "backend/cpu/kernels/unroll.h"

typedef __m512i vec;
enum { PARTS = 1 };

static inline vec v_load(const void *p)
{
    return _mm512_loadu_si512(p);
}
static inline void v_store(void *p, vec v)
{
    _mm512_storeu_si512(p, v);
}
static inline vec v_bytes(int b)
{
    return _mm512_set1_epi8((char)b);
}
/* Four activations, everywhere. */
static inline vec v_spread(const int8_t *x)
{
    int32_t v;
    memcpy(&v, x, sizeof v);
    return _mm512_set1_epi32(v);
}
static inline vec v_zero(void)
{
    return _mm512_setzero_si512();
}
#define v_set32         _mm512_set1_epi32
#define v_set16         _mm512_set1_epi16
#define v_and           _mm512_and_si512
#define v_add32         _mm512_add_epi32
#define v_sub32         _mm512_sub_epi32
#define v_add16         _mm512_add_epi16
#define v_maddubs       _mm512_maddubs_epi16
#define v_madd16        _mm512_madd_epi16
#define v_right16(v, n) _mm512_srli_epi16(v, n)
#define v_right32(v, n) _mm512_srai_epi32(v, n)
#define v_left32(v, n)  _mm512_slli_epi32(v, n)

#endif
