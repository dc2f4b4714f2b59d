/* decode_matrix.cuh - one matrix of a layer in the decode kernel: its input is collected by the
 * cluster, a block multiplies its rows from shared memory with it and publishes them. Part of
 * decode_sm90.cu. */
#ifndef BNET_DECODE_MATRIX_CUH
#define BNET_DECODE_MATRIX_CUH

#include "decode_collect.cuh"

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

/* All tiles of the block times chunks warp, warp + WARPS, ... (N of them) and, in some tiles, one
 * of the few that are left, dealt out so that all schedulers have the same to do. The first units
 * are in registers before the input is there. */
template <int N> static __device__ __forceinline__ void multiply(const context &c, uint32_t matrix)
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

/* The same where the numbers of chunks and tiles are known: all units in registers before the input
 * is there, no loop, no bound. A warp takes at most E of the units that are left. */
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
static __device__ __forceinline__ void give(const context &c, uint32_t matrix, const row &r,
                                            float &rest)
{
    float x_scale = c.b->x_scale, v = row_sum(r.sums, r.step, c.b->x_sum);
    v = __fmul_rn(v, __fmul_rn(x_scale, r.scale));
    if (matrix == GATE_UP) {
        float up =
            __fmul_rn(row_sum(r.sums + 8, r.step, c.b->x_sum), __fmul_rn(x_scale, r.scale_up));
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
    /* The next product writes where these sums were read only when its input is there, of which
     * these rows are a part; this barrier, off the way, says so to a race checker. */
    if (t.rows)
        __syncthreads();
}

/* Where attention lies between: nothing of one has a register during the other. */
static __device__ __noinline__ float run_matrix_alone(const context c, uint32_t matrix, float rest)
{
    run_matrix<false>(c, matrix, rest);
    return rest;
}

#endif

#endif
