/* attn_batch.h - attention of a batch's decode step on Hopper: arguments, launch shape. Part of the
 * contract of kernels.h. */
#ifndef BNET_CUDA_ATTN_BATCH_H
#define BNET_CUDA_ATTN_BATCH_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* bnet_attn_batch_h128{,_i8}: as bnet_attn_decode_h128 (f16, int8 cache) for so many timelines that
 * their kv heads fill the device: one block for 8 query heads of a kv head and a token. */
enum { BNET_ATTN_BATCH_THREADS = 128, BNET_ATTN_BATCH_DEPTH = 2, BNET_ATTN_BATCH_DEPTH_I8 = 3 };
static inline bnet_cu_launch bnet_attn_batch_h128_launch(const bnet_cu_attn_args *a)
{
    uint32_t f16 = BNET_ATTN_BATCH_DEPTH * 16 * 256, i8 = BNET_ATTN_BATCH_DEPTH_I8 * 16 * 144;
    bnet_cu_launch l = {{bnet_cu_div(a->n_heads / a->n_kv_heads, 8), a->n_kv_heads, a->n_tokens},
                        BNET_ATTN_BATCH_THREADS,
                        BNET_ATTN_BATCH_THREADS / 32 * 2 * (a->kv_type ? i8 : f16)}; /* rings */
    return l;
}

#ifdef __cplusplus
}
#endif

#endif
