/* w2_tiles.cuh - what the two kernels over tiles (tiles.h) share: warpgroup products, copies by the
 * copy engine, clusters, and the way from integer sums to what is stored. 9.0a. */
#ifndef BNET_W2_TILES_CUH
#define BNET_W2_TILES_CUH

#include "backend/cuda/tiles.h"
#include "w2_epilogue.cuh"

#if BNET_SM90A || !defined(__CUDA_ARCH__)

#define R4(i)  "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3])
#define R16(i) R4(i), R4(i + 4), R4(i + 8), R4(i + 12)

/* d [64 x N] += a (codes, registers) * b (shared memory) */
template <int N> struct product;
template <> struct product<64> {
    static __device__ __forceinline__ void run(int *d, const uint32_t *a, uint64_t b)
    {
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k32.s32.u8.s8 "
                     "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                     "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
                     "{%32,%33,%34,%35}, %36, 1;"
                     : R16(0), R16(16)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    }
};
template <> struct product<128> {
    static __device__ __forceinline__ void run(int *d, const uint32_t *a, uint64_t b)
    {
        asm volatile("wgmma.mma_async.sync.aligned.m64n128k32.s32.u8.s8 "
                     "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                     "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
                     "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
                     "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, "
                     "{%64,%65,%66,%67}, %68, 1;"
                     : R16(0), R16(16), R16(32), R16(48)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    }
};

static __device__ __forceinline__ void group_arrive()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void group_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int N> static __device__ __forceinline__ void group_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* Matrix descriptor of 128-byte rows, 8 rows to a swizzle of 1024 bytes. */
static __device__ __forceinline__ uint64_t describe(uint32_t addr)
{
    return (uint64_t)1 << 62 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 16 | (addr & 0x3ffff) >> 4;
}

static __device__ __forceinline__ void unpack(uint4 w, uint32_t r[4][4])
{
#pragma unroll
    for (int s = 0; s < 4; s++) {
        r[s][0] = w.x >> 2 * s & 0x03030303u;
        r[s][1] = w.y >> 2 * s & 0x03030303u;
        r[s][2] = w.z >> 2 * s & 0x03030303u;
        r[s][3] = w.w >> 2 * s & 0x03030303u;
    }
}

static __device__ __forceinline__ uint4 load_shared16(uint32_t at)
{
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(at)
                 : "memory");
    return v;
}

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
