/* peak.avx512.c - the rate of vpmaddubsw on 512 bits with the sum a dot product needs, and a reader
 * with 64-byte loads. */
#include <immintrin.h>

#define SUMS        __m512i
#define FACTORS     __m512i
#define REGISTER    "v"
#define N_CHAINS    16
#define OP(s, a, b) _mm512_add_epi16(s, _mm512_maddubs_epi16(a, b))
#define N_OPS       128
#include "backend/cpu/kernels/peak_loops.h"

BNET_PEAK(vpmaddubsw, avx512)
BNET_READER(avx512)
