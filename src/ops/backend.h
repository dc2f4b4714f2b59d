/* backend.h - the contract between the model and whatever computes: resources and single
 * operations. A backend is a folder that fills this table. Two further tables are optional: pass.h
 * (whole passes and operations fused into one) and inspect.h (what a backend reports on itself).
 *
 * Shapes in comments: T tokens in the pass, K inputs, N outputs, all row-major. Buffers are the
 * backend's memory; the model never looks inside. Operations return nothing: ops.c has checked the
 * shapes, and sync reports failures. The scalar kernels of backend/cpu define what an operation
 * means: integers are exact, floats are within the bound that a kernel's row states. */
#ifndef BNET_BACKEND_H
#define BNET_BACKEND_H

#include <stdatomic.h>

#include "base/thread.h"
#include "format/weight_rows.h"
#include "ops/kv_block.h"
#include "ops/registry.h"

typedef struct bnet_backend bnet_backend;
typedef struct bnet_buffer bnet_buffer; /* bytes on the device */
typedef struct bnet_weight bnet_weight; /* a prepared matrix [N rows][K columns] */
/* Blocks of 64 positions of keys and values, of all layers. */
typedef struct bnet_kv_store bnet_kv_store;

typedef enum bnet_activation {
    BNET_ACT_RELU2, /* max(x, 0)^2 */
    BNET_ACT_SILU   /* x / (1 + e^-x) */
} bnet_activation;

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
    int n_units; /* its rows are this many equal groups, none of which may be divided (one for each
                    key/value head); 0: they can be divided anywhere */
    uint64_t first_row, n_rows; /* only these rows of a matrix; n_rows 0: all. GPUs only */
} bnet_weight_request;

/* What a backend learns about a network before its weights are prepared. */
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
    int n_heads; /* query heads that will read it; 0: not known */
} bnet_kv_shape;

/* One block of one layer. Every backend lays blocks out as kv_block.h says, so that one can read
 * what another saved. */
static inline uint64_t bnet_kv_layer_bytes(const bnet_kv_shape *s)
{
    return 2 * (uint64_t)s->n_kv_heads * bnet_kv_part_bytes(s->type, (size_t)s->head_dim);
}

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

typedef struct bnet_rope {
    const double *inv_freq; /* [n_rot / 2] */
    int n_rot, head_dim;
    bool neox;
} bnet_rope;

/* Every entry is required unless its comment says otherwise. */
typedef struct bnet_backend_vtable {
    const char *name;
    int n_ranks; /* devices behind it, each with its own copy of every buffer; 0: one */
    void (*close)(bnet_backend *be);

    /* ---- buffers ---- */
    bnet_buffer *(*buffer_new)(bnet_backend *be, size_t n_bytes); /* NULL: no memory */
    void (*buffer_free)(bnet_backend *be, bnet_buffer *b);
    /* A host view of the first n bytes, valid until the next operation on this buffer. */
    const void *(*read)(bnet_backend *be, bnet_buffer *b, size_t n_bytes);
    /* Overwrites the first n bytes; host memory may be reused when it returns. */
    void (*write)(bnet_backend *be, bnet_buffer *b, const void *bytes, size_t n_bytes);

    /* ---- order and failures ---- */
    /* Waits for everything asked so far; returns the first failure since the last call. */
    bitnet_status (*sync)(bnet_backend *be, bitnet_error *err);
    /* Optional, both, around operations of one thread that belong together; pairs may be nested.
     * No other thread's operations come between them, so a failure that sync or release returns is
     * theirs. release does not wait: it returns the failures known so far. */
    void (*hold)(bnet_backend *be);
    bitnet_status (*release)(bnet_backend *be, bitnet_error *err);

    /* ---- weights ---- */
    /* Optional: called before any weight is prepared. It may refuse the network. */
    bitnet_status (*expect)(bnet_backend *be, const bnet_expect *e, const bnet_log *log,
                            bitnet_error *err);
    /* May repack; owns the result. The mapped file is not written to and must stay open. */
    bitnet_status (*weight_prepare)(bnet_backend *be, const bnet_weight_request *r,
                                    const bnet_log *log, bnet_weight **out, bitnet_error *err);
    void (*weight_free)(bnet_backend *be, bnet_weight *w);
    const bnet_weight_info *(*weight_info)(const bnet_weight *w);
    /* Optional: called once all weights of a model are prepared. */
    void (*weights_done)(bnet_backend *be, const bnet_log *log);

    /* ---- the cache ---- */
    bnet_kv_store *(*kv_new)(bnet_backend *be, const bnet_kv_shape *shape); /* NULL: no memory */
    void (*kv_free)(bnet_backend *be, bnet_kv_store *kv);
    /* One block of one layer to and from the host; zeros into one block of every layer; one block
     * of every layer to another one (the stores may differ in n_blocks alone). */
    void (*kv_get)(bnet_kv_store *kv, int layer, int block, void *bytes);
    void (*kv_put)(bnet_kv_store *kv, int layer, int block, const void *bytes);
    void (*kv_clear)(bnet_kv_store *kv, int block);
    void (*kv_copy)(bnet_kv_store *dst, int to, const bnet_kv_store *src, int from);

    /* ---- operations ---- */
    void (*embed)(bnet_backend *be, const bnet_weight *w, const bnet_step *s,
                  bnet_buffer *x); /* x [T][K] */
    void (*rmsnorm)(bnet_backend *be, bnet_buffer *x, const bnet_weight *w, float eps, int n_rows,
                    bnet_buffer *y);
    void (*quantize_i8)(bnet_backend *be, bnet_buffer *x, int n_rows, size_t n_cols, bnet_act8 *q);
    void (*linear_ternary)(bnet_backend *be, const bnet_weight *w, const bnet_act8 *q, int n_rows,
                           bnet_buffer *y);
    void (*linear_float)(bnet_backend *be, const bnet_weight *w, bnet_buffer *x, int n_rows,
                         bnet_buffer *y);
    /* cos/sin [T][n_rot/2] of every token's position, once per pass */
    void (*rope_table)(bnet_backend *be, const bnet_rope *r, const bnet_step *s, bnet_buffer *cs);
    void (*rope)(bnet_backend *be, const bnet_rope *r, bnet_buffer *cs, int n_rows, int n_heads,
                 bnet_buffer *x);
    void (*kv_append)(bnet_backend *be, const bnet_step *s, int layer, bnet_buffer *k,
                      bnet_buffer *v);
    /* q, y [T][n_heads][head_dim]; each token sees positions 0..pos of its timeline. What lies
     * behind these rows of y is scratch: its contents are unspecified afterwards. */
    void (*attention)(bnet_backend *be, const bnet_step *s, int layer, int n_heads, bnet_buffer *q,
                      bnet_buffer *y);
    /* y = act(gate) * up; y may be gate */
    void (*glu)(bnet_backend *be, bnet_activation act, bnet_buffer *gate, bnet_buffer *up, size_t n,
                bnet_buffer *y);
    void (*add)(bnet_backend *be, bnet_buffer *x, bnet_buffer *y, size_t n); /* x += y */
    void (*gather)(bnet_backend *be, bnet_buffer *x, const int32_t *rows, int n_rows, size_t n_cols,
                   bnet_buffer *y);
} bnet_backend_vtable;

/* Time spent in operations, of all sessions together. Counted in ops.c where an engine wants it. */
typedef enum bnet_op_class {
    BNET_CLASS_MATMUL,
    BNET_CLASS_QUANTIZE,
    BNET_CLASS_OTHER,
    BNET_CLASSES,
    BNET_CLASS_NONE = BNET_CLASSES
} bnet_op_class;

typedef enum bnet_op_entry {
#define ENTRY(key, name, class) BNET_ENTRY_##key,
#include "ops/entries.inc"
#undef ENTRY
    BNET_ENTRIES
} bnet_op_entry;

typedef struct bnet_meter {
    atomic_uint_fast64_t n[BNET_ENTRIES], ns[BNET_ENTRIES];
} bnet_meter;

const char *bnet_entry_name(bnet_op_entry e);
bnet_op_class bnet_entry_class(bnet_op_entry e);
/* Around what is timed. meter NULL: nothing is timed. */
static inline double bnet_meter_start(const bnet_meter *m)
{
    return m ? bnet_now_ms() : 0;
}
void bnet_meter_stop(bnet_meter *m, bnet_op_entry e, double begun);

typedef struct bnet_pass_ops bnet_pass_ops;       /* pass.h */
typedef struct bnet_inspect_ops bnet_inspect_ops; /* inspect.h */
typedef struct bnet_trace bnet_trace;             /* trace.h */

struct bnet_backend {
    const bnet_backend_vtable *v;
    const bnet_pass_ops *pass;       /* NULL: every pass is composed of single operations */
    const bnet_inspect_ops *inspect; /* NULL: it reports nothing on itself */
    bnet_meter *meter;               /* NULL: nothing is timed */
    bnet_trace *trace;               /* owned; NULL: results leave no trace */
};

void bnet_backend_close(bnet_backend *be); /* NULL is legal */
const char *bnet_backend_name(const bnet_backend *be);

#endif
