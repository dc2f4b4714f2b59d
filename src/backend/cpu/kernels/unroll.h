/* unroll.h - how kernels ask a compiler to put functions in place and to unroll loops whose sums
 * are to stay in registers. */
#ifndef BNET_KERNELS_UNROLL_H
#define BNET_KERNELS_UNROLL_H

#define ALWAYS_INLINE inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 64")
#endif

#endif
