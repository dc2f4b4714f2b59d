/* w2_rows_wgmma.cu - ternary matrix times the tokens of a batch (tiles.h) with Hopper's warpgroup
 * products (9.0a), where a block can have all columns of its rows: no other block is met.
 *
 * A block computes 64 rows x TOKENS tokens, 16 or 32. Its weights are on their way into shared memory before the
 * kernel waits for the one before it. Four warpgroups take a fourth of the columns each: chunks beside
 * each other where one copy brings them, else every fourth; their
 * integer sums meet in shared memory, where the activations were, and leave by whole lines. */
#include "w2_tiles.cuh"

#if BNET_SM90A || !defined(__CUDA_ARCH__)

enum { GROUPS = BNET_W2_ROWS_GROUPS, THREADS = BNET_W2_ROWS_THREADS, TILES = BNET_W2_ROWS_TILES };
enum { LD = BNET_W2_ROWS_LD };

template <int TOKENS> struct work {
    enum { CHUNK = TOKENS * 128 }; /* bytes */
    const bnet_cu_gemm_args &a;
    uint32_t acts, weights, bars; /* shared memory; barrier 0 is the weights' */
    uint32_t n, group;            /* chunks; this warpgroup, */
    uint32_t height;              /* tokens of a tile in memory */
    uint32_t begin, end, next;    /* the warpgroup's chunks: the first, behind the last, how far apart */
    uint32_t tile0, t0, n_here;   /* tokens from t0 on that exist */
    int acc[TOKENS / 2];

    __device__ __forceinline__ void fetch_weights()
    {
        uint32_t lane = threadIdx.x % 32, bytes = n * BNET_W2_UNIT;
        if (lane == 0)
            expect(bars, TILES * bytes);
        __syncwarp();
        if (lane < TILES) {
            uint32_t tile = min(tile0 + lane, a.m.n_tiles - 1);
            bulk_once(weights + lane * bytes, a.m.w + (size_t)tile * n * BNET_W2_UNIT, bytes, bars);
        }
    }

    /* One thread of each warpgroup, after the wait. */
    __device__ __forceinline__ void fetch_acts()
    {
        const int8_t *from =
            a.act.q + ((size_t)(t0 / BNET_TILE_TOKENS) * n * height + t0 % BNET_TILE_TOKENS) * 128;
        if (next == 1 && begin < end)
            bulk_load(acts + begin * CHUNK, from + begin * CHUNK, (end - begin) * CHUNK,
                      bars + 8 * (1 + begin));
        for (uint32_t i = begin; next > 1 && i < end; i += next)
            bulk_load(acts + i * CHUNK, from + (size_t)i * height * 128, CHUNK, bars + 8 * (1 + i));
    }

    __device__ __forceinline__ uint4 codes(uint32_t i) const
    {
        uint32_t warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
        return load_shared16(weights + (warp * n + min(i, n - 1)) * BNET_W2_UNIT + lane * 16);
    }

    /* Chunk i with the registers r; unpacks this warpgroup's next one into the other set meanwhile. */
    __device__ __forceinline__ void step(uint32_t i, uint32_t r[4][4], uint32_t other[4][4])
    {
        barrier_wait(bars + 8 * (1 + (next == 1 ? begin : i)), 0);
        uint64_t b = describe(acts + i * CHUNK);
        group_arrive();
#pragma unroll
        for (int s = 0; s < 4; s++)
            product<TOKENS>::run(acc, r[s], b + 2 * s);
        group_commit();
        uint4 x = codes(i + next);
        group_wait<1>();
        unpack(x, other);
    }

    __device__ __forceinline__ void multiply()
    {
        uint32_t even[4][4], odd[4][4];
#pragma unroll
        for (int i = 0; i < TOKENS / 2; i++)
            acc[i] = 0;
        barrier_wait(bars, 0);
        unpack(codes(begin), even);
        for (uint32_t i = begin; i < end; i += 2 * next) {
            step(i, even, odd);
            if (i + next < end)
                step(i + next, odd, even);
        }
        group_wait<0>();
    }

    /* [warpgroup][token][row] where the activations were; no bank twice. */
    __device__ __forceinline__ void put(int *sums) const
    {
        uint32_t warp = threadIdx.x / 32 % 4, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
        int *to = sums + (group * TOKENS + 2 * t) * LD + warp * BNET_W2_TILE + g;
#pragma unroll
        for (int j = 0; j < TOKENS / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                to[(8 * j + e % 2) * LD + e / 2 * 8] = acc[4 * j + e];
    }

    /* Where this lane's row of the first token goes; NULL: nowhere. */
    __device__ __forceinline__ float *target(float *scale, uint32_t *ld) const
    {
        uint32_t row = threadIdx.x % 64, all = tile0 + row / 16;
        int part = a.m.paired ? (int)(row / 8 % 2) : w2_part_of(a.m, all);
        const bnet_cu_part &p = a.m.part[part];
        uint32_t r = a.m.paired ? all * 8 + row % 8 : (all - p.first_tile) * BNET_W2_TILE + row % 16;
        *scale = p.scale, *ld = p.ld;
        return all < a.m.n_tiles && r < p.n_rows && p.y ? p.y + (size_t)t0 * p.ld + r : nullptr;
    }
};

template <int TOKENS> static __device__ __forceinline__ void gemm(const bnet_cu_gemm_args &a)
{
    enum { EACH = TOKENS / 8 }; /* results of a thread */
    extern __shared__ __align__(1024) uint8_t dynamic[];
    __shared__ __align__(8) uint64_t bars[1 + BNET_W2_ROWS_CHUNKS];
    __shared__ float scale[TOKENS];
    __shared__ int sum[TOKENS];
    uint32_t base = (shared_addr(dynamic) + 1023) & ~1023u, n = a.m.n_chunks, t0 = blockIdx.z * TOKENS;
    uint32_t t = threadIdx.x - 32, first = threadIdx.x / 64, ld;
    uint32_t group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    uint32_t height = bnet_tile_tokens(a.n_tokens);
    bool whole = height == TOKENS;
    work<TOKENS> w = {a, base, base + bnet_w2_rows_room(n, TOKENS), shared_addr(bars), n, group,
                      height, whole ? n * group / GROUPS : group, whole ? n * (group + 1) / GROUPS : n,
                      whole ? 1u : (uint32_t)GROUPS,
                      blockIdx.y * TILES, t0, min((uint32_t)TOKENS, a.n_tokens - t0)};
    if (threadIdx.x <= n) {
        barrier_init(w.bars + 8 * threadIdx.x, 1);
        barrier_init_fence();
    }
    __syncthreads();
    pdl_launch();
    if (threadIdx.x < 32)
        w.fetch_weights();
    float own, add[EACH], *y = w.target(&own, &ld);
    pdl_wait();
    if (threadIdx.x % 128 == 0)
        w.fetch_acts();
    if (t < w.n_here) {
        scale[t] = a.act.scale[t0 + t];
        sum[t] = a.act.sum[t0 + t];
    }
#pragma unroll
    for (uint32_t e = 0; e < EACH; e++)
        add[e] = a.epilogue == BNET_CU_ADD && y && first + 8 * e < w.n_here ? y[(first + 8 * e) * ld] : 0;
    w.multiply();
    __syncthreads(); /* the activations' place is free */
    int *sums = (int *)(dynamic + (base - shared_addr(dynamic)));
    w.put(sums);
    __syncthreads();
    const int *s = sums + threadIdx.x % 64;
#pragma unroll
    for (uint32_t e = 0; e < EACH; e++) {
        uint32_t token = first + 8 * e;
        int c = 0;
#pragma unroll
        for (int g = 0; g < GROUPS; g++)
            c += s[(g * TOKENS + token) * LD];
        if (!y || token >= w.n_here)
            continue;
        float f = __fmul_rn((float)(c - sum[token]), __fmul_rn(scale[token], own));
        y[token * ld] = a.epilogue == BNET_CU_ADD ? __fadd_rn(add[e], f) : f;
    }
}

KERNEL __launch_bounds__(THREADS, 1) bnet_w2_rows(const __grid_constant__ bnet_cu_gemm_args a)
{
    gemm<32>(a);
}

KERNEL __launch_bounds__(THREADS, 1) bnet_w2_rows_16(const __grid_constant__ bnet_cu_gemm_args a)
{
    gemm<16>(a);
}

#endif
