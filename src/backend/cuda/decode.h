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
 * next layer as soon as it has used them; results travel between blocks in slots of three floats
 * and a tag (exchange), so that no barrier of the whole grid is needed. x: in the embedding, out
 * what the last norm takes. PDL: launch embedding before and head after it as usual.
 * Needs: f16 cache, head_dim 128, n_heads / n_kv_heads <= 4, ternary matrices without block scales,
 * n_embd and n_ff multiples of 128, n_heads * 128 = n_embd: bnet_decode_fits. */
typedef struct bnet_cu_layer {
    BNET_DEV(const uint8_t) w[4];  /* q + k + v, o, gate + up (paired), down; W2 tiles */
    BNET_DEV(const float) norm[4]; /* before each of them; 0: none */
    float scale[8];                /* q, k, v, o, gate, up, down */
} bnet_cu_layer;
enum { BNET_DECODE_THREADS = 512, BNET_DECODE_SPLITS = 16, BNET_DECODE_TILES = 16 };
typedef struct bnet_cu_decode_args {
    bnet_cu_step step; /* one token */
    BNET_DEV(const bnet_cu_layer) layers;
    BNET_DEV(const uint32_t) plan; /* [blocks][4], bnet_decode_plan */
    BNET_DEV(float) x;             /* [n_embd] */
    BNET_DEV(const float) angles;  /* [positions][n_rot]: (cos, sin) pairs */
    BNET_DEV(uint32_t) exchange;   /* bnet_decode_exchange_bytes; zero before the first launch */
    BNET_DEV(long long) trace;     /* 0, or [blocks][64] clocks of one layer in the middle */
    uint32_t n_layers, n_embd, n_ff, n_heads, n_kv_heads, part_bytes, n_rot, neox, silu;
    uint32_t most[4];   /* tiles a block has at most, by matrix: bnet_decode_plan */
    uint32_t poll, pad; /* 0; ways of waiting, for measurements: 1, 2 */
    float eps, scale;   /* 1 / sqrt(head_dim) */
} bnet_cu_decode_args;

BNET_CU_BOTH uint32_t bnet_decode_tiles(const bnet_cu_decode_args *a, int matrix)
{
    uint32_t qkv = (a->n_heads + 2 * a->n_kv_heads) * 128;
    return matrix == 0 ? qkv / 16 : matrix == 2 ? a->n_ff / 8 : a->n_embd / 16;
}
/* plan [n_sm][4]: first tile << 16 | tiles. Blocks with one more tile of o and down get fewer of
 * the others, so that all fetch about as much. Fills a->most. */
static inline void bnet_decode_plan(bnet_cu_decode_args *a, uint32_t n_sm, uint32_t *plan)
{
    for (int m = 0; m < 4; m++) {
        uint32_t n = bnet_decode_tiles(a, m), o = bnet_decode_tiles(a, 1), heavy = o % n_sm;
        uint32_t light = n_sm - heavy, most = bnet_cu_div(n, n_sm), given = 0;
        uint32_t for_heavy = n > light * most ? n - light * most : 0;
        a->most[m] = 0;
        for (uint32_t b = 0; b < n_sm; b++) {
            uint32_t take = m & 1       ? o / n_sm + (b < heavy)
                            : b < heavy ? bnet_cu_div(for_heavy - given, heavy - b)
                                        : bnet_cu_div(n - given, n_sm - b);
            plan[4 * b + m] = given << 16 | take;
            given += take;
            a->most[m] = take > a->most[m] ? take : a->most[m];
        }
    }
}
/* In slots of 16 bytes: head, x after down, x after o, q + k + v, attention, middle, states. Eight
 * floats are a group of three slots; the first slots of all groups come first. */
BNET_CU_BOTH uint32_t bnet_decode_part_at(const bnet_cu_decode_args *a, int part)
{
    uint32_t e = a->n_embd / 8 * 3, at = 2;
    uint32_t sizes[6] = {e,
                         e,
                         (a->n_heads + 2 * a->n_kv_heads) * 48,
                         e,
                         a->n_ff / 8 * 3,
                         a->n_kv_heads * BNET_DECODE_SPLITS * 176};
    for (int i = 0; i < part; i++)
        at += (sizes[i] + 7) / 8 * 8;
    return at;
}
static inline uint64_t bnet_decode_exchange_bytes(const bnet_cu_decode_args *a)
{
    return (uint64_t)bnet_decode_part_at(a, 6) * 16;
}
BNET_CU_BOTH uint32_t bnet_decode_weight_bytes(const bnet_cu_decode_args *a)
{
    return ((a->most[0] + a->most[1] + a->most[2]) * (a->n_embd / 128) +
            a->most[3] * (a->n_ff / 128)) *
           BNET_W2_UNIT;
}
static inline bnet_cu_launch bnet_decode_launch(const bnet_cu_decode_args *a, uint32_t n_sm)
{
    uint32_t k = a->n_ff > a->n_embd ? a->n_ff : a->n_embd;
    bnet_cu_launch l = {{n_sm, 1, 1},
                        BNET_DECODE_THREADS,
                        bnet_decode_weight_bytes(a) + k + 17 * 4 * 128 * 4 +
                            a->n_layers * (uint32_t)sizeof(bnet_cu_layer) + 128};
    return l;
}
/* After bnet_decode_plan; max_shared: what a block may have at most on this device. */
static inline int bnet_decode_fits(const bnet_cu_decode_args *a, uint32_t n_sm, uint32_t max_shared)
{
    uint32_t e = a->n_embd, f = a->n_ff, t = BNET_DECODE_THREADS;
    for (int m = 0; m < 4; m++)
        if (a->most[m] > BNET_DECODE_TILES)
            return 0;
    return e % 128 == 0 && f % 128 == 0 && a->n_heads * 128 == e && a->n_kv_heads > 0 &&
           a->n_heads % a->n_kv_heads == 0 && a->n_heads / a->n_kv_heads <= 4 &&
           a->n_kv_heads <= n_sm && a->n_rot <= 128 && e <= 8 * t && f <= 16 * t &&
           bnet_decode_launch(a, n_sm).shared + 16 * 1024 <= max_shared;
}

#ifdef __cplusplus
}
#endif

#endif
