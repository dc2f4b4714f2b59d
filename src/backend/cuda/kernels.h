/* kernels.h - the contract between the CUDA host and the kernels in kernels/(name).cu: names,
 * argument structs, launch shapes and the layouts of packed weights. Compiles as C11 and as CUDA.
 *
 * Every kernel is `extern "C" __global__ void NAME(ARGS a)`, one struct by value. What changes
 * between decode steps (ids, positions, lengths, block tables) is read from the step buffer through
 * pointers that stay the same, so a captured step replays. A row whose position is negative is
 * padding: kernels may compute it but it touches no cache.
 *
 * Programmatic dependent launch (compute capability 9.0): every kernel marked PDL below waits
 * (griddepcontrol.wait) before it reads or writes anything that another kernel touches, and
 * prefetches its weights before that. Launch them with the attribute
 * PROGRAMMATIC_STREAM_SERIALIZATION = 1; without it they are right too, only slower. All other
 * kernels must be launched without the attribute. The first kernel of a step is launched without it
 * too: some read the step buffer and the cache's earlier positions before they wait. */
#ifndef BNET_CUDA_KERNELS_H
#define BNET_CUDA_KERNELS_H

#if defined(__CUDACC__) && !defined(BNET_KERNEL_CODE)
#define BNET_KERNEL_CODE
#endif
#include "backend/gpu/layouts.h"

#if defined(__CUDACC__)
#define BNET_CU_BOTH static inline __host__ __device__
#else
#define BNET_CU_BOTH static inline
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bnet_cu_launch {
    uint32_t grid[3], block;
    uint32_t shared; /* dynamic bytes; above BNET_CU_PLAIN_SHARED raise the function's limit */
} bnet_cu_launch;
/* A block gets 48 KiB unasked, its static shared memory included (here at most 16 KiB): raise
 * MAX_DYNAMIC_SHARED_SIZE_BYTES for whatever takes more than this. */
enum { BNET_CU_PLAIN_SHARED = 32 << 10 };

static inline uint32_t bnet_cu_div(uint32_t a, uint32_t b)
{
    return (a + b - 1) / b;
}

enum { BNET_CU_PARTS = 4 };

typedef struct bnet_cu_part {
    uint32_t first_tile, n_rows;
    float scale;       /* of the weights */
    uint32_t ld;       /* floats between the rows of y */
    BNET_DEV(float) y; /* [T][ld]; 0: not wanted */
} bnet_cu_part;

typedef struct bnet_cu_w2 {
    BNET_DEV(const uint8_t) w;
    uint32_t n_tiles, n_chunks, n_parts, paired;
    bnet_cu_part part[BNET_CU_PARTS];
} bnet_cu_w2;

/* What becomes of f = (float)sum * (x_scale * part scale). */
typedef enum bnet_cu_epilogue {
    BNET_CU_STORE = 0, /* y = f */
    BNET_CU_ADD,       /* y = y + f (residual) */
    BNET_CU_RELU2,     /* paired: part 0's y = max(gate, 0)^2 * up */
    BNET_CU_SILU,      /* paired: part 0's y = gate / (1 + exp(-gate)) * up */
} bnet_cu_epilogue;

/* ---- W2A8 GEMV (1..8 tokens): PDL ----
 * bnet_w2_gemv_ldg, one block of 512 threads per multiprocessor.
 * Input: act8, or (x != 0, one token only) floats x [K] normed by `norm` (0: not normed) and
 * quantised inside. Exact integers either way. */
typedef struct bnet_cu_gemv_args {
    bnet_cu_w2 m;
    bnet_dev_act8 act;
    BNET_DEV(const float) x;
    BNET_DEV(const float) norm;
    float eps;
    uint32_t k; /* columns without padding */
    uint32_t n_tokens, epilogue;
} bnet_cu_gemv_args;

enum { BNET_GEMV_THREADS = 512, BNET_GEMV_TOKENS = 8 };
static inline bnet_cu_launch bnet_w2_gemv_launch(const bnet_cu_gemv_args *a, uint32_t n_sm)
{
    uint32_t ctas = a->m.n_tiles < n_sm ? a->m.n_tiles : n_sm;
    uint32_t tiles = bnet_cu_div(a->m.n_tiles, ctas);
    uint32_t shared = a->n_tokens * (a->m.n_chunks * BNET_W2_CHUNK + 16); /* activations */
    shared += tiles * BNET_W2_TILE * a->n_tokens * 4;                     /* sums */
    bnet_cu_launch l = {{ctas, 1, 1}, BNET_GEMV_THREADS, shared};
    return l;
}

/* ---- W2A8 GEMM (any number of tokens) ----
 * bnet_w2_gemm_mma_64          7.5 and up: tiles of 128 rows x 64 tokens
 * bnet_w2_gemm_wgmma_{64,128}  9.0a: tiles of 128 rows x that many tokens
 * splits > 1 divides K: sums meet in work [n_token_tiles * n_row_tiles][rows][tokens] int32 and
 * counters [tiles], both zero before the first launch and left zero. */
typedef struct bnet_cu_gemm_args {
    bnet_cu_w2 m;
    bnet_dev_act8 act;
    uint32_t n_tokens, epilogue, splits, pad;
    BNET_DEV(int32_t) work;
    BNET_DEV(uint32_t) counters;
} bnet_cu_gemm_args;

enum { BNET_GEMM_ROWS = 128 };
#define BNET_WGMMA_STAGES(tokens) ((tokens) == 64 ? 8 : 5)
static inline bnet_cu_launch bnet_w2_gemm_launch(const bnet_cu_gemm_args *a, uint32_t tokens,
                                                 int wgmma)
{
    uint32_t stages = wgmma ? BNET_WGMMA_STAGES(tokens) : 3;
    uint32_t bytes = tokens * 128 + (wgmma ? 4096 : 0); /* of a stage */
    bnet_cu_launch l = {{bnet_cu_div(a->n_tokens, tokens),
                         bnet_cu_div(a->m.n_tiles, BNET_GEMM_ROWS / BNET_W2_TILE), a->splits},
                        256,
                        stages * bytes + (wgmma ? 1024 : 0)};
    return l;
}
static inline uint64_t bnet_w2_gemm_work_bytes(const bnet_cu_gemm_args *a, uint32_t tokens)
{
    uint64_t tiles = (uint64_t)bnet_cu_div(a->n_tokens, tokens) *
                     bnet_cu_div(a->m.n_tiles, BNET_GEMM_ROWS / BNET_W2_TILE);
    return a->splits > 1 ? tiles * BNET_GEMM_ROWS * tokens * 4 : 0;
}

/* ---- norm, quantise ----
 * bnet_norm_quantize: h = rmsnorm(x) * norm (norm 0: h = x), then int8; PDL. Writes y (floats) if
 *   y != 0 and act if act.q != 0. One block per row. */
typedef struct bnet_cu_norm_args {
    BNET_DEV(const float) x; /* [T][ld] */
    uint64_t unused;
    BNET_DEV(const float) norm;
    BNET_DEV(float) y; /* [T][k] */
    bnet_dev_act8 act;
    uint32_t k, ld, pad;
    float eps;
} bnet_cu_norm_args;
static inline bnet_cu_launch bnet_norm_launch(uint32_t n_rows)
{
    bnet_cu_launch l = {{n_rows, 1, 1}, 512, 0};
    return l;
}

/* ---- rope and cache ----
 * bnet_rope_append: rotates q in place and stores rotated k and v into the cache of kv_type; k
 *   itself is not written back. PDL. */
/* kv_type as bitnet_kv_type: 0 f16, 1 f32, 2 int8 with a scale per 32 elements */
typedef struct bnet_cu_attn_args {
    bnet_dev_step step;
    BNET_DEV(float) q; /* [T][ldq]: n_heads * head_dim */
    BNET_DEV(float) k; /* [T][ldk]: n_kv_heads * head_dim */
    BNET_DEV(float) v;
    BNET_DEV(const float) cs;            /* [T][n_rot] */
    BNET_DEV(float) y;                   /* [T][n_heads * head_dim] */
    BNET_DEV(float) work;                /* decode: bnet_attn_work_bytes */
    BNET_DEV(uint32_t) counters;         /* decode: [T * n_kv_heads], zero before, left zero */
    BNET_DEV(const bnet_dev_tile) tiles; /* prefill: [n_tiles] */
    uint32_t ldq, ldk, layer, n_heads, n_kv_heads, head_dim, kv_type, part_bytes;
    uint32_t n_rot, neox, n_tokens, n_tiles, n_splits;
    float scale; /* 1 / sqrt(head_dim) */
} bnet_cu_attn_args;
static inline bnet_cu_launch bnet_rope_append_launch(const bnet_cu_attn_args *a)
{
    bnet_cu_launch l = {{a->n_tokens, 1, 1}, 256, 0};
    return l;
}

/* ---- attention ----
 * bnet_attn_decode_{f16,f32,i8}: each token on its own, split over the context; math in float; any
 * cache type, head_dim up to 256, n_heads / n_kv_heads * head_dim up to 2048. With cs != 0 it also
 * rotates q and k and appends k, v (then every timeline has at most one token in the pass; q and k
 * are not written back); with cs = 0 they were rotated and stored before and the pass may be
 * anything. PDL. bnet_attn_prefill_{f16,i8}_{64,128} (8.0 and up): tiles of tokens on tensor cores
 * (f16 operands, float sums) by type of cache and head_dim, k, v stored before and q rotated
 * inside with cs != 0, before with 0; tiles with n = 0 or a negative position are left out.
 * n_splits: choose about 4 * n_sm / (T * n_kv_heads), 1..32; positions per split follow from the
 * timeline's length on the device. */
enum { BNET_ATTN_THREADS = 128, BNET_ATTN_MAX_QUERY = 2048 };
static inline uint64_t bnet_attn_work_bytes(const bnet_cu_attn_args *a)
{
    return (uint64_t)a->n_tokens * a->n_heads * a->n_splits * (a->head_dim + 2) * 4;
}
static inline bnet_cu_launch bnet_attn_decode_launch(const bnet_cu_attn_args *a)
{
    bnet_cu_launch l = {{a->n_splits, a->n_kv_heads, a->n_tokens}, BNET_ATTN_THREADS, 0};
    return l;
}
static inline bnet_cu_launch bnet_attn_prefill_launch(const bnet_cu_attn_args *a)
{
    uint32_t shared = 64 * a->head_dim * 2 * 4; /* two stages of k and v */
    bnet_cu_launch l = {{a->n_heads, a->n_tiles, 1}, 128, shared};
    return l;
}

/* ---- head and float matrices ----
 * bnet_head_{f16,bf16,f32,q8,q6k}: y [T][ld] = rows . norm(x); norm 0: x as it is; 1..8 tokens.
 * PDL. */
typedef struct bnet_cu_head_args {
    bnet_dev_matrix m;
    BNET_DEV(const float) x; /* [T][ldx] */
    BNET_DEV(const float) norm;
    BNET_DEV(float) y;
    uint32_t n_tokens, ldx, ld;
    float eps;
} bnet_cu_head_args;
enum { BNET_HEAD_THREADS = 512 };
/* Of codes: bytes of a warp's stages, how many it has for 1 or 2 tokens (one less for more). */
enum { BNET_HEAD_STAGE_Q8 = 16 * 136, BNET_HEAD_STAGE_Q6K = 16 * 208 };
enum { BNET_HEAD_DEPTH_Q8 = 4, BNET_HEAD_DEPTH_Q6K = 3 };
/* shared_max: dynamic bytes a block may have; with a shared of more than that it does not fit. */
static inline bnet_cu_launch bnet_head_launch(const bnet_cu_head_args *a, uint32_t n_sm,
                                              uint32_t shared_max)
{
    uint32_t padded = (a->m.stride + 1023) / 1024 * 1024;
    uint32_t tokens = a->n_tokens <= 2 ? a->n_tokens : a->n_tokens <= 4 ? 4 : 8;
    uint32_t shared = tokens * padded * 4;
    if (!a->m.w[1]) {
        bnet_cu_launch floats = {{2 * n_sm, 1, 1}, BNET_HEAD_THREADS, shared};
        return floats;
    }
    uint32_t ring = a->m.w[2] ? BNET_HEAD_STAGE_Q6K * (BNET_HEAD_DEPTH_Q6K - (tokens > 2))
                              : BNET_HEAD_STAGE_Q8 * (BNET_HEAD_DEPTH_Q8 - (tokens > 2));
    uint32_t warps = shared + ring < shared_max ? (shared_max - shared) / ring : 1;
    warps = warps < BNET_HEAD_THREADS / 32 ? warps : BNET_HEAD_THREADS / 32;
    bnet_cu_launch l = {{n_sm, 1, 1}, BNET_HEAD_THREADS, shared + warps * ring};
    return l;
}

/* Tensor-core products, f32 sums, any sizes: c [M][ldc] f32 = a [M][lda] * b.
 * bnet_matmul_{f16,bf16}_nt: b [N][ldb] (rows are columns of the product: weights); bf16: 8.0 on
 * bnet_matmul_bf16_nn, bnet_wmma_matmul_f16 (the wmma interface): b [K][ldb]
 * bnet_matmul_f32_nn: plain float, the reference. lda, ldb: multiples of 8 for 16-byte loads, else
 * slower. */
typedef struct bnet_cu_matmul_args {
    BNET_DEV(const uint16_t) a;
    BNET_DEV(const uint16_t) b;
    BNET_DEV(float) c;
    uint32_t m, n, k, lda, ldb, ldc;
} bnet_cu_matmul_args;
static inline bnet_cu_launch bnet_matmul_launch(const bnet_cu_matmul_args *a)
{
    bnet_cu_launch l = {{bnet_cu_div(a->n, 128), bnet_cu_div(a->m, 64), 1}, 256, 0};
    return l;
}

/* ---- sampling (ties to the lower id; what is not finite is left out, an empty place has id -1)
 * ---- bnet_argmax: id of the largest logit of each row; also the next ids and positions of the
 * step buffer if wanted. PDL. bnet_topk_part, then bnet_topk_merge: the k <= 64 largest of each
 * row, sorted. PDL. */
enum { BNET_TOPK_MAX = 64, BNET_TOPK_SLICES = 128, BNET_ARGMAX_SLICES = 32 };
enum { BNET_TOPK_PART_THREADS = 256, BNET_TOPK_MERGE_THREADS = 1024 };
typedef struct bnet_cu_sample_args {
    BNET_DEV(const float) logits; /* [rows][ld] */
    BNET_DEV(int32_t) id;         /* [rows][k] */
    BNET_DEV(float) value;        /* [rows][k]; 0: not wanted */
    BNET_DEV(unsigned long long)
    work;                       /* topk: [rows][BNET_TOPK_SLICES][64]; argmax: [rows][2], zero
                                   before the first launch and left zero */
    BNET_DEV(int32_t) next_id;  /* argmax: [rows], 0: none */
    BNET_DEV(int32_t) next_pos; /* argmax: [rows] += 1, 0: none */
    uint32_t n, ld, k, rows;
} bnet_cu_sample_args;
static inline bnet_cu_launch bnet_argmax_launch(uint32_t rows)
{
    bnet_cu_launch l = {{BNET_ARGMAX_SLICES, rows, 1}, 256, 0};
    return l;
}
static inline bnet_cu_launch bnet_topk_part_launch(uint32_t rows)
{
    bnet_cu_launch l = {{BNET_TOPK_SLICES, rows, 1}, BNET_TOPK_PART_THREADS, 0};
    return l;
}
static inline bnet_cu_launch bnet_topk_merge_launch(uint32_t rows)
{
    bnet_cu_launch l = {{rows, 1, 1}, BNET_TOPK_MERGE_THREADS, 0};
    return l;
}

/* ---- vectors ----
 * bnet_add: y = x + z; bnet_mul: y = x * z; bnet_relu2, bnet_silu: y = act(x);
 * bnet_glu_{relu2,silu}: y = act(x) * z; bnet_softmax: rows of x [rows][n] into y (n threads of one
 * block per row); bnet_to_{f16,bf16}: float to half bits, nearest even; bnet_from_{f16,bf16}. All
 * elementwise ones take any grid. */
typedef struct bnet_cu_vec_args {
    BNET_DEV(const void) x;
    BNET_DEV(const void) z;
    BNET_DEV(void) y;
    uint64_t n; /* elements; of a row for softmax */
} bnet_cu_vec_args;
static inline bnet_cu_launch bnet_vec_launch(uint64_t n)
{
    uint64_t blocks = (n + 1023) / 1024;
    bnet_cu_launch l = {{(uint32_t)(blocks > 4096 ? 4096 : blocks), 1, 1}, 256, 0};
    return l;
}

/* bnet_embed_{f32,f16,bf16,q8,q6k}: y [T][k] = rows ids[t] of a matrix as for the head; an id
 * outside 0..n_rows-1 gives zeros. PDL. */
typedef struct bnet_cu_embed_args {
    bnet_dev_matrix m;
    BNET_DEV(const int32_t) ids;
    BNET_DEV(float) y;
} bnet_cu_embed_args;
static inline bnet_cu_launch bnet_embed_launch(uint32_t n_tokens)
{
    bnet_cu_launch l = {{n_tokens, 1, 1}, 256, 0};
    return l;
}

/* ---- quantising weights and block formats (ops/reference.h has the meaning) ----
 * bnet_qk256_gemv: f32 x, blocks of 256 codes in 64 bytes, scales [rows][blocks] or 0; map as
 *   bnet_code_map. One warp per row.
 * bnet_quantize_scales: scale of each block of `block` values by rule (0 absmean, 1 absmax / 1.5).
 * bnet_quantize_{i2s,tl1,tl2}: pack with those scales. */
typedef struct bnet_cu_qk256_args {
    BNET_DEV(const uint8_t) w;
    BNET_DEV(const float) scales;
    BNET_DEV(const float) x;
    BNET_DEV(float) y;
    uint32_t rows, cols, map, pad;
} bnet_cu_qk256_args;
static inline bnet_cu_launch bnet_qk256_launch(uint32_t rows)
{
    bnet_cu_launch l = {{bnet_cu_div(rows, 8), 1, 1}, 256, 0};
    return l;
}

typedef struct bnet_cu_quantize_args {
    BNET_DEV(const float) x;
    BNET_DEV(uint8_t) out;
    BNET_DEV(float) scales; /* [n_scales] */
    uint64_t n, block;      /* values; values per scale */
    uint32_t n_scales, rule;
} bnet_cu_quantize_args;
static inline bnet_cu_launch bnet_quantize_scales_launch(uint32_t n_scales)
{
    bnet_cu_launch l = {{n_scales, 1, 1}, 512, 0};
    return l;
}
static inline bnet_cu_launch bnet_quantize_launch(uint64_t n)
{
    uint64_t groups = (n + 23) / 24, blocks = (groups + 255) / 256; /* a thread packs 24 values */
    bnet_cu_launch l = {{(uint32_t)(blocks > 65535 ? 65535 : blocks), 1, 1}, 256, 0};
    return l;
}

#ifdef __cplusplus
}
#endif

#endif
