/* workspace.h - the scratch memory of a pass, shared by workspace.c, forward.c and head.c. */
#ifndef BNET_WORKSPACE_H
#define BNET_WORKSPACE_H

#include "model/weights.h"

/* Values per row of each kind of vector; act: the widest that is quantised, rounded up. */
typedef struct bnet_widths {
    size_t q, kv, embd, ff, vocab, act;
} bnet_widths;

struct bnet_workspace {
    const bnet_model *m;
    bnet_backend *be;
    int n_batch, n_rows;
    bnet_layer_fn on_layer; /* NULL: nobody asked */
    void *layer_user;
    bool owed; /* out is not added to x yet: the next norm of x does that */
    bnet_widths w;
    bnet_buffer *x;         /* [T][embd]  the residual stream */
    bnet_buffer *h;         /* [T][embd]  normed */
    bnet_buffer *q, *a;     /* [T][heads*hd] queries; attention out */
    bnet_buffer *k, *v;     /* [T][kv*hd] */
    bnet_buffer *gate, *up; /* [T][ff]; the gated product goes into gate */
    bnet_buffer *out;       /* [T][embd]  what is added to x */
    bnet_buffer *cs;        /* [T][n_rot] cosines and sines */
    bnet_buffer *last;      /* [T][embd]  normed hidden state of the rows that want logits */
    bnet_buffer *pick;      /* [BNET_HEAD_ROWS][embd] */
    bnet_buffer *logits;    /* [BNET_HEAD_ROWS][vocab] */
    bnet_buffer *top;       /* scratch of bnet_head_top */
    bnet_act8 act;          /* int8 form of the current input */
    bnet_seq *seqs;         /* [T] */
    /* where the backend runs whole passes: the best logits of the last one's first n_best rows */
    bnet_best *best; /* [BNET_BEST_ROWS], or NULL */
    int n_best;
    int32_t top_ids[BNET_BEST];
    float top_logits[BNET_BEST];
};

#endif
