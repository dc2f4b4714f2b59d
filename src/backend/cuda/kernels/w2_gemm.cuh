/* w2_gemm.cuh - what the two GEMM families share: activations into shared memory, the division of K
 * among blocks, and the way out. */
#ifndef BNET_W2_GEMM_CUH
#define BNET_W2_GEMM_CUH

#include "w2_epilogue.cuh"

/* Chunks of 128 columns this block sums up. */
static __device__ __forceinline__ void k_range(const bnet_cu_gemm_args &a, uint32_t *begin,
                                               uint32_t *end)
{
    *begin = a.m.n_chunks * blockIdx.z / a.splits;
    *end = a.m.n_chunks * (blockIdx.z + 1) / a.splits;
}

/* TOKENS rows of 128 bytes into a stage; piece p of row r lies at p ^ (r & 7). */
template <int TOKENS, int THREADS>
static __device__ __forceinline__ void load_tokens(const bnet_cu_gemm_args &a, uint32_t token0,
                                                   uint32_t chunk, uint32_t to)
{
#pragma unroll
    for (int i = 0; i < TOKENS * 8 / THREADS; i++) {
        uint32_t at = threadIdx.x + i * THREADS, row = at / 8, piece = at % 8;
        bool wanted = token0 + row < a.n_tokens;
        const int8_t *from = a.act.q + (size_t)(wanted ? token0 + row : 0) * a.act.stride +
                             chunk * 128 + piece * 16;
        copy_async16(to + row * 128 + ((piece ^ (row & 7)) << 4), from, wanted);
    }
}

/* A lane's four sums of a 16 x 8 product: rows g and g + 8, tokens 2t and 2t + 1. */
static __device__ __forceinline__ void put_tokens(const bnet_cu_gemm_args &a, uint32_t tile,
                                                  uint32_t token0, const int *c)
{
    uint32_t g = threadIdx.x % 32 / 4, token = token0 + threadIdx.x % 4 * 2;
    if (tile >= a.m.n_tiles)
        return;
#pragma unroll
    for (int i = 0; i < 2; i++)
        if (token + i < a.n_tokens) {
            int sum = __ldg(&a.act.sum[token + i]);
            w2_finish(a.m, tile, g, token + i, c[i] - sum, c[2 + i] - sum,
                      __ldg(&a.act.scale[token + i]), a.epilogue);
        }
}

/* Split K: adds this block's sums to the tile's. True in the block that comes last, which then holds
 * the totals; it leaves zeros behind for the next launch. */
template <int N, int THREADS>
static __device__ __forceinline__ bool meet(const bnet_cu_gemm_args &a, int *acc)
{
    __shared__ uint32_t arrived;
    uint32_t tile = blockIdx.y * gridDim.x + blockIdx.x;
    int *work = a.work + (size_t)tile * N * THREADS + threadIdx.x;
#pragma unroll
    for (int i = 0; i < N; i++)
        atomicAdd(&work[i * THREADS], acc[i]);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        arrived = atomicAdd(&a.counters[tile], 1);
    __syncthreads();
    if (arrived + 1 != a.splits)
        return false;
    __threadfence();
#pragma unroll
    for (int i = 0; i < N; i++) {
        acc[i] = __ldcg(&work[i * THREADS]);
        work[i * THREADS] = 0;
    }
    if (threadIdx.x == 0)
        a.counters[tile] = 0;
    return true;
}

#endif
