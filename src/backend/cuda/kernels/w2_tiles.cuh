/* w2_tiles.cuh - what the kernels over tiles (tiles.h) share: copies by the copy engine, clusters.
 * 9.0a. */
#ifndef BNET_W2_TILES_CUH
#define BNET_W2_TILES_CUH

#include "backend/cuda/tiles.h"
#include "w2_epilogue.cuh"
#include "wgmma.cuh"

#if BNET_SM90A || !defined(__CUDA_ARCH__)

/* Few tokens: what only these kernels multiply by. */
#define D8_FIRST(r) D8(r, 0)
INT8_PRODUCT(16, N8, D8_FIRST, "{%8,%9,%10,%11}, %12");

/* A bulk copy of what is read once a step: it leaves the L2 cache first. */
static __device__ __forceinline__ void bulk_once(uint32_t to, const void *from, uint32_t n,
                                                 uint32_t bar)
{
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    bulk_copy(to, from, n, bar, policy);
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

#endif

#endif
