/* forward.c - the network, top to bottom. T tokens of one or more timelines pass together; every
 * row of every op depends on its own token (and its own timeline's cache) alone, so dividing tokens
 * into batches changes no bit. */
#include "model/kv.h"
#include "model/workspace.h"

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
    size_t n = ws->w.ff;
    if (!y->ffn_sub_norm || !bnet_op_weight_info(ws->be, y->down)->ternary) {
        bnet_op_glu(ws->be, h->act, ws->gate, ws->up, (size_t)n_rows * n, ws->gate);
        return norm_row(ws, ws->gate, n, y->ffn_sub_norm, y->down, n_rows);
    }
    ws->act.stride = (n + 127) / 128 * 128;
    bnet_op_glu_norm_quantize(ws->be, h->act, ws->gate, ws->up, y->ffn_sub_norm, h->rms_eps, n_rows,
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

/* A pass that the backend records, to repeat it, is not interrupted. */
static bool go_on(bnet_workspace *ws, int layer)
{
    if (!ws->on_layer || bnet_op_repeats(ws->be, &ws->m->net))
        return true;
    return ws->on_layer(ws->layer_user, layer + 1, ws->m->hp.n_layers);
}

/* False: the caller has cancelled the pass. */
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

/* By single operations. False: the caller has cancelled the pass. */
static bool run_single(bnet_workspace *ws, const bnet_pass *p)
{
    bool wanted = true;
    if (!bnet_op_repeat(ws->be, p)) {
        do
            wanted = compose(ws, p);
        while (!bnet_op_composed(ws->be, &ws->m->net));
    }
    if (wanted && p->keep)
        bnet_op_gather(ws->be, ws->last, (const int32_t[]){0}, 1, ws->w.embd, p->keep);
    return wanted;
}

/* Maps the blocks of the pass that follows, if the cache is this timeline's alone. A failure is
 * ignored: the pass that needs the blocks tries again and reports it. */
static bool foresee(const bnet_workspace *ws, const bnet_batch *b)
{
    const bnet_batch *n = b->next;
    if (!n || !bnet_op_passes(ws->be, &ws->m->net) || b->kv[0]->blocks->pooled)
        return false;
    return bnet_kv_cover(b->kv[0], n->pos[n->n_tokens - 1] + 1, NULL) == BITNET_OK;
}

bool bnet_model_passes(const bnet_model *m)
{
    return bnet_op_passes(m->be, &m->net);
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
                                        .last = ws->last,
                                        .keep = b->keep};
    if (foresee(ws, b)) {
        t = (bnet_step){b->next->n_tokens, b->next->ids, b->next->pos, b->next->seq, ws->seqs};
        next.rows = b->next->rows;
        next.n_rows = b->next->n_rows;
        p.next = &next;
    }
    ws->n_rows = b->n_rows;
    bool wanted = run_whole(ws, b, &p) || run_single(ws, &p);
    st = bnet_op_release(ws->be, bnet_op_sync(ws->be, err), err);
    return st == BITNET_OK && !wanted ? bnet_fail(err, BITNET_CANCELLED, "cancelled") : st;
}
