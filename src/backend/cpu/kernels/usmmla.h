/* usmmla.h - ARM's product of 2 x 8 bytes without sign and 8 x 2 bytes with one. */
#ifndef BNET_KERNELS_USMMLA_H
#define BNET_KERNELS_USMMLA_H

#include <arm_neon.h>

#define ALWAYS_INLINE inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* gcc 12 copies sums around its intrinsic, and then keeps some of them in memory */
static inline int32x4_t usmmla(int32x4_t acc, uint8x16_t codes, int8x16_t x)
{
    __asm__("usmmla %0.4s, %1.16b, %2.16b" : "+w"(acc) : "w"(codes), "w"(x));
    return acc;
}

#endif
