/* decode_matrix.cuh - one matrix of a layer in the decode kernel: a block takes the whole input, norms
 * and quantises it, multiplies its rows from shared memory and publishes them. Part of
 * decode_sm90.cu. */
#ifndef BNET_DECODE_MATRIX_CUH
#define BNET_DECODE_MATRIX_CUH

#include "decode_exchange.cuh"

#if BNET_SM90 || !defined(__CUDA_ARCH__)

/* One thread: this block's rows of a matrix of a layer on their way. */
static __device__ __forceinline__ void fetch(const context &c, uint32_t layer, uint32_t matrix)
{
    const task &t = c.b->tasks[matrix];
    if (t.bytes && layer < c.a.n_layers)
        bulk_load(shared_addr(c.weights + t.weights), c.layers()[layer].w[matrix] + t.from, t.bytes,
                  shared_addr(&c.b->full[matrix]));
}

/* A thread's elements of an input of n: in groups of four, THREADS groups apart. */
struct piece {
    float4 v[ROUNDS];
    uint32_t rounds; /* how many there are, the same for a warp */
};

/* check: elements may be NONE. Two lanes of a warp ask until theirs are there, then all do: if all of
 * them always asked, the L2 cache would have no time for anything else. */
static __device__ __forceinline__ void collect(piece &p, const float *in, bool check)
{
    uint32_t asked = 0, most = 0;
    if (check && p.rounds && threadIdx.x % 16 == 0) {
        const float *one = in + (threadIdx.x & 16 ? p.rounds - 1 : 0) * (THREADS * 4);
        while (none(peek(one)))
            ask_again(&asked);
    }
    __syncwarp();
#pragma unroll 1
    do {
        most = 0;
#pragma unroll
        for (uint32_t j = 0; j < ROUNDS; j++)
            if (j < p.rounds)
                p.v[j] = peek4(in + j * THREADS * 4);
#pragma unroll
        for (uint32_t j = 0; j < ROUNDS; j++)
            if (j < p.rounds)
                most = max(most, most4(p.v[j]));
        ask_again(&asked);
    } while (most == 0xffffffffu && check);
}

/* Weighs with the norm; over the block: the sum of squares, the largest of |x w|; one barrier. */
static __device__ __forceinline__ float2 reduce(block_state *b, piece &p, const float4 *w)
{
    float ss = 0, top = 0;
#pragma unroll
    for (uint32_t j = 0; j < ROUNDS; j++)
        if (j < p.rounds) {
            float4 &v = p.v[j];
            ss = fmaf(v.x, v.x, fmaf(v.y, v.y, fmaf(v.z, v.z, fmaf(v.w, v.w, ss))));
            v.x *= w[j].x, v.y *= w[j].y, v.z *= w[j].z, v.w *= w[j].w;
            top = fmaxf(fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w))), top);
        }
    uint32_t t = __reduce_max_sync(0xffffffffu, __float_as_uint(top));
    ss = warp_sum(ss);
    if (threadIdx.x % 32 == 0) {
        b->ss[threadIdx.x / 32] = ss;
        b->top[threadIdx.x / 32] = t;
    }
    __syncthreads();
    t = __reduce_max_sync(0xffffffffu, b->top[threadIdx.x % WARPS]);
    float4 s = *(const float4 *)b->ss;
#pragma unroll
    for (int i = 1; i < WARPS / 4; i++) {
        float4 x = *(const float4 *)(b->ss + 4 * i);
        s.x += x.x, s.y += x.y, s.z += x.z, s.w += x.w;
    }
    return make_float2((s.x + s.y) + (s.z + s.w), __uint_as_float(t));
}

static __device__ __forceinline__ float approximate(float x)
{
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

/* As code_scale, one step of Newton behind approximations. Returns the largest normed value. */
static __device__ __forceinline__ float scale_of(float2 both, bool norm, float n, float eps, float *inv)
{
    float r = approximate(both.y), s = 1.0f;
    *inv = 127.0f * fmaf(r, fmaf(-both.y, r, 1.0f), r);
    if (norm) {
        float v = fmaf(both.x, approximate(n), eps);
        asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(s) : "f"(v));
        s = fmaf(0.5f * s, fmaf(-v * s, s, 1.0f), s);
    }
    float most = both.y * s;
    if (!(most >= 1e-5f)) {
        most = 1e-5f;
        *inv = 127.0f * s * 1e5f;
    }
    return most;
}

/* Input of a phase: normed, quantised, in shared memory. Returns the largest normed value. */
static __device__ __forceinline__ float take(const context &c, uint32_t matrix, const float *in,
                                             bool check)
{
    const float *norm = c.layers()[c.layer].norm[matrix];
    uint32_t n = c.b->tasks[matrix].n, groups = n / 4, i = threadIdx.x;
    piece p;
    float4 w[ROUNDS];
    p.rounds = (groups + THREADS - 1 - (i & ~31u)) / THREADS;
#pragma unroll
    for (uint32_t j = 0; j < ROUNDS; j++) {
        w[j] = make_float4(1, 1, 1, 1);
        if (norm && j < p.rounds)
            w[j] = __ldg((const float4 *)norm + i + j * THREADS);
    }
    if (i < BNET_DECODE_TILES * 16)
        c.b->sums[c.parity][i] = 0;
    if (i == 0)
        c.b->sum[c.parity] = 0;
    collect(p, in + 4 * i, check);
    c.mark(matrix, 1);
    float2 both = reduce(c.b, p, w);
    c.mark(matrix, 2);
    float inv, most = scale_of(both, norm, (float)n, c.a.eps, &inv);
    uint32_t *to = (uint32_t *)(c.xs() + act_at(4 * i));
    int sum = 0;
#pragma unroll
    for (uint32_t j = 0; j < ROUNDS; j++)
        if (j < p.rounds) {
            uint32_t q0 = __float_as_uint(fmaf(p.v[j].x, inv, 12582912.0f));
            uint32_t q1 = __float_as_uint(fmaf(p.v[j].y, inv, 12582912.0f));
            uint32_t q2 = __float_as_uint(fmaf(p.v[j].z, inv, 12582912.0f));
            uint32_t q3 = __float_as_uint(fmaf(p.v[j].w, inv, 12582912.0f));
            uint32_t q = __byte_perm(__byte_perm(q0, q1, 0x0040), __byte_perm(q2, q3, 0x0040), 0x5410);
            to[j * THREADS] = q;
            sum = __dp4a((int)q, 0x01010101, sum);
        }
    sum = __reduce_add_sync(0xffffffffu, sum);
    if (i % 32 == 0)
        atomicAdd(&c.b->sum[c.parity], sum);
    barrier_wait(shared_addr(&c.b->full[matrix]), c.layer & 1);
    __syncthreads();
    c.mark(matrix, 3);
    return most;
}

/* This block's rows times the vector: warps take units in order, sums meet in shared memory. Then
 * the next layer's rows may come. */
static __device__ __forceinline__ void multiply(const context &c, uint32_t matrix)
{
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    uint4 span = *(const uint4 *)&c.b->spans[matrix][warp];
    uint32_t chunks = c.b->tasks[matrix].chunks, left = chunks - span.z;
    const uint8_t *w = c.weights + span.x + lane * 16, *x0 = c.xs() + t * 32;
    const uint8_t *x = x0 + span.z * BNET_W2_CHUNK;
    int *sums = c.b->sums[c.parity] + span.w + g;
    uint4 lo = make_uint4(0, 0, 0, 0), hi = lo; /* columns but the first are of no account */
#pragma unroll 1
    while (span.y) {
        uint32_t n = min(span.y, left);
        int acc[4][4] = {};
        span.y -= n;
#pragma unroll 1
        do {
            uint4 v = *(const uint4 *)w;
            if (g == 0) {
                lo = *(const uint4 *)x;
                hi = *(const uint4 *)(x + 16);
            }
            w += BNET_W2_UNIT;
            x += BNET_W2_CHUNK;
            const uint32_t b[8] = {lo.x, lo.y, lo.z, lo.w, hi.x, hi.y, hi.z, hi.w};
#pragma unroll
            for (int s = 0; s < 4; s++) {
                uint32_t mask = 0x03030303u << 2 * s;
                uint32_t r[4] = {v.x & mask, v.y & mask, v.z & mask, v.w & mask};
                mma_u8s8(acc[s], r, b[2 * s], b[2 * s + 1]);
            }
        } while (--n);
        if (t == 0) {
            atomicAdd(sums, unit_sum(acc, 0));
            atomicAdd(sums + 8, unit_sum(acc, 2));
        }
        sums += 16;
        left = chunks;
        x = x0;
    }
    __syncthreads();
    if (threadIdx.x == THREADS - 1)
        fetch(c, c.layer + 1, matrix);
    c.mark(matrix, 4);
}

/* most / 127 rounded as a division */
static __device__ __forceinline__ float by_127(float most)
{
    const float r = 1.0f / 127.0f;
    float q = most * r;
    return fmaf(fmaf(-q, 127.0f, most), r, q);
}

/* A thread publishes one row. rest: the residual of its row. */
static __device__ __forceinline__ void give(const context &c, uint32_t matrix, float most, float &rest)
{
    const task &t = c.b->tasks[matrix];
    uint32_t i = threadIdx.x;
    if (i < t.rows) {
        const float *scale = c.layers()[c.layer].scale;
        const int *sums = c.b->sums[c.parity];
        int sum = c.b->sum[c.parity];
        float x_scale = by_127(most), v;
        if (matrix == GATE_UP) {
            const int *p = sums + (i & ~7u) + i; /* i / 8 * 16 + i % 8 */
            float gate = __fmul_rn((float)(p[0] - sum), __fmul_rn(x_scale, scale[4]));
            float up = __fmul_rn((float)(p[8] - sum), __fmul_rn(x_scale, scale[5]));
            v = c.a.silu ? silu_gate(gate, up) : relu2_gate(gate, up);
        } else {
            uint32_t head = (t.first + i) / H16_DIM, q = c.a.n_heads, k = c.a.n_kv_heads;
            int part = matrix == QKV ? (head >= q) + (head >= q + k) : matrix == OUT ? 3 : 6;
            v = __fmul_rn((float)(sums[i] - sum), __fmul_rn(x_scale, scale[part]));
            if (matrix != QKV)
                v = rest = __fadd_rn(rest, v);
        }
        publish(c.exchange(0) + t.out + i, v);
        if (matrix == DOWN && c.layer + 1 == c.a.n_layers)
            c.a.x[t.first + i] = v;
    }
    c.mark(matrix, 5);
}

#endif

#endif
