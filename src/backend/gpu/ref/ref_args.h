/* ref_args.h - the reference kernels of every GPU driver: their arguments, and what makes kernels
 * of plain C. A kernel takes one struct, whose members are the arguments of its launch in their
 * order (driver.h); addresses are the device's. It computes one result per thread, in the CPU's
 * order of summation, so that results have the CPU's bits.
 *
 * REF_KERNEL(name, args) begins a kernel that sees `a`; REF_THREAD is the number of its thread,
 * counted along x. In C (BNET_KERNEL_CODE) a kernel becomes void name(args, begin, end), which runs
 * threads begin to end - 1. Another dialect defines, before it includes the kernels:
 * BNET_KERNEL_CODE, REF_KERNEL, REF_THREAD, REF_FN (before a function), REF_SQRT of a double,
 * REF_FLOAT_BITS and REF_BITS (floats of bits and back), and REF_START_NEXT (kernels that wait for
 * this one may start; or nothing).
 *
 * The dialect must have: the names of stdint.h; 64-bit integers; stores of single bytes; doubles
 * (rmsnorm and quantize_i8); pointers that need not say which memory they point to. For the CPU's
 * bits it must not contract a * b + c, must keep subnormal floats, and must round division and
 * square root correctly: where these are options of the compiler, set them. No name here is a type
 * of such a dialect (half, uint). */
#ifndef BNET_REF_ARGS_H
#define BNET_REF_ARGS_H

#include "backend/gpu/layouts.h"

/* Layouts of float rows, in the order of gpu_layout. */
enum { REF_F32 = 2, REF_F16, REF_BF16, REF_Q8, REF_Q6K };

typedef struct ref_embed_args {
    bnet_dev_matrix m;
    BNET_DEV(const int32_t) ids;
    BNET_DEV(float) x; /* [T][k] */
    int32_t type, n_tokens;
} ref_embed_args;

typedef struct ref_norm_args {
    BNET_DEV(const float) x; /* [M][n] */
    BNET_DEV(const float) w; /* [n] */
    BNET_DEV(float) y;
    int32_t n_rows, n;
    float eps;
} ref_norm_args;

typedef struct ref_quantize_args {
    BNET_DEV(const float) x; /* [M][n] */
    bnet_dev_act8 act;
    int32_t n_rows, n;
} ref_quantize_args;

/* One part of a matrix in W2 tiles; paired 0: tiles of its own from first_tile on, 1 or 2: part 0
 * or 1 of paired tiles. scales: one per 256 weights of each row, or 0: `scale` for all. */
typedef struct ref_ternary_args {
    BNET_DEV(const uint8_t) w;
    BNET_DEV(const float) scales;
    bnet_dev_act8 act;
    BNET_DEV(float) y; /* [M][N] */
    float scale;
    int32_t m, n, n_chunks, first_tile, paired;
} ref_ternary_args;

typedef struct ref_linear_args {
    bnet_dev_matrix w;
    BNET_DEV(const float) x; /* [M][K], or 0: act */
    bnet_dev_act8 act;
    BNET_DEV(float) y; /* [M][N] */
    float scale;       /* of results that come from act */
    int32_t type, m;
} ref_linear_args;

/* Products of halves with float sums: c [M][N]. nt: b [N][ldb], else [K][ldb]; type REF_F16,
 * REF_BF16 */
typedef struct ref_matmul_args {
    BNET_DEV(const uint16_t) a; /* [M][K] */
    BNET_DEV(const uint16_t) b;
    BNET_DEV(float) c;
    uint32_t m, n, k, ldb;
    int32_t nt, type;
} ref_matmul_args;

typedef struct ref_rope_table_args {
    BNET_DEV(const int32_t) pos;
    BNET_DEV(const float) angles; /* [positions][n_rot / 2][2] */
    BNET_DEV(float) cs;           /* [T][n_rot / 2][2] */
    int32_t n_tokens, n_rot;
} ref_rope_table_args;

typedef struct ref_rope_args {
    BNET_DEV(float) x;        /* [M][n_heads][head_dim] */
    BNET_DEV(const float) cs; /* [M][n_rot / 2][2] */
    int32_t n_rows, n_heads, head_dim, n_rot, neox;
} ref_rope_args;

/* Tokens at position -1 are left out. */
typedef struct ref_kv_args {
    bnet_dev_step step;
    BNET_DEV(const float) k; /* [T][n_kv_heads][head_dim] */
    BNET_DEV(const float) v;
    BNET_DEV(const float) q; /* [T][n_heads][head_dim] */
    BNET_DEV(float) y;
    float scale;
    int32_t n_tokens, layer, n_heads, n_kv_heads, head_dim, type, part_bytes;
} ref_kv_args;

typedef struct ref_glu_args {
    BNET_DEV(const float) gate;
    BNET_DEV(const float) up;
    BNET_DEV(float) y;
    uint64_t n;
    int32_t silu;
} ref_glu_args;

typedef struct ref_add_args {
    BNET_DEV(float) x;
    BNET_DEV(const float) y;
    uint64_t n;
} ref_add_args;

typedef struct ref_gather_args {
    BNET_DEV(const float) x;
    BNET_DEV(const int32_t) rows;
    BNET_DEV(float) y;
    int32_t n_rows, n_cols;
} ref_gather_args;

/* A step from pinned memory of the host to its place on the device. */
typedef struct ref_fetch_args {
    BNET_DEV(const uint32_t) src;
    BNET_DEV(uint32_t) dst;
    uint64_t n; /* words */
} ref_fetch_args;

/* The k best of each row by value, ties to the lower index; what is not finite is left out: index
 * -1. */
typedef struct ref_topk_args {
    BNET_DEV(const float) x; /* [M][n] */
    BNET_DEV(float) value;   /* [M][k] */
    BNET_DEV(int32_t) index; /* [M][k] */
    int32_t m, n, k;
} ref_topk_args;

/* Rows as files have them to the layouts above. src: n_rows rows of row_bytes, the first of which
 * is row first_row of the matrix. from: what the rows are. */
enum { REF_FROM_I2S, REF_FROM_PLAIN, REF_FROM_Q8_0, REF_FROM_Q4_0, REF_FROM_Q6_K };
typedef struct ref_pack_args {
    BNET_DEV(const uint8_t) src;
    BNET_DEV(uint8_t) w[4];
    uint64_t row_bytes, first_row, n_rows;
    int32_t from, stride, elem; /* plain: bytes of an element */
    int32_t n_chunks;           /* W2 */
} ref_pack_args;

/* Two unpaired matrices in W2 tiles to one of paired tiles. */
typedef struct ref_pair_args {
    BNET_DEV(const uint32_t) a;
    BNET_DEV(const uint32_t) b;
    BNET_DEV(uint32_t) out;
    uint64_t n_words;          /* of out */
    int32_t n_chunks, n_tiles; /* n_tiles of a and b each */
} ref_pair_args;

#if defined(BNET_KERNEL_CODE) && !defined(REF_FN)
#include <math.h>
#ifndef REF_KERNEL /* tests that run kernels thread by thread define their own */
#define REF_KERNEL(name, args)                                                                     \
    static inline void name##_one(args a, uint64_t ref_thread);                                    \
    void name(const void *p, uint64_t begin, uint64_t end);                                        \
    void name(const void *p, uint64_t begin, uint64_t end)                                         \
    {                                                                                              \
        const args *a = (const args *)p;                                                           \
        for (uint64_t i = begin; i < end; i++)                                                     \
            name##_one(*a, i);                                                                     \
    }                                                                                              \
    static inline void name##_one(args a, uint64_t ref_thread)
#define REF_THREAD ref_thread
#endif
#define REF_FN      static inline __attribute__((always_inline))
#define REF_SQRT(x) sqrt(x)
static inline float ref_float_bits(uint32_t u)
{
    union {
        uint32_t u;
        float f;
    } b = {u};
    return b.f;
}
static inline uint32_t ref_bits(float f)
{
    union {
        float f;
        uint32_t u;
    } b = {f};
    return b.u;
}
#define REF_FLOAT_BITS(u) ref_float_bits(u)
#define REF_BITS(f)       ref_bits(f)
#define REF_START_NEXT()
#endif

#endif
