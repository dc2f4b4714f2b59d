/* w2_tiles.cuh - what the two kernels over tiles (tiles.h) share: copies by the copy engine, clusters,
 * and the way from integer sums to what is stored. 9.0a. */
#ifndef BNET_W2_TILES_CUH
#define BNET_W2_TILES_CUH

#include "backend/cuda/tiles.h"
#include "w2_epilogue.cuh"
#include "wgmma.cuh"

#if BNET_SM90A || !defined(__CUDA_ARCH__)

static __device__ __forceinline__ void expect(uint32_t bar, uint32_t n)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(n)
                 : "memory");
}

static __device__ __forceinline__ void bulk_more(uint32_t to, const void *from, uint32_t n,
                                                 uint32_t bar)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(n), "r"(bar)
                 : "memory");
}

/* A bulk copy of what is read once a step: it leaves the L2 cache first. */
static __device__ __forceinline__ void bulk_once(uint32_t to, const void *from, uint32_t n, uint32_t bar)
{
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
                 " [%0], [%1], %2, [%3], %4;" ::"r"(to),
                 "l"(from), "r"(n), "r"(bar), "l"(policy)
                 : "memory");
}

static __device__ __forceinline__ void arrive(uint32_t bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

static __device__ __forceinline__ void cluster_arrive()
{
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

static __device__ __forceinline__ void cluster_wait()
{
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* 16 bytes of the shared memory of another block of the cluster. */
static __device__ __forceinline__ int4 load_cluster16(uint32_t at, uint32_t rank)
{
    int4 v;
    asm volatile("{\n.reg .u32 r;\nmapa.shared::cluster.u32 r, %4, %5;\n"
                 "ld.shared::cluster.v4.s32 {%0,%1,%2,%3}, [r];\n}"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(at), "r"(rank)
                 : "memory");
    return v;
}

/* Scales of a lane's two rows, g and g + 8 of its warp's tile. */
struct target {
    float scale[2];
};

static __device__ __forceinline__ target target_of(const bnet_cu_gemm_args &a, uint32_t tile)
{
    int first = a.m.paired ? 0 : w2_part_of(a.m, tile);
    target t = {{a.m.part[first].scale, a.m.part[a.m.paired ? 1 : first].scale}};
    return t;
}

/* ---- the way out: what 32 lanes hold of a token are 8 rows, which would leave as a quarter of a line
 * each; so everything meets in shared memory first, [token][row], and leaves by whole lines ---- */

enum { W2_PAD = 4 };

/* Gated pairs leave half as many rows as there are in a tile. */
static __device__ __forceinline__ uint32_t w2_out_rows(const bnet_cu_gemm_args &a)
{
    return a.epilogue >= BNET_CU_RELU2 ? BNET_W2_TILE / 2 : BNET_W2_TILE;
}

/* A lane's four sums of tile `tile` of the block: [row g: two tokens][row g + 8: two tokens], to the
 * places of the two tokens from `slot` on. */
static __device__ __forceinline__ void w2_stage(const bnet_cu_gemm_args &a, const target &to,
                                                float *stage, uint32_t ld, uint32_t tile,
                                                uint32_t slot, const int c[4], float2 scale, int2 sum)
{
    uint32_t g = threadIdx.x % 32 / 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int s = i ? sum.y : sum.x;
        float x = i ? scale.y : scale.x;
        float low = __fmul_rn((float)(c[i] - s), __fmul_rn(x, to.scale[0]));
        float high = __fmul_rn((float)(c[2 + i] - s), __fmul_rn(x, to.scale[1]));
        float *at = stage + (slot + i) * ld + g;
        if (a.epilogue >= BNET_CU_RELU2) {
            at[tile * 8] = a.epilogue == BNET_CU_RELU2 ? relu2_gate(low, high) : silu_gate(low, high);
        } else {
            at[tile * 16] = low;
            at[tile * 16 + 8] = high;
        }
    }
}

/* Four rows of one token, the first is row `row` of the matrix's tile; fewer at the end of a part. */
static __device__ __forceinline__ void w2_leave(const bnet_cu_gemm_args &a, uint32_t tile, uint32_t row,
                                                uint32_t token, float4 v)
{
    if (tile >= a.m.n_tiles || token >= a.n_tokens)
        return;
    bool both = a.m.paired && a.epilogue < BNET_CU_RELU2; /* rows 8.. are of the other part */
    const bnet_cu_part &p = a.m.part[both ? row / 8 : a.m.paired ? 0 : w2_part_of(a.m, tile)];
    uint32_t r = both ? tile * 8 + row % 8
                      : row + (a.m.paired ? tile * 8 : (tile - p.first_tile) * BNET_W2_TILE);
    float *y = p.y + (size_t)token * p.ld + r;
    if (!p.y || r >= p.n_rows)
        return;
    bool add = a.epilogue == BNET_CU_ADD;
    if (r + 4 <= p.n_rows && ((uintptr_t)y & 15) == 0) {
        float4 b = add ? *(float4 *)y : make_float4(0, 0, 0, 0);
        if (add)
            v = make_float4(__fadd_rn(b.x, v.x), __fadd_rn(b.y, v.y), __fadd_rn(b.z, v.z),
                            __fadd_rn(b.w, v.w));
        *(float4 *)y = v;
        return;
    }
    const float f[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (r + i < p.n_rows)
            y[i] = add ? __fadd_rn(y[i], f[i]) : f[i];
}

#endif

#endif
