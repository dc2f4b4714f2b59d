/* peak.scalar.c - the rate of plain integer products and sums, and a reader in plain C. */
#include "base/base.h"

#define SUMS        uint64_t
#define FACTORS     uint64_t
#define REGISTER    "r"
#define N_CHAINS    8
#define OP(s, a, b) ((s) + (a) * (b))
#define N_OPS       2
#include "backend/cpu/kernels/peak_loops.h"

BNET_PEAK(mul_add, scalar)
BNET_READER(scalar)
