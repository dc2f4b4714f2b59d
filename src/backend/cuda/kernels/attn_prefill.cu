/* attn_prefill.cu - causal attention of runs of tokens of one timeline on the tensor cores.
 *
 * A block takes up to 64 tokens and one query head, a warp 16 of the tokens. Blocks of 64 positions
 * of the cache pass through shared memory in two stages, rows of 128 bytes (64 dimensions) whose
 * 16-byte pieces are exchanged by (row & 7): so ldmatrix meets no bank twice, and so Hopper's
 * warpgroup products (9.0a) want them; softmax runs online in powers of two. Where shared
 * memory is large enough two groups of four warps share the positions, every other block of them
 * each, and put together what they have at the end: one warp alone waits most of the time. */
#include "kv.cuh"
#include "wgmma.cuh"

#if BNET_SM80 || !defined(__CUDA_ARCH__)

enum { THREADS = 128, ROWS = 16 }; /* threads of a group, tokens of a warp */

enum { PART = KV_POS * 128 }; /* 64 dimensions of a block of keys or values */

static __device__ __forceinline__ uint32_t piece_at(uint32_t row, uint32_t piece)
{
    return piece / 8 * PART + row * 128 + ((piece % 8 ^ (row & 7)) << 4);
}

/* 64 positions of keys or values as halves; those from n on are zero. */
template <int KV, int HD>
static __device__ __forceinline__ void load_part(const uint8_t *part, uint32_t n, uint32_t to)
{
#pragma unroll
    for (int i = 0; i < KV_POS * HD / 8 / THREADS; i++) {
        uint32_t at = threadIdx.x % THREADS + i * THREADS, row = at / (HD / 8),
                 piece = at % (HD / 8);
        bool in = row < n;
        if (KV == KV_F16) {
            copy_async16(to + piece_at(row, piece), part + (in ? at : 0) * 16, in);
            continue;
        }
        kv_raw<KV_I8> r = {make_uint2(0, 0), 0.0f};
        float f[8];
        if (in)
            kv_get(r, part, HD, row, piece * 8);
        kv_floats(r, f);
        uint4 v;
        __half2 h[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            h[j] = __floats2half2_rn(f[2 * j], f[2 * j + 1]);
        memcpy(&v, h, 16);
        store_shared16(to + piece_at(row, piece), v);
    }
}

template <int KV, int HD>
static __device__ __forceinline__ void load_block(const kv_view &kv, const uint8_t *part,
                                                  uint32_t block, uint32_t n_pos, uint32_t stage)
{
    uint32_t n = min(n_pos - block * KV_POS, (uint32_t)KV_POS);
    load_part<KV, HD>(part, n, stage);
    load_part<KV, HD>(part + kv.part_bytes, n, stage + KV_POS * HD * 2);
    copy_commit();
}

static __device__ __forceinline__ uint32_t halves(float x, float y)
{
    __half2 h = __floats2half2_rn(x, y);
    uint32_t v;
    memcpy(&v, &h, 4);
    return v;
}

/* How queries are on their way: rotated before, by pairs of one lane, any other way. */
enum { PLAIN, NEAR, ROTATED };

/* Elements d, d + 1 and those HD / 2 on. NEAR: they are two pairs. */
template <int HD, int HOW>
static __device__ __forceinline__ void four_of(const bnet_cu_attn_args &a, const float *q,
                                               const float *cs, uint32_t d, float2 *x, float2 *y)
{
    uint32_t e = d + HD / 2;
    if (HOW == ROTATED) {
        *x =
            make_float2(rotated(q, cs, d, a.n_rot, a.neox), rotated(q, cs, d + 1, a.n_rot, a.neox));
        *y =
            make_float2(rotated(q, cs, e, a.n_rot, a.neox), rotated(q, cs, e + 1, a.n_rot, a.neox));
        return;
    }
    float2 p = *x = *(const float2 *)(q + d), r = *y = *(const float2 *)(q + e);
    if (HOW == PLAIN)
        return;
    float4 c = *(const float4 *)(cs + 2 * d); /* cos, sin, cos, sin */
    *x = make_float2(__fsub_rn(__fmul_rn(p.x, c.x), __fmul_rn(r.x, c.y)),
                     __fsub_rn(__fmul_rn(p.y, c.z), __fmul_rn(r.y, c.w)));
    *y = make_float2(__fadd_rn(__fmul_rn(p.x, c.y), __fmul_rn(r.x, c.x)),
                     __fadd_rn(__fmul_rn(p.y, c.w), __fmul_rn(r.y, c.z)));
}

/* Query rows of a warp as A operands, scaled. */
template <int HD, int HOW>
static __device__ __forceinline__ void load_rows(const bnet_cu_attn_args &a, uint32_t token,
                                                 uint32_t row0, uint32_t n,
                                                 uint32_t out[HD / 16][4])
{
    uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    float scale = a.scale * 1.44269504f;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        size_t row = token + min(row0 + g + 8 * (i & 1), n - 1);
        uint32_t d = 2 * t + 8 * (i >> 1);
#pragma unroll
        for (int k = 0; k < HD / 32; k++) {
            float2 x, y;
            four_of<HD, HOW>(a, a.q + row * a.ldq + blockIdx.x * HD, a.cs + row * a.n_rot,
                             16 * k + d, &x, &y);
            out[k][i] = halves(x.x * scale, x.y * scale);
            out[k + HD / 32][i] = halves(y.x * scale, y.y * scale);
        }
    }
}

template <int HD>
static __device__ __forceinline__ void load_queries(const bnet_cu_attn_args &a, uint32_t token,
                                                    uint32_t row0, uint32_t n,
                                                    uint32_t out[HD / 16][4])
{
    if (!a.cs)
        load_rows<HD, PLAIN>(a, token, row0, n, out);
    else if (a.neox && a.n_rot == HD)
        load_rows<HD, NEAR>(a, token, row0, n, out);
    else
        load_rows<HD, ROTATED>(a, token, row0, n, out);
}

/* Rows g and g + 8: weights from scores, running maximum and sum, what to keep of the sums so far.
 */
static __device__ __forceinline__ void soften(float s[8][4], float m[2], float l[2], float keep[2])
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float top = m[r], sum = 0;
#pragma unroll
        for (int n = 0; n < 8; n++)
            top = fmaxf(top, fmaxf(s[n][2 * r], s[n][2 * r + 1]));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        float from = top == -INFINITY ? 0.0f : top;
        keep[r] = exp2f(m[r] - from);
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                s[n][2 * r + i] = exp2f(s[n][2 * r + i] - from);
                sum += s[n][2 * r + i];
            }
        l[r] = l[r] * keep[r] + sum;
        m[r] = top;
    }
}

#if BNET_SM90A

template <int HD>
static __device__ __forceinline__ void scores(const uint32_t a[HD / 16][4], uint32_t keys,
                                              float s[8][4])
{
#pragma unroll
    for (int n = 0; n < 8; n++)
        s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
    group_arrive();
#pragma unroll
    for (int k = 0; k < HD / 16; k++)
        halves_product<64, 0>::run(s[0], a[k], describe(keys + k / 4 * PART) + k % 4 * 2);
    group_commit();
    group_wait<0>();
    settled<32>(s[0]);
}

template <int HD>
static __device__ __forceinline__ void add_values(const float s[8][4], uint32_t values,
                                                  float o[HD / 8][4])
{
    uint32_t a[4][4];
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *c = s[2 * k + (i >> 1)] + 2 * (i & 1);
            a[k][i] = halves(c[0], c[1]);
        }
    group_arrive();
#pragma unroll
    for (int k = 0; k < 4; k++) /* 16 positions: rows of both parts */
        halves_product<HD, 1>::run(o[0], a[k], describe_columns(values + k * 16 * 128, PART));
    group_commit();
    group_wait<0>();
    settled<HD / 2>(o[0]);
}

#else

template <int HD>
static __device__ __forceinline__ void scores(const uint32_t a[HD / 16][4], uint32_t keys,
                                              float s[8][4])
{
    uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < 8; n++)
        s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
#pragma unroll
    for (int k = 0; k < HD / 16; k++)
#pragma unroll
        for (int n = 0; n < 4; n++) { /* 16 positions */
            uint32_t b[4], row = 16 * n + (lane & 7) + (lane >> 4) * 8;
            load_matrix4(b, keys + piece_at(row, 2 * k + (lane >> 3 & 1)));
            mma_f16(s[2 * n], a[k], b[0], b[1]);
            mma_f16(s[2 * n + 1], a[k], b[2], b[3]);
        }
}

template <int HD>
static __device__ __forceinline__ void add_values(const float s[8][4], uint32_t values,
                                                  float o[HD / 8][4])
{
    uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < 4; k++) { /* 16 positions */
        uint32_t a[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *c = s[2 * k + (i >> 1)] + 2 * (i & 1);
            a[i] = halves(c[0], c[1]);
        }
#pragma unroll
        for (int n = 0; n < HD / 16; n++) {
            uint32_t b[4], row = 16 * k + (lane & 15);
            load_matrix4_t(b, values + piece_at(row, 2 * n + (lane >> 4)));
            mma_f16(o[2 * n], a, b[0], b[1]);
            mma_f16(o[2 * n + 1], a, b[2], b[3]);
        }
    }
}

#endif

/* The barrier of a group's THREADS. Its number as a constant: read from a register it is slower. */
static __device__ __forceinline__ void group_sync()
{
    if (threadIdx.x < THREADS)
        asm volatile("bar.sync 1, 128;" ::: "memory");
    else
        asm volatile("bar.sync 2, 128;" ::: "memory");
}

/* What a warp has of its tokens g and g + 8 after some of the positions. */
template <int HD> struct part {
    float o[HD / 8][4], m[2], l[2];
};

/* Positions 64 b .. into the part; the keys are at `keys`, the values behind them. */
template <int HD>
static __device__ __forceinline__ void fold(part<HD> &p, const uint32_t q[HD / 16][4],
                                            uint32_t keys, uint32_t b, uint32_t first,
                                            uint32_t n_pos)
{
    uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    float s[8][4], keep[2];
    scores<HD>(q, keys, s);
    if (b * KV_POS + KV_POS > first) /* some position is after some row's */
#pragma unroll
        for (int c = 0; c < 8; c++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                uint32_t pos = b * KV_POS + 8 * c + 2 * t + (i & 1);
                s[c][i] = pos <= first + g + 8 * (i >> 1) && pos < n_pos ? s[c][i] : -INFINITY;
            }
    soften(s, p.m, p.l, keep);
#pragma unroll
    for (int c = 0; c < HD / 8; c++) {
        p.o[c][0] *= keep[0], p.o[c][1] *= keep[0];
        p.o[c][2] *= keep[1], p.o[c][3] *= keep[1];
    }
    add_values<HD>(s, keys + KV_POS * HD * 2, p.o);
}

/* Two groups: each gives half of the dimensions away through shared memory and gets the other's
 * part of its own half, which is in the first places of o then. */
template <int HD>
static __device__ __forceinline__ void join(part<HD> &p, float *mine, float *other)
{
    enum { HALF = HD / 16 };
    uint32_t lane = threadIdx.x % THREADS;
    bool second = threadIdx.x >= THREADS;
#pragma unroll
    for (int i = 0; i < 4 * HALF; i++) {
        float low = p.o[i / 4][i % 4], high = p.o[HALF + i / 4][i % 4];
        mine[i * THREADS + lane] = second ? low : high;
        p.o[i / 4][i % 4] = second ? high : low;
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        mine[(4 * HALF + r) * THREADS + lane] = p.m[r];
        mine[(4 * HALF + 2 + r) * THREADS + lane] = p.l[r];
    }
    __syncthreads();
    float of_mine[2], of_other[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float m = other[(4 * HALF + r) * THREADS + lane];
        float top = fmaxf(p.m[r], m); /* the first position is everybody's: not both are -inf */
        of_mine[r] = exp2f(p.m[r] - top), of_other[r] = exp2f(m - top);
        p.l[r] = p.l[r] * of_mine[r] + other[(4 * HALF + 2 + r) * THREADS + lane] * of_other[r];
    }
#pragma unroll
    for (int i = 0; i < 4 * HALF; i++)
        p.o[i / 4][i % 4] = p.o[i / 4][i % 4] * of_mine[i / 2 % 2] +
                            other[i * THREADS + lane] * of_other[i / 2 % 2];
}

/* The first N groups of eight dimensions of both tokens, to dimension d and on; l is whole. */
template <int N, int HD>
static __device__ __forceinline__ void put(const bnet_cu_attn_args &a, const part<HD> &p,
                                           uint32_t token, uint32_t row0, uint32_t n, uint32_t d)
{
    uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        uint32_t row = row0 + g + 8 * r;
        float inv = 1.0f / p.l[r];
        float *y = a.y + ((size_t)(token + row) * a.n_heads + blockIdx.x) * HD + d + 2 * t;
#pragma unroll
        for (int c = 0; c < N; c++)
            if (row < n)
                *(float2 *)(y + 8 * c) = make_float2(p.o[c][2 * r] * inv, p.o[c][2 * r + 1] * inv);
    }
}

template <int KV, int HD> static __device__ __forceinline__ void prefill(const bnet_cu_attn_args &a)
{
    extern __shared__ __align__(1024) uint8_t dynamic[];
    enum { STAGE = KV_POS * HD * 4 };
    uint32_t group = threadIdx.x / THREADS, groups = blockDim.x / THREADS;
    uint32_t row0 = threadIdx.x % THREADS / 32 * ROWS,
             stage = shared_addr(dynamic) + group * 2 * STAGE;
    pdl_launch();
    /* the step was brought before the pass began: it may be read before the wait */
    bnet_dev_tile tile = a.tiles[gridDim.y - 1 - blockIdx.y]; /* the longest of a prompt first */
    uint32_t n = (uint32_t)tile.n, token = (uint32_t)tile.first;
    if (tile.n <= 0 || a.step.pos[token] < 0) {
        pdl_wait(); /* what comes after this kernel waits for it alone */
        return;
    }
    uint32_t p0 = (uint32_t)a.step.pos[token], n_pos = p0 + n, end = (n_pos + KV_POS - 1) / KV_POS;
    kv_view kv = kv_of(a, token, blockIdx.x / (a.n_heads / a.n_kv_heads));
    const uint8_t *first = kv.part(min(group, end - 1), 0);
    pdl_wait();
    if (group < end)
        load_block<KV, HD>(kv, first, group, n_pos, stage);
    uint32_t q[HD / 16][4];
    load_queries<HD>(a, token, row0, n, q);
    part<HD> p = {{}, {-INFINITY, -INFINITY}, {0, 0}};
    /* A group with a block less goes the last round for its barriers: compute-sanitizer counts them
     * thread by thread, and takes groups that met different numbers for a race in join(). */
    for (uint32_t b = group, i = 0; b - group < end; b += groups, i++) {
        if (b + groups < end)
            load_block<KV, HD>(kv, kv.part(b + groups, 0), b + groups, n_pos,
                               stage + (i + 1 & 1) * STAGE);
        else
            copy_commit();
        copy_wait<1>();
#if BNET_SM90A
        async_fence();
#endif
        group_sync();
        if (b < end)
            fold<HD>(p, q, stage + (i & 1) * STAGE, b, p0 + row0, n_pos);
        group_sync();
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        p.l[r] += __shfl_xor_sync(0xffffffffu, p.l[r], 1);
        p.l[r] += __shfl_xor_sync(0xffffffffu, p.l[r], 2);
    }
    if (groups == 1) {
        put<HD / 8>(a, p, token, row0, n, 0);
        return;
    }
    join<HD>(p, (float *)(dynamic + group * 2 * STAGE),
             (float *)(dynamic + (group ^ 1) * 2 * STAGE));
    put<HD / 16>(a, p, token, row0, n, group * HD / 2);
}

#define VARIANT(name, kv, hd)                                                                      \
    KERNEL __launch_bounds__(2 * THREADS) name(const __grid_constant__ bnet_cu_attn_args a)        \
    {                                                                                              \
        prefill<kv, hd>(a);                                                                        \
    }
VARIANT(bnet_attn_prefill_f16_64, KV_F16, 64)
VARIANT(bnet_attn_prefill_f16_128, KV_F16, 128)
VARIANT(bnet_attn_prefill_i8_64, KV_I8, 64)
VARIANT(bnet_attn_prefill_i8_128, KV_I8, 128)

#endif
