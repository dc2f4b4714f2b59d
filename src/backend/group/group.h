/* group.h - several GPUs as one backend: every rank is the backend of one device, and no layer
 * above knows it. Hides: which rank has which rows, layers and heads, and when data is transferred.
 *
 * A buffer is whole on some ranks, or divided: rank r has columns [first[r], first[r + 1]) of every
 * row, packed, or of a single row in its place. Each operation runs where its operands are (its
 * weight's ranks, its layer's rank, else where the first operand is whole); what is missing there
 * is fetched first. So by layers the hidden state moves when the next layer's norm asks for it, and
 * by rows (tensor parallel) divided results are put together when somebody needs whole rows.
 *
 * Why nothing is ever summed across ranks: the outputs of o and down could be partial sums of each
 * rank's columns, but their input is normed and quantised to int8 as a whole row first, and float
 * sums depend on their order. So heads and activations are gathered, every rank norms and quantises
 * the whole row, and all matrices are divided by rows. Four gathers per layer, and the bits are
 * those of one device in whatever order anything arrives. */
#ifndef BNET_GROUP_H
#define BNET_GROUP_H

#include "backend/group/exchange.h"
#include "backend/group/shares.h"

typedef uint32_t rank_set; /* bit r: rank r */

typedef struct group_buffer {
    size_t n_bytes;
    bnet_buffer *at[GPU_RANKS];
    rank_set whole; /* ranks that have all of it; meaningless while divided */
    bool divided;
    size_t n_rows; /* and columns, if divided */
    uint64_t first[GPU_RANKS + 1];
    bool in_place;    /* one row in equal parts: each lies where it belongs */
    uint64_t read_at; /* the exchange's n_settled when ranks read each other's; 0: never */
    uint8_t *host;    /* what divided rows were read into, pinned */
} group_buffer;

typedef struct group_weight {
    bnet_weight_info info;
    bnet_weight *at[GPU_RANKS];
    rank_set ranks;
    bool divided;
    uint64_t first[GPU_RANKS + 1]; /* rows, if divided */
} group_weight;

typedef struct gpu_group {
    bnet_backend base; /* first: a bnet_backend * is a gpu_group * */
    bnet_backend_vtable table;
    bnet_pass_ops pass;
    bnet_inspect_ops inspect;
    bnet_split_kind split;
    int n;
    bnet_backend *rank[GPU_RANKS];
    gpu_rank_facts facts[GPU_RANKS];
    bnet_memory_plan plan; /* of the rank with the least memory (DET-14) */
    int least;             /* that rank */
    gpu_exchange *exchange;
    pthread_mutex_t
        lock; /* an operation is several of the ranks', a recording several operations */
    bnet_log log;
    uint64_t layers[GPU_RANKS + 1]; /* by layers: first of each rank */
    const group_weight *embd;       /* whose rows ids are of */
    bnet_seq *seqs;                 /* a step as one rank sees it */
    int32_t *ids;
    size_t cap_seqs, cap_ids;
    bool no_memory; /* of the host's; told at sync */
    struct {
        int rank; /* of which buffer_new or kv_new had no memory last */
        bool any;
        uint64_t left;
    } missing;
    struct group_records *records;
    uint32_t epoch; /* changes when a buffer or weight that recorded work knows is gone */
} gpu_group;

typedef struct group_kv {
    gpu_group *g; /* entries that get no backend need it */
    bnet_kv_store *at[GPU_RANKS];
    uint64_t heads[GPU_RANKS + 1]; /* key/value heads, divided by rows */
    size_t head_bytes;             /* of a block */
} group_kv;

static inline gpu_group *group_of(bnet_backend *b)
{
    return (gpu_group *)b;
}
static inline group_buffer *group_buf(bnet_buffer *b)
{
    return (group_buffer *)(void *)b;
}
static inline const group_weight *group_w(const bnet_weight *w)
{
    return (const group_weight *)(const void *)w;
}
static inline rank_set all_ranks(const gpu_group *g)
{
    return (rank_set)((UINT64_C(1) << g->n) - 1);
}
/* Around every entry of the table. Ranks time themselves, with the meter the group has now. */
static inline void group_lock(gpu_group *g)
{
    pthread_mutex_lock(&g->lock);
    for (int r = 0; r < g->n; r++)
        g->rank[r]->meter = g->base.meter;
}
static inline void group_unlock(gpu_group *g)
{
    pthread_mutex_unlock(&g->lock);
}
static inline bool has_rank(rank_set s, int r)
{
    return s >> r & 1;
}

/* Which rank has a layer (-1: the input side, before all layers; past the last: the output side).
 */
int bnet_group_rank_of(const gpu_group *g, int layer);

/* ---- what travels (group_transfers.c) ---- */

/* The first n bytes are whole on these ranks when it returns. */
void bnet_group_need(gpu_group *g, group_buffer *b, rank_set ranks, size_t n_bytes);
/* The buffer is about to be written: whole on these ranks, or in parts. */
void bnet_group_make(gpu_group *g, group_buffer *b, rank_set ranks);
void bnet_group_make_divided(gpu_group *g, group_buffer *b, const uint64_t *first, size_t n_rows);
/* What rank r has of a buffer, as the backend of the rank takes it; `view` may be needed. */
bnet_buffer *bnet_group_part(const group_buffer *b, int r, gpu_buffer *view);
/* Every rank has an x of its own: of each row the one of its owner (bnet_group_owners) is kept. */
void bnet_group_pick(gpu_group *g, group_buffer *x, int n_rows, size_t n_cols);
const void *bnet_group_read(bnet_backend *b, bnet_buffer *buf, size_t n_bytes);
void bnet_group_forget(gpu_group *g, group_buffer *b); /* before it is freed */

/* The step as rank r sees it: its own caches, and ids relative to its rows of the embedding. It is
 * the same for all operations of a pass, so that it is uploaded once. False: no memory. */
bool bnet_group_step(gpu_group *g, const bnet_step *s, int r, bnet_step *out);
/* Into g->ids: of row t of the step, rank * n_tokens + t. */
void bnet_group_owners(gpu_group *g, const bnet_step *s);

/* ---- passes that are repeated (group_record.c) ---- */

bool bnet_group_repeat(bnet_backend *b, const bnet_pass *p);
bool bnet_group_composed(bnet_backend *b);
/* A buffer is about to be written or moved: while recording, its state is noted. */
void bnet_group_touch(gpu_group *g, group_buffer *b);
/* Where the owners' rows lie on rank r; nowhere: they must be brought. */
gpu_at bnet_group_owners_at(const gpu_group *g, int r);
void bnet_group_records_free(gpu_group *g);

void bnet_group_fill_ops(bnet_backend_vtable *v); /* group_ops.c */
void bnet_group_fill_kv(bnet_backend_vtable *v);  /* group_kv.c */

/* group_report.c */
void bnet_group_fill_report(gpu_group *g);
void bnet_group_say_memory(gpu_group *g);
void bnet_group_plan(gpu_group *g);           /* from its ranks' */
void bnet_group_missing(gpu_group *g, int r); /* rank r had no memory; locked */
const bnet_gpu *bnet_group_gpu(const gpu_group *g, int r);

/* How a vendor opens one device as a backend, and joins several. */
typedef struct gpu_group_vendor {
    bitnet_status (*open_one)(const bnet_backend_want *w, bnet_backend **out, bitnet_error *err);
    bitnet_status (*join)(gpu_backend *const *ranks, int n, const bnet_log *log, gpu_exchange **out,
                          bitnet_error *err);
} gpu_group_vendor;
/* Opens the ranks of w (at least two; every one is a backend of its own, also where two are on one
 * device) and makes one backend of them. On failure nothing stays open. Fails NOT_AVAILABLE where
 * the driver has no calls for several devices. */
bitnet_status bnet_group_open(const bnet_backend_want *w, const gpu_group_vendor *vendor,
                              bnet_backend **out, bitnet_error *err);

#endif
