/* attn_decode.cu - attention of single tokens over a paged cache, divided over the context.
 *
 * A block takes one token, one kv head and one stretch of positions, for all query heads of the
 * group at once: keys and values are read once per group. LANES lanes hold a position, eight
 * elements each; every such group of lanes runs its own online softmax over its positions, and the
 * groups are merged at the end: inside the block through shared memory, between blocks by the one
 * that arrives last. With cs the block also rotates its queries, and the block that owns the newest
 * position rotates and stores the key and the value. */
#include "kv.cuh"

enum { THREADS = BNET_ATTN_THREADS, WARPS = THREADS / 32, AHEAD = 4, HEAD_MAX = 256 };

struct stretch {
    uint32_t begin, end, n_active; /* positions of this block; blocks of the token with any */
};

static __device__ __forceinline__ stretch stretch_of(const bnet_cu_attn_args &a, uint32_t n_pos)
{
    uint32_t per = (n_pos + a.n_splits - 1) / a.n_splits;
    per = (per + 15) / 16 * 16;
    stretch s = {min(blockIdx.x * per, n_pos), min((blockIdx.x + 1) * per, n_pos),
                 (n_pos + per - 1) / per};
    return s;
}

template <int G> struct softmax_state {
    float m[G], l[G], o[G][8];

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int h = 0; h < G; h++) {
            m[h] = -INFINITY;
            l[h] = 0;
#pragma unroll
            for (int i = 0; i < 8; i++)
                o[h][i] = 0;
        }
    }
};

static __device__ __forceinline__ float weight_of(float m, float top)
{
    return m == -INFINITY ? 0.0f : __expf(m - top);
}

/* AHEAD positions of this group of lanes: p0, p0 + stride, ... */
template <int KV, int LANES, int G>
static __device__ __forceinline__ void fold(const kv_view &kv, uint32_t p0, uint32_t stride,
                                            uint32_t end, const float q[G][8],
                                            softmax_state<G> &st)
{
    uint32_t d = threadIdx.x % LANES * 8;
    kv_raw<KV> k[AHEAD], v[AHEAD];
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
        uint32_t p = min(p0 + u * stride, end - 1);
        kv_get(k[u], kv.part(p / KV_POS, 0), kv.head_dim, p % KV_POS, d);
        kv_get(v[u], kv.part(p / KV_POS, 1), kv.head_dim, p % KV_POS, d);
    }
    float s[G][AHEAD];
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
        float f[8];
        kv_floats(k[u], f);
#pragma unroll
        for (int h = 0; h < G; h++) {
            float dot = 0;
#pragma unroll
            for (int i = 0; i < 8; i++)
                dot = fmaf(q[h][i], f[i], dot);
#pragma unroll
            for (int o = LANES / 2; o; o >>= 1)
                dot += __shfl_xor_sync(0xffffffffu, dot, o);
            s[h][u] = p0 + u * stride < end ? dot : -INFINITY;
        }
    }
    float w[G][AHEAD];
#pragma unroll
    for (int h = 0; h < G; h++) {
        float top = st.m[h];
#pragma unroll
        for (int u = 0; u < AHEAD; u++)
            top = fmaxf(top, s[h][u]);
        float keep = weight_of(st.m[h], top);
        st.m[h] = top;
        st.l[h] *= keep;
#pragma unroll
        for (int i = 0; i < 8; i++)
            st.o[h][i] *= keep;
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            w[h][u] = weight_of(s[h][u], top);
            st.l[h] += w[h][u];
        }
    }
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
        float f[8];
        kv_floats(v[u], f);
#pragma unroll
        for (int h = 0; h < G; h++)
#pragma unroll
            for (int i = 0; i < 8; i++)
                st.o[h][i] = fmaf(w[h][u], f[i], st.o[h][i]);
    }
}

/* Merges the groups of lanes of a warp; every group ends with the warp's state. */
template <int LANES, int G> static __device__ __forceinline__ void merge_warp(softmax_state<G> &st)
{
#pragma unroll
    for (int o = LANES; o < 32; o <<= 1)
#pragma unroll
        for (int h = 0; h < G; h++) {
            float m = __shfl_xor_sync(0xffffffffu, st.m[h], o);
            float l = __shfl_xor_sync(0xffffffffu, st.l[h], o);
            float top = fmaxf(m, st.m[h]), x = weight_of(st.m[h], top), y = weight_of(m, top);
            st.m[h] = top;
            st.l[h] = st.l[h] * x + l * y;
#pragma unroll
            for (int i = 0; i < 8; i++)
                st.o[h][i] = st.o[h][i] * x + __shfl_xor_sync(0xffffffffu, st.o[h][i], o) * y;
        }
}

struct block_state {
    float q[BNET_ATTN_MAX_QUERY];
    float o[WARPS][4][HEAD_MAX];
    float m[WARPS][4], l[WARPS][4];
    uint32_t arrived;
};

/* Merges n states (m[i * step], l, o rows of hd at o + i * o_step) of one head: thread d gets its
 * element, not yet divided by l. */
static __device__ __forceinline__ float merge_many(const float *m, const float *l, const float *o,
                                                   uint32_t n, size_t step, size_t o_step,
                                                   uint32_t d, float *m_out, float *l_out)
{
    float top = -INFINITY, sum = 0, r = 0;
    for (uint32_t i = 0; i < n; i++)
        top = fmaxf(top, m[i * step]);
    for (uint32_t i = 0; i < n; i++) {
        float w = weight_of(m[i * step], top);
        sum += w * l[i * step];
        r += w * o[i * o_step + d];
    }
    *m_out = top;
    *l_out = sum;
    return r;
}

/* Work of the splits: [token][head][split][head_dim + 2], m and l behind the values. */
static __device__ __forceinline__ float *work_of(const bnet_cu_attn_args &a, uint32_t token,
                                                 uint32_t head, uint32_t split)
{
    return a.work + (((size_t)token * a.n_heads + head) * a.n_splits + split) * (a.head_dim + 2);
}

template <int KV, int LANES, int G>
static __device__ __forceinline__ void attend(const bnet_cu_attn_args &a, const kv_view &kv,
                                              const stretch &s, uint32_t h0, block_state *b)
{
    uint32_t hd = a.head_dim, group = a.n_heads / a.n_kv_heads, n = min((uint32_t)G, group - h0);
    uint32_t token = blockIdx.z, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t d0 = lane % LANES * 8, head0 = kv.head * group + h0;
    float q[G][8];
#pragma unroll
    for (int h = 0; h < G; h++)
#pragma unroll
        for (int i = 0; i < 8; i++)
            q[h][i] = h < n && d0 + i < hd ? b->q[(h0 + h) * hd + d0 + i] * a.scale : 0.0f;
    softmax_state<G> st;
    st.clear();
    constexpr uint32_t STRIDE = THREADS / LANES;
    for (uint32_t p = s.begin; p < s.end; p += STRIDE * AHEAD)
        fold<KV, LANES, G>(kv, p + threadIdx.x / LANES, STRIDE, s.end, q, st);
    merge_warp<LANES, G>(st);
#pragma unroll
    for (int h = 0; h < G; h++)
        if (h < n && lane < LANES) {
#pragma unroll
            for (int i = 0; i < 8; i++)
                if (d0 + i < hd)
                    b->o[warp][h][d0 + i] = st.o[h][i];
            b->m[warp][h] = st.m[h];
            b->l[warp][h] = st.l[h];
        }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < n * hd; i += THREADS) {
        uint32_t h = i / hd, d = i % hd;
        float m, l, o = merge_many(&b->m[0][h], &b->l[0][h], b->o[0][h], WARPS, 4, 4 * HEAD_MAX, d,
                                   &m, &l);
        if (s.n_active == 1) {
            a.y[((size_t)token * a.n_heads + head0 + h) * hd + d] = o / l;
            continue;
        }
        float *w = work_of(a, token, head0 + h, blockIdx.x);
        w[d] = o;
        if (d == 0) {
            w[hd] = m;
            w[hd + 1] = l;
        }
    }
    __syncthreads();
}

/* The last block of a token and kv head puts the splits together. */
static __device__ void gather(const bnet_cu_attn_args &a, const kv_view &kv, const stretch &s,
                              block_state *b)
{
    uint32_t hd = a.head_dim, group = a.n_heads / a.n_kv_heads, token = blockIdx.z;
    uint32_t *counter = &a.counters[token * a.n_kv_heads + kv.head];
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        b->arrived = atomicAdd(counter, 1);
    __syncthreads();
    if (b->arrived + 1 != s.n_active)
        return;
    __threadfence();
    for (uint32_t i = threadIdx.x; i < group * hd; i += THREADS) {
        uint32_t head = kv.head * group + i / hd, d = i % hd;
        const float *w = work_of(a, token, head, 0);
        float m, l, o = merge_many(w + hd, w + hd + 1, w, s.n_active, hd + 2, hd + 2, d, &m, &l);
        a.y[((size_t)token * a.n_heads + head) * hd + d] = o / l;
    }
    if (threadIdx.x == 0)
        *counter = 0;
}

/* Queries into shared memory, rotated if cs; the newest position into the cache. */
template <int KV>
static __device__ void prepare(const bnet_cu_attn_args &a, const kv_view &kv, const stretch &s,
                               uint32_t pos, block_state *b)
{
    uint32_t hd = a.head_dim, n = a.n_heads / a.n_kv_heads * hd, token = blockIdx.z;
    const float *q = a.q + (size_t)token * a.ldq + kv.head * n;
    const float *cs = a.cs ? a.cs + (size_t)token * a.n_rot : nullptr;
    for (uint32_t i = threadIdx.x; i < n; i += THREADS)
        b->q[i] = cs ? rotated(q + i / hd * hd, cs, i % hd, a.n_rot, a.neox) : q[i];
    if (cs && pos >= s.begin && pos < s.end) {
        const float *k = a.k + (size_t)token * a.ldk + kv.head * hd;
        const float *v = a.v + (size_t)token * a.ldk + kv.head * hd;
        float *krot = b->o[0][0]; /* not in use before the end */
        for (uint32_t i = threadIdx.x; i < hd; i += THREADS)
            krot[i] = rotated(k, cs, i, a.n_rot, a.neox);
        __syncthreads();
        if (threadIdx.x < 64)
            kv_put_row<KV>(kv.part(pos / KV_POS, threadIdx.x / 32), hd, pos % KV_POS,
                           threadIdx.x < 32 ? krot : v);
    }
    __syncthreads();
}

template <int KV> static __device__ __forceinline__ void decode(const bnet_cu_attn_args &a)
{
    __shared__ block_state b;
    pdl_launch();
    pdl_wait();
    int pos = a.step.pos[blockIdx.z];
    if (pos < 0)
        return;
    kv_view kv = kv_of(a, blockIdx.z, blockIdx.y);
    stretch s = stretch_of(a, (uint32_t)pos + 1);
    if (s.begin >= s.end)
        return;
    prepare<KV>(a, kv, s, (uint32_t)pos, &b);
    uint32_t group = a.n_heads / a.n_kv_heads;
    for (uint32_t h = 0; h < group; h += group == 1 ? 1 : 4) {
        if (group == 1 && a.head_dim <= 64)
            attend<KV, 8, 1>(a, kv, s, h, &b);
        else if (group == 1 && a.head_dim <= 128)
            attend<KV, 16, 1>(a, kv, s, h, &b);
        else if (a.head_dim <= 64)
            attend<KV, 8, 4>(a, kv, s, h, &b);
        else if (a.head_dim <= 128)
            attend<KV, 16, 4>(a, kv, s, h, &b);
        else
            attend<KV, 32, 4>(a, kv, s, h, &b);
    }
    if (s.n_active > 1)
        gather(a, kv, s, &b);
}

KERNEL __launch_bounds__(THREADS) bnet_attn_decode_f16(const __grid_constant__ bnet_cu_attn_args a)
{
    decode<KV_F16>(a);
}

KERNEL __launch_bounds__(THREADS) bnet_attn_decode_f32(const __grid_constant__ bnet_cu_attn_args a)
{
    decode<KV_F32>(a);
}

KERNEL __launch_bounds__(THREADS) bnet_attn_decode_i8(const __grid_constant__ bnet_cu_attn_args a)
{
    decode<KV_I8>(a);
}
