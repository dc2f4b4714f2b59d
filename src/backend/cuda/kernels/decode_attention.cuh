/* decode_attention.cuh - attention of one token in the decode kernel: one block per kv head, several
 * where the context is long; the first of them puts the states together. Part of decode_sm90.cu. */
#ifndef BNET_DECODE_ATTENTION_CUH
#define BNET_DECODE_ATTENTION_CUH

#include "decode_exchange.cuh"

#if BNET_SM90 || !defined(__CUDA_ARCH__)

/* The last blocks attend: they have no rows of o, which comes next. */
static __device__ __forceinline__ share share_of(const bnet_cu_decode_args &a, int at)
{
    uint32_t pos = (uint32_t)max(at, 0), block = gridDim.x - 1 - blockIdx.x;
    uint32_t most = min((uint32_t)BNET_DECODE_SPLITS, gridDim.x / a.n_kv_heads);
    share s;
    s.real = at >= 0;
    s.n_splits = max(1u, min(most, (pos + 16 * WARPS - 1) / (16 * WARPS)));
    s.head = block / s.n_splits;
    s.split = block % s.n_splits;
    s.pos = pos;
    uint32_t per = ((pos + s.n_splits - 1) / s.n_splits + 15) / 16 * 16;
    s.begin = min(s.split * per, pos);
    s.end = min(s.begin + per, pos);
    s.attends = s.head < a.n_kv_heads;
    s.att = bnet_decode_part_at(&a, AT_ATT) + s.head * (a.n_heads / a.n_kv_heads) * H16_DIM;
    s.states = bnet_decode_part_at(&a, AT_STATES) + s.head * BNET_DECODE_SPLITS * STATE;
    return s;
}

static __device__ __forceinline__ kv_view view_of(const context &c, const share &s, uint32_t layer)
{
    const bnet_cu_seq &q = c.a.step.seqs[c.a.step.seq[0]];
    kv_view v = {(uint8_t *)q.kv + (size_t)layer * q.layer_bytes, c.a.step.tables + q.table, s.head,
                 c.a.n_kv_heads, c.a.part_bytes, H16_DIM};
    return v;
}

/* Next layer's keys and values of this warp into L2; keys: of this layer. */
static __device__ __forceinline__ void warm(const context &c, const uint8_t *keys)
{
    uint32_t lane = threadIdx.x % 32;
    if (c.layer + 1 < c.a.n_layers && lane < 2)
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(
                         keys + c.b->layer_bytes + lane * c.a.part_bytes),
                     "r"(16 * H16_DIM * 2)
                     : "memory");
}

/* Element d of a head of which mine and his, its partner, are known. */
static __device__ __forceinline__ float turned(const context &c, uint32_t d, uint32_t other, float mine,
                                               float his)
{
    if (d >= c.a.n_rot)
        return mine;
    uint32_t j = c.a.neox ? min(d, other) : d / 2;
    float2 cs = *(const float2 *)&c.b->cs[2 * j];
    return d > other ? __fadd_rn(__fmul_rn(his, cs.y), __fmul_rn(mine, cs.x))
                     : __fsub_rn(__fmul_rn(mine, cs.x), __fmul_rn(his, cs.y));
}

/* A query as a float and as what scores() multiplies: high and low halves. */
static __device__ __forceinline__ void put_query(block_state *b, uint32_t h, uint32_t d, float x)
{
    __half high = __float2half_rn(x), low = __float2half_rn(x - __half2float(high));
    uint32_t e = d % 8, word = h * QH + d / 8 * 8 + e / 4 * 4 + e % 4 / 2 * 2;
    __half *to = (__half *)(b->qh + word) + e % 2;
    to[0] = high;
    to[2] = low;
    b->q[h * H16_QLD + d] = x;
}

/* Queries, key and value of this kv head, rotated; the newest ones into the cache. Heads h = 0, 1 of
 * threads take the key and the value too. */
static __device__ __forceinline__ void take_heads(const context &c, const share &s)
{
    block_state *b = c.b;
    uint32_t group = c.a.n_heads / c.a.n_kv_heads, h = threadIdx.x / H16_DIM, d = threadIdx.x % H16_DIM;
    uint32_t half = c.a.n_rot / 2, other = c.a.neox ? (d < half ? d + half : d - half) : d ^ 1, asked = 0;
    const float *q = c.exchange(0) + c.b->tasks[QKV].pad[0];
    const float *x = q + (c.a.n_heads + min(h, 1u) * c.a.n_kv_heads + s.head) * H16_DIM;
    q += (s.head * group + min(h, group - 1)) * H16_DIM;
    float v[4];
    other = d < c.a.n_rot ? other : d;
#pragma unroll 1
    do {
        v[0] = peek(q + d);
        v[1] = peek(q + other);
        v[2] = peek(x + d);
        v[3] = peek(x + other);
        ask_again(&asked);
    } while (none(v[0]) || none(v[1]) || none(v[2]) || none(v[3]));
    if (h < group)
        put_query(b, h, d, turned(c, d, other, v[0], v[1]) * (c.a.scale * 1.44269504f));
    if (s.split == s.n_splits - 1 && h < 2) {
        __half f = __float2half_rn(h ? v[2] : turned(c, d, other, v[2], v[3]));
        (h ? b->v : b->k)[d] = __half2float(f);
        if (s.real)
            ((__half *)(b->newest + c.layer * b->layer_bytes + h * c.a.part_bytes))[d] = f;
    }
    __syncthreads();
}

/* As scores16, queries split already. */
static __device__ __forceinline__ void scores(const kv16 &r, const uint32_t *qh, uint32_t n_heads,
                                              float s[2][2])
{
    uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    float c[2][4] = {};
    uint4 a = make_uint4(0, 0, 0, 0), b = a;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        if (g < n_heads) {
            a = *(const uint4 *)(qh + g * QH + 32 * j + 8 * t);
            b = *(const uint4 *)(qh + g * QH + 32 * j + 8 * t + 4);
        }
        const uint32_t x[4] = {a.x, a.y, a.z, a.w}, y[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
        for (int n = 0; n < 2; n++) {
            mma_f16(c[n], x, r.k[n][j].x, r.k[n][j].y);
            mma_f16(c[n], y, r.k[n][j].z, r.k[n][j].w);
        }
    }
#pragma unroll
    for (int n = 0; n < 2; n++) {
        s[n][0] = c[n][0] + c[n][2];
        s[n][1] = c[n][1] + c[n][3];
    }
}

/* A lane's part of 16 positions, the first n of them there (others are the last one again), from
 * where their keys begin, as keys16_load and values16_load. */
static __device__ __forceinline__ void load_keys(kv16 &r, const uint8_t *keys, uint32_t last)
{
    uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (uint32_t n = 0; n < 2; n++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            r.k[n][j] = ((const uint4 *)(keys + min(8 * n + g, last) * (H16_DIM * 2)))[4 * j + t];
}

static __device__ __forceinline__ void load_values(kv16 &r, const uint8_t *values, uint32_t last)
{
    uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t p = 2 * t + (i & 1) + 8 * (i >> 1);
        const uint4 *row = (const uint4 *)(values + min(p, last) * (H16_DIM * 2));
        r.v[0][i] = row[g];
        r.v[1][i] = row[8 + g];
    }
}

/* The 16 positions of which r has the keys, all behind `last` left out, into the state; values: where
 * theirs begin. */
static __device__ __forceinline__ void fold(kv16 &r, const uint8_t *values, const uint32_t *qh,
                                            uint32_t n_heads, uint32_t last, state16 &st)
{
    uint32_t t = threadIdx.x % 4, p[4];
    float s[2][2];
    load_values(r, values, last);
    scores(r, qh, n_heads, s);
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        if (8 * (i / 2) + 2 * t + i % 2 > last)
            s[i / 2][i % 2] = -INFINITY;
    float keep = weights16(s, st, p);
    values16(r.v[0], p, keep, st.o[0]);
    values16(r.v[1], p, keep, st.o[1]);
}

/* Adds what this warp stored before (m, l; o as store16 leaves it) to the state. */
static __device__ __forceinline__ void join(state16 &st, float m, float l, uint32_t n_heads,
                                            const float *o)
{
    uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    float top = fmaxf(m, st.m), x = exp2f(m - top), y = exp2f(st.m - top);
    st.m = top;
    st.l = st.l * y + l * x;
    if (g >= n_heads)
        return;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float4 old = *(const float4 *)(o + g * H16_OLD + 16 * i + 4 * t);
        float *f = &st.o[i / 4][i / 2 % 2][i % 2 * 4];
        f[0] = f[0] * y + old.x * x, f[1] = f[1] * y + old.y * x;
        f[2] = f[2] * y + old.z * x, f[3] = f[3] * y + old.w * x;
    }
}

/* The first block of a kv head: states of the others, merged with its own; BATCH at a time. */
static __device__ __forceinline__ float gather_states(const context &c, const share &s, uint32_t h,
                                                      uint32_t d, float m, float l, float o)
{
    enum { BATCH = 5 };
    const float *from = c.exchange(0) + s.states;
    uint32_t asked = 0;
#pragma unroll 1
    for (uint32_t i = 1; i < s.n_splits; i += BATCH) {
        float ms[BATCH], ls[BATCH], os[BATCH], top = m;
        bool again;
#pragma unroll 1
        do {
            again = false;
#pragma unroll
            for (uint32_t j = 0; j < BATCH; j++) { /* the last one again where there are no more */
                const float *p = from + min(i + j, s.n_splits - 1) * STATE;
                ms[j] = peek(p + GROUP * H16_DIM + h);
                ls[j] = peek(p + GROUP * H16_DIM + GROUP + h);
                os[j] = peek(p + h * H16_DIM + d);
            }
#pragma unroll
            for (uint32_t j = 0; j < BATCH; j++)
                again = again || none(ms[j]) || none(ls[j]) || none(os[j]);
            ask_again(&asked);
        } while (again);
#pragma unroll
        for (uint32_t j = 0; j < BATCH; j++) {
            ms[j] = i + j < s.n_splits ? ms[j] : -INFINITY;
            top = fmaxf(top, ms[j]);
        }
        float keep = m == -INFINITY ? 0.0f : exp2f(m - top);
        l *= keep, o *= keep, m = top;
#pragma unroll
        for (uint32_t j = 0; j < BATCH; j++) {
            float w = ms[j] == -INFINITY ? 0.0f : exp2f(ms[j] - top);
            l = fmaf(w, ls[j], l);
            o = fmaf(w, os[j], o);
        }
    }
    return o / l;
}

/* Element d of head h, merged from the states of the warps (a lane knows the weight of one), to its
 * place. Four warps have a head. */
static __device__ __forceinline__ void give_heads(const context &c, const share &s, uint32_t n_states)
{
    uint32_t group = c.a.n_heads / c.a.n_kv_heads, h = threadIdx.x / H16_DIM, d = threadIdx.x % H16_DIM;
    uint32_t lane = threadIdx.x % 32;
    if (h >= group)
        return;
    float mine = -INFINITY, l = 0, v = 0;
    if (lane < n_states) {
        mine = c.b->m[lane][h];
        l = c.b->l[lane][h];
    }
    float m = warp_max(mine), w = mine == -INFINITY ? 0.0f : exp2f(mine - m);
    const float *o = c.o() + h * H16_OLD + at16(d);
#pragma unroll 4
    for (uint32_t i = 0; i < n_states; i++, o += GROUP * H16_OLD) {
        float f = __shfl_sync(0xffffffffu, w, i);
        v = f != 0 ? fmaf(f, *o, v) : v; /* the output of an empty state is nothing */
    }
    l = warp_sum(w * l);
    if (s.split == 0) {
        v = s.n_splits == 1 ? __fdividef(v, l) : gather_states(c, s, h, d, m, l, v);
        publish(c.exchange(0) + s.att + h * H16_DIM + d, v);
        return;
    }
    float *to = c.exchange(0) + s.states + s.split * STATE;
    if (d < 2)
        publish(to + GROUP * H16_DIM + d * GROUP + h, d ? l : m);
    publish(to + h * H16_DIM + d, v);
}

static __device__ __forceinline__ void attend(const context &c, const share &s)
{
    block_state *b = c.b;
    uint32_t group = c.a.n_heads / c.a.n_kv_heads, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t base = s.begin + 16 * warp;
    const uint8_t *keys = b->keys[warp] + c.layer * b->layer_bytes;
    kv16 r;
    if (base < s.end)
        load_keys(r, keys, s.end - 1 - base);
    c.mark(4, 0);
    take_heads(c, s);
    c.mark(4, 1);
    float m = -INFINITY, l = 0, *o = c.o() + (1 + warp) * GROUP * H16_OLD;
#pragma unroll 1
    for (uint32_t p = base; p < s.end; p += 16 * WARPS) {
        state16 st;
        if (p != base) {
            kv_view kv = view_of(c, s, c.layer);
            keys = kv.part(p / KV_POS, 0) + p % KV_POS * (H16_DIM * 2);
            load_keys(r, keys, s.end - 1 - p);
        }
        clear16(st);
        fold(r, keys + c.a.part_bytes, b->qh, group, s.end - 1 - p, st);
        if (p != base)
            join(st, m, l, group, o);
        store16(st, group, o);
        m = st.m, l = st.l;
    }
    if (lane % 4 == 0 && lane / 4 < GROUP) {
        b->m[1 + warp][lane / 4] = m;
        b->l[1 + warp][lane / 4] = l;
    }
    if (warp >= WARPS - GROUP) {
        uint32_t h = WARPS - 1 - warp;
        m = -INFINITY;
        if (s.split == s.n_splits - 1 && h < group)
            m = newest16(b->q + h * H16_QLD, b->k, b->v, c.o() + h * H16_OLD);
        if (lane == 0) {
            b->m[0][h] = m;
            b->l[0][h] = 1;
        }
    }
    __syncthreads();
    c.mark(4, 2);
    give_heads(c, s, 1 + min((s.end - s.begin + 15) / 16, (uint32_t)WARPS));
    c.mark(4, 3);
    if (base < s.end)
        warm(c, b->keys[warp] + c.layer * b->layer_bytes);
}

#endif

#endif
