/* layouts.h - how things lie in the memory of a device: the step buffer, the cache, packed weights
 * and int8 activations. The host writes them, the kernels of every driver read them; compiles as
 * C11 and as any C dialect of kernels, which defines BNET_KERNEL_CODE. */
#ifndef BNET_GPU_LAYOUTS_H
#define BNET_GPU_LAYOUTS_H

#include <stddef.h>
#include <stdint.h>

#if defined(BNET_KERNEL_CODE)
#define BNET_DEV(T) T *
#else
#define BNET_DEV(T) uint64_t /* an address on the device, 0: none */
#endif

/* ---- the step buffer ---- */

/* A timeline's cache: store [layer][block][kv head][K part, V part] as on the CPU
 * (ops/kv_block.h). */
typedef struct bnet_dev_seq {
    uint64_t kv;          /* address of the store */
    uint64_t layer_bytes; /* from one layer to the next */
    uint32_t table;       /* where its block numbers begin in tables */
    uint32_t pad;
} bnet_dev_seq;

/* A run of tokens of one timeline at consecutive positions, for prompts: at most
 * BNET_DEV_TILE_TOKENS of them. */
enum { BNET_DEV_TILE_TOKENS = 64 };
typedef struct bnet_dev_tile {
    int32_t first, n; /* rows of the pass; n = 0: an empty tile */
} bnet_dev_tile;

/* What changes between steps is read through pointers that stay the same, so a recorded step can be
 * repeated. */
typedef struct bnet_dev_step {
    BNET_DEV(const int32_t) ids; /* [T] */
    BNET_DEV(const int32_t) pos; /* [T], -1: padding, which touches no cache */
    BNET_DEV(const int32_t) seq; /* [T], index into seqs */
    BNET_DEV(const bnet_dev_seq) seqs;
    BNET_DEV(const int32_t) tables;
} bnet_dev_step;

/* ---- ternary matrices: W2 tiles ----
 *
 * Rows come in tiles of 16, columns in chunks of 128 (the last ones padded with weight 0). A unit
 * of 16 x 128 weights is 512 bytes: 32 lanes x 16 bytes, unit (tile, chunk) at
 * 512 * (tile * n_chunks + chunk). Lane 4 g + t (g 0..7, t 0..3), word r (0..3), byte b (0..3),
 * bits 2s (s 0..3) hold the code (trit + 1) of
 *     row 16 tile + g + 8 (r & 1),  column 128 chunk + 32 s + 16 (r >> 1) + 4 t + b:
 * word r shifted by 2s is register r of the A operand of the s-th m16n8k32 product (mma and wgmma
 * alike). One layout serves GEMV and GEMM on every chip.
 *
 * A matrix has up to four parts (q, k, v), each padded to whole tiles and with its own scale and
 * destination. With `paired` parts 0 and 1 (gate and up, equally many rows) share tiles: rows 0..7
 * of tile i are rows 8i.. of part 0, rows 8..15 the same rows of part 1. */

enum { BNET_W2_TILE = 16, BNET_W2_CHUNK = 128, BNET_W2_UNIT = 512 };
enum { BNET_W2_ZERO = 0x55 }; /* a byte of four weights 0, for what no row fills */

/* ---- matrices of floats ----
 *
 * Rows of `stride` elements (K rounded up to a multiple of 64; 256 for q6k), padding 0.
 *   f16, bf16, f32: w[0] the values. q8: w[0] int8 codes, w[1] f16 scales [N][stride / 32].
 *   q6k: planes by 32 elements: w[0] low nibbles [N][stride / 32][16] (byte j: elements j, j + 16),
 *   w[1] high bits [N][stride / 32][8] (byte j: elements j, j + 8, j + 16, j + 24, two bits each
 *   from the lowest), w[2] int8 scales [N][stride / 16], w[3] f16 [N][stride / 256]. */
typedef struct bnet_dev_matrix {
    BNET_DEV(const uint8_t) w[4];
    uint32_t n_rows, k, stride, pad;
} bnet_dev_matrix;

/* int8 activations as in ops/backend.h: q [T][stride] zero beyond K, stride a multiple of 128 */
typedef struct bnet_dev_act8 {
    BNET_DEV(int8_t) q;
    BNET_DEV(float) scale;
    BNET_DEV(int32_t) sum;
    uint32_t stride, pad;
} bnet_dev_act8;

#endif
