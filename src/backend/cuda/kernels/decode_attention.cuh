/* decode_attention.cuh - attention of one token in the decode kernel, by blocks that do nothing
 * else: one per kv head, where the context is long the blocks of a cluster. Keys and values lie in
 * shared memory a layer ahead, what is more in registers. Warps share the positions for the scores
 * and the dimensions for the outputs, so that a block has nothing to merge; blocks of a cluster
 * send each other the outputs that one of them puts together. Part of decode_sm90.cu. */
#ifndef BNET_DECODE_ATTENTION_CUH
#define BNET_DECODE_ATTENTION_CUH

#include "decode_heads.cuh"

#if BNET_SM90 || !defined(__CUDA_ARCH__)

/* A query as what scores() multiplies: high and low halves as 2 GROUP columns. */
static __device__ __forceinline__ void put_query(block_state *b, uint32_t h, uint32_t d, float x)
{
    __half high = __float2half_rn(x), low = __float2half_rn(x - __half2float(high));
    uint32_t word = h * QH + d / 32 * 16 + d % 8 / 2 * 4 + d / 16 % 2 * 2 + d / 8 % 2;
    __half *to = (__half *)(b->qh + word) + d % 2;
    to[0] = high;
    to[2 * GROUP * QH] = low;
}

/* An element of the newest key or value into its row, if it has one yet, and into the cache. */
static __device__ __forceinline__ void put_newest(const context &c, const share &s, uint32_t is_v,
                                                  uint32_t d, float x)
{
    __half f = __float2half_rn(x);
    attention_view v = attention_of(c);
    c.b->newest_row[is_v][d] = f;
    if (s.newest < (is_v ? HALF : ROWS))
        ((__half *)((is_v ? v.values : v.keys) + s.newest * ROW))[d] = f;
    if (s.real)
        ((__half *)(c.b->newest + c.layer * c.b->layer_bytes + is_v * c.a.part_bytes))[d] = f;
}

/* Queries, key and value of this kv head, rotated; the newest ones into the cache. A thread has two
 * dimensions that are rotated together. */
static __device__ __forceinline__ void take_heads(const context &c, const share &s)
{
    block_state *b = c.b;
    uint32_t group = c.a.n_heads / c.a.n_kv_heads, h = threadIdx.x / 64, j = threadIdx.x % 64;
    uint32_t half = c.a.n_rot / 2, d = c.a.neox ? j : 2 * j, e = c.a.neox ? j + half : 2 * j + 1,
             asked = 0;
    bool turn = j < half && h != GROUP + 1, query = h < group;
    bool newest = h >= GROUP && h < GROUP + 2 && s.newest < s.rows;
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
        while (true) {
            x = peek(from + d);
            y = peek(from + e);
            if (!none(x) && !none(y))
                break;
            ask_again(&asked);
        }
        if (turn) {
            float z = __fadd_rn(__fmul_rn(x, cs.y), __fmul_rn(y, cs.x));
            x = __fsub_rn(__fmul_rn(x, cs.x), __fmul_rn(y, cs.y));
            y = z;
        }
        if (query) {
            put_query(b, h, d, x * (c.a.scale * 1.44269504f));
            put_query(b, h, e, y * (c.a.scale * 1.44269504f));
        } else {
            put_newest(c, s, h - GROUP, d, x);
            put_newest(c, s, h - GROUP, e, y);
        }
    }
    __syncthreads();
}

/* One layer. ready: how many times rows were staged and waited for. */
static __device__ __forceinline__ void attend(const context &c, const share &s, values_held &held,
                                              uint32_t &ready)
{
    attended st = {{-INFINITY, -INFINITY}, {}, 0};
    uint4 q[4];
    c.mark(4, 0);
    take_heads(c, s);
    c.mark(4, 1);
    load_queries(c, q);
    await(shared_addr(&c.b->full[0]), ready++ & 1);
    attend_rows(c, s, 0, q, held, st);
#pragma unroll 1
    for (uint32_t first = ROWS; first < s.rows; first += ROWS) {
        async_fence();
        __syncthreads(); /* what lay there has been read */
        stage(c, s, first, c.layer, held);
        await(shared_addr(&c.b->full[0]), ready++ & 1);
        if (s.newest - first < ROWS && threadIdx.x < 32) {
            attention_view v = attention_of(c);
            uint32_t row = s.newest - first, is_v = threadIdx.x / 16, u = threadIdx.x % 16;
            uint4 x = ((const uint4 *)c.b->newest_row[is_v])[u];
            if (!is_v || row < HALF)
                ((uint4 *)((is_v ? v.values : v.keys) + row * ROW))[u] = x;
        }
        __syncthreads();
        attend_rows(c, s, first, q, held, st);
    }
    finish(c, s, st);
    c.mark(4, 3);
}

/* A block that does nothing else. Values of rows that no position has meet weights of nothing: they
 * must be numbers. */
static __device__ __forceinline__ void run_attention(context &c, const share &s)
{
    uint32_t *values = (uint32_t *)attention_of(c).values, ready = 0;
    values_held held;
    if (threadIdx.x == 0)
        c.b->newest = key_at(c, s, s.pos);
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < HALF * ROW / 4; i += THREADS)
        values[i] = 0;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < 2 * GROUP * QH;
         i += THREADS) /* of heads that are not there */
        c.b->qh[i] = 0;
#pragma unroll
    for (uint32_t j = 0; j < IN_REGISTERS; j++)
        held.v[j] = make_uint4(0, 0, 0, 0);
    async_fence();
    __syncthreads();
    stage(c, s, 0, 0, held);
#pragma unroll 1
    for (; c.layer < c.a.n_layers; c.layer++, c.turn++) {
        attend(c, s, held, ready);
        async_fence();
        __syncthreads(); /* what lies there has been read */
        stage(c, s, 0, c.layer + 1, held);
        clear_heads(c, s);
    }
}

#endif

#endif
