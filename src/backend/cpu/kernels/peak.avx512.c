/* peak.avx512.c - the rate of vpmaddubsw on 512 bits with the sum a dot product needs, and a reader
 * with 64-byte loads. */
#include <immintrin.h>

#include "backend/cpu/peak.h"

enum { CHAINS = 16 };

uint64_t bnet_peak_vpmaddubsw_avx512(size_t n_rounds, uint64_t *sink)
{
    __m512i acc[CHAINS], sum = _mm512_setzero_si512();
    __m512i a = _mm512_set1_epi8((char)*sink), b = _mm512_set1_epi8(3);
    for (int c = 0; c < CHAINS; c++)
        acc[c] = _mm512_set1_epi16((short)c);
    for (size_t i = 0; i < n_rounds; i++) {
#pragma GCC unroll 16
        for (int c = 0; c < CHAINS; c++) {
            acc[c] = _mm512_add_epi16(acc[c], _mm512_maddubs_epi16(a, b));
            __asm__ volatile("" : "+v"(a), "+v"(b));
        }
    }
    for (int c = 0; c < CHAINS; c++)
        sum = _mm512_add_epi16(sum, acc[c]);
    *sink = (uint64_t)_mm_cvtsi128_si64(_mm512_castsi512_si128(sum));
    return (uint64_t)n_rounds * CHAINS * 128;
}

void bnet_reader_avx512(const uint8_t *p, size_t n_bytes, size_t n_streams, size_t ahead,
                        uint64_t *sink)
{
    __m512i a = _mm512_setzero_si512();
    size_t part = n_bytes / n_streams;
    for (size_t i = 0; i < part; i += 64)
        for (size_t s = 0; s < n_streams; s++) {
            const uint8_t *line = p + s * part + i;
            if (ahead)
                __builtin_prefetch(line + ahead, 0, 0);
            a = _mm512_xor_si512(a, _mm512_loadu_si512(line));
        }
    *sink ^= (uint64_t)_mm512_reduce_or_epi64(a);
}
