/* attn_batch.h - attention of a batch's decode step on Hopper: arguments, launch shape. Part of the
 * contract of kernels.h. */
#ifndef BNET_CUDA_ATTN_BATCH_H
#define BNET_CUDA_ATTN_BATCH_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* bnet_attn_batch_h128: as bnet_attn_decode_h128 for so many timelines that their kv heads fill the
 * device: one block for 8 query heads of a kv head and a token. */
enum { BNET_ATTN_BATCH_THREADS = 128, BNET_ATTN_BATCH_DEPTH = 2 };
static inline bnet_cu_launch bnet_attn_batch_h128_launch(const bnet_cu_attn_args *a)
{
    uint32_t ring = BNET_ATTN_BATCH_THREADS / 32 * BNET_ATTN_BATCH_DEPTH * 16 * 128 * 2 * 2;
    bnet_cu_launch l = {{bnet_cu_div(a->n_heads / a->n_kv_heads, 8), a->n_kv_heads, a->n_tokens},
                        BNET_ATTN_BATCH_THREADS,
                        ring};
    return l;
}

#ifdef __cplusplus
}
#endif

#endif
