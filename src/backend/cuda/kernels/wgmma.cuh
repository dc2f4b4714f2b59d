/* wgmma.cuh - Hopper's asynchronous warpgroup products (9.0a), once for all kernels that use them:
 * groups of products, descriptors of operands in shared memory, ternary codes times int8. */
#ifndef BNET_WGMMA_CUH
#define BNET_WGMMA_CUH

#include "common.cuh"

#if BNET_SM90A || !defined(__CUDA_ARCH__)

#define R4(i)  "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3])
#define R16(i) R4(i), R4(i + 4), R4(i + 8), R4(i + 12)

/* d [64 x N] += a (codes, registers) * b (shared memory) */
template <int N> struct product;
template <> struct product<32> {
    static __device__ __forceinline__ void run(int *d, const uint32_t *a, uint64_t b)
    {
        asm volatile("wgmma.mma_async.sync.aligned.m64n32k32.s32.u8.s8 "
                     "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, "
                     "{%16,%17,%18,%19}, %20, 1;"
                     : R16(0)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    }
};
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
template <> struct product<96> {
    static __device__ __forceinline__ void run(int *d, const uint32_t *a, uint64_t b)
    {
        asm volatile("wgmma.mma_async.sync.aligned.m64n96k32.s32.u8.s8 "
                     "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                     "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
                     "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47}, "
                     "{%48,%49,%50,%51}, %52, 1;"
                     : R16(0), R16(16), R16(32)
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

#define F4(i)  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define F16(i) F4(i), F4(i + 4), F4(i + 8), F4(i + 12)

/* d [64 x N] += a [64 x 16] (halves, registers) * b (shared memory); BY_COLUMNS: b lies as [16][N] */
template <int N, int BY_COLUMNS> struct halves_product;
template <int BY_COLUMNS> struct halves_product<64, BY_COLUMNS> {
    static __device__ __forceinline__ void run(float *d, const uint32_t *a, uint64_t b)
    {
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
                     "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                     "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
                     "{%32,%33,%34,%35}, %36, 1, 1, 1, %37;"
                     : F16(0), F16(16)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(BY_COLUMNS));
    }
};
template <int BY_COLUMNS> struct halves_product<128, BY_COLUMNS> {
    static __device__ __forceinline__ void run(float *d, const uint32_t *a, uint64_t b)
    {
        asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
                     "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                     "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
                     "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
                     "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, "
                     "{%64,%65,%66,%67}, %68, 1, 1, 1, %69;"
                     : F16(0), F16(16), F16(32), F16(48)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(BY_COLUMNS));
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

/* Behind a wait: what uses these sums stays behind it, too. */
template <int N> static __device__ __forceinline__ void settled(float *d)
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}

/* Matrix descriptor of 128-byte rows, 8 rows to a swizzle of 1024 bytes. */
static __device__ __forceinline__ uint64_t describe(uint32_t addr)
{
    return (uint64_t)1 << 62 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 16 | (addr & 0x3ffff) >> 4;
}

/* The same of an operand that lies by columns: 128 bytes are 64 of its rows, 8 columns to a swizzle;
 * the next 64 rows `next` bytes on. */
static __device__ __forceinline__ uint64_t describe_columns(uint32_t addr, uint32_t next)
{
    return (uint64_t)1 << 62 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)(next >> 4) << 16 |
           (addr & 0x3ffff) >> 4;
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

#endif

#endif
