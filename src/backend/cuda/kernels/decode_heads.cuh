/* decode_heads.cuh - the arithmetic of attention in the decode kernel: scores of the rows in shared
 * memory, weights, weighted values, and from the states of warps and blocks to outputs. Products
 * have positions or dimensions as rows and the high and low halves of four heads as columns. Part
 * of decode_sm90.cu. */
#ifndef BNET_DECODE_HEADS_CUH
#define BNET_DECODE_HEADS_CUH

#include "decode_rows.cuh"

#if BNET_SM90 || !defined(__CUDA_ARCH__)

/* Four matrices of 8 x 8 halves; TURNED: rows become columns. */
template <bool TURNED>
static __device__ __forceinline__ void load_matrices(uint32_t r[4], const uint8_t *p)
{
    if (TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(shared_addr(p))
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(shared_addr(p))
                     : "memory");
}

static __device__ __forceinline__ float power2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Floats as integers of the same order. */
static __device__ __forceinline__ int ordered(float x)
{
    int b = __float_as_int(x);
    return b ^ (b >> 31 & 0x7fffffff);
}

static __device__ __forceinline__ float unordered(int b)
{
    return __int_as_float(b ^ (b >> 31 & 0x7fffffff));
}

/* Column g of the queries, 32 dimensions each. */
static __device__ __forceinline__ void load_queries(const context &c, uint4 q[4])
{
    uint32_t lane = threadIdx.x % 32;
    const uint4 *from = (const uint4 *)(c.b->qh + lane / 4 * QH + lane % 4 * 4);
#pragma unroll
    for (int j = 0; j < 4; j++)
        q[j] = from[4 * j];
}

/* Scores of the rows from base on: a lane has one of them, base + g or 8 more for t >= 2, of heads
 * 2 (t & 1) and the next. `rows` exist. */
static __device__ __forceinline__ void scores(const attention_view &v, const uint4 q[4],
                                              uint32_t base, uint32_t rows, float s[2])
{
    uint32_t lane = threadIdx.x % 32, row = base + lane / 4 + (lane & 2) * 4;
    const uint8_t *at = v.keys + (base + lane % 16) * ROW + lane / 16 * 16;
    float c[2][4] = {};
#pragma unroll
    for (int j = 0; j < 8; j++) {
        uint32_t k[4];
        load_matrices<false>(k, at + 32 * j);
        mma_f16(c[j & 1], k, j & 1 ? q[j / 2].z : q[j / 2].x, j & 1 ? q[j / 2].w : q[j / 2].y);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        c[0][i] += c[1][i];
        c[0][i] += __shfl_xor_sync(0xffffffffu, c[0][i], 2);
    }
    s[0] = row < rows ? lane & 2 ? c[0][2] : c[0][0] : -INFINITY;
    s[1] = row < rows ? lane & 2 ? c[0][3] : c[0][1] : -INFINITY;
}

/* The largest scores of all warps, of heads 2 (t & 1) and the next, from a lane's own. */
static __device__ __forceinline__ float2 block_tops(const attention_view &v, float2 own)
{
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, second = lane & 1;
    int x = ordered(own.x), y = ordered(own.y), mine = 0;
#pragma unroll
    for (uint32_t h = 0; h < GROUP; h++) {
        int m = __reduce_max_sync(0xffffffffu, h / 2 == second ? h & 1 ? y : x : (int)0x80000000);
        mine = lane == h ? m : mine;
    }
    if (lane < GROUP)
        v.top[lane * WARPS + warp] = mine;
    __syncthreads();
    int4 w = *(const int4 *)(v.top + lane / 4 % GROUP * WARPS + lane % 4 * 4);
    int m = max(max(w.x, w.y), max(w.z, w.w));
    m = max(m, __shfl_xor_sync(0xffffffffu, m, 1));
    m = max(m, __shfl_xor_sync(0xffffffffu, m, 2));
    x = __shfl_sync(0xffffffffu, m, second * 8);
    y = __shfl_sync(0xffffffffu, m, second * 8 + 4);
    return make_float2(unordered(x), unordered(y));
}

/* A lane's weights of a row, of heads 2 (t & 1) and the next, to where products take them. */
static __device__ __forceinline__ void put_weights(const attention_view &v, uint32_t base, float a,
                                                   float b)
{
    uint32_t lane = threadIdx.x % 32, g = lane / 4, h = 2 * (lane & 1);
    uint32_t word = h * PS + base / 32 * 16 + g / 2 * 4 + base / 16 % 2 * 2 + (lane & 2) / 2;
    __half *to = (__half *)(v.p + word) + g % 2;
    __half x = __float2half_rn(a), y = __float2half_rn(b);
    to[0] = x;
    to[2 * PS] = y;
    to[2 * GROUP * PS] = __float2half_rn(a - __half2float(x));
    to[2 * (GROUP + 1) * PS] = __float2half_rn(b - __half2float(y));
}

/* A warp with outputs: PART positions' weighted values of dimensions 16 warp + g, + 8; columns are
 * high and low halves of heads. */
static __device__ __forceinline__ void add_values(const attention_view &v, uint32_t part,
                                                  float o[2][4])
{
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint8_t *at = part < HALF / PART ? v.values + part * PART * ROW
                                           : v.keys + (part - HALF / PART) * PART * ROW;
    const uint4 *p = (const uint4 *)(v.p + lane / 4 * PS + part * (PART / 2) + lane % 4 * 4);
    at += (lane % 8 + lane / 16 * 8) * ROW + warp * 32 + lane / 8 % 2 * 16;
#pragma unroll
    for (int m = 0; m < PART / 32; m++) {
        uint32_t k[2][4];
        uint4 w = p[4 * m];
        load_matrices<true>(k[0], at + m * 32 * ROW);
        load_matrices<true>(k[1], at + m * 32 * ROW + 16 * ROW);
        mma_f16(o[0], k[0], w.x, w.y);
        mma_f16(o[1], k[1], w.z, w.w);
    }
}

/* Another warp: the sum of its column of weights. */
static __device__ __forceinline__ float add_weights(const attention_view &v, uint32_t rows)
{
    uint32_t lane = threadIdx.x % 32, n = (rows + PART - 1) / PART * (PART / 2);
    const uint32_t *p = v.p + (threadIdx.x / 32 - GIVERS) * PS;
    float sum = 0;
#pragma unroll 1
    for (uint32_t i = 2 * lane; i < n; i += 64) {
        uint2 w = *(const uint2 *)(p + i);
        float2 a = __half22float2(*(const __half2 *)&w.x),
               b = __half22float2(*(const __half2 *)&w.y);
        sum += (a.x + a.y) + (b.x + b.y);
    }
    return warp_sum(sum);
}

/* The second half of the values to where the keys were. */
static __device__ __forceinline__ void put_held(const context &c, const share &s, uint32_t first,
                                                const values_held &held)
{
#pragma unroll
    for (uint32_t j = 0; j < IN_REGISTERS; j++) {
        uint4 x = held.v[j];
        if (held.row(j) + first == s.newest)
            x = ((const uint4 *)c.b->newest_row[1])[threadIdx.x % 16];
        *(uint4 *)(c.weights + held.at(j)) = x;
    }
}

/* The state of a warp: the largest scores of heads 2 (t & 1) and the next; outputs (as add_values
 * has them) or the sum of a column's weights. */
struct attended {
    float2 m;
    float o[2][4], l;
};

/* Another largest score: what is there weighs less. A column of weights is of one head. */
static __device__ __forceinline__ void rescale(attended &st, float x, float y)
{
    uint32_t h = threadIdx.x / 32 % GROUP;
    float f = __shfl_sync(0xffffffffu, h & 1 ? y : x, h / 2);
#pragma unroll
    for (int i = 0; i < 8; i++)
        st.o[i / 4][i % 4] *= i & 1 ? y : x;
    st.l *= f;
}

/* Rows from `first` on, which are in their places, into the state. */
static __device__ __forceinline__ void attend_rows(const context &c, const share &s, uint32_t first,
                                                   const uint4 q[4], const values_held &held,
                                                   attended &st)
{
    attention_view v = attention_of(c);
    uint32_t warp = threadIdx.x / 32, rows = min(s.rows - first, (uint32_t)ROWS);
    uint32_t parts = (rows + PART - 1) / PART;
    float sc[ROUNDS][2];
    float2 top = st.m, base;
#pragma unroll
    for (uint32_t r = 0; r < ROUNDS; r++) {
        sc[r][0] = sc[r][1] = -INFINITY;
        if (r * ROUND + 16 * warp < rows)
            scores(v, q, r * ROUND + 16 * warp, rows, sc[r]);
        top = make_float2(fmaxf(top.x, sc[r][0]), fmaxf(top.y, sc[r][1]));
    }
    top = block_tops(v, top);
    base.x = top.x == -INFINITY ? 0.0f : top.x;
    base.y = top.y == -INFINITY ? 0.0f : top.y;
    if (first)
        rescale(st, power2(st.m.x - base.x), power2(st.m.y - base.y));
    st.m = top;
    if (rows > HALF)
        put_held(c, s, first, held);
#pragma unroll
    for (uint32_t r = 0; r < ROUNDS; r++)
        if (r * ROUND + 16 * warp < parts * PART)
            put_weights(v, r * ROUND + 16 * warp, power2(sc[r][0] - base.x),
                        power2(sc[r][1] - base.y));
    __syncthreads();
    c.mark(4, 2);
    if (warp >= GIVERS)
        st.l += add_weights(v, rows);
    else
#pragma unroll 1
        for (uint32_t i = 0; i < parts; i++)
            add_values(v, i, st.o);
}

/* A lane's outputs: of dimension 16 warp + g or 8 more for t >= 2, heads 2 (t & 1) and the next. */
static __device__ __forceinline__ float2 outputs(const attended &st)
{
    float o[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        o[i] = st.o[0][i] + st.o[1][i];
        o[i] += __shfl_xor_sync(0xffffffffu, o[i], 2);
    }
    return threadIdx.x & 2 ? make_float2(o[2], o[3]) : make_float2(o[0], o[1]);
}

/* A block alone: its outputs are the attention's. o: a lane's. */
static __device__ __forceinline__ void give_heads(const context &c, const share &s, float2 o)
{
    const float *sum = attention_of(c).sum;
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, h = 2 * (lane & 1);
    float *to = c.exchange(0) + s.att + h * H16_DIM + 16 * warp + lane / 4 + (lane & 2) * 4;
    if (h < c.a.n_heads / c.a.n_kv_heads)
        publish(to, __fdividef(o.x, sum[h] + sum[GROUP + h]));
    if (h + 1 < c.a.n_heads / c.a.n_kv_heads)
        publish(to + H16_DIM, __fdividef(o.y, sum[h + 1] + sum[GROUP + h + 1]));
}

/* Outputs to the block of the cluster that puts these dimensions together. */
static __device__ __forceinline__ void send_heads(const context &c, const share &s,
                                                  const attended &st, float2 o)
{
    attention_view v = attention_of(c);
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, h = 2 * (lane & 1);
    uint32_t each = GIVERS / s.splits, rank = cluster_rank() - s.split + warp / each;
    uint32_t to = there(shared_addr(v.records + (s.split * each + warp % each) * RECORD), rank);
    uint32_t bar = there(shared_addr(&c.b->in[0]), rank), d = lane / 4 + (lane & 2) * 4;
    send(to + (h * 16 + d) * 4, __float_as_uint(o.x), bar);
    send(to + (h * 16 + 16 + d) * 4, __float_as_uint(o.y), bar);
    if (lane < 2) {
        send(to + (GROUP * 16 + h) * 4, __float_as_uint(st.m.x), bar);
        send(to + (GROUP * 16 + h + 1) * 4, __float_as_uint(st.m.y), bar);
        send(to + (GROUP * 17 + h) * 4, __float_as_uint(v.sum[h] + v.sum[GROUP + h]), bar);
        send(to + (GROUP * 17 + h + 1) * 4, __float_as_uint(v.sum[h + 1] + v.sum[GROUP + h + 1]),
             bar);
    }
}

/* Some warps: outputs of all blocks put together, two dimensions of a head a lane. */
static __device__ __forceinline__ void join_heads(const context &c, const share &s)
{
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, h = lane / 8, d = lane % 8 * 2;
    uint32_t each = GIVERS / s.splits;
    if (warp >= each)
        return;
    await(shared_addr(&c.b->in[0]), c.layer & 1);
    const float *record = attention_of(c).records + warp * RECORD;
    float m[CLUSTER], top = -INFINITY, l = 0;
    float2 o = make_float2(0, 0);
#pragma unroll
    for (uint32_t i = 0; i < CLUSTER; i++) {
        m[i] = i < s.splits ? record[i * each * RECORD + GROUP * 16 + h] : -INFINITY;
        top = fmaxf(top, m[i]);
    }
#pragma unroll
    for (uint32_t i = 0; i < CLUSTER; i++)
        if (i < s.splits) {
            const float *r = record + i * each * RECORD;
            float w = power2(m[i] - top);
            float2 x = *(const float2 *)(r + h * 16 + d);
            l = fmaf(w, r[GROUP * 17 + h], l);
            o.x = fmaf(w, x.x, o.x), o.y = fmaf(w, x.y, o.y);
        }
    l = __fdividef(1, l);
    if (h < c.a.n_heads / c.a.n_kv_heads)
        publish2(c.exchange(0) + s.att + h * H16_DIM + (s.split * each + warp) * 16 + d,
                 make_float2(o.x * l, o.y * l));
}

/* From the states of warps to the attention's outputs. */
static __device__ __forceinline__ void finish(const context &c, const share &s, const attended &st)
{
    uint32_t warp = threadIdx.x / 32;
    float2 o = make_float2(0, 0);
    if (warp < GIVERS)
        o = outputs(st);
    else if (threadIdx.x % 32 == 0)
        attention_of(c).sum[warp - GIVERS] = st.l;
    __syncthreads();
    if (s.splits == 1) {
        if (warp < GIVERS)
            give_heads(c, s, o);
        return;
    }
    if (warp < GIVERS)
        send_heads(c, s, st, o);
    join_heads(c, s);
    if (threadIdx.x == 0 && c.layer + 1 < c.a.n_layers)
        expect(shared_addr(&c.b->in[0]), GIVERS * RECORD * 4);
}

#endif

#endif
