/* r16_ymm.h - the words r16_madd.h and r16_vnni.h are written in, for 32-byte registers: a line is
 * two. */
#ifndef BNET_KERNELS_R16_YMM_H
#define BNET_KERNELS_R16_YMM_H

#include <immintrin.h>

#include "backend/cpu/kernels/r16.h"
#include "backend/cpu/kernels/unroll.h"

typedef __m256i vec;
enum { PARTS = 2 };

static inline vec v_load(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}
static inline void v_store(void *p, vec v)
{
    _mm256_storeu_si256((__m256i *)p, v);
}
static inline vec v_bytes(int b)
{
    return _mm256_set1_epi8((char)b);
}
/* Four activations, everywhere. */
static inline vec v_spread(const int8_t *x)
{
    int32_t v;
    memcpy(&v, x, sizeof v);
    return _mm256_set1_epi32(v);
}
static inline vec v_zero(void)
{
    return _mm256_setzero_si256();
}
#define v_set32         _mm256_set1_epi32
#define v_set16         _mm256_set1_epi16
#define v_and           _mm256_and_si256
#define v_add32         _mm256_add_epi32
#define v_sub32         _mm256_sub_epi32
#define v_add16         _mm256_add_epi16
#define v_maddubs       _mm256_maddubs_epi16
#define v_madd16        _mm256_madd_epi16
#define v_right16(v, n) _mm256_srli_epi16(v, n)
#define v_right32(v, n) _mm256_srai_epi32(v, n)
#define v_left32(v, n)  _mm256_slli_epi32(v, n)

#endif
