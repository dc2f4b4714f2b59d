/* head_copy.h - the best logits of a head without all of them exactly: arguments and launch shapes.
 * Part of the contract of kernels.h; kernels/head_copy.cu has the proof.
 *
 * Beside the head lies a copy of it in int8, a scale per row. bnet_screen_scan_{4,8} (tokens at
 * most) multiplies it with activations of 16 bits and leaves for every row what its logit is at
 * most, and for groups of rows the largest of what their logits are at least; the 64th largest of
 * these is no more than the 64th best logit. bnet_screen_{f16,bf16,f32} computes the rows that may
 * reach it from the head itself, with the bits of bnet_head_*, and bnet_screen_best gives the best
 * of them in the order of bnet_topk_merge. However many rows that are, none is left out. PDL.
 *
 * Batches of up to 64 tokens (9.0a): bnet_screen_split makes bytes of the vectors,
 * bnet_screen_batch_{16,32,64} multiplies, bnet_screen_first_{f16,bf16,f32} computes the 64 rows
 * that groups are led by: the least of them is a threshold without a bound's width, and a third of
 * the rows are left for bnet_screen_rest_{f16,bf16,f32}; then bnet_screen_best_batch. */
#ifndef BNET_CUDA_HEAD_COPY_H
#define BNET_CUDA_HEAD_COPY_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of one row w = scale * code + rest: |rest| and |w| + |rest| at most. Not finite: infinity. */
typedef struct bnet_cu_screen_row {
    float scale, rest, norm, pad;
} bnet_cu_screen_row;

enum { BNET_SCREEN_TOKENS = 8, BNET_SCREEN_SLICES = 128, BNET_SCREEN_UNIT = 512 };
enum { BNET_SCREEN_SCAN_THREADS = 512, BNET_SCREEN_PICK_THREADS = 512 };
enum { BNET_SCREEN_LIST = 4096, BNET_SCREEN_EACH = 4 }; /* rows; of a thread at a time */
/* Of the batches' scan: stages are 128 columns of that many rows and of the vectors. */
enum { BNET_SCREEN_BATCH = 64, BNET_SCREEN_BATCH_ROWS = 256, BNET_SCREEN_BATCH_STAGES = 4 };
enum { BNET_SCREEN_BATCH_THREADS = 384 };

/* Codes: units of 16 rows x 32 columns, 512 bytes, unit (tile, chunk) at 512 * (tile * n_chunks +
 * chunk), in the order of the A operand of m16n8k32: lane 4 g + t, word r, byte b hold row
 * 16 tile + g + 8 (r & 1), column 32 chunk + 16 (r >> 1) + 4 t + b. Rows are padded to whole tiles
 * with zeros, columns to the head's stride. */
typedef struct bnet_cu_screen_args {
    bnet_dev_matrix m;
    BNET_DEV(int8_t) codes;
    BNET_DEV(bnet_cu_screen_row) rows;  /* [padded rows] */
    BNET_DEV(const float) x;            /* [T][ldx] */
    BNET_DEV(float) most;               /* [T][n_rows] */
    BNET_DEV(uint32_t) groups;          /* [T][n_groups] order of floats as integers, 0: nothing */
    BNET_DEV(unsigned long long) lists; /* [T][n_slices][64] */
    BNET_DEV(int32_t) id;               /* [T][k] */
    BNET_DEV(float) value;              /* [T][k] */
    BNET_DEV(uint32_t) computed;        /* [T] += rows that were computed; 0: nobody asks */
    /* batches: bytes [stride / 128, rounded up][columns][128], high and low ones of token t in
     * columns 2 t and 2 t + 1, the 16-byte piece p of column c at p ^ (c & 7); what is known of the
     * vectors [columns / 2][4]; of each group the key of the row that leads it [T][n_groups]; the
     * threshold [T], 0: it is to be found in groups. A group is 32 rows, eight of them are 256 in
     * turn: rows 128 (w >> 2) + 16 (w & 3) + 64 i + 8 j + g of group w; most is [T][n_groups][32],
     * that row's at 4 g + 2 i + j, and groups have the largest of it. */
    BNET_DEV(uint8_t) bytes;
    BNET_DEV(float) inputs;
    BNET_DEV(unsigned long long) leaders;
    BNET_DEV(uint32_t) least;
    uint32_t n_tokens, ldx, n_groups, n_slices, k;
    uint32_t parts;   /* groups of a block of the scan; a power of two up to 16 */
    uint32_t columns; /* batches: 32, 64, 128 */
} bnet_cu_screen_args;

static inline uint64_t bnet_screen_codes_bytes(uint64_t n_rows, uint64_t stride)
{
    return (n_rows + 15) / 16 * 16 * stride;
}
static inline uint64_t bnet_screen_bytes(uint64_t n_rows, uint64_t stride)
{
    return bnet_screen_codes_bytes(n_rows, stride) +
           (n_rows + 15) / 16 * 16 * sizeof(bnet_cu_screen_row);
}

/* bnet_screen_pack_{f16,bf16,f32}: codes and rows from the head; a warp per row. */
static inline bnet_cu_launch bnet_screen_pack_launch(const bnet_cu_screen_args *a)
{
    bnet_cu_launch l = {{bnet_cu_div(a->m.n_rows, 16) * 2, 1, 1}, 256, 0};
    return l;
}

/* Two blocks to a multiprocessor of a large device. */
static inline uint32_t bnet_screen_slices(uint32_t n_tokens)
{
    return n_tokens < 2 ? BNET_SCREEN_SLICES : 2 * BNET_SCREEN_SLICES / n_tokens;
}

/* Fills in groups and slices, too: both lists have [T] of them. */
static inline bnet_cu_launch bnet_screen_scan_launch(bnet_cu_screen_args *a, uint32_t n_sm)
{
    uint32_t tiles = bnet_cu_div(a->m.n_rows, 16), blocks = bnet_cu_div(tiles, 4);
    blocks = blocks < 2 * n_sm ? blocks : 2 * n_sm;
    a->parts = blocks < 128 ? 16 : 4; /* 64 groups at least, and not many more than it takes */
    a->n_groups = blocks * a->parts;
    a->n_slices = bnet_screen_slices(a->n_tokens);
    bnet_cu_launch l = {{blocks, 1, 1},
                        BNET_SCREEN_SCAN_THREADS,
                        a->m.stride / 32 * (a->n_tokens > 4 ? 2 : 1) * 256};
    return l;
}
/* Of batches after bnet_screen_batch_launch. */
static inline bnet_cu_launch bnet_screen_pick_launch(const bnet_cu_screen_args *a)
{
    uint32_t padded = (a->m.stride + 1023) / 1024 * 1024, words = padded;
    words += a->columns ? BNET_SCREEN_PICK_THREADS * BNET_SCREEN_EACH : 0;
    bnet_cu_launch l = {{a->n_slices, a->n_tokens, 1},
                        BNET_SCREEN_PICK_THREADS,
                        BNET_SCREEN_LIST * 12 + BNET_SCREEN_PICK_THREADS / 32 * 64 * 8 + words * 4};
    return l;
}
/* A warp for each of the lists, up to 32. */
static inline bnet_cu_launch bnet_screen_best_launch(const bnet_cu_screen_args *a)
{
    uint32_t warps = 1;
    while (warps < 32 && warps < a->n_slices)
        warps *= 2;
    bnet_cu_launch l = {{a->n_tokens, 1, 1}, 32 * warps, 0};
    return l;
}

/* ---- batches ---- */

/* Floats of a token's bounds: what `most` has room for, if it has it for this many of each. */
static inline uint64_t bnet_screen_most(uint64_t n_rows)
{
    return (n_rows + BNET_SCREEN_BATCH_ROWS - 1) / BNET_SCREEN_BATCH_ROWS * BNET_SCREEN_BATCH_ROWS;
}

/* Fills in columns, groups and slices. */
static inline bnet_cu_launch bnet_screen_batch_launch(bnet_cu_screen_args *a, uint32_t n_sm)
{
    uint32_t blocks = bnet_cu_div(a->m.n_rows, BNET_SCREEN_BATCH_ROWS);
    a->columns = a->n_tokens <= 16 ? 32 : a->n_tokens <= 32 ? 64 : 128;
    a->n_groups = blocks * 8;
    a->n_slices = bnet_screen_slices(a->n_tokens);
    bnet_cu_launch l = {{blocks < n_sm ? blocks : n_sm, 1, 1},
                        BNET_SCREEN_BATCH_THREADS,
                        BNET_SCREEN_BATCH_STAGES * (BNET_SCREEN_BATCH_ROWS + a->columns) * 128 +
                            1024};
    return l;
}
static inline uint64_t bnet_screen_batch_bytes(const bnet_cu_screen_args *a)
{
    return (uint64_t)bnet_cu_div(a->m.stride, 128) * a->columns * 128;
}
static inline bnet_cu_launch bnet_screen_split_launch(const bnet_cu_screen_args *a)
{
    bnet_cu_launch l = {{a->columns / 2, 1, 1}, BNET_SCREEN_SCAN_THREADS, 0};
    return l;
}
static inline bnet_cu_launch bnet_screen_first_launch(const bnet_cu_screen_args *a)
{
    uint32_t padded = (a->m.stride + 1023) / 1024 * 1024;
    bnet_cu_launch l = {{a->n_tokens, 1, 1}, BNET_SCREEN_PICK_THREADS, padded * 4};
    return l;
}

#ifdef __cplusplus
}
#endif

#endif
