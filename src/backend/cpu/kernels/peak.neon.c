/* peak.neon.c - the rate of smlal, and a reader with 16-byte loads. */
#include <arm_neon.h>

#include "backend/cpu/peak.h"

enum { CHAINS = 16 };

uint64_t bnet_peak_smlal_neon(size_t n_rounds, uint64_t *sink)
{
    int16x8_t acc[CHAINS], sum = vdupq_n_s16(0);
    int8x8_t a = vdup_n_s8((int8_t)*sink), b = vdup_n_s8(3);
    for (int c = 0; c < CHAINS; c++)
        acc[c] = vdupq_n_s16((int16_t)c);
    for (size_t i = 0; i < n_rounds; i++) {
#pragma GCC unroll 16
        for (int c = 0; c < CHAINS; c++)
            acc[c] = vmlal_s8(acc[c], a, b);
        __asm__ volatile("" : "+w"(a), "+w"(b));
    }
    for (int c = 0; c < CHAINS; c++)
        sum = veorq_s16(sum, acc[c]); /* no overflow */
    *sink = vgetq_lane_u64(vreinterpretq_u64_s16(sum), 0);
    return (uint64_t)n_rounds * CHAINS * 16;
}

void bnet_reader_neon(const uint8_t *p, size_t n_bytes, size_t n_streams, size_t ahead,
                      uint64_t *sink)
{
    uint8x16_t a = vdupq_n_u8(0), b = a, c = a, d = a;
    size_t part = n_bytes / n_streams;
    for (size_t i = 0; i < part; i += 64)
        for (size_t s = 0; s < n_streams; s++) {
            const uint8_t *line = p + s * part + i;
            if (ahead)
                __builtin_prefetch(line + ahead, 0, 0);
            a = veorq_u8(a, vld1q_u8(line));
            b = veorq_u8(b, vld1q_u8(line + 16));
            c = veorq_u8(c, vld1q_u8(line + 32));
            d = veorq_u8(d, vld1q_u8(line + 48));
        }
    *sink ^= vgetq_lane_u64(vreinterpretq_u64_u8(veorq_u8(veorq_u8(a, b), veorq_u8(c, d))), 0);
}
