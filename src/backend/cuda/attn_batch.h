/* attn_batch.h - attention of decode steps on Hopper: arguments, launch shape. Part of the
 * contract of kernels.h. */
#ifndef BNET_CUDA_ATTN_BATCH_H
#define BNET_CUDA_ATTN_BATCH_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* bnet_attn_batch_h128{,_i8} (n_splits 1), bnet_attn_shared_h128{,_i8} (more): as bnet_attn_decode
 * (f16, int8 cache) for heads of 128, up to 8 query heads of a kv head in one block, n_splits
 * blocks for one token. The context is taken in stretches whose length depends on the number of
 * positions alone: the bits do not depend on n_splits. work: bnet_attn_batch_work_bytes; counters,
 * where n_splits is more than 1: as many as tokens, kv heads and groups of 8 query heads, zero.
 * PDL, and with cs != 0 it reads the step buffer and earlier positions of the cache before it
 * waits: these must come from before the first kernel of the step, which must be launched without
 * the attribute.
 */
enum { BNET_ATTN_BATCH_THREADS = 128, BNET_ATTN_BATCH_DEPTH = 2, BNET_ATTN_BATCH_DEPTH_I8 = 3 };
enum { BNET_ATTN_BATCH_STRETCH = 512, BNET_ATTN_BATCH_STRETCHES = 16 }; /* positions; at most */
enum { BNET_ATTN_BATCH_STATE = 34 }; /* floats of a lane: what a warp has of a stretch */
/* The positions of a stretch of n: a multiple of the 64 that four warps take at a time. */
BNET_CU_BOTH uint32_t bnet_attn_batch_stretch(uint32_t n)
{
    uint32_t even = (n + BNET_ATTN_BATCH_STRETCHES - 1) / BNET_ATTN_BATCH_STRETCHES;
    return even <= BNET_ATTN_BATCH_STRETCH ? BNET_ATTN_BATCH_STRETCH : (even + 63) / 64 * 64;
}
/* How many there are of n positions, at least one. */
BNET_CU_BOTH uint32_t bnet_attn_batch_stretches(uint32_t n)
{
    uint32_t each = bnet_attn_batch_stretch(n);
    return n <= each ? 1 : (n + each - 1) / each;
}
static inline uint32_t bnet_attn_batch_octets(const bnet_cu_attn_args *a)
{
    return bnet_cu_div(a->n_heads / a->n_kv_heads, 8);
}
static inline uint64_t bnet_attn_batch_work_bytes(const bnet_cu_attn_args *a)
{
    uint64_t who = (uint64_t)a->n_tokens * a->n_kv_heads * bnet_attn_batch_octets(a);
    uint64_t state = BNET_ATTN_BATCH_THREADS * BNET_ATTN_BATCH_STATE * sizeof(float);
    return who * (a->n_splits > 1 ? BNET_ATTN_BATCH_STRETCHES : 1) * state;
}
static inline bnet_cu_launch bnet_attn_batch_h128_launch(const bnet_cu_attn_args *a)
{
    uint32_t f16 = BNET_ATTN_BATCH_DEPTH * 16 * 256, i8 = BNET_ATTN_BATCH_DEPTH_I8 * 16 * 144;
    bnet_cu_launch l = {{bnet_attn_batch_octets(a) * a->n_splits, a->n_kv_heads, a->n_tokens},
                        BNET_ATTN_BATCH_THREADS,
                        BNET_ATTN_BATCH_THREADS / 32 * 2 * (a->kv_type ? i8 : f16)}; /* rings */
    return l;
}

#ifdef __cplusplus
}
#endif

#endif
