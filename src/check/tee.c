/* tee.c - a backend made of two: opening it, its paired objects, its report. What computes is in
 * tee_ops.c, what is compared in tee_compare.c. */
#include "check/tee.h"

#include <stdio.h>

static void tee_close(bnet_backend *b)
{
    tee_backend *t = (tee_backend *)b;
    for (int s = 0; s < 2; s++) {
        bnet_backend_close(t->side[s].be);
        bnet_free(t->side[s].before);
        bnet_free(t->side[s].after);
        bnet_free(t->side[s].seqs);
        bnet_free(t->block[s]);
    }
    bnet_free(t);
}

static void tee_buffer_free(bnet_backend *b, bnet_buffer *buf)
{
    tee_backend *t = (tee_backend *)b;
    tee_buffer *pair = (tee_buffer *)(void *)buf;
    for (int s = 0; s < 2; s++)
        bnet_op_buffer_free(t->side[s].be, pair->half[s]);
    if (t->now == pair)
        t->now = NULL;
    bnet_free(pair->pos);
    bnet_free(pair);
}

static bnet_buffer *tee_buffer_new(bnet_backend *b, size_t n_bytes)
{
    tee_backend *t = (tee_backend *)b;
    tee_buffer *pair = bnet_calloc(1, sizeof *pair);
    if (!pair)
        return NULL;
    for (int s = 0; s < 2; s++)
        pair->half[s] = bnet_op_buffer(t->side[s].be, n_bytes);
    if (pair->half[0] && pair->half[1])
        return (bnet_buffer *)(void *)pair;
    tee_buffer_free(b, (bnet_buffer *)(void *)pair);
    return NULL;
}

static const void *tee_read(bnet_backend *b, bnet_buffer *buf, size_t n_bytes)
{
    bnet_backend *first = ((tee_backend *)b)->side[0].be;
    return bnet_op_read(first, ((tee_buffer *)(void *)buf)->half[0], n_bytes);
}

static void tee_write(bnet_backend *b, bnet_buffer *buf, const void *bytes, size_t n_bytes)
{
    tee_backend *t = (tee_backend *)b;
    for (int s = 0; s < 2; s++)
        bnet_op_write(t->side[s].be, ((tee_buffer *)(void *)buf)->half[s], bytes, n_bytes);
}

static bitnet_status tee_sync(bnet_backend *b, bitnet_error *err)
{
    tee_backend *t = (tee_backend *)b;
    bitnet_status st = bnet_op_sync(t->side[0].be, err);
    if (st == BITNET_OK)
        st = bnet_op_sync(t->side[1].be, err);
    if (st == BITNET_OK && t->no_memory)
        st = bnet_no_memory(err, "comparing two backends");
    return st;
}

static void tee_weight_free(bnet_backend *b, bnet_weight *w)
{
    tee_backend *t = (tee_backend *)b;
    tee_weight *pair = (tee_weight *)(void *)w;
    for (int s = 0; s < 2; s++)
        bnet_op_weight_free(t->side[s].be, pair->half[s]);
    bnet_free(pair);
}

static bitnet_status tee_weight_prepare(bnet_backend *b, const bnet_weight_request *r,
                                        const bnet_log *log, bnet_weight **out, bitnet_error *err)
{
    tee_backend *t = (tee_backend *)b;
    tee_weight *pair = bnet_calloc(1, sizeof *pair);
    if (!pair)
        return bnet_no_memory(err, r->source.tensor->name);
    pair->first = t->side[0].be;
    snprintf(pair->name, sizeof pair->name, "%s", r->source.tensor->name);
    bitnet_status st = BITNET_OK;
    for (int s = 0; st == BITNET_OK && s < 2; s++) /* warnings are said once, by the first side */
        st = bnet_op_weight(t->side[s].be, r, s ? NULL : log, &pair->half[s], err);
    if (st != BITNET_OK) {
        tee_weight_free(b, (bnet_weight *)(void *)pair);
        return st;
    }
    *out = (bnet_weight *)(void *)pair;
    return BITNET_OK;
}

static const bnet_weight_info *tee_weight_info(const bnet_weight *w)
{
    const tee_weight *pair = (const tee_weight *)(const void *)w;
    return bnet_op_weight_info(pair->first, pair->half[0]);
}

static void tee_kv_free(bnet_backend *b, bnet_kv_store *kv)
{
    tee_backend *t = (tee_backend *)b;
    tee_kv *pair = (tee_kv *)(void *)kv;
    if (!pair)
        return;
    for (int s = 0; s < 2; s++)
        bnet_op_kv_free(t->side[s].be, pair->half[s]);
    bnet_free(pair);
}

static bnet_kv_store *tee_kv_new(bnet_backend *b, const bnet_kv_shape *shape)
{
    tee_backend *t = (tee_backend *)b;
    tee_kv *pair = bnet_calloc(1, sizeof *pair);
    if (!pair)
        return NULL;
    pair->first = t->side[0].be;
    pair->shape = *shape;
    for (int s = 0; s < 2; s++)
        pair->half[s] = bnet_op_kv_new(t->side[s].be, shape);
    if (pair->half[0] && pair->half[1])
        return (bnet_kv_store *)(void *)pair;
    tee_kv_free(b, (bnet_kv_store *)(void *)pair);
    return NULL;
}

/* Side 1 gets its copy before it reads. */
static void tee_kv_get(bnet_kv_store *kv, int layer, int block, void *bytes)
{
    tee_kv *pair = (tee_kv *)(void *)kv;
    bnet_op_kv_get(pair->first, pair->half[0], layer, block, bytes);
}

static void tee_kv_put(bnet_kv_store *kv, int layer, int block, const void *bytes)
{
    tee_kv *pair = (tee_kv *)(void *)kv;
    bnet_op_kv_put(pair->first, pair->half[0], layer, block, bytes);
}

static void tee_kv_clear(bnet_kv_store *kv, int block)
{
    tee_kv *pair = (tee_kv *)(void *)kv;
    bnet_op_kv_clear(pair->first, pair->half[0], block);
}

static void tee_kv_copy(bnet_kv_store *dst, int to, const bnet_kv_store *src, int from)
{
    tee_kv *a = (tee_kv *)(void *)dst;
    const tee_kv *b = (const tee_kv *)(const void *)src;
    bnet_op_kv_copy(a->first, a->half[0], to, b->half[0], from);
}

static void tee_kernels(const bnet_backend *b, bnet_use_fn *each, void *user)
{
    bnet_backend_each_kernel(((const tee_backend *)b)->side[0].be, each, user);
}

static uint64_t tee_fallbacks(const bnet_backend *b)
{
    const bnet_backend *first = ((const tee_backend *)b)->side[0].be;
    return bnet_backend_fallbacks(first);
}

static void tee_mark(bnet_backend *b, int layer)
{
    ((tee_backend *)b)->layer = layer;
}

static bnet_backend_vtable table(void)
{
    bnet_backend_vtable v = {.name = "tee",
                             .close = tee_close,
                             .buffer_new = tee_buffer_new,
                             .buffer_free = tee_buffer_free,
                             .read = tee_read,
                             .write = tee_write,
                             .sync = tee_sync,
                             .weight_prepare = tee_weight_prepare,
                             .weight_free = tee_weight_free,
                             .weight_info = tee_weight_info,
                             .kv_new = tee_kv_new,
                             .kv_free = tee_kv_free,
                             .kv_get = tee_kv_get,
                             .kv_put = tee_kv_put,
                             .kv_clear = tee_kv_clear,
                             .kv_copy = tee_kv_copy};
    bnet_tee_fill(&v);
    return v;
}

static const bnet_inspect_ops inspect = {
    .kernels = tee_kernels, .fallbacks = tee_fallbacks, .mark = tee_mark};

bitnet_status bnet_backend_open_tee(const bnet_tee_side *first, const bnet_tee_side *second,
                                    bnet_backend **out, bitnet_error *err)
{
    tee_backend *t = bnet_calloc(1, sizeof *t);
    if (!t)
        return bnet_no_memory(err, "tee");
    const bnet_tee_side *given[2] = {first, second};
    bool ok = true;
    for (int s = 0; s < 2; s++) {
        tee_side *side = &t->side[s];
        side->registry = given[s]->registry;
        side->before = bnet_calloc(BNET_KERNELS_MAX, sizeof *side->before);
        side->after = bnet_calloc(BNET_KERNELS_MAX, sizeof *side->after);
        ok = ok && side->before && side->after;
    }
    if (!ok) {
        tee_close(&t->base);
        return bnet_no_memory(err, "tee");
    }
    t->side[0].be = first->backend;
    t->side[1].be = second->backend;
    t->table = table();
    t->base.v = &t->table;
    t->base.inspect = &inspect;
    t->layer = -1;
    *out = &t->base;
    return BITNET_OK;
}

const bnet_tee_report *bnet_tee_result(const bnet_backend *b)
{
    return &((const tee_backend *)b)->report;
}
