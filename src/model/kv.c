/* kv.c - blocks of 64 positions, taken from a free list when a timeline grows and found through its
 * table. */
#include "model/kv.h"

#include "model/weights.h"

static bnet_kv_shape shape_of(const bnet_model *m, int n_ctx, bitnet_kv_type type)
{
    int n_blocks = (n_ctx + BNET_KV_BLOCK - 1) / BNET_KV_BLOCK;
    return (bnet_kv_shape){m->hp.n_layers, n_blocks, m->hp.n_kv_heads, m->hp.head_dim, type};
}

uint64_t bnet_kv_bytes(const bnet_model *m, int n_ctx, bitnet_kv_type type)
{
    bnet_kv_shape s = shape_of(m, n_ctx, type);
    return m->be->v->kv_block_bytes(&s) * (uint64_t)s.n_layers * (uint64_t)s.n_blocks;
}

bitnet_status bnet_kv_open(const bnet_model *m, int n_ctx, bitnet_kv_type type, bnet_kv **out,
                           bitnet_error *err)
{
    bnet_kv *kv = bnet_calloc(1, sizeof *kv);
    if (!kv)
        return bnet_no_memory(err, "key/value cache");
    kv->be = m->be;
    kv->shape = shape_of(m, n_ctx, type);
    size_t n = (size_t)kv->shape.n_blocks;
    kv->store = m->be->v->kv_new(m->be, &kv->shape);
    kv->table = bnet_calloc(n, sizeof *kv->table);
    kv->free_list = bnet_calloc(n, sizeof *kv->free_list);
    if (!kv->store || !kv->table || !kv->free_list) {
        bnet_kv_close(kv);
        return bnet_fail(
            err, BITNET_MEMORY,
            "out of memory: key/value cache of %d positions needs %llu bytes; ask for a "
            "smaller context or an int8 cache",
            n_ctx, (unsigned long long)bnet_kv_bytes(m, n_ctx, type));
    }
    kv->n_free = kv->shape.n_blocks;
    for (int i = 0; i < kv->n_free; i++)
        kv->free_list[i] = kv->n_free - 1 - i; /* taken from the end: block 0 first */
    *out = kv;
    return BITNET_OK;
}

void bnet_kv_close(bnet_kv *kv)
{
    if (!kv)
        return;
    kv->be->v->kv_free(kv->be, kv->store);
    bnet_free(kv->table);
    bnet_free(kv->free_list);
    bnet_free(kv);
}

/* Blocks leave the free list in their order the first time, so one number says which were used. */
static void clear_once(bnet_kv *kv, int32_t block)
{
    if (block < kv->n_cleared)
        return;
    size_t n_bytes = (size_t)kv->be->v->kv_block_bytes(&kv->shape);
    for (int layer = 0; layer < kv->shape.n_layers; layer++)
        memset(kv->be->v->kv_block(kv->store, layer, block), 0, n_bytes);
    kv->n_cleared = block + 1;
}

void bnet_kv_reserve(bnet_kv *kv, int n_pos)
{
    int need = (n_pos + BNET_KV_BLOCK - 1) / BNET_KV_BLOCK;
    while (kv->n_mapped > need) /* the timeline was rewound */
        kv->free_list[kv->n_free++] = kv->table[--kv->n_mapped];
    while (kv->n_mapped < need) {
        assert(kv->n_free > 0);
        kv->table[kv->n_mapped] = kv->free_list[--kv->n_free];
        clear_once(kv, kv->table[kv->n_mapped++]);
    }
}

/* Whole blocks, in the order layer, logical block: what physical block they are in is nobody's
 * business. */
bitnet_status bnet_kv_walk(bnet_kv *kv, int n_pos, bnet_kv_io io, void *user, bitnet_error *err)
{
    bnet_kv_reserve(kv, n_pos);
    size_t n_bytes = (size_t)kv->be->v->kv_block_bytes(&kv->shape);
    for (int layer = 0; layer < kv->shape.n_layers; layer++)
        for (int b = 0; b < kv->n_mapped; b++) {
            bitnet_status st =
                io(user, kv->be->v->kv_block(kv->store, layer, kv->table[b]), n_bytes, err);
            if (st != BITNET_OK)
                return st;
        }
    return BITNET_OK;
}
