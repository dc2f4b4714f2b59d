/* decode.h - all layers of one token in one kernel (compute capability 9.0): arguments, the
 * division of rows among blocks, the memory it needs. Part of the contract of kernels.h. */
#ifndef BNET_CUDA_DECODE_H
#define BNET_CUDA_DECODE_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* bnet_decode_step: one block per multiprocessor, in clusters, all resident together (launch it
 * cooperatively). Every block keeps its rows of a layer's matrices in shared memory and fetches
 * those that come next as soon as there is room; results travel between clusters through vectors in
 * the exchange whose elements are BNET_DECODE_NONE until they are there, so that no barrier of the
 * whole grid is needed. Some blocks attend and the others multiply: below position `near` one per
 * kv head attends, from there on several of a cluster do. x: in the embedding, out what the last
 * norm takes. PDL: launch embedding before and head after it as usual. Needs: f16 cache, head_dim
 * 128, n_heads / n_kv_heads <= 4, ternary matrices without block scales, n_embd and n_ff multiples
 * of 128, n_heads * 128 = n_embd: bnet_decode_fits. */
typedef struct bnet_cu_layer {
    BNET_DEV(const uint8_t) w[4];  /* q + k + v, o, gate + up (paired), down; W2 tiles */
    BNET_DEV(const float) norm[4]; /* before each of them; 0: none */
    float scale[8];                /* q, k, v, o, gate, up, down */
} bnet_cu_layer;
#ifndef BNET_DECODE_CLUSTER
#define BNET_DECODE_CLUSTER 8
#endif
enum { BNET_DECODE_THREADS = 512, BNET_DECODE_TILES = 16 };
enum { BNET_DECODE_CHUNKS = 64 }; /* of 128 elements: most of a vector */
enum { BNET_DECODE_NEAR = 448 };  /* see near: from there on the blocks of a cluster are faster */
enum { BNET_DECODE_MUCH_SHARED = 200 << 10 };
/* Positions that a block attends to at once; bytes between keys in shared memory, no bank twice; of
 * what a warp of one block tells another one. */
enum { BNET_DECODE_ROWS = 512, BNET_DECODE_ROW = 272, BNET_DECODE_RECORD = 288 };
enum {
    BNET_DECODE_NONE = 0xff
}; /* bytes of an element that is not there yet: no result is this NaN */
enum { BNET_DECODE_TRACE_LD = 64 };
typedef struct bnet_cu_decode_args {
    bnet_dev_step step; /* one token */
    BNET_DEV(const bnet_cu_layer) layers;
    BNET_DEV(const uint32_t) plan; /* [2][blocks][4], bnet_decode_plan */
    BNET_DEV(float) x;             /* [n_embd] */
    BNET_DEV(const float) angles;  /* [positions][n_rot]: (cos, sin) pairs */
    /* 0..3: layers done so far, nothing, a word a block; zero before the first launch */
    BNET_DEV(uint32_t) epoch;
    BNET_DEV(float) exchange;  /* bnet_decode_exchange_bytes of BNET_DECODE_NONE before it */
    BNET_DEV(long long) trace; /* built with BNET_DECODE_TRACE: [blocks][64] clocks of a layer */
    uint32_t n_layers, n_embd, n_ff, n_heads, n_kv_heads, part_bytes, n_rot, neox, silu;
    /* bnet_decode_plan: blocks; those of them that multiply below position near and from there on;
     * blocks that attend to a kv head then; bytes of weights and tiles of a matrix that a block has
     * at most */
    uint32_t blocks, matrix_blocks[2], splits, near, most, tiles;
    float eps, scale; /* 1 / sqrt(head_dim) */
} bnet_cu_decode_args;

BNET_CU_BOTH uint32_t bnet_decode_tiles(const bnet_cu_decode_args *a, int matrix)
{
    uint32_t qkv = (a->n_heads + 2 * a->n_kv_heads) * 128;
    return matrix == 0 ? qkv / 16 : matrix == 2 ? a->n_ff / 8 : a->n_embd / 16;
}
/* The rows of o and down belong to as few blocks as do not make any of them slower: the fewer read
 * a vector, the sooner all have it. A row of o and the same row of down are in one block, which
 * keeps the residual. q + k + v and o have the same place, one after the other. */
static inline void bnet_decode_divide(bnet_cu_decode_args *a, uint32_t n, uint32_t *plan)
{
    uint32_t given[4] = {0, 0, 0, 0};
    for (uint32_t b = 0; b < n; b++) {
        uint32_t bytes[4];
        for (uint32_t m = 0; m < 4; m++) {
            uint32_t all = bnet_decode_tiles(a, (int)m), left = all - given[m];
            uint32_t take = m & 1 ? bnet_cu_div(all, n) : left / (n - b);
            take = take < left ? take : left;
            plan[4 * b + m] = given[m] << 16 | take;
            given[m] += take;
            bytes[m] = take * ((m == 3 ? a->n_ff : a->n_embd) / BNET_W2_CHUNK) * BNET_W2_UNIT;
            a->tiles = take > a->tiles ? take : a->tiles;
        }
        bytes[0] = bytes[0] > bytes[1] ? bytes[0] : bytes[1];
        bytes[0] += bytes[2] + bytes[3];
        a->most = bytes[0] > a->most ? bytes[0] : a->most;
    }
}
/* Shared memory of a block that attends: keys, half of the values, weights of 4 heads as two
 * halves, the largest scores of 16 warps, sums of weights, what other blocks tell. */
enum {
    BNET_DECODE_ATTEND_BYTES = BNET_DECODE_ROWS * 3 / 2 * BNET_DECODE_ROW +
                               8 * (BNET_DECODE_ROWS / 2 + 16) * 4 + 4 * 16 * 4 + 8 * 4 +
                               8 * BNET_DECODE_RECORD,
    BNET_DECODE_STATIC_BYTES = 7168,
    BNET_DECODE_UNUSED = 10 * 128 /* codes behind a vector's that are read, see HELD */
};
/* Shared memory behind the weights: codes of two inputs, the layers, sums of the warps. */
static inline uint32_t bnet_decode_behind(const bnet_cu_decode_args *a)
{
    return a->n_embd + (a->n_ff > a->n_embd ? a->n_ff : a->n_embd) + BNET_DECODE_UNUSED +
           a->n_layers * (uint32_t)sizeof(bnet_cu_layer) + BNET_DECODE_THREADS / 32 * 16 * 4;
}
static inline bnet_cu_launch bnet_decode_launch(const bnet_cu_decode_args *a)
{
    uint32_t n = a->most + bnet_decode_behind(a);
    bnet_cu_launch l = {{a->blocks, 1, 1},
                        BNET_DECODE_THREADS,
                        n > BNET_DECODE_ATTEND_BYTES ? n : BNET_DECODE_ATTEND_BYTES};
    return l;
}
/* One of the two plans; 0: blocks do not have room. */
static inline int bnet_decode_divide_for(bnet_cu_decode_args *a, int i, uint32_t splits,
                                         uint32_t max_shared, uint32_t *plan)
{
    uint32_t c = BNET_DECODE_CLUSTER, attend = bnet_cu_div(a->n_kv_heads * splits, c) * c;
    uint32_t all = bnet_decode_tiles(a, 2) / c * c;
    a->matrix_blocks[i] = attend < a->blocks ? a->blocks - attend : 0;
    if (a->matrix_blocks[i] > all)
        a->matrix_blocks[i] = all;
    for (uint32_t k = 0; k < 4 * a->blocks; k++)
        plan[k] = 0;
    if (!a->matrix_blocks[i])
        return 0;
    bnet_decode_divide(a, a->matrix_blocks[i], plan);
    return a->tiles <= BNET_DECODE_TILES &&
           bnet_decode_launch(a).shared + BNET_DECODE_STATIC_BYTES <= max_shared;
}
/* plan [2][n_sm][4]: first tile << 16 | tiles; first for one block per kv head, then for as many as
 * leave the others room for the weights; max_shared: what a block may have at most on this device.
 * Every block that multiplies has rows of gate + up: what it reads of a layer it has read before
 * others can be a layer ahead. */
static inline void bnet_decode_plan(bnet_cu_decode_args *a, uint32_t n_sm, uint32_t max_shared,
                                    uint32_t *plan)
{
    uint32_t c = BNET_DECODE_CLUSTER;
    a->blocks = a->n_kv_heads ? n_sm / c * c : 0;
    a->near = BNET_DECODE_NEAR;
    a->most = a->tiles = 0;
    for (a->splits = c; a->blocks > 0; a->splits /= 2) {
        a->most = a->tiles = 0;
        if (a->splits == 0)
            a->blocks = 0;
        else if (bnet_decode_divide_for(a, 1, a->splits, max_shared, plan + 4 * a->blocks) &&
                 bnet_decode_divide_for(a, 0, 1, max_shared, plan))
            break;
    }
}
/* Parts of the exchange, in floats: x after down, x after o, q + k + v, attention, middle; all of
 * it four times, for layers in turn. */
BNET_CU_BOTH uint32_t bnet_decode_part_at(const bnet_cu_decode_args *a, int part)
{
    uint32_t e = a->n_embd, qkv = (a->n_heads + 2 * a->n_kv_heads) * 128;
    return part == 0   ? 0
           : part == 1 ? e
           : part == 2 ? 2 * e
           : part == 3 ? 2 * e + qkv
           : part == 4 ? 3 * e + qkv
                       : 3 * e + qkv + a->n_ff;
}
static inline uint64_t bnet_decode_exchange_bytes(const bnet_cu_decode_args *a)
{
    return (uint64_t)bnet_decode_part_at(a, 5) * 4 * sizeof(float);
}
/* After bnet_decode_plan; max_shared: what a block may have at most on this device. */
static inline int bnet_decode_fits(const bnet_cu_decode_args *a, uint32_t max_shared)
{
    uint32_t e = a->n_embd, f = a->n_ff, most = 128 * BNET_DECODE_CHUNKS;
    return a->blocks > 0 && e % 128 == 0 && f % 128 == 0 && a->n_heads * 128 == e &&
           a->n_kv_heads > 0 && a->n_heads % a->n_kv_heads == 0 &&
           a->n_heads / a->n_kv_heads <= 4 && a->n_kv_heads <= a->blocks && a->n_rot <= 128 &&
           e <= most && f <= most && a->tiles <= BNET_DECODE_TILES &&
           bnet_decode_launch(a).shared + BNET_DECODE_STATIC_BYTES <= max_shared;
}

#ifdef __cplusplus
}
#endif

#endif
