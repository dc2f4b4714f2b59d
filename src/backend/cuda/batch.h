/* batch.h - the head of batches on tensor cores: arguments, tiles, launch shapes. Part of the
 * contract of kernels.h. */
#ifndef BNET_CUDA_BATCH_H
#define BNET_CUDA_BATCH_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* bnet_head_batch_f16 (8.0 and up) after bnet_head_split: the same for any number of tokens on the
 * tensor cores; halves [2][padded tokens][stride] and scale [padded tokens] are scratch. PDL. */
enum { BNET_BATCH_ROWS = 256, BNET_BATCH_TOKENS = 64, BNET_BATCH_COLS = 64, BNET_BATCH_STAGES = 4 };
enum {
    BNET_BATCH_THREADS = 256,
    BNET_BATCH_STAGE = (BNET_BATCH_ROWS + 2 * BNET_BATCH_TOKENS) * 128
};
typedef struct bnet_cu_batch_args {
    bnet_cu_matrix m;
    BNET_DEV(const float) x; /* [T][ldx] */
    BNET_DEV(float) y;       /* [T][ld] */
    BNET_DEV(uint16_t) halves;
    BNET_DEV(float) scale;
    uint32_t n_tokens, ldx, ld, pad;
} bnet_cu_batch_args;
static inline uint32_t bnet_head_batch_padded(uint32_t n_tokens)
{
    return bnet_cu_div(n_tokens, BNET_BATCH_TOKENS) * BNET_BATCH_TOKENS;
}
static inline bnet_cu_launch bnet_head_split_launch(const bnet_cu_batch_args *a)
{
    bnet_cu_launch l = {{bnet_head_batch_padded(a->n_tokens), 1, 1}, 256, 0};
    return l;
}
static inline bnet_cu_launch bnet_head_batch_launch(const bnet_cu_batch_args *a)
{
    bnet_cu_launch l = {
        {bnet_cu_div(a->m.n_rows, BNET_BATCH_ROWS), bnet_cu_div(a->n_tokens, BNET_BATCH_TOKENS), 1},
        BNET_BATCH_THREADS,
        BNET_BATCH_STAGES * BNET_BATCH_STAGE};
    return l;
}

#ifdef __cplusplus
}
#endif

#endif
