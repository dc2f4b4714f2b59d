/* w2_gemm_wgmma.cu - ternary matrix times many int8 vectors with Hopper's asynchronous warpgroup
 * products (9.0a).
 *
 * A block computes 128 rows x TOKENS; two warpgroups of 64 rows each. The A operand is in
 * registers: the 16 bytes a lane takes hold its codes for 128 columns, four products, unpacked
 * while the tensor cores work on the chunk before (two sets of registers). The B operand, the
 * activations, lies in shared memory in 128-byte rows with the 128-byte swizzle; the weights pass
 * through there too, each thread its own 16 bytes, only to be on their way early enough. A stage is
 * filled again two chunks after its products began, when every warp has waited for them. */
#include "w2_gemm.cuh"
#include "wgmma.cuh"

#if BNET_SM90A || !defined(__CUDA_ARCH__)

enum { THREADS = 256, WEIGHTS = THREADS * 16 };

template <int TOKENS> struct pipe {
    enum { STAGES = BNET_WGMMA_STAGES(TOKENS), BYTES = TOKENS * 128 };
    const bnet_cu_gemm_args &a;
    const uint8_t *w;
    uint32_t stages, token0, c0, c1;
    int acc[TOKENS / 2];

    /* Activations of all stages first, then the weights. */
    __device__ __forceinline__ uint32_t weights_at(uint32_t c) const
    {
        return stages + STAGES * BYTES + (c - c0) % STAGES * WEIGHTS + threadIdx.x * 16;
    }

    __device__ __forceinline__ void fetch(uint32_t c)
    {
        if (c < c1) {
            load_tokens<TOKENS, THREADS>(a, token0, c, stages + (c - c0) % STAGES * BYTES);
            copy_async16(weights_at(c), w + (size_t)c * BNET_W2_UNIT, true);
        }
        copy_commit();
    }

    __device__ __forceinline__ uint4 weights(uint32_t c) const
    {
        return load_shared16(weights_at(c));
    }

    /* Chunk c with the registers r; unpacks chunk c + 1 into the other set meanwhile. */
    __device__ __forceinline__ void step(uint32_t c, uint32_t r[4][4], uint32_t other[4][4])
    {
        copy_wait<STAGES - 4>(); /* chunks up to c + 1 are here */
        async_fence();
        __syncthreads();
        uint64_t b = describe(stages + (c - c0) % STAGES * BYTES);
        group_arrive();
#pragma unroll
        for (int s = 0; s < 4; s++)
            product<TOKENS>::run(acc, r[s], b + 2 * s);
        group_commit();
        fetch(c + STAGES - 2);
        uint4 next = weights(c + 1); /* after the last one: something, not used */
        group_wait<1>();
        unpack(next, other);
    }
};

template <int TOKENS> static __device__ __forceinline__ void gemm(const bnet_cu_gemm_args &a)
{
    extern __shared__ __align__(1024) uint8_t dynamic[];
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t tile = blockIdx.y * 8 + warp;
    pipe<TOKENS> p = {
        a, a.m.w + (size_t)min(tile, a.m.n_tiles - 1) * a.m.n_chunks * BNET_W2_UNIT + lane * 16,
        (shared_addr(dynamic) + 1023) & ~1023u, blockIdx.x * TOKENS};
    k_range(a, &p.c0, &p.c1);
#pragma unroll
    for (int i = 0; i < TOKENS / 2; i++)
        p.acc[i] = 0;
    for (int s = 0; s < pipe<TOKENS>::STAGES - 2; s++)
        p.fetch(p.c0 + s);
    uint32_t even[4][4], odd[4][4];
    copy_wait<pipe<TOKENS>::STAGES - 3>();
    unpack(p.weights(p.c0), even);
    for (uint32_t c = p.c0; c < p.c1; c += 2) {
        p.step(c, even, odd);
        if (c + 1 < p.c1)
            p.step(c + 1, odd, even);
    }
    group_wait<0>();
    copy_wait<0>();
    if (a.splits > 1 && !meet<TOKENS / 2, THREADS>(a, p.acc))
        return;
#pragma unroll
    for (int j = 0; j < TOKENS / 8; j++)
        put_tokens(a, tile, p.token0 + j * 8, p.acc + 4 * j);
}

KERNEL __launch_bounds__(THREADS, 2)
    bnet_w2_gemm_wgmma_64(const __grid_constant__ bnet_cu_gemm_args a)
{
    gemm<64>(a);
}

KERNEL __launch_bounds__(THREADS, 2)
    bnet_w2_gemm_wgmma_128(const __grid_constant__ bnet_cu_gemm_args a)
{
    gemm<128>(a);
}

#endif
