/* attention.avx512.c - attention over one block of the cache with AVX-512. */
#include "backend/cpu/kernels/simd_avx512.h"

#include "backend/cpu/kernels/attention_simd.h"

BNET_ATTENTION_ROW(f32, 4, (size_t)-1)
BNET_ATTENTION_ROW(f16, 2, AHEAD_TOKENS)
BNET_ATTENTION_ROW(i8, 1, AHEAD_TOKENS)
