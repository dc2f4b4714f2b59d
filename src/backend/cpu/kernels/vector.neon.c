/* vector.neon.c - norm, quantisation, rope, gates, sums, positions of the cache with NEON. */
#include "backend/cpu/kernels/simd_neon.h"
#include "backend/cpu/kernels/vector_simd.h"
#include "backend/cpu/kernels/vector_fused.h"
