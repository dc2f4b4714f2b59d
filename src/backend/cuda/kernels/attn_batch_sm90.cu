/* attn_batch_sm90.cu - decode attention of many timelines over an f16 cache of head_dim 128: small
 * blocks, one per (token, kv head), all of them on the device at once.
 *
 * Reading the cache is all that may take time. A warp takes every fourth tile of 16 positions and
 * brings it into a ring of its own in shared memory; the first tiles are on their way before the
 * kernel in front has ended (everything but the newest position was written by earlier steps).
 * Pieces of 16 bytes are exchanged within a row so that no banks collide. In the end the states of
 * the warps meet in the place of the rings. */
#include "attn16.cuh"
#include "backend/cuda/attn_batch.h"

enum { THREADS = BNET_ATTN_BATCH_THREADS, WARPS = THREADS / 32 };
enum { DEPTH = BNET_ATTN_BATCH_DEPTH, ROW = H16_DIM * 2, SLOT = 16 * ROW, TABLE = 32 };

struct shared_part {
    float q[H16_HEADS][H16_QLD], k[H16_DIM], v[H16_DIM];
    float newest[H16_HEADS]; /* scores of the newest position */
    float m[WARPS][H16_HEADS], l[WARPS][H16_HEADS];
};

/* What a block works on. */
struct item {
    const bnet_cu_attn_args &a;
    const uint8_t *base; /* keys of the kv head in block 0 */
    const int32_t *table;
    uint32_t head, token, h0, nh; /* query heads h0 .. h0 + nh - 1 of the kv head's group */
    uint32_t n;             /* positions in the cache */
    int32_t mine;           /* entry `lane` of the block table */

    /* Keys of position `at` (values: a part further). */
    __device__ __forceinline__ const uint8_t *row(uint32_t at) const
    {
        uint32_t block = at / KV_POS;
        int32_t b = __shfl_sync(0xffffffffu, mine, block % TABLE);
        if (block >= TABLE)
            b = table[block];
        return base + (size_t)b * (a.n_kv_heads * 2 * a.part_bytes) + at % KV_POS * ROW;
    }
};

/* 16 rows of keys (or values) into a slot, zeros from position n on; a group of its own even if there
 * is nothing left. */
static __device__ __forceinline__ void fetch(const item &it, uint32_t base, bool values, uint32_t to)
{
    uint32_t lane = threadIdx.x % 32, piece = (lane % 16) ^ (lane / 16 << 2);
    if (base < it.n) {
        const uint8_t *from = it.row(base) + (values ? it.a.part_bytes : 0) + lane * 16;
        to += lane / 16 * ROW;
#pragma unroll
        for (uint32_t k = 0; k < 8; k++)
            copy_async16(to + k * 2 * ROW + ((piece ^ (k & 3) << 1) << 4), from + k * 512,
                         base + 2 * k + lane / 16 < it.n);
    }
    copy_commit();
}

static __device__ __forceinline__ uint4 piece16(uint32_t at)
{
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(at)
                 : "memory");
    return v;
}

/* The A operands of the queries, split: [32 dimensions][product][register]. */
struct query16 {
    uint32_t a[4][2][4];
};

static __device__ __forceinline__ void query_load(query16 &r, const shared_part *s, uint32_t n_heads)
{
    uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        float4 x = make_float4(0, 0, 0, 0), y = x;
        if (g < n_heads) {
            const float4 *p = (const float4 *)(s->q[g] + 32 * j + 8 * t);
            x = p[0], y = p[1];
        }
        split_half(x.x, x.y, &r.a[j][0][0], &r.a[j][0][1]);
        split_half(x.z, x.w, &r.a[j][0][2], &r.a[j][0][3]);
        split_half(y.x, y.y, &r.a[j][1][0], &r.a[j][1][1]);
        split_half(y.z, y.w, &r.a[j][1][2], &r.a[j][1][3]);
    }
}

/* s[n][i]: head g, position 8n + 2t + i. Four chains of products. */
static __device__ __forceinline__ void slot_scores(const query16 &q, uint32_t slot, float s[2][2])
{
    uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    uint32_t swap = (g >> 1 & 3) << 1 ^ (g & 1) << 2;
    float c[2][2][4] = {};
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
        for (int n = 0; n < 2; n++) {
            uint4 k = piece16(slot + (8 * n + g) * ROW + ((4 * j + t ^ swap) << 4));
            mma_f16(c[n][0], q.a[j][0], k.x, k.y);
            mma_f16(c[n][1], q.a[j][1], k.z, k.w);
        }
#pragma unroll
    for (int n = 0; n < 2; n++) {
        s[n][0] = (c[n][0][0] + c[n][1][0]) + (c[n][0][2] + c[n][1][2]);
        s[n][1] = (c[n][0][1] + c[n][1][1]) + (c[n][0][3] + c[n][1][3]);
    }
}

static __device__ __forceinline__ void slot_values(uint32_t slot, const uint32_t p[4], float keep,
                                                   state16 &st)
{
    uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (uint32_t half = 0; half < 2; half++) {
        uint4 v[4];
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t row = 2 * t + (i & 1) + 8 * (i >> 1), swap = t << 1 ^ (i & 1) << 2;
            v[i] = piece16(slot + row * ROW + ((8 * half + (g ^ swap)) << 4));
        }
        values16(v, p, keep, st.o[half]);
    }
}

/* Queries rotated and scaled; the newest key and value rounded as stored, and stored. A thread has
 * one dimension, so that all it reads is on its way at once. */
static __device__ __forceinline__ void take_token(const item &it, int pos, shared_part *s)
{
    const bnet_cu_attn_args &a = it.a;
    uint32_t d = threadIdx.x, group = a.n_heads / a.n_kv_heads;
    const float *q = a.q + (size_t)it.token * a.ldq + (it.head * group + it.h0) * H16_DIM;
    const float *cs = a.cs ? a.cs + (size_t)it.token * a.n_rot : nullptr;
    float scale = a.scale * 1.44269504f, x[H16_HEADS];
    size_t kv_at = (size_t)it.token * a.ldk + it.head * H16_DIM;
    float v = cs ? a.v[kv_at + d] : 0, k = cs ? rotated(a.k + kv_at, cs, d, a.n_rot, a.neox) : 0;
#pragma unroll
    for (uint32_t h = 0; h < H16_HEADS; h++)
        x[h] = h >= it.nh ? 0 : cs ? rotated(q + h * H16_DIM, cs, d, a.n_rot, a.neox) : q[h * H16_DIM + d];
#pragma unroll
    for (uint32_t h = 0; h < H16_HEADS; h++)
        s->q[h][d] = x[h] * scale;
    if (!cs)
        return;
    s->k[d] = through_half(k);
    s->v[d] = through_half(v);
    if (it.h0 == 0) {
        __half *to = (__half *)it.row((uint32_t)pos);
        to[d] = __float2half_rn(k);
        *(__half *)((uint8_t *)(to + d) + a.part_bytes) = __float2half_rn(v);
    }
}

/* Scores of the newest position, a head per warp. */
static __device__ __forceinline__ void newest(const item &it, shared_part *s)
{
    uint32_t lane = threadIdx.x % 32;
    for (uint32_t h = threadIdx.x / 32; h < it.nh; h += WARPS) {
        float dot = 0;
#pragma unroll
        for (uint32_t i = 0; i < H16_DIM; i += 32)
            dot = fmaf(s->q[h][i + lane], s->k[i + lane], dot);
        dot = warp_sum(dot);
        if (lane == 0)
            s->newest[h] = it.a.cs ? dot : -INFINITY;
    }
}

/* All tiles of this warp; the first DEPTH are in its ring or on their way. */
static __device__ __forceinline__ void fold(const item &it, const shared_part *s, uint32_t ring,
                                            state16 &st)
{
    uint32_t t = threadIdx.x % 4, slot = 0;
    query16 q;
    query_load(q, s, it.nh);
    for (uint32_t base = threadIdx.x / 32 * 16; base < it.n; base += 16 * WARPS) {
        float w[2][2];
        uint32_t p[4], at = ring + 2 * slot * SLOT, next = base + DEPTH * 16 * WARPS;
        copy_wait<2 * DEPTH - 1>();
        __syncwarp();
        slot_scores(q, at, w);
        __syncwarp();
        fetch(it, next, false, at);
        if (base + 16 > it.n)
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (base + 8 * (e / 2) + 2 * t + e % 2 >= it.n)
                    w[e / 2][e % 2] = -INFINITY;
        float keep = weights16(w, st, p);
        copy_wait<2 * DEPTH - 1>();
        __syncwarp();
        slot_values(at + SLOT, p, keep, st);
        __syncwarp();
        fetch(it, next, true, at + SLOT);
        slot = slot + 1 == DEPTH ? 0 : slot + 1;
    }
}

/* Merges the warps' states (o in the place of the rings) and the newest position: a thread has one
 * dimension of every head. */
static __device__ __forceinline__ void leave(const item &it, const shared_part *s, const float *o)
{
    uint32_t d = threadIdx.x, group = it.a.n_heads / it.a.n_kv_heads, at = at16(d);
    float *y = it.a.y + ((size_t)it.token * it.a.n_heads + it.head * group + it.h0) * H16_DIM;
#pragma unroll 4
    for (uint32_t h = 0; h < it.nh; h++) {
        float top = s->newest[h], m[WARPS];
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            m[w] = s->m[w][h];
            top = fmaxf(top, m[w]);
        }
        float sum = exp2f(s->newest[h] - top), r = it.a.cs ? sum * s->v[d] : 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            float e = exp2f(m[w] - top), part = o[(w * H16_HEADS + h) * H16_OLD + at];
            sum = fmaf(e, s->l[w][h], sum);
            r = fmaf(e, m[w] == -INFINITY ? 0 : part, r);
        }
        y[h * H16_DIM + d] = r / sum;
    }
}

KERNEL __launch_bounds__(THREADS, 4)
    bnet_attn_batch_h128(const __grid_constant__ bnet_cu_attn_args a)
{
    extern __shared__ __align__(128) uint8_t dynamic[];
    __shared__ __align__(16) shared_part s;
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = a.n_heads / a.n_kv_heads;
    uint32_t ring = shared_addr(dynamic) + warp * (2 * DEPTH * SLOT), h0 = blockIdx.x * H16_HEADS;
    pdl_launch();
    if (!a.cs)
        pdl_wait();
    int pos = a.step.pos[blockIdx.z];
    if (pos < 0)
        return;
    kv_view kv = kv_of(a, blockIdx.z, blockIdx.y);
    item it = {a,          kv.layer + kv.head * 2 * a.part_bytes,
               kv.table,   kv.head,
               blockIdx.z, h0,
               min(group - h0, (uint32_t)H16_HEADS), a.cs ? (uint32_t)pos : (uint32_t)pos + 1,
               0};
    if (lane * KV_POS <= (uint32_t)pos)
        it.mine = it.table[lane];
    for (uint32_t d = 0; d < DEPTH; d++) {
        fetch(it, (d * WARPS + warp) * 16, false, ring + 2 * d * SLOT);
        fetch(it, (d * WARPS + warp) * 16, true, ring + (2 * d + 1) * SLOT);
    }
    if (a.cs)
        pdl_wait();
    take_token(it, pos, &s);
    __syncthreads();
    newest(it, &s);
    state16 st;
    clear16(st);
    fold(it, &s, ring, st);
    float *o = (float *)dynamic;
    copy_wait<0>();
    __syncthreads(); /* the rings are free */
    if (st.m != -INFINITY)
        store16(st, it.nh, o + warp * H16_HEADS * H16_OLD);
    if (lane % 4 == 0) {
        s.m[warp][lane / 4] = st.m;
        s.l[warp][lane / 4] = st.l;
    }
    __syncthreads();
    leave(it, &s, o);
}
