/* w2_tiles_wgmma.cu - ternary matrix times the tokens of a batch (tiles.h) with Hopper's warpgroup
 * products (9.0a): small enough that latency decides, so nothing is staged twice.
 *
 * A block computes ROWS rows x 64 tokens over its share of the columns. Its weights are on their way
 * into shared memory before the kernel waits for the one before it; the activations follow as whole
 * tiles, one barrier each, and are the B operand as they lie. A warp unpacks its 16 rows into
 * registers while the tensor cores work on the chunk before. The blocks of a cluster have different
 * columns: their integer sums meet through distributed shared memory, each block finishing some of
 * the tokens. */
#include "w2_tiles.cuh"

#if BNET_SM90A || !defined(__CUDA_ARCH__)

enum { TOKENS = BNET_TILE_TOKENS, GROUPS = TOKENS / 8 };

template <int ROWS> struct work {
    enum { THREADS = 2 * ROWS, TILES = ROWS / BNET_W2_TILE, LD = ROWS + W2_PAD };
    const bnet_cu_gemm_args &a;
    uint32_t acts, weights, bars; /* shared memory; barrier 0 is the weights' */
    uint32_t c0, n;               /* first chunk, how many */
    uint32_t tile0;
    const float *scale; /* [TOKENS], shared memory */
    const int *sum;
    float *out; /* in the place of the weights, [tokens of this block][LD] */
    int acc[TOKENS / 2];

    /* One warp: the weights of all tiles; then, after the wait, one thread: the activations. */
    __device__ __forceinline__ void fetch_weights()
    {
        uint32_t lane = threadIdx.x % 32, bytes = n * BNET_W2_UNIT;
        if (lane == 0)
            expect(bars, TILES * bytes);
        __syncwarp();
        if (lane < TILES) {
            uint32_t tile = min(tile0 + lane, a.m.n_tiles - 1);
            bulk_more(weights + lane * bytes,
                      a.m.w + ((size_t)tile * a.m.n_chunks + c0) * BNET_W2_UNIT, bytes, bars);
        }
    }

    __device__ __forceinline__ void fetch_acts()
    {
        const int8_t *from =
            a.act.q + ((size_t)blockIdx.z * a.m.n_chunks + c0) * BNET_TILE_BYTES;
        for (uint32_t i = 0; i < n; i++)
            bulk_load(acts + i * BNET_TILE_BYTES, from + (size_t)i * BNET_TILE_BYTES,
                      BNET_TILE_BYTES, bars + 8 * (i + 1));
    }

    /* Codes of chunk i, those after the last one zero. */
    __device__ __forceinline__ uint4 codes(uint32_t i) const
    {
        uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        uint4 v = load_shared16(weights + (warp * n + min(i, n - 1)) * BNET_W2_UNIT + lane * 16);
        return i < n ? v : make_uint4(0, 0, 0, 0);
    }

    /* Chunks i and i + 1 with the registers r; unpacks the next two into the other set meanwhile. */
    __device__ __forceinline__ void step(uint32_t i, uint32_t r[2][4][4], uint32_t other[2][4][4])
    {
        uint32_t second = min(i + 1, n - 1);
        barrier_wait(bars + 8 * (i + 1), 0);
        barrier_wait(bars + 8 * (second + 1), 0);
        uint64_t b0 = describe(acts + i * BNET_TILE_BYTES);
        uint64_t b1 = describe(acts + second * BNET_TILE_BYTES);
        group_arrive();
#pragma unroll
        for (int s = 0; s < 4; s++)
            product<TOKENS>::run(acc, r[0][s], b0 + 2 * s);
#pragma unroll
        for (int s = 0; s < 4; s++)
            product<TOKENS>::run(acc, r[1][s], b1 + 2 * s);
        group_commit();
        uint4 x = codes(i + 2), y = codes(i + 3);
        group_wait<1>();
        unpack(x, other[0]);
        unpack(y, other[1]);
    }

    __device__ __forceinline__ void multiply()
    {
        uint32_t even[2][4][4], odd[2][4][4];
#pragma unroll
        for (int i = 0; i < TOKENS / 2; i++)
            acc[i] = 0;
        barrier_wait(bars, 0);
        unpack(codes(0), even[0]);
        unpack(codes(1), even[1]);
        for (uint32_t i = 0; i < n; i += 4) {
            step(i, even, odd);
            if (i + 2 < n)
                step(i + 2, odd, even);
        }
        group_wait<0>();
    }

    /* Group j of eight tokens into its place before it leaves, the k-th of this block. */
    __device__ __forceinline__ void stage(const target &to, int j, int k) const
    {
        uint32_t t = threadIdx.x % 4 * 2;
        w2_stage(a, to, out, LD, threadIdx.x / 32, 8 * k + t, acc + 4 * j,
                 *(const float2 *)(scale + 8 * j + t), *(const int2 *)(sum + 8 * j + t));
    }

    /* Groups rank, rank + splits, ... leave. */
    __device__ __forceinline__ void leave(uint32_t splits, uint32_t rank) const
    {
        uint32_t per = w2_out_rows(a), fours = TILES * per / 4;
        uint32_t n_groups = (GROUPS - rank + splits - 1) / splits;
        __syncthreads();
        for (uint32_t u = threadIdx.x; u < n_groups * 8 * fours; u += THREADS) {
            uint32_t slot = u / fours, row = u % fours * 4;
            uint32_t token = 8 * (slot / 8 * splits + rank) + slot % 8;
            w2_leave(a, tile0 + row / per, row % per, blockIdx.z * TOKENS + token,
                     *(const float4 *)(out + slot * LD + row));
        }
    }

    /* Sums of all blocks of the cluster; every block finishes its share of the groups of tokens. */
    template <int SPLITS> __device__ __forceinline__ void meet(const target &to)
    {
        uint32_t rank = blockIdx.x;
        __syncthreads(); /* the products are done: the place of the activations is free */
#pragma unroll
        for (int j = 0; j < GROUPS; j++)
            if (j % SPLITS != rank)
                store_shared16(acts + (j * THREADS + threadIdx.x) * 16,
                               make_uint4(acc[4 * j], acc[4 * j + 1], acc[4 * j + 2],
                                          acc[4 * j + 3]));
        cluster_arrive();
        cluster_wait();
#pragma unroll
        for (int j = 0; j < GROUPS; j++)
            if (j % SPLITS == rank) {
                int4 v[SPLITS];
#pragma unroll
                for (int k = 1; k < SPLITS; k++) {
                    uint32_t from = rank + k < SPLITS ? rank + k : rank + k - SPLITS;
                    v[k] = load_cluster16(acts + (j * THREADS + threadIdx.x) * 16, from);
                }
#pragma unroll
                for (int k = 1; k < SPLITS; k++) {
                    acc[4 * j] += v[k].x, acc[4 * j + 1] += v[k].y;
                    acc[4 * j + 2] += v[k].z, acc[4 * j + 3] += v[k].w;
                }
                stage(to, j, j / SPLITS);
            }
        cluster_arrive();
        leave(SPLITS, rank);
        cluster_wait(); /* nobody reads this block's memory any more */
    }

    __device__ __forceinline__ void alone(const target &to)
    {
        __syncthreads(); /* scale and sum; the products are done */
#pragma unroll
        for (int j = 0; j < GROUPS; j++)
            stage(to, j, j);
        leave(1, 0);
    }
};

template <int ROWS> static __device__ __forceinline__ void gemm(const bnet_cu_gemm_args &a)
{
    extern __shared__ __align__(1024) uint8_t dynamic[];
    __shared__ __align__(8) uint64_t bars[BNET_W2_TILES_CHUNKS + 1];
    __shared__ __align__(8) float scale[TOKENS];
    __shared__ __align__(8) int sum[TOKENS];
    uint32_t c0 = a.m.n_chunks * blockIdx.x / a.splits;
    uint32_t c1 = a.m.n_chunks * (blockIdx.x + 1) / a.splits;
    uint32_t most = (a.m.n_chunks + a.splits - 1) / a.splits, base = (shared_addr(dynamic) + 1023) & ~1023u;
    uint32_t room = max(most * BNET_TILE_BYTES, a.splits > 1 ? ROWS * TOKENS * 4 : 0);
    work<ROWS> w = {a, base, base + room, shared_addr(bars), c0, c1 - c0,
                    blockIdx.y * (ROWS / BNET_W2_TILE), scale, sum,
                    (float *)(dynamic + (base - shared_addr(dynamic)) + room)};
    if (threadIdx.x <= w.n) {
        barrier_init(w.bars + 8 * threadIdx.x, 1);
        barrier_init_fence();
    }
    __syncthreads();
    pdl_launch();
    if (threadIdx.x < 32)
        w.fetch_weights();
    pdl_wait();
    if (threadIdx.x == 0)
        w.fetch_acts();
    uint32_t t = threadIdx.x - 64, token = blockIdx.z * TOKENS + t;
    if (t < TOKENS && token < a.n_tokens) {
        scale[t] = a.act.scale[token];
        sum[t] = a.act.sum[token];
    }
    target to = target_of(a, w.tile0 + threadIdx.x / 32);
    w.multiply();
    switch (a.splits) {
    case 1: return w.alone(to);
    case 2: return w.template meet<2>(to);
    case 3: return w.template meet<3>(to);
    case 4: return w.template meet<4>(to);
    case 5: return w.template meet<5>(to);
    case 6: return w.template meet<6>(to);
    case 7: return w.template meet<7>(to);
    default: return w.template meet<8>(to);
    }
}

KERNEL __launch_bounds__(256, 2) bnet_w2_tiles_128(const __grid_constant__ bnet_cu_gemm_args a)
{
    gemm<128>(a);
}

KERNEL __launch_bounds__(512, 1) bnet_w2_tiles_256(const __grid_constant__ bnet_cu_gemm_args a)
{
    gemm<256>(a);
}

#endif
