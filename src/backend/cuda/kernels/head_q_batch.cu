/* head_q_batch.cu - rows of Q6_K and Q8_0 matrices times many float vectors on the tensor cores,
 * the matrix read once for 64 of them: the head of batches (8.0 and up).
 *
 * Codes become halves exactly; a vector is two halves an element after scaling by a power of two
 * (bnet_head_split, in the order below). A product covers 16 columns; its sums of a group of
 * columns with one scale are multiplied by it and added in floats: as good as float arithmetic.
 *
 * A warp has 32 rows and all vectors of the block; stages of 64 columns pass through a ring in
 * shared memory. Lane 4 g + t takes elements 4t .. 4t + 3 of every 16 of its rows, two of them as
 * columns 2t and 2t + 1 of the product, two as 2t + 8 and 2t + 9: what bnet_batch_place says. */
#include "head_q_batch.cuh"

#if BNET_SM80 || !defined(__CUDA_ARCH__)

enum { COLS = BNET_QBATCH_COLS, STAGES = BNET_QBATCH_STAGES, WARP_ROWS = 32 };

/* d = a * b, from zero */
static __device__ __forceinline__ void mma_first(float *d, const uint32_t *a, uint32_t b0,
                                                 uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
}

/* ---- products ---- */

/* Adds 32 rows times N x 16 columns with one scale a row; k: the first 16 of the stage. */
template <int TOKENS, int N>
static __device__ __forceinline__ void tile_multiply(const uint32_t w[N][2][4], const float s[2][2],
                                                     uint32_t x, uint32_t k,
                                                     float sum[2][TOKENS / 8][4])
{
    uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < TOKENS / 16; n++) {
        uint32_t b[N][2][4], row = n * 16 + lane % 8 + lane / 16 * 8;
#pragma unroll
        for (int i = 0; i < 2 * N; i++) /* 16 columns; high, low */
            load_matrix4(b[i / 2][i % 2], x + (i % 2 * TOKENS + row) * 128 +
                                              ((2 * (k + i / 2) + lane / 8 % 2) ^ (row & 7)) * 16);
#pragma unroll
        for (int i = 0; i < 4; i++) { /* rows; vectors */
            float c[4], *to = sum[i / 2][2 * n + i % 2];
            int j = i % 2 * 2;
            mma_first(c, w[0][i / 2], b[0][0][j], b[0][0][j + 1]);
#pragma unroll
            for (int m = 1; m < 2 * N; m++)
                mma_f16(c, w[m / 2][i / 2], b[m / 2][m % 2][j], b[m / 2][m % 2][j + 1]);
#pragma unroll
            for (int e = 0; e < 4; e++)
                to[e] = fmaf(c[e], s[i / 2][e / 2], to[e]);
        }
    }
}

/* A stage: 64 columns of the warp's 32 rows. */
template <typename P, int TOKENS>
static __device__ __forceinline__ void stage_multiply(const bnet_cu_batch_args &a,
                                                      const uint8_t *at, uint32_t rows, uint32_t i,
                                                      float sum[2][TOKENS / 8][4])
{
    constexpr int N = 2 / P::GROUPS;
    uint32_t r0 = threadIdx.x / 32 * WARP_ROWS + threadIdx.x % 32 / 4,
             x = shared_addr(at + rows * P::ROW);
#pragma unroll 1
    for (uint32_t sub = 0; sub < 2; sub++) {
        P p[4]; /* rows g, g + 8, g + 16, g + 24 */
#pragma unroll
        for (int r = 0; r < 4; r++)
            p[r].load(a.m, at, rows, r0 + 8 * r, sub, i);
#pragma unroll
        for (int j = 0; j < P::GROUPS; j++) {
            uint32_t w[N][2][4];
            float s[2][2];
#pragma unroll
            for (int r = 0; r < 4; r++) {
#pragma unroll
                for (int k = 0; k < N; k++)
                    p[r].halves(j * N + k, &w[k][r / 2][r % 2], &w[k][r / 2][r % 2 + 2]);
                s[r / 2][r % 2] = p[r].scale(j);
            }
            tile_multiply<TOKENS, N>(w, s, x, 2 * sub + j, sum);
        }
    }
}

/* Sums leave through shared memory by whole lines: 32 rows of one vector. */
template <int TOKENS>
static __device__ __forceinline__ void put(const bnet_cu_batch_args &a, float *to, uint32_t rows,
                                           const float sum[2][TOKENS / 8][4])
{
    uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    uint32_t row = blockIdx.x * rows + threadIdx.x / 32 * WARP_ROWS + lane;
#pragma unroll
    for (int n0 = 0; n0 < TOKENS / 8; n0 += 2) { /* 16 vectors at once */
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    to[(8 * n + 2 * t + e % 2) * 36 + i * 16 + e / 2 * 8 + g] = sum[i][n0 + n][e];
        __syncwarp();
#pragma unroll 4
        for (uint32_t v = 0; v < 16; v++) {
            uint32_t token = blockIdx.y * TOKENS + n0 * 8 + v;
            if (token < a.n_tokens && row < a.m.n_rows)
                a.y[(size_t)token * a.ld + row] = to[v * 36 + lane] * a.scale[token];
        }
        __syncwarp();
    }
}

template <typename P, int TOKENS>
static __device__ __forceinline__ void batch(const bnet_cu_batch_args &a)
{
    extern __shared__ __align__(128) uint8_t ring[];
    uint32_t rows = blockDim.x, stage = rows * P::ROW + 2 * TOKENS * 128, n = a.m.stride / COLS;
    uint32_t base = shared_addr(ring);
    float sum[2][TOKENS / 8][4] = {};
    pdl_launch();
#pragma unroll
    for (uint32_t i = 0; i < STAGES - 1; i++) /* weights do not depend on what runs before */
        if (i < n)
            P::fetch(a.m, base + i * stage, rows, blockIdx.x * rows, i);
    pdl_wait();
#pragma unroll
    for (uint32_t i = 0; i < STAGES - 1; i++) {
        if (i < n)
            fetch_vectors<TOKENS>(a, base + i * stage + rows * P::ROW, i);
        copy_commit();
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t next = i + STAGES - 1, to = base + next % STAGES * stage;
        copy_wait<STAGES - 2>();
        __syncthreads();
        if (next < n) {
            P::fetch(a.m, to, rows, blockIdx.x * rows, next);
            fetch_vectors<TOKENS>(a, to + rows * P::ROW, next);
        }
        copy_commit();
        stage_multiply<P, TOKENS>(a, ring + i % STAGES * stage, rows, i, sum);
    }
    copy_wait<0>();
    __syncthreads();
    put<TOKENS>(a, (float *)ring + threadIdx.x / 32 * (16 * 36), rows, sum);
}

#define BATCH(name, format, tokens)                                                                \
    KERNEL __launch_bounds__(BNET_QBATCH_THREADS, 1)                                               \
        name##_##tokens(const __grid_constant__ bnet_cu_batch_args a)                              \
    {                                                                                              \
        batch<format, tokens>(a);                                                                  \
    }
BATCH(bnet_head_batch_q6k, batch_q6k, 16)
BATCH(bnet_head_batch_q6k, batch_q6k, 32)
BATCH(bnet_head_batch_q6k, batch_q6k, 64)
BATCH(bnet_head_batch_q8, batch_q8, 16)
BATCH(bnet_head_batch_q8, batch_q8, 32)
BATCH(bnet_head_batch_q8, batch_q8, 64)

#endif
