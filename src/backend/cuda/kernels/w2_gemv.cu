/* w2_gemv.cu - ternary matrix times one to eight int8 vectors: the decode kernels.
 *
 * A block owns a run of row tiles. Warps take units (w2_units.cuh) in order and add their integer
 * sums in shared memory, which is exact in any order.
 *
 * _bulk fetches the block's weights by bulk copies before it waits for the kernel in front, so that
 * the memory never rests between kernels; _ldg loads them into registers. */
#include "w2_epilogue.cuh"
#include "w2_units.cuh"

enum { THREADS = BNET_GEMV_THREADS, WARPS = THREADS / 32, SEG = BNET_GEMV_SEG, VECS = 4 };
enum { SLOTS = 3, PER_WARP = SEG / WARPS };

struct shared_state {
    float2 reduce[WARPS];
    float scale[BNET_GEMV_TOKENS];
    int sum[BNET_GEMV_TOKENS];
    unsigned long long full[SLOTS];
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
 * while they fit (K <= VECS * 4 * THREADS), else they are read again. w4 holds the norm's weights,
 * fetched before the wait. */
static __device__ void take_floats(const bnet_cu_gemv_args &a, uint8_t *xs, shared_state *st,
                                   const float4 *w4)
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
            v[j] = weighted(v[j], w4[j], &ss, &top);
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

/* Units [u, end) of the slice, from `w` where unit u lies. */
template <int DEPTH, bool SHARED>
static __device__ __forceinline__ void run_units(const bnet_cu_gemv_args &a, const uint8_t *w,
                                                 uint32_t u, uint32_t end, const uint8_t *xs,
                                                 int *sums, int acc[4][4])
{
    uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, n_chunks = a.m.n_chunks;
    bool has_token = g < a.n_tokens;
    xs += (has_token ? g : 0) * (n_chunks * BNET_W2_CHUNK + 16) + t * 32;
    w += lane * 16;
    uint32_t tile = u / n_chunks, chunk = u % n_chunks;
    while (u < end) {
        uint4 v[DEPTH];
        uint32_t n = min(end - u, (uint32_t)DEPTH);
#pragma unroll
        for (int i = 0; i < DEPTH; i++)
            if (i < n)
                v[i] = SHARED ? *(const uint4 *)(w + i * BNET_W2_UNIT)
                              : load_stream(w + i * BNET_W2_UNIT);
#pragma unroll
        for (int i = 0; i < DEPTH; i++)
            if (i < n) {
                unit_multiply(v[i], xs + chunk * BNET_W2_CHUNK, has_token, acc);
                if (++chunk == n_chunks) {
                    flush(sums + tile * BNET_W2_TILE * a.n_tokens, a.n_tokens, acc);
                    chunk = 0;
                    tile++;
                }
            }
        u += n;
        w += n * BNET_W2_UNIT;
    }
    if (chunk)
        flush(sums + tile * BNET_W2_TILE * a.n_tokens, a.n_tokens, acc);
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

/* Input, sums cleared, barrier: the part both kernels share. */
static __device__ __forceinline__ void prepare(const bnet_cu_gemv_args &a, const slice &sl,
                                               uint8_t *xs, int *sums, shared_state *st)
{
    for (uint32_t i = threadIdx.x; i < sl.n_tiles * BNET_W2_TILE * a.n_tokens; i += THREADS)
        sums[i] = 0;
    if (a.x) {
        float4 w4[VECS];
#pragma unroll
        for (int j = 0; j < VECS; j++)
            w4[j] = norm4(a, 4 * threadIdx.x + j * 4 * THREADS);
        pdl_wait();
        take_floats(a, xs, st, w4);
    } else {
        pdl_wait();
        take_act8(a, xs, st);
    }
    __syncthreads();
}

/* This block's weights into the L2 cache while the kernel in front still runs. */
static __device__ __forceinline__ void prefetch(const bnet_cu_w2 &m, const slice &sl)
{
    const uint8_t *w = m.w + (size_t)sl.first_tile * m.n_chunks * BNET_W2_UNIT;
    for (uint32_t at = threadIdx.x * 128; at < sl.n_units * BNET_W2_UNIT; at += THREADS * 128)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(w + at));
}

KERNEL __launch_bounds__(THREADS, 2) bnet_w2_gemv_ldg(const __grid_constant__ bnet_cu_gemv_args a)
{
    extern __shared__ __align__(128) uint8_t dynamic[];
    __shared__ shared_state st;
    slice sl = slice_of(a.m);
    uint8_t *xs = dynamic;
    int *sums = (int *)(dynamic + a.n_tokens * (a.m.n_chunks * BNET_W2_CHUNK + 16));
    pdl_launch();
    prefetch(a.m, sl);
    if (threadIdx.x < BNET_GEMV_TOKENS)
        st.sum[threadIdx.x] = 0;
    __syncthreads();
    prepare(a, sl, xs, sums, &st);
    uint32_t warp = threadIdx.x / 32;
    uint32_t u = sl.n_units * warp / WARPS, end = sl.n_units * (warp + 1) / WARPS;
    int acc[4][4] = {};
    const uint8_t *w = a.m.w + ((size_t)sl.first_tile * a.m.n_chunks + u) * BNET_W2_UNIT;
    run_units<4, false>(a, w, u, end, xs, sums, acc);
    __syncthreads();
    finish(a, sl, sums, &st);
}

#if BNET_SM90 || !defined(__CUDA_ARCH__)

/* Segment i of the slice on its way into its slot. */
static __device__ __forceinline__ void fetch(const bnet_cu_gemv_args &a, const slice &sl,
                                             uint32_t i, uint8_t *slots, shared_state *st)
{
    uint32_t n = min(sl.n_units - i * SEG, (uint32_t)SEG) * BNET_W2_UNIT;
    const uint8_t *from =
        a.m.w + ((size_t)sl.first_tile * a.m.n_chunks + (size_t)i * SEG) * BNET_W2_UNIT;
    bulk_load(shared_addr(slots + (i % SLOTS) * SEG * BNET_W2_UNIT), from, n,
              shared_addr(&st->full[i % SLOTS]));
}

KERNEL __launch_bounds__(THREADS, 2) bnet_w2_gemv_bulk(const __grid_constant__ bnet_cu_gemv_args a)
{
    extern __shared__ __align__(128) uint8_t dynamic[];
    __shared__ shared_state st;
    slice sl = slice_of(a.m);
    uint32_t most = (a.m.n_tiles + gridDim.x - 1) / gridDim.x * a.m.n_chunks;
    uint32_t n_slots = min((most + SEG - 1) / SEG, (uint32_t)SLOTS);
    uint32_t n_segments = (sl.n_units + SEG - 1) / SEG;
    uint8_t *xs = dynamic + n_slots * SEG * BNET_W2_UNIT;
    int *sums = (int *)(xs + a.n_tokens * (a.m.n_chunks * BNET_W2_CHUNK + 16));
    if (threadIdx.x == 0) {
        for (int i = 0; i < SLOTS; i++)
            barrier_init(shared_addr(&st.full[i]), 1);
        barrier_init_fence();
        for (uint32_t i = 0; i < min(n_segments, (uint32_t)SLOTS); i++)
            fetch(a, sl, i, dynamic, &st);
    }
    if (threadIdx.x < BNET_GEMV_TOKENS)
        st.sum[threadIdx.x] = 0;
    __syncthreads();
    pdl_launch();
    prepare(a, sl, xs, sums, &st);
    uint32_t warp = threadIdx.x / 32;
    int acc[4][4] = {};
    for (uint32_t i = 0; i < n_segments; i++) {
        barrier_wait(shared_addr(&st.full[i % SLOTS]), i / SLOTS & 1);
        uint32_t n = min(sl.n_units - i * SEG, (uint32_t)SEG);
        uint32_t u = min(warp * PER_WARP, n), end = min(u + PER_WARP, n);
        run_units<PER_WARP, true>(a, dynamic + ((i % SLOTS) * SEG + u) * BNET_W2_UNIT, i * SEG + u,
                                  i * SEG + end, xs, sums, acc);
        if (i + SLOTS < n_segments) {
            __syncthreads();
            if (threadIdx.x == 0)
                fetch(a, sl, i + SLOTS, dynamic, &st);
        }
    }
    __syncthreads();
    finish(a, sl, sums, &st);
}

#endif
