/* w2_few_tokens.h - ternary matrix times one int8 vector by its bit planes (w2_one_token.cuh) or
 * times a few (w2_few_tokens.cuh): arguments and how a matrix is dealt out to blocks and warps.
 * Part of the contract of kernels.h. */
#ifndef BNET_CUDA_W2_FEW_TOKENS_H
#define BNET_CUDA_W2_FEW_TOKENS_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* bnet_w2_one (codes), bnet_w2_one_norm (x): one token; bnet_w2_few: two to eight, codes. 8.0 and
 * up, PDL. A block has whole tiles: `tiles` of
 * them, the first `more` blocks one more. `split` warps share a tile, `per` chunks each; inv =
 * 65536 / split + 1 divides a warp's number by it. */
typedef struct bnet_cu_few_args {
    bnet_cu_gemv_args g; /* x: k is a multiple of four */
    uint32_t tiles, more, split, inv, per, pad;
} bnet_cu_few_args;

/* UNITS: a warp's at most. PLANES: bytes of a chunk's eight planes, so that no banks collide. */
enum { BNET_ONE_THREADS = 512, BNET_ONE_UNITS = 7, BNET_ONE_PLANES = 288, BNET_ONE_ROW = 16 };

enum { BNET_FEW_UNITS = 5, BNET_FEW_CHUNK = 160 }; /* CHUNK: bytes of one vector's, as above */

/* Bytes of a block. One: planes; of every row where it goes, its scale, its sum. Few: vectors and
 * sums. */
static inline uint32_t bnet_few_shared(const bnet_cu_gemv_args *a, uint32_t tiles)
{
    uint32_t chunks = a->m.n_chunks;
    return a->n_tokens == 1
               ? chunks * BNET_ONE_PLANES + tiles * BNET_W2_TILE * (BNET_ONE_ROW + 4)
               : a->n_tokens * (chunks * BNET_FEW_CHUNK + 16 + tiles * BNET_W2_TILE * 4);
}

/* With blocks of that many warps: as many tiles in a block as leave a warp no more units than it
 * has registers for, at least n_sm blocks. grid[0] 0: rows are too long for that. */
static inline bnet_cu_launch bnet_few_deal(bnet_cu_few_args *o, uint32_t n_sm, uint32_t warps)
{
    bnet_cu_launch l = {{0, 1, 1}, 0, 0};
    uint32_t n = o->g.m.n_tiles, chunks = o->g.m.n_chunks, most = bnet_cu_div(n, n_sm);
    uint32_t units = o->g.n_tokens == 1 ? (uint32_t)BNET_ONE_UNITS : (uint32_t)BNET_FEW_UNITS;
    most = most < warps ? most : warps;
    while (most && bnet_cu_div(chunks, warps / most) > units)
        most--;
    if (!most)
        return l;
    uint32_t blocks = bnet_cu_div(n, most);
    blocks = blocks < n_sm ? n < n_sm ? n : n_sm : blocks;
    o->tiles = n / blocks;
    o->more = n % blocks;
    o->per = bnet_cu_div(chunks, warps / most);
    o->split = bnet_cu_div(chunks, o->per);
    o->inv = 65536 / o->split + 1;
    l.grid[0] = blocks;
    l.block = 32 * most * o->split;
    l.shared = bnet_few_shared(&o->g, most);
    return l;
}

/* One token: small blocks where one per multiprocessor has room for all, fewer warps meet at its
 * barriers. */
static inline bnet_cu_launch bnet_few_launch(bnet_cu_few_args *o, uint32_t n_sm)
{
    bnet_cu_launch l = bnet_few_deal(o, n_sm, BNET_ONE_THREADS / 64);
    return o->g.n_tokens == 1 && l.grid[0] && l.grid[0] <= n_sm
               ? l
               : bnet_few_deal(o, n_sm, BNET_ONE_THREADS / 32);
}

#ifdef __cplusplus
}
#endif

#endif
