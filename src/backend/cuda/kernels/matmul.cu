/* matmul.cu - products of 16-bit float matrices on the tensor cores with float sums, any sizes.
 *
 * A block has 64 rows and 128 columns of the product; 32 of K at a time pass through shared memory,
 * zeros where the matrices end. Eight warps, 32 x 32 each. */
#include "common.cuh"

#include <mma.h>

enum { ROWS = 64, COLS = 128, DEPTH = 32, THREADS = 256 };
enum { LDA = DEPTH + 8, LDN = COLS + 8 }; /* halves between rows in shared memory */

struct tiles {
    alignas(16) uint16_t a[ROWS * LDA];
    alignas(16) uint16_t b[COLS * LDA]; /* nt: [128][LDA]; nn: [32][LDN] */
};

/* rows x cols elements from (r0, c0) of m [n_rows][ld], zero beyond n_rows and n_cols. */
static __device__ __forceinline__ void take(uint16_t *to, uint32_t ld_to, const uint16_t *m,
                                            uint32_t ld, uint32_t r0, uint32_t c0, uint32_t n_rows,
                                            uint32_t n_cols, uint32_t rows, uint32_t cols)
{
    bool aligned = ld % 8 == 0 && (uintptr_t)m % 16 == 0;
    for (uint32_t i = threadIdx.x; i < rows * cols / 8; i += THREADS) {
        uint32_t r = i / (cols / 8), c = i % (cols / 8) * 8;
        union {
            uint4 all;
            uint16_t one[8];
        } v;
        v.all = make_uint4(0, 0, 0, 0);
        if (r0 + r < n_rows) {
            const uint16_t *from = m + (size_t)(r0 + r) * ld + c0 + c;
            if (aligned && c0 + c + 8 <= n_cols)
                v.all = *(const uint4 *)from;
            else
#pragma unroll
                for (uint32_t j = 0; j < 8; j++)
                    v.one[j] = c0 + c + j < n_cols ? from[j] : 0;
        }
        *(uint4 *)(to + r * ld_to + c) = v.all;
    }
}

template <bool NN>
static __device__ __forceinline__ void take_tiles(const bnet_cu_matmul_args &a, uint32_t k, tiles *t)
{
    uint32_t row = blockIdx.y * ROWS, col = blockIdx.x * COLS;
    take(t->a, LDA, a.a, a.lda, row, k, a.m, a.k, ROWS, DEPTH);
    if (NN)
        take(t->b, LDN, a.b, a.ldb, k, col, a.k, a.n, DEPTH, COLS);
    else
        take(t->b, LDA, a.b, a.ldb, col, k, a.n, a.k, COLS, DEPTH);
}

template <bool BF16>
static __device__ __forceinline__ void mma16(float *c, const uint32_t *a, uint32_t b0, uint32_t b1)
{
    if (BF16)
        mma_bf16(c, a, b0, b1);
    else
        mma_f16(c, a, b0, b1);
}

/* A warp's 32 x 32 of a step: rows from r, columns from n of the tile. */
template <bool BF16, bool NN>
static __device__ __forceinline__ void multiply(const tiles *t, uint32_t r, uint32_t n,
                                                float c[2][4][4])
{
    uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t k = 0; k < DEPTH; k += 16) {
        uint32_t w[2][4], b[2][4];
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            load_matrix4(w[i], shared_addr(t->a + (r + 16 * i + lane % 16) * LDA + k + lane / 16 * 8));
            if (NN)
                load_matrix4_t(b[i], shared_addr(t->b + (k + lane % 16) * LDN + n + 16 * i +
                                                 lane / 16 * 8));
            else
                load_matrix4(b[i], shared_addr(t->b + (n + 16 * i + lane % 8 + lane / 16 * 8) * LDA +
                                               k + lane / 8 % 2 * 8));
        }
#pragma unroll
        for (uint32_t i = 0; i < 2; i++)
#pragma unroll
            for (uint32_t j = 0; j < 4; j++)
                mma16<BF16>(c[i][j], w[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
    }
}

template <bool BF16, bool NN> static __device__ __forceinline__ void matmul(const bnet_cu_matmul_args &a)
{
    __shared__ tiles t;
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, r = warp / 4 * 32, n = warp % 4 * 32;
    float c[2][4][4] = {};
    for (uint32_t k = 0; k < a.k; k += DEPTH) {
        take_tiles<NN>(a, k, &t);
        __syncthreads();
        multiply<BF16, NN>(&t, r, n, c);
        __syncthreads();
    }
#pragma unroll
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t row = blockIdx.y * ROWS + r + i / 16 * 16 + lane / 4 + i / 2 % 2 * 8;
        uint32_t col = blockIdx.x * COLS + n + i / 4 % 4 * 8 + lane % 4 * 2 + i % 2;
        if (row < a.m && col < a.n)
            a.c[(size_t)row * a.ldc + col] = c[i / 16][i / 4 % 4][i % 4];
    }
}

#define MATMUL(name, bf16, nn)                                                                     \
    KERNEL __launch_bounds__(THREADS) bnet_matmul_##name(                                          \
        const __grid_constant__ bnet_cu_matmul_args a)                                             \
    {                                                                                              \
        matmul<bf16, nn>(a);                                                                       \
    }
MATMUL(f16_nt, false, false)
#if BNET_SM80 || !defined(__CUDA_ARCH__)
MATMUL(bf16_nt, true, false)
MATMUL(bf16_nn, true, true)
#endif

/* Through the wmma interface: 16 x 16 of the product per fragment, stored by way of shared memory. */
KERNEL __launch_bounds__(THREADS) bnet_wmma_matmul_f16(const __grid_constant__ bnet_cu_matmul_args a)
{
    using namespace nvcuda::wmma;
    __shared__ tiles t;
    __shared__ float out[THREADS / 32][16 * 16];
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, r = warp / 4 * 32, n = warp % 4 * 32;
    fragment<accumulator, 16, 16, 16, float> c[2][2];
    for (int i = 0; i < 4; i++)
        fill_fragment(c[i / 2][i % 2], 0.0f);
    for (uint32_t k = 0; k < a.k; k += DEPTH) {
        take_tiles<true>(a, k, &t);
        __syncthreads();
        for (uint32_t s = 0; s < DEPTH; s += 16)
            for (uint32_t i = 0; i < 4; i++) {
                fragment<matrix_a, 16, 16, 16, __half, row_major> x;
                fragment<matrix_b, 16, 16, 16, __half, row_major> y;
                load_matrix_sync(x, (const __half *)t.a + (r + i / 2 * 16) * LDA + s, LDA);
                load_matrix_sync(y, (const __half *)t.b + s * LDN + n + i % 2 * 16, LDN);
                mma_sync(c[i / 2][i % 2], x, y, c[i / 2][i % 2]);
            }
        __syncthreads();
    }
    for (uint32_t i = 0; i < 4; i++) {
        store_matrix_sync(out[warp], c[i / 2][i % 2], 16, mem_row_major);
        __syncwarp();
        for (uint32_t e = lane; e < 256; e += 32) {
            uint32_t row = blockIdx.y * ROWS + r + i / 2 * 16 + e / 16;
            uint32_t col = blockIdx.x * COLS + n + i % 2 * 16 + e % 16;
            if (row < a.m && col < a.n)
                a.c[(size_t)row * a.ldc + col] = out[warp][e];
        }
        __syncwarp();
    }
}

/* Floats, an element at a time in the order of K: the reference. */
KERNEL __launch_bounds__(THREADS) bnet_matmul_f32_nn(const __grid_constant__ bnet_cu_matmul_args a)
{
    const float *x = (const float *)a.a, *y = (const float *)a.b;
    for (uint32_t e = threadIdx.x; e < ROWS * COLS; e += THREADS) {
        uint32_t row = blockIdx.y * ROWS + e / COLS, col = blockIdx.x * COLS + e % COLS;
        if (row >= a.m || col >= a.n)
            continue;
        float sum = 0;
        for (uint32_t k = 0; k < a.k; k++)
            sum = fmaf(x[(size_t)row * a.lda + k], y[(size_t)k * a.ldb + col], sum);
        a.c[(size_t)row * a.ldc + col] = sum;
    }
}
