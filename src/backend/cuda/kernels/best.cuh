/* best.cuh - the largest of many values, ties to the lower id; what is not finite is left out.
 *
 * A candidate is one number: the value's bits in an order that integers have, above the id from the
 * other end. Zero is no candidate. */
#ifndef BNET_BEST_CUH
#define BNET_BEST_CUH

#include "common.cuh"

typedef unsigned long long key;

static __device__ __forceinline__ key key_of(float v, uint32_t id)
{
    uint32_t b = __float_as_uint(v);
    if ((b & 0x7f800000u) == 0x7f800000u)
        return 0;
    if (b == 0x80000000u)
        b = 0; /* -0 equals 0 */
    b = b & 0x80000000u ? ~b : b | 0x80000000u;
    return (key)b << 32 | (0xffffffffu - id);
}

static __device__ __forceinline__ int id_of(key k)
{
    return k ? (int)(0xffffffffu - (uint32_t)k) : -1;
}

static __device__ __forceinline__ float value_of(key k)
{
    uint32_t b = (uint32_t)(k >> 32);
    return k ? __uint_as_float(b & 0x80000000u ? b & 0x7fffffffu : ~b) : 0.0f;
}

/* ---- the 64 best: sorted lists of 64 in the registers of a warp, key i in lane i % 32, register
 * i / 32, the largest first ---- */

struct list {
    key k[2];
};

/* One round of a bitonic network: partners at distance gap < 32 within runs of `size`. */
static __device__ __forceinline__ void exchange(list &l, uint32_t size, uint32_t gap)
{
    uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t r = 0; r < 2; r++) {
        key other = __shfl_xor_sync(0xffffffffu, l.k[r], gap);
        bool falling = ((32 * r + lane) & size) == 0, first = (lane & gap) == 0;
        bool larger = other > l.k[r];
        l.k[r] = larger == (falling == first) ? other : l.k[r];
    }
}

/* A bitonic list falls: the last stage of a sort, and what a merge needs. */
static __device__ __forceinline__ void finish(list &l)
{
    key top = max(l.k[0], l.k[1]);
    l.k[1] = min(l.k[0], l.k[1]);
    l.k[0] = top;
#pragma unroll
    for (uint32_t gap = 16; gap; gap /= 2)
        exchange(l, 64, gap);
}

static __device__ __forceinline__ void sort(list &l)
{
#pragma unroll
    for (uint32_t size = 2; size <= 32; size *= 2)
#pragma unroll
        for (uint32_t gap = size / 2; gap; gap /= 2)
            exchange(l, size, gap);
    finish(l);
}

/* The best 64 of two falling lists. */
static __device__ __forceinline__ void merge(list &l, const list &other)
{
    uint32_t mirror = 31 - threadIdx.x % 32;
    key x = __shfl_sync(0xffffffffu, other.k[1], mirror);
    key y = __shfl_sync(0xffffffffu, other.k[0], mirror);
    l.k[0] = max(l.k[0], x);
    l.k[1] = max(l.k[1], y);
    finish(l);
}

/* Lists of n warps (a power of two) become one, in warp 0. */
static __device__ __forceinline__ void merge_warps(list &l, uint32_t n, key (*lists)[64])
{
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (uint32_t half = n / 2; half; half /= 2) {
        if (warp >= half && warp < 2 * half) {
            lists[warp][lane] = l.k[0];
            lists[warp][lane + 32] = l.k[1];
        }
        __syncthreads();
        if (warp < half) {
            list other = {{lists[warp + half][lane], lists[warp + half][lane + 32]}};
            merge(l, other);
        }
    }
}

#endif
