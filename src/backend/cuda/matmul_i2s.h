/* matmul_i2s.h - products of int8 and ternary codes one per byte: arguments. Part of the contract
 * of kernels.h. */
#ifndef BNET_CUDA_MATMUL_I2S_H
#define BNET_CUDA_MATMUL_I2S_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Products of int8 a [M][K] and codes b [K][N] (0, 1, 2 = -1, 0, +1, else 0), one per byte, into
 * floats c [M][N], exactly. bnet_matmul_i2s: block x block threads as bnet_launch_params says,
 * tiles of bnet_matmul_i2s_shared bytes. bnet_wmma_matmul_i2s: 32 x 32 results per block of 128
 * threads by halves on the tensor cores; K up to 131072. */
typedef struct bnet_cu_matmul_i2s_args {
    BNET_DEV(const int8_t) a;
    BNET_DEV(const uint8_t) b;
    BNET_DEV(float) c;
    uint32_t m, n, k, pad;
} bnet_cu_matmul_i2s_args;
enum { BNET_WMMA_I2S_SIDE = 32, BNET_WMMA_I2S_THREADS = 128 };
static inline uint32_t bnet_matmul_i2s_shared(uint32_t block)
{
    return 2 * block * (block + 4); /* rows 4 bytes apart from a multiple of the banks */
}

#ifdef __cplusplus
}
#endif

#endif
