/* i2s_r16.avxvnni.c - packed groups, 32-byte registers, byte dot products. Few tokens: a group, 8
 * sums in flight. More: 16 rows x 6 tokens in 12 registers. */
#include "backend/cpu/kernels/r16_ymm.h"

enum { GEMV_G = 1, GEMV_T = 1, FEW_G = 1, FEW_T = 6, MANY_G = 1, MANY_T = 6, AHEAD = 2048 };
#define FEW_TILES(T)  T(1) T(2) T(3) T(4) T(5) T(6)
#define MANY_TILES(T) FEW_TILES(T)
/* gcc 12 keeps copies of the sums around its intrinsic, and then has no registers left */
static inline vec v_dot(vec acc, vec codes, vec x)
{
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(acc) : "x"(codes), "x"(x));
    return acc;
}

#include "backend/cpu/kernels/r16_vnni.h"
#include "backend/cpu/kernels/r16_gemv.h"
#include "backend/cpu/kernels/r16_planes.h"

void bnet_gemv_i2s_r16_avxvnni(const bnet_r16 *a)
{
    gemv(a);
}

void bnet_gemm_i2s_r16_avxvnni(const bnet_r16 *a)
{
    gemm_planes(a);
}
