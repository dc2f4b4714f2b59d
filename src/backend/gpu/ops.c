/* ops.c - the operations of the table: each takes the kernel that was chosen and hands it places
 * on the device. Nothing waits. */
#include "backend/gpu/gpu.h"

static gpu_act8 act_of(const bnet_act8 *q)
{
    return (gpu_act8){gpu_buf(q->q)->p, gpu_buf(q->scale)->p, gpu_buf(q->sum)->p, q->stride};
}

static void gpu_embed(bnet_backend *b, const bnet_weight *w, const bnet_step *s, bnet_buffer *x)
{
    gpu_backend *be = gpu_of(b);
    bnet_kernel_query q = {
        .op = BNET_OP_EMBED, .format = gpu_w(w)->query.format, .dtype = BNET_DTYPE_F32};
    const bnet_kernel_record *k = NULL;
    bnet_gpu_enter(be);
    if (bnet_registry_select(be->registry, &be->caps, &q, &k, NULL) != BITNET_OK)
        bnet_gpu_ok(be, "embed", GPU_NO_KERNEL);
    else if (bnet_gpu_step(be, s, NULL, 0))
        ((gpu_fn_embed *)k->fn)(be, k, gpu_w(w), gpu_buf(x)->p);
    bnet_gpu_leave(be);
}

static void gpu_rmsnorm(bnet_backend *b, bnet_buffer *x, const bnet_weight *w, float eps,
                        int n_rows, bnet_buffer *y)
{
    gpu_backend *be = gpu_of(b);
    const bnet_kernel_record *k = be->use.rmsnorm;
    bnet_gpu_enter(be);
    ((gpu_fn_norm *)k->fn)(be, k, gpu_buf(x)->p, gpu_w(w), eps, n_rows, gpu_buf(y)->p);
    bnet_gpu_leave(be);
}

static void gpu_quantize(bnet_backend *b, bnet_buffer *x, int n_rows, size_t n_cols, bnet_act8 *q)
{
    gpu_backend *be = gpu_of(b);
    const bnet_kernel_record *k = be->use.quantize;
    gpu_act8 act = act_of(q);
    bnet_gpu_enter(be);
    ((gpu_fn_quantize *)k->fn)(be, k, gpu_buf(x)->p, n_rows, n_cols, &act);
    bnet_gpu_leave(be);
}

/* n_rows rows of int8 activations (act), or of floats (NULL: from). */
static void linear(gpu_backend *be, const gpu_weight *w, gpu_act8 *act, gpu_at from, int n_rows,
                   gpu_at to)
{
    bnet_gpu_enter(be);
    for (size_t t = 0, m; t < (size_t)n_rows; t += m) {
        m = (size_t)n_rows - t;
        const bnet_kernel_record *k = bnet_gpu_pick_for(be, w, &m);
        if (!k)
            break;
        if (act) {
            ((gpu_fn_ternary *)k->fn)(be, k, w, act, (int)m, to);
            act->q = gpu_plus(act->q, m * act->stride);
            act->scale = gpu_plus(act->scale, m * sizeof(float));
            act->sum = gpu_plus(act->sum, m * sizeof(int32_t));
        } else {
            ((gpu_fn_linear *)k->fn)(be, k, w, from, (int)m, to);
            from = gpu_plus(from, m * w->info.n_in * sizeof(float));
        }
        to = gpu_plus(to, m * w->info.n_out * sizeof(float));
    }
    bnet_gpu_leave(be);
}

static void gpu_linear_ternary(bnet_backend *b, const bnet_weight *w, const bnet_act8 *q,
                               int n_rows, bnet_buffer *y)
{
    gpu_act8 act = act_of(q);
    linear(gpu_of(b), gpu_w(w), &act, (gpu_at){0}, n_rows, gpu_buf(y)->p);
}

static void gpu_linear_float(bnet_backend *b, const bnet_weight *w, bnet_buffer *x, int n_rows,
                             bnet_buffer *y)
{
    linear(gpu_of(b), gpu_w(w), NULL, gpu_buf(x)->p, n_rows, gpu_buf(y)->p);
}

static void gpu_rope_table(bnet_backend *b, const bnet_rope *r, const bnet_step *s, bnet_buffer *cs)
{
    gpu_backend *be = gpu_of(b);
    const bnet_kernel_record *k = be->use.table;
    bnet_gpu_enter(be);
    if (bnet_gpu_step(be, s, NULL, 0) && bnet_gpu_angles(be, r, be->step.max_pos + 1))
        ((gpu_fn_table *)k->fn)(be, k, r, gpu_buf(cs)->p);
    bnet_gpu_leave(be);
}

static void gpu_rope(bnet_backend *b, const bnet_rope *r, bnet_buffer *cs, int n_rows, int n_heads,
                     bnet_buffer *x)
{
    gpu_backend *be = gpu_of(b);
    const bnet_kernel_record *k = r->neox ? be->use.rope_neox : be->use.rope_norm;
    bnet_gpu_enter(be);
    ((gpu_fn_rope *)k->fn)(be, k, r, gpu_buf(cs)->p, n_rows, n_heads, gpu_buf(x)->p);
    bnet_gpu_leave(be);
}

/* The cache of one type that occurs in the step: its shape serves all of that type. */
static const gpu_kv *kv_of_type(const bnet_step *s, int type)
{
    for (int t = 0; t < s->n_tokens; t++) {
        const gpu_kv *kv = (const gpu_kv *)(const void *)s->seqs[s->seq[t]].store;
        if ((int)kv->shape.type == type)
            return kv;
    }
    return NULL;
}

static void gpu_kv_append(bnet_backend *b, const bnet_step *s, int layer, bnet_buffer *k,
                          bnet_buffer *v)
{
    gpu_backend *be = gpu_of(b);
    bnet_gpu_enter(be);
    bool ok = bnet_gpu_step(be, s, NULL, 0);
    for (int type = 0; ok && type < 3; type++) {
        const bnet_kernel_record *rec = be->use.kv_store[type];
        if (be->step.used[type])
            ((gpu_fn_kv_store *)rec->fn)(be, rec, kv_of_type(s, type), layer, gpu_buf(k)->p,
                                         gpu_buf(v)->p);
    }
    bnet_gpu_leave(be);
}

static void gpu_attention(bnet_backend *b, const bnet_step *s, int layer, int n_heads,
                          bnet_buffer *q, bnet_buffer *y)
{
    gpu_backend *be = gpu_of(b);
    bnet_gpu_enter(be);
    bool ok = bnet_gpu_step(be, s, NULL, 0);
    for (int type = 0; ok && type < 3; type++) {
        const bnet_kernel_record *k = be->use.attention[type];
        if (be->step.used[type])
            ((gpu_fn_attention *)k->fn)(be, k, kv_of_type(s, type), layer, n_heads, gpu_buf(q)->p,
                                        gpu_buf(y)->p);
    }
    bnet_gpu_leave(be);
}

static void gpu_glu(bnet_backend *b, bnet_activation act, bnet_buffer *gate, bnet_buffer *up,
                    size_t n, bnet_buffer *y)
{
    gpu_backend *be = gpu_of(b);
    const bnet_kernel_record *k = act == BNET_ACT_RELU2 ? be->use.glu_relu2 : be->use.glu_silu;
    bnet_gpu_enter(be);
    ((gpu_fn_glu *)k->fn)(be, k, gpu_buf(gate)->p, gpu_buf(up)->p, n, gpu_buf(y)->p);
    bnet_gpu_leave(be);
}

static void gpu_add(bnet_backend *b, bnet_buffer *x, bnet_buffer *y, size_t n)
{
    gpu_backend *be = gpu_of(b);
    const bnet_kernel_record *k = be->use.add;
    bnet_gpu_enter(be);
    ((gpu_fn_add *)k->fn)(be, k, gpu_buf(x)->p, gpu_buf(y)->p, n);
    bnet_gpu_leave(be);
}

static bool in_sequence(const int32_t *rows, int n)
{
    for (int i = 1; i < n; i++)
        if (rows[i] != rows[0] + i)
            return false;
    return n > 0;
}

static void gpu_gather(bnet_backend *b, bnet_buffer *x, const int32_t *rows, int n_rows,
                       size_t n_cols, bnet_buffer *y)
{
    gpu_backend *be = gpu_of(b);
    const bnet_kernel_record *k = be->use.gather;
    size_t row_bytes = n_cols * sizeof(float);
    bnet_gpu_enter(be);
    if (in_sequence(rows, n_rows)) { /* one copy */
        if (gpu_alive(be))
            bnet_gpu_ok(be, "copying rows",
                        be->d->c->copy(be->d, gpu_buf(y)->p,
                                       gpu_plus(gpu_buf(x)->p, (size_t)rows[0] * row_bytes),
                                       (size_t)n_rows * row_bytes));
        bnet_gpu_leave(be);
        return;
    }
    gpu_at at = bnet_gpu_scratch(be, (size_t)n_rows * sizeof *rows);
    if (!gpu_none(at))
        bnet_gpu_upload(be, at, rows, (size_t)n_rows * sizeof *rows);
    if (!gpu_none(at) && gpu_alive(be))
        ((gpu_fn_gather *)k->fn)(be, k, gpu_buf(x)->p, at, n_rows, n_cols, gpu_buf(y)->p);
    bnet_gpu_leave(be);
}

void bnet_gpu_fill_ops(bnet_backend_vtable *v)
{
    v->embed = gpu_embed;
    v->rmsnorm = gpu_rmsnorm;
    v->quantize_i8 = gpu_quantize;
    v->linear_ternary = gpu_linear_ternary;
    v->linear_float = gpu_linear_float;
    v->rope_table = gpu_rope_table;
    v->rope = gpu_rope;
    v->kv_append = gpu_kv_append;
    v->attention = gpu_attention;
    v->glu = gpu_glu;
    v->add = gpu_add;
    v->gather = gpu_gather;
}
