/* attn_batch_sm90.cu - decode attention of many timelines over a cache of head_dim 128 in f16 or int8:
 * small blocks, all of them on the device at once.
 *
 * The context is divided into stretches by its length alone. The blocks of a (token, kv head), as many as the
 * device has room for, take them in turn; what a warp has of a stretch is merged with what it has of the
 * stretches before, in their order, whichever block had them. So the bits do not depend on the number of
 * timelines. A context of one stretch needs no memory for that.
 *
 * Reading the cache is all that may take time. A warp takes every fourth tile of 16 positions and
 * brings it into a ring of its own in shared memory; the first tiles are on their way before the
 * kernel in front has ended (everything but the newest position was written by earlier steps).
 * Pieces of 16 bytes are exchanged within a row so that no banks collide. In the end the states of
 * the warps meet in the place of the rings. */
#include "attn16.cuh"
#include "backend/cuda/attn_batch.h"

enum { THREADS = BNET_ATTN_BATCH_THREADS, WARPS = THREADS / 32 };
enum { TABLE = 32, SCALES = KV_POS * H16_DIM }; /* where the scales of an int8 part lie */

/* By type of cache: tiles of a warp's ring, bytes of a row and of a tile of keys or values. */
template <int KV> struct sort {
    enum { DEPTH = BNET_ATTN_BATCH_DEPTH, ROW = H16_DIM * 2, SLOT = 16 * ROW };
};
template <> struct sort<KV_I8> { /* the scales of a tile follow its codes */
    enum { DEPTH = BNET_ATTN_BATCH_DEPTH_I8, ROW = H16_DIM, CODES = 16 * ROW, SLOT = CODES + 16 * 16 };
};

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
    uint32_t stretch, n_stretches; /* positions of a stretch, a multiple of 16 WARPS; at least one */
    uint32_t split, splits;        /* this block takes every splits-th stretch from `split` on */
    int32_t mine;           /* entry `lane` of the block table */
    uint64_t policy;

    /* The keys of a block of positions (values: a part further). */
    __device__ __forceinline__ const uint8_t *keys(uint32_t block) const
    {
        int32_t b = __shfl_sync(0xffffffffu, mine, block % TABLE);
        if (block >= TABLE)
            b = table[block];
        return base + (size_t)b * (a.n_kv_heads * 2 * a.part_bytes);
    }
};

/* Pieces of 16 bytes of a row change places so that lanes that read together meet no bank twice. */
template <int KV> static __device__ __forceinline__ uint32_t exchange(uint32_t row, bool values)
{
    if (KV == KV_F16)
        return (row >> 1 & 3) << 1 ^ (row & 1) << 2;
    return (values ? row >> 1 & 3 : row & 3) << 1;
}

/* copy_async16 of what is read once a step: it goes from the L2 cache before activations, weights and
 * instructions do, which the next kernels want. */
static __device__ __forceinline__ void copy_once16(uint32_t to, const void *from, bool wanted,
                                                   uint64_t policy)
{
    int n = wanted ? 16 : 0;
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(to), "l"(from),
                 "r"(n), "l"(policy)
                 : "memory");
}

/* 16 positions of keys (or values) from `base` on into a slot, zeros from position n on; a group of its
 * own even if there is nothing left. */
template <int KV>
static __device__ __forceinline__ void fetch(const item &it, uint32_t base, bool values, uint32_t to)
{
    enum { ROW = sort<KV>::ROW, LANES = ROW / 16, ROWS = 32 / LANES }; /* a row, rows at once */
    uint32_t lane = threadIdx.x % 32, r = lane / LANES, piece = lane % LANES;
    if (base < it.n) {
        const uint8_t *part = it.keys(base / KV_POS) + (values ? it.a.part_bytes : 0);
        const uint8_t *from = part + base % KV_POS * ROW + lane * 16;
#pragma unroll
        for (uint32_t k = 0; k < 16 / ROWS; k++) {
            uint32_t row = k * ROWS + r;
            copy_once16(to + row * ROW + ((piece ^ exchange<KV>(row, values)) << 4), from + k * 512,
                        base + row < it.n, it.policy);
        }
        if (KV == KV_I8 && lane < 16)
            copy_once16(to + sort<KV_I8>::CODES + lane * 16,
                        part + SCALES + (base % KV_POS + lane) * 16, base + lane < it.n, it.policy);
    }
    copy_commit();
}

static __device__ __forceinline__ float4 floats16(uint32_t at)
{
    uint4 v = load_shared16(at);
    return make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z),
                       __uint_as_float(v.w));
}

static __device__ __forceinline__ uint2 piece8(uint32_t at)
{
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(at) : "memory");
    return v;
}

static __device__ __forceinline__ uint32_t word4(uint32_t at)
{
    uint32_t v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
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
static __device__ __forceinline__ void scores_f16(const query16 &q, uint32_t slot, float s[2][2])
{
    enum { ROW = sort<KV_F16>::ROW };
    uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, swap = exchange<KV_F16>(g, false);
    float c[2][2][4] = {};
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
        for (int n = 0; n < 2; n++) {
            uint4 k = load_shared16(slot + (8 * n + g) * ROW + ((4 * j + t ^ swap) << 4));
            mma_f16(c[n][0], q.a[j][0], k.x, k.y);
            mma_f16(c[n][1], q.a[j][1], k.z, k.w);
        }
#pragma unroll
    for (int n = 0; n < 2; n++) {
        s[n][0] = (c[n][0][0] + c[n][1][0]) + (c[n][0][2] + c[n][1][2]);
        s[n][1] = (c[n][0][1] + c[n][1][1]) + (c[n][0][3] + c[n][1][3]);
    }
}

static __device__ __forceinline__ void values_f16(uint32_t slot, const uint32_t p[4], float keep,
                                                  state16 &st)
{
    enum { ROW = sort<KV_F16>::ROW };
    uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (uint32_t half = 0; half < 2; half++) {
        uint4 v[4];
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t row = 2 * t + (i & 1) + 8 * (i >> 1), swap = exchange<KV_F16>(row, true);
            v[i] = load_shared16(slot + row * ROW + ((8 * half + (g ^ swap)) << 4));
        }
        values16(v, p, keep, st.o[half]);
    }
}

/* ---- int8: codes become halves exactly; a product stays within the 32 dimensions of a scale ---- */

static constexpr float RAISED = 256.0f, LOWERED = 1.0f / 256.0f;

/* Bytes 0 and 1 (or 2 and 3) of codes + 128 as two halves: 1024 + byte, less 1152. */
static __device__ __forceinline__ uint32_t halves_of(uint32_t codes, uint32_t which)
{
    uint32_t h = __byte_perm(codes, 0x64646464u, which ? 0x4342 : 0x4140);
    __half2 r = __hsub2(*(__half2 *)&h, __float2half2_rn(1152.0f));
    return *(uint32_t *)&r;
}

static __device__ __forceinline__ void scores_i8(const query16 &q, uint32_t slot, float s[2][2])
{
    enum { ROW = sort<KV_I8>::ROW, CODES = sort<KV_I8>::CODES };
    uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, swap = exchange<KV_I8>(g, false);
#pragma unroll
    for (int n = 0; n < 2; n++) {
        float4 scale[2] = {floats16(slot + CODES + (8 * n + 2 * t) * 16),
                           floats16(slot + CODES + (8 * n + 2 * t + 1) * 16)};
        s[n][0] = s[n][1] = 0;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float c[4] = {};
            uint2 k = piece8(slot + (8 * n + g) * ROW + ((2 * j + t / 2 ^ swap) << 4) + t % 2 * 8);
            k.x ^= 0x80808080u, k.y ^= 0x80808080u;
            mma_f16(c, q.a[j][0], halves_of(k.x, 0), halves_of(k.x, 1));
            mma_f16(c, q.a[j][1], halves_of(k.y, 0), halves_of(k.y, 1));
            s[n][0] = fmaf((&scale[0].x)[j], c[0] + c[2], s[n][0]);
            s[n][1] = fmaf((&scale[1].x)[j], c[1] + c[3], s[n][1]);
        }
    }
}

/* w: weights of positions 8n + 2t + i. Element 4n + i of st.o[j / 2][j % 2] is dimension
 * 32 j + 8 t + 4 n + i, times RAISED: halves of weight times scale keep their digits where values are
 * small. */
static __device__ __forceinline__ void values_i8(uint32_t slot, const float w[2][2], float keep,
                                                 state16 &st)
{
    enum { ROW = sort<KV_I8>::ROW, CODES = sort<KV_I8>::CODES };
    uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    float4 scale[4];
#pragma unroll
    for (int e = 0; e < 4; e++)
        scale[e] = floats16(slot + CODES + (8 * (e / 2) + 2 * t + e % 2) * 16);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        uint32_t v[4], p[4];
        split_half(w[0][0] * RAISED * (&scale[0].x)[j], w[0][1] * RAISED * (&scale[1].x)[j], &p[0],
                   &p[1]);
        split_half(w[1][0] * RAISED * (&scale[2].x)[j], w[1][1] * RAISED * (&scale[3].x)[j], &p[2],
                   &p[3]);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t row = 2 * t + (i & 1) + 8 * (i >> 1), swap = exchange<KV_I8>(row, true);
            v[i] = word4(slot + row * ROW + ((2 * j + g / 4 ^ swap) << 4) + g % 4 * 4) ^ 0x80808080u;
        }
        float *o = st.o[j / 2][j % 2];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float c[4] = {};
            uint32_t sel = i < 2 ? 0x5140 : 0x7362;
            mma_f16(c, p, halves_of(__byte_perm(v[0], v[1], sel), i & 1),
                    halves_of(__byte_perm(v[2], v[3], sel), i & 1));
            o[i] = fmaf(o[i], keep, c[0] + c[2]);
            o[4 + i] = fmaf(o[4 + i], keep, c[1] + c[3]);
        }
    }
}

/* A warp's outputs [heads][H16_OLD], dimensions in the order of place_of. */
template <int KV>
static __device__ __forceinline__ void put_state(const state16 &st, uint32_t n_heads, float *o)
{
    uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    if (KV == KV_F16)
        store16(st, n_heads, o);
#pragma unroll
    for (int e = 0; KV == KV_I8 && e < 8; e++) {
        const float *f = &st.o[e / 4][e / 2 % 2][e % 2 * 4];
        if (g < n_heads)
            *(float4 *)(o + g * H16_OLD + 32 * (e / 2) + 8 * t + 4 * (e % 2)) =
                make_float4(f[0] * LOWERED, f[1] * LOWERED, f[2] * LOWERED, f[3] * LOWERED);
    }
}

template <int KV> static __device__ __forceinline__ uint32_t place_of(uint32_t d)
{
    return KV == KV_F16 ? at16(d) : d;
}

/* An element of the newest position as the cache keeps it, stored there if wanted; the 32 dimensions
 * of a scale are those of a warp. */
template <int KV>
static __device__ __forceinline__ float keep_newest(float x, uint8_t *part, uint32_t pos, bool stores)
{
    uint32_t d = threadIdx.x, at = pos % KV_POS;
    if (KV == KV_F16) {
        if (stores)
            ((__half *)part)[at * H16_DIM + d] = __float2half_rn(x);
        return through_half(x);
    }
    float top = warp_max(fabsf(x)), scale = __fdiv_rn(top, 127.0f);
    float r = __fmul_rn(x, top > 0 ? __fdiv_rn(127.0f, top) : 0.0f);
    int code = __float2int_rn(fminf(fmaxf(r, -127.0f), 127.0f));
    if (stores) {
        ((int8_t *)part)[at * H16_DIM + d] = (int8_t)code;
        if (d % 32 == 0)
            ((float *)(part + SCALES))[at * 4 + d / 32] = scale;
    }
    return (float)code * scale;
}

/* Queries rotated and scaled; the newest key and value rounded as stored, and stored. A thread has
 * one dimension, so that all it reads is on its way at once. */
template <int KV>
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
    uint8_t *part = (uint8_t *)it.keys((uint32_t)pos / KV_POS);
    s->k[d] = keep_newest<KV>(k, part, (uint32_t)pos, it.h0 == 0 && it.split == 0);
    s->v[d] = keep_newest<KV>(v, part + a.part_bytes, (uint32_t)pos, it.h0 == 0 && it.split == 0);
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

/* A warp's way through the tiles of its block's stretches. */
struct cursor {
    uint32_t base, left; /* the next tile's first position; tiles left in its stretch */

    __device__ __forceinline__ cursor(const item &it)
        : base(it.split * it.stretch + threadIdx.x / 32 * 16), left(it.stretch / (16 * WARPS))
    {
    }
    __device__ __forceinline__ void advance(const item &it)
    {
        base += 16 * WARPS;
        if (--left == 0) {
            base += (it.splits - 1) * it.stretch;
            left = it.stretch / (16 * WARPS);
        }
    }
};

/* ---- stretches ---- */

/* A lane's part of a state in memory, [STATE][32 lanes]: of stretch k where several blocks share them, else of
 * all so far. */
template <bool SHARED> static __device__ __forceinline__ float *state_at(const item &it, uint32_t k)
{
    uint32_t warp = threadIdx.x / 32, octets = SHARED ? gridDim.x / it.splits : gridDim.x;
    size_t who = ((size_t)it.token * it.a.n_kv_heads + it.head) * octets + it.h0 / H16_HEADS;
    size_t slot = SHARED ? who * BNET_ATTN_BATCH_STRETCHES + k : who;
    return it.a.work + (slot * WARPS + warp) * (BNET_ATTN_BATCH_STATE * 32) + threadIdx.x % 32;
}

static __device__ __forceinline__ void save(const state16 &st, float *to)
{
    __stcg(to, st.m);
    __stcg(to + 32, st.l);
#pragma unroll
    for (int i = 0; i < 32; i++)
        __stcg(to + (2 + i) * 32, st.o[i / 16][i / 8 % 2][i % 8]);
}

/* What a state of m weighs beside `top`. */
static __device__ __forceinline__ float share(float m, float top)
{
    return m == -INFINITY ? 0.0f : exp2f(m - top);
}

/* The state of the stretches before, and that of a stretch: one rounding for each operation. */
static __device__ __forceinline__ float join(float before, float a, float x, float b)
{
    return __fmaf_rn(before, a, __fmul_rn(x, b));
}

/* st is that of the stretch, `from` that of those before it; st becomes that of all. */
static __device__ __forceinline__ void add_before(state16 &st, const float *from)
{
    float m = __ldcg(from), top = fmaxf(m, st.m), a = share(m, top), b = share(st.m, top);
    st.m = top;
    st.l = join(__ldcg(from + 32), a, st.l, b);
#pragma unroll
    for (int i = 0; i < 32; i++) {
        float &o = st.o[i / 16][i / 8 % 2][i % 8];
        o = join(__ldcg(from + (2 + i) * 32), a, o, b);
    }
}

/* The same with the places changed: `from` is that of the stretch. */
static __device__ __forceinline__ void add_next(state16 &st, const float *from)
{
    float m = __ldcg(from), top = fmaxf(m, st.m), a = share(st.m, top), b = share(m, top);
    st.m = top;
    st.l = join(st.l, a, __ldcg(from + 32), b);
#pragma unroll
    for (int i = 0; i < 32; i++) {
        float &o = st.o[i / 16][i / 8 % 2][i % 8];
        o = join(o, a, __ldcg(from + (2 + i) * 32), b);
    }
}

/* Stretch k is done, one of several. */
template <bool SHARED>
static __device__ __forceinline__ void end_stretch(const item &it, uint32_t k, state16 &st)
{
    float *at = state_at<SHARED>(it, k);
    if (!SHARED && k > 0)
        add_before(st, at);
    if (SHARED || k + 1 < it.n_stretches)
        save(st, at);
}

/* Whether this block is the last of those that share the stretches; st is then that of all of them. */
static __device__ __forceinline__ bool meet(const item &it, state16 &st, uint32_t *arrived)
{
    uint32_t octets = gridDim.x / it.splits, n = min(it.splits, it.n_stretches);
    uint32_t *counter = it.a.counters + ((size_t)it.token * it.a.n_kv_heads + it.head) * octets + it.h0 / H16_HEADS;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        *arrived = atomicAdd(counter, 1);
    __syncthreads();
    if (*arrived + 1 != n)
        return false;
    __threadfence();
    if (threadIdx.x == 0)
        *counter = 0;
    const float *first = state_at<true>(it, 0);
#pragma unroll
    for (int i = 0; i < 32; i++)
        st.o[i / 16][i / 8 % 2][i % 8] = __ldcg(first + (2 + i) * 32);
    st.m = __ldcg(first);
    st.l = __ldcg(first + 32);
    for (uint32_t k = 1; k < it.n_stretches; k++)
        add_next(st, state_at<true>(it, k));
    return true;
}

/* A tile of this warp, from `base` on, which is in its ring at `at`; that from `next` on takes its place. */
template <int KV>
static __device__ __forceinline__ void take_tile(const item &it, const query16 &q, uint32_t base, uint32_t next,
                                                 uint32_t at, state16 &st)
{
    enum { DEPTH = sort<KV>::DEPTH, SLOT = sort<KV>::SLOT };
    float w[2][2];
    uint32_t p[4], t = threadIdx.x % 4;
    copy_wait<2 * DEPTH - 1>();
    __syncwarp();
    if (KV == KV_F16)
        scores_f16(q, at, w);
    else
        scores_i8(q, at, w);
    __syncwarp();
    fetch<KV>(it, next, false, at);
    if (base + 16 > it.n)
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (base + 8 * (e / 2) + 2 * t + e % 2 >= it.n)
                w[e / 2][e % 2] = -INFINITY;
    float keep = weights16(w, st, p);
    copy_wait<2 * DEPTH - 1>();
    __syncwarp();
    if (KV == KV_F16)
        values_f16(at + SLOT, p, keep, st);
    else
        values_i8(at + SLOT, w, keep, st);
    __syncwarp();
    fetch<KV>(it, next, true, at + SLOT);
}

/* All tiles of this warp in a context of one stretch; the first DEPTH are in its ring or on their way. */
template <int KV>
static __device__ __forceinline__ void fold(const item &it, const query16 &q, uint32_t ring, state16 &st)
{
    enum { DEPTH = sort<KV>::DEPTH, SLOT = sort<KV>::SLOT };
    uint32_t slot = 0;
    for (uint32_t base = threadIdx.x / 32 * 16; base < it.n; base += 16 * WARPS) {
        take_tile<KV>(it, q, base, base + DEPTH * 16 * WARPS, ring + 2 * slot * SLOT, st);
        slot = slot + 1 == DEPTH ? 0 : slot + 1;
    }
}

/* All tiles of this warp in the stretches of its block. `ahead` is the first that is not yet on its way. */
template <int KV, bool SHARED>
static __device__ __forceinline__ void fold_stretches(const item &it, const query16 &q, uint32_t ring,
                                                      cursor &ahead, state16 &st)
{
    enum { DEPTH = sort<KV>::DEPTH, SLOT = sort<KV>::SLOT };
    uint32_t slot = 0;
#pragma unroll 1
    for (uint32_t k = it.split; k < it.n_stretches; k += it.splits) {
        uint32_t end = min((k + 1) * it.stretch, it.n);
        clear16(st);
#pragma unroll 1
        for (uint32_t base = k * it.stretch + threadIdx.x / 32 * 16; base < end; base += 16 * WARPS) {
            take_tile<KV>(it, q, base, ahead.base, ring + 2 * slot * SLOT, st);
            ahead.advance(it);
            slot = slot + 1 == DEPTH ? 0 : slot + 1;
        }
        end_stretch<SHARED>(it, k, st);
    }
}

/* Merges the warps' states (o in the place of the rings) and the newest position: a thread has one
 * dimension of every head. */
template <int KV>
static __device__ __forceinline__ void leave(const item &it, const shared_part *s, const float *o)
{
    uint32_t d = threadIdx.x, group = it.a.n_heads / it.a.n_kv_heads, at = place_of<KV>(d);
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

template <int KV, bool SHARED> static __device__ __forceinline__ void attend(const bnet_cu_attn_args &a)
{
    enum { DEPTH = sort<KV>::DEPTH, SLOT = sort<KV>::SLOT };
    extern __shared__ __align__(128) uint8_t dynamic[];
    __shared__ __align__(16) shared_part s;
    __shared__ uint32_t arrived;
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = a.n_heads / a.n_kv_heads;
    uint32_t ring = shared_addr(dynamic) + warp * (2 * DEPTH * SLOT), h0 = (SHARED ? blockIdx.x / a.n_splits : blockIdx.x) * H16_HEADS;
    pdl_launch();
    if (!a.cs)
        pdl_wait();
    int pos = a.step.pos[blockIdx.z];
    uint32_t n = a.cs ? (uint32_t)pos : (uint32_t)pos + 1;
    uint32_t stretch = bnet_attn_batch_stretch(n), split = SHARED ? blockIdx.x % a.n_splits : 0;
    uint32_t n_stretches = n <= stretch ? 1 : (n + stretch - 1) / stretch;
    if (pos < 0 || split >= n_stretches) {
        if (a.cs)
            pdl_wait(); /* what comes after this kernel waits for it alone */
        return;
    }
    kv_view kv = kv_of(a, blockIdx.z, blockIdx.y);
    item it = {a,          kv.layer + kv.head * 2 * a.part_bytes,
               kv.table,   kv.head,
               blockIdx.z, h0,
               min(group - h0, (uint32_t)H16_HEADS), n,
               stretch,    n_stretches,
               split,      SHARED ? a.n_splits : 1,
               0,          0};
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(it.policy));
    if (lane * KV_POS <= (uint32_t)pos)
        it.mine = it.table[lane];
    cursor ahead(it);
    for (uint32_t d = 0; d < DEPTH; d++) {
        fetch<KV>(it, ahead.base, false, ring + 2 * d * SLOT);
        fetch<KV>(it, ahead.base, true, ring + (2 * d + 1) * SLOT);
        ahead.advance(it);
    }
    if (a.cs)
        pdl_wait();
    take_token<KV>(it, pos, &s);
    __syncthreads();
    newest(it, &s);
    state16 st;
    query16 q;
    clear16(st);
    query_load(q, &s, it.nh);
    if (n_stretches == 1) {
        fold<KV>(it, q, ring, st);
    } else {
        fold_stretches<KV, SHARED>(it, q, ring, ahead, st);
        if (SHARED && !meet(it, st, &arrived))
            return;
    }
    float *o = (float *)dynamic;
    copy_wait<0>();
    __syncthreads(); /* the rings are free */
    if (st.m != -INFINITY)
        put_state<KV>(st, it.nh, o + warp * H16_HEADS * H16_OLD);
    if (lane % 4 == 0) {
        s.m[warp][lane / 4] = st.m;
        s.l[warp][lane / 4] = st.l;
    }
    __syncthreads();
    leave<KV>(it, &s, o);
}

#define VARIANT(name, kv, shared, blocks)                                                          \
    KERNEL __launch_bounds__(THREADS, blocks) name(const __grid_constant__ bnet_cu_attn_args a)    \
    {                                                                                              \
        attend<kv, shared>(a);                                                                     \
    }
/* 128 registers where there are many blocks: the next kernel's start beside them. */
VARIANT(bnet_attn_batch_h128, KV_F16, false, 4)
VARIANT(bnet_attn_batch_h128_i8, KV_I8, false, 4)
VARIANT(bnet_attn_shared_h128, KV_F16, true, 3)
VARIANT(bnet_attn_shared_h128_i8, KV_I8, true, 3)
