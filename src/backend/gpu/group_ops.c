/* group_ops.c - the operations of a group: each on the ranks that have what it needs. */
#include "backend/gpu/group.h"

static void lock(gpu_group *g)
{
    pthread_mutex_lock(&g->lock);
}

static void unlock(gpu_group *g)
{
    pthread_mutex_unlock(&g->lock);
}

/* ---- what travels ---- */

static gpu_ptr address(const group_buffer *b, int r)
{
    return gpu_buf(b->at[r])->p;
}

static uint64_t width(const gpu_group *g, const uint64_t *first)
{
    return first[g->n];
}

static size_t widest(const gpu_group *g, const uint64_t *first)
{
    size_t n = 0;
    for (int r = 0; r < g->n; r++)
        n = BNET_MAX(n, (size_t)(first[r + 1] - first[r]));
    return n;
}

static bool scratch(gpu_group *g, size_t n_bytes, gpu_ptr *to)
{
    bool ok = true;
    for (int r = 0; r < g->n; r++) {
        gpu_backend *be = gpu_of(g->rank[r]);
        bnet_gpu_enter(be);
        to[r] = bnet_gpu_scratch(be, n_bytes);
        bnet_gpu_leave(be);
        ok = ok && to[r];
    }
    return ok;
}

static void place(gpu_backend *be, const gpu_rows *rows)
{
    bnet_gpu_enter(be);
    if (gpu_alive(be))
        bnet_gpu_ok(be, "putting rows together", be->d->c->copy_rows(be->d, rows));
    bnet_gpu_leave(be);
}

/* Divided rows become whole on every rank: every part to every rank, then row by row into place. */
static void unite(gpu_group *g, group_buffer *b)
{
    size_t row = (size_t)width(g, b->first) * sizeof(float), n_rows = b->n_rows;
    size_t part = n_rows * widest(g, b->first) * sizeof(float);
    gpu_ptr from[GPU_RANKS], to[GPU_RANKS];
    b->divided = false;
    b->whole = all_ranks(g);
    if (!scratch(g, part * (size_t)g->n, to))
        return;
    for (int r = 0; r < g->n; r++)
        from[r] = address(b, r);
    g->link->c->all_gather(g->link, from, to, part);
    for (int r = 0; r < g->n; r++)
        for (int i = 0; i < g->n; i++) {
            size_t n = (size_t)(b->first[i + 1] - b->first[i]) * sizeof(float);
            const gpu_rows rows = {.dst = from[r] + b->first[i] * sizeof(float),
                                   .src = to[r] + (size_t)i * part,
                                   .dst_pitch = row,
                                   .src_pitch = n,
                                   .n_bytes = n,
                                   .n_rows = n_rows};
            place(gpu_of(g->rank[r]), &rows);
        }
}

void bnet_group_need(gpu_group *g, group_buffer *b, rank_set ranks, size_t n_bytes)
{
    if (b->divided)
        unite(g, b);
    int from = __builtin_ctz(b->whole);
    for (int r = 0; r < g->n; r++)
        if (has_rank(ranks & ~b->whole, r))
            g->link->c->send(g->link, from, address(b, from), r, address(b, r), n_bytes);
    b->whole |= ranks;
}

static void made(group_buffer *b, rank_set ranks)
{
    b->whole = ranks;
    b->divided = false;
}

static void made_divided(group_buffer *b, const uint64_t *first, size_t n_rows)
{
    b->divided = true;
    b->n_rows = n_rows;
    memcpy(b->first, first, sizeof b->first);
}

static bool alike(const gpu_group *g, const group_buffer *a, const group_buffer *b)
{
    return a->divided && b->divided && a->n_rows == b->n_rows &&
           memcmp(a->first, b->first, ((size_t)g->n + 1) * sizeof *a->first) == 0;
}

/* How much of n things that divided rows consist of rank r has. */
static size_t part_of(const gpu_group *g, const group_buffer *b, size_t n, int r)
{
    return n * (size_t)(b->first[r + 1] - b->first[r]) / (size_t)width(g, b->first);
}

const void *bnet_group_read(bnet_backend *be, bnet_buffer *buf, size_t n_bytes)
{
    gpu_group *g = group_of(be);
    group_buffer *b = group_buf(buf);
    if (!b->divided) {
        int r = __builtin_ctz(b->whole);
        return g->rank[r]->v->read(g->rank[r], b->at[r], n_bytes);
    }
    size_t row = (size_t)width(g, b->first) * sizeof(float), n_rows = n_bytes / row;
    if (!b->host && !(b->host = bnet_alloc(b->n_bytes))) {
        g->no_memory = true;
        return NULL;
    }
    for (int r = 0; r < g->n; r++) {
        size_t n = (size_t)(b->first[r + 1] - b->first[r]) * sizeof(float);
        const uint8_t *part = g->rank[r]->v->read(g->rank[r], b->at[r], n_rows * n);
        for (size_t t = 0; part && t < n_rows; t++)
            memcpy(b->host + t * row + b->first[r] * sizeof(float), part + t * n, n);
    }
    return b->host;
}

/* ---- steps ---- */

/* The step as rank r sees it: its own caches, and ids that count its rows of the table. The same in
 * every operation of a pass, so that it is brought to the device once. False: no memory. */
static bool step_of(gpu_group *g, const bnet_step *s, int r, bnet_step *out)
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

/* Every rank looked its own rows up: all of them go everywhere, and the owner's are picked. */
static void pick_rows(gpu_group *g, const group_weight *w, const bnet_step *s, group_buffer *x)
{
    size_t n = (size_t)s->n_tokens, part = n * w->info.n_in * sizeof(float);
    gpu_ptr from[GPU_RANKS], to[GPU_RANKS];
    if (!scratch(g, part * (size_t)g->n + n * sizeof(int32_t), to))
        return;
    for (int t = 0; t < s->n_tokens; t++)
        g->ids[t] = owner_of(g, w, s->ids[t]) * s->n_tokens + t;
    for (int r = 0; r < g->n; r++)
        from[r] = address(x, r);
    g->link->c->all_gather(g->link, from, to, part);
    for (int r = 0; r < g->n; r++) {
        gpu_backend *be = gpu_of(g->rank[r]);
        const bnet_kernel_record *k = be->use.gather;
        gpu_ptr rows = to[r] + part * (size_t)g->n;
        bnet_gpu_enter(be);
        bnet_gpu_upload(be, rows, g->ids, n * sizeof *g->ids);
        if (gpu_alive(be))
            ((gpu_fn_gather *)k->fn)(be, k, to[r], rows, s->n_tokens, w->info.n_in, from[r]);
        bnet_gpu_leave(be);
    }
}

static void group_embed(bnet_backend *b, const bnet_weight *weight, const bnet_step *s,
                        bnet_buffer *x)
{
    gpu_group *g = group_of(b);
    const group_weight *w = group_w(weight);
    bnet_step mine;
    lock(g);
    g->embd = w;
    for (int r = 0; r < g->n; r++)
        if (has_rank(w->ranks, r) && step_of(g, s, r, &mine))
            g->rank[r]->v->embed(g->rank[r], w->at[r], &mine, group_buf(x)->at[r]);
    made(group_buf(x), w->ranks);
    if (w->divided && !g->no_memory)
        pick_rows(g, w, s, group_buf(x));
    unlock(g);
}

/* ---- rows ---- */

static void group_rmsnorm(bnet_backend *b, bnet_buffer *x, const bnet_weight *weight, float eps,
                          int n_rows, bnet_buffer *y)
{
    gpu_group *g = group_of(b);
    const group_weight *w = group_w(weight);
    lock(g);
    bnet_group_need(g, group_buf(x), w->ranks, (size_t)n_rows * w->info.n_in * sizeof(float));
    for (int r = 0; r < g->n; r++)
        if (has_rank(w->ranks, r))
            g->rank[r]->v->rmsnorm(g->rank[r], group_buf(x)->at[r], w->at[r], eps, n_rows,
                                   group_buf(y)->at[r]);
    made(group_buf(y), w->ranks);
    unlock(g);
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
    lock(g);
    bnet_group_need(g, in, 0, (size_t)n_rows * n_cols * sizeof(float));
    for (int r = 0; r < g->n; r++) {
        bnet_act8 act = act_of(q, r);
        if (has_rank(in->whole, r))
            g->rank[r]->v->quantize_i8(g->rank[r], in->at[r], n_rows, n_cols, &act);
    }
    made(group_buf(q->q), in->whole);
    made(group_buf(q->scale), in->whole);
    made(group_buf(q->sum), in->whole);
    unlock(g);
}

/* ---- matrices ---- */

static void made_by(const group_weight *w, group_buffer *y, int n_rows)
{
    if (w->divided)
        made_divided(y, w->first, (size_t)n_rows);
    else
        made(y, w->ranks);
}

static void group_ternary(bnet_backend *b, const bnet_weight *weight, const bnet_act8 *q,
                          int n_rows, bnet_buffer *y)
{
    gpu_group *g = group_of(b);
    const group_weight *w = group_w(weight);
    size_t n = (size_t)n_rows;
    lock(g);
    bnet_group_need(g, group_buf(q->q), w->ranks, n * q->stride);
    bnet_group_need(g, group_buf(q->scale), w->ranks, n * sizeof(float));
    bnet_group_need(g, group_buf(q->sum), w->ranks, n * sizeof(int32_t));
    for (int r = 0; r < g->n; r++) {
        bnet_act8 act = act_of(q, r);
        if (has_rank(w->ranks, r))
            g->rank[r]->v->linear_ternary(g->rank[r], w->at[r], &act, n_rows, group_buf(y)->at[r]);
    }
    made_by(w, group_buf(y), n_rows);
    unlock(g);
}

static void group_linear(bnet_backend *b, const bnet_weight *weight, bnet_buffer *x, int n_rows,
                         bnet_buffer *y)
{
    gpu_group *g = group_of(b);
    const group_weight *w = group_w(weight);
    lock(g);
    bnet_group_need(g, group_buf(x), w->ranks, (size_t)n_rows * w->info.n_in * sizeof(float));
    for (int r = 0; r < g->n; r++)
        if (has_rank(w->ranks, r))
            g->rank[r]->v->linear_float(g->rank[r], w->at[r], group_buf(x)->at[r], n_rows,
                                        group_buf(y)->at[r]);
    made_by(w, group_buf(y), n_rows);
    unlock(g);
}

/* ---- attention ---- */

static void group_rope_table(bnet_backend *b, const bnet_rope *rope, const bnet_step *s,
                             bnet_buffer *cs)
{
    gpu_group *g = group_of(b);
    bnet_step mine;
    lock(g);
    for (int r = 0; r < g->n; r++)
        if (step_of(g, s, r, &mine))
            g->rank[r]->v->rope_table(g->rank[r], rope, &mine, group_buf(cs)->at[r]);
    made(group_buf(cs), all_ranks(g));
    unlock(g);
}

static void group_rope(bnet_backend *b, const bnet_rope *rope, bnet_buffer *cs, int n_rows,
                       int n_heads, bnet_buffer *x)
{
    gpu_group *g = group_of(b);
    group_buffer *in = group_buf(x);
    lock(g);
    for (int r = 0; r < g->n; r++) {
        int n = in->divided ? (int)part_of(g, in, (size_t)n_heads, r) : n_heads;
        if (in->divided || has_rank(in->whole, r))
            g->rank[r]->v->rope(g->rank[r], rope, group_buf(cs)->at[r], n_rows, n, in->at[r]);
    }
    unlock(g);
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

static void group_kv_append(bnet_backend *b, const bnet_step *s, int layer, bnet_buffer *k,
                            bnet_buffer *v)
{
    gpu_group *g = group_of(b);
    bnet_step mine;
    lock(g);
    rank_set ranks = layer_on(g, &layer);
    for (int r = 0; r < g->n; r++)
        if (has_rank(ranks, r) && step_of(g, s, r, &mine))
            g->rank[r]->v->kv_append(g->rank[r], &mine, layer, group_buf(k)->at[r],
                                     group_buf(v)->at[r]);
    unlock(g);
}

static void group_attention(bnet_backend *b, const bnet_step *s, int layer, int n_heads,
                            bnet_buffer *q, bnet_buffer *y)
{
    gpu_group *g = group_of(b);
    group_buffer *in = group_buf(q);
    bnet_step mine;
    lock(g);
    rank_set ranks = layer_on(g, &layer);
    for (int r = 0; r < g->n; r++) {
        int n = in->divided ? (int)part_of(g, in, (size_t)n_heads, r) : n_heads;
        if (has_rank(ranks, r) && step_of(g, s, r, &mine))
            g->rank[r]->v->attention(g->rank[r], &mine, layer, n, in->at[r], group_buf(y)->at[r]);
    }
    if (in->divided)
        made_divided(group_buf(y), in->first, in->n_rows);
    else
        made(group_buf(y), ranks);
    unlock(g);
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

static void group_glu(bnet_backend *b, bool relu2, bnet_buffer *gate, bnet_buffer *up, size_t n,
                      bnet_buffer *y)
{
    gpu_group *g = group_of(b);
    group_buffer *in = group_buf(gate);
    lock(g);
    rank_set ranks = meet(g, in, group_buf(up), n);
    for (int r = 0; r < g->n; r++) {
        const bnet_backend_vtable *v = g->rank[r]->v;
        if (has_rank(ranks, r))
            (relu2 ? v->glu_relu2 : v->glu_silu)(g->rank[r], in->at[r], group_buf(up)->at[r],
                                                 in->divided ? part_of(g, in, n, r) : n,
                                                 group_buf(y)->at[r]);
    }
    if (in->divided)
        made_divided(group_buf(y), in->first, in->n_rows);
    else
        made(group_buf(y), ranks);
    unlock(g);
}

static void group_glu_relu2(bnet_backend *b, bnet_buffer *gate, bnet_buffer *up, size_t n,
                            bnet_buffer *y)
{
    group_glu(b, true, gate, up, n, y);
}

static void group_glu_silu(bnet_backend *b, bnet_buffer *gate, bnet_buffer *up, size_t n,
                           bnet_buffer *y)
{
    group_glu(b, false, gate, up, n, y);
}

static void group_add(bnet_backend *b, bnet_buffer *x, bnet_buffer *y, size_t n)
{
    gpu_group *g = group_of(b);
    group_buffer *sum = group_buf(x);
    lock(g);
    rank_set ranks = meet(g, sum, group_buf(y), n);
    for (int r = 0; r < g->n; r++)
        if (has_rank(ranks, r))
            g->rank[r]->v->add(g->rank[r], sum->at[r], group_buf(y)->at[r],
                               sum->divided ? part_of(g, sum, n, r) : n);
    if (!sum->divided)
        made(sum, ranks);
    unlock(g);
}

static void group_gather(bnet_backend *b, bnet_buffer *x, const int32_t *rows, int n_rows,
                         size_t n_cols, bnet_buffer *y)
{
    gpu_group *g = group_of(b);
    group_buffer *in = group_buf(x);
    int last = 0;
    for (int i = 0; i < n_rows; i++)
        last = BNET_MAX(last, rows[i]);
    lock(g);
    bnet_group_need(g, in, 0, ((size_t)last + 1) * n_cols * sizeof(float));
    for (int r = 0; r < g->n; r++)
        if (has_rank(in->whole, r))
            g->rank[r]->v->gather(g->rank[r], in->at[r], rows, n_rows, n_cols, group_buf(y)->at[r]);
    made(group_buf(y), in->whole);
    unlock(g);
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
    v->glu_relu2 = group_glu_relu2;
    v->glu_silu = group_glu_silu;
    v->add = group_add;
    v->gather = group_gather;
}
