/* w2_tiles_wgmma.cu - ternary matrix times the tokens of a batch (tiles.h) with Hopper's warpgroup
 * products (9.0a): small enough that latency decides, so nothing is staged twice.
 *
 * A block computes ROWS rows x TOKENS tokens (16, 32 or 64, the height of a tile) over its share
 * of the columns. Its weights are on their way
 * into shared memory before the kernel waits for the one before it; the activations follow as whole
 * tiles, 8 KiB and one barrier each, and are the B operand as they lie. A warp unpacks its 16 rows into
 * registers while the tensor cores work on the chunk before. The blocks of a cluster have different
 * columns: a block finishes some of the tokens, and the others write their integer sums of these into
 * its shared memory. */
#include "w2_tiles.cuh"

#if BNET_SM90A || !defined(__CUDA_ARCH__)

/* Barriers behind the chunks': the first ones' places are free again; all sums are here. */
enum { FREE = BNET_W2_TILES_CHUNKS + 1, MET, BARRIERS };

/* Groups of eight tokens that a block of SPLITS finishes at most. */
template <int SPLITS, int TOKENS> struct share {
    enum { TAKEN = (TOKENS / 8 + SPLITS - 1) / SPLITS };
};

/* An address in the shared memory of this block as one in that of another of the cluster. */
static __device__ __forceinline__ uint32_t cluster_addr(uint32_t at, uint32_t rank)
{
    uint32_t r;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(at), "r"(rank));
    return r;
}

/* 16 bytes into the shared memory of a block of the cluster, whose barrier counts them. */
static __device__ __forceinline__ void send_cluster16(uint32_t to, uint32_t bar, int4 v)
{
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.s32"
                 " [%0], {%1,%2,%3,%4}, [%5];" ::"r"(to),
                 "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(bar)
                 : "memory");
}

static __device__ __forceinline__ int2 load_shared8(uint32_t at)
{
    int2 v;
    asm volatile("ld.shared.v2.s32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(at) : "memory");
    return v;
}

template <int ROWS, int TOKENS> struct work {
    enum { HALVES = BNET_W2_TILES_HALVES(TOKENS), THREADS = 2 * ROWS * HALVES };
    enum { TILES = ROWS / BNET_W2_TILE, GROUPS = TOKENS / 8 };
    enum { SLOTS = BNET_W2_TILES_SLOTS(TOKENS), SLOT = TOKENS * 128 }; /* of activations; bytes of one */
    enum { PER = BNET_TILE_BYTES / SLOT };                             /* slots that come by one copy */
    const bnet_cu_gemm_args &a;
    uint32_t acts, weights, sums, bars; /* shared memory; barrier 0 is the weights' */
    uint32_t c0, n;                     /* first chunk, how many */
    uint32_t tile0, n_here;             /* tokens of the tile that exist */
    uint32_t half;                      /* of the block's threads */
    const float *scale;                 /* [TOKENS], shared memory */
    const int *sum;
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
            bulk_once(weights + lane * bytes,
                      a.m.w + ((size_t)tile * a.m.n_chunks + c0) * BNET_W2_UNIT, bytes, bars);
        }
    }

    /* The barrier of chunk i. */
    __device__ __forceinline__ uint32_t arrived(uint32_t i) const
    {
        return bars + 8 * (i / PER + 1);
    }

    __device__ __forceinline__ uint32_t slot(uint32_t i) const
    {
        return acts + i % SLOTS * SLOT;
    }

    __device__ __forceinline__ void fetch_acts(uint32_t first, uint32_t end)
    {
        const int8_t *from =
            a.act.q + ((size_t)blockIdx.z * a.m.n_chunks + c0) * SLOT;
        for (uint32_t i = first; i < end; i += PER)
            bulk_load(slot(i), from + (size_t)i * SLOT, min((uint32_t)PER, end - i) * SLOT, arrived(i));
    }

    /* All warps are done with the first chunks: those that had no room take their place. */
    __device__ __forceinline__ void fetch_rest()
    {
        if (threadIdx.x % 32 == 0)
            arrive(bars + 8 * FREE);
        if (threadIdx.x == 0) {
            barrier_wait(bars + 8 * FREE, 0);
            fetch_acts(SLOTS, n);
        }
        __syncwarp();
    }

    /* Codes of chunk i, those after the last one zero. */
    __device__ __forceinline__ uint4 codes(uint32_t i) const
    {
        uint32_t warp = threadIdx.x / 32 % TILES, lane = threadIdx.x % 32;
        uint4 v = load_shared16(weights + (warp * n + min(i, n - 1)) * BNET_W2_UNIT + lane * 16);
        return i < n ? v : make_uint4(0, 0, 0, 0);
    }

    /* Chunks i and i + 1 with the registers r; unpacks the next two into the other set meanwhile. */
    __device__ __forceinline__ void step(uint32_t i, uint32_t r[2][4][4], uint32_t other[2][4][4])
    {
        uint32_t second = min(i + 1, n - 1);
        barrier_wait(arrived(i), 0);
        barrier_wait(arrived(second), 0);
        uint64_t b0 = describe(slot(i));
        uint64_t b1 = describe(slot(second));
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
        uint32_t each = HALVES > 1 ? (n + 2 * HALVES - 1) / (2 * HALVES) * 2 : n;
        uint32_t begin = half * each, end = min(begin + each, n);
#pragma unroll
        for (int i = 0; i < TOKENS / 2; i++)
            acc[i] = 0;
        barrier_wait(bars, 0);
        unpack(codes(begin), even[0]);
        unpack(codes(begin + 1), even[1]);
        for (uint32_t i = begin; i < end; i += 4) {
            step(i, even, odd);
            if (i + 2 < end)
                step(i + 2, odd, even);
            if (SLOTS < BNET_W2_TILES_CHUNKS && i == 4 && n > SLOTS)
                fetch_rest(); /* products up to chunk 5 are done */
        }
        group_wait<0>();
    }

    /* ---- the way out. Four sums of a lane, rows g and g + 8 of its tile and two tokens, lie
     * together; [half of a block they are from][group of tokens][tile][token pair t][g ^ 2 t], so that neither
     * giving nor taking meets a bank twice. Every block takes the groups rank, rank + SPLITS, ... */

    template <int SPLITS>
    __device__ __forceinline__ uint32_t place(uint32_t from, uint32_t k, uint32_t tile, uint32_t t,
                                              uint32_t g) const
    {
        return sums + ((((from * share<SPLITS, TOKENS>::TAKEN + k) * TILES + tile) * 4 + t) * 8 + (g ^ 2 * t)) * 16;
    }

    /* Bytes that a block gets. */
    __device__ __forceinline__ uint32_t expected() const
    {
        return (GROUPS - blockIdx.x + a.splits - 1) / a.splits * a.splits * HALVES * TILES * 512;
    }

    /* Every group to the block that finishes it. */
    template <int SPLITS> __device__ __forceinline__ void give(uint32_t rank) const
    {
        uint32_t lane = threadIdx.x % 32;
        uint32_t at = place<SPLITS>(rank * HALVES + half, 0, threadIdx.x / 32 % TILES, lane % 4, lane / 4);
#pragma unroll
        for (int owner = 0; owner < SPLITS; owner++) {
            uint32_t to = cluster_addr(at, owner), bar = cluster_addr(bars + 8 * MET, owner);
#pragma unroll
            for (int j = owner; j < GROUPS; j += SPLITS) {
                int4 v = make_int4(acc[4 * j], acc[4 * j + 1], acc[4 * j + 2], acc[4 * j + 3]);
                if (SPLITS > 1)
                    send_cluster16(to + j / SPLITS * TILES * 512, bar, v);
                else
                    store_shared16(at + j * TILES * 512, make_uint4(v.x, v.y, v.z, v.w));
            }
        }
    }

    /* Where the results of a lane go: row `lane` of 32 that leave together. */
    struct leaving {
        float *y; /* of the first token; NULL: nowhere */
        float scale[2];
        uint32_t ld, tile, high; /* tile of the block, which half of it */
    };

    template <bool GATED> __device__ __forceinline__ leaving leaving_of(uint32_t strip) const
    {
        uint32_t lane = threadIdx.x % 32, g = lane % 8;
        uint32_t tile = GATED ? strip * 4 + lane / 8 : strip * 2 + lane / 16;
        uint32_t high = GATED ? 0 : lane / 8 % 2, all = tile0 + tile;
        int part = a.m.paired ? (int)high : w2_part_of(a.m, all);
        const bnet_cu_part &p = a.m.part[part];
        uint32_t row = a.m.paired ? all * 8 + g : (all - p.first_tile) * BNET_W2_TILE + 8 * high + g;
        leaving l = {nullptr, {p.scale, a.m.part[GATED ? 1 : part].scale}, p.ld, tile, high};
        if (all < a.m.n_tiles && row < p.n_rows && p.y)
            l.y = p.y + (size_t)blockIdx.z * BNET_TILE_TOKENS * p.ld + row;
        return l;
    }

    /* Sums of two tokens of one row (GATED: of two rows) from all blocks. */
    template <int SPLITS, bool GATED>
    __device__ __forceinline__ int4 collect(const leaving &l, uint32_t k, uint32_t t) const
    {
        int4 c = make_int4(0, 0, 0, 0);
#pragma unroll
        for (int from = 0; from < SPLITS * HALVES; from++) {
            uint32_t at = place<SPLITS>(from, k, l.tile, t, threadIdx.x % 8) + 8 * l.high;
            if (GATED) {
                uint4 v = load_shared16(at);
                c.x += v.x, c.y += v.y, c.z += v.z, c.w += v.w;
            } else {
                int2 v = load_shared8(at);
                c.x += v.x, c.y += v.y;
            }
        }
        return c;
    }

    template <bool GATED>
    __device__ __forceinline__ float result(const leaving &l, uint32_t token, int c, int up) const
    {
        int s = sum[token];
        float x = scale[token], f = __fmul_rn((float)(c - s), __fmul_rn(x, l.scale[0]));
        if (!GATED)
            return f;
        float u = __fmul_rn((float)(up - s), __fmul_rn(x, l.scale[1]));
        return a.epilogue == BNET_CU_RELU2 ? relu2_gate(f, u) : silu_gate(f, u);
    }

    /* A warp takes one strip of 32 rows: pairs of tokens of the groups of this block. What is added
     * to is asked for before the blocks have met. */
    template <int SPLITS, bool GATED, bool ADDS> __device__ __forceinline__ void leave(uint32_t rank) const
    {
        enum { STRIPS = TILES / (GATED ? 4 : 2), ROUND = THREADS / 32 / STRIPS };
        enum { PAIRS = share<SPLITS, TOKENS>::TAKEN * 4, EACH = (PAIRS + ROUND - 1) / ROUND };
        uint32_t warp = threadIdx.x / 32, first = warp / STRIPS;
        leaving l = leaving_of<GATED>(warp % STRIPS);
        float add[EACH][2];
        bool adds = ADDS && l.y;
#pragma unroll
        for (int e = 0; ADDS && e < EACH; e++)
#pragma unroll
            for (uint32_t i = 0; i < 2; i++) {
                uint32_t token = token_of<SPLITS>(rank, first + e * ROUND) + i;
                add[e][i] = adds && token < n_here ? l.y[token * l.ld] : 0.0f;
            }
        if (SPLITS > 1)
            barrier_wait(bars + 8 * MET, 0);
        else
            __syncthreads();
#pragma unroll (ADDS ? EACH : 1)
        for (int e = 0; e < EACH; e++) {
            uint32_t pair = first + e * ROUND, token = token_of<SPLITS>(rank, pair);
            if (token >= n_here)
                continue;
            int4 c = collect<SPLITS, GATED>(l, pair / 4, pair % 4);
#pragma unroll
            for (uint32_t i = 0; i < 2; i++) {
                float f = result<GATED>(l, token + i, i ? c.y : c.x, i ? c.w : c.z);
                if (l.y && token + i < n_here)
                    l.y[(token + i) * l.ld] = ADDS ? __fadd_rn(add[e][i], f) : f;
            }
        }
    }

    /* First token of pair `pair` of this block; beyond all tokens if there is none. */
    template <int SPLITS>
    static __device__ __forceinline__ uint32_t token_of(uint32_t rank, uint32_t pair)
    {
        uint32_t group = pair / 4 * SPLITS + rank;
        return pair < (uint32_t)share<SPLITS, TOKENS>::TAKEN * 4 && group < GROUPS ? 8 * group + pair % 4 * 2 : ~1u;
    }

    template <int SPLITS> __device__ __forceinline__ void meet() const
    {
        uint32_t rank = SPLITS > 1 ? blockIdx.x : 0;
        if (SPLITS > 1)
            cluster_wait(); /* all blocks are here */
        __syncthreads(); /* scale and sum; the activations' place is free */
        give<SPLITS>(rank);
        if (a.epilogue >= BNET_CU_RELU2)
            leave<SPLITS, true, false>(rank);
        else if (a.epilogue == BNET_CU_ADD)
            leave<SPLITS, false, true>(rank);
        else
            leave<SPLITS, false, false>(rank);
    }
};

template <int ROWS, int TOKENS>
static __device__ __forceinline__ void gemm(const bnet_cu_gemm_args &a)
{
    enum { SLOTS = work<ROWS, TOKENS>::SLOTS, SLOT = work<ROWS, TOKENS>::SLOT };
    extern __shared__ __align__(1024) uint8_t dynamic[];
    __shared__ __align__(8) uint64_t bars[BARRIERS];
    __shared__ __align__(8) float scale[TOKENS];
    __shared__ __align__(8) int sum[TOKENS];
    uint32_t c0 = a.m.n_chunks * blockIdx.x / a.splits;
    uint32_t c1 = a.m.n_chunks * (blockIdx.x + 1) / a.splits;
    uint32_t most = (a.m.n_chunks + a.splits - 1) / a.splits;
    uint32_t base = (shared_addr(dynamic) + 1023) & ~1023u, t0 = blockIdx.z * BNET_TILE_TOKENS;
    uint32_t room = max(min(most, (uint32_t)SLOTS) * SLOT, a.splits > 1 ? 0 : work<ROWS, TOKENS>::HALVES * ROWS * TOKENS * 4);
    uint32_t weights = base + room, codes = most * (ROWS / BNET_W2_TILE) * BNET_W2_UNIT;
    work<ROWS, TOKENS> w = {a, base, weights, a.splits > 1 ? weights + codes : base, shared_addr(bars), c0,
                    c1 - c0, blockIdx.y * (ROWS / BNET_W2_TILE), min((uint32_t)TOKENS, a.n_tokens - t0),
                    work<ROWS, TOKENS>::HALVES > 1 ? __shfl_sync(0xffffffffu, threadIdx.x / (2 * ROWS), 0) : 0,
                    scale, sum};
    if (threadIdx.x < BARRIERS) {
        barrier_init(w.bars + 8 * threadIdx.x, threadIdx.x == FREE ? 2 * ROWS / 32 : 1);
        barrier_init_fence();
    }
    if (a.splits > 1 && threadIdx.x == MET)
        expect(w.bars + 8 * MET, w.expected());
    __syncthreads();
    if (a.splits > 1)
        cluster_arrive();
    pdl_launch();
    if (threadIdx.x < 32)
        w.fetch_weights();
    pdl_wait();
    if (threadIdx.x == 0)
        w.fetch_acts(0, min(w.n, (uint32_t)SLOTS));
    uint32_t t = threadIdx.x - 64;
    if (t < w.n_here) {
        scale[t] = a.act.scale[t0 + t];
        sum[t] = a.act.sum[t0 + t];
    }
    w.multiply();
    switch (a.splits) {
    case 1: return w.template meet<1>();
    case 2: return w.template meet<2>();
    case 3: return w.template meet<3>();
    case 4: return w.template meet<4>();
    case 5: return w.template meet<5>();
    case 6: return w.template meet<6>();
    case 7: return w.template meet<7>();
    default: return w.template meet<8>();
    }
}

#define VARIANT(name, rows, tokens, blocks)                                                        \
    KERNEL __launch_bounds__(2 * rows * BNET_W2_TILES_HALVES(tokens), blocks)                      \
        name(const __grid_constant__ bnet_cu_gemm_args a)                                          \
    {                                                                                              \
        gemm<rows, tokens>(a);                                                                     \
    }
VARIANT(bnet_w2_tiles_128, 128, 64, 2)
VARIANT(bnet_w2_tiles_256, 256, 64, 1)
VARIANT(bnet_w2_tiles_128_32, 128, 32, 1)
VARIANT(bnet_w2_tiles_128_16, 128, 16, 1)

#endif
