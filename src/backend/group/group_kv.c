/* group_kv.c - the cache of a group: by layers each rank has its own layers' keys and values, by
 * rows those of its heads. To the host a block looks as on one device. */
#include "backend/group/group.h"

static group_kv *kv_of(bnet_kv_store *kv)
{
    return (group_kv *)(void *)kv;
}

static void group_kv_free(bnet_backend *b, bnet_kv_store *store)
{
    gpu_group *g = group_of(b);
    group_kv *kv = kv_of(store);
    if (!kv)
        return;
    group_lock(g);
    for (int r = 0; r < g->n; r++)
        g->rank[r]->v->kv_free(g->rank[r], kv->at[r]);
    group_unlock(g);
    bnet_free(kv);
}

/* What one rank stores of it. */
static bnet_kv_shape part_of(const gpu_group *g, const group_kv *kv, const bnet_kv_shape *s, int r)
{
    bnet_kv_shape part = *s;
    if (g->split == BNET_SPLIT_LAYER) {
        part.n_layers = (int)(g->layers[r + 1] - g->layers[r]);
    } else {
        part.n_kv_heads = (int)(kv->heads[r + 1] - kv->heads[r]);
        part.n_heads = s->n_heads / s->n_kv_heads * part.n_kv_heads;
    }
    return part;
}

static bnet_kv_store *group_kv_new(bnet_backend *b, const bnet_kv_shape *s)
{
    gpu_group *g = group_of(b);
    group_kv *kv = bnet_calloc(1, sizeof *kv);
    bool ok = kv && (g->split == BNET_SPLIT_LAYER ||
                     bnet_gpu_shares(g->facts, g->n, (uint64_t)s->n_kv_heads, kv->heads));
    if (ok) {
        kv->g = g;
        kv->head_bytes = (size_t)bnet_kv_layer_bytes(s) / (size_t)s->n_kv_heads;
    }
    group_lock(g);
    for (int r = 0; ok && r < g->n; r++) {
        bnet_kv_shape part = part_of(g, kv, s, r);
        kv->at[r] = g->rank[r]->v->kv_new(g->rank[r], &part);
        ok = kv->at[r] != NULL;
        if (!ok)
            bnet_group_missing(g, r);
    }
    group_unlock(g);
    if (!ok) {
        group_kv_free(b, (bnet_kv_store *)(void *)kv);
        return NULL;
    }
    return (bnet_kv_store *)(void *)kv;
}

static void group_kv_get(bnet_kv_store *store, int layer, int block, void *bytes)
{
    group_kv *kv = kv_of(store);
    gpu_group *g = kv->g;
    int owner = bnet_group_rank_of(g, layer);
    group_lock(g);
    if (g->split == BNET_SPLIT_LAYER)
        g->rank[owner]->v->kv_get(kv->at[owner], layer - (int)g->layers[owner], block, bytes);
    for (int r = 0; g->split == BNET_SPLIT_TENSOR && r < g->n; r++)
        g->rank[r]->v->kv_get(kv->at[r], layer, block,
                              (uint8_t *)bytes + kv->heads[r] * kv->head_bytes);
    group_unlock(g);
}

static void group_kv_put(bnet_kv_store *store, int layer, int block, const void *bytes)
{
    group_kv *kv = kv_of(store);
    gpu_group *g = kv->g;
    int owner = bnet_group_rank_of(g, layer);
    group_lock(g);
    if (g->split == BNET_SPLIT_LAYER)
        g->rank[owner]->v->kv_put(kv->at[owner], layer - (int)g->layers[owner], block, bytes);
    for (int r = 0; g->split == BNET_SPLIT_TENSOR && r < g->n; r++)
        g->rank[r]->v->kv_put(kv->at[r], layer, block,
                              (const uint8_t *)bytes + kv->heads[r] * kv->head_bytes);
    group_unlock(g);
}

static void group_kv_clear(bnet_kv_store *store, int block)
{
    group_kv *kv = kv_of(store);
    group_lock(kv->g);
    for (int r = 0; r < kv->g->n; r++)
        kv->g->rank[r]->v->kv_clear(kv->at[r], block);
    group_unlock(kv->g);
}

static void group_kv_copy(bnet_kv_store *dst, int to, const bnet_kv_store *src, int from)
{
    const group_kv *a = kv_of(dst), *b = (const group_kv *)(const void *)src;
    group_lock(a->g);
    for (int r = 0; r < a->g->n; r++)
        a->g->rank[r]->v->kv_copy(a->at[r], to, b->at[r], from);
    group_unlock(a->g);
}

void bnet_group_fill_kv(bnet_backend_vtable *v)
{
    v->kv_new = group_kv_new;
    v->kv_free = group_kv_free;
    v->kv_get = group_kv_get;
    v->kv_put = group_kv_put;
    v->kv_clear = group_kv_clear;
    v->kv_copy = group_kv_copy;
}
