/* peak.dotprod.c - the rate of sdot. */
#include <arm_neon.h>

#include "backend/cpu/peak.h"

enum { CHAINS = 16 };

uint64_t bnet_peak_sdot_dotprod(size_t n_rounds, uint64_t *sink)
{
    int32x4_t acc[CHAINS], sum = vdupq_n_s32(0);
    int8x16_t a = vdupq_n_s8((int8_t)*sink), b = vdupq_n_s8(3);
    for (int c = 0; c < CHAINS; c++)
        acc[c] = vdupq_n_s32(c);
    for (size_t i = 0; i < n_rounds; i++) {
#pragma GCC unroll 16
        for (int c = 0; c < CHAINS; c++)
            acc[c] = vdotq_s32(acc[c], a, b);
        __asm__ volatile("" : "+w"(a), "+w"(b));
    }
    for (int c = 0; c < CHAINS; c++)
        sum = veorq_s32(sum, acc[c]); /* no overflow */
    *sink = vgetq_lane_u64(vreinterpretq_u64_s32(sum), 0);
    return (uint64_t)n_rounds * CHAINS * 32;
}
