/* w2_gemv.cu - ternary matrix times one to eight int8 vectors: the decode kernels.
 *
 * A block owns a run of row tiles. Warps take units (w2_units.cuh) in order and add their integer
 * sums in shared memory, which is exact in any order. A warp's first units are in registers and the
 * others in the L2 cache before the kernel in front has ended: the memory never rests. */
#include "w2_epilogue.cuh"
#include "w2_units.cuh"

enum { THREADS = BNET_GEMV_THREADS, WARPS = THREADS / 32, VECS = 4 };
enum { AHEAD = 6 }; /* units of a warp in registers */

struct shared_state {
    float2 reduce[WARPS];
    float scale[BNET_GEMV_TOKENS];
    int sum[BNET_GEMV_TOKENS];
};

/* act8 input: rows copied into the order of the products */
static __device__ void take_act8(const bnet_cu_gemv_args &a, uint8_t *xs, shared_state *st)
{
    uint32_t k_pad = a.m.n_chunks * BNET_W2_CHUNK, words = k_pad / 4;
    for (uint32_t i = threadIdx.x; i < words * a.n_tokens; i += THREADS) {
        uint32_t t = i / words, w = i % words;
        uint32_t v = *(const uint32_t *)(a.act.q + (size_t)t * a.act.stride + 4 * w);
        *(uint32_t *)(xs + t * (k_pad + 16) + act_at(4 * w)) = v;
    }
    if (threadIdx.x < a.n_tokens) {
        st->scale[threadIdx.x] = a.act.scale[threadIdx.x];
        st->sum[threadIdx.x] = a.act.sum[threadIdx.x];
    }
}

static __device__ __forceinline__ float4 load4(const float *x, uint32_t i, uint32_t k)
{
    if (i + 4 <= k && (k & 3) == 0)
        return *(const float4 *)(x + i);
    float4 v;
    v.x = i < k ? x[i] : 0.0f;
    v.y = i + 1 < k ? x[i + 1] : 0.0f;
    v.z = i + 2 < k ? x[i + 2] : 0.0f;
    v.w = i + 3 < k ? x[i + 3] : 0.0f;
    return v;
}

/* The norm's weights; without a norm 1, which changes nothing. */
static __device__ __forceinline__ float4 norm4(const bnet_cu_gemv_args &a, uint32_t i)
{
    return a.norm ? load4(a.norm, i, a.k) : make_float4(1, 1, 1, 1);
}

/* Adds to the sum of squares, returns the weighted values. */
static __device__ __forceinline__ float4 weighted(float4 v, float4 w, float *ss, float *top)
{
    *ss = fmaf(v.x, v.x, fmaf(v.y, v.y, fmaf(v.z, v.z, fmaf(v.w, v.w, *ss))));
    float4 p = make_float4(v.x * w.x, v.y * w.y, v.z * w.z, v.w * w.w);
    *top = fmaxf(*top, fmaxf(fmaxf(fabsf(p.x), fabsf(p.y)), fmaxf(fabsf(p.z), fabsf(p.w))));
    return p;
}

static __device__ __forceinline__ void put_codes(uint8_t *xs, uint32_t i, float4 v, float inv,
                                                 int *sum)
{
    const float f[4] = {v.x, v.y, v.z, v.w};
    *(uint32_t *)(xs + act_at(i)) = codes4(f, inv, sum);
}

/* float input of one token: norm, absmax and int8 codes after one reduction. Values stay in registers
 * while they fit (K <= VECS * 4 * THREADS), else they are read again. */
static __device__ void take_floats(const bnet_cu_gemv_args &a, uint8_t *xs, shared_state *st)
{
    uint32_t k_pad = a.m.n_chunks * BNET_W2_CHUNK, step = 4 * THREADS, first = 4 * threadIdx.x;
    float4 v[VECS];
    float ss = 0, top = 0, inv;
#pragma unroll
    for (int j = 0; j < VECS; j++)
        if (first + j * step < k_pad)
            v[j] = load4(a.x, first + j * step, a.k);
#pragma unroll
    for (int j = 0; j < VECS; j++)
        if (first + j * step < k_pad)
            v[j] = weighted(v[j], norm4(a, first + j * step), &ss, &top);
    for (uint32_t i = first + VECS * step; i < a.k; i += step)
        weighted(load4(a.x, i, a.k), norm4(a, i), &ss, &top);
    float2 both = block_sum_top<WARPS>(ss, top, st->reduce);
    float scale = code_scale(both, a.norm, (float)a.k, a.eps, &inv);
    int sum = 0;
#pragma unroll
    for (int j = 0; j < VECS; j++)
        if (first + j * step < k_pad)
            put_codes(xs, first + j * step, v[j], inv, &sum);
    for (uint32_t i = first + VECS * step; i < k_pad; i += step)
        put_codes(xs, i, weighted(load4(a.x, i, a.k), norm4(a, i), &ss, &top), inv, &sum);
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0)
        atomicAdd(&st->sum[0], sum);
    if (threadIdx.x == 0)
        st->scale[0] = scale;
}

/* Adds a warp's sums of one tile to the block's and clears them. */
static __device__ __forceinline__ void flush(int *sums, uint32_t n_tokens, int acc[4][4])
{
    uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int v = unit_sum(acc, i);
        uint32_t token = 2 * t + (i & 1), row = g + 8 * (i >> 1);
        if (token < n_tokens)
            atomicAdd(&sums[token * BNET_W2_TILE + row], v);
    }
}

struct slice {
    uint32_t first_tile, n_tiles, n_units;
};

static __device__ __forceinline__ slice slice_of(const bnet_cu_w2 &m)
{
    uint32_t b = (uint32_t)((uint64_t)m.n_tiles * blockIdx.x / gridDim.x);
    uint32_t e = (uint32_t)((uint64_t)m.n_tiles * (blockIdx.x + 1) / gridDim.x);
    slice s = {b, e - b, (e - b) * m.n_chunks};
    return s;
}

/* A warp's way through its units: the next AHEAD are in registers or on their way. */
struct walk {
    const uint8_t *w; /* the lane's part of the next one */
    uint32_t left, chunk;
    uint4 v[AHEAD];
};

static __device__ __forceinline__ void begin_units(walk &k)
{
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
        if (i < k.left)
            k.v[i] = load_stream(k.w + i * BNET_W2_UNIT);
}

/* xs: the lane's activations; sums: of the tile of the first unit */
static __device__ __forceinline__ void run_units(const bnet_cu_gemv_args &a, walk &k,
                                                 const uint8_t *xs, bool has_token, int *sums)
{
    int acc[4][4] = {};
    while (k.left) {
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            if (i < k.left) {
                unit_multiply(k.v[i], xs + k.chunk * BNET_W2_CHUNK, has_token, acc);
                if (i + AHEAD < k.left)
                    k.v[i] = load_stream(k.w + (i + AHEAD) * BNET_W2_UNIT);
                if (++k.chunk == a.m.n_chunks) {
                    flush(sums, a.n_tokens, acc);
                    sums += BNET_W2_TILE * a.n_tokens;
                    k.chunk = 0;
                }
            }
        k.w += AHEAD * BNET_W2_UNIT;
        k.left -= min(k.left, (uint32_t)AHEAD);
    }
    if (k.chunk)
        flush(sums, a.n_tokens, acc);
}

static __device__ __forceinline__ void finish(const bnet_cu_gemv_args &a, const slice &sl,
                                              const int *sums, const shared_state *st)
{
    for (uint32_t i = threadIdx.x; i < sl.n_tiles * 8 * a.n_tokens; i += THREADS) {
        uint32_t g = i % 8, token = i / 8 % a.n_tokens, tile = i / 8 / a.n_tokens;
        const int *s = sums + (tile * a.n_tokens + token) * BNET_W2_TILE + g;
        w2_finish(a.m, sl.first_tile + tile, g, token, s[0] - st->sum[token],
                  s[8] - st->sum[token], st->scale[token], a.epilogue);
    }
}

/* Input, sums cleared, barrier. */
static __device__ __forceinline__ void prepare(const bnet_cu_gemv_args &a, const slice &sl,
                                               uint8_t *xs, int *sums, shared_state *st)
{
    for (uint32_t i = threadIdx.x; i < sl.n_tiles * BNET_W2_TILE * a.n_tokens; i += THREADS)
        sums[i] = 0;
    if (a.x) {
        if (a.norm && 32 * threadIdx.x < a.k)
            asm volatile("prefetch.global.L2 [%0];" ::"l"(a.norm + 32 * threadIdx.x));
        pdl_wait();
        take_floats(a, xs, st);
    } else {
        pdl_wait();
        take_act8(a, xs, st);
    }
    __syncthreads();
}

/* A warp's units beyond the first into the L2 cache. */
static __device__ __forceinline__ void prefetch(const uint8_t *w, uint32_t n_units)
{
    for (uint32_t at = threadIdx.x % 32 * 128; at < n_units * BNET_W2_UNIT; at += 32 * 128)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(w + at));
}

KERNEL __launch_bounds__(THREADS, 2) bnet_w2_gemv_ldg(const __grid_constant__ bnet_cu_gemv_args a)
{
    extern __shared__ __align__(128) uint8_t dynamic[];
    __shared__ shared_state st;
    slice sl = slice_of(a.m);
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = a.m.n_chunks * BNET_W2_CHUNK + 16;
    uint32_t u = sl.n_units * warp / WARPS, n = sl.n_units * (warp + 1) / WARPS - u;
    const uint8_t *w = a.m.w + ((size_t)sl.first_tile * a.m.n_chunks + u) * BNET_W2_UNIT;
    uint8_t *xs = dynamic;
    int *sums = (int *)(dynamic + a.n_tokens * row);
    walk k = {w + lane * 16, n, u % a.m.n_chunks, {}};
    pdl_launch();
    begin_units(k);
    if (n > AHEAD)
        prefetch(w + AHEAD * BNET_W2_UNIT, n - AHEAD);
    if (threadIdx.x < BNET_GEMV_TOKENS)
        st.sum[threadIdx.x] = 0;
    __syncthreads();
    prepare(a, sl, xs, sums, &st);
    bool has_token = lane / 4 < a.n_tokens;
    run_units(a, k, xs + (has_token ? lane / 4 : 0) * row + lane % 4 * 32, has_token,
              sums + u / a.m.n_chunks * BNET_W2_TILE * a.n_tokens);
    __syncthreads();
    finish(a, sl, sums, &st);
}
