/* peak.avxvnni.c - the rate of vpdpbusd on 256 bits. */
#include <immintrin.h>

#define SUMS        __m256i
#define FACTORS     __m256i
#define REGISTER    "v"
#define N_CHAINS    12
#define OP(s, a, b) _mm256_dpbusd_avx_epi32(s, a, b)
#define N_OPS       64
#include "backend/cpu/kernels/peak_loops.h"

BNET_PEAK(vpdpbusd, avxvnni)
