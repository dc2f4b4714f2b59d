/* peak.sse41.c - the rate of pmaddubsw with the widening a dot product needs. */
#include <immintrin.h>

#include "backend/cpu/peak.h"

enum { CHAINS = 12 };

/* One pmaddubsw is 16 products and 8 sums; one paddw adds them up: 32 operations in all. */
uint64_t bnet_peak_pmaddubsw_sse41(size_t n_rounds, uint64_t *sink)
{
    __m128i acc[CHAINS], sum = _mm_setzero_si128();
    __m128i a = _mm_set1_epi8((char)*sink), b = _mm_set1_epi8(3);
    for (int c = 0; c < CHAINS; c++)
        acc[c] = _mm_set1_epi16((short)c);
    for (size_t i = 0; i < n_rounds; i++) {
#pragma GCC unroll 16
        for (int c = 0; c < CHAINS; c++) {
            acc[c] = _mm_add_epi16(acc[c], _mm_maddubs_epi16(a, b));
            __asm__ volatile("" : "+x"(a), "+x"(b));
        }
    }
    for (int c = 0; c < CHAINS; c++)
        sum = _mm_add_epi16(sum, acc[c]);
    *sink = (uint64_t)_mm_cvtsi128_si64(sum);
    return (uint64_t)n_rounds * CHAINS * 32;
}
