/* tee_impl.h - the inside of the tee, shared by its files. Every object is a pair, one half per
 * side; side 0 is the one whose results are passed on. */
#ifndef BNET_TEE_IMPL_H
#define BNET_TEE_IMPL_H

#include "check/tee.h"
#include "ops/inspect.h"
#include "ops/ops.h"

typedef struct tee_buffer {
    bnet_buffer *half[2];
    int32_t *pos; /* positions of its rows in their timelines; embed and gather know them */
    size_t n_pos, cap_pos;
} tee_buffer;

typedef struct tee_weight {
    bnet_weight *half[2];
    const bnet_backend *first; /* side 0 */
    char name[64];
} tee_weight;

typedef struct tee_kv {
    bnet_kv_store *half[2];
    const bnet_backend *first; /* side 0 */
    bnet_kv_shape shape;
} tee_kv;

typedef struct tee_side {
    bnet_backend *be;
    const bnet_registry *registry;
    bitnet_kernel_use *before, *after; /* [BNET_KERNELS_MAX] calls before and after an operation */
    size_t n_before;
    bnet_seq *seqs; /* timelines of a step with this side's stores */
    size_t cap_seqs;
} tee_side;

typedef struct tee_backend {
    bnet_backend base; /* first: a bnet_backend * is a tee_backend * */
    bnet_backend_vtable table;
    tee_side side[2];
    int layer;
    const tee_buffer *now; /* whose rows the pass consists of */
    bnet_tee_report report;
    bool no_memory;    /* told at sync */
    uint8_t *block[2]; /* one block of a cache, of either side */
    size_t cap_block[2];
} tee_backend;

/* One operation being compared: n_rows rows of n_cols results. */
typedef struct tee_call {
    tee_backend *tee;
    const char *op, *tensor;
    int layer;
    size_t n_rows, n_cols;
    double ulps; /* accepted difference in units of 2^-23 of the row's largest value; 0: none */
    bool differs;
} tee_call;

/* Remembers the counters of both sides. `ulps` holds where no kernel states an agreement. */
tee_call bnet_tee_begin(tee_backend *t, const char *op, const tee_weight *w, size_t n_rows,
                        size_t n_cols, double ulps);
/* Asks both sides which kernels ran and takes the looser of what their records promise. */
void bnet_tee_ran(tee_call *c);
void bnet_tee_floats(tee_call *c, const float *a, const float *b);
/* The int8 form of x [n_rows][n_cols], its scales and sums; both sides. */
typedef struct tee_quantized {
    const int8_t *q;
    const float *scale;
    const int32_t *sum;
} tee_quantized;
void bnet_tee_quantized(tee_call *c, const float *x, size_t stride, const tee_quantized *a,
                        const tee_quantized *b);
/* What one token's key or value of one head became in the cache. x: the floats it came from. */
void bnet_tee_cached(tee_call *c, size_t row, size_t first_element, const tee_kv *kv, size_t pos,
                     const float *x, const uint8_t *a, const uint8_t *b);
/* Counts the operation, and the difference if there was one. */
void bnet_tee_end(const tee_call *c);

/* The entries of the table that compute (tee_ops.c). */
void bnet_tee_fill(bnet_backend_vtable *v);

#endif
