/* matmul_i2s.cu - int8 rows times ternary codes, one per byte, both as programs have them. */
#include "common.cuh"

#include "backend/cuda/matmul_i2s.h"

#include <mma.h>

static __device__ __forceinline__ int trit_of(uint32_t code)
{
    return code <= 2 ? (int)code - 1 : 0;
}

/* A thread per result; tiles of both factors in shared memory, b's the other way round, so that four
 * products are one instruction. */
KERNEL bnet_matmul_i2s(const __grid_constant__ bnet_cu_matmul_i2s_args a)
{
    extern __shared__ int8_t tiles[];
    uint32_t side = blockDim.x, ld = side + 4, col = blockIdx.x * side + threadIdx.x;
    int8_t *x = tiles, *y = tiles + side * ld;
    uint32_t blocks = (a.m + side - 1) / side;
    for (uint32_t block = blockIdx.y; block < blocks; block += gridDim.y) {
        uint32_t row = block * side + threadIdx.y;
        int sum = 0;
        for (uint32_t k = 0; k < a.k; k += side) {
            uint32_t l = k + threadIdx.x, d = k + threadIdx.y;
            x[threadIdx.y * ld + threadIdx.x] = row < a.m && l < a.k ? a.a[(size_t)row * a.k + l] : 0;
            y[threadIdx.x * ld + threadIdx.y] =
                col < a.n && d < a.k ? (int8_t)trit_of(a.b[(size_t)d * a.n + col]) : 0;
            __syncthreads();
            for (uint32_t i = 0; i < side; i += 4) {
                int p = *(const int *)(x + threadIdx.y * ld + i);
                int q = *(const int *)(y + threadIdx.x * ld + i);
                sum = __dp4a(p, q, sum);
            }
            __syncthreads();
        }
        if (row < a.m && col < a.n)
            a.c[(size_t)row * a.n + col] = (float)sum;
    }
}

enum { SIDE = BNET_WMMA_I2S_SIDE, DEPTH = 32, LD = DEPTH + 8, THREADS = BNET_WMMA_I2S_THREADS };

/* int8 values and trits are halves without loss, their sums floats as long as they stay below 2^24:
 * four warps, 16 x 16 results each. */
KERNEL __launch_bounds__(THREADS)
    bnet_wmma_matmul_i2s(const __grid_constant__ bnet_cu_matmul_i2s_args a)
{
    using namespace nvcuda::wmma;
    __shared__ __align__(16) __half x[SIDE * LD], y[DEPTH * LD];
    __shared__ __align__(16) float out[THREADS / 32][16 * 16];
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t row = blockIdx.y * SIDE, col = blockIdx.x * SIDE, r = warp / 2 * 16, n = warp % 2 * 16;
    fragment<accumulator, 16, 16, 16, float> c;
    fill_fragment(c, 0.0f);
    for (uint32_t k = 0; k < a.k; k += DEPTH) {
        for (uint32_t e = threadIdx.x; e < SIDE * DEPTH; e += THREADS) {
            uint32_t i = e / DEPTH, j = e % DEPTH;
            bool in_a = row + i < a.m && k + j < a.k, in_b = k + i < a.k && col + j < a.n;
            int p = in_a ? a.a[(size_t)(row + i) * a.k + k + j] : 0;
            int q = in_b ? trit_of(a.b[(size_t)(k + i) * a.n + col + j]) : 0;
            x[i * LD + j] = __int2half_rn(p);
            y[i * LD + j] = __int2half_rn(q);
        }
        __syncthreads();
        for (uint32_t s = 0; s < DEPTH; s += 16) {
            fragment<matrix_a, 16, 16, 16, __half, row_major> p;
            fragment<matrix_b, 16, 16, 16, __half, row_major> q;
            load_matrix_sync(p, x + r * LD + s, LD);
            load_matrix_sync(q, y + s * LD + n, LD);
            mma_sync(c, p, q, c);
        }
        __syncthreads();
    }
    store_matrix_sync(out[warp], c, 16, mem_row_major);
    __syncwarp();
    for (uint32_t e = lane; e < 256; e += 32) {
        uint32_t i = row + r + e / 16, j = col + n + e % 16;
        if (i < a.m && j < a.n)
            a.c[(size_t)i * a.n + j] = out[warp][e];
    }
}
