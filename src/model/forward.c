/* forward.c - the network, top to bottom. T tokens of one or more timelines pass together; every
 * row of every op depends on its own token (and its own timeline's cache) alone, so dividing tokens
 * into batches changes no bit. */
#include "model/kv.h"
#include "model/weights.h"

#include <stdio.h>

/* The widest vector a projection reads, and the widest it writes. */
typedef struct widths {
    size_t q, kv, embd, ff, vocab, act;
} widths;

struct bnet_workspace {
    const bnet_model *m;
    bnet_backend *be;
    int n_batch, n_rows;
    bnet_layer_fn on_layer; /* NULL: nobody asked */
    void *layer_user;
    bool owed; /* out is not added to x yet: the next norm of x does that */
    widths w;
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
    bnet_buffer *kept;      /* [1][embd]  the row of the last bnet_head_top */
    bnet_buffer *top;       /* scratch of bnet_head_top */
    bnet_act8 act;          /* int8 form of the current input */
    bnet_seq *seqs;         /* [T] */
    /* where the backend runs whole passes: the best logits of the last one's first n_best rows */
    bnet_best *best; /* [BNET_BEST_ROWS], or NULL */
    int n_best;
    int32_t top_ids[BNET_BEST];
    float top_logits[BNET_BEST];
};

static widths widths_of(const bnet_model *m)
{
    const bnet_hparams *h = &m->hp;
    widths w = {.q = (size_t)h->n_heads * (size_t)h->head_dim,
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

enum { N_BUFFERS = 18 };

static void plan_buffers(bnet_workspace *ws, const bnet_model *m, size_t t, plan out[N_BUFFERS])
{
    widths w = widths_of(m);
    size_t f = sizeof(float);
    plan all[N_BUFFERS] = {
        {&ws->x, t * w.embd * f},
        {&ws->h, t * w.embd * f},
        {&ws->q, t * w.q * f},
        {&ws->a, t * w.q * f},
        {&ws->k, t * w.kv * f},
        {&ws->v, t * w.kv * f},
        {&ws->gate, t * w.ff * f},
        {&ws->up, t * w.ff * f},
        {&ws->out, t * w.embd * f},
        {&ws->cs, t * (size_t)m->hp.n_rot * f},
        {&ws->last, t * w.embd * f},
        {&ws->pick, BNET_HEAD_ROWS * w.embd * f},
        {&ws->logits, BNET_HEAD_ROWS * w.vocab * f},
        {&ws->kept, w.embd * f},
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
        total += p[i].n_bytes * (uint64_t)BNET_MAX(m->be->v->n_ranks, 1);
    if (m->be->v->pass_bytes)
        total += m->be->v->pass_bytes(m->be, &m->net, n_batch);
    return total;
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
    bool whole = m->be->v->pass != NULL;
    ws->best = whole ? bnet_calloc(BNET_BEST_ROWS, sizeof *ws->best) : NULL;
    bool ok = ws->seqs != NULL && (ws->best || !whole);
    plan p[N_BUFFERS];
    plan_buffers(ws, m, (size_t)n_batch, p);
    bnet_op_hold(ws->be);
    for (int i = 0; i < N_BUFFERS; i++) {
        *p[i].at = bnet_op_buffer(ws->be, p[i].n_bytes);
        ok = ok && *p[i].at;
    }
    if (ok && m->be->v->pass_reserve)
        ok = m->be->v->pass_reserve(m->be, &m->net, n_batch);
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

/* The input of projections: floats, and their int8 form once a ternary weight asks for it. */
typedef struct input {
    bnet_buffer *x;
    size_t n;
    bool quantized;
} input;

static void quantize(bnet_workspace *ws, input *in, int n_rows)
{
    if (in->quantized)
        return;
    ws->act.stride = (in->n + 127) / 128 * 128;
    bnet_op_quantize_i8(ws->be, in->x, n_rows, in->n, &ws->act);
    in->quantized = true;
}

static void project(bnet_workspace *ws, const bnet_weight *w, input *in, int n_rows,
                    bnet_buffer *out)
{
    if (!bnet_op_weight_info(ws->be, w)->ternary) {
        bnet_op_linear_float(ws->be, w, in->x, n_rows, out);
        return;
    }
    quantize(ws, in, n_rows);
    bnet_op_linear_ternary(ws->be, w, &ws->act, n_rows, out);
}

static bool all_ternary(const bnet_workspace *ws, const bnet_weight *const *w, int n)
{
    for (int i = 0; i < n; i++)
        if (!bnet_op_weight_info(ws->be, w[i])->ternary)
            return false;
    return true;
}

/* Several projections of one input: together where all are ternary. */
static void project_n(bnet_workspace *ws, const bnet_weight *const *w, int n, input *in, int n_rows,
                      bnet_buffer *const *out)
{
    bool ternary = all_ternary(ws, w, n);
    for (int i = 0; i < n && !ternary; i++)
        project(ws, w[i], in, n_rows, out[i]);
    if (!ternary)
        return;
    quantize(ws, in, n_rows);
    bnet_op_linear_ternary_n(ws->be, w, n, &ws->act, n_rows, out);
}

/* x += out, if that is still to be done. */
static void settle(bnet_workspace *ws, int n_rows)
{
    if (ws->owed)
        bnet_op_add(ws->be, ws->x, ws->out, (size_t)n_rows * ws->w.embd);
    ws->owed = false;
}

/* x += out, now or together with the norm that comes next. */
static void add_out(bnet_workspace *ws, int n_rows)
{
    ws->owed = true;
    if (!bnet_op_fuses(ws->be))
        settle(ws, n_rows);
}

/* What n projections w read: x, normed; int8 at once where all want that. */
static input norm_stream(bnet_workspace *ws, const bnet_weight *norm, const bnet_weight *const *w,
                         int n, int n_rows)
{
    float eps = ws->m->hp.rms_eps;
    input in = {ws->h, ws->w.embd, all_ternary(ws, w, n)};
    if (!in.quantized) {
        settle(ws, n_rows);
        bnet_op_rmsnorm(ws->be, ws->x, norm, eps, n_rows, ws->h);
        return in;
    }
    ws->act.stride = (in.n + 127) / 128 * 128;
    bnet_op_norm_quantize(ws->be, ws->x, ws->owed ? ws->out : NULL, norm, eps, n_rows, ws->h,
                          &ws->act);
    ws->owed = false;
    return in;
}

/* The same of a row of n values that is normed in place for the projection w; norm may be NULL. */
static input norm_row(bnet_workspace *ws, bnet_buffer *x, size_t n, const bnet_weight *norm,
                      const bnet_weight *w, int n_rows)
{
    float eps = ws->m->hp.rms_eps;
    input in = {x, n, norm && bnet_op_weight_info(ws->be, w)->ternary};
    ws->act.stride = (n + 127) / 128 * 128;
    if (in.quantized)
        bnet_op_norm_quantize(ws->be, x, NULL, norm, eps, n_rows, x, &ws->act);
    else if (norm)
        bnet_op_rmsnorm(ws->be, x, norm, eps, n_rows, x);
    return in;
}

/* The gated product, in place of the gate, as `down` reads it. */
static input gated(bnet_workspace *ws, const bnet_layer *y, int n_rows)
{
    const bnet_hparams *h = &ws->m->hp;
    bool relu2 = h->act == BNET_ACT_RELU2;
    size_t n = ws->w.ff;
    if (!y->ffn_sub_norm || !bnet_op_weight_info(ws->be, y->down)->ternary) {
        bnet_op_glu(ws->be, relu2, ws->gate, ws->up, (size_t)n_rows * n, ws->gate);
        return norm_row(ws, ws->gate, n, y->ffn_sub_norm, y->down, n_rows);
    }
    ws->act.stride = (n + 127) / 128 * 128;
    bnet_op_glu_norm_quantize(ws->be, relu2, ws->gate, ws->up, y->ffn_sub_norm, h->rms_eps, n_rows,
                              ws->gate, &ws->act);
    return (input){ws->gate, n, true};
}

static void attention_block(bnet_workspace *ws, const bnet_layer *y, const bnet_step *s, int layer)
{
    const bnet_hparams *h = &ws->m->hp;
    bnet_backend *be = ws->be;
    int t = s->n_tokens;
    const bnet_weight *const qkv[] = {y->q, y->k, y->v};
    input in = norm_stream(ws, y->attn_norm, qkv, 3, t);
    project_n(ws, qkv, 3, &in, t, (bnet_buffer *const[]){ws->q, ws->k, ws->v});
    bnet_op_rope(be, &ws->m->rope, ws->cs, t, h->n_heads, ws->q);
    bnet_op_rope(be, &ws->m->rope, ws->cs, t, h->n_kv_heads, ws->k);
    bnet_op_kv_append(be, s, layer, ws->k, ws->v);
    bnet_op_attention(be, s, layer, h->n_heads, ws->q, ws->a);
    input out = norm_row(ws, ws->a, ws->w.q, y->attn_sub_norm, y->o, t);
    project(ws, y->o, &out, t, ws->out);
    add_out(ws, t);
}

static void ffn_block(bnet_workspace *ws, const bnet_layer *y, const bnet_step *s)
{
    int t = s->n_tokens;
    const bnet_weight *const two[] = {y->gate, y->up};
    input in = norm_stream(ws, y->ffn_norm, two, 2, t);
    project_n(ws, two, 2, &in, t, (bnet_buffer *const[]){ws->gate, ws->up});
    input mid = gated(ws, y, t);
    project(ws, y->down, &mid, t, ws->out);
    add_out(ws, t);
}

/* Maps the cache blocks the batch will write and notes where each timeline's blocks are. */
static bitnet_status place(bnet_workspace *ws, const bnet_batch *b, bitnet_error *err)
{
    bitnet_status st = BITNET_OK;
    for (int t = 0; t < b->n_tokens && st == BITNET_OK; t++)
        if (t + 1 == b->n_tokens || b->seq[t + 1] != b->seq[t])
            st = bnet_kv_cover(b->kv[b->seq[t]], b->pos[t] + 1, err);
    for (int i = 0; i < b->n_seqs; i++)
        ws->seqs[i] = (bnet_seq){b->kv[i]->blocks->store, b->kv[i]->table};
    return st;
}

/* In one piece, where the backend can. The best logits are asked for when one row is wanted or each
 * timeline has one token: then they are what sampling will ask for. */
static bool run_whole(bnet_workspace *ws, const bnet_batch *b, bnet_pass *p)
{
    bool sampled = b->n_rows > 0 && b->n_rows <= BNET_BEST_ROWS &&
                   (b->n_rows == 1 || (b->n_rows == b->n_tokens && b->n_seqs == b->n_tokens));
    p->best = sampled && !b->all_logits ? ws->best : NULL;
    bool whole = bnet_op_pass(ws->be, p);
    ws->n_best = whole && p->best ? b->n_rows : 0;
    return whole;
}

void bnet_workspace_on_layer(bnet_workspace *ws, bnet_layer_fn each, void *user)
{
    ws->on_layer = each;
    ws->layer_user = user;
}

/* A backend that keeps what was composed, to repeat it, is not interrupted. */
static bool go_on(bnet_workspace *ws, int layer)
{
    if (!ws->on_layer || ws->be->v->composed)
        return true;
    return ws->on_layer(ws->layer_user, layer + 1, ws->m->hp.n_layers);
}

/* False: the caller wants no more of it. */
static bool compose(bnet_workspace *ws, const bnet_pass *p)
{
    const bnet_model *m = ws->m;
    bool wanted = true;
    bnet_op_embed(ws->be, m->embd, p->step, ws->x);
    bnet_op_rope_table(ws->be, &m->rope, p->step, ws->cs);
    for (int layer = 0; wanted && layer < m->hp.n_layers; layer++) {
        bnet_op_mark(ws->be, layer);
        attention_block(ws, &m->layers[layer], p->step, layer);
        ffn_block(ws, &m->layers[layer], p->step);
        wanted = go_on(ws, layer);
    }
    bnet_op_mark(ws->be, -1);
    settle(ws, p->step->n_tokens);
    if (wanted && p->n_rows > 0) {
        bnet_op_gather(ws->be, ws->x, p->rows, p->n_rows, ws->w.embd, ws->last);
        bnet_op_rmsnorm(ws->be, ws->last, m->output_norm, m->hp.rms_eps, p->n_rows, ws->last);
    }
    return wanted;
}

/* The blocks of what follows are mapped already where the cache is this timeline's alone. If that
 * fails it is tried again, and told, when the pass comes that needs them. */
static bool foresee(const bnet_workspace *ws, const bnet_batch *b)
{
    const bnet_batch *n = b->next;
    if (!n || !ws->be->v->pass || b->kv[0]->blocks->shared)
        return false;
    return bnet_kv_cover(b->kv[0], n->pos[n->n_tokens - 1] + 1, NULL) == BITNET_OK;
}

bitnet_status bnet_forward(bnet_workspace *ws, const bnet_batch *b, bitnet_error *err)
{
    assert(b->n_tokens >= 1 && b->n_tokens <= ws->n_batch && b->n_seqs <= ws->n_batch);
    bnet_op_hold(ws->be);
    bitnet_status st = place(ws, b, err);
    if (st != BITNET_OK)
        return bnet_op_release(ws->be, st, err);
    bnet_step s = {b->n_tokens, b->ids, b->pos, b->seq, ws->seqs}, t = {0};
    bnet_pass next = {.step = &t}, p = {.net = &ws->m->net,
                                        .step = &s,
                                        .rows = b->rows,
                                        .n_rows = b->n_rows,
                                        .last = ws->last};
    if (foresee(ws, b)) {
        t = (bnet_step){b->next->n_tokens, b->next->ids, b->next->pos, b->next->seq, ws->seqs};
        next.rows = b->next->rows;
        next.n_rows = b->next->n_rows;
        p.next = &next;
    }
    ws->n_rows = b->n_rows;
    bool wanted = true;
    if (!run_whole(ws, b, &p) && !bnet_op_repeat(ws->be, &p)) {
        do
            wanted = compose(ws, &p);
        while (!bnet_op_composed(ws->be));
    }
    st = bnet_op_release(ws->be, bnet_op_sync(ws->be, err), err);
    return st == BITNET_OK && !wanted ? bnet_fail(err, BITNET_CANCELLED, "cancelled") : st;
}

/* The first n bytes of the logits, once they are there. */
static bitnet_status read_logits(bnet_workspace *ws, size_t n_bytes, const float **out,
                                 bitnet_error *err)
{
    bitnet_status st = bnet_op_sync(ws->be, err);
    if (st != BITNET_OK)
        return st;
    *out = bnet_op_read(ws->be, ws->logits, n_bytes);
    if (!*out) /* the way to the host failed: the backend says why */
        st = bnet_op_sync(ws->be, err);
    return st == BITNET_OK && !*out ? bnet_no_memory(err, "logits") : st;
}

bitnet_status bnet_head(bnet_workspace *ws, int first, int n, const float **out, bitnet_error *err)
{
    assert(n >= 1 && n <= BNET_HEAD_ROWS && first >= 0 && first + n <= ws->n_rows);
    int32_t rows[BNET_HEAD_ROWS];
    for (int i = 0; i < n; i++)
        rows[i] = first + i;
    bnet_op_hold(ws->be);
    bnet_op_gather(ws->be, ws->last, rows, n, ws->w.embd, ws->pick);
    bnet_op_head(ws->be, ws->m->head, ws->pick, n, ws->logits);
    bitnet_status st = read_logits(ws, (size_t)n * ws->w.vocab * sizeof(float), out, err);
    return bnet_op_release(ws->be, st, err);
}

/* Do the best logits of the pass hold all that is wanted? Then they are it, by ascending id. */
static bool serve_best(bnet_workspace *ws, const bnet_best *b, const bnet_top_want *want,
                       bnet_top *out)
{
    bool all = b->n < BNET_BEST;
    if (want->n_ids > 0 || b->n == 0 || (!all && want->k >= BNET_BEST))
        return false;
    float least = b->logits[BNET_MIN(want->k, (size_t)b->n) - 1] - want->range;
    if (!all && !(b->logits[b->n - 1] < least))
        return false;
    int n = 0;
    for (int i = 0; i < b->n && b->logits[i] >= least; i++, n++) {
        int at = i;
        for (; at > 0 && ws->top_ids[at - 1] > b->ids[i]; at--) {
            ws->top_ids[at] = ws->top_ids[at - 1];
            ws->top_logits[at] = ws->top_logits[at - 1];
        }
        ws->top_ids[at] = b->ids[i];
        ws->top_logits[at] = b->logits[i];
    }
    *out = (bnet_top){ws->top_ids, ws->top_logits, (size_t)n};
    return true;
}

int bnet_best_rows(const bnet_workspace *ws)
{
    return ws->n_best;
}

bool bnet_best_top(bnet_workspace *ws, int row, const bnet_top_want *want, bnet_top *out)
{
    assert(row >= 0 && row < ws->n_rows);
    return row < ws->n_best && serve_best(ws, &ws->best[row], want, out);
}

bitnet_status bnet_head_top(bnet_workspace *ws, int row, const bnet_top_want *want, bnet_top *out,
                            bool *served, bitnet_error *err)
{
    assert(row >= 0 && row < ws->n_rows);
    int32_t rows[1] = {row};
    *served = row < ws->n_best && serve_best(ws, &ws->best[row], want, out);
    if (!*served && bnet_op_top_bytes(ws->be, ws->m->head) == 0)
        return BITNET_OK;
    bitnet_status st = BITNET_OK;
    bnet_op_hold(ws->be);
    bnet_op_gather(ws->be, ws->last, rows, 1, ws->w.embd, ws->kept);
    if (!*served) { /* else there is nothing to wait for */
        *served = bnet_op_top(ws->be, ws->m->head, ws->kept, want, ws->top, out);
        st = bnet_op_sync(ws->be, err);
    }
    return bnet_op_release(ws->be, st, err);
}

bitnet_status bnet_head_kept(bnet_workspace *ws, const float **out, bitnet_error *err)
{
    bnet_op_hold(ws->be);
    bnet_op_head(ws->be, ws->m->head, ws->kept, 1, ws->logits);
    bitnet_status st = read_logits(ws, ws->w.vocab * sizeof(float), out, err);
    return bnet_op_release(ws->be, st, err);
}
