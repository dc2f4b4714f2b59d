/* null.c - the smallest backend there can be, to read and to copy: it has no device and no kernels.
 * Every operation is counted and handed to a CPU backend inside, and it says so: by its name, by a
 * warning when it opens, and by the CPU's kernel ids, which are the ones it reports. Buffers,
 * weights and caches are the inner backend's own. Compiled only with BITNET_NULL_BACKEND=ON;
 * docs/BACKEND.md walks through it. */
#include "backend/null/null.h"

typedef struct null_backend {
    bnet_backend base;         /* first: a bnet_backend * is a null_backend * */
    bnet_backend_vtable table; /* ours, but for what has no backend among its arguments */
    bnet_backend *cpu;
    uint64_t n_ops;
} null_backend;

static bnet_backend *inner(const bnet_backend *be)
{
    return ((const null_backend *)(const void *)be)->cpu;
}

/* The same for a call that computes. */
static bnet_backend *counted(bnet_backend *be)
{
    ((null_backend *)(void *)be)->n_ops++;
    return inner(be);
}

/* ---- resources ---- */

static void null_close(bnet_backend *be)
{
    bnet_backend_close(inner(be));
    bnet_free(be);
}

static bnet_buffer *null_buffer_new(bnet_backend *be, size_t n_bytes)
{
    return inner(be)->v->buffer_new(inner(be), n_bytes);
}

static void null_buffer_free(bnet_backend *be, bnet_buffer *b)
{
    inner(be)->v->buffer_free(inner(be), b);
}

static const void *null_read(bnet_backend *be, bnet_buffer *b, size_t n_bytes)
{
    return inner(be)->v->read(inner(be), b, n_bytes);
}

static void null_write(bnet_backend *be, bnet_buffer *b, const void *bytes, size_t n_bytes)
{
    inner(be)->v->write(inner(be), b, bytes, n_bytes);
}

static bitnet_status null_sync(bnet_backend *be, bitnet_error *err)
{
    return inner(be)->v->sync(inner(be), err);
}

static bitnet_status null_weight_prepare(bnet_backend *be, const bnet_weight_request *r,
                                         const bnet_log *log, bnet_weight **out, bitnet_error *err)
{
    return inner(be)->v->weight_prepare(inner(be), r, log, out, err);
}

static void null_weight_free(bnet_backend *be, bnet_weight *w)
{
    inner(be)->v->weight_free(inner(be), w);
}

static bnet_kv_store *null_kv_new(bnet_backend *be, const bnet_kv_shape *shape)
{
    return inner(be)->v->kv_new(inner(be), shape);
}

static void null_kv_free(bnet_backend *be, bnet_kv_store *kv)
{
    inner(be)->v->kv_free(inner(be), kv);
}

static void null_kernels(const bnet_backend *be, bnet_use_fn *each, void *user)
{
    bnet_backend_each_kernel(inner(be), each, user);
}

static uint64_t null_fallbacks(const bnet_backend *be)
{
    return bnet_backend_fallbacks(inner(be));
}

static size_t null_shapes(const bnet_backend *be, bnet_kernel_query *out, size_t cap)
{
    return bnet_backend_shapes(inner(be), out, cap);
}

/* ---- operations: one line each ---- */

#define FORWARD(op, parameters, ...)                                                               \
    static void null_##op parameters                                                               \
    {                                                                                              \
        bnet_backend *to = counted(be);                                                            \
        to->v->op(to, __VA_ARGS__);                                                                \
    }

FORWARD(embed, (bnet_backend * be, const bnet_weight *w, const bnet_step *s, bnet_buffer *x), w, s,
        x)
FORWARD(rmsnorm,
        (bnet_backend * be, bnet_buffer *x, const bnet_weight *w, float eps, int n, bnet_buffer *y),
        x, w, eps, n, y)
FORWARD(quantize_i8, (bnet_backend * be, bnet_buffer *x, int n, size_t n_cols, bnet_act8 *q), x, n,
        n_cols, q)
FORWARD(linear_ternary,
        (bnet_backend * be, const bnet_weight *w, const bnet_act8 *q, int n, bnet_buffer *y), w, q,
        n, y)
FORWARD(linear_float,
        (bnet_backend * be, const bnet_weight *w, bnet_buffer *x, int n, bnet_buffer *y), w, x, n,
        y)
FORWARD(rope_table, (bnet_backend * be, const bnet_rope *r, const bnet_step *s, bnet_buffer *cs), r,
        s, cs)
FORWARD(rope,
        (bnet_backend * be, const bnet_rope *r, bnet_buffer *cs, int n, int heads, bnet_buffer *x),
        r, cs, n, heads, x)
FORWARD(kv_append,
        (bnet_backend * be, const bnet_step *s, int layer, bnet_buffer *k, bnet_buffer *v), s,
        layer, k, v)
FORWARD(attention,
        (bnet_backend * be, const bnet_step *s, int layer, int heads, bnet_buffer *q,
         bnet_buffer *y),
        s, layer, heads, q, y)
FORWARD(glu,
        (bnet_backend * be, bnet_activation act, bnet_buffer *gate, bnet_buffer *up, size_t n,
         bnet_buffer *y),
        act, gate, up, n, y)
FORWARD(add, (bnet_backend * be, bnet_buffer *x, bnet_buffer *y, size_t n), x, y, n)
FORWARD(gather,
        (bnet_backend * be, bnet_buffer *x, const int32_t *rows, int n, size_t n_cols,
         bnet_buffer *y),
        x, rows, n, n_cols, y)

/* ---- opening ---- */

static const bnet_backend_vtable table = {.name = BNET_NULL_NAME,
                                          .close = null_close,
                                          .buffer_new = null_buffer_new,
                                          .buffer_free = null_buffer_free,
                                          .read = null_read,
                                          .write = null_write,
                                          .sync = null_sync,
                                          .weight_prepare = null_weight_prepare,
                                          .weight_free = null_weight_free,
                                          .kv_new = null_kv_new,
                                          .kv_free = null_kv_free,
                                          .embed = null_embed,
                                          .rmsnorm = null_rmsnorm,
                                          .quantize_i8 = null_quantize_i8,
                                          .linear_ternary = null_linear_ternary,
                                          .linear_float = null_linear_float,
                                          .rope_table = null_rope_table,
                                          .rope = null_rope,
                                          .kv_append = null_kv_append,
                                          .attention = null_attention,
                                          .glu = null_glu,
                                          .add = null_add,
                                          .gather = null_gather};

static const bnet_inspect_ops inspect = {
    .kernels = null_kernels, .fallbacks = null_fallbacks, .shapes = null_shapes};

bitnet_status bnet_null_open(const bnet_backend_want *w, bnet_backend **out, bitnet_error *err)
{
    null_backend *n = bnet_calloc(1, sizeof *n);
    if (!n)
        return bnet_no_memory(err, BNET_NULL_NAME);
    bitnet_status st =
        bnet_backend_open_cpu(w->pool, w->registry, w->isa, w->strict, w->log, &n->cpu, err);
    if (st != BITNET_OK) {
        bnet_free(n);
        return st;
    }
    n->table = table;
    n->table.weight_info = n->cpu->v->weight_info;
    n->table.kv_get = n->cpu->v->kv_get;
    n->table.kv_put = n->cpu->v->kv_put;
    n->table.kv_clear = n->cpu->v->kv_clear;
    n->table.kv_copy = n->cpu->v->kv_copy;
    n->base.v = &n->table;
    n->base.inspect = &inspect;
    bnet_logf(w->log, BITNET_LOG_WARN, "null",
              BNET_NULL_NAME ": a backend for demonstration, the CPU computes");
    *out = &n->base;
    return BITNET_OK;
}

uint64_t bnet_null_ops(const bnet_backend *be)
{
    return ((const null_backend *)(const void *)be)->n_ops;
}

void bnet_null_kept(const bnet_serving *s, bnet_kernel_query *q)
{
    (void)s, (void)q;
}

bitnet_status bnet_null_adopt(bnet_kernel_record *k, bitnet_error *err)
{
    (void)k, (void)err;
    return BITNET_NOT_AVAILABLE;
}

/* No kernel of its own, so no record to choose and no id to claim. */
const bnet_kernel_record *bnet_null_kernel_rows(size_t *n)
{
    *n = 0;
    return NULL;
}
