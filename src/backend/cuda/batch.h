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
    BNET_BATCH_STAGE = (BNET_BATCH_ROWS + 2 * BNET_BATCH_TOKENS) * 128,
    BNET_BATCH_STAGES_MMA =
        2 /* of the kernel for 8.0 and up: 8.6 and 8.9 have 99 KiB for a block */
};
typedef struct bnet_cu_batch_args {
    bnet_dev_matrix m;
    BNET_DEV(const float) x; /* [T][ldx] */
    BNET_DEV(float) y;       /* [T][ld] */
    BNET_DEV(uint16_t) halves;
    BNET_DEV(float) scale;
    uint32_t n_tokens, ldx, ld;
    uint32_t places; /* halves lie as bnet_batch_place says */
} bnet_cu_batch_args;
/* Where element e of 16 lies: a thread's four neighbours are columns 2t, 2t + 8, 2t + 1, 2t + 9. */
BNET_CU_BOTH uint32_t bnet_batch_place(uint32_t e)
{
    return (e >> 2) * 2 + (e >> 1 & 1) + (e & 1) * 8;
}
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

/* bnet_head_batch_{q6k,q8}_{16,32,64} (8.0 and up) after bnet_head_split with places = 1: the same
 * for rows of codes, that many tokens at once. Blocks of one thread a row. PDL. */
enum { BNET_QBATCH_COLS = 64, BNET_QBATCH_STAGES = 3, BNET_QBATCH_THREADS = 512 };
enum { BNET_QBATCH_ROW_Q6K = 32 + 16 + 8, BNET_QBATCH_ROW_Q8 = 64 + 4 };
static inline uint32_t bnet_head_qbatch_tokens(uint32_t n_tokens)
{
    return n_tokens <= 16 ? 16 : n_tokens <= 32 ? 32 : 64;
}
/* shared_max: dynamic bytes a block may have. */
static inline bnet_cu_launch bnet_head_qbatch_launch(const bnet_cu_batch_args *a,
                                                     uint32_t shared_max)
{
    uint32_t row = a->m.w[2] ? BNET_QBATCH_ROW_Q6K : BNET_QBATCH_ROW_Q8;
    uint32_t tokens = bnet_head_qbatch_tokens(a->n_tokens), rows = BNET_QBATCH_THREADS;
    while (rows > 32 && BNET_QBATCH_STAGES * (rows * row + 2 * tokens * 128) > shared_max)
        rows /= 2;
    bnet_cu_launch l = {{bnet_cu_div(a->m.n_rows, rows), bnet_cu_div(a->n_tokens, tokens), 1},
                        rows,
                        BNET_QBATCH_STAGES * (rows * row + 2 * tokens * 128)};
    return l;
}

/* The same with warpgroup products (9.0a): name_wgmma, two threads a row. ROWS: of a block; with
 * few tokens smaller ones, so that two or three are on a multiprocessor and one multiplies while
 * another waits. WIDE: bytes of a row's 256 columns. */
#define BNET_QWGMMA_ROWS(tokens) ((tokens) == 64 ? 256 : 128)
enum { BNET_QWGMMA_STEPS = 4 };
enum { BNET_QWGMMA_WIDE_Q6K = 128 + 64 + 16 + 4, BNET_QWGMMA_WIDE_Q8 = 256 + 16 };
static inline bnet_cu_launch bnet_head_qwgmma_launch(const bnet_cu_batch_args *a)
{
    uint32_t wide = a->m.w[2] ? BNET_QWGMMA_WIDE_Q6K : BNET_QWGMMA_WIDE_Q8;
    uint32_t tokens = bnet_head_qbatch_tokens(a->n_tokens), rows = BNET_QWGMMA_ROWS(tokens);
    bnet_cu_launch l = {{bnet_cu_div(a->m.n_rows, rows), bnet_cu_div(a->n_tokens, tokens), 1},
                        2 * rows,
                        1024 + 2 * rows * wide + BNET_QWGMMA_STEPS * 2 * tokens * 128};
    return l;
}

#ifdef __cplusplus
}
#endif

#endif
