/* i2s_r16.avx2.c - packed groups, 32-byte registers, byte multiplies in 16 bits. Few tokens: 2
 * groups, 8 lines of one after 8 of the other, so that memory sees two streams. Many: 16 rows x 4
 * tokens in 8 registers, beside their 32-bit sums in memory. */
#include "backend/cpu/kernels/r16_ymm.h"

enum { GEMV_G = 2, GEMV_T = 1, TILE_G = 1, TILE_T = 4, TILE_TAIL = 2, AHEAD = 2048 };

#include "backend/cpu/kernels/r16_madd.h"
#include "backend/cpu/kernels/r16_gemv.h"
#include "backend/cpu/kernels/r16_blocks.h"

void bnet_gemv_i2s_r16_avx2(const bnet_r16 *a)
{
    gemv(a);
}

void bnet_gemm_i2s_r16_avx2(const bnet_r16 *a)
{
    gemm(a);
}
