/* ops.c - shape checks in one place, then the backend's table. */
#include "ops/ops.h"

#include "ops/inspect.h"
#include "ops/trace.h"

/* ---- time, where an engine keeps statistics ---- */

static const struct {
    const char *name;
    bnet_op_class class;
} entries[] = {
#define ENTRY(key, name, class) {name, BNET_CLASS_##class},
#include "ops/entries.inc"
#undef ENTRY
};

const char *bnet_entry_name(bnet_op_entry e)
{
    return entries[e].name;
}

bnet_op_class bnet_entry_class(bnet_op_entry e)
{
    return entries[e].class;
}

void bnet_meter_stop(bnet_meter *m, bnet_op_entry e, double begun)
{
    if (!m)
        return;
    uint64_t ns = (uint64_t)((bnet_now_ms() - begun) * 1e6);
    atomic_fetch_add_explicit(&m->n[e], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&m->ns[e], ns, memory_order_relaxed);
}

/* Is its time counted here? */
static bool timed(const bnet_backend *be)
{
    return be->meter && !(be->inspect && be->inspect->own_clock);
}

static double start(const bnet_backend *be)
{
    return timed(be) ? bnet_now_ms() : 0;
}

static void stop(const bnet_backend *be, bnet_op_entry e, double begun)
{
    if (timed(be))
        bnet_meter_stop(be->meter, e, begun);
}

/* ---- traces ---- */

/* What a backend does in one piece; NULL also where every result must be seen. */
static const bnet_pass_ops *pieces(const bnet_backend *be)
{
    return be->trace ? NULL : be->pass;
}

static void seen(bnet_backend *be, bnet_op_entry e, int n_rows, size_t n_cols, bnet_buffer *y)
{
    if (be->trace)
        bnet_trace_floats(be, e, NULL, n_rows, n_cols, y);
}

/* The same of an operation with a weight, whose rows are as long as that says. */
static void seen_rows(bnet_backend *be, bnet_op_entry e, const bnet_weight *w, int n_rows,
                      bnet_buffer *y)
{
    if (!be->trace)
        return;
    const bnet_weight_info *i = bnet_op_weight_info(be, w);
    bool of_inputs = e == BNET_ENTRY_EMBED || e == BNET_ENTRY_NORM;
    bnet_trace_floats(be, e, w, n_rows, of_inputs ? i->n_in : i->n_out, y);
}

/* ---- resources ---- */

bnet_buffer *bnet_op_buffer(bnet_backend *be, size_t n_bytes)
{
    return be->v->buffer_new(be, n_bytes);
}

void bnet_op_buffer_free(bnet_backend *be, bnet_buffer *b)
{
    if (b)
        be->v->buffer_free(be, b);
}

bitnet_status bnet_op_no_memory(bnet_backend *be, const char *what, uint64_t n_bytes,
                                const char *remedy, bitnet_error *err)
{
    char where[160] = "";
    bitnet_status st = bnet_op_sync(be, err); /* memory may not be what is missing */
    if (st != BITNET_OK)
        return st;
    if (be->inspect && be->inspect->short_of)
        be->inspect->short_of(be, where, sizeof where);
    return bnet_fail(err, BITNET_MEMORY, "out of memory: %s needs %llu bytes%s%s; %s", what,
                     (unsigned long long)n_bytes, *where ? ", " : "", where, remedy);
}

const void *bnet_op_read(bnet_backend *be, bnet_buffer *b, size_t n_bytes)
{
    return be->v->read(be, b, n_bytes);
}

void bnet_op_write(bnet_backend *be, bnet_buffer *b, const void *bytes, size_t n_bytes)
{
    be->v->write(be, b, bytes, n_bytes);
}

void bnet_op_mark(bnet_backend *be, int layer)
{
    if (be->inspect && be->inspect->mark)
        be->inspect->mark(be, layer);
    if (be->trace)
        bnet_trace_layer(be->trace, layer);
}

bitnet_status bnet_op_sync(bnet_backend *be, bitnet_error *err)
{
    bitnet_status st = be->v->sync(be, err);
    return st == BITNET_OK && be->trace ? bnet_trace_status(be->trace, err) : st;
}

void bnet_op_hold(bnet_backend *be)
{
    if (be->trace)
        bnet_trace_hold(be->trace);
    if (be->v->hold)
        be->v->hold(be);
}

bitnet_status bnet_op_release(bnet_backend *be, bitnet_status st, bitnet_error *err)
{
    bitnet_error more = {0};
    bitnet_status late = be->v->release ? be->v->release(be, &more) : BITNET_OK;
    if (be->trace)
        bnet_trace_release(be->trace);
    return st == BITNET_OK && late != BITNET_OK ? bnet_fail(err, late, "%s", more.message) : st;
}

bitnet_status bnet_op_weight(bnet_backend *be, const bnet_weight_request *r, const bnet_log *log,
                             bnet_weight **out, bitnet_error *err)
{
    bitnet_status st = be->v->weight_prepare(be, r, log, out, err);
    if (st == BITNET_OK && be->trace)
        bnet_trace_weight(be->trace, *out, r->source.tensor->name);
    return st;
}

void bnet_op_weight_free(bnet_backend *be, bnet_weight *w)
{
    if (w)
        be->v->weight_free(be, w);
}

const bnet_weight_info *bnet_op_weight_info(const bnet_backend *be, const bnet_weight *w)
{
    return be->v->weight_info(w);
}

bitnet_status bnet_op_expect(bnet_backend *be, const bnet_expect *e, const bnet_log *log,
                             bitnet_error *err)
{
    return be->v->expect ? be->v->expect(be, e, log, err) : BITNET_OK;
}

void bnet_op_weights_done(bnet_backend *be, const bnet_log *log)
{
    if (be->v->weights_done)
        be->v->weights_done(be, log);
}

bnet_kv_store *bnet_op_kv_new(bnet_backend *be, const bnet_kv_shape *shape)
{
    return be->v->kv_new(be, shape);
}

void bnet_op_kv_free(bnet_backend *be, bnet_kv_store *kv)
{
    if (kv)
        be->v->kv_free(be, kv);
}

void bnet_op_kv_get(const bnet_backend *be, bnet_kv_store *kv, int layer, int block, void *bytes)
{
    be->v->kv_get(kv, layer, block, bytes);
}

void bnet_op_kv_put(const bnet_backend *be, bnet_kv_store *kv, int layer, int block,
                    const void *bytes)
{
    be->v->kv_put(kv, layer, block, bytes);
}

void bnet_op_kv_clear(const bnet_backend *be, bnet_kv_store *kv, int block)
{
    be->v->kv_clear(kv, block);
}

void bnet_op_kv_copy(const bnet_backend *be, bnet_kv_store *dst, int to, bnet_kv_store *src,
                     int from)
{
    be->v->kv_copy(dst, to, src, from);
}

/* ---- whole passes ---- */

const char *bnet_feature_name(bnet_feature_index i)
{
    static const char *const names[] = {
#define FEATURE(key, name) name,
#include "ops/features.inc"
#undef FEATURE
    };
    return (size_t)i < BNET_COUNT(names) ? names[i] : "unknown";
}

bnet_features bnet_op_unknown(const bnet_backend *be, const bnet_net *net)
{
    const bnet_pass_ops *p = pieces(be);
    return p && (p->pass || p->repeat) ? net->features & ~p->features : 0;
}

static bool knows(const bnet_backend *be, const bnet_net *net)
{
    return pieces(be) && !(net->features & ~be->pass->features);
}

bool bnet_op_passes(const bnet_backend *be, const bnet_net *net)
{
    return knows(be, net) && be->pass->pass;
}

bool bnet_op_pass(bnet_backend *be, const bnet_pass *p)
{
    assert(p->step->n_tokens > 0 && (!p->best || p->n_rows <= BNET_BEST_ROWS));
    return bnet_op_passes(be, p->net) && be->pass->pass(be, p);
}

uint64_t bnet_op_pass_bytes(bnet_backend *be, const bnet_net *net, int n_tokens)
{
    return knows(be, net) && be->pass->pass_bytes ? be->pass->pass_bytes(be, net, n_tokens) : 0;
}

bool bnet_op_pass_reserve(bnet_backend *be, const bnet_net *net, int n_tokens)
{
    return !knows(be, net) || !be->pass->pass_reserve || be->pass->pass_reserve(be, net, n_tokens);
}

int bnet_op_batch_limit(const bnet_backend *be, int n_tokens)
{
    if (!be->pass || !be->pass->batch_limit)
        return n_tokens;
    return BNET_MIN(n_tokens, be->pass->batch_limit(be));
}

bool bnet_op_repeats(const bnet_backend *be, const bnet_net *net)
{
    return knows(be, net) && be->pass->repeat;
}

bool bnet_op_repeat(bnet_backend *be, const bnet_pass *p)
{
    return bnet_op_repeats(be, p->net) && be->pass->repeat(be, p);
}

bool bnet_op_composed(bnet_backend *be, const bnet_net *net)
{
    return !bnet_op_repeats(be, net) || be->pass->composed(be);
}

/* ---- operations ---- */

void bnet_op_embed(bnet_backend *be, const bnet_weight *w, const bnet_step *s, bnet_buffer *x)
{
    assert(s->n_tokens > 0);
    double begun = start(be);
    be->v->embed(be, w, s, x);
    stop(be, BNET_ENTRY_EMBED, begun);
    if (be->trace)
        bnet_trace_pass(be->trace, s->n_tokens);
    seen_rows(be, BNET_ENTRY_EMBED, w, s->n_tokens, x);
}

void bnet_op_rmsnorm(bnet_backend *be, bnet_buffer *x, const bnet_weight *w, float eps, int n_rows,
                     bnet_buffer *y)
{
    assert(n_rows > 0 && bnet_op_weight_info(be, w)->n_out == 1);
    double begun = start(be);
    be->v->rmsnorm(be, x, w, eps, n_rows, y);
    stop(be, BNET_ENTRY_NORM, begun);
    seen_rows(be, BNET_ENTRY_NORM, w, n_rows, y);
}

void bnet_op_quantize_i8(bnet_backend *be, bnet_buffer *x, int n_rows, size_t n_cols, bnet_act8 *q)
{
    assert(n_rows > 0 && n_cols > 0 && n_cols <= q->stride && q->stride % 128 == 0);
    double begun = start(be);
    be->v->quantize_i8(be, x, n_rows, n_cols, q);
    stop(be, BNET_ENTRY_QUANTIZE, begun);
    if (be->trace)
        bnet_trace_int8(be, n_rows, n_cols, q);
}

bool bnet_op_fuses(const bnet_backend *be)
{
    return pieces(be) && be->pass->norm_quantize;
}

void bnet_op_norm_quantize(bnet_backend *be, bnet_buffer *x, bnet_buffer *plus,
                           const bnet_weight *w, float eps, int n_rows, bnet_buffer *y,
                           bnet_act8 *q)
{
    size_t n = bnet_op_weight_info(be, w)->n_in;
    assert(n_rows > 0 && bnet_op_weight_info(be, w)->n_out == 1 && n <= q->stride &&
           q->stride % 128 == 0);
    if (!bnet_op_fuses(be)) {
        if (plus)
            bnet_op_add(be, x, plus, (size_t)n_rows * n);
        bnet_op_rmsnorm(be, x, w, eps, n_rows, y);
        bnet_op_quantize_i8(be, y, n_rows, n, q);
        return;
    }
    double begun = start(be);
    be->pass->norm_quantize(be, x, plus, w, eps, n_rows, y, q);
    stop(be, BNET_ENTRY_NORM_QUANTIZE, begun);
}

void bnet_op_glu_norm_quantize(bnet_backend *be, bnet_activation act, bnet_buffer *gate,
                               bnet_buffer *up, const bnet_weight *w, float eps, int n_rows,
                               bnet_buffer *y, bnet_act8 *q)
{
    size_t n = bnet_op_weight_info(be, w)->n_in;
    assert(n_rows > 0 && bnet_op_weight_info(be, w)->n_out == 1 && n <= q->stride &&
           q->stride % 128 == 0);
    if (!bnet_op_fuses(be)) {
        bnet_op_glu(be, act, gate, up, (size_t)n_rows * n, y);
        bnet_op_norm_quantize(be, y, NULL, w, eps, n_rows, y, q);
        return;
    }
    double begun = start(be);
    be->pass->glu_norm_quantize(be, act, gate, up, w, eps, n_rows, y, q);
    stop(be, BNET_ENTRY_GLU_NORM_QUANTIZE, begun);
}

void bnet_op_linear_ternary(bnet_backend *be, const bnet_weight *w, const bnet_act8 *q, int n_rows,
                            bnet_buffer *y)
{
    assert(n_rows > 0 && bnet_op_weight_info(be, w)->ternary &&
           bnet_op_weight_info(be, w)->n_in <= q->stride);
    double begun = start(be);
    be->v->linear_ternary(be, w, q, n_rows, y);
    stop(be, BNET_ENTRY_LINEAR, begun);
    seen_rows(be, BNET_ENTRY_LINEAR, w, n_rows, y);
}

void bnet_op_linear_ternary_n(bnet_backend *be, const bnet_weight *const *w, int n,
                              const bnet_act8 *q, int n_rows, bnet_buffer *const *y)
{
    if (!pieces(be) || !be->pass->linear_ternary_n) {
        for (int i = 0; i < n; i++)
            bnet_op_linear_ternary(be, w[i], q, n_rows, y[i]);
        return;
    }
    double begun = start(be);
    be->pass->linear_ternary_n(be, w, n, q, n_rows, y);
    stop(be, BNET_ENTRY_LINEAR, begun);
    if (be->meter) /* as many operations as matrices */
        atomic_fetch_add_explicit(&be->meter->n[BNET_ENTRY_LINEAR], (uint64_t)n - 1,
                                  memory_order_relaxed);
}

void bnet_op_linear_float(bnet_backend *be, const bnet_weight *w, bnet_buffer *x, int n_rows,
                          bnet_buffer *y)
{
    assert(n_rows > 0 && !bnet_op_weight_info(be, w)->ternary);
    double begun = start(be);
    be->v->linear_float(be, w, x, n_rows, y);
    stop(be, BNET_ENTRY_LINEAR, begun);
    seen_rows(be, BNET_ENTRY_LINEAR, w, n_rows, y);
}

void bnet_op_head(bnet_backend *be, const bnet_weight *w, bnet_buffer *x, int n_rows,
                  bnet_buffer *y)
{
    assert(n_rows > 0 && !bnet_op_weight_info(be, w)->ternary);
    double begun = start(be);
    be->v->linear_float(be, w, x, n_rows, y);
    stop(be, BNET_ENTRY_HEAD, begun);
    seen_rows(be, BNET_ENTRY_HEAD, w, n_rows, y);
}

size_t bnet_op_top_bytes(const bnet_backend *be, const bnet_weight *w)
{
    return pieces(be) && be->pass->top_bytes ? be->pass->top_bytes(be, w) : 0;
}

void bnet_op_top(bnet_backend *be, const bnet_weight *w, bnet_buffer *x, int n_rows,
                 const bnet_top_want *wants, bnet_buffer *y, bnet_buffer *scratch, bnet_top *out)
{
    assert(!bnet_op_weight_info(be, w)->ternary && n_rows > 0 && n_rows <= BNET_TOP_ROWS);
    memset(out, 0, (size_t)n_rows * sizeof *out);
    if (!pieces(be) || !be->pass->top)
        return;
    double begun = start(be);
    be->pass->top(be, w, x, n_rows, wants, y, scratch, out);
    stop(be, BNET_ENTRY_HEAD, begun);
}

void bnet_op_rope_table(bnet_backend *be, const bnet_rope *r, const bnet_step *s, bnet_buffer *cs)
{
    assert(r->n_rot % 2 == 0 && r->n_rot <= r->head_dim);
    double begun = start(be);
    be->v->rope_table(be, r, s, cs);
    stop(be, BNET_ENTRY_ROPE, begun);
    if (be->trace)
        bnet_trace_head_dim(be->trace, r->head_dim);
}

void bnet_op_rope(bnet_backend *be, const bnet_rope *r, bnet_buffer *cs, int n_rows, int n_heads,
                  bnet_buffer *x)
{
    assert(n_rows > 0 && n_heads > 0);
    double begun = start(be);
    be->v->rope(be, r, cs, n_rows, n_heads, x);
    stop(be, BNET_ENTRY_ROPE, begun);
    seen(be, BNET_ENTRY_ROPE, n_rows, (size_t)n_heads * (size_t)r->head_dim, x);
}

void bnet_op_kv_append(bnet_backend *be, const bnet_step *s, int layer, bnet_buffer *k,
                       bnet_buffer *v)
{
    assert(layer >= 0);
    double begun = start(be);
    be->v->kv_append(be, s, layer, k, v);
    stop(be, BNET_ENTRY_KV_APPEND, begun);
}

void bnet_op_attention(bnet_backend *be, const bnet_step *s, int layer, int n_heads, bnet_buffer *q,
                       bnet_buffer *y)
{
    assert(layer >= 0 && n_heads > 0);
    double begun = start(be);
    be->v->attention(be, s, layer, n_heads, q, y);
    stop(be, BNET_ENTRY_ATTENTION, begun);
    if (be->trace)
        bnet_trace_heads(be, s->n_tokens, n_heads, y);
}

void bnet_op_glu(bnet_backend *be, bnet_activation act, bnet_buffer *gate, bnet_buffer *up,
                 size_t n, bnet_buffer *y)
{
    double begun = start(be);
    be->v->glu(be, act, gate, up, n, y);
    stop(be, BNET_ENTRY_GLU, begun);
    seen(be, BNET_ENTRY_GLU, 0, n, y);
}

void bnet_op_add(bnet_backend *be, bnet_buffer *x, bnet_buffer *y, size_t n)
{
    double begun = start(be);
    be->v->add(be, x, y, n);
    stop(be, BNET_ENTRY_ADD, begun);
    seen(be, BNET_ENTRY_ADD, 0, n, x);
}

void bnet_op_gather(bnet_backend *be, bnet_buffer *x, const int32_t *rows, int n_rows,
                    size_t n_cols, bnet_buffer *y)
{
    double begun = start(be);
    be->v->gather(be, x, rows, n_rows, n_cols, y);
    stop(be, BNET_ENTRY_GATHER, begun);
}

void bnet_backend_close(bnet_backend *be)
{
    if (!be)
        return;
    bnet_trace *trace = be->trace;
    be->v->close(be);
    bnet_trace_close(trace);
}

const char *bnet_backend_name(const bnet_backend *be)
{
    return be->v->name;
}

int bnet_op_ranks(const bnet_backend *be)
{
    return BNET_MAX(be->v->n_ranks, 1);
}
