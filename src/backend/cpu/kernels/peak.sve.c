/* peak.sve.c - the rate of sdot on the vectors of SVE. */
#define OP(s, a, b) svdot_s32(s, a, b)
#include "backend/cpu/kernels/peak_sve.h"

uint64_t bnet_peak_sdot_sve(size_t n_rounds, uint64_t *sink)
{
    return peak(n_rounds, 2, sink);
}
