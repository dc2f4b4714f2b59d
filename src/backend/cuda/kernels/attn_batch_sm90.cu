/* attn_batch_sm90.cu - decode attention of many timelines, one token each, over an f16 cache of
 * head_dim 128 (9.0).
 *
 * What there is to read, blocks of 64 positions of one kv head (keys and values lie behind each
 * other, 32 KiB), is dealt out evenly to one block per multiprocessor. One warp keeps a ring of them
 * filled through the copy engine, from before the kernel waits for the one before it; eight warps
 * compute, two groups of four on alternate blocks, a warp 16 positions; four warps rotate the
 * queries of the next token meanwhile, store its key and value, and merge what the eight have left.
 *
 * Products are transposed so that nothing is empty: positions (or dimensions of the values) are the
 * 16 rows of the A operand, and the 8 columns of B are the high and the low halves of 4 heads, which
 * makes them as good as float ones. The order of the dimensions inside a product is free, so a lane
 * takes 16 bytes of a row at a time; lanes that would meet in a bank take their pieces in another
 * order and exchange them in registers. */
#include "backend/cuda/tiles.h"
#include "kv.cuh"

enum { DIM = 128, WARPS = 8, COMPUTE = WARPS * 32, STAGES = BNET_ATTN_BATCH_STAGES };
enum { STAGE = BNET_ATTN_BATCH_STAGE, OLD = BNET_ATTN_BATCH_OLD, HELPERS = 128 };
/* barriers: filled and emptied stages; then an item prepared [2], its states there, taken */
enum { FILLED = 0, EMPTIED = STAGES, READY = 2 * STAGES, DONE = READY + 2, TAKEN = DONE + 1 };

/* A stretch of units of one token and kv head. */
struct item {
    uint32_t token, head, first, n, all; /* blocks first .. first + n - 1 of all */
    uint32_t n_pos;                      /* positions in the cache */
};

/* What the computing warps need of an item; of the newest position, which is in no block yet, the
 * value and for each head four parts of the score. */
template <int H> struct alignas(16) prepared {
    float q[H][OLD], v[DIM], score[HELPERS / 32][H];
    item it;
    bool newest;
};

/* H heads of a group at most: 4 or 8. In shared memory. */
template <int H> struct block_state {
    float o[WARPS][H][OLD];
    float m[WARPS][H], l[WARPS][H];
    prepared<H> next[2];
};

struct schedule {
    uint32_t start[BNET_ATTN_BATCH_TOKENS + 1]; /* units before a token */
    uint32_t sums[BNET_ATTN_BATCH_THREADS / 32];
    uint32_t arrived;
};

static __device__ __forceinline__ uint32_t blocks_of(const bnet_cu_attn_args &a, uint32_t token)
{
    int pos = a.step.pos[token];
    uint32_t n = a.cs ? (uint32_t)pos : (uint32_t)pos + 1; /* in the cache */
    return pos < 0 ? 0 : max((n + KV_POS - 1) / KV_POS, 1u);
}

/* Units before each token: a unit is a block of one kv head; every token has one at least. */
static __device__ __forceinline__ void plan(const bnet_cu_attn_args &a, schedule *s)
{
    uint32_t t = threadIdx.x, lane = t % 32;
    uint32_t n = t < a.n_tokens ? blocks_of(a, t) * a.n_kv_heads : 0, before = n;
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
        uint32_t v = __shfl_up_sync(0xffffffffu, before, o);
        before += lane >= (uint32_t)o ? v : 0;
    }
    if (lane == 31)
        s->sums[t / 32] = before;
    __syncthreads();
    for (uint32_t w = 0; w < t / 32; w++)
        before += s->sums[w];
    if (t < a.n_tokens)
        s->start[t + 1] = before;
    if (t == 0)
        s->start[0] = 0;
    __syncthreads();
}

/* The item that unit u belongs to, from u on as far as `end`. */
static __device__ __forceinline__ item item_at(const bnet_cu_attn_args &a, const schedule *s,
                                               uint32_t u, uint32_t end)
{
    uint32_t low = 0, high = a.n_tokens - 1; /* the last token that begins at or before u */
    while (low < high) {
        uint32_t mid = (low + high + 1) / 2;
        if (s->start[mid] <= u)
            low = mid;
        else
            high = mid - 1;
    }
    uint32_t all = (s->start[low + 1] - s->start[low]) / a.n_kv_heads, r = u - s->start[low];
    item i = {low, r / all, r % all, min(all - r % all, end - u), all,
              (uint32_t)a.step.pos[low] + (a.cs ? 0 : 1)};
    return i;
}

/* ---- the ring ---- */

static __device__ __forceinline__ void arrive(uint32_t bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

static __device__ __forceinline__ void bulk_pair(uint32_t to, const uint8_t *from, uint32_t part,
                                                 uint32_t n, uint32_t bar)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(2 * n)
                 : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(n), "r"(bar)
                 : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1], %2, [%3];" ::"r"(to + STAGE / 2),
                 "l"(from + part), "r"(n), "r"(bar)
                 : "memory");
}

/* Positions of block b that are in the cache. */
static __device__ __forceinline__ uint32_t positions(const item &i, uint32_t b)
{
    return min(i.n_pos - b * KV_POS, (uint32_t)KV_POS);
}

/* One warp: lanes look up the places of 32 units at once, then each asks for its own in turn. */
static __device__ __forceinline__ void fill(const bnet_cu_attn_args &a, const schedule *s,
                                            uint32_t ring, uint32_t bars, uint32_t u0, uint32_t u1)
{
    uint32_t lane = threadIdx.x % 32;
    for (uint32_t base = u0; base < u1; base += 32) {
        const uint8_t *from = nullptr;
        uint32_t n = 0;
        if (base + lane < u1) {
            item i = item_at(a, s, base + lane, u1);
            n = positions(i, i.first);
            if (n)
                from = kv_of(a, i.token, i.head).part(i.first, 0);
        }
        for (uint32_t j = 0; j < 32 && base + j < u1; j++) {
            uint32_t k = base + j - u0, slot = k % STAGES;
            if (k >= STAGES)
                barrier_wait(bars + 8 * (STAGES + slot), k / STAGES - 1 & 1);
            if (lane == j) {
                if (n)
                    bulk_pair(ring + slot * STAGE, from, a.part_bytes, n * DIM * 2, bars + 8 * slot);
                else
                    arrive(bars + 8 * slot);
            }
            __syncwarp();
        }
    }
}

/* ---- 16 positions by one warp ---- */

static __device__ __forceinline__ uint4 load_shared16(uint32_t at)
{
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(at)
                 : "memory");
    return v;
}

static __device__ __forceinline__ void exchange(uint4 &x, uint4 &y, bool wanted)
{
    uint4 p = x, q = y;
    x.x = wanted ? q.x : p.x, x.y = wanted ? q.y : p.y, x.z = wanted ? q.z : p.z, x.w = wanted ? q.w : p.w;
    y.x = wanted ? p.x : q.x, y.y = wanted ? p.y : q.y, y.z = wanted ? p.z : q.z, y.w = wanted ? p.w : q.w;
}

/* Of heads 4 tile + t, t = lane % 4: largest score, sum of the weights of the positions this lane
 * saw, and dimensions 16 g .. 16 g + 15 of the output, g = lane / 4. */
template <int TILES> struct state {
    float m[TILES], l[TILES], o[TILES][16];
};

/* B operands: column g is the high (g even) or low half of head 4 tile + g / 2, dimensions 32 j + 8 t
 * and the next seven. */
template <int TILES> struct queries {
    uint32_t b[TILES][4][4];
};

static __device__ __forceinline__ uint32_t half_of(float x, float y, bool low)
{
    __half2 h = __floats2half2_rn(x, y);
    float2 f = __half22float2(h);
    __half2 l = __floats2half2_rn(x - f.x, y - f.y);
    return low ? *(uint32_t *)&l : *(uint32_t *)&h;
}

template <int TILES>
static __device__ __forceinline__ void take_queries(queries<TILES> &r, const float (*q)[OLD])
{
    uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < TILES; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float4 *p = (const float4 *)&q[4 * i + g / 2][32 * j + 8 * t];
            float4 x = p[0], y = p[1];
            r.b[i][j][0] = half_of(x.x, x.y, g & 1);
            r.b[i][j][1] = half_of(x.z, x.w, g & 1);
            r.b[i][j][2] = half_of(y.x, y.y, g & 1);
            r.b[i][j][3] = half_of(y.z, y.w, g & 1);
        }
}

/* s[tile][i]: head 4 tile + t, position g + 8 i of the 16 from `at`; rows of 256 bytes. */
template <int TILES>
static __device__ __forceinline__ void scores(const queries<TILES> &q, uint32_t at,
                                              float s[TILES][2])
{
    uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, odd = g & 1;
    float c[TILES][2][4] = {};
    uint4 k[2][4];
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (uint32_t j = 0; j < 4; j++)
            k[n][j] = load_shared16(at + (8 * n + g) * 256 + (4 * (j ^ odd) + t) * 16);
#pragma unroll
    for (int j = 0; j < 4; j += 2) {
        exchange(k[0][j], k[0][j + 1], odd);
        exchange(k[1][j], k[1][j + 1], odd);
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const uint32_t x[4] = {k[0][j].x, k[1][j].x, k[0][j].y, k[1][j].y};
        const uint32_t y[4] = {k[0][j].z, k[1][j].z, k[0][j].w, k[1][j].w};
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            mma_f16(c[i][0], x, q.b[i][j][0], q.b[i][j][1]);
            mma_f16(c[i][1], y, q.b[i][j][2], q.b[i][j][3]);
        }
    }
#pragma unroll
    for (int i = 0; i < TILES; i++) {
        s[i][0] = (c[i][0][0] + c[i][0][1]) + (c[i][1][0] + c[i][1][1]);
        s[i][1] = (c[i][0][2] + c[i][0][3]) + (c[i][1][2] + c[i][1][3]);
    }
}

/* From scores to the B operand of the values; returns what becomes of the state before. */
static __device__ __forceinline__ float weigh(const float s[2], float &m, float &l, uint32_t b[2])
{
    uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, from = 8 * t + g / 2;
    float top = fmaxf(m, fmaxf(s[0], s[1]));
#pragma unroll
    for (int o = 4; o < 32; o <<= 1)
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, o));
    float keep = m == -INFINITY ? 0.0f : exp2f(m - top);
    float w0 = exp2f(s[0] - top), w1 = exp2f(s[1] - top);
    l = fmaf(l, keep, w0 + w1);
    m = top;
    /* positions 2t, 2t + 1 and 8 more, of head g / 2 */
    float x = __shfl_sync(0xffffffffu, w0, from), y = __shfl_sync(0xffffffffu, w0, from + 4);
    b[0] = half_of(x, y, g & 1);
    x = __shfl_sync(0xffffffffu, w1, from), y = __shfl_sync(0xffffffffu, w1, from + 4);
    b[1] = half_of(x, y, g & 1);
    return keep;
}

/* The values of the 16 positions; those after `last` are the last one: they weigh nothing. */
static __device__ __forceinline__ void load_values(uint32_t at, uint32_t last, uint4 v[4][2])
{
    uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, odd = t & 1;
#pragma unroll
    for (uint32_t r = 0; r < 4; r++) {
        uint32_t row = at + min(2 * t + (r & 1) + 8 * (r >> 1), last) * 256 + g * 32;
        v[r][0] = load_shared16(row + odd * 16);
        v[r][1] = load_shared16(row + (odd ^ 1) * 16);
    }
#pragma unroll
    for (int r = 0; r < 4; r++)
        exchange(v[r][0], v[r][1], odd);
}

template <int TILES>
static __device__ __forceinline__ void add_values(const uint4 v[4][2], const uint32_t b[][2],
                                                  const float *keep, state<TILES> &st)
{
#pragma unroll
    for (int i = 0; i < 8; i++) {
        uint32_t sel = i & 1 ? 0x7632 : 0x5410, x[4][2];
#pragma unroll
        for (int r = 0; r < 8; r++)
            x[r / 2][r % 2] = ((const uint32_t *)&v[r / 2][r % 2])[i / 2];
        const uint32_t p[4] = {__byte_perm(x[0][0], x[1][0], sel), __byte_perm(x[0][1], x[1][1], sel),
                               __byte_perm(x[2][0], x[3][0], sel), __byte_perm(x[2][1], x[3][1], sel)};
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            float c[4] = {};
            mma_f16(c, p, b[n][0], b[n][1]);
            st.o[n][i] = fmaf(st.o[n][i], keep[n], c[0] + c[1]);
            st.o[n][8 + i] = fmaf(st.o[n][8 + i], keep[n], c[2] + c[3]);
        }
    }
}

/* 16 positions, n > 0 of them there, keys at `at`. */
template <int TILES>
static __device__ __forceinline__ void fold(const queries<TILES> &q, uint32_t at, uint32_t n,
                                            state<TILES> &st)
{
    uint32_t g = threadIdx.x % 32 / 4, b[TILES][2];
    float s[TILES][2], keep[TILES];
    uint4 v[4][2];
    scores<TILES>(q, at, s);
    load_values(at + STAGE / 2, n - 1, v);
#pragma unroll
    for (int i = 0; i < TILES; i++) {
        s[i][0] = g < n ? s[i][0] : -INFINITY;
        s[i][1] = g + 8 < n ? s[i][1] : -INFINITY;
        keep[i] = weigh(s[i], st.m[i], st.l[i], b[i]);
    }
    add_values<TILES>(v, b, keep, st);
}

/* ---- the computing warps ---- */

/* A warp's state into shared memory. */
template <int H>
static __device__ __forceinline__ void keep_state(const state<H / 4> &st, block_state<H> *s)
{
    uint32_t warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < H / 4; i++) {
        float l = st.l[i];
#pragma unroll
        for (int o = 4; o < 32; o <<= 1)
            l += __shfl_xor_sync(0xffffffffu, l, o);
        if (g == 0) {
            s->m[warp][4 * i + t] = st.m[i];
            s->l[warp][4 * i + t] = l;
        }
#pragma unroll
        for (int d = 0; d < 16; d += 4)
            *(float4 *)&s->o[warp][4 * i + t][16 * g + d] =
                make_float4(st.o[i][d], st.o[i][d + 1], st.o[i][d + 2], st.o[i][d + 3]);
    }
}

/* The end of a warp's part of something others wait for. */
static __device__ __forceinline__ void warp_arrive(uint32_t bar)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        arrive(bar);
}

template <int H>
static __device__ __forceinline__ void compute(block_state<H> *s, uint32_t ring, uint32_t bars,
                                               uint32_t u0, uint32_t u1)
{
    uint32_t warp = threadIdx.x / 32, group = warp / 4, p = warp % 4 * 16;
    for (uint32_t u = u0, k = 0; u < u1; k++) {
        state<H / 4> st;
        queries<H / 4> q;
#pragma unroll
        for (int i = 0; i < H / 4; i++) {
            st.m[i] = -INFINITY, st.l[i] = 0;
#pragma unroll
            for (int d = 0; d < 16; d++)
                st.o[i][d] = 0;
        }
        barrier_wait(bars + 8 * (READY + k % 2), k / 2 & 1);
        item it = s->next[k % 2].it;
        take_queries<H / 4>(q, s->next[k % 2].q);
        for (uint32_t i = (u - u0 & 1) ^ group; i < it.n; i += 2) {
            uint32_t j = u + i - u0, slot = j % STAGES, n = positions(it, it.first + i);
            barrier_wait(bars + 8 * (FILLED + slot), j / STAGES & 1);
            if (p < n)
                fold<H / 4>(q, ring + slot * STAGE + p * 256, min(n - p, 16u), st);
            warp_arrive(bars + 8 * (EMPTIED + slot));
        }
        if (k)
            barrier_wait(bars + 8 * TAKEN, k - 1 & 1);
        keep_state<H>(st, s);
        warp_arrive(bars + 8 * DONE);
        u += it.n;
    }
}

/* ---- the helping warps: thread d has dimension d ---- */

static __device__ __forceinline__ void helpers_meet()
{
    asm volatile("bar.sync 1, 128;" ::: "memory"); /* HELPERS */
}

/* Queries rotated and scaled, those of absent heads zero; key and value of the newest position into
 * the cache. */
template <int H>
static __device__ __forceinline__ void prepare(const bnet_cu_attn_args &a, const schedule *sched,
                                               uint32_t u, uint32_t u1, prepared<H> *p)
{
    item it = item_at(a, sched, u, u1);
    uint32_t d = threadIdx.x % HELPERS, group = a.n_heads / a.n_kv_heads, lane = d % 32;
    bool newest = a.cs && it.first + it.n == it.all;
    const float *q = a.q + (size_t)it.token * a.ldq + it.head * group * DIM;
    const float *cs = a.cs ? a.cs + (size_t)it.token * a.n_rot : nullptr;
    float scale = a.scale * 1.44269504f, x[H];
#pragma unroll
    for (uint32_t h = 0; h < H; h++) {
        x[h] = 0;
        if (h < group)
            x[h] = scale * (cs ? rotated(q + h * DIM, cs, d, a.n_rot, a.neox) : q[h * DIM + d]);
    }
    if (newest) {
        const float *k = a.k + (size_t)it.token * a.ldk + it.head * DIM;
        const float *v = a.v + (size_t)it.token * a.ldk + it.head * DIM;
        uint32_t pos = (uint32_t)a.step.pos[it.token];
        uint8_t *part = kv_of(a, it.token, it.head).part(pos / KV_POS, 0);
        __half hk = __float2half_rn(rotated(k, cs, d, a.n_rot, a.neox)), hv = __float2half_rn(v[d]);
        ((__half *)part)[pos % KV_POS * DIM + d] = hk;
        ((__half *)(part + a.part_bytes))[pos % KV_POS * DIM + d] = hv;
        p->v[d] = __half2float(hv);
#pragma unroll
        for (int h = 0; h < H; h++) {
            float sum = warp_sum(x[h] * __half2float(hk));
            if (lane == 0)
                p->score[d / 32][h] = sum;
        }
    }
#pragma unroll
    for (int h = 0; h < H; h++)
        p->q[h][d] = x[h];
    if (d == 0) {
        p->it = it;
        p->newest = newest;
    }
}

/* One head of an item: largest score, sum of weights, dimension d of the output. */
struct merged {
    float m, l, o;
};

template <int H>
static __device__ __forceinline__ merged merge(const block_state<H> *s, const prepared<H> *p, int h,
                                               uint32_t d)
{
    float score = -INFINITY;
    if (p->newest)
        score = (p->score[0][h] + p->score[1][h]) + (p->score[2][h] + p->score[3][h]);
    merged r = {score, 0, 0};
#pragma unroll
    for (int w = 0; w < WARPS; w++)
        r.m = fmaxf(r.m, s->m[w][h]);
    if (p->newest) {
        r.l = exp2f(score - r.m);
        r.o = r.l * p->v[d];
    }
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
        float x = s->m[w][h] == -INFINITY ? 0.0f : exp2f(s->m[w][h] - r.m);
        r.l = fmaf(x, s->l[w][h], r.l);
        r.o = fmaf(x, s->o[w][h][d], r.o);
    }
    return r;
}

/* The parts of an item that several blocks had, by the last of them. */
static __device__ __forceinline__ void gather(const bnet_cu_attn_args &a, const item &it,
                                              uint32_t start, uint32_t total, uint32_t n_blocks,
                                              schedule *s)
{
    uint32_t group = a.n_heads / a.n_kv_heads, size = group * (DIM + 2), d = threadIdx.x % HELPERS;
    uint32_t c0 = (uint32_t)(((uint64_t)(start + 1) * n_blocks - 1) / total);
    uint32_t c1 = (uint32_t)(((uint64_t)(start + it.all) * n_blocks - 1) / total);
    uint32_t *counter = &a.counters[it.token * a.n_kv_heads + it.head];
    __threadfence();
    helpers_meet();
    if (d == 0)
        s->arrived = atomicAdd(counter, 1);
    helpers_meet();
    if (s->arrived != c1 - c0)
        return;
    __threadfence();
    if (d == 0)
        *counter = 0;
    for (uint32_t h = 0; h < group; h++) {
        /* the first block had it last (place 1), the others first */
        const float *w = a.work + (size_t)(2 * c0 + 1) * size + h * (DIM + 2);
        const float *rest = a.work + (size_t)(2 * c0 + 2) * size + h * (DIM + 2);
        float m = __ldcg(w + DIM), l = __ldcg(w + DIM + 1), o = __ldcg(w + d);
        for (uint32_t c = c0 + 1; c <= c1; c++, rest += 2 * size) {
            float m2 = __ldcg(rest + DIM), top = fmaxf(m, m2);
            float x = m == -INFINITY ? 0.0f : exp2f(m - top);
            float y = m2 == -INFINITY ? 0.0f : exp2f(m2 - top);
            l = l * x + __ldcg(rest + DIM + 1) * y;
            o = o * x + __ldcg(rest + d) * y;
            m = top;
        }
        a.y[((size_t)it.token * a.n_heads + it.head * group + h) * DIM + d] = o / l;
    }
}

/* The states of all warps: to the output, or to this block's place among the parts. */
template <int H>
static __device__ __forceinline__ void finish(const bnet_cu_attn_args &a, const block_state<H> *s,
                                              const prepared<H> *p, const item &it, bool whole,
                                              uint32_t place, uint32_t taken)
{
    uint32_t group = a.n_heads / a.n_kv_heads, d = threadIdx.x % HELPERS;
    merged r[H];
#pragma unroll
    for (int h = 0; h < H; h++)
        r[h] = merge<H>(s, p, h, d);
    warp_arrive(taken);
#pragma unroll
    for (int h = 0; h < H; h++) {
        if (h >= group)
            break;
        if (whole) {
            a.y[((size_t)it.token * a.n_heads + it.head * group + h) * DIM + d] = r[h].o / r[h].l;
            continue;
        }
        float *w = a.work + ((size_t)place * group + h) * (DIM + 2);
        w[d] = r[h].o;
        if (d == 0) {
            w[DIM] = r[h].m;
            w[DIM + 1] = r[h].l;
        }
    }
}

template <int H>
static __device__ __forceinline__ void help(const bnet_cu_attn_args &a, schedule *sched,
                                            block_state<H> *s, uint32_t bars, uint32_t u0,
                                            uint32_t u1, uint32_t total, uint32_t n_blocks)
{
    uint32_t ahead = u0; /* where the next item to prepare begins */
    for (uint32_t k = 0; k < 2 && ahead < u1; k++) {
        prepare<H>(a, sched, ahead, u1, &s->next[k]);
        warp_arrive(bars + 8 * (READY + k));
        ahead += item_at(a, sched, ahead, u1).n;
    }
    for (uint32_t u = u0, k = 0; u < u1; k++) {
        prepared<H> *p = &s->next[k % 2];
        barrier_wait(bars + 8 * (READY + k % 2), k / 2 & 1); /* the other helpers' parts, too */
        item it = p->it;
        bool whole = it.n == it.all;
        barrier_wait(bars + 8 * DONE, k & 1);
        finish<H>(a, s, p, it, whole, 2 * blockIdx.x + (u - it.first >= u0), bars + 8 * TAKEN);
        helpers_meet(); /* p is free */
        if (ahead < u1) {
            prepare<H>(a, sched, ahead, u1, p);
            warp_arrive(bars + 8 * (READY + k % 2));
            ahead += item_at(a, sched, ahead, u1).n;
        }
        if (!whole)
            gather(a, it, u - it.first, total, n_blocks, sched);
        u += it.n;
    }
}

template <int H> static __device__ __forceinline__ void attend(const bnet_cu_attn_args &a)
{
    extern __shared__ __align__(128) uint8_t dynamic[];
    __shared__ schedule sched;
    __shared__ __align__(8) uint64_t barriers[TAKEN + 1];
    uint32_t ring = shared_addr(dynamic), bars = shared_addr(barriers), t = threadIdx.x;
    block_state<H> *s = (block_state<H> *)(dynamic + STAGES * STAGE);
    static_assert(sizeof(block_state<H>) <= BNET_ATTN_BATCH_STATE(H), "launch asks for enough");
    pdl_launch();
    if (!a.cs)
        pdl_wait();
    if (t <= TAKEN)
        barrier_init(bars + 8 * t, t < EMPTIED ? 1 : t == DONE ? WARPS : 4);
    barrier_init_fence();
    plan(a, &sched);
    uint32_t total = sched.start[a.n_tokens], n = min(gridDim.x, total); /* with something to do */
    uint32_t u0 = (uint32_t)((uint64_t)total * blockIdx.x / max(n, 1u));
    uint32_t u1 = (uint32_t)((uint64_t)total * (blockIdx.x + 1) / max(n, 1u));
    if (blockIdx.x >= n)
        return;
    if (t < COMPUTE) {
        compute<H>(s, ring, bars, u0, u1);
    } else if (t < COMPUTE + HELPERS) {
        if (a.cs)
            pdl_wait();
        help<H>(a, &sched, s, bars, u0, u1, total, n);
    } else {
        fill(a, &sched, ring, bars, u0, u1);
    }
}

KERNEL __launch_bounds__(BNET_ATTN_BATCH_THREADS, 1)
    bnet_attn_batch_h128_4(const __grid_constant__ bnet_cu_attn_args a)
{
    attend<4>(a);
}

KERNEL __launch_bounds__(BNET_ATTN_BATCH_THREADS, 1)
    bnet_attn_batch_h128_8(const __grid_constant__ bnet_cu_attn_args a)
{
    attend<8>(a);
}
