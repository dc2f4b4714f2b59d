/* group_ops.c - the operations of a group: each on the ranks that have what it needs. */
#include "backend/group/group.h"

/* How much of n things that divided rows consist of rank r has. */
static size_t share_of(const gpu_group *g, const group_buffer *b, size_t n, int r)
{
    return n * (size_t)(b->first[r + 1] - b->first[r]) / (size_t)b->first[g->n];
}

static bool alike(const gpu_group *g, const group_buffer *a, const group_buffer *b)
{
    return a->divided && b->divided && a->n_rows == b->n_rows &&
           memcmp(a->first, b->first, ((size_t)g->n + 1) * sizeof *a->first) == 0;
}

/* y will be as x is: in the same parts, or whole on these ranks. */
static void make_like(gpu_group *g, const group_buffer *x, rank_set ranks, group_buffer *y)
{
    if (x->divided)
        bnet_group_make_divided(g, y, x->first, x->n_rows);
    else
        bnet_group_make(g, y, ranks);
}

/* ---- steps ---- */

bool bnet_group_step(gpu_group *g, const bnet_step *s, int r, bnet_step *out)
{
    int n_seqs = 0;
    for (int t = 0; t < s->n_tokens; t++)
        n_seqs = BNET_MAX(n_seqs, s->seq[t] + 1);
    if (!bnet_grow(&g->ids, &g->cap_ids, (size_t)s->n_tokens, sizeof *g->ids) ||
        !bnet_grow(&g->seqs, &g->cap_seqs, (size_t)n_seqs, sizeof *g->seqs)) {
        g->no_memory = true;
        return false;
    }
    const uint64_t *first = g->embd && g->embd->divided ? g->embd->first : NULL;
    for (int t = 0; t < s->n_tokens; t++) {
        uint64_t id = (uint64_t)s->ids[t];
        bool mine = !first || (id >= first[r] && id < first[r + 1]);
        g->ids[t] = mine ? (int32_t)(id - (first ? first[r] : 0)) : 0;
    }
    for (int i = 0; s->seqs && i < n_seqs; i++) {
        const group_kv *kv = (const group_kv *)(const void *)s->seqs[i].store;
        g->seqs[i] = (bnet_seq){kv ? kv->at[r] : NULL, s->seqs[i].blocks};
    }
    *out = *s;
    out->ids = g->ids;
    out->seqs = s->seqs ? g->seqs : NULL;
    return true;
}

/* ---- the table of rows ---- */

static int owner_of(const gpu_group *g, const group_weight *w, int32_t id)
{
    int r = 0;
    while (r + 1 < g->n && (uint64_t)id >= w->first[r + 1])
        r++;
    return r;
}

void bnet_group_owners(gpu_group *g, const bnet_step *s)
{
    for (int t = 0; t < s->n_tokens; t++)
        g->ids[t] = owner_of(g, g->embd, s->ids[t]) * s->n_tokens + t;
}

static void group_embed(bnet_backend *b, const bnet_weight *weight, const bnet_step *s,
                        bnet_buffer *x)
{
    gpu_group *g = group_of(b);
    const group_weight *w = group_w(weight);
    bnet_step mine;
    group_lock(g);
    g->embd = w;
    bnet_group_make(g, group_buf(x), w->ranks);
    for (int r = 0; r < g->n; r++)
        if (has_rank(w->ranks, r) && bnet_group_step(g, s, r, &mine))
            g->rank[r]->v->embed(g->rank[r], w->at[r], &mine, group_buf(x)->at[r]);
    if (w->divided && !g->no_memory) { /* every rank looked its own up */
        bnet_group_owners(g, s);
        bnet_group_pick(g, group_buf(x), s->n_tokens, w->info.n_in);
    }
    group_unlock(g);
}

/* ---- rows ---- */

static void group_rmsnorm(bnet_backend *b, bnet_buffer *x, const bnet_weight *weight, float eps,
                          int n_rows, bnet_buffer *y)
{
    gpu_group *g = group_of(b);
    const group_weight *w = group_w(weight);
    group_lock(g);
    bnet_group_need(g, group_buf(x), w->ranks, (size_t)n_rows * w->info.n_in * sizeof(float));
    bnet_group_make(g, group_buf(y), w->ranks);
    for (int r = 0; r < g->n; r++)
        if (has_rank(w->ranks, r))
            g->rank[r]->v->rmsnorm(g->rank[r], group_buf(x)->at[r], w->at[r], eps, n_rows,
                                   group_buf(y)->at[r]);
    group_unlock(g);
}

static bnet_act8 act_of(const bnet_act8 *q, int r)
{
    return (bnet_act8){group_buf(q->q)->at[r], group_buf(q->scale)->at[r], group_buf(q->sum)->at[r],
                       q->stride};
}

static void group_quantize(bnet_backend *b, bnet_buffer *x, int n_rows, size_t n_cols, bnet_act8 *q)
{
    gpu_group *g = group_of(b);
    group_buffer *in = group_buf(x);
    group_lock(g);
    bnet_group_need(g, in, 0, (size_t)n_rows * n_cols * sizeof(float));
    bnet_group_make(g, group_buf(q->q), in->whole);
    bnet_group_make(g, group_buf(q->scale), in->whole);
    bnet_group_make(g, group_buf(q->sum), in->whole);
    for (int r = 0; r < g->n; r++) {
        bnet_act8 act = act_of(q, r);
        if (has_rank(in->whole, r))
            g->rank[r]->v->quantize_i8(g->rank[r], in->at[r], n_rows, n_cols, &act);
    }
    group_unlock(g);
}

/* ---- matrices ---- */

static void make_by(gpu_group *g, const group_weight *w, group_buffer *y, int n_rows)
{
    if (w->divided)
        bnet_group_make_divided(g, y, w->first, (size_t)n_rows);
    else
        bnet_group_make(g, y, w->ranks);
}

static void group_ternary(bnet_backend *b, const bnet_weight *weight, const bnet_act8 *q,
                          int n_rows, bnet_buffer *y)
{
    gpu_group *g = group_of(b);
    const group_weight *w = group_w(weight);
    size_t n = (size_t)n_rows;
    gpu_buffer view;
    group_lock(g);
    bnet_group_need(g, group_buf(q->q), w->ranks, n * q->stride);
    bnet_group_need(g, group_buf(q->scale), w->ranks, n * sizeof(float));
    bnet_group_need(g, group_buf(q->sum), w->ranks, n * sizeof(int32_t));
    make_by(g, w, group_buf(y), n_rows);
    for (int r = 0; r < g->n; r++) {
        bnet_act8 act = act_of(q, r);
        if (has_rank(w->ranks, r))
            g->rank[r]->v->linear_ternary(g->rank[r], w->at[r], &act, n_rows,
                                          bnet_group_part(group_buf(y), r, &view));
    }
    group_unlock(g);
}

static void group_linear(bnet_backend *b, const bnet_weight *weight, bnet_buffer *x, int n_rows,
                         bnet_buffer *y)
{
    gpu_group *g = group_of(b);
    const group_weight *w = group_w(weight);
    gpu_buffer view;
    group_lock(g);
    bnet_group_need(g, group_buf(x), w->ranks, (size_t)n_rows * w->info.n_in * sizeof(float));
    make_by(g, w, group_buf(y), n_rows);
    for (int r = 0; r < g->n; r++)
        if (has_rank(w->ranks, r))
            g->rank[r]->v->linear_float(g->rank[r], w->at[r], group_buf(x)->at[r], n_rows,
                                        bnet_group_part(group_buf(y), r, &view));
    group_unlock(g);
}

/* ---- attention ---- */

static void group_rope_table(bnet_backend *b, const bnet_rope *rope, const bnet_step *s,
                             bnet_buffer *cs)
{
    gpu_group *g = group_of(b);
    bnet_step mine;
    group_lock(g);
    bnet_group_make(g, group_buf(cs), all_ranks(g));
    for (int r = 0; r < g->n; r++)
        if (bnet_group_step(g, s, r, &mine))
            g->rank[r]->v->rope_table(g->rank[r], rope, &mine, group_buf(cs)->at[r]);
    group_unlock(g);
}

static void group_rope(bnet_backend *b, const bnet_rope *rope, bnet_buffer *cs, int n_rows,
                       int n_heads, bnet_buffer *x)
{
    gpu_group *g = group_of(b);
    group_buffer *in = group_buf(x);
    gpu_buffer view;
    group_lock(g);
    for (int r = 0; r < g->n; r++) {
        int n = in->divided ? (int)share_of(g, in, (size_t)n_heads, r) : n_heads;
        if (in->divided || has_rank(in->whole, r))
            g->rank[r]->v->rope(g->rank[r], rope, group_buf(cs)->at[r], n_rows, n,
                                bnet_group_part(in, r, &view));
    }
    group_unlock(g);
}

/* Which ranks take part in a layer's attention, and what number it has there. */
static rank_set layer_on(const gpu_group *g, int *layer)
{
    if (g->split == BNET_SPLIT_TENSOR)
        return all_ranks(g);
    int r = bnet_group_rank_of(g, *layer);
    *layer -= (int)g->layers[r];
    return (rank_set)1 << r;
}

/* By rows every rank has its own heads, so queries, keys and values must come to the two operations
 * below as the projections left them: one between that makes them whole would let every rank take
 * the first rank's heads. */
static void group_kv_append(bnet_backend *b, const bnet_step *s, int layer, bnet_buffer *k,
                            bnet_buffer *v)
{
    gpu_group *g = group_of(b);
    bnet_step mine;
    gpu_buffer keys, values;
    assert(g->split != BNET_SPLIT_TENSOR || (group_buf(k)->divided && group_buf(v)->divided));
    group_lock(g);
    rank_set ranks = layer_on(g, &layer);
    for (int r = 0; r < g->n; r++)
        if (has_rank(ranks, r) && bnet_group_step(g, s, r, &mine))
            g->rank[r]->v->kv_append(g->rank[r], &mine, layer,
                                     bnet_group_part(group_buf(k), r, &keys),
                                     bnet_group_part(group_buf(v), r, &values));
    group_unlock(g);
}

static void group_attention(bnet_backend *b, const bnet_step *s, int layer, int n_heads,
                            bnet_buffer *q, bnet_buffer *y)
{
    gpu_group *g = group_of(b);
    group_buffer *in = group_buf(q);
    bnet_step mine;
    gpu_buffer from, to;
    assert(g->split != BNET_SPLIT_TENSOR || in->divided);
    group_lock(g);
    rank_set ranks = layer_on(g, &layer);
    make_like(g, in, ranks, group_buf(y));
    for (int r = 0; r < g->n; r++) {
        int n = in->divided ? (int)share_of(g, in, (size_t)n_heads, r) : n_heads;
        if (has_rank(ranks, r) && bnet_group_step(g, s, r, &mine))
            g->rank[r]->v->attention(g->rank[r], &mine, layer, n, bnet_group_part(in, r, &from),
                                     bnet_group_part(group_buf(y), r, &to));
    }
    group_unlock(g);
}

/* ---- element by element ---- */

/* x and y of n elements each: divided alike they stay so; else whole on the ranks returned. */
static rank_set meet(gpu_group *g, group_buffer *x, group_buffer *y, size_t n)
{
    if (alike(g, x, y))
        return all_ranks(g);
    bnet_group_need(g, x, 0, n * sizeof(float));
    bnet_group_need(g, y, 0, n * sizeof(float));
    if (!(x->whole & y->whole))
        bnet_group_need(g, x, y->whole, n * sizeof(float));
    return x->whole & y->whole;
}

static void group_glu(bnet_backend *b, bnet_activation act, bnet_buffer *gate, bnet_buffer *up,
                      size_t n, bnet_buffer *y)
{
    gpu_group *g = group_of(b);
    group_buffer *in = group_buf(gate);
    gpu_buffer a, c, to;
    group_lock(g);
    rank_set ranks = meet(g, in, group_buf(up), n);
    make_like(g, in, ranks, group_buf(y));
    for (int r = 0; r < g->n; r++)
        if (has_rank(ranks, r))
            g->rank[r]->v->glu(
                g->rank[r], act, bnet_group_part(in, r, &a), bnet_group_part(group_buf(up), r, &c),
                in->divided ? share_of(g, in, n, r) : n, bnet_group_part(group_buf(y), r, &to));
    group_unlock(g);
}

static void group_add(bnet_backend *b, bnet_buffer *x, bnet_buffer *y, size_t n)
{
    gpu_group *g = group_of(b);
    group_buffer *sum = group_buf(x);
    gpu_buffer a, c;
    group_lock(g);
    rank_set ranks = meet(g, sum, group_buf(y), n);
    make_like(g, sum, ranks, sum);
    for (int r = 0; r < g->n; r++)
        if (has_rank(ranks, r))
            g->rank[r]->v->add(g->rank[r], bnet_group_part(sum, r, &a),
                               bnet_group_part(group_buf(y), r, &c),
                               sum->divided ? share_of(g, sum, n, r) : n);
    group_unlock(g);
}

static void group_gather(bnet_backend *b, bnet_buffer *x, const int32_t *rows, int n_rows,
                         size_t n_cols, bnet_buffer *y)
{
    gpu_group *g = group_of(b);
    group_buffer *in = group_buf(x);
    int last = 0;
    for (int i = 0; i < n_rows; i++)
        last = BNET_MAX(last, rows[i]);
    group_lock(g);
    bnet_group_need(g, in, 0, ((size_t)last + 1) * n_cols * sizeof(float));
    bnet_group_make(g, group_buf(y), in->whole);
    for (int r = 0; r < g->n; r++)
        if (has_rank(in->whole, r))
            g->rank[r]->v->gather(g->rank[r], in->at[r], rows, n_rows, n_cols, group_buf(y)->at[r]);
    group_unlock(g);
}

void bnet_group_fill_ops(bnet_backend_vtable *v)
{
    v->embed = group_embed;
    v->rmsnorm = group_rmsnorm;
    v->quantize_i8 = group_quantize;
    v->linear_ternary = group_ternary;
    v->linear_float = group_linear;
    v->rope_table = group_rope_table;
    v->rope = group_rope;
    v->kv_append = group_kv_append;
    v->attention = group_attention;
    v->glu = group_glu;
    v->add = group_add;
    v->gather = group_gather;
}
