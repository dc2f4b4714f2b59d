/* peak.neon.c - the rate of smlal, and a reader with 16-byte loads. */
#include <arm_neon.h>

#define SUMS        int16x8_t
#define FACTORS     int8x8_t
#define REGISTER    "w"
#define N_CHAINS    16
#define OP(s, a, b) vmlal_s8(s, a, b)
#define N_OPS       16
#include "backend/cpu/kernels/peak_loops.h"

BNET_PEAK(smlal, neon)
BNET_READER(neon)
