/* tee.h - a backend made of two: every operation runs on both and is compared. */
#ifndef BNET_TEE_H
#define BNET_TEE_H

#include "ops/inspect.h"
#include "ops/ops.h"

enum { BNET_TEE_KERNELS = 96 };

/* The first result of the second backend that is not what the first one's should be. */
typedef struct bnet_tee_diff {
    const char *op;   /* entry of the table: "linear_ternary" */
    char tensor[64];  /* of the weight, "" without one */
    int layer;        /* -1: outside the layers */
    int row;          /* of the pass */
    int32_t position; /* of that row's token in its timeline; -1: not known */
    size_t element;   /* inside the row */
    double first, second;
    double bound; /* |first - second| that would have been accepted; 0: equal bits wanted */
    char kernels[2][BNET_TEE_KERNELS]; /* ids that ran on either side, separated by spaces */
} bnet_tee_diff;

typedef struct bnet_tee_report {
    uint64_t n_ops;     /* operations compared */
    uint64_t n_values;  /* numbers compared */
    uint64_t n_differ;  /* operations whose results were not accepted */
    uint64_t n_ties;    /* int8 values accepted one apart, on a rounding tie */
    double max_error;   /* largest |first - second| of finite float results */
    double max_share;   /* the same, of the largest value of its row */
    bnet_tee_diff diff; /* valid if n_differ > 0 */
} bnet_tee_report;

typedef struct bnet_tee_side {
    bnet_backend *backend;         /* owned by the tee once it is open */
    const bnet_registry *registry; /* where its kernels' agreements stand; outlives the tee */
} bnet_tee_side;

/* A backend that runs every operation on both, the second one on copies of the first one's inputs,
 * and compares. The first one's results are used from there on. One pass at a time. Closing it
 * closes both sides; if opening fails, neither is closed. */
bitnet_status bnet_backend_open_tee(const bnet_tee_side *first, const bnet_tee_side *second,
                                    bnet_backend **out, bitnet_error *err);
const bnet_tee_report *bnet_tee_result(const bnet_backend *tee);

/* ---- what counts as the same (tee_compare.c) ---- */

#define BNET_ULP (1.0 / 8388608.0) /* 2^-23: a float's last place, of a value in [1, 2) */

/* Units in the last place that a record's agreement allows: "close(4 ulp)": 4. 0: equal bits, also
 * for an agreement that cannot be read and for NULL. */
double bnet_agreement_ulps(const bnet_kernel_record *k);

/* How far values are from those wanted. Values with equal bits do not differ; a difference that is
 * not a number counts as the largest. */
typedef struct bnet_difference {
    double most; /* the largest |wanted| */
    double off;  /* the largest |value - wanted| */
    size_t at;   /* where that is */
} bnet_difference;
bnet_difference bnet_difference_of(const float *values, const float *wanted, size_t n);

/* ---- the inside, shared by the files of the tee. Every object is a pair, one half per side; side
 * 0 is the one whose results are passed on ---- */

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

/* Remembers the counters of both sides. The ulps of the call are 0; those that the caller sets hold
 * where no kernel states an agreement. */
tee_call bnet_tee_begin(tee_backend *t, const char *op, const tee_weight *w, size_t n_rows,
                        size_t n_cols);
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
