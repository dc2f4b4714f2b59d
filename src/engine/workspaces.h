/* workspaces.h - what a pass needs besides weights and caches. An engine has a few workspaces and
 * lends them for the time of a call, so that sessions that are not computing hold none. */
#ifndef BNET_WORKSPACES_H
#define BNET_WORKSPACES_H

#include <pthread.h>

#include "base/progress.h"
#include "model/model.h"

/* A workspace and the arrays that describe a pass. */
typedef struct bnet_scratch bnet_scratch;
struct bnet_scratch {
    bnet_scratch *next;
    const bnet_model *model; /* the engine's, or its spare */
    int n_batch;
    bnet_workspace *ws;
    int32_t *pos;              /* [2 * n_batch] of a pass and of the one that follows it */
    int32_t *seq, *rows, *ids; /* [n_batch] */
    bnet_kv **kvs;             /* [n_batch] */
    bool lent;
    pthread_t borrower; /* valid while lent */
    /* kernels the backend had called when the call began (session_kernels.c) */
    bitnet_kernel_use *uses; /* [BNET_KERNELS_MAX] */
    size_t n_uses;
    bool among;       /* others computed when it began */
    bool accompanied; /* others have computed since that was last asked; under the lock */
};

typedef struct bnet_workspaces {
    pthread_mutex_t lock;
    pthread_cond_t returned;
    bnet_scratch *first; /* all of them, lent or not */
    float *row;          /* room for n_vocab logits that is not lent, or NULL */
    int n_users;         /* open sessions and batches */
    int n_guests;        /* who compute without a workspace */
} bnet_workspaces;

void bnet_workspaces_init(bnet_workspaces *w);
void bnet_workspaces_close(bnet_workspaces *w);

/* Bytes of one workspace for passes of n_batch tokens. */
uint64_t bnet_scratch_bytes(const bnet_model *m, int n_batch);
/* Makes sure that a workspace of at least n_batch tokens exists; smaller ones that nobody has are
 * closed. Fails: MEMORY, what the backend fails with. */
bitnet_status bnet_workspaces_need(bnet_workspaces *w, const bnet_model *m, int n_batch,
                                   bitnet_error *err);
bool bnet_workspaces_have(bnet_workspaces *w, const bnet_model *m, int n_batch);
/* Count users; when the last one leaves, all workspaces that are not lent are closed. */
void bnet_workspaces_enter(bnet_workspaces *w);
void bnet_workspaces_leave(bnet_workspaces *w);

/* Lends a workspace of at least n_batch tokens, `before` if that is free: a GPU may have recorded
 * passes with its buffers. If all are lent to other threads, opens another, and where there is no
 * memory for one waits until one is returned. Fails: MEMORY, if the calling thread itself has one
 * (in a callback) and there is no memory for another; CANCELLED, while waiting. */
bitnet_status bnet_scratch_borrow(bnet_workspaces *w, const bnet_model *m, int n_batch,
                                  const bnet_scratch *before, const bnet_cancel *wait,
                                  bnet_scratch **out, bitnet_error *err);
void bnet_scratch_return(bnet_workspaces *w, bnet_scratch *s);

/* Around what is computed for no session: calls of kernels meanwhile are not a session's own. */
void bnet_guest_enter(bnet_workspaces *w);
void bnet_guest_leave(bnet_workspaces *w);
/* True, once, if another workspace was lent at the same time as this one, or a guest was there. */
bool bnet_scratch_accompanied(bnet_workspaces *w, bnet_scratch *s);

/* Lends room for n_vocab logits; NULL: no memory. */
float *bnet_row_borrow(bnet_workspaces *w, size_t n_vocab);
void bnet_row_return(bnet_workspaces *w, float *row); /* NULL is legal */

#endif
