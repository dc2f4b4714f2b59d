/* kernels.h - the types of CPU kernels and, from kernels.inc, a prototype of each. A kernel is a
 * pure function over plain memory; threads, counting and epilogues belong to the callers in
 * ops_*.c. */
#ifndef BNET_CPU_KERNELS_H
#define BNET_CPU_KERNELS_H

#include "backend/cpu/head.h"
#include "backend/cpu/head_copy.h"
#include "base/base.h"
#include "bitnet_kernel.h"
#include "format/tensor.h"

#define BNET_MAX_HEAD_DIM 1024

/* acc[t][r] = sum over k of trit[r][k] * x[t][k], for n_rows rows of n_blocks * 32 bytes in the
 * I2_S order (128 weights in 32 bytes; codes 0,1,2 only) and 1..BNET_TERNARY_TOKENS tokens,
 * whatever M the row asks for: a pass comes in pieces. x[t] begins at x + t * x_stride and has
 * n_blocks * 128 values; x_sum[t]: their sum. Exact: |acc| <= 128 K < 2^31 for K < 2^24. */
#define BNET_TERNARY_TOKENS 16
typedef bitnet_fn_ternary bnet_fn_ternary;
/* The same sums for weights packed in groups of 16 rows (pack.h), straight to floats:
 * y[t][r] = (float)acc[t][r] * (x_scale[t] * w_scale), the product of the scales rounded first, for
 * any number of tokens and rows. w begins at a group, the last group may be used in part, nothing
 * behind y[t][n_rows) is written. x as above; |acc| <= 128 K, K <= 131072, so the float is exact.
 * temp: the record's temp_bytes, aligned to 64, this call's own. */
typedef struct bnet_r16 {
    const uint8_t *w;     /* [ceil(n_rows / 16)][n_lines][64] */
    size_t n_lines;       /* K / 16, a multiple of 8 */
    size_t n_rows;        /* outputs of this call */
    const int8_t *x;      /* [T][x_stride], 16 * n_lines values of each are used */
    size_t x_stride;      /* a multiple of 128 */
    const int32_t *x_sum; /* [T] */
    const float *x_scale; /* [T] */
    float w_scale;
    size_t n_tokens;
    float *y; /* [T][y_stride] */
    size_t y_stride;
    uint8_t *temp;
} bnet_r16;
typedef void bnet_fn_r16(const bnet_r16 *a);
/* Bytes of temp by what kernels keep there, and their sums, the column temp of kernels.inc. */
enum {
    BNET_TEMP_WIDE = 512 * 1024,       /* rows expanded to bytes: at least 16 for K <= 32768 */
    BNET_TEMP_TOKENS = 256 * 1024,     /* 8 tokens for K <= 32768 */
    BNET_TEMP_BATCH = 512 * 1024,      /* 16 tokens for K <= 32768 */
    BNET_TEMP_PANEL = 20 * 1024,       /* 8 rows of 2560 columns expanded to bytes */
    BNET_TEMP_PANEL_SUMS = 512 * 32,   /* of 512 tokens and 8 rows */
    BNET_TEMP_SUMS = 4096 * 8 * 4,     /* of 8 tokens, for the rows of WIDE at K = 128 */
    BNET_TEMP_TILES = 512 * 1024,      /* AMX: a batch of tokens */
    BNET_TEMP_RING = 4 * 2 * 1024,     /* AMX: 4 steps of two tiles */
    BNET_TEMP_TILE_SUMS = 4 * 16 * 64, /* AMX: four tiles */
    BNET_TEMP_ROWS = 3 * (BNET_MAX_HEAD_DIM + 16) * 4, /* attention: a key, a query, a result */
    BNET_TEMP_QUERIES = 4 * BNET_MAX_HEAD_DIM * 4,     /* attention: a pack's queries, sums */
    BNET_TEMP_AHEAD = 2 * 64 * 128 * 4,                /* attention: a block as floats */
    BNET_TEMP_GROUP = 16 * 10880, /* a group of that many columns expanded to bytes */
    BNET_TEMP_MMLA = BNET_TEMP_WIDE + BNET_TEMP_TOKENS + BNET_TEMP_SUMS,
    BNET_TEMP_PAIRS = BNET_TEMP_PANEL_SUMS + BNET_TEMP_PANEL + BNET_TEMP_BATCH,
    BNET_TEMP_PLANES = BNET_TEMP_BATCH + BNET_TEMP_GROUP,
    BNET_TEMP_PLANES_3 = BNET_TEMP_BATCH + 3 * BNET_TEMP_GROUP,
    BNET_TEMP_AMX = BNET_TEMP_TILES + BNET_TEMP_RING + BNET_TEMP_TILE_SUMS
};
/* The same with one scale per 256 weights: y[t][r] = sum over b of scales[r][b] * (float)(integer
 * sum of block b), in ascending b. n_blocks counts 128-weight blocks and is even. */
typedef bitnet_fn_ternary_scaled bnet_fn_ternary_scaled;
/* y[t] = dot(row, x[t]) for one weight row and up to BNET_LINEAR_TOKENS tokens, each in the order
 * of bnet_dot_f32. */
#define BNET_LINEAR_TOKENS 8
typedef bitnet_fn_linear bnet_fn_linear;
/* The same for a row of any type that can be decoded, and with int8 activations (y is then the sum
 * of w * q: the caller multiplies by the token's scale). For types without a kernel of their own.
 */
typedef void bnet_fn_fallback(bnet_type type, const uint8_t *row, const float *x, size_t x_stride,
                              size_t n_cols, size_t n_tokens, float *y);
typedef void bnet_fn_fallback_i8(bnet_type type, const uint8_t *row, const int8_t *q,
                                 size_t q_stride, size_t n_cols, size_t n_tokens, float *y);
typedef void bnet_fn_embed(bnet_type type, const uint8_t *row, size_t n_cols, float *y);
typedef bitnet_fn_rmsnorm bnet_fn_rmsnorm; /* y may be x */
/* q[0..n), zero to stride; returns the scale (real = q * scale) and the sum of q. */
typedef bitnet_fn_quantize bnet_fn_quantize;
/* Norm, then quantisation to int8, in one call, with the bits of the two calls. Returns the
 * scale. */
typedef struct bnet_normed {
    const float *w; /* of the norm */
    size_t n;
    float eps;
    float *y; /* [n] work space, may be the first input; contents are unspecified afterwards */
    size_t stride;
    int8_t *q; /* [stride] */
    int32_t *sum;
} bnet_normed;
typedef float bnet_fn_norm_quantize(const float *x, const bnet_normed *to);
/* The same after x += b (y must not be x), and for a gated product. */
typedef float bnet_fn_add_norm_quantize(float *x, const float *b, const bnet_normed *to);
typedef float bnet_fn_glu_norm_quantize(const float *gate, const float *up, const bnet_normed *to);
/* One head in place; cs: n_rot/2 pairs (cos, sin). */
typedef void bnet_fn_rope(float *x, const float *cs, size_t n_rot);
/* Stores head_dim values of one position into its block (see kv_block.h). */
typedef void bnet_fn_kv_store(const float *x, size_t head_dim, size_t pos, uint8_t *part);
/* Attention of some queries to one block of 64 positions: those of n_tokens tokens of one timeline,
 * n_heads heads each, which share one kv head. Every query's block is reduced on its own to the
 * maximum m of its scores, the sum l of e^(score - m) and the values o weighted with that, not yet
 * divided; bnet_softmax_merge (softmax.h) joins blocks in ascending order: the kernel, if the
 * caller has the states of all queries ready. */
typedef struct bnet_softmax {
    float m, l; /* maximum and sum; of nothing yet: -infinity, 0 */
} bnet_softmax;
typedef struct bnet_attend {
    const float *q; /* query (t, g) is q + t * q_stride + g * head_dim */
    size_t q_stride, n_tokens, n_heads, head_dim;
    const uint8_t *k_part, *v_part; /* see kv_block.h */
    const uint8_t *k_next;          /* keys that will be read next, or NULL */
    const uint8_t *n_pos;           /* [n_tokens] how many positions each sees, 1..64 */
    float scale;                    /* of the scores */
    bnet_softmax *block;            /* out [n_tokens][n_heads] */
    float *o;                       /* out [n_tokens][n_heads][head_dim] */
    bnet_softmax *run;              /* [n_tokens][n_heads] what this block is joined to, or NULL */
    float *y;                       /* its values, which lie as the queries do */
    void *temp;                     /* the row's temp_bytes, aligned to 64 */
} bnet_attend;
typedef void bnet_fn_attention(const bnet_attend *a);
typedef bitnet_fn_glu bnet_fn_glu;
typedef bitnet_fn_add bnet_fn_add;

/* A prototype, and a record's function, on the architecture of a row; nothing, and NULL, elsewhere.
 */
#define BNET_ON_ANY(...) __VA_ARGS__
#define BNET_FN_ANY(fn)  (bnet_kernel_fn) fn
#if defined(__aarch64__)
#define BNET_ON_ARM(...) __VA_ARGS__
#define BNET_FN_ARM(fn)  (bnet_kernel_fn) fn
#else
#define BNET_ON_ARM(...)
#define BNET_FN_ARM(fn) NULL
#endif
#if defined(__x86_64__)
#define BNET_ON_X86(...) __VA_ARGS__
#define BNET_FN_X86(fn)  (bnet_kernel_fn) fn
#else
#define BNET_ON_X86(...)
#define BNET_FN_X86(fn) NULL
#endif

#define KERNEL(name, isa, arch, type, op, format, dtype, tier, m, n, k, temp, align, agreement)    \
    BNET_ON_##arch(bnet_fn_##type bnet_##name##_##isa;)
#include "backend/cpu/kernels.inc"
#undef KERNEL

#endif
