/* head_batch_wgmma.cu - bnet_head_batch_f16 with Hopper's warpgroup products (9.0a): the same
 * halves, stages and sums. A block has 256 rows, two warpgroups of 2 x 64; the high and the low
 * halves of 64 vectors are the 128 columns of one product. Both operands lie in shared memory, rows
 * of 128 bytes whose pieces are exchanged as the products expect it. */
#include "backend/cuda/batch.h"
#include "wgmma.cuh"

#if BNET_SM90A || !defined(__CUDA_ARCH__)

enum { ROWS = BNET_BATCH_ROWS, TOKENS = BNET_BATCH_TOKENS, COLS = BNET_BATCH_COLS };
enum { STAGES = BNET_BATCH_STAGES, STAGE = BNET_BATCH_STAGE, THREADS = BNET_BATCH_THREADS };

/* d [64 x 128] += a [64 x 16] * b [128 x 16], both in shared memory */
static __device__ __forceinline__ void rows_product(float *d, uint64_t a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" N64 "}, "
                 "%64, %65, 1, 1, 1, 0, 0;"
                 : D64("f")
                 : "l"(a), "l"(b));
}

/* Columns 64 i .. of the block's rows and vectors: 16-byte piece p of row r at p ^ (r & 7). */
static __device__ __forceinline__ void fetch(const bnet_cu_batch_args &a, uint32_t to, uint32_t i,
                                             uint32_t n)
{
    uint32_t row0 = blockIdx.x * ROWS, t0 = blockIdx.y * TOKENS, padded = gridDim.y * TOKENS;
    const uint16_t *w = (const uint16_t *)a.m.w[0];
    uint32_t piece = threadIdx.x % 8;
#pragma unroll
    for (uint32_t r = threadIdx.x / 8; i < n && r < ROWS; r += THREADS / 8) {
        uint32_t row = min(row0 + r, a.m.n_rows - 1);
        copy_async16(to + r * 128 + ((piece ^ (r & 7)) << 4),
                     w + (size_t)row * a.m.stride + i * COLS + piece * 8, row0 + r < a.m.n_rows);
    }
#pragma unroll
    for (uint32_t r = threadIdx.x / 8; i < n && r < 2 * TOKENS; r += THREADS / 8) {
        uint32_t t = t0 + r % TOKENS + r / TOKENS * padded;
        copy_async16(to + (ROWS + r) * 128 + ((piece ^ (r & 7)) << 4),
                     a.halves + (size_t)t * a.m.stride + i * COLS + piece * 8, true);
    }
    copy_commit();
}

static __device__ __forceinline__ void multiply(uint32_t at, float (*c)[TOKENS])
{
    uint64_t w = describe(at + threadIdx.x / 128 * 128 * 128), b = describe(at + ROWS * 128);
    group_arrive();
#pragma unroll
    for (int k = 0; k < COLS / 16; k++) {
        rows_product(c[0], w + 2 * k, b + 2 * k);
        rows_product(c[1], w + (64 * 128 >> 4) + 2 * k, b + 2 * k);
    }
    group_commit();
}

/* High and low sums of a vector are TOKENS columns apart. */
static __device__ __forceinline__ void put(const bnet_cu_batch_args &a, const float (*c)[TOKENS])
{
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++)
#pragma unroll
        for (uint32_t n = 0; n < TOKENS / 8; n++)
#pragma unroll
            for (uint32_t j = 0; j < 4; j++) {
                uint32_t row =
                    blockIdx.x * ROWS + warp / 4 * 128 + i * 64 + warp % 4 * 16 + g + j / 2 * 8;
                uint32_t token = blockIdx.y * TOKENS + n * 8 + 2 * t + j % 2;
                if (row < a.m.n_rows && token < a.n_tokens)
                    a.y[(size_t)token * a.ld + row] =
                        (c[i][4 * n + j] + c[i][4 * n + j + TOKENS / 2]) * a.scale[token];
            }
}

KERNEL __launch_bounds__(THREADS, 1)
    bnet_head_batch_f16_wgmma(const __grid_constant__ bnet_cu_batch_args a)
{
    extern __shared__ __align__(1024) uint8_t ring[];
    uint32_t base = (shared_addr(ring) + 1023) & ~1023u, n = a.m.stride / COLS;
    float c[2][TOKENS] = {};
    pdl_launch();
    pdl_wait();
    for (uint32_t i = 0; i < STAGES - 2; i++)
        fetch(a, base + i * STAGE, i, n);
    for (uint32_t i = 0; i < n; i++) {
        copy_wait<STAGES - 3>(); /* stage i is here */
        async_fence();
        __syncthreads();
        multiply(base + i % STAGES * STAGE, c);
        fetch(a, base + (i + STAGES - 2) % STAGES * STAGE, i + STAGES - 2, n);
        group_wait<1>();
    }
    group_wait<0>();
    put(a, c);
}

#endif
