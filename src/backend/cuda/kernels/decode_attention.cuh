/* decode_attention.cuh - attention of one token in the decode kernel: one block per kv head,
 * several where the context is long; the first of them puts the states together. Part of
 * decode_sm90.cu. */
#ifndef BNET_DECODE_ATTENTION_CUH
#define BNET_DECODE_ATTENTION_CUH

#include "decode_exchange.cuh"

#if BNET_SM90 || !defined(__CUDA_ARCH__)

/* The last blocks attend: they have no rows of o, which comes next. apart: there are some for it
 * alone, one per kv head. */
static __device__ __forceinline__ share share_of(const bnet_cu_decode_args &a, int at, bool apart)
{
    uint32_t pos = (uint32_t)max(at, 0), block = gridDim.x - 1 - blockIdx.x;
    uint32_t most = apart ? 1 : min((uint32_t)BNET_DECODE_SPLITS, gridDim.x / a.n_kv_heads);
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
    kv_view v = {(uint8_t *)q.kv + (size_t)layer * q.layer_bytes,
                 c.a.step.tables + q.table,
                 s.head,
                 c.a.n_kv_heads,
                 c.a.part_bytes,
                 H16_DIM};
    return v;
}

/* Next layer's keys and values of this warp into L2; keys: of this layer. */
static __device__ __forceinline__ void warm(const context &c, const uint8_t *keys)
{
    uint32_t lane = threadIdx.x % 32;
    if (c.layer + 1 < c.a.n_layers && lane < 2)
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(keys + c.b->layer_bytes +
                                                                        lane * c.a.part_bytes),
                     "r"(16 * H16_DIM * 2)
                     : "memory");
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

/* An element of the newest key or value; `cache`: where its dimension 0 goes, or 0. */
static __device__ __forceinline__ void put_newest(float *to, __half *cache, uint32_t d, float x)
{
    __half f = __float2half_rn(x);
    to[d] = __half2float(f);
    if (cache)
        cache[d] = f;
}

/* Queries, key and value of this kv head, rotated; the newest ones into the cache. A thread has two
 * dimensions that are rotated together. */
static __device__ __forceinline__ void take_heads(const context &c, const share &s)
{
    block_state *b = c.b;
    uint32_t group = c.a.n_heads / c.a.n_kv_heads, h = threadIdx.x / 64, j = threadIdx.x % 64;
    uint32_t half = c.a.n_rot / 2, d = c.a.neox ? j : 2 * j, e = c.a.neox ? j + half : 2 * j + 1,
             asked = 0;
    bool turn = j < half && h != GROUP + 1, query = h < group, newest = h >= GROUP && h < GROUP + 2;
    if (j >= half) {
        d = 2 * j;
        e = 2 * j + 1;
    }
    const float *from = c.exchange(0) + b->tasks[QKV].part;
    from += (query ? s.head * group + h : c.a.n_heads + (h - GROUP) * c.a.n_kv_heads + s.head) *
            H16_DIM;
    float2 cs = turn ? *(const float2 *)&b->cs[2 * j] : make_float2(1, 0);
    if (query || newest) {
        float x, y;
#pragma unroll 1
        do {
            x = peek(from + d);
            y = peek(from + e);
            ask_again(&asked);
        } while (none(x) || none(y));
        if (turn) {
            float z = __fadd_rn(__fmul_rn(x, cs.y), __fmul_rn(y, cs.x));
            x = __fsub_rn(__fmul_rn(x, cs.x), __fmul_rn(y, cs.y));
            y = z;
        }
        if (query) {
            put_query(b, h, d, x * (c.a.scale * 1.44269504f));
            put_query(b, h, e, y * (c.a.scale * 1.44269504f));
        } else if (s.split == s.n_splits - 1) {
            __half *cache = nullptr;
            if (s.real)
                cache =
                    (__half *)(b->newest + c.layer * b->layer_bytes + (h - GROUP) * c.a.part_bytes);
            put_newest(h == GROUP ? b->k : b->v, cache, d, x);
            put_newest(h == GROUP ? b->k : b->v, cache, e, y);
        }
    }
    __syncthreads();
}

/* As scores16, queries split already; four products follow each other, not eight. */
static __device__ __forceinline__ void scores(const kv16 &r, const uint32_t *qh, uint32_t n_heads,
                                              float s[2][2])
{
    uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    float c[2][2][4] = {};
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
            mma_f16(c[n][j & 1], x, r.k[n][j].x, r.k[n][j].y);
            mma_f16(c[n][j & 1], y, r.k[n][j].z, r.k[n][j].w);
        }
    }
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            s[n][i] = (c[n][0][i] + c[n][1][i]) + (c[n][0][i + 2] + c[n][1][i + 2]);
}

/* Where unit i of a lane's part of 16 positions lies, from where their keys begin: 0..7 as r.k of
 * keys16_load, 8..15 as r.v of values16_load. Positions behind `last` are the last one again. */
static __device__ __forceinline__ const uint4 *unit_at(const uint8_t *keys, uint32_t part_bytes,
                                                       uint32_t last, uint32_t i)
{
    uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    uint32_t p = i < 8 ? 8 * (i / 4) + g : 2 * t + (i & 1) + 8 * (i >> 1 & 1);
    uint32_t u = i < 8 ? 4 * (i % 4) + t : g + (i < 12 ? 0 : 8);
    return (const uint4 *)(keys + (i < 8 ? 0 : part_bytes) + min(p, last) * (H16_DIM * 2)) + u;
}

/* A lane's units on their way to its places in shared memory: 16, one warp's 512 bytes apart. */
static __device__ __forceinline__ void stage(uint32_t to, const uint8_t *keys, uint32_t part_bytes,
                                             uint32_t last)
{
#pragma unroll
    for (uint32_t i = 0; i < 16; i++)
        copy_async16(to + 512 * i, unit_at(keys, part_bytes, last, i), true);
    copy_commit();
}

/* The 16 positions, all behind `last` left out, into the state: from where their keys begin, or
 * STAGED: from this lane's places in shared memory. */
template <bool STAGED>
static __device__ __forceinline__ void fold(const context &c, const uint8_t *keys,
                                            const uint8_t *staged, uint32_t last, state16 &st)
{
    uint32_t t = threadIdx.x % 4, p[4], part_bytes = c.a.part_bytes;
    float s[2][2];
    kv16 r;
#pragma unroll
    for (uint32_t i = 0; i < 8; i++)
        r.k[i / 4][i % 4] = STAGED ? *(const uint4 *)(staged + 512 * i)
                                   : load_stream(unit_at(keys, part_bytes, last, i));
    if (!STAGED)
#pragma unroll
        for (uint32_t i = 0; i < 8; i++)
            r.v[i / 4][i % 4] = load_stream(unit_at(keys, part_bytes, last, 8 + i));
    scores(r, c.b->qh, c.a.n_heads / c.a.n_kv_heads, s);
    if (STAGED)
#pragma unroll
        for (uint32_t i = 0; i < 8; i++)
            r.v[i / 4][i % 4] = *(const uint4 *)(staged + 512 * (8 + i));
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

static __device__ __forceinline__ float4 scaled(float4 v, float f)
{
    return make_float4(v.x * f, v.y * f, v.z * f, v.w * f);
}

static __device__ __forceinline__ void add(float4 &v, float f, float4 x)
{
    v.x = fmaf(f, x.x, v.x), v.y = fmaf(f, x.y, v.y), v.z = fmaf(f, x.z, v.z),
    v.w = fmaf(f, x.w, v.w);
}

/* The first block of a kv head: states of the others, merged with its own; BATCH at a time. Four
 * dimensions from d on. */
static __device__ __forceinline__ float4 gather_states(const context &c, const share &s, uint32_t h,
                                                       uint32_t d, float m, float l, float4 o)
{
    enum { BATCH = 5 };
    const float *from = c.exchange(0) + s.states;
    uint32_t asked = 0;
#pragma unroll 1
    for (uint32_t i = 1; i < s.n_splits; i += BATCH) {
        float ms[BATCH], ls[BATCH], top = m;
        float4 os[BATCH];
        bool again;
#pragma unroll 1
        do {
            again = false;
#pragma unroll
            for (uint32_t j = 0; j < BATCH; j++) { /* the last one again where there are no more */
                const float *p = from + min(i + j, s.n_splits - 1) * STATE;
                ms[j] = peek(p + GROUP * H16_DIM + h);
                ls[j] = peek(p + GROUP * H16_DIM + GROUP + h);
                os[j] = peek4(p + h * H16_DIM + d);
            }
#pragma unroll
            for (uint32_t j = 0; j < BATCH; j++)
                again = again || none(ms[j]) || none(ls[j]) || most4(os[j]) == 0xffffffffu;
            ask_again(&asked);
        } while (again);
#pragma unroll
        for (uint32_t j = 0; j < BATCH; j++) {
            ms[j] = i + j < s.n_splits ? ms[j] : -INFINITY;
            top = fmaxf(top, ms[j]);
        }
        float keep = m == -INFINITY ? 0.0f : exp2f(m - top);
        l *= keep, o = scaled(o, keep), m = top;
#pragma unroll
        for (uint32_t j = 0; j < BATCH; j++) {
            float w = ms[j] == -INFINITY ? 0.0f : exp2f(ms[j] - top);
            l = fmaf(w, ls[j], l);
            add(o, w, os[j]);
        }
    }
    return scaled(o, 1 / l);
}

/* The largest float of a warp, in the order that integers have. */
static __device__ __forceinline__ float warp_top(float x)
{
    int b = __float_as_int(x);
    b = __reduce_max_sync(0xffffffffu, b ^ (b >> 31 & 0x7fffffff));
    return __int_as_float(b ^ (b >> 31 & 0x7fffffff));
}

/* One warp a head, four dimensions a lane: merged from the states of the warps (a lane knows the
 * weight of one), to its place. */
static __device__ __forceinline__ void give_heads(const context &c, const share &s,
                                                  uint32_t n_states)
{
    enum { BATCH = 5 };
    uint32_t h = threadIdx.x / 32, lane = threadIdx.x % 32, d = 4 * lane;
    if (h >= c.a.n_heads / c.a.n_kv_heads)
        return;
    float mine = -INFINITY, l = 0;
    float4 v = make_float4(0, 0, 0, 0);
    if (lane < n_states) {
        mine = c.b->m[lane][h];
        l = c.b->l[lane][h];
    }
    float m = warp_top(mine), w = mine == -INFINITY ? 0.0f : exp2f(mine - m);
    const float *o = c.o() + h * H16_OLD + at16(d);
    l = warp_sum(w * l);
#pragma unroll 1
    for (uint32_t i = 0; i < n_states; i += BATCH) {
#pragma unroll
        for (uint32_t j = 0; j < BATCH; j++) {
            float f = __shfl_sync(0xffffffffu, w, i + j);
            float4 x = *(const float4 *)(o + min(i + j, STATES - 1u) * (GROUP * H16_OLD));
            if (f != 0) /* the output of an empty state is nothing */
                add(v, f, x);
        }
    }
    if (s.split == 0) {
        v = s.n_splits == 1 ? scaled(v, __fdividef(1, l)) : gather_states(c, s, h, d, m, l, v);
        publish4(c.exchange(0) + s.att + h * H16_DIM + d, v);
        return;
    }
    float *to = c.exchange(0) + s.states + s.split * STATE;
    if (lane < 2)
        publish(to + GROUP * H16_DIM + lane * GROUP + h, lane ? l : m);
    publish4(to + h * H16_DIM + d, v);
}

/* STAGED: keys and values of the first positions are on their way to shared memory, and those of
 * the next layer are when this one has used them. */
template <bool STAGED>
static __device__ __forceinline__ void attend(const context &c, const share &s)
{
    block_state *b = c.b;
    uint32_t group = c.a.n_heads / c.a.n_kv_heads, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t base = s.begin + 16 * warp;
    const uint8_t *keys = b->keys[warp] + c.layer * b->layer_bytes;
    const uint8_t *staged = c.weights + warp * BNET_DECODE_STAGE + lane * 16;
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
            if (STAGED)
                stage(shared_addr(staged), keys, c.a.part_bytes, s.end - 1 - p);
        }
        if (STAGED)
            copy_wait<0>();
        clear16(st);
        fold<STAGED>(c, keys, staged, s.end - 1 - p, st);
        if (p != base)
            join(st, m, l, group, o);
        store16(st, group, o);
        m = st.m, l = st.l;
    }
    if (STAGED && base < s.end && c.layer + 1 < c.a.n_layers)
        stage(shared_addr(staged), b->keys[warp] + (c.layer + 1) * b->layer_bytes, c.a.part_bytes,
              s.end - 1 - base);
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
    if (!STAGED && base < s.end)
        warm(c, b->keys[warp] + c.layer * b->layer_bytes);
}

/* Between matrices: its registers are no matter of theirs. */
static __device__ __noinline__ void attend_between(const context c, const share &s)
{
    attend<false>(c, s);
    __syncthreads(); /* the states have been read where the next product writes */
}

#endif

#endif
