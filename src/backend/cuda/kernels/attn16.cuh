/* attn16.cuh - 16 positions of an f16 cache of head_dim 128 against up to 8 query heads, by one warp
 * on the tensor cores, from global memory straight into registers.
 *
 * The order in which a product sums its dimensions is free, so a lane takes 16 bytes of a row and
 * they are its B operand for two products; values need one byte permutation. Queries and weights
 * are split into a high and a low half (rows g and g + 8 of the A operand), which makes the products
 * as good as float ones at no cost: the rows would be empty. */
#ifndef BNET_ATTN16_CUH
#define BNET_ATTN16_CUH

#include "kv.cuh"

enum { H16_DIM = 128, H16_HEADS = 8 };
enum { H16_QLD = 132, H16_OLD = 144 }; /* floats between queries, outputs: no bank twice */

/* Where dimension d of an output lies: what the lanes of a warp store together are neighbours. */
static __device__ __forceinline__ uint32_t at16(uint32_t d)
{
    return (d & 64) + (d >> 3 & 1) * 32 + (d >> 2 & 1) * 16 + (d >> 4 & 3) * 4 + (d & 3);
}

struct kv16 {
    uint4 k[2][4], v[2][4];
};

/* Positions base .. base + 15 (base a multiple of 16), those from `end` on repeated. */
static __device__ __forceinline__ void keys16_load(kv16 &r, const kv_view &kv, uint32_t base,
                                                   uint32_t end)
{
    uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, last = end - 1 - base;
    const uint8_t *part = kv.part(base / KV_POS, 0) + base % KV_POS * (H16_DIM * 2);
#pragma unroll
    for (uint32_t n = 0; n < 2; n++) {
        const uint4 *row = (const uint4 *)(part + min(8 * n + g, last) * (H16_DIM * 2));
#pragma unroll
        for (int j = 0; j < 4; j++)
            r.k[n][j] = row[4 * j + t];
    }
}

static __device__ __forceinline__ void values16_load(kv16 &r, const kv_view &kv, uint32_t base,
                                                     uint32_t end)
{
    uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, last = end - 1 - base;
    const uint8_t *part = kv.part(base / KV_POS, 1) + base % KV_POS * (H16_DIM * 2);
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t p = 2 * t + (i & 1) + 8 * (i >> 1);
        const uint4 *row = (const uint4 *)(part + min(p, last) * (H16_DIM * 2));
        r.v[0][i] = row[g];
        r.v[1][i] = row[8 + g];
    }
}

static __device__ __forceinline__ void kv16_load(kv16 &r, const kv_view &kv, uint32_t base,
                                                 uint32_t end)
{
    keys16_load(r, kv, base, end);
    values16_load(r, kv, base, end);
}

/* Two floats as high halves and what is left of them. */
static __device__ __forceinline__ void split_half(float x, float y, uint32_t *high, uint32_t *low)
{
    __half2 h = __floats2half2_rn(x, y);
    float2 f = __half22float2(h);
    __half2 l = __floats2half2_rn(x - f.x, y - f.y);
    *high = *(uint32_t *)&h;
    *low = *(uint32_t *)&l;
}

/* s[n][i]: head g, position 8n + 2t + i. q [heads][H16_QLD] in shared memory. */
static __device__ __forceinline__ void scores16(const kv16 &r, const float *q, uint32_t n_heads,
                                                float s[2][2])
{
    uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    float c[2][4] = {};
#pragma unroll
    for (int j = 0; j < 4; j++) {
        float4 x = make_float4(0, 0, 0, 0), y = x;
        if (g < n_heads) {
            const float4 *p = (const float4 *)(q + g * H16_QLD + 32 * j + 8 * t);
            x = p[0], y = p[1];
        }
        uint32_t a[2][4];
        split_half(x.x, x.y, &a[0][0], &a[0][1]);
        split_half(x.z, x.w, &a[0][2], &a[0][3]);
        split_half(y.x, y.y, &a[1][0], &a[1][1]);
        split_half(y.z, y.w, &a[1][2], &a[1][3]);
#pragma unroll
        for (int n = 0; n < 2; n++) {
            mma_f16(c[n], a[0], r.k[n][j].x, r.k[n][j].y);
            mma_f16(c[n], a[1], r.k[n][j].z, r.k[n][j].w);
        }
    }
#pragma unroll
    for (int n = 0; n < 2; n++) {
        s[n][0] = c[n][0] + c[n][2];
        s[n][1] = c[n][1] + c[n][3];
    }
}

/* The state of a warp, head g: m and l (equal in a quad), and dimensions 64 half + 16 t + 8 n + i of
 * the output. Queries carry log2(e) / sqrt(head_dim): weights are powers of two. */
struct state16 {
    float m, l, o[2][2][8]; /* [half][n][i] */
};

static __device__ __forceinline__ void clear16(state16 &st)
{
    st.m = -INFINITY;
    st.l = 0;
#pragma unroll
    for (int i = 0; i < 32; i++)
        st.o[i / 16][i / 8 % 2][i % 8] = 0;
}

/* Adds 64 dimensions of the values weighted with `p` (A operand) to o times keep. */
static __device__ __forceinline__ void values16(const uint4 v[4], const uint32_t *p, float keep,
                                                float o[2][8])
{
    const uint32_t *r0 = (const uint32_t *)&v[0], *r1 = (const uint32_t *)&v[1];
    const uint32_t *r2 = (const uint32_t *)&v[2], *r3 = (const uint32_t *)&v[3];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float c[4] = {};
        uint32_t sel = i & 1 ? 0x7632 : 0x5410;
        mma_f16(c, p, __byte_perm(r0[i / 2], r1[i / 2], sel),
                __byte_perm(r2[i / 2], r3[i / 2], sel));
        o[0][i] = fmaf(o[0][i], keep, c[0] + c[2]);
        o[1][i] = fmaf(o[1][i], keep, c[1] + c[3]);
    }
}

/* From scores to weights: the A operand of the values. Returns what becomes of the state before. */
static __device__ __forceinline__ float weights16(float s[2][2], state16 &st, uint32_t p[4])
{
    float sum = 0, top = st.m;
#pragma unroll
    for (int i = 0; i < 4; i++)
        top = fmaxf(top, s[i / 2][i % 2]);
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
    float keep = st.m == -INFINITY ? 0.0f : exp2f(st.m - top);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        s[i / 2][i % 2] = exp2f(s[i / 2][i % 2] - top);
        sum += s[i / 2][i % 2];
    }
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    st.l = st.l * keep + sum;
    st.m = top;
    split_half(s[0][0], s[0][1], &p[0], &p[1]);
    split_half(s[1][0], s[1][1], &p[2], &p[3]);
    return keep;
}

/* Takes the 16 positions from `base` in r into the state; those from `next` (if below end) are on
 * their way into r then: keys as soon as the old ones are used, values too. */
static __device__ __forceinline__ void fold16(kv16 &r, const kv_view &kv, const float *q,
                                              uint32_t n_heads, uint32_t base, uint32_t next,
                                              uint32_t end, state16 &st)
{
    uint32_t t = threadIdx.x % 4, p[4];
    float s[2][2];
    scores16(r, q, n_heads, s);
    if (next < end)
        keys16_load(r, kv, next, end);
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (base + 8 * (i / 2) + 2 * t + i % 2 >= end)
            s[i / 2][i % 2] = -INFINITY;
    float keep = weights16(s, st, p);
    values16(r.v[0], p, keep, st.o[0]);
    values16(r.v[1], p, keep, st.o[1]);
    if (next < end)
        values16_load(r, kv, next, end);
}

/* The state's output of head g into o [heads][H16_OLD], dimensions in the order of at16. */
static __device__ __forceinline__ void store16(const state16 &st, uint32_t n_heads, float *o)
{
    uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    if (g >= n_heads)
        return;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float *f = &st.o[i / 4][i / 2 % 2][i % 2 * 4];
        *(float4 *)(o + g * H16_OLD + 16 * i + 4 * t) = make_float4(f[0], f[1], f[2], f[3]);
    }
}

/* Merges n states of one head: m, l [i * step], outputs at o + i * o_step. Their element d, not yet
 * divided by l. States with m = -inf are empty. */
static __device__ __forceinline__ float merge16(const float *m, const float *l, const float *o,
                                                uint32_t n, uint32_t step, uint32_t o_step,
                                                uint32_t d, float *m_out, float *l_out)
{
    float top = -INFINITY, sum = 0, r = 0;
    for (uint32_t i = 0; i < n; i++)
        top = fmaxf(top, m[i * step]);
    for (uint32_t i = 0; i < n; i++)
        if (m[i * step] != -INFINITY) {
            float w = exp2f(m[i * step] - top);
            sum += w * l[i * step];
            r += w * o[i * o_step + d];
        }
    *m_out = top;
    *l_out = sum;
    return r;
}

/* A warp: the newest position, not yet in the cache, as a state of its own for one head: k, v as the
 * cache will hold them. */
static __device__ __forceinline__ float newest16(const float *q, const float *k, const float *v,
                                                 float *o)
{
    uint32_t lane = threadIdx.x % 32;
    float dot = 0;
#pragma unroll
    for (uint32_t i = 0; i < H16_DIM; i += 32) {
        dot = fmaf(q[i + lane], k[i + lane], dot);
        o[at16(i + lane)] = v[i + lane];
    }
    return warp_sum(dot);
}

static __device__ __forceinline__ float through_half(float x)
{
    return __half2float(__float2half_rn(x));
}

#endif
