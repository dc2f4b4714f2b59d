/* i2s_r16.avx512vnni.c - packed groups, 64-byte registers, byte dot products. Few tokens: 4 groups
 * at a time, one spread of the activations for all of them, 16 sums in flight. Many: 64 rows x 6
 * tokens in 24 registers. */
#include "backend/cpu/kernels/r16_zmm.h"

enum { GEMV_G = 4, GEMV_T = 4, TILE_G = 4, TILE_T = 6, TILE_TAIL = 2, AHEAD = 1024 };
/* gcc 12 keeps copies of the sums around its intrinsic, and then has no registers left */
static inline vec v_dot(vec acc, vec codes, vec x)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(codes), "v"(x));
    return acc;
}

#include "backend/cpu/kernels/r16_vnni.h"
#include "backend/cpu/kernels/r16_blocks.h"

void bnet_gemv_i2s_r16_avx512vnni(const bnet_r16 *a)
{
    gemv(a);
}

void bnet_gemm_i2s_r16_avx512vnni(const bnet_r16 *a)
{
    gemm(a);
}
