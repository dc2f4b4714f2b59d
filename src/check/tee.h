/* tee.h - a backend made of two: every operation runs on both and is compared. */
#ifndef BNET_TEE_H
#define BNET_TEE_H

#include "ops/backend.h"

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

#endif
