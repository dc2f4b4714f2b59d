/* peak.avx512vnni.c - the rate of vpdpbusd on 512 bits. */
#include <immintrin.h>

#include "backend/cpu/peak.h"

enum { CHAINS = 16 };

uint64_t bnet_peak_vpdpbusd_avx512vnni(size_t n_rounds, uint64_t *sink)
{
    __m512i acc[CHAINS], sum = _mm512_setzero_si512();
    __m512i a = _mm512_set1_epi8((char)*sink), b = _mm512_set1_epi8(3);
    for (int c = 0; c < CHAINS; c++)
        acc[c] = _mm512_set1_epi32(c);
    for (size_t i = 0; i < n_rounds; i++) {
#pragma GCC unroll 16
        for (int c = 0; c < CHAINS; c++)
            acc[c] = _mm512_dpbusd_epi32(acc[c], a, b);
        __asm__ volatile("" : "+v"(a), "+v"(b));
    }
    for (int c = 0; c < CHAINS; c++)
        sum = _mm512_add_epi32(sum, acc[c]);
    *sink = (uint64_t)_mm_cvtsi128_si64(_mm512_castsi512_si128(sum));
    return (uint64_t)n_rounds * CHAINS * 128;
}
