/* i2s_r16.sse41.c - packed groups, 16-byte registers, byte multiplies in 16 bits: the floor of
 * x86-64 machines since 2008. */
#include "backend/cpu/kernels/r16_xmm.h"

enum { GEMV_G = 2, GEMV_T = 1, TILE_G = 1, TILE_T = 2, TILE_TAIL = 1, AHEAD = 2048 };

#include "backend/cpu/kernels/r16_madd.h"
#include "backend/cpu/kernels/r16_gemv.h"
#include "backend/cpu/kernels/r16_blocks.h"

void bnet_gemv_i2s_r16_sse41(const bnet_r16 *a)
{
    gemv(a);
}

void bnet_gemm_i2s_r16_sse41(const bnet_r16 *a)
{
    gemm(a);
}
