/* vector.avx512.c - norm, quantisation, rope, gates, sums, positions of the cache with AVX-512. */
#include "backend/cpu/kernels/simd_avx512.h"
#include "backend/cpu/kernels/vector_simd.h"
#include "backend/cpu/kernels/vector_fused.h"
