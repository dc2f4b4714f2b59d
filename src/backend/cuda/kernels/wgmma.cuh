/* wgmma.cuh - Hopper's asynchronous warpgroup products (9.0a), once for all kernels that use them:
 * groups of products, descriptors of operands in shared memory, ternary codes times int8. */
#ifndef BNET_WGMMA_CUH
#define BNET_WGMMA_CUH

#include "common.cuh"

#if BNET_SM90A || !defined(__CUDA_ARCH__)

/* A product's sums as operands of an instruction: the first 8, 16, 32, 48 or 64, as their numbers
 * and as what they are bound to. */
#define N8       "%0,%1,%2,%3,%4,%5,%6,%7"
#define N16      N8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define N32      N16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define N48      N32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define N64      N48 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define D4(r, i) "+" r(d[i]), "+" r(d[i + 1]), "+" r(d[i + 2]), "+" r(d[i + 3])
#define D8(r, i) D4(r, i), D4(r, i + 4)
#define D16(r)   D8(r, 0), D8(r, 8)
#define D32(r)   D16(r), D8(r, 16), D8(r, 24)
#define D48(r)   D32(r), D8(r, 32), D8(r, 40)
#define D64(r)   D48(r), D8(r, 48), D8(r, 56)
#define A4       "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])

/* d [64 x N] += a (registers) * b (shared memory), int8: a are ternary codes, or have signs. ab:
 * the numbers of a and b. */
template <int N> struct product;
#define INT8_PRODUCT(n, names, sums, ab)                                                           \
    template <> struct product<n> {                                                                \
        static __device__ __forceinline__ void run(int *d, const uint32_t *a, uint64_t b)          \
        {                                                                                          \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k32.s32.u8.s8 {" names "}, " ab   \
                         ", 1;"                                                                    \
                         : sums("r")                                                               \
                         : A4, "l"(b));                                                            \
        }                                                                                          \
        static __device__ __forceinline__ void run(int *d, const uint4 &a, uint64_t b)             \
        {                                                                                          \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k32.s32.s8.s8 {" names "}, " ab   \
                         ", 1;"                                                                    \
                         : sums("r")                                                               \
                         : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(b));                        \
        }                                                                                          \
    }
INT8_PRODUCT(32, N16, D16, "{%16,%17,%18,%19}, %20");
INT8_PRODUCT(64, N32, D32, "{%32,%33,%34,%35}, %36");
INT8_PRODUCT(96, N48, D48, "{%48,%49,%50,%51}, %52");
INT8_PRODUCT(128, N64, D64, "{%64,%65,%66,%67}, %68");

/* d [64 x N] += a [64 x 16] (halves, registers) * b (shared memory). ADD 0: d is what is not added
 * to. BY_COLUMNS: b lies as [16][N]. */
template <int N, int BY_COLUMNS> struct halves_product;
#define HALVES_PRODUCT(n, names, sums, ab)                                                         \
    template <int BY_COLUMNS> struct halves_product<n, BY_COLUMNS> {                               \
        template <int ADD = 1>                                                                     \
        static __device__ __forceinline__ void run(float *d, const uint32_t *a, uint64_t b)        \
        {                                                                                          \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.f16.f16 {" names "}, " ab \
                         : sums("f")                                                               \
                         : A4, "l"(b), "n"(ADD), "n"(BY_COLUMNS));                                 \
        }                                                                                          \
    }
#define D8_0(r) D8(r, 0)
HALVES_PRODUCT(16, N8, D8_0, "{%8,%9,%10,%11}, %12, %13, 1, 1, %14;");
HALVES_PRODUCT(32, N16, D16, "{%16,%17,%18,%19}, %20, %21, 1, 1, %22;");
HALVES_PRODUCT(64, N32, D32, "{%32,%33,%34,%35}, %36, %37, 1, 1, %38;");
HALVES_PRODUCT(128, N64, D64, "{%64,%65,%66,%67}, %68, %69, 1, 1, %70;");

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

template <int N> static __device__ __forceinline__ void settled(int *d)
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+r"(d[i])::"memory");
}

/* Matrix descriptor of 128-byte rows, 8 rows to a swizzle of 1024 bytes. */
static __device__ __forceinline__ uint64_t describe(uint32_t addr)
{
    return (uint64_t)1 << 62 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 16 |
           (addr & 0x3ffff) >> 4;
}

/* The same of an operand that lies by columns: 128 bytes are 64 of its rows, 8 columns to a
 * swizzle; the next 64 rows `next` bytes on. */
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
