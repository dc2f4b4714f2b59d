/* decode_sm90.cu - all layers of one token in one kernel: blocks that never leave, weights fetched a
 * layer ahead, results exchanged through tagged slots.
 *
 * A layer has five phases: q + k + v, attention, o, gate + up, down. In each a block takes the whole
 * input vector (every thread a group of eight floats in three slots, asked again until their tags
 * say they are new), norms and quantises it for itself, multiplies its rows from shared memory and publishes
 * them. A slot is written again only after everybody has read it: its writer has meanwhile seen
 * results that all readers could only give after reading. Attention is done by one block per kv
 * head, by several where the context is long; the first of them puts the states together. */
#include "attn16.cuh"
#include "backend/cuda/decode.h"
#include "w2_units.cuh"

#if BNET_SM90 || !defined(__CUDA_ARCH__)

enum { THREADS = BNET_DECODE_THREADS, WARPS = THREADS / 32, GROUP = 4, STATES = WARPS + 1 };
enum { QKV, OUT, GATE_UP, DOWN };                     /* matrices */
enum { AT_X, AT_MID_X, AT_QKV, AT_ATT, AT_MID, AT_STATES }; /* parts of the exchange */
enum { TRACE = 64, PER_PHASE = 8, STATE_SLOTS = 176, STATE_FLOATS = 520, STATE_LD = 522 };

struct block_state {
    float2 reduce[WARPS];
    unsigned long long full[4];
    int sums[2][BNET_DECODE_TILES * 16];
    int sum[2];
    uint32_t first[4], count[4], weights[4]; /* tiles; offset of the buffer */
    float rest[BNET_DECODE_TILES * 16];      /* residual of this block's rows */
    float cs[H16_DIM];
    float raw[(GROUP + 2) * H16_DIM];
    alignas(16) float q[GROUP * H16_QLD]; /* read by fours */
    float k[H16_DIM], v[H16_DIM];
    float m[STATES][GROUP], l[STATES][GROUP];
    float y[STATE_LD];
    uint32_t epoch;
};

struct context {
    const bnet_cu_decode_args &a;
    block_state *b;
    uint8_t *weights, *xs;
    float *o; /* [STATES][GROUP][H16_DIM] */
    bnet_cu_layer *layers; /* a copy in shared memory */
    uint32_t layer, tag, phase;
    long long *trace;

    __device__ __forceinline__ uint4 *part(int i) const
    {
        return (uint4 *)a.exchange + bnet_decode_part_at(&a, i);
    }
    __device__ __forceinline__ void mark(int phase_no, int i) const
    {
        if (trace && threadIdx.x == 0)
            trace[phase_no * PER_PHASE + i] = clock64();
    }
};

/* ---- slots ---- */

static __device__ __forceinline__ uint4 peek(const uint4 *p)
{
    uint4 v;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}

static __device__ __forceinline__ void publish(uint4 *p, float x, float y, float z, uint32_t tag)
{
    asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(__float_as_uint(x)),
                 "r"(__float_as_uint(y)), "r"(__float_as_uint(z)), "r"(tag)
                 : "memory");
}

/* A launch whose blocks are not all resident would wait for ever: better a trap. */
static __device__ __forceinline__ uint4 await(const uint4 *p, uint32_t tag)
{
    uint4 r = peek(p);
    for (uint32_t rounds = 0; r.w != tag; r = peek(p))
        if (++rounds > 4000000)
            __trap();
    return r;
}

/* Groups threadIdx.x, + THREADS, ... of n, as soon as all their slots are new. To ask for all of
 * them all the time would fill the L2 cache's ports: where there are many, one is awaited first. */
template <int N>
static __device__ __forceinline__ void collect(const uint4 *slots, uint32_t n, uint32_t tag,
                                               uint32_t poll, uint4 r[N][3])
{
    if (threadIdx.x >= n)
        return;
    if (poll == 2 || (poll == 0 && N > 1))
        await(slots + threadIdx.x, tag);
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int j = 0; j < 3; j++)
            if (threadIdx.x + i * THREADS < n)
                r[i][j] = peek(slots + j * n + threadIdx.x + i * THREADS);
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int j = 0; j < 3; j++)
            if (threadIdx.x + i * THREADS < n && r[i][j].w != tag)
                r[i][j] = await(slots + j * n + threadIdx.x + i * THREADS, tag);
}

/* The slot for rows 3j .. of a group of eight; the third has two. */
static __device__ __forceinline__ void publish_rows(uint4 *slots, uint32_t n_groups, uint32_t group,
                                                    uint32_t j, const float *v, uint32_t tag)
{
    publish(slots + j * n_groups + group, v[0], v[1], j < 2 ? v[2] : 0.0f, tag);
}

/* ---- matrices ---- */

static __device__ __forceinline__ uint32_t chunks_of(const context &c, int matrix)
{
    return (matrix == DOWN ? c.a.n_ff : c.a.n_embd) / BNET_W2_CHUNK;
}

/* One thread: this block's rows of a matrix of a layer on their way. */
static __device__ __forceinline__ void fetch(const context &c, uint32_t layer, int matrix)
{
    uint32_t chunks = chunks_of(c, matrix), n = c.b->count[matrix] * chunks * BNET_W2_UNIT;
    if (n == 0 || layer >= c.a.n_layers)
        return;
    const uint8_t *from =
        c.layers[layer].w[matrix] + (size_t)c.b->first[matrix] * chunks * BNET_W2_UNIT;
    bulk_load(shared_addr(c.weights + c.b->weights[matrix]), from, n,
              shared_addr(&c.b->full[matrix]));
}

/* Input of a phase: normed, quantised, in shared memory. Returns the scale of the codes. */
template <int N>
static __device__ __forceinline__ float take(const context &c, int matrix, int from, uint32_t tag,
                                             const float *plain, uint32_t n)
{
    const float *norm = c.layers[c.layer].norm[matrix];
    uint32_t groups = n / 8;
    float v[N][8], w[N][8];
#pragma unroll
    for (int i = 0; i < N; i++) {
        uint32_t g = threadIdx.x + i * THREADS;
        float4 x = make_float4(1, 1, 1, 1), y = x;
        if (norm && g < groups) {
            x = __ldg((const float4 *)norm + 2 * g);
            y = __ldg((const float4 *)norm + 2 * g + 1);
        }
        w[i][0] = x.x, w[i][1] = x.y, w[i][2] = x.z, w[i][3] = x.w;
        w[i][4] = y.x, w[i][5] = y.y, w[i][6] = y.z, w[i][7] = y.w;
    }
    int *sums = c.b->sums[c.phase & 1];
    for (uint32_t i = threadIdx.x; i < c.b->count[matrix] * 16; i += THREADS)
        sums[i] = 0;
    if (threadIdx.x == 0)
        c.b->sum[c.phase & 1] = 0;
    uint4 r[N][3];
#pragma unroll
    for (int i = 0; i < N; i++)
        r[i][0] = r[i][1] = r[i][2] = make_uint4(0, 0, 0, 0);
    if (!plain)
        collect<N>(c.part(from), groups, tag, c.a.poll, r);
    c.mark(matrix, 1);
    float ss = 0, top = 0;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const uint32_t bits[8] = {r[i][0].x, r[i][0].y, r[i][0].z, r[i][1].x,
                                  r[i][1].y, r[i][1].z, r[i][2].x, r[i][2].y};
        uint32_t g = threadIdx.x + i * THREADS;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            float x = plain && g < groups ? __ldcg(plain + 8 * g + j) : __uint_as_float(bits[j]);
            ss = fmaf(x, x, ss);
            v[i][j] = x * w[i][j];
            top = fmaxf(top, fabsf(v[i][j]));
        }
    }
    float2 both = block_sum_top<WARPS>(ss, top, c.b->reduce);
    c.mark(matrix, 2);
    int sum = 0;
    float inv, scale = code_scale(both, norm, (float)n, c.a.eps, &inv);
#pragma unroll
    for (int i = 0; i < N; i++) {
        uint32_t e = 8 * (threadIdx.x + i * THREADS);
        if (e < n) {
            *(uint32_t *)(c.xs + act_at(e)) = codes4(v[i], inv, &sum);
            *(uint32_t *)(c.xs + act_at(e + 4)) = codes4(v[i] + 4, inv, &sum);
        }
    }
    sum = __reduce_add_sync(0xffffffffu, sum);
    if (threadIdx.x % 32 == 0)
        atomicAdd(&c.b->sum[c.phase & 1], sum);
    barrier_wait(shared_addr(&c.b->full[matrix]), c.layer & 1);
    __syncthreads();
    c.mark(matrix, 3);
    return scale;
}

/* This block's rows times the vector: warps take units in order, sums meet in shared memory. Then
 * the next layer's rows may come. */
static __device__ __forceinline__ void multiply(const context &c, int matrix)
{
    uint32_t chunks = chunks_of(c, matrix), n = c.b->count[matrix] * chunks;
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    uint32_t u = n * warp / WARPS, end = n * (warp + 1) / WARPS, tile = u / chunks;
    uint32_t chunk = u - tile * chunks;
    const uint8_t *w = c.weights + c.b->weights[matrix] + u * BNET_W2_UNIT + lane * 16;
    int *sums = c.b->sums[c.phase & 1];
    int acc[4][4] = {};
    while (u < end) {
        uint32_t stop = min(end, u + chunks - chunk);
        const uint8_t *x = c.xs + chunk * BNET_W2_CHUNK + t * 32;
#pragma unroll 3
        for (; u < stop; u++, w += BNET_W2_UNIT, x += BNET_W2_CHUNK)
            unit_multiply(*(const uint4 *)w, x, g == 0, acc);
        int low = unit_sum(acc, 0), high = unit_sum(acc, 2);
        unit_sum(acc, 1), unit_sum(acc, 3);
        if (t == 0) {
            atomicAdd(&sums[tile * 16 + g], low);
            atomicAdd(&sums[tile * 16 + g + 8], high);
        }
        tile++;
        chunk = 0;
    }
    __syncthreads();
    if (threadIdx.x == 0)
        fetch(c, c.layer + 1, matrix);
    if (blockIdx.x == (c.layer * 4 + matrix) % gridDim.x && c.layer + 1 < c.a.n_layers) {
        const float *norm = c.layers[c.layer + 1].norm[matrix];
        if (norm && threadIdx.x < chunks * 4)
            asm volatile("prefetch.global.L2 [%0];" ::"l"(norm + threadIdx.x * 32));
    }
    c.mark(matrix, 4);
}

/* Sum of row r (0..15) of a block's tile as a float. */
static __device__ __forceinline__ float result(const context &c, uint32_t tile, uint32_t r,
                                               float scale)
{
    int p = c.phase & 1;
    return __fmul_rn((float)(c.b->sums[p][tile * 16 + r] - c.b->sum[p]), scale);
}

static __device__ __forceinline__ void give_qkv(const context &c, float x_scale)
{
    uint32_t i = threadIdx.x, q_tiles = c.a.n_heads * 8, k_tiles = c.a.n_kv_heads * 8;
    if (i >= c.b->count[QKV] * 6)
        return;
    uint32_t tile = i / 6, r = i % 6 / 3 * 8 + i % 3 * 3, t = c.b->first[QKV] + tile;
    int part = t < q_tiles ? 0 : t < q_tiles + k_tiles ? 1 : 2;
    float s = __fmul_rn(x_scale, c.layers[c.layer].scale[part]);
    const float v[3] = {result(c, tile, r, s), result(c, tile, r + 1, s),
                        i % 3 != 2 ? result(c, tile, r + 2, s) : 0.0f};
    publish_rows(c.part(AT_QKV), (c.a.n_heads + 2 * c.a.n_kv_heads) * 16, t * 2 + i % 6 / 3, i % 3,
                 v, c.tag);
}

static __device__ __forceinline__ float add_rest(const context &c, uint32_t tile, uint32_t r, float s)
{
    float *rest = &c.b->rest[tile * 16 + r];
    return *rest = __fadd_rn(*rest, result(c, tile, r, s));
}

/* o and down: added to the residual. plain: where the last layer leaves it. */
static __device__ __forceinline__ void give_rest(const context &c, int matrix, int to, float x_scale,
                                                 float *plain)
{
    uint32_t i = threadIdx.x;
    if (i >= c.b->count[matrix] * 6)
        return;
    uint32_t tile = i / 6, r = i % 6 / 3 * 8 + i % 3 * 3, t = c.b->first[matrix] + tile;
    float s = __fmul_rn(x_scale, c.layers[c.layer].scale[matrix == OUT ? 3 : 6]);
    const float v[3] = {add_rest(c, tile, r, s), add_rest(c, tile, r + 1, s),
                        i % 3 != 2 ? add_rest(c, tile, r + 2, s) : 0.0f};
    if (!plain) {
        publish_rows(c.part(to), c.a.n_embd / 8, t * 2 + i % 6 / 3, i % 3, v, c.tag);
        return;
    }
    plain[t * 16 + r] = v[0];
    plain[t * 16 + r + 1] = v[1];
    if (i % 3 != 2)
        plain[t * 16 + r + 2] = v[2];
}

static __device__ __forceinline__ void give_middle(const context &c, float x_scale)
{
    uint32_t i = threadIdx.x;
    if (i >= c.b->count[GATE_UP] * 3)
        return;
    const bnet_cu_layer &l = c.layers[c.layer];
    float sg = __fmul_rn(x_scale, l.scale[4]), su = __fmul_rn(x_scale, l.scale[5]), v[3] = {};
    uint32_t tile = i / 3, r = i % 3 * 3;
#pragma unroll
    for (uint32_t j = 0; j < 3; j++)
        if (r + j < 8) {
            float gate = result(c, tile, r + j, sg), up = result(c, tile, r + j + 8, su);
            v[j] = c.a.silu ? silu_gate(gate, up) : relu2_gate(gate, up);
        }
    publish_rows(c.part(AT_MID), c.a.n_ff / 8, c.b->first[GATE_UP] + tile, i % 3, v, c.tag);
}

/* ---- attention ---- */

struct share {
    uint32_t head, split, n_splits, begin, end, pos;
    bool real; /* not padding: the cache may be written */
};

static __device__ __forceinline__ bool share_of(const bnet_cu_decode_args &a, int at, share *s)
{
    uint32_t pos = (uint32_t)max(at, 0);
    s->real = at >= 0;
    uint32_t most = min((uint32_t)BNET_DECODE_SPLITS, gridDim.x / a.n_kv_heads);
    s->n_splits = max(1u, min(most, (pos + 16 * WARPS - 1) / (16 * WARPS)));
    s->head = blockIdx.x / s->n_splits;
    s->split = blockIdx.x % s->n_splits;
    s->pos = pos;
    uint32_t per = ((pos + s->n_splits - 1) / s->n_splits + 15) / 16 * 16;
    s->begin = min(s->split * per, pos);
    s->end = min(s->begin + per, pos);
    return s->head < a.n_kv_heads;
}

static __device__ __forceinline__ kv_view view_of(const context &c, const share &s, uint32_t layer)
{
    const bnet_cu_seq &q = c.a.step.seqs[c.a.step.seq[0]];
    kv_view v = {(uint8_t *)q.kv + (size_t)layer * q.layer_bytes, c.a.step.tables + q.table, s.head,
                 c.a.n_kv_heads, c.a.part_bytes, H16_DIM};
    return v;
}

/* Next layer's keys and values into L2. */
static __device__ __forceinline__ void warm(const context &c, const share &s, uint32_t layer)
{
    uint32_t n = s.end > s.begin ? (s.end - 1) / KV_POS - s.begin / KV_POS + 1 : 0;
    if (layer >= c.a.n_layers || threadIdx.x >= n)
        return;
    kv_view kv = view_of(c, s, layer);
    const uint8_t *p = kv.part(s.begin / KV_POS + threadIdx.x, 0);
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(2 * c.a.part_bytes)
                 : "memory");
}

/* Queries, key and value of this kv head: published, then rotated. */
static __device__ __forceinline__ void take_heads(const context &c, const share &s, uint32_t group)
{
    block_state *b = c.b;
    uint32_t i = threadIdx.x, groups = (c.a.n_heads + 2 * c.a.n_kv_heads) * 16;
    uint32_t from = i / 3, head = from / 16; /* group of eight among q .. q, k, v of this kv head */
    if (head < group + 2) {
        uint32_t row = head < group ? s.head * group + head
                                    : c.a.n_heads + (head - group) * c.a.n_kv_heads + s.head;
        uint4 r = await(c.part(AT_QKV) + i % 3 * groups + row * 16 + from % 16, c.tag);
        float *to = b->raw + from * 8 + i % 3 * 3;
        to[0] = __uint_as_float(r.x);
        to[1] = __uint_as_float(r.y);
        if (i % 3 != 2)
            to[2] = __uint_as_float(r.z);
    }
    __syncthreads();
    c.mark(4, 1);
    uint32_t h = i / H16_DIM, d = i % H16_DIM;
    if (h < group)
        b->q[h * H16_QLD + d] = rotated(b->raw + h * H16_DIM, b->cs, d, c.a.n_rot, c.a.neox) *
                                (c.a.scale * 1.44269504f);
    if (i < H16_DIM) {
        b->k[i] = through_half(rotated(b->raw + group * H16_DIM, b->cs, i, c.a.n_rot, c.a.neox));
        b->v[i] = through_half(b->raw[(group + 1) * H16_DIM + i]);
    }
    __syncthreads();
}

static __device__ __forceinline__ void store_newest(const context &c, const kv_view &kv, uint32_t pos)
{
    uint32_t d = threadIdx.x - (THREADS - 2 * H16_DIM); /* warps that have little else to do */
    if (d >= 2 * H16_DIM)
        return;
    __half *to = (__half *)kv.part(pos / KV_POS, d / H16_DIM) + pos % KV_POS * H16_DIM;
    to[d % H16_DIM] = __float2half_rn(d < H16_DIM ? c.b->k[d] : c.b->v[d - H16_DIM]);
}

/* The first block of a kv head: states of the others, merged with its own. */
static __device__ __forceinline__ float gather_states(const context &c, const share &s, uint32_t h,
                                                      uint32_t d, float m, float l, float o)
{
    uint32_t n = (s.n_splits - 1) * STATE_SLOTS;
    const uint4 *slots = c.part(AT_STATES) + (size_t)s.head * BNET_DECODE_SPLITS * STATE_SLOTS;
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
        uint32_t other = i / STATE_SLOTS, at = i % STATE_SLOTS;
        if (at * 3 >= STATE_FLOATS)
            continue;
        const uint4 *slot = slots + (other + 1) * STATE_SLOTS + at;
        uint4 r = await(slot, c.tag);
        float *to = c.o + other * STATE_LD + at * 3;
        to[0] = __uint_as_float(r.x);
        to[1] = __uint_as_float(r.y);
        to[2] = __uint_as_float(r.z);
    }
    __syncthreads();
    const float *om = c.o + GROUP * H16_DIM + h, *ol = om + GROUP;
    float mm, ll, oo = merge16(om, ol, c.o + h * H16_DIM, s.n_splits - 1, STATE_LD, STATE_LD, d, &mm,
                               &ll);
    float top = fmaxf(m, mm), x = m == -INFINITY ? 0 : exp2f(m - top);
    float y = mm == -INFINITY ? 0 : exp2f(mm - top);
    return (o * x + oo * y) / (l * x + ll * y);
}

static __device__ __forceinline__ void attend(const context &c, const share &s)
{
    block_state *b = c.b;
    uint32_t group = c.a.n_heads / c.a.n_kv_heads, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    kv_view kv = view_of(c, s, c.layer);
    bool newest = s.split == s.n_splits - 1;
    uint32_t base = s.begin + 16 * warp;
    kv16 r;
    if (base < s.end)
        kv16_load(r, kv, base, s.end);
    c.mark(4, 0);
    take_heads(c, s, group);
    c.mark(4, 2);
    if (newest && s.real)
        store_newest(c, kv, s.pos);
    state16 st = {-INFINITY, 0};
    float *o = c.o + warp * GROUP * H16_DIM;
    for (uint32_t p = base; p < s.end; p += 16 * WARPS) {
        if (p != base)
            kv16_load(r, kv, p, s.end);
        fold16(r, b->q, group, p, s.end, o, st);
    }
    if (lane % 4 == 0 && lane / 4 < GROUP) {
        b->m[warp][lane / 4] = st.m;
        b->l[warp][lane / 4] = st.l;
    }
    if (warp >= WARPS - GROUP) {
        uint32_t h = WARPS - 1 - warp;
        float m = -INFINITY;
        if (newest && h < group)
            m = newest16(b->q + h * H16_QLD, b->k, b->v, c.o + (WARPS * GROUP + h) * H16_DIM);
        if (lane == 0) {
            b->m[WARPS][h] = m;
            b->l[WARPS][h] = 1;
        }
    }
    __syncthreads();
    c.mark(4, 3);
    uint32_t h = threadIdx.x / H16_DIM, d = threadIdx.x % H16_DIM;
    float m = -INFINITY, l = 0, v = 0;
    if (h < group)
        v = merge16(&b->m[0][h], &b->l[0][h], c.o + h * H16_DIM, STATES, GROUP, GROUP * H16_DIM, d,
                    &m, &l);
    if (s.n_splits > 1 && s.split == 0) {
        __syncthreads();
        v = gather_states(c, s, min(h, group - 1), d, m, l, v);
    } else if (s.n_splits == 1) {
        v /= l;
    } else if (d == 0) {
        b->y[GROUP * H16_DIM + h] = m;
        b->y[GROUP * H16_DIM + GROUP + h] = l;
    }
    b->y[threadIdx.x] = v;
    __syncthreads();
    uint32_t i = threadIdx.x;
    if (s.split == 0 && i < group * 48) {
        publish_rows(c.part(AT_ATT), c.a.n_embd / 8, s.head * group * 16 + i / 3, i % 3,
                     b->y + i / 3 * 8 + i % 3 * 3, c.tag);
    }
    if (s.split != 0 && i * 3 < STATE_FLOATS)
        publish(c.part(AT_STATES) + ((size_t)s.head * BNET_DECODE_SPLITS + s.split) * STATE_SLOTS + i,
                b->y[3 * i], b->y[3 * i + 1], b->y[3 * i + 2], c.tag);
    c.mark(4, 4);
}

/* ---- all of it ---- */

static __device__ __forceinline__ void prepare(const context &c)
{
    block_state *b = c.b;
    uint32_t words = c.a.n_layers * sizeof(bnet_cu_layer) / 4;
    for (uint32_t i = threadIdx.x; i < words; i += THREADS)
        ((uint32_t *)c.layers)[i] = ((const uint32_t *)c.a.layers)[i];
    __syncthreads();
    if (threadIdx.x == 0) {
        uint32_t at = 0;
        for (int m = 0; m < 4; m++) {
            uint32_t p = c.a.plan[blockIdx.x * 4 + m];
            b->first[m] = p >> 16;
            b->count[m] = p & 0xffff;
            b->weights[m] = at;
            at += c.a.most[m] * chunks_of(c, m) * BNET_W2_UNIT;
            barrier_init(shared_addr(&b->full[m]), 1);
        }
        barrier_init_fence();
        for (int m = 0; m < 4; m++)
            fetch(c, 0, m);
    }
    if (threadIdx.x < STATE_LD - STATE_FLOATS)
        b->y[STATE_FLOATS + threadIdx.x] = 0;
    __syncthreads();
    pdl_wait();
    if (threadIdx.x == 0)
        b->epoch = *(volatile uint32_t *)c.a.exchange;
    int pos = max(c.a.step.pos[0], 0);
    if (threadIdx.x < c.a.n_rot)
        b->cs[threadIdx.x] = c.a.angles[(size_t)pos * c.a.n_rot + threadIdx.x];
    for (uint32_t i = threadIdx.x; i < b->count[OUT] * 16; i += THREADS)
        b->rest[i] = __ldcg(c.a.x + b->first[OUT] * 16 + i);
    __syncthreads();
}

static __device__ __forceinline__ void run_layer(context &c, const share &s, bool attends)
{
    const bnet_cu_decode_args &a = c.a;
    if (c.b->count[QKV]) {
        c.mark(QKV, 0);
        float f = take<1>(c, QKV, AT_X, c.tag - 1, c.layer ? nullptr : a.x, a.n_embd);
        multiply(c, QKV);
        give_qkv(c, f);
        c.mark(QKV, 5);
        c.phase++;
    }
    if (attends) {
        attend(c, s);
        warm(c, s, c.layer + 1);
    }
    if (c.b->count[OUT]) {
        c.mark(OUT, 0);
        float f = take<1>(c, OUT, AT_ATT, c.tag, nullptr, a.n_embd);
        multiply(c, OUT);
        give_rest(c, OUT, AT_MID_X, f, nullptr);
        c.mark(OUT, 5);
        c.phase++;
    }
    if (c.b->count[GATE_UP]) {
        c.mark(GATE_UP, 0);
        float f = take<1>(c, GATE_UP, AT_MID_X, c.tag, nullptr, a.n_embd);
        multiply(c, GATE_UP);
        give_middle(c, f);
        c.mark(GATE_UP, 5);
        c.phase++;
    }
    if (c.b->count[DOWN]) {
        c.mark(DOWN, 0);
        float f = take<2>(c, DOWN, AT_MID, c.tag, nullptr, a.n_ff);
        multiply(c, DOWN);
        give_rest(c, DOWN, AT_X, f, c.layer + 1 == a.n_layers ? a.x : nullptr);
        c.mark(DOWN, 5);
        c.phase++;
    }
}

KERNEL __launch_bounds__(THREADS, 1)
    bnet_decode_step(const __grid_constant__ bnet_cu_decode_args a)
{
    extern __shared__ __align__(128) uint8_t dynamic[];
    __shared__ block_state b;
    uint32_t n = bnet_decode_weight_bytes(&a);
    uint8_t *o = dynamic + n, *layers = o + STATES * GROUP * H16_DIM * 4;
    context c = {a, &b, dynamic, layers + a.n_layers * sizeof(bnet_cu_layer), (float *)o,
                 (bnet_cu_layer *)layers, 0, 0, 0, nullptr};
    prepare(c);
    share s;
    bool attends = share_of(a, a.step.pos[0], &s);
    for (uint32_t l = 0; l < a.n_layers; l++) {
        c.layer = l;
        c.tag = b.epoch * a.n_layers + l + 1;
        c.trace = a.trace && l == a.n_layers / 2 ? a.trace + (size_t)blockIdx.x * TRACE : nullptr;
        if (l + 1 == a.n_layers)
            pdl_launch();
        run_layer(c, s, attends);
    }
    if (blockIdx.x == 0 && threadIdx.x == 0)
        *(volatile uint32_t *)a.exchange = b.epoch + 1;
}

#endif
