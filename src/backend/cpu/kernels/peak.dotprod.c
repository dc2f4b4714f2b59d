/* peak.dotprod.c - the rate of sdot. */
#include <arm_neon.h>

#define SUMS        int32x4_t
#define FACTORS     int8x16_t
#define REGISTER    "w"
#define N_CHAINS    16
#define OP(s, a, b) vdotq_s32(s, a, b)
#define N_OPS       32
#include "backend/cpu/kernels/peak_loops.h"

BNET_PEAK(sdot, dotprod)
