/* peak.avx2.c - the rate of vpmaddubsw with the sum a dot product needs, and a reader with 32-byte
 * loads. */
#include <immintrin.h>

#define SUMS        __m256i
#define FACTORS     __m256i
#define REGISTER    "v"
#define N_CHAINS    12
#define OP(s, a, b) _mm256_add_epi16(s, _mm256_maddubs_epi16(a, b))
#define N_OPS       64
#include "backend/cpu/kernels/peak_loops.h"

BNET_PEAK(vpmaddubsw, avx2)
BNET_READER(avx2)
