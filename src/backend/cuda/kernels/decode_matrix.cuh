/* decode_matrix.cuh - one matrix of a layer in the decode kernel: its input is collected by the
 * cluster, a block multiplies its rows from shared memory with it and publishes them. Part of
 * decode_sm90.cu. */
#ifndef BNET_DECODE_MATRIX_CUH
#define BNET_DECODE_MATRIX_CUH

#include "decode_collect.cuh"

#if BNET_SM90 || !defined(__CUDA_ARCH__)

/* Rows of a matrix on their way. Weights that come in while others exchange a vector delay it, so
 * they come when nobody does: half of gate + up during the products of q + k + v, o and the other
 * half during attention, down during the products of gate + up, the next q + k + v during those of
 * down. */
struct cargo {
    const uint8_t *from;
    uint32_t to, n, all, bar; /* n: bytes, 0: none; all: to expect before */
};

/* Part i of n of this block's rows of a matrix of a layer. */
static __device__ __forceinline__ cargo cargo_of(const context &c, uint32_t layer, uint32_t matrix,
                                                 uint32_t i, uint32_t n)
{
    const task &t = c.b->tasks[matrix];
    uint32_t half = t.tiles / 2 * t.chunks * BNET_W2_UNIT, at = i ? half : 0;
    cargo g = {nullptr, 0, 0, 0, 0};
    if (t.bytes && layer < c.a.n_layers) {
        g.n = n == 1 ? t.bytes : i ? t.bytes - half : half;
        g.all = i ? 0 : t.bytes;
        g.from = c.layers()[layer].w[matrix] + t.from + at;
        g.to = shared_addr(c.weights + t.weights + at);
        g.bar = shared_addr(&c.b->full[matrix]);
    }
    return g;
}

static __device__ __forceinline__ void fetch(const cargo &g)
{
    if (g.all)
        expect(g.bar, g.all);
    if (g.n)
        bulk_copy(g.to, g.from, g.n, g.bar);
}

/* What comes during the products of a matrix. */
static __device__ __forceinline__ cargo cargo_during(const context &c, uint32_t matrix)
{
    cargo none = {nullptr, 0, 0, 0, 0};
    return matrix == QKV       ? cargo_of(c, c.layer, GATE_UP, 0, 2)
           : matrix == GATE_UP ? cargo_of(c, c.layer, DOWN, 0, 1)
           : matrix == DOWN    ? cargo_of(c, c.layer + 1, QKV, 0, 1)
                               : none;
}

/* C[16][8] += how many bits k are one in both A[16][256] and B[256][8]: single bits of a unit's
 * words as they lie in memory against the bit planes of codes, see w2_one_token.cuh */
static __device__ __forceinline__ void mma_planes(int *c, uint4 a, uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

/* A unit times a chunk. Lanes of even columns have a plane in the even bits of x, those of odd ones
 * in the odd bits: the first product counts low bits of codes for the former, high bits for the
 * latter, the second the others. */
static __device__ __forceinline__ void unit(uint4 v, uint2 x, uint32_t mask, uint32_t turn,
                                            int same[4], int other[4])
{
    x.x &= mask;
    x.y &= mask;
    mma_planes(same, v, x.x, x.y);
    mma_planes(other, v, __funnelshift_l(x.x, x.x, turn), __funnelshift_l(x.y, x.y, turn));
}

/* The sums of a tile's rows over the columns of the products, planes weighed: row g in lanes of
 * even t, g + 8 in those of odd t. */
static __device__ __forceinline__ int planes_sum(const int same[4], const int other[4])
{
    uint32_t t = threadIdx.x % 4;
    int even = 1 << 2 * t, odd = t == 3 ? -128 : 2 << 2 * t;
    int low = (same[0] + 2 * other[0]) * even + (other[1] + 2 * same[1]) * odd;
    int high = (same[2] + 2 * other[2]) * even + (other[3] + 2 * same[3]) * odd;
    int sum = t & 1 ? high : low;
    sum += __shfl_xor_sync(0xffffffffu, t & 1 ? low : high, 1);
    return sum + __shfl_xor_sync(0xffffffffu, sum, 2);
}

/* A warp's units and the codes they meet. */
struct units {
    const uint8_t *w, *codes;
    uint32_t n, mask, turn;
    uint4 v[HELD];
    int same[2][4], other[2][4];

    /* Those from FROM on below TO: none where the warp has no more. */
    template <int FROM, int TO> __device__ __forceinline__ void load()
    {
#pragma unroll
        for (int i = FROM; i < TO; i++) {
            v[i] = make_uint4(0, 0, 0, 0);
            if (i < (int)n)
                v[i] = *(const uint4 *)(w + i * BNET_W2_UNIT);
        }
    }
    /* MORE: those HELD further take their places. */
    template <int FROM, int TO, bool MORE> __device__ __forceinline__ void multiply()
    {
#pragma unroll
        for (int i = FROM; i < TO; i++) {
            unit(v[i], *(const uint2 *)(codes + i * 128), mask, turn, same[i & 1], other[i & 1]);
            if (MORE) {
                v[i] = make_uint4(0, 0, 0, 0);
                if (i + HELD < (int)n)
                    v[i] = *(const uint4 *)(w + (i + HELD) * BNET_W2_UNIT);
            }
        }
    }
    __device__ __forceinline__ void load_all(uint32_t most)
    {
        load<0, 3>();
        if (most > 3) {
            load<3, 7>();
            if (most > 7)
                load<7, HELD>();
        }
    }
    __device__ __forceinline__ void multiply_all(uint32_t most)
    {
        multiply<0, 3, false>();
        if (most > 3) {
            multiply<3, 7, false>();
            if (most > 7)
                multiply<7, HELD, false>();
        }
    }
    __device__ __forceinline__ void next()
    {
        w += HELD * BNET_W2_UNIT;
        codes += HELD * 128;
        n = n > HELD ? n - HELD : 0;
    }
};

/* A warp: its part of the columns of one tile times the input. Its first units are in registers
 * before the input is there. */
static __device__ __forceinline__ void multiply(const context &c, uint32_t matrix)
{
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, odd = lane / 4 & 1;
    uint4 s = *(const uint4 *)&c.b->spans[matrix][warp];
    uint32_t most = __shfl_sync(0xffffffffu, s.w, 0); /* of all warps */
    units u = {c.weights + s.x + lane * 16,
               c.weights + s.y + lane / 8 * 32 + lane % 4 * 8,
               s.z,
               0x55555555u << odd,
               odd ? 31u : 1u,
               {},
               {},
               {}};
    cargo g;
    if (threadIdx.x == FETCHER)
        g = cargo_during(c, matrix);
    await(shared_addr(&c.b->full[matrix]), c.layer & 1);
    u.load_all(most);
    if (warp == WARPS - 1)
        find_scale(c, matrix);
    await(shared_addr(&c.b->in[matrix]), c.layer & 1);
    c.mark(matrix, 2);
    if (threadIdx.x == FETCHER)
        fetch(g);
    if (warp == WARPS - 1)
        find_sum(c, matrix);
#pragma unroll 1
    for (; most > HELD; most -= HELD) {
        u.multiply<0, HELD, true>();
        u.next();
    }
    u.multiply_all(most);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u.same[0][i] += u.same[1][i];
        u.other[0][i] += u.other[1][i];
    }
    c.mark(matrix, 7);
    int sum = planes_sum(u.same[0], u.other[0]);
    if (lane % 4 < 2)
        c.parts()[warp * 16 + lane / 4 + lane % 4 * 8] = sum;
}

/* What a thread needs to publish its row, known before the input is there. */
struct row {
    float *to;
    const int *sums;
    float scale, scale_up;
    uint32_t split;
};

static __device__ __forceinline__ row row_of(const context &c, uint32_t matrix)
{
    const task &t = c.b->tasks[matrix];
    const float *scale = c.layers()[c.layer].scale;
    uint32_t i = threadIdx.x, head = (t.first + i) / H16_DIM, q = c.a.n_heads, k = c.a.n_kv_heads;
    uint32_t part = matrix == QKV ? (head >= q) + (head >= q + k) : matrix == DOWN ? 6 : matrix + 2;
    uint32_t tile = matrix == GATE_UP ? i / 8 : i / 16;
    row r;
    r.to = c.exchange(0) + t.out + i;
    r.sums = c.parts() + tile * t.split * 16 + (matrix == GATE_UP ? i % 8 : i % 16);
    r.scale = scale[part];
    r.scale_up = scale[5];
    r.split = t.split;
    return r;
}

/* The sum of a row over the warps' parts, less what its codes have too much. */
static __device__ __forceinline__ float row_sum(const int *p, uint32_t split, int too_much)
{
    int sum[2] = {-too_much, 0};
#pragma unroll
    for (uint32_t w = 0; w < SPLIT; w++)
        if (w < split)
            sum[w % 2] += p[16 * w];
    return (float)(sum[0] + sum[1]);
}

/* A thread publishes one row. rest: the residual of its row. */
static __device__ __forceinline__ void give(const context &c, uint32_t matrix, const row &r,
                                            float &rest)
{
    float x_scale = c.b->x_scale, v = row_sum(r.sums, r.split, c.b->x_sum);
    c.mark(matrix, 6);
    v = __fmul_rn(v, __fmul_rn(x_scale, r.scale));
    if (matrix == GATE_UP) {
        float up =
            __fmul_rn(row_sum(r.sums + 8, r.split, c.b->x_sum), __fmul_rn(x_scale, r.scale_up));
        v = c.a.silu ? silu_gate(v, up) : relu2_gate(v, up);
    } else if (matrix != QKV)
        v = rest = __fadd_rn(rest, v);
    publish(r.to, v);
    if (matrix == DOWN && c.layer + 1 == c.a.n_layers)
        c.a.x[c.b->tasks[DOWN].first + threadIdx.x] = v;
}

/* One matrix: the input collected, multiplied with this block's rows, those published. */
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
        multiply(c, matrix);
        c.mark(matrix, 3);
        __syncthreads();
        c.mark(matrix, 4);
        if (has)
            give(c, matrix, r, rest);
        c.mark(matrix, 5);
    } else if (threadIdx.x == THREADS - 1) {
        await(shared_addr(&c.b->tops[matrix]), c.layer & 1);
        await(shared_addr(&c.b->squares[matrix]), c.layer & 1);
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

#endif

#endif
