/* head_batch.cu - rows of 16-bit floats times many float vectors on the tensor cores: the head of
 * batches. A vector is scaled by a power of two and split into a high and a low half, so that
 * products are as good as float ones; sums are floats.
 *
 * A block has 256 rows and 64 vectors; weights and halves pass through a ring of stages in shared
 * memory, 64 columns each, 16-byte pieces exchanged within a row so that no banks collide. */
#include "backend/cuda/batch.h"
#include "common.cuh"

enum { ROWS = BNET_BATCH_ROWS, TOKENS = BNET_BATCH_TOKENS, COLS = BNET_BATCH_COLS };
enum { STAGES = BNET_BATCH_STAGES_MMA, STAGE = BNET_BATCH_STAGE, THREADS = BNET_BATCH_THREADS };

/* Byte of the piece of 8 halves in a row of 64. */
static __device__ __forceinline__ uint32_t place(uint32_t row, uint32_t piece)
{
    return row * 128 + (piece ^ (row & 7)) * 16;
}

/* x [T][ldx] to halves [high, low][padded T][stride], zero beyond k and T; one block per vector. */
KERNEL __launch_bounds__(256) bnet_head_split(const __grid_constant__ bnet_cu_batch_args a)
{
    __shared__ float tops[32];
    uint32_t t = blockIdx.x;
    const float *x = a.x + (size_t)t * a.ldx;
    uint32_t k = t < a.n_tokens ? a.m.k : 0;
    pdl_launch();
    pdl_wait();
    float top = 0;
    for (uint32_t i = threadIdx.x; i < k; i += 256)
        top = fmaxf(top, fabsf(x[i]));
    top = block_max<256>(top, tops);
    int e = 10 - (top > 0 ? ilogbf(top) : 0);
    e = max(-126, min(e, 126));
    float up = ldexpf(1.0f, e);
    uint16_t *high = a.halves + (size_t)t * a.m.stride;
    uint16_t *low = high + (size_t)gridDim.x * a.m.stride;
    for (uint32_t i = threadIdx.x; i < a.m.stride; i += 256) {
        float v = i < k ? x[i] * up : 0.0f;
        __half h = __float2half_rn(v), l = __float2half_rn(v - __half2float(h));
        uint32_t at = a.places ? i / 16 * 16 + bnet_batch_place(i % 16) : i;
        high[at] = __half_as_ushort(h);
        low[at] = __half_as_ushort(l);
    }
    if (threadIdx.x == 0)
        a.scale[t] = ldexpf(1.0f, -e);
}

#if BNET_SM80 || !defined(__CUDA_ARCH__)

/* Columns 64 i .. of the block's rows and vectors. */
static __device__ __forceinline__ void fetch(const bnet_cu_batch_args &a, uint32_t to, uint32_t i)
{
    uint32_t row0 = blockIdx.x * ROWS, t0 = blockIdx.y * TOKENS, padded = gridDim.y * TOKENS;
    const uint16_t *w = (const uint16_t *)a.m.w[0];
    for (uint32_t p = threadIdx.x; p < ROWS * 8; p += THREADS) {
        uint32_t r = p / 8, row = min(row0 + r, a.m.n_rows - 1);
        copy_async16(to + place(r, p % 8), w + (size_t)row * a.m.stride + i * COLS + p % 8 * 8,
                     row0 + r < a.m.n_rows);
    }
    for (uint32_t p = threadIdx.x; p < 2 * TOKENS * 8; p += THREADS) {
        uint32_t r = p / 8, t = t0 + r % TOKENS + r / TOKENS * padded;
        copy_async16(to + ROWS * 128 + place(r, p % 8),
                     a.halves + (size_t)t * a.m.stride + i * COLS + p % 8 * 8, true);
    }
    copy_commit();
}

/* A warp: 32 rows, all vectors. */
static __device__ __forceinline__ void multiply(uint32_t at, float (*c)[8][4])
{
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t k = 0; k < COLS / 16; k++) {
        uint32_t w[2][4];
#pragma unroll
        for (uint32_t i = 0; i < 2; i++)
            load_matrix4(w[i], at + place(warp * 32 + i * 16 + lane % 16, 2 * k + lane / 16));
#pragma unroll
        for (uint32_t half = 0; half < 2; half++)
#pragma unroll
            for (uint32_t n = 0; n < TOKENS / 16; n++) {
                uint32_t b[4], row = half * TOKENS + n * 16 + lane % 8 + lane / 16 * 8;
                load_matrix4(b, at + ROWS * 128 + place(row, 2 * k + lane / 8 % 2));
#pragma unroll
                for (uint32_t i = 0; i < 2; i++) {
                    mma_f16(c[i][2 * n], w[i], b[0], b[1]);
                    mma_f16(c[i][2 * n + 1], w[i], b[2], b[3]);
                }
            }
    }
}

static __device__ __forceinline__ void put(const bnet_cu_batch_args &a, float (*c)[8][4])
{
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++)
#pragma unroll
        for (uint32_t n = 0; n < 8; n++)
#pragma unroll
            for (uint32_t j = 0; j < 4; j++) {
                uint32_t row = blockIdx.x * ROWS + warp * 32 + i * 16 + g + j / 2 * 8;
                uint32_t token = blockIdx.y * TOKENS + n * 8 + 2 * t + j % 2;
                if (row < a.m.n_rows && token < a.n_tokens)
                    a.y[(size_t)token * a.ld + row] = c[i][n][j] * a.scale[token];
            }
}

KERNEL __launch_bounds__(THREADS, 1)
    bnet_head_batch_f16(const __grid_constant__ bnet_cu_batch_args a)
{
    extern __shared__ __align__(128) uint8_t ring[];
    uint32_t base = shared_addr(ring), n = a.m.stride / COLS;
    float c[2][8][4] = {};
    pdl_launch();
    pdl_wait();
    for (uint32_t i = 0; i < STAGES - 1; i++)
        if (i < n)
            fetch(a, base + i * STAGE, i);
        else
            copy_commit();
    for (uint32_t i = 0; i < n; i++) {
        copy_wait<STAGES - 2>();
        __syncthreads();
        uint32_t next = i + STAGES - 1;
        if (next < n)
            fetch(a, base + next % STAGES * STAGE, next);
        else
            copy_commit();
        multiply(base + i % STAGES * STAGE, c);
    }
    put(a, c);
}

#endif
