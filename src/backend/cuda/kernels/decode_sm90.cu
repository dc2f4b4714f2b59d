/* decode_sm90.cu - all layers of one token in one kernel: blocks that never leave, weights fetched a
 * layer ahead, results exchanged through vectors whose elements say themselves when they are there.
 *
 * A layer has five phases: q + k + v, attention, o, gate + up, down. In a phase a block takes the
 * whole input vector (every thread asks for its elements until none of them is NONE), norms and
 * quantises it, multiplies its rows from shared memory and publishes them. The vectors of four layers
 * lie side by side. Between q + k + v of layer c and o a block makes what it published in layer c - 2
 * NONE again: everybody has read it, since all of x of layer c - 1 was there; and nobody asks for
 * layer c + 2 in the same place before all of c + 1 is there, published after a fence behind that.
 *
 * What counts here is the number of instructions between input and output, since 16 warps wait for
 * the slowest: everything that can be known is computed once at the beginning, and one loop runs
 * through all phases. Attention is done by one block per kv head, by several where the context is
 * long; the first of them puts the states together. */
#include "attn16.cuh"
#include "backend/cuda/decode.h"
#include "w2_units.cuh"

#if BNET_SM90 || !defined(__CUDA_ARCH__)

enum { THREADS = BNET_DECODE_THREADS, WARPS = THREADS / 32, GROUP = 4, STATES = WARPS + 1 };
enum { QKV, OUT, GATE_UP, DOWN };                           /* matrices */
enum { AT_X, AT_MID_X, AT_QKV, AT_ATT, AT_MID, AT_STATES }; /* parts of the exchange */
enum { ROUNDS = 4, STATE = BNET_DECODE_STATE, NONE = -1 };
enum { QH = 132 }; /* words of a head's split queries, no bank twice */

/* What a block does with a matrix. */
struct task {
    uint32_t n, chunks, in, out; /* columns; units of a tile; floats of the exchange */
    uint32_t rows, first, bytes, from; /* published rows; of all; of weights; where they begin */
    uint32_t weights, pad[3]; /* in shared memory */
};

/* What a warp multiplies: offset of its units, how many, chunk of the first, its row of sums. */
struct span {
    uint32_t at, n, chunk, row;
};

/* A block's part in attention. */
struct share {
    uint32_t head, split, n_splits, begin, end, pos;
    uint32_t att, states; /* where this thread's results go; floats of the exchange */
    bool attends, real;   /* real: not padding, the cache may be written */
};

struct block_state {
    alignas(16) float ss[WARPS];
    alignas(16) uint32_t top[WARPS];
    alignas(16) int sums[2][BNET_DECODE_TILES * 16];
    alignas(16) float q[GROUP * H16_QLD];
    alignas(16) uint32_t qh[GROUP * QH]; /* [head][j][t]: A operands of two products */
    alignas(16) task tasks[4];
    alignas(16) span spans[4][WARPS];
    unsigned long long full[4];
    int sum[2];
    float cs[H16_DIM], k[H16_DIM], v[H16_DIM];
    float m[STATES][GROUP], l[STATES][GROUP];
    share part;
    const uint8_t *keys[WARPS]; /* of a warp's first positions in layer 0 */
    uint8_t *newest; /* the key of the newest position in layer 0; its value lies part_bytes further */
    uint64_t layer_bytes;
    uint32_t turn, step; /* step: floats of a layer's exchange */
};

struct context {
    const bnet_cu_decode_args &a;
    block_state *b;
    uint8_t *weights;
    uint32_t layer, turn, parity; /* turn: of the exchange; parity: of the phases of this block */

    /* shared memory behind the weights: outputs of attention's states [STATES][GROUP][H16_OLD], a
     * copy of the layers, the codes */
    __device__ __forceinline__ float *o() const
    {
        return (float *)(weights + a.most);
    }
    __device__ __forceinline__ const bnet_cu_layer *layers() const
    {
        return (const bnet_cu_layer *)(weights + a.most + BNET_DECODE_STATES_BYTES);
    }
    __device__ __forceinline__ uint8_t *xs() const
    {
        return (uint8_t *)(layers() + a.n_layers);
    }
    /* the exchange of this layer (0) or of some later one */
    __device__ __forceinline__ float *exchange(uint32_t later) const
    {
        return a.exchange + ((turn + later) & 3) * b->step;
    }
    __device__ __forceinline__ void mark(int phase, int i) const
    {
#ifdef BNET_DECODE_TRACE
        if (a.trace && threadIdx.x == 0 && layer == a.n_layers / 2)
            a.trace[blockIdx.x * BNET_DECODE_TRACE_LD + phase * 8 + i] = clock64();
#endif
    }
};

/* ---- exchange ---- */

static __device__ __forceinline__ float4 peek4(const float *p)
{
    float4 v;
    asm volatile("ld.relaxed.gpu.global.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}

static __device__ __forceinline__ float peek(const float *p)
{
    float v;
    asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(v) : "l"(p) : "memory");
    return v;
}

static __device__ __forceinline__ bool none(float v)
{
    return __float_as_int(v) == NONE;
}

/* Some element is not there: NONE is the largest of all bit patterns. */
static __device__ __forceinline__ uint32_t most4(float4 v)
{
    return max(max(__float_as_uint(v.x), __float_as_uint(v.y)),
               max(__float_as_uint(v.z), __float_as_uint(v.w)));
}

/* A launch whose blocks are not all resident would wait for ever: better a trap. */
static __device__ __forceinline__ void ask_again(uint32_t *rounds)
{
    if (++*rounds > 8000000)
        __trap();
}

static __device__ __forceinline__ void publish(float *p, float v)
{
    asm volatile("st.relaxed.gpu.global.f32 [%0], %1;" ::"l"(p), "f"(v) : "memory");
}

/* ---- matrices ---- */

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

/* ---- attention ---- */

/* The last blocks attend: they have no rows of o, which comes next. */
static __device__ __forceinline__ share share_of(const bnet_cu_decode_args &a, int at)
{
    uint32_t pos = (uint32_t)max(at, 0), block = gridDim.x - 1 - blockIdx.x;
    uint32_t most = min((uint32_t)BNET_DECODE_SPLITS, gridDim.x / a.n_kv_heads);
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
    kv_view v = {(uint8_t *)q.kv + (size_t)layer * q.layer_bytes, c.a.step.tables + q.table, s.head,
                 c.a.n_kv_heads, c.a.part_bytes, H16_DIM};
    return v;
}

/* Next layer's keys and values of this warp into L2; keys: of this layer. */
static __device__ __forceinline__ void warm(const context &c, const uint8_t *keys)
{
    uint32_t lane = threadIdx.x % 32;
    if (c.layer + 1 < c.a.n_layers && lane < 2)
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(
                         keys + c.b->layer_bytes + lane * c.a.part_bytes),
                     "r"(16 * H16_DIM * 2)
                     : "memory");
}

/* Element d of a head of which mine and his, its partner, are known. */
static __device__ __forceinline__ float turned(const context &c, uint32_t d, uint32_t other, float mine,
                                               float his)
{
    if (d >= c.a.n_rot)
        return mine;
    uint32_t j = c.a.neox ? min(d, other) : d / 2;
    float2 cs = *(const float2 *)&c.b->cs[2 * j];
    return d > other ? __fadd_rn(__fmul_rn(his, cs.y), __fmul_rn(mine, cs.x))
                     : __fsub_rn(__fmul_rn(mine, cs.x), __fmul_rn(his, cs.y));
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

/* Queries, key and value of this kv head, rotated; the newest ones into the cache. Heads h = 0, 1 of
 * threads take the key and the value too. */
static __device__ __forceinline__ void take_heads(const context &c, const share &s)
{
    block_state *b = c.b;
    uint32_t group = c.a.n_heads / c.a.n_kv_heads, h = threadIdx.x / H16_DIM, d = threadIdx.x % H16_DIM;
    uint32_t half = c.a.n_rot / 2, other = c.a.neox ? (d < half ? d + half : d - half) : d ^ 1, asked = 0;
    const float *q = c.exchange(0) + c.b->tasks[QKV].pad[0];
    const float *x = q + (c.a.n_heads + min(h, 1u) * c.a.n_kv_heads + s.head) * H16_DIM;
    q += (s.head * group + min(h, group - 1)) * H16_DIM;
    float v[4];
    other = d < c.a.n_rot ? other : d;
#pragma unroll 1
    do {
        v[0] = peek(q + d);
        v[1] = peek(q + other);
        v[2] = peek(x + d);
        v[3] = peek(x + other);
        ask_again(&asked);
    } while (none(v[0]) || none(v[1]) || none(v[2]) || none(v[3]));
    if (h < group)
        put_query(b, h, d, turned(c, d, other, v[0], v[1]) * (c.a.scale * 1.44269504f));
    if (s.split == s.n_splits - 1 && h < 2) {
        __half f = __float2half_rn(h ? v[2] : turned(c, d, other, v[2], v[3]));
        (h ? b->v : b->k)[d] = __half2float(f);
        if (s.real)
            ((__half *)(b->newest + c.layer * b->layer_bytes + h * c.a.part_bytes))[d] = f;
    }
    __syncthreads();
}

/* As scores16, queries split already. */
static __device__ __forceinline__ void scores(const kv16 &r, const uint32_t *qh, uint32_t n_heads,
                                              float s[2][2])
{
    uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    float c[2][4] = {};
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
            mma_f16(c[n], x, r.k[n][j].x, r.k[n][j].y);
            mma_f16(c[n], y, r.k[n][j].z, r.k[n][j].w);
        }
    }
#pragma unroll
    for (int n = 0; n < 2; n++) {
        s[n][0] = c[n][0] + c[n][2];
        s[n][1] = c[n][1] + c[n][3];
    }
}

/* A lane's part of 16 positions, the first n of them there (others are the last one again), from
 * where their keys begin, as keys16_load and values16_load. */
static __device__ __forceinline__ void load_keys(kv16 &r, const uint8_t *keys, uint32_t last)
{
    uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (uint32_t n = 0; n < 2; n++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            r.k[n][j] = ((const uint4 *)(keys + min(8 * n + g, last) * (H16_DIM * 2)))[4 * j + t];
}

static __device__ __forceinline__ void load_values(kv16 &r, const uint8_t *values, uint32_t last)
{
    uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t p = 2 * t + (i & 1) + 8 * (i >> 1);
        const uint4 *row = (const uint4 *)(values + min(p, last) * (H16_DIM * 2));
        r.v[0][i] = row[g];
        r.v[1][i] = row[8 + g];
    }
}

/* The 16 positions of which r has the keys, all behind `last` left out, into the state; values: where
 * theirs begin. */
static __device__ __forceinline__ void fold(kv16 &r, const uint8_t *values, const uint32_t *qh,
                                            uint32_t n_heads, uint32_t last, state16 &st)
{
    uint32_t t = threadIdx.x % 4, p[4];
    float s[2][2];
    load_values(r, values, last);
    scores(r, qh, n_heads, s);
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

/* The first block of a kv head: states of the others, merged with its own; BATCH at a time. */
static __device__ __forceinline__ float gather_states(const context &c, const share &s, uint32_t h,
                                                      uint32_t d, float m, float l, float o)
{
    enum { BATCH = 5 };
    const float *from = c.exchange(0) + s.states;
    uint32_t asked = 0;
#pragma unroll 1
    for (uint32_t i = 1; i < s.n_splits; i += BATCH) {
        float ms[BATCH], ls[BATCH], os[BATCH], top = m;
        bool again;
#pragma unroll 1
        do {
            again = false;
#pragma unroll
            for (uint32_t j = 0; j < BATCH; j++) { /* the last one again where there are no more */
                const float *p = from + min(i + j, s.n_splits - 1) * STATE;
                ms[j] = peek(p + GROUP * H16_DIM + h);
                ls[j] = peek(p + GROUP * H16_DIM + GROUP + h);
                os[j] = peek(p + h * H16_DIM + d);
            }
#pragma unroll
            for (uint32_t j = 0; j < BATCH; j++)
                again = again || none(ms[j]) || none(ls[j]) || none(os[j]);
            ask_again(&asked);
        } while (again);
#pragma unroll
        for (uint32_t j = 0; j < BATCH; j++) {
            ms[j] = i + j < s.n_splits ? ms[j] : -INFINITY;
            top = fmaxf(top, ms[j]);
        }
        float keep = m == -INFINITY ? 0.0f : exp2f(m - top);
        l *= keep, o *= keep, m = top;
#pragma unroll
        for (uint32_t j = 0; j < BATCH; j++) {
            float w = ms[j] == -INFINITY ? 0.0f : exp2f(ms[j] - top);
            l = fmaf(w, ls[j], l);
            o = fmaf(w, os[j], o);
        }
    }
    return o / l;
}

/* Element d of head h, merged from the states of the warps (a lane knows the weight of one), to its
 * place. Four warps have a head. */
static __device__ __forceinline__ void give_heads(const context &c, const share &s, uint32_t n_states)
{
    uint32_t group = c.a.n_heads / c.a.n_kv_heads, h = threadIdx.x / H16_DIM, d = threadIdx.x % H16_DIM;
    uint32_t lane = threadIdx.x % 32;
    if (h >= group)
        return;
    float mine = -INFINITY, l = 0, v = 0;
    if (lane < n_states) {
        mine = c.b->m[lane][h];
        l = c.b->l[lane][h];
    }
    float m = warp_max(mine), w = mine == -INFINITY ? 0.0f : exp2f(mine - m);
    const float *o = c.o() + h * H16_OLD + at16(d);
#pragma unroll 4
    for (uint32_t i = 0; i < n_states; i++, o += GROUP * H16_OLD) {
        float f = __shfl_sync(0xffffffffu, w, i);
        v = f != 0 ? fmaf(f, *o, v) : v; /* the output of an empty state is nothing */
    }
    l = warp_sum(w * l);
    if (s.split == 0) {
        v = s.n_splits == 1 ? __fdividef(v, l) : gather_states(c, s, h, d, m, l, v);
        publish(c.exchange(0) + s.att + h * H16_DIM + d, v);
        return;
    }
    float *to = c.exchange(0) + s.states + s.split * STATE;
    if (d < 2)
        publish(to + GROUP * H16_DIM + d * GROUP + h, d ? l : m);
    publish(to + h * H16_DIM + d, v);
}

static __device__ __forceinline__ void attend(const context &c, const share &s)
{
    block_state *b = c.b;
    uint32_t group = c.a.n_heads / c.a.n_kv_heads, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t base = s.begin + 16 * warp;
    const uint8_t *keys = b->keys[warp] + c.layer * b->layer_bytes;
    kv16 r;
    if (base < s.end)
        load_keys(r, keys, s.end - 1 - base);
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
            load_keys(r, keys, s.end - 1 - p);
        }
        clear16(st);
        fold(r, keys + c.a.part_bytes, b->qh, group, s.end - 1 - p, st);
        if (p != base)
            join(st, m, l, group, o);
        store16(st, group, o);
        m = st.m, l = st.l;
    }
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
    if (base < s.end)
        warm(c, b->keys[warp] + c.layer * b->layer_bytes);
}

/* ---- all of it ---- */

/* What this block published in the layer before the last is NONE again. */
static __device__ __forceinline__ void clear(const context &c, const share &s)
{
    const float f = __int_as_float(NONE);
    uint32_t i = threadIdx.x;
    bool any = s.attends;
#pragma unroll
    for (int m = 0; m < 4; m++)
        if (i < c.b->tasks[m].rows) {
            publish(c.exchange(2) + c.b->tasks[m].out + i, f);
            any = true;
        }
    if (s.attends && s.split == 0 && i < c.a.n_heads / c.a.n_kv_heads * H16_DIM)
        publish(c.exchange(2) + s.att + i, f);
    if (s.attends && s.split != 0) {
        publish(c.exchange(2) + s.states + s.split * STATE + i, f);
        if (i < STATE - THREADS)
            publish(c.exchange(2) + s.states + s.split * STATE + THREADS + i, f);
    }
    if (any)
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

static __device__ __forceinline__ void plan_task(const context &c, uint32_t m, uint32_t *at)
{
    task &t = c.b->tasks[m];
    uint32_t p = c.a.plan[blockIdx.x * 4 + m], first = p >> 16, count = p & 0xffff;
    uint32_t per = m == GATE_UP ? 8 : 16;
    t.n = m == DOWN ? c.a.n_ff : c.a.n_embd;
    t.chunks = t.n / BNET_W2_CHUNK;
    t.in = bnet_decode_part_at(&c.a, m == QKV ? AT_X : m == OUT ? AT_ATT : m == DOWN ? AT_MID : AT_MID_X);
    uint32_t part =
        bnet_decode_part_at(&c.a, m == QKV ? AT_QKV : m == OUT ? AT_MID_X : m == DOWN ? AT_X : AT_MID);
    t.rows = count * per;
    t.first = first * per;
    t.out = part + t.first;
    t.pad[0] = part;
    t.bytes = count * t.chunks * BNET_W2_UNIT;
    t.from = first * t.chunks * BNET_W2_UNIT;
    t.weights = *at;
    *at += t.bytes;
    barrier_init(shared_addr(&c.b->full[m]), 1);
}

static __device__ __forceinline__ void prepare(const context &c)
{
    block_state *b = c.b;
    uint32_t words = c.a.n_layers * sizeof(bnet_cu_layer) / 4, i = threadIdx.x;
#pragma unroll 1
    for (uint32_t k = i; k < words; k += THREADS)
        ((uint32_t *)c.layers())[k] = ((const uint32_t *)c.a.layers)[k];
    __syncthreads();
    if (i == THREADS - 1) {
        uint32_t at = 0;
#pragma unroll 1
        for (uint32_t m = 0; m < 4; m++)
            plan_task(c, m, &at);
        barrier_init_fence();
#pragma unroll 1
        for (uint32_t m = 0; m < 4; m++)
            fetch(c, 0, m);
    }
    __syncthreads();
    if (i < 4 * WARPS) {
        const task &t = b->tasks[i / WARPS];
        uint32_t warp = i % WARPS, n = t.bytes / BNET_W2_UNIT, u = n * warp / WARPS;
        span s = {t.weights + u * BNET_W2_UNIT, n * (warp + 1) / WARPS - u, u % t.chunks,
                  u / t.chunks * 16};
        b->spans[i / WARPS][warp] = s;
    }
    pdl_wait();
    if (i == 0) {
        b->turn = *(volatile const uint32_t *)c.a.epoch;
        b->step = bnet_decode_part_at(&c.a, 6);
        b->part = share_of(c.a, c.a.step.pos[0]);
        b->layer_bytes = c.a.step.seqs[c.a.step.seq[0]].layer_bytes;
    }
    int pos = max(c.a.step.pos[0], 0);
    if (i < c.a.n_rot)
        b->cs[i] = c.a.angles[(size_t)pos * c.a.n_rot + i];
    __syncthreads();
    const share &s = b->part;
    if (s.attends && i <= WARPS) { /* where positions lie is the same in all layers */
        kv_view kv = view_of(c, s, 0);
        uint32_t p = i == WARPS ? s.pos : s.begin + 16 * i;
        uint8_t *at = p < s.end || i == WARPS ? kv.part(p / KV_POS, 0) + p % KV_POS * (H16_DIM * 2) : nullptr;
        if (i == WARPS)
            b->newest = at;
        else
            b->keys[i] = at;
    }
    __syncthreads();
}

/* The norms of the next layer into L2, by one block. */
static __device__ __forceinline__ void warm_norms(const context &c)
{
    if (blockIdx.x != c.layer % gridDim.x || c.layer + 1 >= c.a.n_layers)
        return;
#pragma unroll 1
    for (uint32_t m = 0; m < 4; m++) {
        const float *norm = c.layers()[c.layer + 1].norm[m];
        if (norm && threadIdx.x * 32 < c.b->tasks[m].n)
            asm volatile("prefetch.global.L2 [%0];" ::"l"(norm + threadIdx.x * 32));
    }
}

static __device__ __forceinline__ void run_layer(context &c, const share &s, float &rest)
{
    bool early = s.attends || c.b->tasks[QKV].rows;
#pragma unroll 1
    for (uint32_t matrix = 0; matrix < 4; matrix++) {
        if (matrix == OUT) {
            if (s.attends)
                attend(c, s);
            if (early)
                clear(c, s);
        }
        const task &t = c.b->tasks[matrix];
        if (t.rows == 0)
            continue;
        bool first = matrix == QKV && c.layer == 0;
        c.mark(matrix, 0);
        float most =
            take(c, matrix, first ? c.a.x : (matrix == QKV ? c.exchange(3) : c.exchange(0)) + t.in, !first);
        multiply(c, matrix);
        give(c, matrix, most, rest);
        c.parity ^= 1;
    }
    if (!early)
        clear(c, s);
    warm_norms(c);
}

KERNEL __launch_bounds__(THREADS, 1)
    bnet_decode_step(const __grid_constant__ bnet_cu_decode_args a)
{
    extern __shared__ __align__(128) uint8_t dynamic[];
    __shared__ block_state b;
    context c = {a, &b, dynamic, 0, 0, 0};
    prepare(c);
    float rest = threadIdx.x < b.tasks[OUT].rows ? __ldcg(a.x + b.tasks[OUT].first + threadIdx.x) : 0;
#pragma unroll 1
    for (c.turn = b.turn; c.layer < a.n_layers; c.layer++, c.turn++) {
        if (c.layer + 1 == a.n_layers)
            pdl_launch();
        run_layer(c, b.part, rest);
    }
    if (blockIdx.x == 0 && threadIdx.x == 0)
        *(volatile uint32_t *)a.epoch = c.turn & 3;
}

#endif
