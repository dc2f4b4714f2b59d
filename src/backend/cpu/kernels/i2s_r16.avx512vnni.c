/* i2s_r16.avx512vnni.c - packed groups, 64-byte registers, byte dot products. Few tokens: 4 groups
 * at a time, one spread of the activations for all of them, 16 sums in flight. More: 32 rows x 12
 * tokens in 24 registers, many: 48 rows x 8, which takes fewer instructions. */
#include "backend/cpu/kernels/r16_zmm.h"

enum { GEMV_G = 4, GEMV_T = 4, FEW_G = 2, FEW_T = 12, MANY_G = 3, MANY_T = 8, AHEAD = 1024 };
#define MANY_TILES(T) T(1) T(2) T(3) T(4) T(5) T(6) T(7) T(8)
#define FEW_TILES(T)  MANY_TILES(T) T(9) T(10) T(11) T(12)
/* gcc 12 keeps copies of the sums around its intrinsic, and then has no registers left */
static inline vec v_dot(vec acc, vec codes, vec x)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(codes), "v"(x));
    return acc;
}

#include "backend/cpu/kernels/r16_vnni.h"
#include "backend/cpu/kernels/r16_gemv.h"
#include "backend/cpu/kernels/r16_planes.h"

void bnet_gemv_i2s_r16_avx512vnni(const bnet_r16 *a)
{
    gemv(a);
}

void bnet_gemm_i2s_r16_avx512vnni(const bnet_r16 *a)
{
    gemm_planes(a);
}
