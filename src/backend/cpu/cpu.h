/* cpu.h - the inside of the CPU backend, shared by its files. */
#ifndef BNET_CPU_H
#define BNET_CPU_H

#include <stdatomic.h>

#include "backend/cpu/kernels.h"
#include "backend/cpu/pack.h"
#include "ops/inspect.h"
#include "ops/open.h"
#include "ops/pass.h"

/* Kernels chosen once, when the backend opens; those of weights are chosen by shape. */
typedef struct cpu_choice {
    const bnet_kernel_record *embed, *rmsnorm, *quantize, *rope_norm, *rope_neox, *kv_store[3],
        *attention[3], *glu_relu2, *glu_silu, *add, *norm_quantize, *add_norm_quantize,
        *glu_relu2_norm_quantize, *glu_silu_norm_quantize;
} cpu_choice;

enum { CPU_SHAPES = 64, CPU_WARNED = 8 };

/* Scratch of the pool's threads, as much as any kernel in the tree asks for. A slot is taken for
 * one call; sessions that share a pool of one thread wait for each other. */
typedef struct cpu_slot {
    atomic_bool busy;
    uint8_t *data; /* NULL: no kernel asks for any */
} cpu_slot;

typedef struct cpu_scratch {
    cpu_slot *slots; /* [n] */
    int n;
    size_t n_bytes; /* of each */
} cpu_scratch;

/* Packed weights lie one behind the other in large pieces, freed with the backend. */
typedef struct cpu_piece {
    struct cpu_piece *next;
    uint8_t *data;
    size_t used, n_bytes;
} cpu_piece;

/* Packed weights of earlier runs, and those of this one until all are prepared. */
typedef struct cpu_cache {
    char *path, *identity; /* NULL: nothing is kept */
    char *source;
    uint64_t min_bytes, max_bytes;
    struct bnet_cachefile *file; /* NULL: none exists that fits */
    struct bnet_cachepiece *pieces;
    size_t n, cap;
    uint64_t n_bytes;
    bool missed, unfit; /* a weight was packed in this run; the model must not be kept */
} cpu_cache;

typedef struct cpu_backend {
    bnet_backend base; /* first: a bnet_backend * is a cpu_backend * */
    bnet_pool *pool;
    const bnet_registry *registry;
    bnet_capabilities caps; /* of this CPU, limited by the isa option */
    bool strict;
    bnet_log log;
    bool pack; /* ternary weights may be packed */
    cpu_choice use;
    bool fuses; /* several operations may be one kernel: none of them is from outside the tree */
    atomic_uint_fast64_t calls[BNET_KERNELS_MAX]; /* by slot of the record */
    atomic_uint_fast64_t n_fallbacks;
    cpu_scratch scratch;
    cpu_cache cache;
    cpu_piece *pieces;    /* the newest first */
    uint64_t n_unchecked; /* bytes taken since the room was looked at */
    /* written while weights are prepared */
    bnet_kernel_query shapes[CPU_SHAPES];
    size_t n_shapes;
    bnet_type warned[CPU_WARNED]; /* types whose fallback was announced */
    size_t n_warned;
} cpu_backend;

/* Counts one use of a kernel and gives its function. */
static inline bnet_kernel_fn cpu_use(cpu_backend *be, const bnet_kernel_record *k)
{
    atomic_fetch_add_explicit(&be->calls[k->slot], 1, memory_order_relaxed);
    return k->fn;
}

/* ---- objects ---- */

struct bnet_buffer {
    size_t n_bytes;
    void *data;
};

/* A copy of the head that is scanned in its place (weights_copy.c). */
typedef struct cpu_copy {
    const bnet_kernel_record *scan;
    bool wanted;          /* by a measured choice: for any input, whole at once */
    atomic_bool busy;     /* somebody makes a part */
    atomic_int pause;     /* calls that do without it */
    atomic_size_t n_made; /* groups */
    size_t n_groups;
    uint8_t *groups; /* NULL: nothing was made yet */
    float *rests;    /* [8 n_groups] no row differs by more from what its codes say */
} cpu_copy;

/* What a matrix has that serves as the head (weights_head.c). */
typedef struct cpu_head {
    const bnet_kernel_record *scan;  /* NULL: all rows are computed exactly */
    const bnet_kernel_record *exact; /* one plain row, one token */
    float *norms;                    /* [n_out, rounded up to 4] no row is longer */
    float norm_max;
    cpu_copy *copy; /* NULL: none will be made */
} cpu_head;

struct bnet_weight {
    bnet_weight_info info;
    const uint8_t *data; /* in the mapped file, or in `owned` */
    size_t row_bytes;
    uint8_t *owned;      /* may be NULL */
    bool packed;         /* data is in groups of 16 rows (pack.h), in the backend's pieces */
    bool whole;          /* all bytes of a tensor that a program's kernel reads: bitnet_fn_matrix */
    size_t n_bytes;      /* of a whole one */
    bool r4;             /* Q6_K in groups of 4 rows (pack_q6.h), in the backend's pieces */
    cpu_head *head;      /* may be NULL */
    float *block_scales; /* ternary with varying scales: [n_out][n_in / 256]; else NULL */
    /* matrices only */
    bnet_kernel_query query;          /* m is filled in per call */
    bool fallback;                    /* no kernel for its type: decoded in every pass */
    float fallback_scale;             /* multiplies the sums of a ternary fallback */
    const bnet_kernel_record *kernel; /* serves one token; any pass can be cut down to that */
    bnet_picks *picks;
};

/* The kernel for a pass of m tokens, remembered; NULL: none takes that many. */
const bnet_kernel_record *bnet_cpu_pick(const cpu_backend *be, const bnet_weight *w, size_t m);

struct bnet_kv_store {
    bnet_kv_shape shape;
    size_t part_bytes, block_bytes;
    uint8_t *data; /* [layer][block][kv head][K part, V part] */
};

static inline uint8_t *kv_part(const bnet_kv_store *kv, int layer, int block, int head, int is_v)
{
    size_t b = (size_t)layer * (size_t)kv->shape.n_blocks + (size_t)block;
    return kv->data + b * kv->block_bytes + (2 * (size_t)head + (size_t)is_v) * kv->part_bytes;
}

/* ---- entries of the table, by file ---- */

bitnet_status bnet_cpu_weight_prepare(bnet_backend *b, const bnet_weight_request *r,
                                      const bnet_log *log, bnet_weight **out, bitnet_error *err);
void bnet_cpu_weight_free(bnet_backend *b, bnet_weight *w);
void bnet_cpu_linear_ternary(bnet_backend *b, const bnet_weight *w, const bnet_act8 *q, int n_rows,
                             bnet_buffer *y);
void bnet_cpu_linear_ternary_n(bnet_backend *b, const bnet_weight *const *w, int n,
                               const bnet_act8 *q, int n_rows, bnet_buffer *const *y);
void bnet_cpu_linear_float(bnet_backend *b, const bnet_weight *w, bnet_buffer *x, int n_rows,
                           bnet_buffer *y);
size_t bnet_cpu_top_bytes(const bnet_backend *b, const bnet_weight *w);
void bnet_cpu_top(bnet_backend *b, const bnet_weight *w, bnet_buffer *x, int n_rows,
                  const bnet_top_want *wants, bnet_buffer *y, bnet_buffer *scratch, bnet_top *out);
bnet_kv_store *bnet_cpu_kv_new(bnet_backend *b, const bnet_kv_shape *shape);
void bnet_cpu_kv_free(bnet_backend *b, bnet_kv_store *kv);
void bnet_cpu_kv_get(bnet_kv_store *kv, int layer, int block, void *bytes);
void bnet_cpu_kv_put(bnet_kv_store *kv, int layer, int block, const void *bytes);
void bnet_cpu_kv_clear(bnet_kv_store *kv, int block);
void bnet_cpu_kv_copy(bnet_kv_store *dst, int to, const bnet_kv_store *src, int from);
void bnet_cpu_kv_append(bnet_backend *b, const bnet_step *s, int layer, bnet_buffer *k,
                        bnet_buffer *v);
void bnet_cpu_attention(bnet_backend *b, const bnet_step *s, int layer, int n_heads, bnet_buffer *q,
                        bnet_buffer *y);
void bnet_cpu_embed(bnet_backend *b, const bnet_weight *w, const bnet_step *s, bnet_buffer *x);
void bnet_cpu_rmsnorm(bnet_backend *b, bnet_buffer *x, const bnet_weight *w, float eps, int n_rows,
                      bnet_buffer *y);
void bnet_cpu_quantize_i8(bnet_backend *b, bnet_buffer *x, int n_rows, size_t n_cols, bnet_act8 *q);
void bnet_cpu_norm_quantize(bnet_backend *b, bnet_buffer *x, bnet_buffer *plus,
                            const bnet_weight *w, float eps, int n_rows, bnet_buffer *y,
                            bnet_act8 *q);
void bnet_cpu_glu_norm_quantize(bnet_backend *b, bnet_activation act, bnet_buffer *gate,
                                bnet_buffer *up, const bnet_weight *w, float eps, int n_rows,
                                bnet_buffer *y, bnet_act8 *q);
void bnet_cpu_rope_table(bnet_backend *b, const bnet_rope *r, const bnet_step *s, bnet_buffer *cs);
void bnet_cpu_rope(bnet_backend *b, const bnet_rope *r, bnet_buffer *cs, int n_rows, int n_heads,
                   bnet_buffer *x);
void bnet_cpu_glu(bnet_backend *b, bnet_activation act, bnet_buffer *gate, bnet_buffer *up,
                  size_t n, bnet_buffer *y);
void bnet_cpu_add(bnet_backend *b, bnet_buffer *x, bnet_buffer *y, size_t n);
void bnet_cpu_gather(bnet_backend *b, bnet_buffer *x, const int32_t *rows, int n_rows,
                     size_t n_cols, bnet_buffer *y);

/* Scratch for one call of a kernel on this thread of the pool; the caller gives it back. */
uint8_t *bnet_cpu_scratch_take(cpu_backend *be, int thread);
/* Of it, attention keeps so much for itself before what its kernel asks for. */
enum { CPU_SPAN_BYTES = 64 << 10 };
void bnet_cpu_scratch_give(cpu_backend *be, int thread);
/* Memory for the packed rows of a tensor, which lives as long as the backend. Fails MEMORY, also
 * where Linux would end the process for writing into it. */
bitnet_status bnet_cpu_piece_take(cpu_backend *be, const char *tensor, uint64_t n_bytes,
                                  uint8_t **out, bitnet_error *err);
/* Ternary rows (128 weights in 32 bytes) become groups of 16; the rows' memory is given back. */
bitnet_status bnet_cpu_pack(cpu_backend *be, bnet_weight *w, const bnet_weight_request *r,
                            bitnet_error *err);
bitnet_status bnet_cpu_scratch_open(cpu_backend *be, bitnet_error *err);
void bnet_cpu_memory_close(cpu_backend *be); /* scratch and pieces */
/* Makes w->head, if its type has one, and may pack the rows. */
bitnet_status bnet_cpu_head_prepare(cpu_backend *be, bnet_weight *w, const bnet_weight_request *r,
                                    bitnet_error *err);
void bnet_cpu_head_free(bnet_weight *w);
/* Row `id` as the file has it; plain: room for it, where rows are packed. */
const uint8_t *bnet_cpu_plain_row(const bnet_weight *w, size_t id, uint8_t *plain);
/* Finds out whether a copy of a head that has a scan could be scanned in its place. Fails MEMORY.
 */
bitnet_status bnet_cpu_copy_prepare(const cpu_backend *be, bnet_weight *w, bitnet_error *err);
void bnet_cpu_copy_free(bnet_weight *w);
/* The copy for a scan of n_inputs, NULL where there is none yet: every call that wants one makes a
 * part of it. */
const cpu_copy *bnet_cpu_copy_for(cpu_backend *be, const bnet_weight *w, size_t n_inputs);
/* Tells how many rows a scan of n_inputs with the copy left to compute, and whether these were too
 * many for one of them. Where that does not pay, the next calls do without it. */
void bnet_cpu_copy_left(const bnet_weight *w, size_t n_inputs, size_t n_rows, bool too_many);
/* Row `id` of packed Q6_K as an embedding. */
void bnet_cpu_embed_r4(const bnet_weight *w, bnet_fn_embed *fn, size_t id, float *y);
bitnet_status bnet_cpu_cache_open(cpu_backend *be, const bnet_pack_cache *want, const bnet_log *log,
                                  bitnet_error *err);
void bnet_cpu_cache_close(cpu_backend *be);
bool bnet_cpu_cache_maps(const bnet_backend *b, const void *address); /* inspect.h */
/* The packed form of a tensor from an earlier run; NULL: there is none. */
const void *bnet_cpu_cache_find(cpu_backend *be, const char *kind, const char *tensor,
                                uint64_t n_bytes, double *note);
/* A piece to be kept, alive until all weights are prepared. fresh: it was not in the file. */
void bnet_cpu_cache_note(cpu_backend *be, const char *kind, const char *tensor, const void *data,
                         uint64_t n_bytes, double note, bool fresh);
/* A ternary weight from the file of an earlier run. */
bool bnet_cpu_cache_ternary(cpu_backend *be, bnet_weight *w, const bnet_weight_request *r);
void bnet_cpu_weights_done(bnet_backend *b, const bnet_log *log);
/* Should rows of this query be packed into groups, which are streamed faster? Not where only the
 * reference could read the groups, or where a kernel from outside, which reads rows alone, has as
 * high a tier. A measured choice for either form decides. */
bool bnet_cpu_wants_packing(const cpu_backend *be, const bnet_kernel_query *rows,
                            bnet_format packed_format);
/* Rows of this format come to a program's kernel as the file has them: nothing else reads them. */
bool bnet_cpu_whole(bnet_format f);
/* Chooses the kernel of a prepared matrix, or the fallback, or says why there is neither. */
bitnet_status bnet_cpu_weight_kernel(cpu_backend *be, bnet_weight *w, const bnet_weight_request *r,
                                     const bnet_log *log, bitnet_error *err);
size_t bnet_cpu_shapes(const bnet_backend *b, bnet_kernel_query *out, size_t cap);
bitnet_status bnet_cpu_bench_new(bnet_backend *b, const bnet_kernel_query *q, bnet_bench **out,
                                 bitnet_error *err);
double bnet_cpu_bench_run(bnet_bench *bench, const bnet_kernel_record *k, bitnet_launch *shape);
void bnet_cpu_bench_free(bnet_bench *bench);
/* A pass through one given kernel, for measuring. */
void bnet_cpu_linear_with(cpu_backend *be, const bnet_weight *w, const bnet_kernel_record *k,
                          const bnet_act8 *q, const float *x, size_t n_tokens, float *y);

#endif
