/* common.cuh - what every kernel file shares: warp and block reductions, the few PTX instructions
 * used, and the gates. No external symbols. */
#ifndef BNET_COMMON_CUH
#define BNET_COMMON_CUH

#include "backend/cuda/kernels.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define BNET_SM80 1
#else
#define BNET_SM80 0
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define BNET_SM90 1
#else
#define BNET_SM90 0
#endif
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define BNET_SM90A 1
#else
#define BNET_SM90A 0
#endif

#define KERNEL extern "C" __global__ void

/* ---- order between kernels ---- */

static __device__ __forceinline__ void pdl_wait()
{
#if BNET_SM90
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

static __device__ __forceinline__ void pdl_launch()
{
#if BNET_SM90
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* ---- memory ---- */

static __device__ __forceinline__ uint32_t shared_addr(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* 16 bytes that are read once: not kept in L1 */
static __device__ __forceinline__ uint4 load_stream(const void *p)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

static __device__ __forceinline__ void store_shared16(uint32_t to, uint4 v)
{
    asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z),
                 "r"(v.w)
                 : "memory");
}

/* 16 bytes from global to shared memory without a register between, zeros if !wanted */
static __device__ __forceinline__ void copy_async16(uint32_t to, const void *from, bool wanted)
{
#if BNET_SM80
    int n = wanted ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(n)
                 : "memory");
#else
    uint4 v = make_uint4(0, 0, 0, 0);
    if (wanted)
        v = *(const uint4 *)from;
    store_shared16(to, v);
#endif
}

/* The same for 4 bytes. */
static __device__ __forceinline__ void copy_async4(uint32_t to, const void *from, bool wanted)
{
#if BNET_SM80
    int n = wanted ? 4 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(n)
                 : "memory");
#else
    uint32_t v = wanted ? *(const uint32_t *)from : 0;
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(v) : "memory");
#endif
}

static __device__ __forceinline__ void copy_commit()
{
#if BNET_SM80
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

template <int N> static __device__ __forceinline__ void copy_wait()
{
#if BNET_SM80
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

/* ---- barriers of bulk copies (9.0) ---- */

static __device__ __forceinline__ void barrier_init(uint32_t bar, uint32_t count)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}

static __device__ __forceinline__ void barrier_init_fence()
{
#if BNET_SM90
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

static __device__ __forceinline__ void barrier_wait(uint32_t bar, uint32_t parity)
{
#if BNET_SM90
    asm volatile("{\n.reg .pred p;\nagain:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 "@p bra done;\nbra again;\ndone:\n}" ::"r"(bar),
                 "r"(parity)
                 : "memory");
#else
    (void)bar;
    (void)parity;
#endif
}

static __device__ __forceinline__ void arrive(uint32_t bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

/* The barrier's next phase ends with this many bytes. */
static __device__ __forceinline__ void expect(uint32_t bar, uint32_t n)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(n)
                 : "memory");
}

/* Copies n bytes (a multiple of 16) into shared memory; the barrier counts them. */
static __device__ __forceinline__ void bulk_copy(uint32_t to, const void *from, uint32_t n,
                                                 uint32_t bar)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(n), "r"(bar)
                 : "memory");
}

/* The same with a policy of the L2 cache. */
static __device__ __forceinline__ void bulk_copy(uint32_t to, const void *from, uint32_t n,
                                                 uint32_t bar, uint64_t policy)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
                 " [%0], [%1], %2, [%3], %4;" ::"r"(to),
                 "l"(from), "r"(n), "r"(bar), "l"(policy)
                 : "memory");
}

/* The same where the barrier's phase ends with these bytes. */
static __device__ __forceinline__ void bulk_load(uint32_t to, const void *from, uint32_t n,
                                                 uint32_t bar)
{
    expect(bar, n);
    bulk_copy(to, from, n, bar);
}

/* What this thread wrote to or read from shared memory comes before bulk copies and products that
 * come behind a barrier. */
static __device__ __forceinline__ void async_fence()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- reductions ---- */

template <typename T> static __device__ __forceinline__ T warp_sum(T v)
{
#pragma unroll
    for (int o = 16; o; o >>= 1)
        v += __shfl_xor_sync(0xffffffffu, v, o);
    return v;
}

static __device__ __forceinline__ float warp_max(float v)
{
#pragma unroll
    for (int o = 16; o; o >>= 1)
        v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, o));
    return v;
}

/* Of a block of THREADS (at most 32 warps); every thread gets the result. `scratch` [32] must not
 * be in use: a barrier lies between two calls with the same one. */
template <int THREADS> static __device__ __forceinline__ double block_sum(double v, double *scratch)
{
    v = warp_sum(v);
    if (threadIdx.x % 32 == 0)
        scratch[threadIdx.x / 32] = v;
    __syncthreads();
    double r = threadIdx.x % 32 < THREADS / 32 ? scratch[threadIdx.x % 32] : 0.0;
    return warp_sum(r);
}

template <int THREADS> static __device__ __forceinline__ float block_max(float v, float *scratch)
{
    v = warp_max(v);
    if (threadIdx.x % 32 == 0)
        scratch[threadIdx.x / 32] = v;
    __syncthreads();
    float r = threadIdx.x % 32 < THREADS / 32 ? scratch[threadIdx.x % 32] : 0.0f;
    return warp_max(r);
}

/* ---- gates as the CPU computes them ---- */

static __device__ __forceinline__ float relu2_gate(float g, float u)
{
    g = g > 0 ? g : 0;
    return __fmul_rn(__fmul_rn(g, g), u);
}

static __device__ __forceinline__ float silu_gate(float g, float u)
{
    return __fmul_rn(__fdiv_rn(g, __fadd_rn(1.0f, expf(-g))), u);
}

/* ---- int8 products: C[16][8] += A[16][32] (u8) * B[32][8] (s8), registers as m16n8k32 ---- */

static __device__ __forceinline__ void mma_u8s8(int *c, const uint32_t *a, uint32_t b0, uint32_t b1)
{
#if BNET_SM80
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#elif defined(__CUDA_ARCH__)
    /* 7.5: four products of 8 x 8 x 16; their registers are those of the larger one */
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.u8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
                 : "+r"(c[0]), "+r"(c[1])
                 : "r"(a[0]), "r"(b0));
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.u8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
                 : "+r"(c[2]), "+r"(c[3])
                 : "r"(a[1]), "r"(b0));
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.u8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
                 : "+r"(c[0]), "+r"(c[1])
                 : "r"(a[2]), "r"(b1));
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.u8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
                 : "+r"(c[2]), "+r"(c[3])
                 : "r"(a[3]), "r"(b1));
#else
    (void)c, (void)a, (void)b0, (void)b1;
#endif
}

/* C[16][8] += A[16][16] * B[16][8], f16 operands, float sums */
static __device__ __forceinline__ void mma_f16(float *c, const uint32_t *a, uint32_t b0,
                                               uint32_t b1)
{
#if BNET_SM80
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#elif defined(__CUDA_ARCH__)
    /* 7.5: two products of half the depth; their registers are those of the larger one */
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b0));
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[2]), "r"(a[3]), "r"(b1));
#else
    (void)c, (void)a, (void)b0, (void)b1;
#endif
}

/* The same with bf16 operands (8.0). */
static __device__ __forceinline__ void mma_bf16(float *c, const uint32_t *a, uint32_t b0,
                                                uint32_t b1)
{
#if BNET_SM80
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    (void)c, (void)a, (void)b0, (void)b1;
#endif
}

/* Four 8x8 matrices of 16-bit elements (or 8 x 16 bytes), one row address per lane. */
static __device__ __forceinline__ void load_matrix4(uint32_t *r, uint32_t addr)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(addr));
}

static __device__ __forceinline__ void load_matrix4_t(uint32_t *r, uint32_t addr)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(addr));
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

#endif
