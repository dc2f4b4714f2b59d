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

/* Two floats as high halves and what is left of them. */
static __device__ __forceinline__ void split_half(float x, float y, uint32_t *high, uint32_t *low)
{
    __half2 h = __floats2half2_rn(x, y);
    float2 f = __half22float2(h);
    __half2 l = __floats2half2_rn(x - f.x, y - f.y);
    *high = *(uint32_t *)&h;
    *low = *(uint32_t *)&l;
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

static __device__ __forceinline__ float through_half(float x)
{
    return __half2float(__float2half_rn(x));
}

#endif
