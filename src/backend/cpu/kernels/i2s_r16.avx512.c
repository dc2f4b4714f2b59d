/* i2s_r16.avx512.c - packed groups, 64-byte registers, byte multiplies in 16 bits. Many tokens: 32
 * rows x 8 tokens in 16 registers. */
#include "backend/cpu/kernels/r16_zmm.h"

enum { GEMV_G = 4, GEMV_T = 1, TILE_G = 2, TILE_T = 8, TILE_TAIL = 2, AHEAD = 2048 };

#include "backend/cpu/kernels/r16_madd.h"
#include "backend/cpu/kernels/r16_gemv.h"
#include "backend/cpu/kernels/r16_blocks.h"

void bnet_gemv_i2s_r16_avx512(const bnet_r16 *a)
{
    gemv(a);
}

void bnet_gemm_i2s_r16_avx512(const bnet_r16 *a)
{
    gemm(a);
}
