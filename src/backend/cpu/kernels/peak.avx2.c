/* peak.avx2.c - the rate of vpmaddubsw with the sum a dot product needs, and a reader with 32-byte
 * loads. */
#include <immintrin.h>

#include "backend/cpu/peak.h"

enum { CHAINS = 12 };

uint64_t bnet_peak_vpmaddubsw_avx2(size_t n_rounds, uint64_t *sink)
{
    __m256i acc[CHAINS], sum = _mm256_setzero_si256();
    __m256i a = _mm256_set1_epi8((char)*sink), b = _mm256_set1_epi8(3);
    for (int c = 0; c < CHAINS; c++)
        acc[c] = _mm256_set1_epi16((short)c);
    for (size_t i = 0; i < n_rounds; i++) {
#pragma GCC unroll 16
        for (int c = 0; c < CHAINS; c++) {
            acc[c] = _mm256_add_epi16(acc[c], _mm256_maddubs_epi16(a, b));
            __asm__ volatile("" : "+x"(a), "+x"(b));
        }
    }
    for (int c = 0; c < CHAINS; c++)
        sum = _mm256_add_epi16(sum, acc[c]);
    *sink = (uint64_t)_mm256_extract_epi64(sum, 0);
    return (uint64_t)n_rounds * CHAINS * 64;
}

void bnet_reader_avx2(const uint8_t *p, size_t n_bytes, size_t n_streams, size_t ahead,
                      uint64_t *sink)
{
    __m256i a = _mm256_setzero_si256(), b = a;
    size_t part = n_bytes / n_streams;
    for (size_t i = 0; i < part; i += 64)
        for (size_t s = 0; s < n_streams; s++) {
            const uint8_t *line = p + s * part + i;
            if (ahead)
                __builtin_prefetch(line + ahead, 0, 0);
            a = _mm256_xor_si256(a, _mm256_loadu_si256((const __m256i *)line));
            b = _mm256_xor_si256(b, _mm256_loadu_si256((const __m256i *)(line + 32)));
        }
    *sink ^= (uint64_t)_mm256_extract_epi64(_mm256_xor_si256(a, b), 0);
}
