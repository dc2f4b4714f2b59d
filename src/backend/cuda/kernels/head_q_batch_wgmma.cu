/* head_q_batch_wgmma.cu - the head of batches over Q6_K and Q8_0 codes (head_q_batch.cu) with
 * Hopper's warpgroup products (9.0a): codes as halves in registers, the vectors' high and low
 * halves in shared memory. A warpgroup has 64 rows; the sums of a group of columns with one scale
 * are a product of their own, multiplied by the scale and added in floats while other warpgroups
 * use the tensor cores.
 *
 * Vectors come by 64 columns, four such steps on their way or in use. Codes come by 256, two such
 * blocks: whole lines, since a row's shorter pieces cost the second level as much as lines. */
#include "head_q_batch.cuh"
#include "wgmma.cuh"

#if BNET_SM90A || !defined(__CUDA_ARCH__)

enum { COLS = BNET_QBATCH_COLS, STEPS = BNET_QWGMMA_STEPS, BLOCK = 256 };

/* ---- formats: a block is N rows of 256 columns, WIDE bytes each, 16-byte pieces exchanged
 * within a row so that no banks collide. fetch: half of its rows. take: as load, columns 32 sub ..
 * of it. ---- */

template <int N> struct wide_q6k : batch_q6k {
    enum { ROWS = N, THREADS = 2 * N, HALF = N / 2 };
    enum { WIDE = BNET_QWGMMA_WIDE_Q6K, HIGH = ROWS * 128, SCALES = ROWS * 192, D = ROWS * 208 };

    static __device__ __forceinline__ void fetch(const bnet_dev_matrix &m, uint32_t to,
                                                 uint32_t row0, uint32_t block, uint32_t half)
    {
        uint32_t last = m.n_rows - 1, n = m.stride / BLOCK, tid = threadIdx.x, r0 = half * HALF;
#pragma unroll
        for (uint32_t i = 0; i < HALF * 8 / THREADS; i++) {
            uint32_t r = r0 + i * (THREADS / 8) + tid / 8, u = tid % 8;
            size_t at = (size_t)min(row0 + r, last) * n + block;
            copy_line16(to + r * 128 + (u ^ (r & 7)) * 16, m.w[0] + at * 128 + u * 16);
        }
        uint32_t r = r0 + tid / 4, u = tid % 4;
        size_t at = (size_t)min(row0 + r, last) * n + block;
        copy_line16(to + HIGH + r * 64 + (u ^ (r >> 1 & 3)) * 16, m.w[1] + at * 64 + u * 16);
        r = r0 + tid % HALF;
        at = (size_t)min(row0 + r, last) * n + block;
        if (tid < HALF)
            copy_line16(to + SCALES + r * 16, m.w[2] + at * 16);
        else if (tid < 2 * HALF)
            copy_half(to + D + r * 4, (const uint16_t *)m.w[3] + at);
    }
    __device__ __forceinline__ void take(const bnet_dev_matrix &m, const uint8_t *from, uint32_t r,
                                         uint32_t block, uint32_t sub)
    {
        uint32_t t = threadIdx.x % 4, row = min(blockIdx.x * ROWS + r, m.n_rows - 1);
        low = *(const uint32_t *)(from + r * 128 + (sub ^ (r & 7)) * 16 + t * 4);
        high = *(const uint32_t *)(from + HIGH + r * 64 + (sub / 2 ^ (r >> 1 & 3)) * 16 +
                                   sub % 2 * 8 + t % 2 * 4) >>
               (t & 2);
        scales = *(const uint32_t *)(from + SCALES + r * 16 + sub / 2 * 4) >> 16 * (sub % 2);
        d = *(const uint32_t *)(from + D + r * 4) >> ((row * (m.stride / BLOCK) + block) & 1) * 16;
    }
};

template <int N> struct wide_q8 : batch_q8 {
    enum { ROWS = N, THREADS = 2 * N, HALF = N / 2 };
    enum { WIDE = BNET_QWGMMA_WIDE_Q8, SCALES = ROWS * 256 };

    static __device__ __forceinline__ void fetch(const bnet_dev_matrix &m, uint32_t to,
                                                 uint32_t row0, uint32_t block, uint32_t half)
    {
        uint32_t last = m.n_rows - 1, n = m.stride / 32, tid = threadIdx.x, r0 = half * HALF;
        uint32_t u = tid % 16, col = block * BLOCK + u * 16;
#pragma unroll
        for (uint32_t i = 0; i < HALF * 16 / THREADS; i++) {
            uint32_t r = r0 + i * (THREADS / 16) + tid / 16;
            if (col < m.stride)
                copy_line16(to + r * 256 + (u ^ (r & 7)) * 16,
                            m.w[0] + (size_t)min(row0 + r, last) * m.stride + col);
        }
        uint32_t r = r0 + tid / 4, sub = block * 8 + tid % 4 * 2;
        copy_async4(to + SCALES + r * 16 + tid % 4 * 4,
                    m.w[1] + ((size_t)min(row0 + r, last) * n + sub) * 2, sub < n);
    }
    __device__ __forceinline__ void take(const bnet_dev_matrix &, const uint8_t *from, uint32_t r,
                                         uint32_t, uint32_t sub)
    {
        uint32_t t = threadIdx.x % 4;
        v[0] = *(const uint32_t *)(from + r * 256 + (2 * sub ^ (r & 7)) * 16 + t * 4);
        v[1] = *(const uint32_t *)(from + r * 256 + ((2 * sub + 1) ^ (r & 7)) * 16 + t * 4);
        scales = *(const uint32_t *)(from + SCALES + r * 16 + sub / 2 * 4) >> 16 * (sub % 2);
    }
};

/* ---- products ---- */

/* A warp's 16 rows of 16 N columns: registers of its products, scales of rows g and g + 8. */
template <int N> struct operand {
    uint32_t w[N][4];
    float s[2];
};

template <typename P, int N>
static __device__ __forceinline__ void prepare(const P *p, int j, operand<N> *to)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
#pragma unroll
        for (int k = 0; k < N; k++)
            p[r].halves(j * N + k, &to->w[k][r], &to->w[k][r + 2]);
        to->s[r] = p[r].scale(j);
    }
}

/* Step i: 64 columns. at: the block of codes they are in; x: the vectors', high halves before the
 * low ones. */
template <typename P, int TOKENS>
static __device__ __forceinline__ void step_multiply(const bnet_cu_batch_args &a, const uint8_t *at,
                                                     uint32_t x, uint32_t i, float *sum)
{
    constexpr int N = 2 / P::GROUPS, GROUPS = 2 * P::GROUPS;
    uint32_t row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, sub = i % 4 * 2;
    uint64_t b = describe(x), low = TOKENS * 128 >> 4;
    float d[TOKENS / 2];
    P p[2];
    operand<N> o[2];
    p[0].take(a.m, at, row, i / 4, sub);
    p[1].take(a.m, at, row + 8, i / 4, sub);
    prepare<P, N>(p, 0, &o[0]);
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        group_arrive();
#pragma unroll
        for (int k = 0; k < N; k++) {
            uint64_t at16 = b + 2 * (g * N + k);
            if (k == 0)
                halves_product<TOKENS, 0>::template run<0>(d, o[g & 1].w[k], at16);
            else
                halves_product<TOKENS, 0>::template run<1>(d, o[g & 1].w[k], at16);
            halves_product<TOKENS, 0>::template run<1>(d, o[g & 1].w[k], at16 + low);
        }
        group_commit();
        if (g + 1 < GROUPS) { /* meanwhile */
            if ((g + 1) % P::GROUPS == 0) {
                p[0].take(a.m, at, row, i / 4, sub + 1);
                p[1].take(a.m, at, row + 8, i / 4, sub + 1);
            }
            prepare<P, N>(p, (g + 1) % P::GROUPS, &o[(g + 1) & 1]);
        }
        group_wait<0>();
        settled<TOKENS / 2>(d);
#pragma unroll
        for (int e = 0; e < TOKENS / 2; e++)
            sum[e] = fmaf(d[e], o[g & 1].s[e / 2 & 1], sum[e]);
    }
}

/* Through shared memory: whole lines of one vector. */
template <int ROWS, int TOKENS>
static __device__ __forceinline__ void put(const bnet_cu_batch_args &a, float *to, const float *sum)
{
    uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, row = threadIdx.x / 32 * 16 + g;
#pragma unroll
    for (int e = 0; e < TOKENS / 2; e++)
        to[(e / 4 * 8 + 2 * t + e % 2) * (ROWS + 4) + row + e / 2 % 2 * 8] = sum[e];
    __syncthreads();
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < TOKENS * ROWS; i += 2 * ROWS) {
        uint32_t token = blockIdx.y * TOKENS + i / ROWS, r = blockIdx.x * ROWS + i % ROWS;
        if (token < a.n_tokens && r < a.m.n_rows)
            a.y[(size_t)token * a.ld + r] = to[i / ROWS * (ROWS + 4) + i % ROWS] * a.scale[token];
    }
}

/* What step i brings: its vectors, and half a block of codes in the first two steps of the block
 * before. */
template <typename P, int TOKENS>
static __device__ __forceinline__ void fetch_step(const bnet_cu_batch_args &a, uint32_t base,
                                                  uint32_t i, uint32_t n)
{
    constexpr uint32_t X = 2 * TOKENS * 128, ROWS = P::ROWS;
    uint32_t ahead = i + STEPS - 1, block = i / 4 + 1;
    if (i % 4 < 2 && block * 4 < n)
        P::fetch(a.m, base + STEPS * X + block % 2 * (ROWS * P::WIDE), blockIdx.x * ROWS, block,
                 i % 4);
    if (ahead < n)
        fetch_vectors<TOKENS>(a, base + ahead % STEPS * X, ahead);
    copy_commit();
}

template <typename P, int TOKENS>
static __device__ __forceinline__ void batch(const bnet_cu_batch_args &a)
{
    extern __shared__ __align__(1024) uint8_t ring[];
    constexpr uint32_t X = 2 * TOKENS * 128, ROWS = P::ROWS;
    uint32_t base = (shared_addr(ring) + 1023) & ~1023u, n = a.m.stride / COLS;
    uint8_t *at = ring + (base - shared_addr(ring)), *codes = at + STEPS * X;
    float sum[TOKENS / 2] = {};
    pdl_launch();
    for (uint32_t half = 0; half < 2; half++) /* codes do not depend on what runs before */
        P::fetch(a.m, base + STEPS * X, blockIdx.x * ROWS, 0, half);
    pdl_wait();
#pragma unroll 1
    for (uint32_t i = 0; i < STEPS - 1; i++) {
        if (i < n)
            fetch_vectors<TOKENS>(a, base + i * X, i);
        copy_commit();
    }
#pragma unroll 1
    for (uint32_t i = 0; i < n; i++) {
        copy_wait<STEPS - 2>();
        async_fence();
        __syncthreads();
        fetch_step<P, TOKENS>(a, base, i, n);
        step_multiply<P, TOKENS>(a, codes + i / 4 % 2 * (ROWS * P::WIDE), base + i % STEPS * X, i,
                                 sum);
    }
    copy_wait<0>();
    __syncthreads();
    put<ROWS, TOKENS>(a, (float *)at, sum);
}

/* blocks: of this kernel on a multiprocessor */
#define BATCH(name, format, tokens, rows, blocks)                                                  \
    KERNEL __launch_bounds__(2 * rows, blocks)                                                     \
        name##_##tokens##_wgmma(const __grid_constant__ bnet_cu_batch_args a)                      \
    {                                                                                              \
        static_assert(rows == BNET_QWGMMA_ROWS(tokens), "as it is launched");                      \
        batch<format<rows>, tokens>(a);                                                            \
    }
BATCH(bnet_head_batch_q6k, wide_q6k, 16, 128, 3)
BATCH(bnet_head_batch_q6k, wide_q6k, 32, 128, 2)
BATCH(bnet_head_batch_q6k, wide_q6k, 64, 256, 1)
BATCH(bnet_head_batch_q8, wide_q8, 16, 128, 2)
BATCH(bnet_head_batch_q8, wide_q8, 32, 128, 2)
BATCH(bnet_head_batch_q8, wide_q8, 64, 256, 1)

#endif
