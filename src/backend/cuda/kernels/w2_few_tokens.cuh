/* w2_few_tokens.cuh - ternary matrix times two to eight int8 vectors (8.0 and up), dealt out as for
 * one (w2_one_token.cuh): the columns of the integer products are the vectors. */
#ifndef BNET_W2_FEW_TOKENS_CUH
#define BNET_W2_FEW_TOKENS_CUH

#include "w2_one_token.cuh"

/* Words of 512 bytes of a vector into the order of the products: lane 8 c + 2 s + h has words t =
 * 0..3 of bytes 32 s + 16 h of chunk c. to: [chunk][t][s][h] words, BNET_FEW_CHUNK bytes a chunk.
 */
static __device__ __forceinline__ void take_vector(const int8_t *q, uint32_t chunk,
                                                   uint32_t n_chunks, uint8_t *to)
{
    uint32_t lane = threadIdx.x % 32, c = chunk + lane / 8;
    if (c >= n_chunks)
        return;
    uint4 v = load_fresh16(q + c * BNET_W2_CHUNK + lane % 8 * 16);
    uint32_t *at = (uint32_t *)(to + c * BNET_FEW_CHUNK) + lane % 8;
    at[0] = v.x, at[8] = v.y, at[16] = v.z, at[24] = v.w;
}

/* UNITS of a warp in registers. */
template <int UNITS> static __device__ __forceinline__ void few_tokens(const bnet_cu_few_args &o)
{
    extern __shared__ __align__(128) uint8_t xs[];
    __shared__ uint32_t act[2][BNET_GEMV_TOKENS]; /* scales, sums */
    const bnet_cu_w2 &m = o.g.m;
    uint32_t warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    uint32_t b = blockIdx.x, first = b * o.tiles + min(b, o.more), n_tiles = o.tiles + (b < o.more);
    uint32_t tile = warp * o.inv >> 16, chunk = (warp - tile * o.split) * o.per;
    uint32_t n = tile < n_tiles ? min(o.per, m.n_chunks - chunk) : 0, tokens = o.g.n_tokens;
    const uint8_t *w =
        m.w + ((size_t)(first + tile) * m.n_chunks + chunk) * BNET_W2_UNIT + lane * 16;
    uint32_t vector = m.n_chunks * BNET_FEW_CHUNK + 16;
    int *sums = (int *)(xs + tokens * vector); /* [tile][token][16] */
    uint4 v[UNITS];
    pdl_launch();
#pragma unroll
    for (int i = 0; i < UNITS; i++)
        if (i < n)
            v[i] = load_stream(w + i * BNET_W2_UNIT);
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < n_tiles * tokens * BNET_W2_TILE; i += blockDim.x)
        sums[i] = 0;
    pdl_wait();
    if (threadIdx.x < tokens) {
        act[0][threadIdx.x] = load_fresh(o.g.act.scale + threadIdx.x);
        act[1][threadIdx.x] = load_fresh(o.g.act.sum + threadIdx.x);
    }
    uint32_t quads = (m.n_chunks + 3) / 4;
#pragma unroll 1
    for (uint32_t t = 0, at = warp; t < tokens; at += blockDim.x / 32) {
        for (; at >= quads && t < tokens; at -= quads)
            t++;
        if (t < tokens)
            take_vector(o.g.act.q + (size_t)t * o.g.act.stride, 4 * at, m.n_chunks,
                        xs + t * vector);
    }
    __syncthreads();
    bool has = lane / 4 < tokens;
    const uint8_t *x = xs + (has ? lane / 4 : 0) * vector + chunk * BNET_FEW_CHUNK + lane % 4 * 32;
    int acc[4][4] = {};
#pragma unroll
    for (int i = 0; i < UNITS; i++)
        if (i < n)
            unit_multiply(v[i], x + i * BNET_FEW_CHUNK, has, acc);
    if (n) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t token = lane % 4 * 2 + (i & 1), row = lane / 4 + 8 * (i >> 1);
            int s = unit_sum(acc, i);
            if (token < tokens)
                atomicAdd(&sums[(tile * tokens + token) * BNET_W2_TILE + row], s);
        }
    }
    __syncthreads();
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < n_tiles * tokens * 8; i += blockDim.x) {
        uint32_t at = i / 8, tl = at / tokens, token = at - tl * tokens;
        const int *s = sums + at * BNET_W2_TILE + i % 8;
        int sum = (int)act[1][token];
        w2_finish(m, first + tl, i % 8, token, s[0] - sum, s[8] - sum,
                  __uint_as_float(act[0][token]), o.g.epilogue);
    }
}

#endif
