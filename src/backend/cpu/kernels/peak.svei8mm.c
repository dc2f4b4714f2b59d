/* peak.svei8mm.c - the rate of smmla on the vectors of SVE: 2x8 times 8x2 in every 16 bytes. */
#define OP(s, a, b) svmmla_s32(s, a, b)
#include "backend/cpu/kernels/peak_sve.h"

uint64_t bnet_peak_smmla_svei8mm(size_t n_rounds, uint64_t *sink)
{
    return peak(n_rounds, 4, sink);
}
