/* head_q_batch.cuh - 64 columns of rows of Q6_K and Q8_0 codes on their way through shared memory
 * to the tensor cores (8.0 and up): copies, halves, scales; and the halves of vectors that meet
 * them. */
#ifndef BNET_HEAD_Q_BATCH_CUH
#define BNET_HEAD_Q_BATCH_CUH

#include "backend/cuda/batch.h"
#include "common.cuh"

#if BNET_SM80 || !defined(__CUDA_ARCH__)

static __device__ __forceinline__ uint32_t fma2(uint32_t x, uint32_t scale, uint32_t add)
{
    __half2 r = __hfma2(*(__half2 *)&x, *(__half2 *)&scale, *(__half2 *)&add);
    return *(uint32_t *)&r;
}

/* 16 bytes of weights; the second level fetches the line they are in */
static __device__ __forceinline__ void copy_line16(uint32_t to, const void *from)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from)
                 : "memory");
}

/* A half: the word it lies in, of which what follows it is not read. */
static __device__ __forceinline__ void copy_half(uint32_t to, const uint16_t *from)
{
    uint32_t n = (size_t)from & 2 ? 4 : 2;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to),
                 "l"((size_t)from & ~(size_t)3), "r"(n)
                 : "memory");
}

/* ---- formats ----
 * ROW bytes of a row's 64 columns in a stage, GROUPS scales a 32 columns. fetch: the block's copies
 * of stage i, rows beyond the last repeat it. load: a lane's words of row r of stage i, columns 32
 * sub ..; halves: columns 16 j .. of them as two registers; scale: of group j. */

struct batch_q6k {
    enum { GROUPS = 2, ROW = BNET_QBATCH_ROW_Q6K };
    uint32_t low, high, scales, d;

    static __device__ __forceinline__ void fetch(const bnet_dev_matrix &m, uint32_t to,
                                                 uint32_t rows, uint32_t row0, uint32_t i)
    {
        uint32_t last = m.n_rows - 1, n = m.stride / 32, high = to + rows * 32,
                 small = high + rows * 16;
        for (uint32_t p = threadIdx.x; p < rows * 2; p += blockDim.x) {
            uint32_t r = p / 2, u = p % 2;
            size_t sub = (size_t)min(row0 + r, last) * n + 2 * i;
            copy_line16(to + r * 32 + (u ^ (r >> 2 & 1)) * 16, m.w[0] + (sub + u) * 16);
        }
        for (uint32_t r = threadIdx.x; r < rows; r += blockDim.x) {
            size_t row = min(row0 + r, last), sub = row * n + 2 * i, d = row * (n / 8) + i / 4;
            copy_line16(high + r * 16, m.w[1] + sub * 8);
            copy_async4(small + r * 8, m.w[2] + sub * 2, true);
            copy_half(small + r * 8 + 4, (const uint16_t *)m.w[3] + d);
        }
    }
    __device__ __forceinline__ void load(const bnet_dev_matrix &m, const uint8_t *from,
                                         uint32_t rows, uint32_t r, uint32_t sub, uint32_t i)
    {
        uint32_t t = threadIdx.x % 4, row = min(blockIdx.x * rows + r, m.n_rows - 1);
        low = *(const uint32_t *)(from + r * 32 + (sub ^ (r >> 2 & 1)) * 16 + t * 4);
        high = *(const uint32_t *)(from + rows * 32 + r * 16 + sub * 8 + t % 2 * 4) >> (t & 2);
        uint2 small = *(const uint2 *)(from + rows * 48 + r * 8);
        scales = small.x >> 16 * sub;
        d = small.y >> ((row * (m.stride / 256) + i / 4) & 1) * 16;
    }
    __device__ __forceinline__ void halves(int j, uint32_t *even, uint32_t *odd) const
    {
        uint32_t lm = j ? 0x00f000f0u : 0x000f000fu, hm = j ? 0x03000300u : 0x00300030u;
        uint32_t scale2 = j ? 0x2c002c00u : 0x3c003c00u, add = j ? 0xd600d600u : 0xe420e420u;
        *even = fma2((low & lm) | 0x64006400u | (high << 4 & hm), scale2, add);
        *odd = fma2((low >> 8 & lm) | 0x64006400u | (high >> 4 & hm), scale2, add);
    }
    __device__ __forceinline__ float scale(int j) const
    {
        return __half2float(__ushort_as_half((uint16_t)d)) * (float)(int8_t)(scales >> 8 * j);
    }
};

struct batch_q8 {
    enum { GROUPS = 1, ROW = BNET_QBATCH_ROW_Q8 };
    uint32_t v[2], scales;

    static __device__ __forceinline__ void fetch(const bnet_dev_matrix &m, uint32_t to,
                                                 uint32_t rows, uint32_t row0, uint32_t i)
    {
        uint32_t last = m.n_rows - 1, n = m.stride / 32;
        for (uint32_t p = threadIdx.x; p < rows * 4; p += blockDim.x) {
            uint32_t r = p / 4, u = p % 4;
            const uint8_t *row = m.w[0] + (size_t)min(row0 + r, last) * m.stride;
            copy_line16(to + r * 64 + (u ^ (r >> 1 & 3)) * 16, row + i * BNET_QBATCH_COLS + u * 16);
        }
        for (uint32_t r = threadIdx.x; r < rows; r += blockDim.x)
            copy_async4(to + rows * 64 + r * 4,
                        m.w[1] + ((size_t)min(row0 + r, last) * n + 2 * i) * 2, true);
    }
    __device__ __forceinline__ void load(const bnet_dev_matrix &, const uint8_t *from,
                                         uint32_t rows, uint32_t r, uint32_t sub, uint32_t)
    {
        uint32_t t = threadIdx.x % 4, x = r >> 1 & 3;
        v[0] = *(const uint32_t *)(from + r * 64 + (2 * sub ^ x) * 16 + t * 4);
        v[1] = *(const uint32_t *)(from + r * 64 + ((2 * sub + 1) ^ x) * 16 + t * 4);
        scales = *(const uint32_t *)(from + rows * 64 + r * 4) >> 16 * sub;
    }
    __device__ __forceinline__ void halves(int j, uint32_t *even, uint32_t *odd) const
    {
        uint32_t w = v[j] ^ 0x80808080u; /* code + 128, then 1024 above it */
        *even = fma2(__byte_perm(w, 0x64646464u, 0x4240), 0x3c003c00u, 0xe480e480u);
        *odd = fma2(__byte_perm(w, 0x64646464u, 0x4341), 0x3c003c00u, 0xe480e480u);
    }
    __device__ __forceinline__ float scale(int) const
    {
        return __half2float(__ushort_as_half((uint16_t)scales));
    }
};

/* ---- vectors ---- */

/* Columns 64 i .. of the vectors: high halves of TOKENS of them, then the low ones; 16-byte pieces
 * exchanged within a row so that no banks collide. */
template <int TOKENS>
static __device__ __forceinline__ void fetch_vectors(const bnet_cu_batch_args &a, uint32_t to,
                                                     uint32_t i)
{
    uint32_t t0 = blockIdx.y * TOKENS, padded = (a.n_tokens + 63) / 64 * 64;
    for (uint32_t p = threadIdx.x; p < 2 * TOKENS * 8; p += blockDim.x) {
        uint32_t r = p / 8, u = p % 8, t = t0 + r % TOKENS + r / TOKENS * padded;
        copy_async16(to + r * 128 + (u ^ (r & 7)) * 16,
                     a.halves + (size_t)t * a.m.stride + i * BNET_QBATCH_COLS + u * 8, true);
    }
}

#endif

#endif
