/* head_copy_batch_wgmma.cu - the scan of head_copy.cu for batches, with Hopper's warpgroup products
 * (9.0a). A block stays and takes 256 rows after the other. One warp asks for 128 columns of the
 * codes and of the vectors' bytes at a time, bulk copies into a ring of four stages; two warpgroups
 * have 128 rows each, codes in registers, high and low bytes of the vectors as the columns of one
 * product. While bounds are made of sums the ring is filled with the next rows. */
#include "best.cuh"
#include "head_copy.cuh"
#include "wgmma.cuh"

#if BNET_SM90A || !defined(__CUDA_ARCH__)

enum { ROWS = BNET_SCREEN_BATCH_ROWS, STAGES = BNET_SCREEN_BATCH_STAGES, CODES = ROWS * 128 };
enum { THREADS = BNET_SCREEN_BATCH_THREADS, WORKERS = THREADS - 128, TILES = ROWS / 16 };

template <int COLUMNS> struct scan {
    enum { STAGE = CODES + COLUMNS * 128, JS = COLUMNS / 8 };
    const bnet_cu_screen_args &a;
    uint32_t ring, full, empty; /* shared memory */
    const input *in;            /* [COLUMNS / 2], shared memory */
    uint32_t units, chunks, blocks, tiles;

    /* ---- one warp brings ---- */

    __device__ __forceinline__ uint32_t depth(uint32_t chunk) const /* units of it */
    {
        return min(units - 4 * chunk, 4u);
    }
    /* The i-th of the stages this block takes. */
    __device__ __forceinline__ void codes(uint32_t i, uint64_t policy) const
    {
        uint32_t slot = i % STAGES, chunk = i % chunks, lane = threadIdx.x % 32;
        uint32_t block = blockIdx.x + i / chunks * gridDim.x, n = depth(chunk) * BNET_SCREEN_UNIT;
        if (lane == 0)
            expect(full + 8 * slot, TILES * n + COLUMNS * 128);
        __syncwarp();
        uint32_t tile = min(block * TILES + lane, tiles - 1);
        if (lane < TILES)
            bulk_copy(ring + slot * STAGE + lane * 4 * BNET_SCREEN_UNIT,
                      a.codes + ((size_t)tile * units + 4 * chunk) * BNET_SCREEN_UNIT, n,
                      full + 8 * slot, policy);
    }
    __device__ __forceinline__ void vectors(uint32_t i, uint64_t policy) const
    {
        uint32_t slot = i % STAGES;
        if (threadIdx.x % 32 == 0)
            bulk_copy(ring + slot * STAGE + CODES, a.bytes + (size_t)(i % chunks) * COLUMNS * 128,
                      COLUMNS * 128, full + 8 * slot, policy);
    }
    __device__ __forceinline__ void bring(uint32_t n) const
    {
        uint64_t once, kept;
        asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(once));
        asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(kept));
        for (uint32_t i = 0; i < min(n, (uint32_t)STAGES); i++)
            codes(i, once); /* they depend on nothing that runs before */
        pdl_wait();
        for (uint32_t i = 0; i < min(n, (uint32_t)STAGES); i++)
            vectors(i, kept);
        for (uint32_t i = STAGES; i < n; i++) {
            barrier_wait(empty + 8 * (i % STAGES), (i / STAGES - 1) & 1);
            codes(i, once);
            vectors(i, kept);
        }
    }

    /* ---- the others multiply ---- */

    /* A warp's codes of stage i, when it is there. */
    __device__ __forceinline__ void take(uint32_t i, uint4 (*w)[4]) const
    {
        uint32_t at = ring + i % STAGES * STAGE + threadIdx.x % 32 * 16, n = depth(i % chunks);
        uint32_t warp = threadIdx.x / 32;
        barrier_wait(full + 8 * (i % STAGES), i / STAGES & 1);
#pragma unroll
        for (uint32_t t = 0; t < 2; t++)
#pragma unroll
            for (uint32_t s = 0; s < 4; s++) {
                uint32_t unit = (warp / 4 * 8 + t * 4 + warp % 4) * 4 + s;
                w[t][s] = load_shared16(at + unit * BNET_SCREEN_UNIT);
                if (s >= n) /* what another stage left there */
                    w[t][s] = make_uint4(0, 0, 0, 0);
            }
    }
    /* Stage i with its codes w; takes those of the next one meanwhile. */
    __device__ __forceinline__ void multiply(uint32_t i, int (*c)[COLUMNS / 2], uint4 (*w)[4],
                                             uint4 (*next)[4], bool more) const
    {
        uint64_t b = describe(ring + i % STAGES * STAGE + CODES);
        group_arrive();
#pragma unroll
        for (uint32_t s = 0; s < 4; s++) {
            product<COLUMNS>::run(c[0], w[0][s], b + 2 * s);
            product<COLUMNS>::run(c[1], w[1][s], b + 2 * s);
        }
        group_commit();
        if (more)
            take(i + 1, next);
        group_wait<0>();
        if (threadIdx.x % 32 == 0)
            arrive(empty + 8 * (i % STAGES));
    }

    /* Sums of 32 rows of a warp become bounds; the row that is at least most leads them. */
    __device__ __forceinline__ void bound(uint32_t block, int (*c)[COLUMNS / 2]) const
    {
        uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4;
        uint32_t row0 = block * ROWS + warp / 4 * 128 + warp % 4 * 16 + g;
        float4 r[4];
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            r[i] = __ldg(
                (const float4 *)(a.rows + min(row0 + i / 2 * 64 + i % 2 * 8, tiles * 16 - 1)));
#pragma unroll
        for (uint32_t j = 0; j < JS; j++) {
            uint32_t token = 4 * j + lane % 4, highest = 0;
            size_t group = (size_t)token * a.n_groups + block * 8 + warp;
            input known = in[token];
            float most[4];
            key best = 0;
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                uint32_t row = row0 + i / 2 * 64 + i % 2 * 8;
                const int *d = &c[i / 2][4 * j + i % 2 * 2];
                limits l = limits_of(r[i], known, d[0], d[1]);
                bool there = row < a.m.n_rows;
                most[i] = l.most;
                highest = there ? max(highest, order(l.most)) : highest;
                if (there && l.least)
                    best = max(best, (key)l.least << 32 | (0xffffffffu - row));
            }
            bool wanted = token < a.n_tokens;
            if (wanted)
                ((float4 *)a.most)[group * 8 + g] = make_float4(most[0], most[1], most[2], most[3]);
#pragma unroll
            for (int o = 16; o >= 4; o /= 2) {
                best = max(best, __shfl_xor_sync(0xffffffffu, best, o));
                highest = max(highest, __shfl_xor_sync(0xffffffffu, highest, o));
            }
            if (wanted && g == 0) {
                a.leaders[group] = best;
                a.groups[group] = highest;
            }
        }
    }

    __device__ __forceinline__ void work(uint32_t n) const
    {
        for (uint32_t i = 0; i < n; i += chunks) {
            int c[2][COLUMNS / 2] = {};
            uint4 even[2][4], odd[2][4];
            take(i, even);
            for (uint32_t k = 0; k < chunks; k += 2) {
                multiply(i + k, c, even, odd, k + 1 < chunks);
                if (k + 1 < chunks)
                    multiply(i + k + 1, c, odd, even, k + 2 < chunks);
            }
            settled<COLUMNS / 2>(c[0]);
            settled<COLUMNS / 2>(c[1]);
            bound(blockIdx.x + i / chunks * gridDim.x, c);
        }
    }
};

template <int COLUMNS> static __device__ __forceinline__ void batch(const bnet_cu_screen_args &a)
{
    extern __shared__ __align__(1024) uint8_t dynamic[];
    __shared__ __align__(8) uint64_t bars[2 * STAGES];
    __shared__ input in[COLUMNS / 2];
    uint32_t ring = (shared_addr(dynamic) + 1023) & ~1023u, bar = shared_addr(bars);
    uint32_t blocks = (a.m.n_rows + ROWS - 1) / ROWS, units = a.m.stride / 32;
    scan<COLUMNS> s = {
        a, ring, bar, bar + 8 * STAGES, in, units, (units + 3) / 4, blocks, (a.m.n_rows + 15) / 16};
    uint32_t n = (blocks - blockIdx.x + gridDim.x - 1) / gridDim.x * s.chunks;
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < STAGES; i++) {
            barrier_init(bar + 8 * i, 1);
            barrier_init(s.empty + 8 * i, WORKERS / 32);
        }
        barrier_init_fence();
        async_fence();
    }
    pdl_launch();
    __syncthreads();
    if (threadIdx.x >= WORKERS) { /* registers go to the computing warps */
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x < WORKERS + 32)
            s.bring(n);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        pdl_wait();
        if (threadIdx.x < COLUMNS / 2) {
            float4 v = __ldcg((const float4 *)a.inputs + threadIdx.x);
            in[threadIdx.x] = {v.x, v.y, v.z, v.w};
        }
        asm volatile("bar.sync 1, %0;" ::"n"((int)WORKERS) : "memory");
        s.work(n);
    }
}

#define BATCH(tokens)                                                                              \
    KERNEL __launch_bounds__(THREADS, 1)                                                           \
        bnet_screen_batch_##tokens(const __grid_constant__ bnet_cu_screen_args a)                  \
    {                                                                                              \
        batch<2 * tokens>(a);                                                                      \
    }
BATCH(16)
BATCH(32)
BATCH(64)

#endif
