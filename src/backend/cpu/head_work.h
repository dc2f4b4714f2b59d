/* head_work.h - a call for the largest logits, shared by its two stages: head_bounds.c bounds every
 * logit, head_exact.c computes those that can matter. ops_head.c has the proof. */
#ifndef BNET_HEAD_WORK_H
#define BNET_HEAD_WORK_H

#include "backend/cpu/cpu.h"
#include "backend/cpu/head_input.h"

enum {
    TOP_CHUNK = 48, /* rows between two looks at the bounds, which stay in the second-level cache
                       while all inputs pass; a multiple of 8, and of the 16 of Q6_K and the 24 of
                       the copy that AVX-512 scans at once */
    TOP_MAX = 2048, /* k, at most */
    TOP_SHARE = 8,  /* more than 1 / TOP_SHARE of the rows: all of them is quicker */
    TOP_EIGHTS = (BNET_TOP_ROWS + BNET_COPY_INPUTS - 1) / BNET_COPY_INPUTS
};
_Static_assert((int)TOP_EIGHTS <= (int)BNET_COPY_EIGHTS, "inputs are scanned in one call");

/* One row of logits that something is wanted of. */
typedef struct top_row {
    const bnet_top_want *want;
    const float *in;
    float *y; /* [n_out] a, then a + b; then the ids that are listed, and from list_cap on their
                 logits */
    bnet_head_arrays as; /* `in` for the scan of the rows themselves */
    float unit, c, d;
    size_t k; /* of the largest a - b that are kept, from place `first` of the heaps on */
    size_t first;
    size_t n_ids;
    float *upper;      /* [list_cap] a + b of the rows that are listed */
    size_t n_first;    /* of them are computed first: k or none */
    float first_least; /* their least a + b, or less */
    bool served;
} top_row;

/* Everything of a call, in the caller's scratch. */
typedef struct top_work {
    top_row rows[BNET_TOP_ROWS];
    int n_rows;
    int n_shares;         /* of the scan */
    float *best;          /* [shares][TOP_MAX] heaps of the largest a - b, least first */
    size_t *n_best;       /* [shares][BNET_TOP_ROWS] */
    uint8_t *plain;       /* [threads][row_bytes] a packed row made plain */
    int8_t *two;          /* [BNET_TOP_ROWS / 2][n_in / 64][BNET_HEAD_TWO] pairs of rows */
    const cpu_copy *copy; /* what is scanned; NULL: the rows themselves */
    bnet_head_eight eights[TOP_EIGHTS];
    size_t n_x; /* rows in the eights */
} top_work;

/* Rows that may be listed: their ids and logits share the n_out places of y. */
static inline size_t top_list_cap(const bnet_weight *w)
{
    return BNET_MIN(w->info.n_out / TOP_SHARE + TOP_CHUNK, w->info.n_out / 2);
}

static inline size_t top_padded(size_t n)
{
    return (n + BNET_HEAD_ALIGN - 1) / BNET_HEAD_ALIGN * BNET_HEAD_ALIGN;
}

/* A pair of rows, see head.h. */
static inline size_t top_two_bytes(const bnet_weight *w)
{
    return w->info.n_in / 64 * BNET_HEAD_TWO;
}

static inline int32_t *top_ids(const top_row *t)
{
    return (int32_t *)(void *)t->y;
}

/* Keeps the k largest of what it is given, the least of them in front. */
void bnet_top_keep(float *heap, size_t *n, size_t k, float v);
/* Runs a job on the threads if there is enough to do; returns how many shares there were. */
int bnet_top_run(cpu_backend *be, size_t n_products, bnet_job job, void *arg);

/* ---- stage one ---- */

/* Fills what the scan reads of a row, and unit, c and d of the bound. False: the scan cannot take
 * this input. */
bool bnet_top_input(const bnet_weight *w, top_work *work, top_row *t);
/* Fills y of the rows with k > 0, and the heaps. Returns how many rows these are. */
size_t bnet_top_bound(cpu_backend *be, const bnet_weight *w, top_work *t);
/* The k-th largest lower bound of all rows of weights; -infinity if there are fewer. */
float bnet_top_threshold(const top_work *t, int r);

/* ---- stage two ---- */

/* What the scan has left to compute. */
typedef struct top_left {
    size_t n_rows; /* of weights, for all rows with k > 0 that are served */
    bool too_many; /* for one of them, which is not served */
} top_left;

/* Lists what can matter of every row, and computes it. */
top_left bnet_top_exact(cpu_backend *be, const bnet_weight *w, top_work *t);

#endif
