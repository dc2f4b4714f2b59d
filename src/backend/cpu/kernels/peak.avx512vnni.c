/* peak.avx512vnni.c - the rate of vpdpbusd on 512 bits. */
#include <immintrin.h>

#define SUMS        __m512i
#define FACTORS     __m512i
#define REGISTER    "v"
#define N_CHAINS    16
#define OP(s, a, b) _mm512_dpbusd_epi32(s, a, b)
#define N_OPS       128
#include "backend/cpu/kernels/peak_loops.h"

BNET_PEAK(vpdpbusd, avx512vnni)
