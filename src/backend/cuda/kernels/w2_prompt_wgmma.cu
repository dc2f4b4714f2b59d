/* w2_prompt_wgmma.cu - ternary matrix times the tokens of a prompt (tiles.h) with Hopper's
 * warpgroup products (9.0a).
 *
 * A block computes 256 rows x 128 or 96 tokens: weights are a sixteenth of the bytes they stand
 * for, so many rows to a tile are cheap. Four warps keep a ring of stages of two chunks filled
 * through the copy engine and give their registers to two warpgroups of 128 rows that compute, each
 * two products of 64 rows in turn: while one is with the tensor cores, the codes of the other are
 * unpacked. The integer sums then lie in the ring's place, and leave from there by whole lines of a
 * token. The blocks of a cluster divide the columns: each finishes some of the tokens with the sums
 * of all. */
#include "w2_tiles.cuh"

#if BNET_SM90A || !defined(__CUDA_ARCH__)

enum { ROWS = BNET_PROMPT_ROWS, STAGES = BNET_PROMPT_STAGES, CHUNKS = BNET_PROMPT_CHUNKS };
enum { TILES = ROWS / BNET_W2_TILE, COMPUTE = 256, LD = ROWS + 4, BATCH = 8 };

template <int TOKENS> struct pipe {
    /* activations of a chunk, behind those of a stage its codes; what is brought in one piece */
    enum { ACTS = TOKENS * 128, CODES = CHUNKS * ACTS, STAGE = BNET_PROMPT_STAGE(TOKENS) };
    enum { PIECE = TOKENS % 64 ? 32 : 64, PIECES = TOKENS / PIECE };
    const bnet_cu_gemm_args &a;
    uint32_t ring, bars; /* filled [STAGES], emptied [STAGES] */
    uint32_t c0, n;      /* first chunk, how many */
    uint32_t tile0;
    float *scale; /* [TOKENS], shared memory */
    int *sum;

    __device__ __forceinline__ uint32_t n_stages() const { return (n + CHUNKS - 1) / CHUNKS; }

    /* Four warps: the weights of stage k, four tiles each. */
    __device__ __forceinline__ void fetch_weights(uint32_t k) const
    {
        uint32_t warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, tile = 4 * warp + lane;
        uint32_t chunks = min(n - k * CHUNKS, (uint32_t)CHUNKS), bar = bars + 8 * (k % STAGES);
        if (warp == 0 && lane == 0)
            expect(bar, chunks * (ACTS + TILES * BNET_W2_UNIT));
        if (lane < 4)
            bulk_copy(ring + k % STAGES * STAGE + CODES + tile * CHUNKS * BNET_W2_UNIT,
                      a.m.w + ((size_t)min(tile0 + tile, a.m.n_tiles - 1) * a.m.n_chunks + c0 +
                               k * CHUNKS) *
                                  BNET_W2_UNIT,
                      chunks * BNET_W2_UNIT, bar);
    }

    /* The activations: pieces of tokens, one behind the other for each chunk, two warps a chunk. No
     * piece lies beyond what is there in memory. */
    __device__ __forceinline__ void fetch_acts(uint32_t k) const
    {
        uint32_t warp = threadIdx.x / 32 % 4, chunk = warp / 2;
        uint32_t piece = warp % 2 + threadIdx.x % 32 * 2, each = BNET_TILE_TOKENS / PIECE;
        if (piece >= PIECES || chunk >= n - k * CHUNKS)
            return;
        uint32_t last = (a.n_tokens + BNET_TILE_TOKENS - 1) / BNET_TILE_TOKENS * each - 1;
        uint32_t from = min(blockIdx.z * PIECES + piece, last);
        bulk_copy(ring + k % STAGES * STAGE + chunk * ACTS + piece * PIECE * 128,
                  a.act.q +
                      ((size_t)(from / each) * a.m.n_chunks + c0 + k * CHUNKS + chunk) *
                          BNET_TILE_BYTES +
                      from % each * PIECE * 128,
                  PIECE * 128, bars + 8 * (k % STAGES));
    }

    /* What the tokens are multiplied with, a thread each. */
    __device__ __forceinline__ void fetch_scales() const
    {
        uint32_t i = threadIdx.x % 128, token = blockIdx.z * TOKENS + i;
        if (i < TOKENS) {
            scale[i] = token < a.n_tokens ? a.act.scale[token] : 0.0f;
            sum[i] = token < a.n_tokens ? a.act.sum[token] : 0;
        }
    }

    __device__ __forceinline__ void fill() const
    {
        uint32_t all = n_stages(), first = min(all, (uint32_t)STAGES);
        for (uint32_t k = 0; k < first; k++)
            fetch_weights(k);
        pdl_wait();
        for (uint32_t k = 0; k < first; k++)
            fetch_acts(k);
        fetch_scales();
        for (uint32_t k = first; k < all; k++) {
            barrier_wait(bars + 8 * (STAGES + k % STAGES), k / STAGES - 1 & 1);
            fetch_weights(k);
            fetch_acts(k);
        }
    }
};

/* Tile t of the block (its warp's first or second), chunk i: the lane's codes. */
template <int TOKENS>
static __device__ __forceinline__ void take(const pipe<TOKENS> &p, uint32_t t, uint32_t i,
                                            uint32_t r[4][4])
{
    uint32_t stage = p.ring + i / CHUNKS % STAGES * p.STAGE + p.CODES;
    unpack(load_shared16(stage + (t * CHUNKS + i % CHUNKS) * BNET_W2_UNIT + threadIdx.x % 32 * 16),
           r);
}

template <int TOKENS>
static __device__ __forceinline__ void issue(int *acc, const uint32_t r[4][4], uint64_t b)
{
    group_arrive();
#pragma unroll
    for (int s = 0; s < 4; s++)
        product<TOKENS>::run(acc, r[s], b + 2 * s);
    group_commit();
}

/* Sums of 2 x 64 rows x TOKENS of this warpgroup. */
template <int TOKENS>
static __device__ __forceinline__ void multiply(const pipe<TOKENS> &p, int acc[2][TOKENS / 2])
{
    uint32_t warp = threadIdx.x / 32, t = warp / 4 * 8 + warp % 4, r[2][4][4];
#pragma unroll
    for (int i = 0; i < TOKENS / 2; i++)
        acc[0][i] = acc[1][i] = 0;
    for (uint32_t i = 0; i < p.n; i++) {
        uint32_t k = i / CHUNKS;
        uint64_t b = describe(p.ring + k % STAGES * p.STAGE + i % CHUNKS * p.ACTS);
        barrier_wait(p.bars + 8 * (k % STAGES), k / STAGES & 1);
        group_wait<1>(); /* the first 64 rows of the chunk before are done */
        take(p, t, i, r[0]);
        issue<TOKENS>(acc[0], r[0], b);
        group_wait<1>(); /* and the others */
        if (i && i % CHUNKS == 0 && threadIdx.x % 128 == 0)
            arrive(p.bars + 8 * (STAGES + (k - 1) % STAGES));
        take(p, t + 4, i, r[1]);
        issue<TOKENS>(acc[1], r[1], b);
    }
    group_wait<0>();
}

/* ---- the way out ---- */

static __device__ __forceinline__ void store_shared4(uint32_t to, int v)
{
    asm volatile("st.shared.s32 [%0], %1;" ::"r"(to), "r"(v) : "memory");
}

/* The sums of this warpgroup to [token][row]. */
template <int TOKENS>
static __device__ __forceinline__ void put_sums(uint32_t to, const int acc[2][TOKENS / 2])
{
    uint32_t warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4 * 2;
    uint32_t at = to + (t * LD + warp / 4 * 128 + warp % 4 * 16 + g) * 4;
#pragma unroll
    for (int j = 0; j < TOKENS / 8; j++)
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) /* row g: two tokens; row g + 8: two tokens */
                store_shared4(at + ((8 * j + i % 2) * LD + 64 * m + i / 2 * 8) * 4,
                              acc[m][4 * j + i]);
}

/* Sums of four rows of several tokens `step` bytes apart, of all blocks of the cluster. */
static __device__ __forceinline__ void get_sums(int4 v[BATCH], uint32_t at, uint32_t step,
                                                uint32_t splits)
{
#pragma unroll
    for (int i = 0; i < BATCH; i++) {
        uint4 u = load_shared16(at + i * step);
        v[i] = make_int4(u.x, u.y, u.z, u.w);
    }
    for (uint32_t r = 1; r < splits; r++) {
        int4 other[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++)
            other[i] = load_cluster16(at + i * step, (blockIdx.x + r) % splits);
#pragma unroll
        for (int i = 0; i < BATCH; i++)
            v[i].x += other[i].x, v[i].y += other[i].y, v[i].z += other[i].z, v[i].w += other[i].w;
    }
}

/* Four neighbouring rows that one thread stores: where they go and their scales. */
struct outlet {
    float *y;       /* of token 0 */
    uint32_t ld, n; /* n: how many of the rows there are */
    float scale[2]; /* gated: of both */
    bool whole;
};

/* row: of the tile, the first of four; gated tiles have eight. */
static __device__ __forceinline__ outlet outlet_of(const bnet_cu_gemm_args &a, uint32_t tile,
                                                   uint32_t row, bool gated)
{
    outlet o = {nullptr, 0, 0, {0, 0}, false};
    if (tile >= a.m.n_tiles)
        return o;
    bool both = a.m.paired && !gated; /* rows 8.. are of the other part */
    const bnet_cu_part &p = a.m.part[both ? row / 8 : a.m.paired ? 0 : w2_part_of(a.m, tile)];
    uint32_t r = both ? tile * 8 + row % 8
                      : row + (a.m.paired ? tile * 8 : (tile - p.first_tile) * BNET_W2_TILE);
    o.y = p.y + r;
    o.ld = p.ld;
    o.n = p.y && r < p.n_rows ? min(p.n_rows - r, 4u) : 0;
    o.scale[0] = p.scale;
    o.scale[1] = a.m.part[1].scale;
    o.whole = o.n == 4 && ((uintptr_t)o.y & 15) == 0 && (o.ld & 3) == 0;
    return o;
}

static __device__ __forceinline__ void put4(const outlet &o, size_t at, const float f[4], bool add)
{
    if (o.whole) {
        *(float4 *)(o.y + at) = make_float4(f[0], f[1], f[2], f[3]);
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        if (i < o.n)
            o.y[at + i] = add ? __fadd_rn(o.y[at + i], f[i]) : f[i];
}

static __device__ __forceinline__ void scaled(int4 v, int sum, float scale, float f[4])
{
    f[0] = __fmul_rn((float)(v.x - sum), scale), f[1] = __fmul_rn((float)(v.y - sum), scale);
    f[2] = __fmul_rn((float)(v.z - sum), scale), f[3] = __fmul_rn((float)(v.w - sum), scale);
}

/* Tokens from `token` on to `end`, all rows of the block; a thread has the same four rows of every
 * STEP-th token, and asks for all it needs of BATCH of them before it stores any. */
template <bool GATED, int TOKENS>
static __device__ __forceinline__ void leave(const pipe<TOKENS> &p, uint32_t token, uint32_t end)
{
    enum { QUADS = ROWS / (GATED ? 8 : 4), STEP = COMPUTE / QUADS, PER = GATED ? 8 : 16 };
    const bnet_cu_gemm_args &a = p.a;
    uint32_t row = threadIdx.x % QUADS * 4, tile = row / PER;
    outlet o = outlet_of(a, p.tile0 + tile, row % PER, GATED);
    bool add = !GATED && a.epilogue == BNET_CU_ADD;
    size_t y0 = (size_t)blockIdx.z * TOKENS * o.ld;
    for (token += threadIdx.x / QUADS; token < end; token += STEP * BATCH) {
        uint32_t at = p.ring + (token * LD + tile * BNET_W2_TILE + row % PER) * 4;
        int4 v[BATCH], up[BATCH];
        float4 before[BATCH];
        float x[BATCH];
        int sum[BATCH];
#pragma unroll
        for (uint32_t i = 0; i < BATCH; i++) {
            x[i] = p.scale[min(token + i * STEP, TOKENS - 1)];
            sum[i] = p.sum[min(token + i * STEP, TOKENS - 1)];
            before[i] = make_float4(0, 0, 0, 0);
            if (add && o.whole && token + i * STEP < end)
                before[i] = *(const float4 *)(o.y + y0 + (size_t)(token + i * STEP) * o.ld);
        }
        get_sums(v, at, STEP * LD * 4, a.splits);
        if (GATED)
            get_sums(up, at + 32, STEP * LD * 4, a.splits);
#pragma unroll
        for (uint32_t i = 0; i < BATCH; i++) {
            uint32_t t = token + i * STEP;
            if (t >= end)
                break;
            float f[4], u[4];
            scaled(v[i], sum[i], __fmul_rn(x[i], o.scale[0]), f);
            if (GATED)
                scaled(up[i], sum[i], __fmul_rn(x[i], o.scale[1]), u);
#pragma unroll
            for (int j = 0; GATED && j < 4; j++)
                f[j] = a.epilogue == BNET_CU_RELU2 ? relu2_gate(f[j], u[j]) : silu_gate(f[j], u[j]);
            if (add && o.whole) {
                f[0] = __fadd_rn(before[i].x, f[0]), f[1] = __fadd_rn(before[i].y, f[1]);
                f[2] = __fadd_rn(before[i].z, f[2]), f[3] = __fadd_rn(before[i].w, f[3]);
            }
            put4(o, y0 + (size_t)t * o.ld, f, add);
        }
    }
}

template <int TOKENS> static __device__ __forceinline__ void compute(const pipe<TOKENS> &p)
{
    const bnet_cu_gemm_args &a = p.a;
    int acc[2][TOKENS / 2];
    multiply(p, acc);
    asm volatile("bar.sync 1, 384;" ::: "memory"); /* all products are done, scales are here */
    put_sums<TOKENS>(p.ring, acc);
    if (a.splits > 1) {
        cluster_arrive();
        cluster_wait();
    } else {
        asm volatile("bar.sync 2, 256;" ::: "memory"); /* COMPUTE */
    }
    uint32_t first = TOKENS * blockIdx.x / a.splits, end = TOKENS * (blockIdx.x + 1) / a.splits;
    end = min(end, a.n_tokens - blockIdx.z * TOKENS);
    if (a.epilogue >= BNET_CU_RELU2)
        leave<true>(p, first, end);
    else
        leave<false>(p, first, end);
}

template <int TOKENS> static __device__ __forceinline__ void prompt(const bnet_cu_gemm_args &a)
{
    extern __shared__ __align__(1024) uint8_t dynamic[];
    __shared__ __align__(8) uint64_t bars[2 * STAGES];
    __shared__ float scale[TOKENS];
    __shared__ int sum[TOKENS];
    uint32_t c0 = a.m.n_chunks * blockIdx.x / a.splits;
    uint32_t c1 = a.m.n_chunks * (blockIdx.x + 1) / a.splits;
    pipe<TOKENS> p = {a,
                      (shared_addr(dynamic) + 1023) & ~1023u,
                      shared_addr(bars),
                      c0,
                      c1 - c0,
                      blockIdx.y * TILES,
                      scale,
                      sum};
    if (threadIdx.x < 2 * STAGES) {
        barrier_init(p.bars + 8 * threadIdx.x, threadIdx.x < STAGES ? 1 : COMPUTE / 128);
        barrier_init_fence();
    }
    __syncthreads();
    pdl_launch();
    if (threadIdx.x >= COMPUTE) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        p.fill();
        asm volatile("bar.arrive 1, 384;" ::: "memory");
        if (a.splits > 1) { /* the whole block belongs to the cluster's barriers */
            cluster_arrive();
            cluster_wait();
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        pdl_wait();
        compute(p);
    }
    if (a.splits > 1) { /* nobody reads the sums of this block any more */
        cluster_arrive();
        cluster_wait();
    }
}

KERNEL __launch_bounds__(BNET_PROMPT_THREADS, 1)
    bnet_w2_prompt(const __grid_constant__ bnet_cu_gemm_args a)
{
    prompt<128>(a);
}

KERNEL __launch_bounds__(BNET_PROMPT_THREADS, 1)
    bnet_w2_prompt_96(const __grid_constant__ bnet_cu_gemm_args a)
{
    prompt<96>(a);
}

#endif
