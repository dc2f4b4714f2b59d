/* head_copy.cu - the best 64 logits of a head of floats for one to eight tokens, by a copy of it in
 * int8 that is read whole and the few rows of the head that can be among the best.
 *
 * No wanted row is lost: l is the logit that bnet_head_* computes, a what the copy says, and
 * |l - a| <= b. Of 64 rows (the best of 64 groups) a - b >= t, so the 64th best l is at least t; a
 * row among the best 64, or equal to the last of them, has l >= t, hence a + b >= t, and is
 * computed from the head itself, with the same bits.
 *
 * The bound. u = 2^-24, g(m) = m u / (1 - m u), |.| is the Euclidean length, n the stride. The row
 * is w = s c + r with codes c, the input x = z X + e with integers X = 256 H + L of 16 bits,
 * |X| <= 32512, |H|, |L| <= 128, z = max |x| / 32512.
 *   1. bnet_head_*: n / 32 fused sums and 5 foldings touch a term: |l - w x| <= g(n / 32 + 5)
 *      |w| |x|, since float rows are multiplied as they are.
 *   2. |w x - s c x| <= |r| |x|.
 *   3. |s c x - s c z X| <= |s c| |e|; an element of e is half of z and what the roundings of z,
 * its inverse and the product make: 0.52 z.
 *   4. c H and c L are exact integers; their conversions, 256 c H + c L, s z and the last product
 *      are rounded: 4.1 u of s z (256 |c H| + |c L|) <= |s c| (z |X| + 256 z sqrt(n)).
 *   5. a - b and a + b are floats themselves: u (|a| + b).
 *   6. What underflows is less than TINY.
 * With norm >= |w| + |r| >= |s c|, reach >= |x|: b = |r| reach + norm slack + TINY, slack =
 * 0.52 z sqrt(n) + 2 (n / 32 + 64) u (reach + 256 z sqrt(n)), which is more than all of it; reach
 * is raised for the floats it is made of. Where norm reach is not below 1e37 (what is not finite,
 * what may overflow) nothing is known of the row: it is computed. */
#include "best.cuh"
#include "matrix.cuh"
#include "head_copy.cuh"

enum { SCAN_THREADS = BNET_SCREEN_SCAN_THREADS, SCAN_WARPS = SCAN_THREADS / 32, DEPTH = 8 };
enum { PICK_THREADS = BNET_SCREEN_PICK_THREADS, PICK_WARPS = PICK_THREADS / 32 };
enum { LIST = BNET_SCREEN_LIST, EACH = BNET_SCREEN_EACH, TOKENS = BNET_SCREEN_TOKENS };
enum { AT_ONCE = PICK_THREADS * EACH, FIRST = BNET_TOPK_MAX / PICK_WARPS };
enum { BITS = 20 }; /* of the threshold, from the highest: the rest is rounded down */

/* ---- the copy ---- */

/* Four codes of a row, columns k .. k + 3, as a word of a unit. */
static __device__ __forceinline__ uint32_t *place(const bnet_cu_screen_args &a, uint32_t row,
                                                  uint32_t k)
{
    uint32_t unit = row / 16 * (a.m.stride / 32) + k / 32, r = row % 16, c = k % 32;
    return (uint32_t *)(a.codes + (size_t)unit * BNET_SCREEN_UNIT +
                        (4 * (r % 8) + c % 16 / 4) * 16 + (r / 8 + c / 16 * 2) * 4);
}

template <typename R> static __device__ __forceinline__ void pack(const bnet_cu_screen_args &a)
{
    constexpr int E = R::E;
    uint32_t row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t from = min(row, a.m.n_rows - 1);
    float top = 0, f[E];
    double norm = 0, rest = 0;
    R r;
    for (uint32_t at = lane * E; at < a.m.stride; at += 32 * E) {
        r.load(a.m, from, at);
        r.floats(f);
#pragma unroll
        for (int i = 0; i < E; i++) {
            top = fmaxf(top, fabsf(f[i]));
            norm += (double)f[i] * f[i];
        }
    }
    top = warp_max(top);
    norm = warp_sum(norm);
    bool known = norm < 1e60 && row < a.m.n_rows; /* not where something is not finite */
    float scale = known ? top / 127.0f : 0, inverse = known && top > 0 ? 127.0f / top : 0;
    for (uint32_t at = lane * E; at < a.m.stride; at += 32 * E) {
        r.load(a.m, from, at);
        r.floats(f);
#pragma unroll
        for (int i = 0; i < E; i += 4) {
            uint32_t word = 0;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                float v = known ? f[i + j] : 0;
                int q = (int)fminf(fmaxf(rintf(v * inverse), -127.0f), 127.0f);
                double d = (double)v - (double)scale * q;
                rest += d * d;
                word |= (uint32_t)(q & 255) << 8 * j;
            }
            *place(a, row, at + i) = word;
        }
    }
    rest = sqrt(warp_sum(rest));
    bnet_cu_screen_row to = {scale, (float)(rest * (1 + 1e-6)) + 1e-37f,
                             (float)((sqrt(norm) + rest) * (1 + 1e-6)) + 1e-37f, 0};
    if (!known)
        to.rest = to.norm = INFINITY;
    if (lane == 0)
        a.rows[row] = to;
}

#define PACK(name)                                                                                 \
    KERNEL __launch_bounds__(256)                                                                  \
        bnet_screen_pack_##name(const __grid_constant__ bnet_cu_screen_args a)                     \
    {                                                                                              \
        pack<rows_##name>(a);                                                                      \
    }
PACK(f16)
PACK(bf16)
PACK(f32)

/* ---- what every logit is at most and at least ---- */

/* C[16][8] += A[16][32] * B[32][8] of int8 */
static __device__ __forceinline__ void mma_s8(int *c, const uint4 &a, const uint2 &b)
{
#if BNET_SM80
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y));
#elif defined(__CUDA_ARCH__)
    const uint32_t w[4] = {a.x, a.y, a.z, a.w}, v[2] = {b.x, b.y};
#pragma unroll
    for (int i = 0; i < 4; i++) /* 7.5: four products of 8 x 8 x 16 */
        asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
                     : "+r"(c[i % 2 * 2]), "+r"(c[i % 2 * 2 + 1])
                     : "r"(w[i]), "r"(v[i / 2]));
#else
    (void)c, (void)a, (void)b;
#endif
}

static __device__ __forceinline__ input measure(const bnet_cu_screen_args &a, float top, float ss)
{
    input r = {0, 0, sqrtf(ss * 1.0001f + 1e-36f), 0};
    float root = sqrtf((float)a.m.stride), u = 0x1p-24f;
    if (top > 1e-30f) {
        r.unit = top / 32512.0f;
        r.inverse = 32512.0f / top;
    }
    float e = top > 1e-30f ? 0.52f * r.unit * root : r.reach;
    r.slack = e * 1.001f + 2 * (a.m.stride / 32 + 64) * u * (r.reach + 256 * r.unit * root);
    if (!(ss < 1e37f))
        r = {0, 0, INFINITY, 0};
    return r;
}

/* The largest |x| and the sum of squares of n tokens from x on, then what follows from it. */
static __device__ void look_at(const bnet_cu_screen_args &a, const float *x, uint32_t n, input *in)
{
    __shared__ float part[TOKENS][SCAN_WARPS][2];
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (uint32_t t = 0; t < n; t++) {
        float top = 0, ss = 0;
        for (uint32_t i = threadIdx.x; i < a.m.k; i += SCAN_THREADS) {
            float v = x[(size_t)t * a.ldx + i];
            top = fmaxf(top, fabsf(v));
            ss = fmaf(v, v, ss);
        }
        top = warp_max(top);
        ss = warp_sum(ss);
        if (lane == 0)
            part[t][warp][0] = top, part[t][warp][1] = ss;
    }
    __syncthreads();
    if (warp < n) {
        float top = warp_max(lane < SCAN_WARPS ? part[warp][lane][0] : 0);
        float ss = warp_sum(lane < SCAN_WARPS ? part[warp][lane][1] : 0);
        if (lane == 0)
            in[warp] = measure(a, top, ss);
    }
    __syncthreads();
}

/* Columns k .. k + 3 of a vector in 16 bits: high bytes and low ones. */
static __device__ __forceinline__ uint2 bytes_of(const bnet_cu_screen_args &a, const float *x,
                                                 uint32_t k, float inverse)
{
    uint2 w = {0, 0};
#pragma unroll
    for (uint32_t j = 0; j < 4; j++) {
        int q = __float2int_rn(k + j < a.m.k ? x[k + j] * inverse : 0.0f);
        w.x |= (uint32_t)((q + 128) >> 8 & 255) << 8 * j;
        w.y |= (uint32_t)(q & 255) << 8 * j;
    }
    return w;
}

/* High and low bytes of the vectors as the B operand reads them: token t's are columns 2 t and
 * 2 t + 1 of its set of four; [chunk][set][lane][2 words]. */
static __device__ void take_bytes(const bnet_cu_screen_args &a, const input *in, uint32_t sets,
                                  uint32_t *b)
{
    for (uint32_t p = threadIdx.x; p < a.m.stride / 4 * a.n_tokens; p += SCAN_THREADS) {
        uint32_t t = p / (a.m.stride / 4), k = p % (a.m.stride / 4) * 4;
        uint2 w = bytes_of(a, a.x + (size_t)t * a.ldx, k, in[t].inverse);
        uint32_t at = ((k / 32 * sets + t / 4) * 32 + t % 4 * 8 + k % 16 / 4) * 2 + k % 32 / 16;
        b[at] = w.x;
        b[at + 8] = w.y;
    }
}

/* A tile's sums of a set become bounds; `best`: of this lane's token, what is at least there. */
static __device__ __forceinline__ void bound(const bnet_cu_screen_args &a, const input &in,
                                             const int *c, uint32_t tile, uint32_t token,
                                             uint32_t &best)
{
    uint32_t g = threadIdx.x % 32 / 4;
    if (token >= a.n_tokens)
        return;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t row = tile * 16 + i * 8 + g;
        float4 r = __ldg((const float4 *)(a.rows + row));
        limits l = limits_of(r, in, c[2 * i], c[2 * i + 1]);
        if (row < a.m.n_rows) {
            a.most[(size_t)token * a.m.n_rows + row] = l.most;
            best = max(best, l.least);
        }
    }
}

struct stream {
    const int8_t *at; /* this lane's 16 bytes of unit 0 of a tile */
    uint32_t n;       /* units left from there; 0: none */
};

static __device__ __forceinline__ void fetch(uint4 *r, const stream &s)
{
#pragma unroll
    for (uint32_t j = 0; j < DEPTH; j++)
        if (j < s.n)
            r[j] = load_stream(s.at + j * BNET_SCREEN_UNIT);
}

template <int SETS> static __device__ __forceinline__ void scan(const bnet_cu_screen_args &a)
{
    extern __shared__ __align__(16) uint32_t bytes[];
    __shared__ input in[TOKENS];
    __shared__ uint32_t tops[TOKENS][SCAN_WARPS];
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, units = a.m.stride / 32;
    uint32_t tiles = (a.m.n_rows + 15) / 16, step = gridDim.x * SCAN_WARPS;
    uint32_t tile = warp * gridDim.x + blockIdx.x, best[SETS] = {};
    const int8_t *codes = a.codes + lane * 16;
    stream next = {codes + (size_t)tile * units * BNET_SCREEN_UNIT, tile < tiles ? units : 0};
    uint4 r[DEPTH] = {};
    fetch(r, next);
    for (uint32_t i = threadIdx.x; i < units * SETS * 64; i += SCAN_THREADS)
        bytes[i] = 0;
    if (threadIdx.x < TOKENS * SCAN_WARPS)
        tops[threadIdx.x / SCAN_WARPS][threadIdx.x % SCAN_WARPS] = 0;
    pdl_launch();
    pdl_wait();
    look_at(a, a.x, a.n_tokens, in);
    take_bytes(a, in, SETS, bytes);
    __syncthreads();
    for (; tile < tiles; tile += step) {
        int c[SETS][4] = {};
        for (uint32_t u = 0; u < units; u += DEPTH) {
            if (u + DEPTH < units)
                next = {next.at + DEPTH * BNET_SCREEN_UNIT, units - u - DEPTH};
            else
                next = {codes + (size_t)(tile + step) * units * BNET_SCREEN_UNIT,
                        tile + step < tiles ? units : 0};
#pragma unroll
            for (uint32_t j = 0; j < DEPTH; j++) {
                if (u + j < units)
#pragma unroll
                    for (int s = 0; s < SETS; s++)
                        mma_s8(c[s], r[j],
                               ((const uint2 *)bytes)[((u + j) * SETS + s) * 32 + lane]);
                if (j < next.n)
                    r[j] = load_stream(next.at + j * BNET_SCREEN_UNIT);
            }
        }
#pragma unroll
        for (int s = 0; s < SETS; s++)
            bound(a, in[4 * s + lane % 4], c[s], tile, 4 * s + lane % 4, best[s]);
    }
#pragma unroll
    for (int s = 0; s < SETS; s++) {
#pragma unroll
        for (int o = 16; o >= 4; o /= 2)
            best[s] = max(best[s], __shfl_xor_sync(0xffffffffu, best[s], o));
        if (lane < 4)
            atomicMax(&tops[4 * s + lane][warp % a.parts], best[s]);
    }
    __syncthreads();
    uint32_t token = threadIdx.x / SCAN_WARPS, part = threadIdx.x % SCAN_WARPS;
    if (token < a.n_tokens && part < a.parts)
        a.groups[(size_t)token * a.n_groups + blockIdx.x * a.parts + part] = tops[token][part];
}

KERNEL __launch_bounds__(SCAN_THREADS, 2)
    bnet_screen_scan_4(const __grid_constant__ bnet_cu_screen_args a)
{
    scan<1>(a);
}

KERNEL __launch_bounds__(SCAN_THREADS, 2)
    bnet_screen_scan_8(const __grid_constant__ bnet_cu_screen_args a)
{
    scan<2>(a);
}

/* A token's bytes for the scan of batches, tokens that are not there as zeros. */
KERNEL __launch_bounds__(SCAN_THREADS)
    bnet_screen_split(const __grid_constant__ bnet_cu_screen_args a)
{
    __shared__ input in;
    uint32_t t = blockIdx.x, there = t < a.n_tokens ? 1 : 0, column = 2 * t;
    const float *x = a.x + (size_t)(there ? t : 0) * a.ldx;
    pdl_launch();
    pdl_wait();
    look_at(a, x, 1, &in);
    for (uint32_t k = threadIdx.x * 4; k < (a.m.stride + 127) / 128 * 128; k += SCAN_THREADS * 4) {
        uint2 w = there ? bytes_of(a, x, k, in.inverse) : make_uint2(0, 0);
        uint8_t *to = a.bytes + ((size_t)(k / 128) * a.columns + column) * 128 + k % 16;
        *(uint32_t *)(to + (k % 128 / 16 ^ (column & 7)) * 16) = w.x;
        *(uint32_t *)(to + 128 + (k % 128 / 16 ^ (column + 1 & 7)) * 16) = w.y;
    }
    if (threadIdx.x == 0)
        ((float4 *)a.inputs)[t] = make_float4(in.unit, in.inverse, in.reach, in.slack);
}

/* ---- rows that can be among the best, exactly ---- */

/* The 64th largest of what the block's threads have, rounded down; 0: there are fewer. */
static __device__ __forceinline__ uint32_t threshold(uint32_t mine)
{
    uint32_t t = 0;
    for (uint32_t bit = 0x80000000u; bit >> (32 - BITS); bit /= 2)
        if (__syncthreads_count(mine >= (t | bit)) >= BNET_TOPK_MAX)
            t |= bit;
    return t;
}

/* Where element k of a vector lies, as in head.cu. */
template <int E> static __device__ __forceinline__ uint32_t x_at(uint32_t k)
{
    return k / (32 * E) * (32 * E) + k % E / 4 * 128 + k % (32 * E) / E * 4 + k % 4;
}

/* ROWS rows by a warp: bnet_head_*'s sums in their order, AHEAD pieces of each asked for at once.
 */
template <typename R, int ROWS, int AHEAD>
static __device__ __forceinline__ void exact(const bnet_dev_matrix &m, const uint32_t *rows,
                                             const float *xs, float *out)
{
    enum { E = R::E };
    uint32_t lane = threadIdx.x % 32;
    float acc[ROWS] = {};
    for (uint32_t from = lane * E; from < m.stride; from += 32 * E * AHEAD) {
        R r[AHEAD][ROWS];
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
#pragma unroll
            for (int j = 0; j < ROWS; j++)
                r[i][j].load(m, rows[j], min(from + i * 32 * E, m.stride - E));
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            uint32_t at = from + i * 32 * E;
#pragma unroll
            for (int j = 0; j < ROWS; j++) {
                float f[E];
                r[i][j].floats(f);
#pragma unroll
                for (int e = 0; e < E / 4 && at < m.stride; e++) {
                    float4 v = *(const float4 *)(xs + (at - lane * E) + lane * 4 + e * 128);
                    acc[j] = fmaf(f[4 * e], v.x, acc[j]);
                    acc[j] = fmaf(f[4 * e + 1], v.y, acc[j]);
                    acc[j] = fmaf(f[4 * e + 2], v.z, acc[j]);
                    acc[j] = fmaf(f[4 * e + 3], v.w, acc[j]);
                }
            }
        }
    }
#pragma unroll
    for (int j = 0; j < ROWS; j++)
        out[j] = warp_sum(acc[j]);
}

template <typename R>
static __device__ __forceinline__ void take_vector(const bnet_cu_screen_args &a, uint32_t token,
                                                   float *xs)
{
    uint32_t padded = (a.m.stride + 1023) / 1024 * 1024;
    const float *x = a.x + (size_t)token * a.ldx;
    for (uint32_t i = threadIdx.x; i < padded; i += PICK_THREADS)
        xs[x_at<R::E>(i)] = i < a.m.k ? x[i] : 0.0f;
}

/* The 64 rows that are at least something in most groups: what the least of them is, is a threshold
 * for all. */
template <typename R> static __device__ __forceinline__ void first(const bnet_cu_screen_args &a)
{
    extern __shared__ __align__(16) uint8_t dynamic[];
    __shared__ uint32_t rows[BNET_TOPK_MAX], n_rows, worst;
    uint32_t token = blockIdx.x, warp = threadIdx.x / 32;
    const key *leaders = (const key *)a.leaders + (size_t)token * a.n_groups;
    float *xs = (float *)dynamic;
    key mine = 0;
    if (threadIdx.x == 0)
        n_rows = 0, worst = 0xffffffffu;
    pdl_launch();
    pdl_wait();
    take_vector<R>(a, token, xs);
    for (uint32_t i = threadIdx.x; i < a.n_groups; i += PICK_THREADS)
        mine = max(mine, __ldcg(leaders + i));
    uint32_t least = threshold((uint32_t)(mine >> 32)); /* with barriers */
    if (least && (uint32_t)(mine >> 32) >= least) {
        uint32_t at = atomicAdd(&n_rows, 1);
        if (at < BNET_TOPK_MAX)
            rows[at] = (uint32_t)id_of(mine);
    }
    __syncthreads();
    if (least) {
        float v[FIRST];
        exact<R, FIRST, 5>(a.m, rows + warp * FIRST, xs, v);
        for (int i = 0; threadIdx.x % 32 == 0 && i < FIRST; i++)
            atomicMin(&worst, key_of(v[i], 0) ? order(v[i]) : 0);
    }
    __syncthreads();
    if (threadIdx.x == 0)
        a.least[token] = least ? worst : 0;
}

struct room {
    key found[LIST], lists[PICK_WARPS][64];
    uint32_t rows[LIST];
    float xs[]; /* and of batches behind it groups, AT_ONCE of them */
};

/* The rows of the list are computed, two at a time if MANY; the best of them and of `best`, in warp
 * 0. */
template <typename R, bool MANY>
static __device__ void compute(const bnet_cu_screen_args &a, room *s, uint32_t n, list &best)
{
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, i = warp;
    for (; MANY && i + PICK_WARPS < n; i += 2 * PICK_WARPS) {
        uint32_t rows[2] = {s->rows[i], s->rows[i + PICK_WARPS]};
        float v[2];
        exact<R, 2, 3>(a.m, rows, s->xs, v);
        if (lane < 2)
            s->found[i + lane * PICK_WARPS] = key_of(lane ? v[1] : v[0], lane ? rows[1] : rows[0]);
    }
    for (; i < n; i += PICK_WARPS) {
        float v;
        exact<R, 1, 5>(a.m, &s->rows[i], s->xs, &v);
        if (lane == 0)
            s->found[i] = key_of(v, s->rows[i]);
    }
    __syncthreads();
    for (i = warp * 64; i < n; i += PICK_WARPS * 64) {
        list l = {{i + lane < n ? s->found[i + lane] : 0,
                   i + lane + 32 < n ? s->found[i + lane + 32] : 0}};
        sort(l);
        merge(best, l);
    }
    uint32_t lists = 1;
    while (lists < PICK_WARPS && lists * 64 < n)
        lists *= 2;
    merge_warps(best, lists, s->lists);
    if (warp)
        best = {{0, 0}};
    __syncthreads();
}

/* What a block collects: rows until the list is full, then the best of them. */
template <typename R, bool GROUPS> struct picker {
    const bnet_cu_screen_args &a;
    room *s;
    uint32_t *n_rows; /* shared memory */
    uint32_t token, least;
    list best;

    __device__ __forceinline__ void take(uint32_t row, float most)
    {
        if (order(most) >= least)
            s->rows[atomicAdd(n_rows, 1)] = row;
    }
    /* After AT_ONCE rows at most: is there room for as many again? */
    __device__ __forceinline__ void look(bool last)
    {
        __syncthreads();
        uint32_t n = *n_rows;
        __syncthreads();
        if (n + AT_ONCE <= LIST && !last)
            return;
        compute<R, GROUPS>(a, s, n, best);
        if (threadIdx.x == 0) {
            *n_rows = 0;
            if (a.computed)
                atomicAdd(a.computed + token, n);
        }
        __syncthreads();
    }
    __device__ __forceinline__ void by_rows(uint32_t begin, uint32_t end)
    {
        const float *most = a.most + (size_t)token * a.m.n_rows;
        for (uint32_t i = begin; i < end; i += AT_ONCE) {
            float v[EACH];
#pragma unroll
            for (uint32_t j = 0; j < EACH; j++)
                v[j] = __ldcg(most + min(i + j * PICK_THREADS + threadIdx.x, end - 1));
#pragma unroll
            for (uint32_t j = 0; j < EACH; j++)
                if (i + j * PICK_THREADS + threadIdx.x < end)
                    take(i + j * PICK_THREADS + threadIdx.x, v[j]);
            look(i + AT_ONCE >= end);
        }
    }
    /* Groups of 32 that have one: lane 4 g + 2 i + j of them is row 64 i + 8 j + g. */
    __device__ __forceinline__ void by_groups(uint32_t begin, uint32_t end, uint32_t *n_groups)
    {
        const uint32_t *highest = a.groups + (size_t)token * a.n_groups;
        const float *most = a.most + (size_t)token * a.n_groups * 32;
        uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        uint32_t *groups = (uint32_t *)(s->xs + (a.m.stride + 1023) / 1024 * 1024);
        for (uint32_t from = begin; from < end; from += AT_ONCE) {
            if (threadIdx.x == 0)
                *n_groups = 0;
            __syncthreads();
            for (uint32_t i = from + threadIdx.x; i < min(from + AT_ONCE, end); i += PICK_THREADS)
                if (__ldcg(highest + i) >= least)
                    groups[atomicAdd(n_groups, 1)] = i;
            __syncthreads();
            uint32_t n = *n_groups;
            for (uint32_t i = 0; i < n || i == 0; i += AT_ONCE / 32) {
                for (uint32_t j = i + warp; j < min(i + AT_ONCE / 32, n); j += PICK_WARPS) {
                    uint32_t group = groups[j], block = group / 8, w = group % 8;
                    uint32_t row = block * BNET_SCREEN_BATCH_ROWS + w / 4 * 128 + w % 4 * 16 +
                                   lane / 4 + (lane & 1) * 8 + (lane >> 1 & 1) * 64;
                    float v = __ldcg(most + (size_t)group * 32 + lane);
                    if (row < a.m.n_rows)
                        take(row, v);
                }
                look(i + AT_ONCE / 32 >= n && from + AT_ONCE >= end);
            }
        }
    }
};

template <typename R, bool GROUPS>
static __device__ __forceinline__ void pick(const bnet_cu_screen_args &a)
{
    extern __shared__ __align__(16) uint8_t dynamic[];
    __shared__ uint32_t n_rows, n_groups;
    uint32_t n = GROUPS ? a.n_groups : a.m.n_rows, per = (n + gridDim.x - 1) / gridDim.x;
    uint32_t lane = threadIdx.x % 32, begin = blockIdx.x * per, end = min(begin + per, n), mine = 0;
    picker<R, GROUPS> p = {a, (room *)dynamic, &n_rows, blockIdx.y, 0, {{0, 0}}};
    if (threadIdx.x == 0)
        n_rows = 0;
    pdl_launch();
    pdl_wait();
    take_vector<R>(a, p.token, p.s->xs);
    for (uint32_t i = threadIdx.x; !GROUPS && i < a.n_groups; i += PICK_THREADS)
        mine = max(mine, __ldcg(a.groups + (size_t)p.token * a.n_groups + i));
    p.least = GROUPS ? __ldcg(a.least + p.token) : threshold(mine);
    __syncthreads();
    if (GROUPS)
        p.by_groups(begin, end, &n_groups);
    else
        p.by_rows(begin, end);
    if (threadIdx.x < 32) {
        key *to = (key *)a.lists + ((size_t)p.token * a.n_slices + blockIdx.x) * BNET_TOPK_MAX;
        to[lane] = p.best.k[0];
        to[lane + 32] = p.best.k[1];
    }
}

/* The lists of a token's slices. */
static __device__ __forceinline__ void best_of_slices(const bnet_cu_screen_args &a)
{
    __shared__ key lists[32][64];
    uint32_t token = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    pdl_launch();
    pdl_wait();
    const key *from = (const key *)a.lists + (size_t)token * a.n_slices * BNET_TOPK_MAX + lane;
    list best = {{0, 0}};
    for (uint32_t i = warp; i < a.n_slices; i += blockDim.x / 32) {
        list l = {{__ldcg(from + i * BNET_TOPK_MAX), __ldcg(from + i * BNET_TOPK_MAX + 32)}};
        merge(best, l);
    }
    merge_warps(best, blockDim.x / 32, lists);
    for (uint32_t i = lane; warp == 0 && i < a.k; i += 32) {
        key k = i < 32 ? best.k[0] : best.k[1];
        a.id[(size_t)token * a.k + i] = id_of(k);
        a.value[(size_t)token * a.k + i] = value_of(k);
    }
}

#define PICK(name)                                                                                 \
    KERNEL __launch_bounds__(PICK_THREADS, 2)                                                      \
        bnet_screen_##name(const __grid_constant__ bnet_cu_screen_args a)                          \
    {                                                                                              \
        pick<rows_##name, false>(a);                                                               \
    }
PICK(f16)
PICK(bf16)
PICK(f32)

KERNEL __launch_bounds__(1024) bnet_screen_best(const __grid_constant__ bnet_cu_screen_args a)
{
    best_of_slices(a);
}

#if BNET_SM90A || !defined(__CUDA_ARCH__) /* where there is a scan of batches */

#define REST(name)                                                                                 \
    KERNEL __launch_bounds__(PICK_THREADS, 2)                                                      \
        bnet_screen_rest_##name(const __grid_constant__ bnet_cu_screen_args a)                     \
    {                                                                                              \
        pick<rows_##name, true>(a);                                                                \
    }                                                                                              \
    KERNEL __launch_bounds__(PICK_THREADS, 1)                                                      \
        bnet_screen_first_##name(const __grid_constant__ bnet_cu_screen_args a)                    \
    {                                                                                              \
        first<rows_##name>(a);                                                                     \
    }
REST(f16)
REST(bf16)
REST(f32)

KERNEL __launch_bounds__(1024) bnet_screen_best_batch(const __grid_constant__ bnet_cu_screen_args a)
{
    best_of_slices(a);
}

#endif
