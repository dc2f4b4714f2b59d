/* w2_gemm.cu - ternary matrix times many int8 vectors on the int8 tensor cores of every chip from
 * 7.5 on (mma.sync).
 *
 * A block computes 128 rows x TOKENS; eight warps of 32 rows x TOKENS / 2. Weights go from global
 * memory straight into the registers of the products: 16 bytes of a lane are its A operand for 128
 * columns. Activations pass through shared memory, 128 columns at a stage; the 16-byte pieces of a
 * row are exchanged by (token & 7) so that ldmatrix meets no bank twice. */
#include "w2_gemm.cuh"

enum { STAGES = 3, THREADS = 256 };

/* Registers of one product: codes of step s. */
static __device__ __forceinline__ void unpack(uint4 w, int s, uint32_t r[4])
{
    r[0] = w.x >> 2 * s & 0x03030303u;
    r[1] = w.y >> 2 * s & 0x03030303u;
    r[2] = w.z >> 2 * s & 0x03030303u;
    r[3] = w.w >> 2 * s & 0x03030303u;
}

template <int TOKENS>
static __device__ __forceinline__ void gemm(const bnet_cu_gemm_args &a)
{
    constexpr int NT = TOKENS / 16; /* products of 8 tokens per warp */
    extern __shared__ __align__(1024) uint8_t dynamic[];
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, wm = warp % 4, wn = warp / 4;
    uint32_t tile0 = blockIdx.y * 8 + wm * 2, token0 = blockIdx.x * TOKENS;
    uint32_t c0, c1;
    k_range(a, &c0, &c1);
    int acc[2][NT][4] = {};
    const uint8_t *w[2];
#pragma unroll
    for (int i = 0; i < 2; i++)
        w[i] = a.m.w + (size_t)min(tile0 + i, a.m.n_tiles - 1) * a.m.n_chunks * BNET_W2_UNIT +
               lane * 16;
    for (int s = 0; s < STAGES - 1; s++) {
        if (c0 + s < c1)
            load_tokens<TOKENS, THREADS>(a, token0, c0 + s, shared_addr(dynamic) + s * TOKENS * 128);
        copy_commit();
    }
    uint4 next[2];
#pragma unroll
    for (int i = 0; i < 2; i++)
        next[i] = load_stream(w[i] + (size_t)c0 * BNET_W2_UNIT);
    for (uint32_t c = c0; c < c1; c++) {
        uint4 now[2] = {next[0], next[1]};
#pragma unroll
        for (int i = 0; i < 2; i++)
            if (c + 1 < c1)
                next[i] = load_stream(w[i] + (size_t)(c + 1) * BNET_W2_UNIT);
        copy_wait<STAGES - 2>();
        __syncthreads();
        uint32_t ahead = c + STAGES - 1;
        if (ahead < c1)
            load_tokens<TOKENS, THREADS>(a, token0, ahead,
                                         shared_addr(dynamic) + (ahead - c0) % STAGES * TOKENS * 128);
        copy_commit();
        uint32_t base = shared_addr(dynamic) + (c - c0) % STAGES * TOKENS * 128;
#pragma unroll
        for (int s = 0; s < 4; s++) {
            uint32_t r[2][4];
            unpack(now[0], s, r[0]);
            unpack(now[1], s, r[1]);
#pragma unroll
            for (int j = 0; j < NT / 2; j++) { /* 16 tokens: four 8 x 16-byte matrices */
                uint32_t b[4];
                uint32_t row = wn * (TOKENS / 2) + j * 16 + (lane & 7) + (lane >> 4) * 8;
                uint32_t piece = 2 * s + (lane >> 3 & 1);
                load_matrix4(b, base + row * 128 + ((piece ^ (row & 7)) << 4));
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    mma_u8s8(acc[i][2 * j], r[i], b[0], b[1]);
                    mma_u8s8(acc[i][2 * j + 1], r[i], b[2], b[3]);
                }
            }
        }
    }
    copy_wait<0>();
    __syncthreads();
    if (a.splits > 1 && !meet<2 * NT * 4, THREADS>(a, &acc[0][0][0]))
        return;
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < NT; j++)
            put_tokens(a, tile0 + i, token0 + wn * (TOKENS / 2) + j * 8, acc[i][j]);
}

KERNEL __launch_bounds__(THREADS, 2) bnet_w2_gemm_mma_64(const __grid_constant__ bnet_cu_gemm_args a)
{
    gemm<64>(a);
}
