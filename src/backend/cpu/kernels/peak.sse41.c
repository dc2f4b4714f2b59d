/* peak.sse41.c - the rate of pmaddubsw with the sum a dot product needs: 16 products and 8 sums,
 * and another 8 of paddw. */
#include <immintrin.h>

#define SUMS        __m128i
#define FACTORS     __m128i
#define REGISTER    "v"
#define N_CHAINS    12
#define OP(s, a, b) _mm_add_epi16(s, _mm_maddubs_epi16(a, b))
#define N_OPS       32
#include "backend/cpu/kernels/peak_loops.h"

BNET_PEAK(pmaddubsw, sse41)
