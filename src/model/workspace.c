/* workspace.c - the scratch memory of a pass: sizing, opening, closing. Hides: which buffers a pass
 * needs and how large they are. */
#include "model/workspace.h"

#include <stdio.h>

static bnet_widths widths_of(const bnet_model *m)
{
    const bnet_hparams *h = &m->hp;
    bnet_widths w = {.q = (size_t)h->n_heads * (size_t)h->head_dim,
                     .kv = (size_t)h->n_kv_heads * (size_t)h->head_dim,
                     .embd = (size_t)h->n_embd,
                     .ff = (size_t)h->n_ff,
                     .vocab = (size_t)h->n_vocab};
    w.act = BNET_MAX(BNET_MAX(w.q, w.ff), w.embd);
    w.act = (w.act + 127) / 128 * 128;
    return w;
}

/* Every buffer of a workspace: where its pointer lives and its size. One list for sizing, making,
 * freeing. */
typedef struct plan {
    bnet_buffer **at;
    size_t n_bytes;
} plan;

enum { N_BUFFERS = 17, CTX_DIVIDED = 65536 };

/* The attention of one token may be divided by blocks of its cache, up to the context of training:
 * their results need rows behind its own. */
static size_t attention_rows(const bnet_model *m, size_t t)
{
    size_t n_blocks = (size_t)bnet_kv_blocks_for((size_t)BNET_MIN(m->hp.n_ctx_train, CTX_DIVIDED));
    size_t hd = (size_t)m->hp.head_dim;
    return BNET_MAX(t, 2 + n_blocks * (hd + 2) / hd);
}

static void plan_buffers(bnet_workspace *ws, const bnet_model *m, size_t t, plan out[N_BUFFERS])
{
    bnet_widths w = widths_of(m);
    size_t f = sizeof(float);
    plan all[N_BUFFERS] = {
        {&ws->x, t * w.embd * f},
        {&ws->h, t * w.embd * f},
        {&ws->q, t * w.q * f},
        {&ws->a, attention_rows(m, t) * w.q * f},
        {&ws->k, t * w.kv * f},
        {&ws->v, t * w.kv * f},
        {&ws->gate, t * w.ff * f},
        {&ws->up, t * w.ff * f},
        {&ws->out, t * w.embd * f},
        {&ws->cs, t * (size_t)m->hp.n_rot * f},
        {&ws->last, t * w.embd * f},
        {&ws->pick, BNET_HEAD_ROWS * w.embd * f},
        {&ws->logits, BNET_HEAD_ROWS * w.vocab * f},
        {&ws->top, BNET_MAX(bnet_op_top_bytes(m->be, m->head), (size_t)1)},
        {&ws->act.q, t * w.act},
        {&ws->act.scale, t * f},
        {&ws->act.sum, t * sizeof(int32_t)},
    };
    memcpy(out, all, sizeof all);
}

uint64_t bnet_workspace_bytes(const bnet_model *m, int n_batch)
{
    bnet_workspace ws;
    plan p[N_BUFFERS];
    plan_buffers(&ws, m, (size_t)n_batch, p);
    uint64_t total = sizeof ws + (size_t)n_batch * sizeof(bnet_seq);
    for (int i = 0; i < N_BUFFERS; i++)
        total += p[i].n_bytes * (uint64_t)bnet_op_ranks(m->be);
    return total + bnet_op_pass_bytes(m->be, &m->net, n_batch);
}

bitnet_status bnet_workspace_open(const bnet_model *m, int n_batch, bnet_workspace **out,
                                  bitnet_error *err)
{
    bnet_workspace *ws = bnet_calloc(1, sizeof *ws);
    if (!ws)
        return bnet_no_memory(err, "workspace");
    ws->m = m;
    ws->be = m->be;
    ws->n_batch = n_batch;
    ws->w = widths_of(m);
    ws->seqs = bnet_calloc((size_t)n_batch, sizeof *ws->seqs);
    bool whole = bnet_op_passes(m->be, &m->net);
    ws->best = whole ? bnet_calloc(BNET_BEST_ROWS, sizeof *ws->best) : NULL;
    bool ok = ws->seqs != NULL && (ws->best || !whole);
    plan p[N_BUFFERS];
    plan_buffers(ws, m, (size_t)n_batch, p);
    bnet_op_hold(ws->be);
    for (int i = 0; i < N_BUFFERS; i++) {
        *p[i].at = bnet_op_buffer(ws->be, p[i].n_bytes);
        ok = ok && *p[i].at;
    }
    ok = ok && bnet_op_pass_reserve(m->be, &m->net, n_batch);
    char what[48];
    snprintf(what, sizeof what, "workspace of %d tokens", n_batch);
    bitnet_status st = ok ? BITNET_OK
                          : bnet_op_no_memory(m->be, what, bnet_workspace_bytes(m, n_batch),
                                              "use a smaller batch", err);
    st = bnet_op_release(m->be, st, err);
    if (st == BITNET_OK)
        *out = ws;
    else
        bnet_workspace_close(ws);
    return st;
}

void bnet_workspace_close(bnet_workspace *ws)
{
    if (!ws)
        return;
    plan p[N_BUFFERS];
    plan_buffers(ws, ws->m, (size_t)ws->n_batch, p);
    for (int i = 0; i < N_BUFFERS; i++)
        bnet_op_buffer_free(ws->be, *p[i].at);
    bnet_free(ws->seqs);
    bnet_free(ws->best);
    bnet_free(ws);
}

void bnet_workspace_on_layer(bnet_workspace *ws, bnet_layer_fn each, void *user)
{
    ws->on_layer = each;
    ws->layer_user = user;
}
