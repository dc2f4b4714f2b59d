/* tiles.h - batches on Hopper (9.0a): activations in tiles that the copy engine brings to the
 * tensor cores as they are, and the kernels that make and take them. Part of the contract of
 * kernels.h.
 *
 * A tile is H tokens x 128 columns of int8: [token tile][chunk][H tokens][128 bytes], the 16-byte
 * piece p of token r at place p ^ (r & 7). H is 64, for up to 32 tokens 32, for up to 16 of them
 * 16. The last tile of tokens is whole in memory; what it holds beyond the last token does not
 * matter. scale and sum are [tokens] as elsewhere. */
#ifndef BNET_CUDA_TILES_H
#define BNET_CUDA_TILES_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BNET_TILE_TOKENS = 64, BNET_TILE_BYTES = 64 * 128 };
/* H of that many tokens. */
BNET_CU_BOTH uint32_t bnet_tile_tokens(uint32_t n_tokens)
{
    return n_tokens <= 16 ? 16 : n_tokens <= 32 ? 32 : BNET_TILE_TOKENS;
}
/* Where column i of a token lies; stride: columns rounded up to 128. */
BNET_CU_BOTH uint64_t bnet_tile_place(uint32_t n_tokens, uint32_t stride, uint32_t token,
                                      uint32_t i)
{
    uint32_t r = token % BNET_TILE_TOKENS, c = i % 128;
    uint64_t tile = (uint64_t)(token / BNET_TILE_TOKENS) * (stride / 128) + i / 128;
    return (tile * bnet_tile_tokens(n_tokens) + r) * 128 + ((c / 16 ^ (r & 7)) << 4) + c % 16;
}

/* bnet_norm_tiles: as bnet_norm_quantize into tiles, in float; act.stride: columns rounded up to
 * 128. bnet_norm_rows: the same bits into rows. PDL. */
enum { BNET_NORM_TILES_THREADS = 256 };
static inline bnet_cu_launch bnet_norm_tiles_launch(uint32_t n_rows)
{
    bnet_cu_launch l = {{n_rows, 1, 1}, BNET_NORM_TILES_THREADS, 0};
    return l;
}

/* bnet_w2_tiles_{128,256}: ternary matrix times tiles of tokens, blocks of that many rows;
 * bnet_w2_tiles_128_{16,32}: times the first 16 or 32 tokens of one tile, when there are no more.
 * `splits` blocks, a cluster, divide the columns of one tile and add up through each other's shared
 * memory; work and counters are not used. A block has all its weights and up to BNET_W2_TILES_SLOTS
 * chunks of activations in shared memory at once. PDL. Launch with clusters of {splits, 1, 1}. */
enum { BNET_W2_TILES_CHUNKS = 20 }; /* of a block */
#define BNET_W2_TILES_SLOTS(tokens) ((tokens) == BNET_TILE_TOKENS ? 16 : BNET_W2_TILES_CHUNKS)
/* Of few tokens two halves of a block's threads divide the columns. */
#define BNET_W2_TILES_HALVES(tokens) ((tokens) == BNET_TILE_TOKENS ? 1 : 2)
static inline uint32_t bnet_w2_tiles_shared(uint32_t n_chunks, uint32_t rows, uint32_t splits,
                                            uint32_t tokens)
{
    uint32_t chunks = bnet_cu_div(n_chunks, splits), slots = BNET_W2_TILES_SLOTS(tokens);
    uint32_t acts = (chunks < slots ? chunks : slots) * tokens * 128;
    uint32_t codes = chunks * rows / BNET_W2_TILE * BNET_W2_UNIT;
    uint32_t sums = splits * bnet_cu_div(tokens / 8, splits) * rows * 8 * 4;
    sums *= BNET_W2_TILES_HALVES(tokens);
    if (splits == 1) /* in the place of the activations */
        return 1024 + (acts > sums ? acts : sums) + codes;
    return 1024 + acts + codes + sums;
}
static inline bnet_cu_launch bnet_w2_tiles_launch(const bnet_cu_gemm_args *a, uint32_t rows,
                                                  uint32_t tokens)
{
    bnet_cu_launch l = {{a->splits, bnet_cu_div(a->m.n_tiles, rows / BNET_W2_TILE),
                         bnet_cu_div(a->n_tokens, BNET_TILE_TOKENS)},
                        2 * rows * BNET_W2_TILES_HALVES(tokens),
                        bnet_w2_tiles_shared(a->m.n_chunks, rows, a->splits, tokens)};
    return l;
}

/* bnet_w2_rows, bnet_w2_rows_16: the same for blocks of 64 rows x 32 or 16 tokens with all columns,
 * at most BNET_W2_ROWS_CHUNKS chunks of them, in shared memory at once; splits unused, no gated
 * epilogue. PDL. */
enum { BNET_W2_ROWS_TILES = 4, BNET_W2_ROWS_GROUPS = 4 };
enum { BNET_W2_ROWS_THREADS = 512, BNET_W2_ROWS_CHUNKS = 36, BNET_W2_ROWS_LD = 68 };
/* Bytes for activations, then for sums. */
BNET_CU_BOTH uint32_t bnet_w2_rows_room(uint32_t n_chunks, uint32_t tokens)
{
    uint32_t acts = n_chunks * tokens * 128;
    uint32_t sums = BNET_W2_ROWS_GROUPS * tokens * BNET_W2_ROWS_LD * 4;
    return acts > sums ? acts : sums;
}
static inline bnet_cu_launch bnet_w2_rows_launch(const bnet_cu_gemm_args *a, uint32_t tokens)
{
    bnet_cu_launch l = {
        {1, bnet_cu_div(a->m.n_tiles, BNET_W2_ROWS_TILES), bnet_cu_div(a->n_tokens, tokens)},
        BNET_W2_ROWS_THREADS,
        1024 + bnet_w2_rows_room(a->m.n_chunks, tokens) +
            a->m.n_chunks * BNET_W2_ROWS_TILES * BNET_W2_UNIT};
    return l;
}

/* bnet_w2_prompt, bnet_w2_prompt_96: the same in tiles of 256 rows x 128 or 96 tokens with the
 * columns passing through a ring; splits 1 to 5. */
enum { BNET_PROMPT_ROWS = 256, BNET_PROMPT_THREADS = 384, BNET_PROMPT_CHUNKS = 2 };
enum { BNET_PROMPT_STAGES = 4, BNET_PROMPT_SPLITS = 5 };
#define BNET_PROMPT_STAGE(tokens) (BNET_PROMPT_CHUNKS * ((tokens)*128 + 16 * BNET_W2_UNIT))
static inline bnet_cu_launch bnet_w2_prompt_launch(const bnet_cu_gemm_args *a, uint32_t tokens)
{
    bnet_cu_launch l = {{a->splits, bnet_cu_div(a->m.n_tiles, BNET_PROMPT_ROWS / BNET_W2_TILE),
                         bnet_cu_div(a->n_tokens, tokens)},
                        BNET_PROMPT_THREADS,
                        BNET_PROMPT_STAGES * BNET_PROMPT_STAGE(tokens) + 1024};
    return l;
}

/* How many tokens to a tile, and into how many blocks the columns go (a->splits): waves of blocks,
 * each as long as its chunks and what every block pays before and after them, in 128ths of a chunk
 * of 128 tokens. Clusters of two fill the device; larger ones share groups of multiprocessors that
 * they do not divide: a quarter is reckoned lost. */
enum { BNET_PROMPT_FIXED = 8 * 128, BNET_PROMPT_MEETING = 128 };
static inline uint32_t bnet_w2_prompt_shape(bnet_cu_gemm_args *a, uint32_t n_sm)
{
    uint32_t tokens = 128, best = 1, least = UINT32_MAX;
    for (uint32_t t = 128; t >= 96; t -= 32)
        for (a->splits = 1; a->splits <= BNET_PROMPT_SPLITS && a->splits <= a->m.n_chunks;
             a->splits++) {
            bnet_cu_launch l = bnet_w2_prompt_launch(a, t);
            uint32_t at_once = (a->splits > 2 ? n_sm * 3 / 4 : n_sm) / a->splits;
            uint32_t waves = bnet_cu_div(l.grid[1] * l.grid[2], at_once > 0 ? at_once : 1);
            uint32_t cost = waves * (bnet_cu_div(a->m.n_chunks, a->splits) * t + BNET_PROMPT_FIXED +
                                     (a->splits - 1) * BNET_PROMPT_MEETING);
            tokens = cost < least ? t : tokens;
            best = cost < least ? a->splits : best;
            least = cost < least ? cost : least;
        }
    a->splits = best;
    return tokens;
}

/* bnet_attn_prefill_* (kernels.h, 8.0 on) with a second group of threads that takes every other
 * block of positions, where `room` bytes of shared memory of a block are enough for both. With cs
 * != 0 it rotates q itself, and q is not written back; bnet_rope_append with q = 0 does k and v
 * alone. Both read the step before they wait for the kernel before them: it must lie there since
 * before the pass. PDL. */
static inline bnet_cu_launch bnet_attn_prefill_groups(const bnet_cu_attn_args *a, uint32_t room)
{
    bnet_cu_launch l = bnet_attn_prefill_launch(a);
    uint32_t groups = 2 * l.shared <= room ? 2 : 1;
    l.block *= groups;
    l.shared *= groups;
    return l;
}

/* bnet_topk_rows, then bnet_topk_join: as bnet_topk_part and _merge for many rows of up to
 * BNET_TOPK_ROW logits: fewer slices of a row, each read twice. work as there. 7.5 on, PDL. */
enum { BNET_TOPK_ROWS_THREADS = 512, BNET_TOPK_ROWS_EACH = 64, BNET_TOPK_ROWS_SLICES = 16 };
enum { BNET_TOPK_ROW = BNET_TOPK_ROWS_THREADS * BNET_TOPK_ROWS_EACH * BNET_TOPK_ROWS_SLICES };
static inline uint32_t bnet_topk_rows_slices(uint32_t n)
{
    return bnet_cu_div(n, BNET_TOPK_ROWS_THREADS * BNET_TOPK_ROWS_EACH);
}
static inline bnet_cu_launch bnet_topk_rows_launch(const bnet_cu_sample_args *a)
{
    bnet_cu_launch l = {{bnet_topk_rows_slices(a->n), a->rows, 1},
                        BNET_TOPK_ROWS_THREADS,
                        BNET_TOPK_MAX * BNET_TOPK_ROWS_EACH * 8};
    return l;
}
static inline bnet_cu_launch bnet_topk_join_launch(const bnet_cu_sample_args *a)
{
    bnet_cu_launch l = {{a->rows, 1, 1}, 32, 0};
    return l;
}

#ifdef __cplusplus
}
#endif

#endif
