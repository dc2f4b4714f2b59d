/* w2_one_token.cuh - ternary matrix times one int8 vector by bit planes (8.0 and up).
 *
 * With one vector seven of the eight columns of an integer product would be empty. So the columns
 * are the vector's eight bit planes: a product of single bits takes a unit's words as they lie in
 * memory, no masks, and counts where both have a one. The low bits of the codes are the even bits
 * of a word, the high bits the odd ones: two products a unit, the second with the planes one bit
 * up. The counts weigh 1, 2 .. 64 and -128 by plane, those of the high bits twice.
 *
 * Shares of all warps are on their way to registers before the kernel in front has ended, and what
 * becomes of every row is known by then: what is left after it is the vector, the products and one
 * number a row. */
#ifndef BNET_W2_ONE_TOKEN_CUH
#define BNET_W2_ONE_TOKEN_CUH

#include "backend/cuda/w2_few_tokens.h"
#include "w2_epilogue.cuh"
#include "w2_units.cuh"

#ifndef BNET_ONE_MARK
#define BNET_ONE_MARK(i)
#endif

/* C[16][8] += how many bits k are one in both A[16][256] and B[256][8] */
static __device__ __forceinline__ void mma_bits(int *c, uint4 a, uint32_t b0, uint32_t b1)
{
#if BNET_SM80
    asm volatile("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
#else
    (void)c, (void)a, (void)b0, (void)b1;
#endif
}

/* What the kernel in front has just written: from the second level. */
static __device__ __forceinline__ uint32_t load_fresh(const void *p)
{
    uint32_t v;
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(v) : "l"(p));
    return v;
}

static __device__ __forceinline__ uint4 load_fresh16(const void *p)
{
    uint4 v;
    asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

/* Bits of `a` where the mask has ones, else of `b`. */
static __device__ __forceinline__ uint32_t choose(uint32_t mask, uint32_t a, uint32_t b)
{
    return (a & mask) | (b & ~mask);
}

/* The planes of 16 elements of a chunk: word s has bytes 32 s + 16 h + 4 t .. of it, bit g of them
 * becomes bits 2 s of the bytes of plane g. to: [8 planes][t][h] words. */
static __device__ __forceinline__ void put_planes(uint32_t *to, const uint32_t x[4])
{
    const uint32_t two = 0x33333333u, four = 0x0f0f0f0fu, odd = 0x55555555u;
    uint32_t a[2] = {choose(two, x[0], x[1] << 2), choose(two, x[0] >> 2, x[1])};
    uint32_t b[2] = {choose(two, x[2], x[3] << 2), choose(two, x[2] >> 2, x[3])};
#pragma unroll
    for (int i = 0; i < 2; i++) { /* planes 2i, 2i + 1; 4 above them */
        uint32_t low = choose(four, a[i], b[i] << 4), high = choose(four, a[i] >> 4, b[i]);
        to[16 * i] = low & odd;
        to[16 * i + 8] = low >> 1 & odd;
        to[16 * i + 32] = high & odd;
        to[16 * i + 40] = high >> 1 & odd;
    }
}

/* Exchanges a and b with the lane `by` away: `up` lanes give a and get its b for it, the others
 * give b and get its a. */
static __device__ __forceinline__ void swap_lanes(uint32_t &a, uint32_t &b, bool up, int by)
{
    uint32_t v = __shfl_xor_sync(0xffffffffu, up ? a : b, by);
    a = up ? v : a;
    b = up ? b : v;
}

/* Registers i of lanes that differ in two bits, `by` and twice it, become registers of one lane. */
static __device__ __forceinline__ void transpose4(uint32_t x[4], int by)
{
    bool low = threadIdx.x & by, high = threadIdx.x & 2 * by;
    swap_lanes(x[0], x[1], low, by);
    swap_lanes(x[2], x[3], low, by);
    swap_lanes(x[0], x[2], high, 2 * by);
    swap_lanes(x[1], x[3], high, 2 * by);
}

/* Four chunks of codes into planes by a warp. Lane 8 c + 2 s + h has words t = 0..3 of bytes 32 s +
 * 16 h of chunk c; it needs one t and all s. Few whole lines: all blocks want them at once. */
static __device__ __forceinline__ void take_codes(const int8_t *q, uint32_t chunk,
                                                  uint32_t n_chunks, uint8_t *to)
{
    uint32_t lane = threadIdx.x % 32, c = chunk + lane / 8;
    uint4 v = make_uint4(0, 0, 0, 0);
    if (c < n_chunks)
        v = load_fresh16(q + c * BNET_W2_CHUNK + lane % 8 * 16);
    uint32_t x[4] = {v.x, v.y, v.z, v.w};
    transpose4(x, 2);
    if (c < n_chunks)
        put_planes((uint32_t *)(to + c * BNET_ONE_PLANES) + lane % 8, x);
}

/* Where a row goes. */
struct one_row {
    float *y; /* NULL: nowhere */
    float scale;
    uint32_t pad;
};

/* A lane's counts of rows g and g + 8 to the block's sums. */
static __device__ __forceinline__ void one_flush(int *sums, const int *low, const int *high)
{
    uint32_t lane = threadIdx.x % 32, t = lane % 4;
#pragma unroll
    for (int i = 0; i < 2; i++) { /* columns 2t, 2t + 1 */
        int a = low[2 * i] + 2 * high[2 * i], b = low[2 * i + 1] + 2 * high[2 * i + 1];
        int f = (a << 2 * t) + (t == 3 ? -(b << 7) : b << (2 * t + 1));
        f += __shfl_xor_sync(0xffffffffu, f, 1);
        f += __shfl_xor_sync(0xffffffffu, f, 2);
        if (t == 0)
            atomicAdd(&sums[lane / 4 + 8 * i], f);
    }
}

/* Row r of the block's: its destination, its sum cleared. */
static __device__ __forceinline__ void one_begin(const bnet_cu_w2 &m, uint32_t first, uint32_t r,
                                                 one_row *rows, int *sums)
{
    uint32_t tile = first + r / BNET_W2_TILE, i = r % BNET_W2_TILE;
    const bnet_cu_part &p = m.part[m.paired ? i / 8 : w2_part_of(m, tile)];
    uint32_t row = m.paired ? tile * 8 + i % 8 : (tile - p.first_tile) * BNET_W2_TILE + i;
    rows[r].y = row < p.n_rows && p.y ? p.y + row : NULL;
    rows[r].scale = p.scale;
    sums[r] = 0;
}

/* before: what stood in y. Products and sums are rounded one by one: the CPU does the same. */
static __device__ __forceinline__ void one_end(uint32_t r, const one_row *rows, const int *sums,
                                               float x_scale, int x_sum, float before,
                                               uint32_t epilogue)
{
    float f = __fmul_rn((float)(sums[r] - x_sum), __fmul_rn(x_scale, rows[r].scale));
    if (epilogue >= BNET_CU_RELU2) {
        if (r % BNET_W2_TILE >= 8)
            return;
        float up = __fmul_rn((float)(sums[r + 8] - x_sum), __fmul_rn(x_scale, rows[r + 8].scale));
        f = epilogue == BNET_CU_RELU2 ? relu2_gate(f, up) : silu_gate(f, up);
    }
    if (rows[r].y)
        *rows[r].y = epilogue == BNET_CU_ADD ? __fadd_rn(before, f) : f;
}

/* ---- floats: normed and quantised inside ---- */

struct one_floats {
    float2 reduce[32];
    int sum;
};

/* k is a multiple of four. */
static __device__ __forceinline__ float4 load_floats(const float *x, uint32_t i, uint32_t k)
{
    uint4 v = make_uint4(0, 0, 0, 0);
    if (i < k)
        v = load_fresh16(x + i);
    return make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z),
                       __uint_as_float(v.w));
}

/* Elements i .. i + 3 times the norm's weights (none: 1); adds to the sum of squares. */
static __device__ __forceinline__ float4 weighted(const bnet_cu_gemv_args &a, uint32_t i, float *ss,
                                                  float *top)
{
    float4 v = load_floats(a.x, i, a.k), w = make_float4(1, 1, 1, 1);
    if (a.norm)
        w = load_floats(a.norm, i, a.k);
    *ss = fmaf(v.x, v.x, fmaf(v.y, v.y, fmaf(v.z, v.z, fmaf(v.w, v.w, *ss))));
    v = make_float4(v.x * w.x, v.y * w.y, v.z * w.z, v.w * w.w);
    *top = fmaxf(*top, fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w))));
    return v;
}

/* Of a block of any number of warps; one barrier. All threads get both. */
static __device__ __forceinline__ float2 sum_and_top(float sum, float top, float2 *scratch)
{
    uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int o = 16; o; o >>= 1) {
        sum += __shfl_xor_sync(0xffffffffu, sum, o);
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, o));
    }
    if (lane == 0)
        scratch[threadIdx.x / 32] = make_float2(sum, top);
    __syncthreads();
    float2 r = lane < blockDim.x / 32 ? scratch[lane] : make_float2(0, 0);
#pragma unroll
    for (int o = 16; o; o >>= 1) {
        r.x += __shfl_xor_sync(0xffffffffu, r.x, o);
        r.y = fmaxf(r.y, __shfl_xor_sync(0xffffffffu, r.y, o));
    }
    return r;
}

/* Chunks warp, warp + n, .. of the vector, n warps: the first four stay in registers, others are
 * read again. A lane has one word of each; four chunks together become planes. Returns the codes'
 * scale; their sum is in st after the next barrier. */
static __device__ __forceinline__ float take_floats(const bnet_cu_gemv_args &a, uint32_t warp,
                                                    uint8_t *to, one_floats *st)
{
    uint32_t lane = threadIdx.x % 32, n = blockDim.x / 32, chunks = a.m.n_chunks;
    float4 v[4];
    float ss = 0, top = 0, inv;
#pragma unroll
    for (uint32_t j = 0; j < 4; j++)
        if (warp + j * n < chunks)
            v[j] = weighted(a, (warp + j * n) * BNET_W2_CHUNK + 4 * lane, &ss, &top);
#pragma unroll 1
    for (uint32_t c = warp + 4 * n; c < chunks; c += n)
        weighted(a, c * BNET_W2_CHUNK + 4 * lane, &ss, &top);
    float2 both = sum_and_top(ss, top, st->reduce);
    float scale = code_scale(both, a.norm, (float)a.k, a.eps, &inv);
    int sum = 0;
#pragma unroll 1
    for (uint32_t c = warp; c < chunks; c += 4 * n) {
        uint32_t x[4], mine = c + lane / 8 * n;
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            if (c != warp && c + j * n < chunks)
                v[j] = weighted(a, (c + j * n) * BNET_W2_CHUNK + 4 * lane, &ss, &top);
            const float f[4] = {v[j].x, v[j].y, v[j].z, v[j].w};
            x[j] = c + j * n < chunks ? codes4(f, inv, &sum) : 0;
        }
        transpose4(x, 8);
        if (mine < chunks)
            put_planes((uint32_t *)(to + mine * BNET_ONE_PLANES) + lane % 4 * 2 + lane / 4 % 2, x);
    }
    sum = warp_sum(sum);
    if (lane == 0)
        atomicAdd(&st->sum, sum);
    return scale;
}

/* ---- the kernel ---- */

/* UNITS of a warp in registers. FLOATS: x instead of codes. */
template <int UNITS, bool FLOATS>
static __device__ __forceinline__ void one_token(const bnet_cu_few_args &o)
{
    extern __shared__ __align__(128) uint8_t planes[];
    __shared__ uint2 act; /* scale, sum */
    __shared__ one_floats st;
    const bnet_cu_w2 &m = o.g.m;
    /* from lane 0: the compiler knows it for the same in all lanes */
    uint32_t warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    uint32_t b = blockIdx.x, first = b * o.tiles + min(b, o.more), n_tiles = o.tiles + (b < o.more);
    uint32_t tile = warp * o.inv >> 16, chunk = (warp - tile * o.split) * o.per;
    uint32_t n = tile < n_tiles ? min(o.per, m.n_chunks - chunk) : 0;
    const uint8_t *w =
        m.w + ((size_t)(first + tile) * m.n_chunks + chunk) * BNET_W2_UNIT + lane * 16;
    one_row *rows = (one_row *)(planes + m.n_chunks * BNET_ONE_PLANES);
    int *sums = (int *)(rows + n_tiles * BNET_W2_TILE);
    bool has_row = threadIdx.x < n_tiles * BNET_W2_TILE;
    uint4 v[UNITS];
    BNET_ONE_MARK(0)
    pdl_launch();
#pragma unroll
    for (int i = 0; i < UNITS; i++)
        if (i < n)
            v[i] = load_stream(w + i * BNET_W2_UNIT);
    if (has_row)
        one_begin(m, first, threadIdx.x, rows, sums);
    if (FLOATS && threadIdx.x == 0)
        st.sum = 0;
    if (FLOATS && o.g.norm && 32 * threadIdx.x < o.g.k)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(o.g.norm + 32 * threadIdx.x));
    BNET_ONE_MARK(1)
    pdl_wait();
    BNET_ONE_MARK(2)
    float before = 0;
    if (has_row && o.g.epilogue == BNET_CU_ADD && rows[threadIdx.x].y)
        before = __uint_as_float(load_fresh(rows[threadIdx.x].y));
    if (FLOATS) {
        float scale = take_floats(o.g, warp, planes, &st);
        if (threadIdx.x == 0)
            act.x = __float_as_uint(scale);
    } else {
        if (threadIdx.x == blockDim.x - 1)
            act = make_uint2(load_fresh(o.g.act.scale), load_fresh(o.g.act.sum));
#pragma unroll 1
        for (uint32_t c = 4 * warp; c < m.n_chunks; c += blockDim.x / 8)
            take_codes(o.g.act.q, c, m.n_chunks, planes);
    }
    BNET_ONE_MARK(3)
    __syncthreads();
    BNET_ONE_MARK(4)
    const uint8_t *p = planes + chunk * BNET_ONE_PLANES + lane * 8;
    int low[4] = {}, high[4] = {};
#pragma unroll
    for (int i = 0; i < UNITS; i++)
        if (i < n) {
            uint2 x = *(const uint2 *)(p + i * BNET_ONE_PLANES);
            mma_bits(low, v[i], x.x, x.y);
            mma_bits(high, v[i], x.x << 1, x.y << 1);
        }
    BNET_ONE_MARK(5)
    if (n)
        one_flush(sums + tile * BNET_W2_TILE, low, high);
    __syncthreads();
    BNET_ONE_MARK(6)
    if (has_row)
        one_end(threadIdx.x, rows, sums, __uint_as_float(act.x), FLOATS ? st.sum : (int)act.y,
                before, o.g.epilogue);
    BNET_ONE_MARK(7)
}

#endif
