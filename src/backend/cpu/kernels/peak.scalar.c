/* peak.scalar.c - the rate of plain integer products and sums, and a reader in plain C. */
#include "backend/cpu/peak.h"

enum { CHAINS = 8 };

uint64_t bnet_peak_mul_add_scalar(size_t n_rounds, uint64_t *sink)
{
    uint64_t acc[CHAINS] = {0}, a = n_rounds | 1, b = *sink | 1, sum = 0;
    for (size_t i = 0; i < n_rounds; i++) {
        for (int c = 0; c < CHAINS; c++) {
            acc[c] += a * b;
            __asm__ volatile("" : "+r"(a), "+r"(b));
        }
    }
    for (int c = 0; c < CHAINS; c++)
        sum += acc[c];
    *sink = sum;
    return (uint64_t)n_rounds * CHAINS * 2;
}

void bnet_reader_scalar(const uint8_t *p, size_t n_bytes, size_t n_streams, size_t ahead,
                        uint64_t *sink)
{
    uint64_t acc[8] = {0};
    size_t part = n_bytes / n_streams;
    for (size_t i = 0; i < part; i += 64)
        for (size_t s = 0; s < n_streams; s++) {
            const uint8_t *line = p + s * part + i;
            if (ahead)
                __builtin_prefetch(line + ahead, 0, 0);
            for (int k = 0; k < 8; k++)
                acc[k] ^= bnet_u64(line + 8 * k);
        }
    for (int k = 0; k < 8; k++)
        *sink ^= acc[k];
}
