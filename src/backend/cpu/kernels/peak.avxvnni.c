/* peak.avxvnni.c - the rate of vpdpbusd on 256 bits. */
#include <immintrin.h>

#include "backend/cpu/peak.h"

enum { CHAINS = 12 };

uint64_t bnet_peak_vpdpbusd_avxvnni(size_t n_rounds, uint64_t *sink)
{
    __m256i acc[CHAINS], sum = _mm256_setzero_si256();
    __m256i a = _mm256_set1_epi8((char)*sink), b = _mm256_set1_epi8(3);
    for (int c = 0; c < CHAINS; c++)
        acc[c] = _mm256_set1_epi32(c);
    for (size_t i = 0; i < n_rounds; i++) {
#pragma GCC unroll 16
        for (int c = 0; c < CHAINS; c++)
            acc[c] = _mm256_dpbusd_avx_epi32(acc[c], a, b);
        __asm__ volatile("" : "+x"(a), "+x"(b));
    }
    for (int c = 0; c < CHAINS; c++)
        sum = _mm256_add_epi32(sum, acc[c]);
    *sink = (uint64_t)_mm256_extract_epi64(sum, 0);
    return (uint64_t)n_rounds * CHAINS * 64;
}
