/* peak_loops.h - rounds of one instruction on registers, and a reader of memory. The file that
 * includes it defines
 *   SUMS, FACTORS  types of a register of sums and of one of factors
 *   REGISTER       the letter by which inline assembly asks for such a register
 *   N_CHAINS       sums in flight at once
 *   OP(s, a, b)    the sums s plus the products of a and b
 *   N_OPS          products and sums of one OP */
#ifndef BNET_PEAK_LOOPS_H
#define BNET_PEAK_LOOPS_H

#include "backend/cpu/peak.h"

/* The compiler must not see that all chains add the same products. */
static inline uint64_t peak(size_t n_rounds, uint64_t *sink)
{
    SUMS acc[N_CHAINS], all;
    FACTORS a, b;
    memset(&a, (int)(*sink & 0x7f), sizeof a);
    memset(&b, 3, sizeof b);
#pragma GCC unroll 16
    for (int c = 0; c < N_CHAINS; c++) {
        memset(&all, c, sizeof all);
        acc[c] = all;
    }
    for (size_t i = 0; i < n_rounds; i++) {
#pragma GCC unroll 16
        for (int c = 0; c < N_CHAINS; c++) {
            acc[c] = OP(acc[c], a, b);
            if (sizeof(SUMS) > sizeof(uint64_t)) /* a vector, which gcc would spill */
                __asm__ volatile("" : "+" REGISTER(acc[c]));
            __asm__ volatile("" : "+" REGISTER(a), "+" REGISTER(b));
        }
    }
#pragma GCC unroll 16
    for (int c = 0; c < N_CHAINS; c++)
        all ^= acc[c];
    memcpy(sink, &all, sizeof *sink);
    return (uint64_t)n_rounds * N_CHAINS * N_OPS;
}

#define BNET_PEAK(instruction, isa)                                                                \
    uint64_t bnet_peak_##instruction##_##isa(size_t n_rounds, uint64_t *sink)                      \
    {                                                                                              \
        return peak(n_rounds, sink);                                                               \
    }

typedef SUMS sums_at __attribute__((aligned(1), may_alias));

static inline void read_lines(const uint8_t *p, size_t n_bytes, size_t n_streams, size_t ahead,
                              uint64_t *sink)
{
    enum { LINE = 64, N = LINE / sizeof(SUMS) };
    SUMS acc[N];
    uint64_t low;
    size_t part = n_bytes / n_streams;
    memset(acc, 0, sizeof acc);
    for (size_t i = 0; i < part; i += LINE)
        for (size_t s = 0; s < n_streams; s++) {
            const uint8_t *line = p + s * part + i;
            if (ahead)
                __builtin_prefetch(line + ahead, 0, 0);
            for (int k = 0; k < N; k++)
                acc[k] ^= ((const sums_at *)(const void *)line)[k];
        }
    for (int k = 1; k < N; k++)
        acc[0] ^= acc[k];
    memcpy(&low, &acc[0], sizeof low);
    *sink ^= low;
}

#define BNET_READER(isa)                                                                           \
    void bnet_reader_##isa(const uint8_t *p, size_t n_bytes, size_t n_streams, size_t ahead,       \
                           uint64_t *sink)                                                         \
    {                                                                                              \
        read_lines(p, n_bytes, n_streams, ahead, sink);                                            \
    }

#endif
