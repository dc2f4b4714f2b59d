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
 * whole grid is needed. Below position `near` some blocks attend and the others multiply. x: in the
 * embedding, out what the last norm takes. PDL: launch embedding before and head after it as usual.
 * Needs: f16 cache, head_dim 128, n_heads / n_kv_heads <= 4, ternary matrices without block scales,
 * n_embd and n_ff multiples of 128, n_heads * 128 = n_embd: bnet_decode_fits. */
typedef struct bnet_cu_layer {
    BNET_DEV(const uint8_t) w[4];  /* q + k + v, o, gate + up (paired), down; W2 tiles */
    BNET_DEV(const float) norm[4]; /* before each of them; 0: none */
    float scale[8];                /* q, k, v, o, gate, up, down */
} bnet_cu_layer;
#ifndef BNET_DECODE_CLUSTER
#define BNET_DECODE_CLUSTER 8
#endif
enum { BNET_DECODE_THREADS = 512, BNET_DECODE_SPLITS = 16, BNET_DECODE_TILES = 16 };
enum { BNET_DECODE_CHUNKS = 64 }; /* of 128 elements: most of a vector */
enum { BNET_DECODE_NEAR = 257 };  /* see near: a block's warps have 16 positions each */
enum { BNET_DECODE_MUCH_SHARED = 200 << 10 };
enum { BNET_DECODE_STAGE = 8192 }; /* shared memory for a warp's keys and values */
enum {
    BNET_DECODE_NONE = 0xff
}; /* bytes of an element that is not there yet: no result is this NaN */
enum { BNET_DECODE_STATE = 520, BNET_DECODE_TRACE_LD = 64 };
typedef struct bnet_cu_decode_args {
    bnet_cu_step step; /* one token */
    BNET_DEV(const bnet_cu_layer) layers;
    BNET_DEV(const uint32_t) plan; /* [2][blocks][4], bnet_decode_plan */
    BNET_DEV(float) x;             /* [n_embd] */
    BNET_DEV(const float) angles;  /* [positions][n_rot]: (cos, sin) pairs */
    /* 0..3: layers done so far, splits of attention, a word a block; zero before the first launch
     */
    BNET_DEV(uint32_t) epoch;
    BNET_DEV(float) exchange;  /* bnet_decode_exchange_bytes of BNET_DECODE_NONE before it */
    BNET_DEV(long long) trace; /* built with BNET_DECODE_TRACE: [blocks][64] clocks of a layer */
    uint32_t n_layers, n_embd, n_ff, n_heads, n_kv_heads, part_bytes, n_rot, neox, silu;
    /* bnet_decode_plan: blocks; those that only multiply below position near (0: all do all); bytes
     * of weights and tiles of a matrix that a block has at most */
    uint32_t blocks, matrix_blocks, near, most, tiles;
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
/* plan [2][n_sm][4]: first tile << 16 | tiles; first where some blocks attend alone, then where all
 * multiply. Every block that multiplies has rows of gate + up: what it reads of a layer it has read
 * before others can be a layer ahead. */
static inline void bnet_decode_plan(bnet_cu_decode_args *a, uint32_t n_sm, uint32_t *plan)
{
    uint32_t c = BNET_DECODE_CLUSTER, tiles = bnet_decode_tiles(a, 2);
    uint32_t attend = bnet_cu_div(a->n_kv_heads, c) * c;
    a->blocks = (n_sm < tiles ? n_sm : tiles) / c * c;
    a->matrix_blocks = attend * 8 <= a->blocks ? a->blocks - attend : 0;
    a->near = BNET_DECODE_NEAR;
    a->most = a->tiles = 0;
    for (uint32_t i = 0; i < 8 * a->blocks; i++)
        plan[i] = 0;
    if (a->matrix_blocks) {
        bnet_decode_divide(a, a->matrix_blocks, plan);
        a->most = BNET_DECODE_THREADS / 32 * BNET_DECODE_STAGE > a->most
                      ? BNET_DECODE_THREADS / 32 * BNET_DECODE_STAGE
                      : a->most;
    }
    if (a->blocks)
        bnet_decode_divide(a, a->blocks, plan + 4 * a->blocks);
}
/* Parts of the exchange, in floats: x after down, x after o, q + k + v, attention, middle, states
 * of attention; all of it four times, for layers in turn. */
BNET_CU_BOTH uint32_t bnet_decode_part_at(const bnet_cu_decode_args *a, int part)
{
    uint32_t e = a->n_embd, qkv = (a->n_heads + 2 * a->n_kv_heads) * 128;
    return part == 0   ? 0
           : part == 1 ? e
           : part == 2 ? 2 * e
           : part == 3 ? 2 * e + qkv
           : part == 4 ? 3 * e + qkv
           : part == 5
               ? 3 * e + qkv + a->n_ff
               : 3 * e + qkv + a->n_ff + a->n_kv_heads * BNET_DECODE_SPLITS * BNET_DECODE_STATE;
}
static inline uint64_t bnet_decode_exchange_bytes(const bnet_cu_decode_args *a)
{
    return (uint64_t)bnet_decode_part_at(a, 6) * 4 * sizeof(float);
}
/* Outputs of the states of attention: of 16 warps and of the newest position, 4 heads. */
enum { BNET_DECODE_STATES_BYTES = 17 * 4 * 144 * 4, BNET_DECODE_STATIC_BYTES = 9728 };
/* Shared memory behind the weights: codes of two inputs, the layers, sums of the warps or states.
 */
static inline uint32_t bnet_decode_behind(const bnet_cu_decode_args *a)
{
    uint32_t sums = a->tiles * 16 * (BNET_DECODE_THREADS / 32) * 4;
    return a->n_embd + (a->n_ff > a->n_embd ? a->n_ff : a->n_embd) +
           a->n_layers * (uint32_t)sizeof(bnet_cu_layer) +
           (sums > BNET_DECODE_STATES_BYTES ? sums : BNET_DECODE_STATES_BYTES);
}
static inline bnet_cu_launch bnet_decode_launch(const bnet_cu_decode_args *a)
{
    bnet_cu_launch l = {{a->blocks, 1, 1}, BNET_DECODE_THREADS, a->most + bnet_decode_behind(a)};
    return l;
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
