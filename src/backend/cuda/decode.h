/* decode.h - all layers of one token in one kernel (compute capability 9.0): arguments, the
 * division of rows among blocks, the memory it needs. Part of the contract of kernels.h. */
#ifndef BNET_CUDA_DECODE_H
#define BNET_CUDA_DECODE_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* bnet_decode_step: one block per multiprocessor, all resident together (launch it cooperatively).
 * Every block keeps its rows of a layer's four matrices in shared memory and fetches those of the
 * next layer as soon as it has used them; results travel between blocks through vectors in the
 * exchange whose elements are BNET_DECODE_NONE until they are there, so that no barrier of the
 * whole grid is needed. x: in the embedding, out what the last norm takes. PDL: launch embedding
 * before and head after it as usual.
 * Needs: f16 cache, head_dim 128, n_heads / n_kv_heads <= 4, ternary matrices without block scales,
 * n_embd and n_ff multiples of 128, n_heads * 128 = n_embd: bnet_decode_fits. */
typedef struct bnet_cu_layer {
    BNET_DEV(const uint8_t) w[4];  /* q + k + v, o, gate + up (paired), down; W2 tiles */
    BNET_DEV(const float) norm[4]; /* before each of them; 0: none */
    float scale[8];                /* q, k, v, o, gate, up, down */
} bnet_cu_layer;
enum { BNET_DECODE_THREADS = 512, BNET_DECODE_SPLITS = 16, BNET_DECODE_TILES = 16 };
enum {
    BNET_DECODE_NONE = 0xff
}; /* bytes of an element that is not there yet: no result is this NaN */
enum { BNET_DECODE_STATE = 520, BNET_DECODE_TRACE_LD = 64 };
typedef struct bnet_cu_decode_args {
    bnet_cu_step step; /* one token */
    BNET_DEV(const bnet_cu_layer) layers;
    BNET_DEV(const uint32_t) plan; /* [blocks][4], bnet_decode_plan */
    BNET_DEV(float) x;             /* [n_embd] */
    BNET_DEV(const float) angles;  /* [positions][n_rot]: (cos, sin) pairs */
    BNET_DEV(uint32_t) epoch;      /* 0..3: layers done so far; zero before the first launch */
    BNET_DEV(float) exchange;      /* bnet_decode_exchange_bytes of BNET_DECODE_NONE before it */
    BNET_DEV(long long) trace; /* built with BNET_DECODE_TRACE: [blocks][64] clocks of a layer */
    uint32_t n_layers, n_embd, n_ff, n_heads, n_kv_heads, part_bytes, n_rot, neox, silu;
    uint32_t most;    /* bytes of weights a block has at most: bnet_decode_plan */
    float eps, scale; /* 1 / sqrt(head_dim) */
} bnet_cu_decode_args;

BNET_CU_BOTH uint32_t bnet_decode_tiles(const bnet_cu_decode_args *a, int matrix)
{
    uint32_t qkv = (a->n_heads + 2 * a->n_kv_heads) * 128;
    return matrix == 0 ? qkv / 16 : matrix == 2 ? a->n_ff / 8 : a->n_embd / 16;
}
/* plan [n_sm][4]: first tile << 16 | tiles. The rows of o and down belong to as few blocks as do
 * not make any of them slower: the fewer read a vector, the sooner all have it. A row of o and the
 * same row of down are in one block, which keeps the residual. Fills a->most. */
static inline void bnet_decode_plan(bnet_cu_decode_args *a, uint32_t n_sm, uint32_t *plan)
{
    uint32_t given[4] = {0, 0, 0, 0};
    a->most = 0;
    for (uint32_t b = 0; b < n_sm; b++) {
        uint32_t bytes = 0;
        for (int m = 0; m < 4; m++) {
            uint32_t n = bnet_decode_tiles(a, m), left = n - given[m];
            uint32_t take = m & 1 ? bnet_cu_div(n, n_sm) : left / (n_sm - b);
            take = take < left ? take : left;
            plan[4 * b + (uint32_t)m] = given[m] << 16 | take;
            given[m] += take;
            bytes += take * (m == 3 ? a->n_ff : a->n_embd) / BNET_W2_CHUNK * BNET_W2_UNIT;
        }
        a->most = bytes > a->most ? bytes : a->most;
    }
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
enum { BNET_DECODE_STATES_BYTES = 17 * 4 * 144 * 4 };
static inline bnet_cu_launch bnet_decode_launch(const bnet_cu_decode_args *a, uint32_t n_sm)
{
    uint32_t k = a->n_ff > a->n_embd ? a->n_ff : a->n_embd;
    bnet_cu_launch l = {{n_sm, 1, 1},
                        BNET_DECODE_THREADS,
                        a->most + BNET_DECODE_STATES_BYTES + k +
                            a->n_layers * (uint32_t)sizeof(bnet_cu_layer)};
    return l;
}
/* After bnet_decode_plan; max_shared: what a block may have at most on this device. */
static inline int bnet_decode_fits(const bnet_cu_decode_args *a, uint32_t n_sm, uint32_t max_shared)
{
    uint32_t e = a->n_embd, f = a->n_ff, most = n_sm * BNET_DECODE_TILES;
    return e % 128 == 0 && f % 128 == 0 && a->n_heads * 128 == e && a->n_kv_heads > 0 &&
           a->n_heads % a->n_kv_heads == 0 && a->n_heads / a->n_kv_heads <= 4 &&
           a->n_kv_heads <= n_sm && a->n_rot <= 128 && e <= 16 * BNET_DECODE_THREADS &&
           f <= 16 * BNET_DECODE_THREADS && bnet_decode_tiles(a, 0) <= most &&
           bnet_decode_tiles(a, 2) <= most && e / 16 <= most &&
           bnet_decode_launch(a, n_sm).shared + 12 * 1024 <= max_shared;
}

#ifdef __cplusplus
}
#endif

#endif
