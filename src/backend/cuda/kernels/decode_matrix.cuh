/* decode_matrix.cuh - one matrix of a layer in the decode kernel. The input is collected by the
 * cluster: a warp asks for some chunks of 128 elements until they are there, weighs them with the
 * norm, tells all blocks of the cluster the largest |x w|, and once it knows those of all chunks, sends
 * its chunks as codes. Blocks multiply their rows with them. Part of decode_sm90.cu. */
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

/* One thread: what may come when a matrix has been used. q + k + v and o share their place. */
static __device__ __forceinline__ void fetch_next(const context &c, uint32_t matrix)
{
    if (matrix >= GATE_UP)
        fetch(c, c.layer + 1, matrix);
    else if (matrix == QKV && c.b->tasks[OUT].bytes)
        fetch(c, c.layer, OUT);
    else
        fetch(c, c.layer + 1, c.b->tasks[QKV].bytes ? QKV : OUT);
}

/* One thread: the input of a matrix may come. */
static __device__ __forceinline__ void expect_input(const context &c, uint32_t matrix)
{
    const task &t = c.b->tasks[matrix];
    expect(shared_addr(&c.b->tops[matrix]), t.chunks * 4);
    expect(shared_addr(&c.b->in[matrix]), t.n);
    expect(shared_addr(&c.b->late[matrix]), t.chunks * 8);
}

static __device__ __forceinline__ float approximate(float x)
{
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

/* 127 / top, one step of Newton behind an approximation; 0 where there is nothing. The norm's factor
 * is the same for all elements, so the codes need only the largest |x w|. Normed values that are all
 * below 1e-5 keep their own scale here. */
static __device__ __forceinline__ float inverse(float top)
{
    float r = approximate(top);
    return top >= 1e-30f ? 127.0f * fmaf(r, fmaf(-top, r, 1.0f), r) : 0.0f;
}

/* A warp: the largest |x w| of all chunks, when they are there. */
static __device__ __forceinline__ float top_of(const context &c, uint32_t matrix)
{
    uint32_t lane = threadIdx.x % 32, chunks = c.b->tasks[matrix].chunks;
    const float *top = c.b->top[matrix & 1] + lane;
    float v = 0;
    await(shared_addr(&c.b->tops[matrix]), c.layer & 1);
#pragma unroll
    for (uint32_t i = 0; i < CHUNKS; i += 32)
        v = i + lane < chunks ? fmaxf(v, top[i]) : v;
    return __uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(v)));
}

/* A warp's chunks of the input for all blocks of the cluster. Lane i has the elements whose codes
 * are word i of a chunk, in the order in which products take them. */
struct collector {
    const float *in;
    uint32_t first, chunks, lane;
    float4 v[SEEN], w[SEEN];

    /* the last one again where there are no more */
    __device__ __forceinline__ uint32_t at(uint32_t j) const
    {
        uint32_t chunk = first + j * WARPS * CLUSTER;
        return (chunk < chunks ? chunk : first) * 128 + (lane % 8 * 4 + lane / 8) * 4;
    }
    __device__ __forceinline__ bool has(uint32_t j) const
    {
        return first + j * WARPS * CLUSTER < chunks;
    }
    __device__ __forceinline__ void ask(bool check)
    {
        uint32_t most, asked = 0;
#pragma unroll 1
        do {
            most = 0;
#pragma unroll
            for (uint32_t j = 0; j < SEEN; j++)
                v[j] = peek4(in + at(j));
#pragma unroll
            for (uint32_t j = 0; j < SEEN; j++)
                most = max(most, most4(v[j]));
            ask_again(&asked);
        } while (check && __any_sync(0xffffffffu, most == 0xffffffffu));
    }
};

/* check: elements may be NONE. */
static __device__ __forceinline__ void collect(const context &c, uint32_t matrix, const float *in,
                                               bool check)
{
    const task &t = c.b->tasks[matrix];
    const float *norm = c.layers()[c.layer].norm[matrix];
    collector k = {in, cluster_rank() + threadIdx.x / 32 * CLUSTER, t.chunks, threadIdx.x % 32, {}, {}};
    if (k.first >= k.chunks)
        return;
    uint32_t place = matrix & 1, r = min(k.lane, CLUSTER - 1);
    uint32_t top_at = there(shared_addr(&c.b->top[place][k.first]), r);
    uint32_t tops = there(shared_addr(&c.b->tops[matrix]), r), late = there(shared_addr(&c.b->late[matrix]), r);
    uint32_t ss_at = there(shared_addr(&c.b->ss[place][k.first]), r);
    uint32_t sum_at = there(shared_addr(&c.b->sum[place][k.first]), r);
    uint32_t to[CLUSTER], bar[CLUSTER];
#pragma unroll
    for (uint32_t i = 0; i < CLUSTER; i++) {
        to[i] = there(shared_addr(c.weights + t.codes) + k.first * 128 + k.lane * 4, i);
        bar[i] = there(shared_addr(&c.b->in[matrix]), i);
    }
#pragma unroll
    for (uint32_t j = 0; j < SEEN; j++)
        k.w[j] = norm ? __ldg((const float4 *)(norm + k.at(j))) : make_float4(1, 1, 1, 1);
    k.ask(check);
    float ss[SEEN];
#pragma unroll
    for (uint32_t j = 0; j < SEEN; j++) {
        float4 v = k.v[j], w = k.w[j];
        ss[j] = fmaf(v.x, v.x, fmaf(v.y, v.y, fmaf(v.z, v.z, v.w * v.w)));
        v = k.v[j] = make_float4(v.x * w.x, v.y * w.y, v.z * w.z, v.w * w.w);
        float top = fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
        uint32_t most = __reduce_max_sync(0xffffffffu, __float_as_uint(top));
        if (k.lane < CLUSTER && k.has(j))
            send(top_at + j * WARPS * CLUSTER * 4, most, tops);
    }
    c.mark(matrix, 1);
#pragma unroll
    for (uint32_t j = 0; j < SEEN; j++) {
        ss[j] = warp_sum(ss[j]);
        if (k.lane < CLUSTER && k.has(j))
            send(ss_at + j * WARPS * CLUSTER * 4, __float_as_uint(ss[j]), late);
    }
    float inv = inverse(top_of(c, matrix));
#pragma unroll
    for (uint32_t j = 0; j < SEEN; j++) {
        float4 v = k.v[j];
        uint32_t q0 = __float_as_uint(fmaf(v.x, inv, 12582912.0f));
        uint32_t q1 = __float_as_uint(fmaf(v.y, inv, 12582912.0f));
        uint32_t q2 = __float_as_uint(fmaf(v.z, inv, 12582912.0f));
        uint32_t q3 = __float_as_uint(fmaf(v.w, inv, 12582912.0f));
        uint32_t q = __byte_perm(__byte_perm(q0, q1, 0x0040), __byte_perm(q2, q3, 0x0040), 0x5410);
        if (k.has(j)) {
#pragma unroll
            for (uint32_t i = 0; i < CLUSTER; i++)
                send(to[i] + j * WARPS * CLUSTER * 128, q, bar[i]);
            int sum = __reduce_add_sync(0xffffffffu, __dp4a((int)q, 0x01010101, 0));
            if (k.lane < CLUSTER)
                send(sum_at + j * WARPS * CLUSTER * 4, (uint32_t)sum, late);
        }
    }
}

/* One warp: scale and sum of the input's codes. */
static __device__ __forceinline__ void find_scale(const context &c, uint32_t matrix)
{
    const task &t = c.b->tasks[matrix];
    uint32_t lane = threadIdx.x % 32;
    float s = 1.0f, ss = 0, top = top_of(c, matrix);
    int sum = 0;
    await(shared_addr(&c.b->late[matrix]), c.layer & 1);
#pragma unroll
    for (uint32_t i = 0; i < CHUNKS; i += 32)
        if (i + lane < t.chunks) {
            ss += c.b->ss[matrix & 1][i + lane];
            sum += __float_as_int(c.b->sum[matrix & 1][i + lane]);
        }
    ss = warp_sum(ss);
    sum = __reduce_add_sync(0xffffffffu, sum);
    if (c.layers()[c.layer].norm[matrix]) {
        float v = fmaf(ss, approximate((float)t.n), c.a.eps);
        asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(s) : "f"(v));
        s = fmaf(0.5f * s, fmaf(-v * s, s, 1.0f), s);
    }
    const float r = 1.0f / 127.0f;
    float most = top * s, q = most * r; /* most / 127 rounded as a division */
    if (lane == 0) {
        c.b->x_scale = fmaf(fmaf(-q, 127.0f, most), r, q);
        c.b->x_sum = sum;
    }
}

/* ---- products ---- */

struct operand {
    uint4 lo, hi; /* B operands of a unit's four products */
};

static __device__ __forceinline__ operand operand_at(const uint8_t *codes)
{
    const uint4 *p = (const uint4 *)(codes + threadIdx.x % 4 * 32);
    operand x = {p[0], p[1]};
    return x;
}

static __device__ __forceinline__ void unit(uint4 v, const operand &x, int acc[4][4])
{
    const uint32_t b[8] = {x.lo.x, x.lo.y, x.lo.z, x.lo.w, x.hi.x, x.hi.y, x.hi.z, x.hi.w};
#pragma unroll
    for (int s = 0; s < 4; s++) {
        uint32_t mask = 0x03030303u << 2 * s;
        uint32_t r[4] = {v.x & mask, v.y & mask, v.z & mask, v.w & mask};
        mma_u8s8(acc[s], r, b[2 * s], b[2 * s + 1]);
    }
}

/* A row's sum times 64, of both rows of a lane. */
static __device__ __forceinline__ int sum64(const int acc[4][4], int i)
{
    return ((acc[0][i] * 4 + acc[1][i]) * 4 + acc[2][i]) * 4 + acc[3][i];
}

/* All tiles of the block times chunks warp, warp + WARPS, ... (N of them) and, in some tiles, one of
 * the few that are left, dealt out so that all schedulers have the same to do. The first units are in
 * registers before the input is there. */
template <int N>
static __device__ __forceinline__ void multiply(const context &c, uint32_t matrix)
{
    const task &t = c.b->tasks[matrix];
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, quad = lane % 4;
    uint4 s = *(const uint4 *)&c.b->spans[matrix][warp];
    uint32_t tile_bytes = t.chunks * BNET_W2_UNIT, tiles = t.tiles, next = s.w & 0xffff;
    const uint8_t *w = c.weights + s.x + lane * 16, *we = c.weights + s.y + lane * 16;
    const uint8_t *codes = c.weights + t.codes + warp * 128;
    int *to = c.parts() + warp * c.a.tiles * 16 + lane / 4 + 8 * quad, *to_extra = to + 16 * next;
    uint4 v[N ? N : 1], e = make_uint4(0, 0, 0, 0);
    operand x[N ? N : 1];
    await(shared_addr(&c.b->full[matrix]), c.layer & 1);
#pragma unroll
    for (int j = 0; j < N; j++)
        v[j] = *(const uint4 *)(w + j * WARPS * BNET_W2_UNIT);
    if (next < tiles)
        e = *(const uint4 *)we;
    await(shared_addr(&c.b->in[matrix]), c.layer & 1);
    c.mark(matrix, 2);
#pragma unroll
    for (int j = 0; j < N; j++)
        x[j] = operand_at(codes + j * WARPS * 128);
    operand xe = operand_at(c.weights + s.z);
    if (warp == WARPS - 1)
        find_scale(c, matrix);
#pragma unroll 1
    for (uint32_t tile = 0; tile < tiles; tile++, to += 16) {
        int acc[4][4] = {};
        w += tile_bytes;
#pragma unroll
        for (int j = 0; j < N; j++) {
            uint4 now = v[j];
            if (tile + 1 < tiles)
                v[j] = *(const uint4 *)(w + j * WARPS * BNET_W2_UNIT);
            unit(now, x[j], acc);
        }
        if (quad < 2)
            *to = quad ? sum64(acc, 2) : sum64(acc, 0);
    }
#pragma unroll 1
    while (next < tiles) {
        int acc[4][4] = {};
        uint4 now = e;
        next += s.w >> 16;
        we += (s.w >> 16) * tile_bytes;
        if (next < tiles)
            e = *(const uint4 *)we;
        unit(now, xe, acc);
        if (quad < 2)
            *to_extra += quad ? sum64(acc, 2) : sum64(acc, 0);
        to_extra += (s.w >> 16) * 16;
    }
}

/* The same where the numbers of chunks and tiles are known: all units in registers before the input is
 * there, no loop, no bound. A warp takes at most E of the units that are left. */
template <int N, int T, int E>
static __device__ __forceinline__ void multiply_known(const context &c, uint32_t matrix)
{
    const task &t = c.b->tasks[matrix];
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, quad = lane % 4;
    uint4 s = *(const uint4 *)&c.b->spans[matrix][warp];
    uint32_t tile_bytes = t.chunks * BNET_W2_UNIT, next = s.w & 0xffff, step = s.w >> 16;
    const uint8_t *w = c.weights + s.x + lane * 16, *we = c.weights + s.y + lane * 16;
    const uint8_t *codes = c.weights + t.codes + warp * 128;
    int *to = c.parts() + warp * c.a.tiles * 16 + lane / 4 + 8 * quad;
    uint4 v[T][N], e[E];
    operand x[N];
    await(shared_addr(&c.b->full[matrix]), c.layer & 1);
#pragma unroll
    for (int i = 0; i < T; i++)
#pragma unroll
        for (int j = 0; j < N; j++)
            v[i][j] = *(const uint4 *)(w + i * tile_bytes + j * WARPS * BNET_W2_UNIT);
#pragma unroll
    for (int i = 0; i < E; i++)
        if (next + i * step < T)
            e[i] = *(const uint4 *)(we + i * step * tile_bytes);
    await(shared_addr(&c.b->in[matrix]), c.layer & 1);
    c.mark(matrix, 2);
#pragma unroll
    for (int j = 0; j < N; j++)
        x[j] = operand_at(codes + j * WARPS * 128);
    operand xe = operand_at(c.weights + s.z);
    if (warp == WARPS - 1)
        find_scale(c, matrix);
#pragma unroll
    for (int i = 0; i < T; i++) {
        int acc[4][4] = {};
#pragma unroll
        for (int j = 0; j < N; j++)
            unit(v[i][j], x[j], acc);
        int high = sum64(acc, 0), low = sum64(acc, 2);
        if (quad < 2)
            to[16 * i] = quad ? low : high;
    }
    to += 16 * next;
#pragma unroll
    for (int i = 0; i < E; i++)
        if (next + i * step < T) {
            int acc[4][4] = {};
            unit(e[i], xe, acc);
            int high = sum64(acc, 0), low = sum64(acc, 2);
            if (quad < 2)
                to[16 * i * step] += quad ? low : high;
        }
}

/* All tiles of the block times the input. KNOWN: there are registers for all units. */
template <bool KNOWN>
static __device__ __forceinline__ void multiply_all(const context &c, uint32_t matrix)
{
    uint32_t own = c.b->tasks[matrix].chunks / WARPS, tiles = c.b->tasks[matrix].tiles;
    uint32_t step = c.b->spans[matrix][0].tiles >> 16;
    bool few = KNOWN && step >= 4;
    if (own == 1 && few && tiles == 7)
        multiply_known<1, 7, 2>(c, matrix);
    else if (own == 1 && few && tiles == 2)
        multiply_known<1, 2, 1>(c, matrix);
    else if (KNOWN && own == 3 && step >= 2 && tiles == 2)
        multiply_known<3, 2, 1>(c, matrix);
    else if (own == 1 && few && tiles == 8)
        multiply_known<1, 8, 2>(c, matrix);
    else if (own == 1 && few && tiles == 6)
        multiply_known<1, 6, 2>(c, matrix);
    else if (own == 1 && few && tiles == 3)
        multiply_known<1, 3, 1>(c, matrix);
    else if (own == 0)
        multiply<0>(c, matrix);
    else if (own == 1)
        multiply<1>(c, matrix);
    else if (own == 2)
        multiply<2>(c, matrix);
    else if (own == 3)
        multiply<3>(c, matrix);
    else
        multiply<4>(c, matrix);
}

/* What a thread needs to publish its row, known before the input is there. */
struct row {
    float *to;
    const int *sums;
    float scale, scale_up;
    uint32_t step;
};

static __device__ __forceinline__ row row_of(const context &c, uint32_t matrix)
{
    const task &t = c.b->tasks[matrix];
    const float *scale = c.layers()[c.layer].scale;
    uint32_t i = threadIdx.x, head = (t.first + i) / H16_DIM, q = c.a.n_heads, k = c.a.n_kv_heads;
    uint32_t part = matrix == QKV ? (head >= q) + (head >= q + k) : matrix == DOWN ? 6 : matrix + 2;
    row r;
    r.to = c.exchange(0) + t.out + i;
    r.sums = c.parts() + (matrix == GATE_UP ? (i & ~7u) + i : i); /* i / 8 * 16 + i % 8 */
    r.scale = scale[part];
    r.scale_up = scale[5];
    r.step = c.a.tiles * 16;
    return r;
}

/* The sum of a row over the warps' parts, less what its codes have too much. */
static __device__ __forceinline__ float row_sum(const int *p, uint32_t step, int too_much)
{
    int sum[4] = {0, 0, 0, 0};
#pragma unroll
    for (int w = 0; w < WARPS; w++)
        sum[w % 4] += p[w * step];
    return (float)((((sum[0] + sum[1]) + (sum[2] + sum[3])) >> 6) - too_much);
}

/* A thread publishes one row. rest: the residual of its row. */
static __device__ __forceinline__ void give(const context &c, uint32_t matrix, const row &r, float &rest)
{
    float x_scale = c.b->x_scale, v = row_sum(r.sums, r.step, c.b->x_sum);
    v = __fmul_rn(v, __fmul_rn(x_scale, r.scale));
    if (matrix == GATE_UP) {
        float up = __fmul_rn(row_sum(r.sums + 8, r.step, c.b->x_sum), __fmul_rn(x_scale, r.scale_up));
        v = c.a.silu ? silu_gate(v, up) : relu2_gate(v, up);
    } else if (matrix != QKV)
        v = rest = __fadd_rn(rest, v);
    publish(r.to, v);
    if (matrix == DOWN && c.layer + 1 == c.a.n_layers)
        c.a.x[c.b->tasks[DOWN].first + threadIdx.x] = v;
}

/* One matrix: the input collected, multiplied with this block's rows, those published. */
template <bool KNOWN>
static __device__ __forceinline__ void run_matrix(const context &c, uint32_t matrix, float &rest)
{
    const task &t = c.b->tasks[matrix];
    bool first = matrix == QKV && c.layer == 0, has = threadIdx.x < t.rows;
    row r;
    c.mark(matrix, 0);
    if (has)
        r = row_of(c, matrix);
    collect(c, matrix, first ? c.a.x : c.exchange(matrix == QKV ? 3 : 0) + t.in, !first);
    if (t.rows) {
        multiply_all<KNOWN>(c, matrix);
        c.mark(matrix, 3);
        __syncthreads();
        c.mark(matrix, 4);
        if (has)
            give(c, matrix, r, rest);
        c.mark(matrix, 5);
        if (threadIdx.x == THREADS - 1)
            fetch_next(c, matrix);
    } else if (threadIdx.x == THREADS - 1) {
        await(shared_addr(&c.b->tops[matrix]), c.layer & 1);
        await(shared_addr(&c.b->in[matrix]), c.layer & 1);
        await(shared_addr(&c.b->late[matrix]), c.layer & 1);
    }
    if (threadIdx.x == THREADS - 1 && c.layer + 1 < c.a.n_layers)
        expect_input(c, matrix);
}

/* Where attention lies between: nothing of one has a register during the other. */
static __device__ __noinline__ float run_matrix_alone(const context c, uint32_t matrix, float rest)
{
    run_matrix<false>(c, matrix, rest);
    return rest;
}

#endif

#endif
