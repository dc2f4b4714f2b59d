/* vector.avx2.c - norm, quantisation, rope, gates, sums, positions of the cache with AVX2, FMA and
 * F16C. */
#include "backend/cpu/kernels/simd_avx2.h"
#include "backend/cpu/kernels/vector_simd.h"
#include "backend/cpu/kernels/vector_fused.h"
