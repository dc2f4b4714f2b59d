/* peak.i8mm.c - the rate of smmla: 2x8 times 8x2 in one instruction. */
#include <arm_neon.h>

#define SUMS        int32x4_t
#define FACTORS     int8x16_t
#define REGISTER    "w"
#define N_CHAINS    16
#define OP(s, a, b) vmmlaq_s32(s, a, b)
#define N_OPS       64
#include "backend/cpu/kernels/peak_loops.h"

BNET_PEAK(smmla, i8mm)
