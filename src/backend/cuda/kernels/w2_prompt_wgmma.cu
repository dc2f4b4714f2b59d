/* w2_prompt_wgmma.cu - ternary matrix times the tokens of a prompt (tiles.h) with Hopper's warpgroup
 * products (9.0a).
 *
 * A block computes 256 rows x 128 tokens: weights are a sixteenth of the bytes they stand for, so
 * many rows to a tile are cheap. Four warps keep a ring of stages of two chunks filled through the
 * copy engine and give their registers to two warpgroups of 128 rows that compute, each two products
 * of 64 rows in turn: while one is with the tensor cores, the codes of the other are unpacked. Two
 * blocks of a cluster divide the columns and meet as in w2_tiles_wgmma.cu. */
#include "w2_tiles.cuh"

#if BNET_SM90A || !defined(__CUDA_ARCH__)

enum { ROWS = BNET_PROMPT_ROWS, TOKENS = BNET_PROMPT_TOKENS, STAGES = BNET_PROMPT_STAGES };
enum { ACTS = 2 * BNET_TILE_BYTES, TILES = ROWS / BNET_W2_TILE, CHUNKS = 2 };
enum { STAGE = BNET_PROMPT_STAGE, CODES = CHUNKS * ACTS }; /* codes lie behind the activations */
enum { COMPUTE = 256, GROUPS = TOKENS / 8, LD = ROWS / 2 + W2_PAD };

struct pipe {
    const bnet_cu_gemm_args &a;
    uint32_t ring, bars; /* filled [STAGES], emptied [STAGES] */
    uint32_t c0, n;      /* first chunk, how many */
    uint32_t tile0;

    __device__ __forceinline__ uint32_t n_stages() const { return (n + CHUNKS - 1) / CHUNKS; }

    /* Four warps: the weights of stage k, four tiles each. */
    __device__ __forceinline__ void fetch_weights(uint32_t k) const
    {
        uint32_t warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, tile = 4 * warp + lane;
        uint32_t chunks = min(n - k * CHUNKS, (uint32_t)CHUNKS), bar = bars + 8 * (k % STAGES);
        if (warp == 0 && lane == 0)
            expect(bar, chunks * (ACTS + TILES * BNET_W2_UNIT));
        if (lane < 4)
            bulk_more(ring + k % STAGES * STAGE + CODES + tile * CHUNKS * BNET_W2_UNIT,
                      a.m.w + ((size_t)min(tile0 + tile, a.m.n_tiles - 1) * a.m.n_chunks + c0 +
                               k * CHUNKS) *
                                  BNET_W2_UNIT,
                      chunks * BNET_W2_UNIT, bar);
    }

    /* The activations: tiles of 64 tokens, one behind the other for each chunk, a warp one of them. */
    __device__ __forceinline__ void fetch_acts(uint32_t k) const
    {
        uint32_t warp = threadIdx.x / 32 % 4, chunk = warp / 2, half = warp % 2;
        if (threadIdx.x % 32 == 0 && chunk < n - k * CHUNKS)
            bulk_more(ring + k % STAGES * STAGE + chunk * ACTS + half * BNET_TILE_BYTES,
                      a.act.q + (((size_t)blockIdx.z * 2 + half) * a.m.n_chunks + c0 + k * CHUNKS +
                                 chunk) *
                                    BNET_TILE_BYTES,
                      BNET_TILE_BYTES, bars + 8 * (k % STAGES));
    }

    __device__ __forceinline__ void fill() const
    {
        uint32_t all = n_stages(), first = min(all, (uint32_t)STAGES);
        for (uint32_t k = 0; k < first; k++)
            fetch_weights(k);
        pdl_wait();
        for (uint32_t k = 0; k < first; k++)
            fetch_acts(k);
        for (uint32_t k = first; k < all; k++) {
            barrier_wait(bars + 8 * (STAGES + k % STAGES), k / STAGES - 1 & 1);
            fetch_weights(k);
            fetch_acts(k);
        }
    }
};

/* Tile t of the block (its warp's first or second), chunk i: the lane's codes. */
static __device__ __forceinline__ void take(const pipe &p, uint32_t t, uint32_t i, uint32_t r[4][4])
{
    uint32_t stage = p.ring + i / CHUNKS % STAGES * STAGE + CODES;
    unpack(load_shared16(stage + (t * CHUNKS + i % CHUNKS) * BNET_W2_UNIT + threadIdx.x % 32 * 16), r);
}

static __device__ __forceinline__ void issue(int *acc, const uint32_t r[4][4], uint64_t b)
{
    group_arrive();
#pragma unroll
    for (int s = 0; s < 4; s++)
        product<TOKENS>::run(acc, r[s], b + 2 * s);
    group_commit();
}

/* Sums of 2 x 64 rows x TOKENS of this warpgroup. */
static __device__ __forceinline__ void multiply(const pipe &p, int acc[2][TOKENS / 2])
{
    uint32_t warp = threadIdx.x / 32, t = warp / 4 * 8 + warp % 4, r[2][4][4];
#pragma unroll
    for (int i = 0; i < TOKENS / 2; i++)
        acc[0][i] = acc[1][i] = 0;
    for (uint32_t i = 0; i < p.n; i++) {
        uint32_t k = i / CHUNKS;
        uint64_t b = describe(p.ring + k % STAGES * STAGE + i % CHUNKS * ACTS);
        barrier_wait(p.bars + 8 * (k % STAGES), k / STAGES & 1);
        group_wait<1>(); /* the first 64 rows of the chunk before are done */
        take(p, t, i, r[0]);
        issue(acc[0], r[0], b);
        group_wait<1>(); /* and the others */
        if (i && i % CHUNKS == 0 && threadIdx.x % 128 == 0)
            arrive(p.bars + 8 * (STAGES + (k - 1) % STAGES));
        take(p, t + 4, i, r[1]);
        issue(acc[1], r[1], b);
    }
    group_wait<0>();
}

static __device__ __forceinline__ void compute_meet()
{
    asm volatile("bar.sync 1, 256;" ::: "memory"); /* COMPUTE */
}

/* Two blocks add up: the second 64 rows of every warpgroup are finished by block 1, the first by 0. */
static __device__ __forceinline__ void exchange(uint32_t ring, int acc[2][TOKENS / 2])
{
    uint32_t rank = blockIdx.x;
#pragma unroll
    for (int j = 0; j < GROUPS; j++) {
        const int *x = acc[0] + 4 * j, *y = acc[1] + 4 * j;
        store_shared16(ring + (j * COMPUTE + threadIdx.x) * 16,
                       rank ? make_uint4(x[0], x[1], x[2], x[3]) : make_uint4(y[0], y[1], y[2], y[3]));
    }
    cluster_arrive();
    cluster_wait();
#pragma unroll
    for (int j = 0; j < GROUPS; j++) {
        int4 v = load_cluster16(ring + (j * COMPUTE + threadIdx.x) * 16, rank ^ 1);
        int *x = acc[0] + 4 * j, *y = acc[1] + 4 * j;
        if (rank)
            y[0] += v.x, y[1] += v.y, y[2] += v.z, y[3] += v.w;
        else
            x[0] += v.x, x[1] += v.y, x[2] += v.z, x[3] += v.w;
    }
    cluster_arrive();
    cluster_wait(); /* the ring is free */
}

/* Rows of the m-th 64 of both warpgroups, all tokens, through shared memory. */
static __device__ __forceinline__ void finish(const bnet_cu_gemm_args &a, const pipe &p, float *out,
                                              int m, const int *acc, const float *scale,
                                              const int *sum)
{
    uint32_t warp = threadIdx.x / 32, t = threadIdx.x % 4 * 2;
    uint32_t first = warp / 4 * 8 + m * 4 + warp % 4; /* tile of the block */
    target to = target_of(a, min(p.tile0 + first, a.m.n_tiles - 1));
    compute_meet(); /* what was there has left */
#pragma unroll
    for (int j = 0; j < GROUPS; j++)
        w2_stage(a, to, out, LD, warp, 8 * j + t, acc + 4 * j, *(const float2 *)(scale + 8 * j + t),
                 *(const int2 *)(sum + 8 * j + t));
    compute_meet();
    uint32_t per = w2_out_rows(a), fours = TILES / 2 * per / 4;
#pragma unroll 4
    for (uint32_t u = threadIdx.x; u < TOKENS * fours; u += COMPUTE) {
        uint32_t token = u / fours, row = u % fours * 4, tile = row / per;
        w2_leave(a, p.tile0 + tile / 4 * 8 + m * 4 + tile % 4, row % per,
                 blockIdx.z * TOKENS + token, *(const float4 *)(out + token * LD + row));
    }
}

static __device__ __forceinline__ void compute(const bnet_cu_gemm_args &a, const pipe &p, float *out,
                                               float *scale, int *sum)
{
    uint32_t token = blockIdx.z * TOKENS + threadIdx.x;
    if (threadIdx.x < TOKENS) {
        scale[threadIdx.x] = token < a.n_tokens ? a.act.scale[token] : 0.0f;
        sum[threadIdx.x] = token < a.n_tokens ? a.act.sum[token] : 0;
    }
    compute_meet();
    int acc[2][TOKENS / 2];
    multiply(p, acc);
    compute_meet(); /* all products are done: the ring is free */
    if (a.splits > 1)
        exchange(p.ring, acc);
    if (a.splits == 1 || blockIdx.x == 0)
        finish(a, p, out, 0, acc[0], scale, sum);
    if (a.splits == 1 || blockIdx.x == 1)
        finish(a, p, out, 1, acc[1], scale, sum);
}

KERNEL __launch_bounds__(BNET_PROMPT_THREADS, 1)
    bnet_w2_prompt(const __grid_constant__ bnet_cu_gemm_args a)
{
    extern __shared__ __align__(1024) uint8_t dynamic[];
    __shared__ __align__(8) uint64_t bars[2 * STAGES];
    __shared__ __align__(8) float scale[TOKENS];
    __shared__ __align__(8) int sum[TOKENS];
    uint32_t c0 = a.m.n_chunks * blockIdx.x / a.splits;
    uint32_t c1 = a.m.n_chunks * (blockIdx.x + 1) / a.splits;
    pipe p = {a, (shared_addr(dynamic) + 1023) & ~1023u, shared_addr(bars), c0, c1 - c0,
              blockIdx.y * TILES};
    if (threadIdx.x < 2 * STAGES) {
        barrier_init(p.bars + 8 * threadIdx.x, threadIdx.x < STAGES ? 1 : COMPUTE / 128);
        barrier_init_fence();
    }
    __syncthreads();
    pdl_launch();
    if (threadIdx.x >= COMPUTE) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        p.fill();
        if (a.splits > 1) { /* the whole block belongs to the cluster's barriers */
            cluster_arrive();
            cluster_wait();
            cluster_arrive();
            cluster_wait();
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        pdl_wait();
        compute(a, p, (float *)(dynamic + (p.ring - shared_addr(dynamic))), scale, sum);
    }
}

#endif
