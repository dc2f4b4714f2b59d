/* kv.c - the cache of keys and values on the device, in the CPU's order inside a block, so that
 * what one saved the other can read. */
#include "backend/gpu/gpu.h"

bnet_kv_store *bnet_gpu_kv_new(bnet_backend *b, const bnet_kv_shape *s)
{
    gpu_backend *be = gpu_of(b);
    uint64_t block = bnet_kv_layer_bytes(s), total;
    if (!bnet_mul(block, (uint64_t)s->n_layers * (uint64_t)s->n_blocks, &total) || total > SIZE_MAX)
        return NULL;
    gpu_kv *kv = bnet_calloc(1, sizeof *kv);
    if (!kv)
        return NULL;
    bnet_gpu_enter(be);
    *kv = (gpu_kv){*s,
                   be,
                   bnet_kv_part_bytes(s->type, (size_t)s->head_dim),
                   (size_t)block,
                   (size_t)total,
                   bnet_gpu_take(be, (size_t)total, &be->kv_bytes)};
    bnet_gpu_leave(be);
    if (gpu_none(kv->data)) {
        bnet_free(kv);
        return NULL;
    }
    return (bnet_kv_store *)(void *)kv;
}

void bnet_gpu_kv_free(bnet_backend *b, bnet_kv_store *store)
{
    gpu_backend *be = gpu_of(b);
    gpu_kv *kv = (gpu_kv *)(void *)store;
    if (!kv)
        return;
    bnet_gpu_enter(be);
    bnet_gpu_give(be, kv->data, kv->n_bytes, &be->kv_bytes);
    bnet_gpu_leave(be);
    bnet_free(kv);
}

static gpu_at block_at(const gpu_kv *kv, int layer, int block)
{
    size_t n = (size_t)layer * (size_t)kv->shape.n_blocks + (size_t)block;
    return gpu_plus(kv->data, n * kv->block_bytes);
}

void bnet_gpu_kv_get(bnet_kv_store *store, int layer, int block, void *bytes)
{
    gpu_kv *kv = (gpu_kv *)(void *)store;
    bnet_gpu_enter(kv->be);
    bnet_gpu_download(kv->be, bytes, block_at(kv, layer, block), kv->block_bytes);
    bnet_gpu_leave(kv->be);
}

void bnet_gpu_kv_put(bnet_kv_store *store, int layer, int block, const void *bytes)
{
    gpu_kv *kv = (gpu_kv *)(void *)store;
    bnet_gpu_enter(kv->be);
    bnet_gpu_upload(kv->be, block_at(kv, layer, block), bytes, kv->block_bytes);
    bnet_gpu_leave(kv->be);
}

void bnet_gpu_kv_clear(bnet_kv_store *store, int block)
{
    gpu_kv *kv = (gpu_kv *)(void *)store;
    gpu_driver *d = kv->be->d;
    const gpu_rows rows = {.dst = block_at(kv, 0, block),
                           .dst_pitch = (size_t)kv->shape.n_blocks * kv->block_bytes,
                           .n_bytes = kv->block_bytes,
                           .n_rows = (size_t)kv->shape.n_layers};
    bnet_gpu_enter(kv->be);
    if (d->c->fill_rows)
        bnet_gpu_ok(kv->be, "clearing the cache", d->c->fill_rows(d, &rows, 0));
    for (size_t i = 0; !d->c->fill_rows && i < rows.n_rows && gpu_alive(kv->be); i++)
        bnet_gpu_ok(kv->be, "clearing the cache",
                    d->c->fill(d, gpu_plus(rows.dst, i * rows.dst_pitch), 0, rows.n_bytes));
    bnet_gpu_leave(kv->be);
}

void bnet_gpu_kv_copy(bnet_kv_store *dst, int to, const bnet_kv_store *src, int from)
{
    const gpu_kv *a = (const gpu_kv *)(void *)dst, *b = (const gpu_kv *)(const void *)src;
    gpu_driver *d = a->be->d;
    bnet_gpu_enter(a->be);
    for (int i = 0; i < a->shape.n_layers && gpu_alive(a->be); i++)
        bnet_gpu_ok(a->be, "copying a block of the cache",
                    d->c->copy(d, block_at(a, i, to), block_at(b, i, from), a->block_bytes));
    bnet_gpu_leave(a->be);
}
