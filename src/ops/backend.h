/* backend.h - the contract between the model and whatever computes. A backend is a folder that
 * fills this table.
 *
 * Shapes in comments: T tokens in the pass, K inputs, N outputs, all row-major. Buffers are the
 * backend's memory; the model never looks inside. Ops are void: shapes were checked in ops.c,
 * failures are collected at sync. Meaning is fixed by the scalar kernels of backend/cpu: integers
 * exact, floats within the bound a row states. */
#ifndef BNET_BACKEND_H
#define BNET_BACKEND_H

#include <stdatomic.h>

#include "base/thread.h"
#include "format/weight_rows.h"
#include "ops/alone_call.h"
#include "ops/plain_call.h"
#include "ops/registry.h"

typedef struct bnet_backend bnet_backend;
typedef struct bnet_buffer bnet_buffer; /* bytes on the device */
typedef struct bnet_weight bnet_weight; /* a prepared matrix [N rows][K columns] */
typedef struct bnet_bench bnet_bench;   /* something to measure kernels with */
typedef struct bnet_kv_store
    bnet_kv_store; /* blocks of 64 positions of keys and values, all layers */

/* How a weight wants its input: ternary weights take int8 activations, all others take floats. */
typedef struct bnet_weight_info {
    uint64_t n_out, n_in;
    bool ternary;
    bnet_type type; /* as in the file */
    float scale;    /* ternary with one scale; 0 if scales vary */
} bnet_weight_info;

typedef struct bnet_weight_request {
    bnet_weight_source source;
    bool mapped; /* the bytes are a file's: their pages may be given back */
    bool head;   /* its product with the last hidden state is the logits */
    int layer;   /* that uses it; -1: before the first, n_layers: after the last */
    int n_units; /* its rows are that many equal groups that belong together (of one key/value
                    head); 0: they can be divided anywhere */
    uint64_t first_row, n_rows; /* only these rows of a matrix; n_rows 0: all. GPUs only */
} bnet_weight_request;

/* What a backend is told of a network before its weights come. */
typedef struct bnet_expect {
    const char *file; /* for messages */
    int n_layers, n_heads, n_kv_heads;
    uint64_t layer_bytes, first_bytes,
        last_bytes; /* in the file: one layer; before and after all */
} bnet_expect;

/* int8 activations: q [T][stride] zero beyond K, scale [T] (real value = q * scale), sum [T] of
 * each row of q */
typedef struct bnet_act8 {
    bnet_buffer *q, *scale, *sum;
    size_t stride; /* multiple of 128 */
} bnet_act8;

typedef struct bnet_kv_shape {
    int n_layers, n_blocks, n_kv_heads, head_dim;
    bitnet_kv_type type;
    int n_heads; /* query heads that will look at it; 0: not known */
} bnet_kv_shape;

/* One timeline inside a pass: where its blocks lie. */
typedef struct bnet_seq {
    bnet_kv_store *store;
    const int32_t *blocks; /* logical block b (positions 64b..64b+63) is physical blocks[b] */
} bnet_seq;

/* Everything that changes between passes. */
typedef struct bnet_step {
    int n_tokens;
    const int32_t *ids, *pos, *seq; /* [T] */
    const bnet_seq *seqs;
} bnet_step;

/* Which logits of a row are wanted: the k largest, with all that equal the last of these, with all
 * that are less than `range` below it, and those of some ids whatever they are. */
typedef struct bnet_top_want {
    size_t k; /* 0: the ids alone, which then ascend */
    float range;
    const int32_t *ids; /* inside the vocabulary, each once; not counted among the k */
    size_t n_ids;
} bnet_top_want;

/* At least these, exactly as linear_float computes them; ids ascending. */
typedef struct bnet_top {
    const int32_t *ids;
    const float *logits;
    size_t n;
} bnet_top;

typedef struct bnet_rope {
    const double *inv_freq; /* [n_rot / 2] */
    int n_rot, head_dim;
    bool neox;
} bnet_rope;

/* The whole network, for backends that run passes in one piece. Weights as model/weights.h has
 * them; sub-norms are NULL in families without. */
typedef struct bnet_net_layer {
    const bnet_weight *attn_norm, *q, *k, *v, *attn_sub_norm, *o, *ffn_norm, *gate, *up,
        *ffn_sub_norm, *down;
} bnet_net_layer;

typedef struct bnet_net {
    int n_layers, n_heads, n_kv_heads, head_dim;
    size_t n_embd, n_ff, n_vocab;
    float rms_eps;
    bool relu2; /* else silu */
    bnet_rope rope;
    const bnet_weight *embd, *output_norm, *head;
    const bnet_net_layer *layers; /* [n_layers] */
} bnet_net;

/* The largest logits of a row, the best first, ties to the lower id; what is not finite is left
 * out. */
enum { BNET_BEST = 64, BNET_BEST_ROWS = 64 };
typedef struct bnet_best {
    int n; /* fewer than BNET_BEST: there are no more */
    int32_t ids[BNET_BEST];
    float logits[BNET_BEST];
} bnet_best;

typedef struct bnet_pass {
    const bnet_net *net; /* the same one for the backend's life */
    const bnet_step *step;
    const int32_t *rows; /* [n_rows] tokens whose normed state is wanted */
    int n_rows;
    bnet_buffer *last;            /* [n_rows][embd] */
    bnet_best *best;              /* [n_rows] or NULL: not wanted; valid when pass returns */
    const struct bnet_pass *next; /* the one that follows at once, if that is known: what its step,
                                     rows and n_rows say may be brought meanwhile */
} bnet_pass;

/* What a device counts of itself since it was opened. */
typedef struct bnet_backend_stats {
    uint64_t n_h2d, n_d2h, h2d_bytes, d2h_bytes, cache_hits, cache_misses;
    uint64_t memory_allocated, memory_peak, memory_used, memory_total;
    uint64_t n_launches;   /* kernels that ran on it, one use may be several; 0: as many as uses */
    uint64_t n_replays;    /* of recorded passes; their kernels are counted like all others */
    uint64_t n_unrecorded; /* passes that would have been, but recording failed: launched instead */
    uint64_t memory_pool;  /* of memory_allocated: buffers of passes and calls */
    double fp16_ms, bf16_ms;
    bitnet_precision precision; /* the weights' float matrices are multiplied in */
    bitnet_precision settled;   /* what was settled on, with or without such weights */
    char device[128];           /* "NVIDIA H200, compute capability 9.0, CUDA 13.0" */
} bnet_backend_stats;

/* Where a device's memory is, in bytes, and how the weights came there. */
typedef struct bnet_usage {
    uint64_t weights, caches, workspace; /* ours, by purpose */
    uint64_t own, own_peak; /* ours as they were taken of the driver, now and at most */
    uint64_t spare;         /* of own: given back when something else lacks memory */
    uint64_t foreign;       /* in use before us: the driver's context, other programs */
    uint64_t total;
    uint64_t load_bytes; /* of the file */
    double load_ms;      /* from the first tensor read to the last one there */
} bnet_usage;

/* What one launch of a kernel takes of a device. */
typedef struct bnet_launch_shape {
    unsigned grid[3], block; /* threads */
    unsigned shared_bytes;   /* of a block, static and dynamic */
    int registers;           /* of a thread */
    int blocks_per_sm;       /* that fit at once; 0: not known */
    double occupancy;        /* threads of these / those a multiprocessor can hold */
} bnet_launch_shape;

/* All launches of one kernel while profiling; `ms` by the device's clock. */
typedef struct bnet_kernel_time {
    const char *id, *op;
    int symbol; /* which of the row's */
    uint64_t n;
    double ms;
    bnet_launch_shape shape; /* of the last one */
} bnet_kernel_time;

typedef struct bnet_backend_vtable {
    const char *name;
    int n_ranks; /* devices behind it, each of which has its own copy of every buffer; 0: one */
    void (*close)(bnet_backend *be);
    bnet_buffer *(*buffer_new)(bnet_backend *be, size_t n_bytes); /* NULL: no memory */
    void (*buffer_free)(bnet_backend *be, bnet_buffer *b);
    /* A host view of the first n bytes, valid until the next op on this buffer. */
    const void *(*read)(bnet_backend *be, bnet_buffer *b, size_t n_bytes);
    /* Overwrites the first n bytes; host memory may be reused when it returns. */
    void (*write)(bnet_backend *be, bnet_buffer *b, const void *bytes, size_t n_bytes);
    bitnet_status (*sync)(bnet_backend *be, bitnet_error *err);
    /* Optional, both, around operations that belong together, of one thread; may be nested: nobody
     * else's come between, so that what sync or `release` tells is their failure and no other's.
     * release tells what is known without waiting. */
    void (*hold)(bnet_backend *be);
    bitnet_status (*release)(bnet_backend *be, bitnet_error *err);

    /* Optional: before any weight. It may refuse the network. */
    bitnet_status (*expect)(bnet_backend *be, const bnet_expect *e, const bnet_log *log,
                            bitnet_error *err);
    /* May repack; owns the result; the mapped file stays as it is and must stay open. */
    bitnet_status (*weight_prepare)(bnet_backend *be, const bnet_weight_request *r,
                                    const bnet_log *log, bnet_weight **out, bitnet_error *err);
    void (*weight_free)(bnet_backend *be, bnet_weight *w);
    const bnet_weight_info *(*weight_info)(const bnet_weight *w);
    /* All weights of a model were prepared. NULL: nothing to do then. */
    void (*weights_done)(bnet_backend *be, const bnet_log *log);

    bnet_kv_store *(*kv_new)(bnet_backend *be, const bnet_kv_shape *shape); /* NULL: no memory */
    void (*kv_free)(bnet_backend *be, bnet_kv_store *kv);
    uint64_t (*kv_block_bytes)(const bnet_kv_shape *shape); /* one block, one layer */
    void *(*kv_block)(bnet_kv_store *kv, int layer,
                      int block); /* host view, for saving and restoring */
    /* Where memory has no host view (kv_block is NULL): one block of one layer to and from the
     * host, zeros into one block of every layer, one block of every layer to another block (the
     * stores may differ in n_blocks alone). Failures show at sync. */
    void (*kv_get)(bnet_kv_store *kv, int layer, int block, void *bytes);
    void (*kv_put)(bnet_kv_store *kv, int layer, int block, const void *bytes);
    void (*kv_clear)(bnet_kv_store *kv, int block);
    void (*kv_copy)(bnet_kv_store *dst, int to, const bnet_kv_store *src, int from);

    void (*embed)(bnet_backend *be, const bnet_weight *w, const bnet_step *s,
                  bnet_buffer *x); /* x [T][K] */
    void (*rmsnorm)(bnet_backend *be, bnet_buffer *x, const bnet_weight *w, float eps, int n_rows,
                    bnet_buffer *y);
    void (*quantize_i8)(bnet_backend *be, bnet_buffer *x, int n_rows, size_t n_cols, bnet_act8 *q);
    /* Optional: what stands before a ternary matrix, with the bits of the single operations: x +=
     * plus (NULL: nothing is added), then q = int8 of rmsnorm(x). y [T][K] is room to work in, what
     * is there then is not said; it may be x if nothing is added. */
    void (*norm_quantize)(bnet_backend *be, bnet_buffer *x, bnet_buffer *plus, const bnet_weight *w,
                          float eps, int n_rows, bnet_buffer *y, bnet_act8 *q);
    /* Optional, where norm_quantize is: q = int8 of rmsnorm(glu(gate, up)); y may be gate. */
    void (*glu_norm_quantize)(bnet_backend *be, bool relu2, bnet_buffer *gate, bnet_buffer *up,
                              const bnet_weight *w, float eps, int n_rows, bnet_buffer *y,
                              bnet_act8 *q);
    void (*linear_ternary)(bnet_backend *be, const bnet_weight *w, const bnet_act8 *q, int n_rows,
                           bnet_buffer *y);
    /* Optional: several matrices on one input, as that many calls would do. */
    void (*linear_ternary_n)(bnet_backend *be, const bnet_weight *const *w, int n,
                             const bnet_act8 *q, int n_rows, bnet_buffer *const *y);
    void (*linear_float)(bnet_backend *be, const bnet_weight *w, bnet_buffer *x, int n_rows,
                         bnet_buffer *y);
    /* Optional: what sampling may ask of one row of logits, without computing all of them exactly.
     * top_bytes: what `scratch` must hold for this weight; 0: it is not served. top: x [1][K]; the
     * result lies in scratch. False: it does not pay this time, compute all. */
    size_t (*top_bytes)(const bnet_backend *be, const bnet_weight *w);
    bool (*top)(bnet_backend *be, const bnet_weight *w, bnet_buffer *x, const bnet_top_want *want,
                bnet_buffer *scratch, bnet_top *out);
    /* cos/sin [T][n_rot/2] of every token's position, once per pass */
    void (*rope_table)(bnet_backend *be, const bnet_rope *r, const bnet_step *s, bnet_buffer *cs);
    void (*rope)(bnet_backend *be, const bnet_rope *r, bnet_buffer *cs, int n_rows, int n_heads,
                 bnet_buffer *x);
    void (*kv_append)(bnet_backend *be, const bnet_step *s, int layer, bnet_buffer *k,
                      bnet_buffer *v);
    /* q, y [T][n_heads][head_dim]; each token sees positions 0..pos of its timeline */
    void (*attention)(bnet_backend *be, const bnet_step *s, int layer, int n_heads, bnet_buffer *q,
                      bnet_buffer *y);
    void (*glu_relu2)(bnet_backend *be, bnet_buffer *gate, bnet_buffer *up, size_t n,
                      bnet_buffer *y);
    void (*glu_silu)(bnet_backend *be, bnet_buffer *gate, bnet_buffer *up, size_t n,
                     bnet_buffer *y);
    void (*add)(bnet_backend *be, bnet_buffer *x, bnet_buffer *y, size_t n); /* x += y */
    void (*gather)(bnet_backend *be, bnet_buffer *x, const int32_t *rows, int n_rows, size_t n_cols,
                   bnet_buffer *y);

    /* Optional: a whole pass, layers and final norm, meaning what the single operations mean.
     * False: this network or step is not for it, compose. */
    bool (*pass)(bnet_backend *be, const bnet_pass *p);
    /* With it: memory that passes of up to n_tokens take beside weights, caches and buffers, of all
     * sessions together: what there is not of it yet; and taking it. False: no memory. */
    uint64_t (*pass_bytes)(bnet_backend *be, const bnet_net *net, int n_tokens);
    bool (*pass_reserve)(bnet_backend *be, const bnet_net *net, int n_tokens);
    /* Optional, both, around the single operations of a pass: an equal one that was composed before
     * may be repeated, then nothing is to be composed; `composed` says false: compose it again. */
    bool (*repeat)(bnet_backend *be, const bnet_pass *p);
    bool (*composed)(bnet_backend *be);
    /* Optional: how fast the device's own memory can be read, measured now, in GB/s. */
    double (*read_limit)(bnet_backend *be);

    /* Optional: n operations of bnet_plain that do not need each other, until they are done, from
     * any thread. Fails MEMORY (all it took is given back), NOT_AVAILABLE (no kernel, or the device
     * failed). */
    bitnet_status (*plain)(bnet_backend *be, bnet_plain *p, size_t n, bitnet_error *err);

    size_t (*kernels)(const bnet_backend *be, bitnet_kernel_use *out,
                      size_t cap); /* those that ran */
    /* What follows belongs to this layer, -1: to none. NULL: this backend does not ask. */
    void (*mark)(bnet_backend *be, int layer);
    /* Calls that a dequantised fallback served for want of a kernel; NULL: never. */
    uint64_t (*fallbacks)(const bnet_backend *be);
    /* The distinct (op, format, dtype, n, k) of the weights prepared so far, m = 0; returns how
     * many there are. NULL: unknown. */
    size_t (*shapes)(const bnet_backend *be, bnet_kernel_query *out, size_t cap);
    /* Measuring for tuning: a synthetic weight and input of the query's shape, then one timed call
     * of a given kernel at a time. NULL: this backend is not tuned. */
    bitnet_status (*bench_new)(bnet_backend *be, const bnet_kernel_query *q, bnet_bench **out,
                               bitnet_error *err);
    double (*bench_run)(bnet_bench *b, const bnet_kernel_record *k); /* milliseconds */
    void (*bench_free)(bnet_bench *b);
    /* How the last one was launched; NULL: nothing is launched (CPU). */
    void (*bench_shape)(bnet_bench *b, bnet_launch_shape *out);
    /* What kernels may use on the device; NULL: what the runtime knows of the CPU. */
    const bnet_capabilities *(*capabilities)(const bnet_backend *be);
    /* Transfers, pool and precisions of a device; NULL: there is nothing of the kind (CPU). */
    void (*stats)(const bnet_backend *be, bnet_backend_stats *out);
    /* Optional: where memory was last missing when buffer_new or kv_new said NULL, for messages:
     * written to `out`, "" if it never was. */
    void (*short_of)(bnet_backend *be, char *out, size_t cap);
    /* The most tokens of a pass that its memory is planned for; NULL: any number. */
    int (*batch_limit)(const bnet_backend *be);
    /* Memory of the device; NULL: it has none of its own (CPU). */
    void (*usage)(bnet_backend *be, bnet_usage *out);
    /* It adds the time of its operations to the meter itself, by `stats` at the latest. */
    bool own_clock;
    /* Optional: from now on every kernel is launched and timed by itself, and no longer. False: it
     * cannot be done. What was measured since; returns how many kernels there are. */
    bool (*profile)(bnet_backend *be, bool on);
    size_t (*profile_read)(bnet_backend *be, bnet_kernel_time *out, size_t cap);
    /* Optional, for checking. False: it knows no such operation. */
    bool (*alone)(bnet_backend *be, const bnet_alone *a);
} bnet_backend_vtable;

/* Time spent in operations, of all sessions together. Counted in ops.c where an engine wants it. */
typedef enum bnet_op_class {
    BNET_OP_MATMUL,
    BNET_OP_QUANTIZE,
    BNET_OP_OTHER,
    BNET_OP_CLASSES,
    BNET_OP_NONE = BNET_OP_CLASSES
} bnet_op_class;

typedef enum bnet_op_entry {
#define ENTRY(key, name, class) BNET_ENTRY_##key,
#include "ops/entries.inc"
#undef ENTRY
    BNET_OP_ENTRIES
} bnet_op_entry;

typedef struct bnet_meter {
    atomic_uint_fast64_t n[BNET_OP_ENTRIES], ns[BNET_OP_ENTRIES];
} bnet_meter;

const char *bnet_entry_name(bnet_op_entry e);
bnet_op_class bnet_entry_class(bnet_op_entry e);
/* Around what is timed; meter NULL: nothing is. */
static inline double bnet_meter_start(const bnet_meter *m)
{
    return m ? bnet_now_ms() : 0;
}
void bnet_meter_stop(bnet_meter *m, bnet_op_entry e, double begun);

struct bnet_backend {
    const bnet_backend_vtable *v;
    bnet_meter *meter; /* NULL: nothing is timed */
};

/* ---- backends (one line each in backends.inc) ---- */

/* Where a backend may keep what it made of the weights, and what that must have been made of. */
typedef struct bnet_pack_cache {
    const char *path, *identity;
    uint64_t min_bytes; /* less is not worth a file */
} bnet_pack_cache;

/* What an engine wants to compute with. Pool and registry must outlive the backend; kernels
 * registered before a weight is prepared can serve it. */
typedef struct bnet_backend_want {
    bnet_device_kind device;
    int index;                  /* which of that kind */
    bnet_selection_ranks ranks; /* several of them together; n < 2: one */
    bnet_pool *pool;
    const bnet_registry *registry;
    const char *isa; /* CPU: the highest set kernels may use; NULL: the best */
    bool strict;     /* a weight without a kernel is an error, never a fallback */
    const bnet_log *log;
    const bnet_pack_cache *cache; /* NULL: nothing is kept; read when the backend opens */
    const char *cache_dir;        /* where other things may be kept; NULL: nowhere */
    const char *nvrtc;            /* the run-time compiler's library; NULL: the system's */
    bool specialise;              /* kernels compiled for the model's shapes are preferred */
    bool ranges;                  /* passes are marked for a profiler */
    bool no_pack;                 /* weights are used as they lie in the file, where they can be */
    bitnet_precision precision;   /* of float matrices; the backend says in what it computes */
} bnet_backend_want;
#define BACKEND(name)                                                                              \
    bitnet_status bnet_##name##_open(const bnet_backend_want *w, bnet_backend **out,               \
                                     bitnet_error *err);
#include "ops/backends.inc"
#undef BACKEND
/* The one of the device's kind. Fails NOT_COMPILED where backends.inc has none, else as it does. */
bitnet_status bnet_backend_open(const bnet_backend_want *w, bnet_backend **out, bitnet_error *err);

/* The rows of each backend's kernels.inc, for the registry. */
#define BACKEND(name) const bnet_kernel_record *bnet_##name##_kernel_rows(size_t *n);
#include "ops/backends.inc"
#undef BACKEND

/* The name of every kernel row a backend has on any machine, so that what was computed elsewhere
 * can be checked here. */
typedef struct bnet_kernel_name {
    const char *id, *op, *format;
    bnet_device_kind device;
    const char
        *fused; /* further operations it may do in the same call, separated by spaces; or NULL */
} bnet_kernel_name;
#define BACKEND(name) const bnet_kernel_name *bnet_##name##_kernel_names(size_t *n);
#include "ops/backends.inc"
#undef BACKEND
/* Searches the names of all backends; NULL: no such kernel. */
const bnet_kernel_name *bnet_kernel_name_find(const char *id);

/* Every kernel is chosen by the registry, which must outlive the backend like the pool; kernels
 * registered before a weight is prepared can serve it. isa NULL: the best here; else the highest
 * set kernels may use. strict: a weight without a kernel is an error, never a fallback. Fails
 * ARGUMENT for an unknown isa, NOT_AVAILABLE for one this CPU lacks. */
bitnet_status bnet_backend_open_cpu(bnet_pool *pool, const bnet_registry *registry, const char *isa,
                                    bool strict, const bnet_log *log, bnet_backend **out,
                                    bitnet_error *err);
/* What kernels may use on this CPU, limited to a named instruction set (NULL: all it has). */
bitnet_status bnet_cpu_capabilities(const char *isa, bnet_capabilities *out, bitnet_error *err);
/* The i-th instruction set, lowest first, of any architecture; NULL past the end. */
const char *bnet_cpu_isa_at(int i);
/* Feature bits a named instruction set stands for, present or not. Fails ARGUMENT: unknown. */
bitnet_status bnet_cpu_isa_needs(const char *isa, uint32_t *needs, bitnet_error *err);
/* What this CPU could do at best, measured on all threads of the pool (limits.c): the rate of the
 * integer instructions the capabilities allow, best set first; returns how many. */
typedef struct bnet_cpu_peak {
    const char *name, *isa; /* "smmla", "i8mm" */
    double gop_s;
} bnet_cpu_peak;
size_t bnet_cpu_peaks(bnet_pool *pool, const bnet_capabilities *c, bnet_cpu_peak *out, size_t cap);
/* GB/s at which all threads together read memory that no cache holds: each one stream from end to
 * end, and the best that several streams and prefetching reach. */
typedef struct bnet_cpu_reads {
    double plain, best;
} bnet_cpu_reads;
/* cache_bytes: the last cache's size, 0: not known. */
bnet_cpu_reads bnet_cpu_read_rate(bnet_pool *pool, const bnet_capabilities *c,
                                  uint64_t cache_bytes);
void bnet_backend_close(bnet_backend *be); /* NULL is legal */
size_t bnet_backend_kernels(const bnet_backend *be, bitnet_kernel_use *out, size_t cap);
uint64_t bnet_backend_fallbacks(const bnet_backend *be);
const char *bnet_backend_at(int i); /* compiled backends by name; NULL past the end */

/* One compiled kernel, for listings. False past the end. */
typedef struct bnet_kernel_row {
    const char *id, *op, *format, *isa;
    bool available;
} bnet_kernel_row;
bool bnet_backend_kernel_at(int i, bnet_kernel_row *out);

#endif
