/* kv.c - blocks of 64 positions, taken from a free list when a timeline grows and found through its
 * table. The list belongs to one timeline or is shared by several. */
#include "model/kv.h"

#include <stdio.h>

#include "model/weights.h"

/* ---- blocks ---- */

static bnet_kv_shape shape_of(const bnet_model *m, int n_blocks, bitnet_kv_type type)
{
    return (bnet_kv_shape){.n_layers = m->hp.n_layers,
                           .n_blocks = n_blocks,
                           .n_kv_heads = m->hp.n_kv_heads,
                           .head_dim = m->hp.head_dim,
                           .type = type,
                           .n_heads = m->hp.n_heads};
}

uint64_t bnet_kv_block_bytes(const bnet_model *m, bitnet_kv_type type)
{
    bnet_kv_shape s = shape_of(m, 1, type);
    return m->be->v->kv_block_bytes(&s) * (uint64_t)s.n_layers;
}

uint64_t bnet_kv_bytes(const bnet_model *m, int n_ctx, bitnet_kv_type type)
{
    return bnet_kv_block_bytes(m, type) * (uint64_t)bnet_kv_blocks_for((size_t)n_ctx);
}

int bnet_kv_blocks_for(size_t n_pos)
{
    return (int)((n_pos + BNET_KV_BLOCK - 1) / BNET_KV_BLOCK);
}

bitnet_status bnet_kv_blocks_open(const bnet_model *m, int n_blocks, bitnet_kv_type type,
                                  bnet_kv_blocks **out, bitnet_error *err)
{
    bnet_kv_blocks *b = bnet_calloc(1, sizeof *b);
    if (!b)
        return bnet_no_memory(err, "key/value cache");
    b->be = m->be;
    b->shape = shape_of(m, n_blocks, type);
    b->shared = true;
    bnet_op_hold(m->be);
    b->store = m->be->v->kv_new(m->be, &b->shape);
    b->free_list = bnet_calloc((size_t)n_blocks, sizeof *b->free_list);
    char what[64];
    bitnet_status st = BITNET_OK;
    snprintf(what, sizeof what, "key/value cache of %d positions", n_blocks * BNET_KV_BLOCK);
    if (!b->store || !b->free_list)
        st = bnet_op_no_memory(m->be, what, bnet_kv_block_bytes(m, type) * (uint64_t)n_blocks,
                               "ask for a smaller context or an int8 cache", err);
    st = bnet_op_release(m->be, st, err);
    if (st != BITNET_OK) {
        bnet_kv_blocks_close(b);
        return st;
    }
    b->n_free = n_blocks;
    for (int i = 0; i < n_blocks; i++)
        b->free_list[i] = n_blocks - 1 - i; /* taken from the end: block 0 first */
    *out = b;
    return BITNET_OK;
}

void bnet_kv_blocks_close(bnet_kv_blocks *b)
{
    if (!b)
        return;
    b->be->v->kv_free(b->be, b->store);
    bnet_free(b->free_list);
    bnet_free(b);
}

int bnet_kv_blocks_free(const bnet_kv_blocks *b)
{
    return b->n_free;
}

/* Blocks leave the free list in their order the first time, so one number says which were used. */
static void clear(bnet_kv_blocks *b, int32_t block)
{
    if (block < b->n_cleared && !b->shared)
        return;
    bnet_op_kv_clear(b->be, b->store, &b->shape, block);
    b->n_cleared = BNET_MAX(b->n_cleared, block + 1);
}

/* ---- timelines ---- */

bitnet_status bnet_kv_open_shared(bnet_kv_blocks *b, int n_ctx, bnet_kv **out, bitnet_error *err)
{
    bnet_kv *kv = bnet_calloc(1, sizeof *kv);
    int n = bnet_kv_blocks_for((size_t)n_ctx);
    int32_t *table = bnet_calloc((size_t)n, sizeof *table);
    if (!kv || !table) {
        bnet_free(kv);
        bnet_free(table);
        return bnet_no_memory(err, "key/value cache");
    }
    *kv = (bnet_kv){.blocks = b, .n_table = n, .table = table};
    *out = kv;
    return BITNET_OK;
}

bitnet_status bnet_kv_open(const bnet_model *m, int n_ctx, bitnet_kv_type type, bnet_kv **out,
                           bitnet_error *err)
{
    bnet_kv_blocks *b;
    bitnet_status st = bnet_kv_blocks_open(m, bnet_kv_blocks_for((size_t)n_ctx), type, &b, err);
    if (st != BITNET_OK)
        return st;
    st = bnet_kv_open_shared(b, n_ctx, out, err);
    if (st != BITNET_OK) {
        bnet_kv_blocks_close(b);
        return st;
    }
    b->shared = false;
    (*out)->owner = true;
    return BITNET_OK;
}

/* In the opposite order: taken again, they come as they came before. */
static void give_back(bnet_kv *kv, int n_keep)
{
    bnet_kv_blocks *b = kv->blocks;
    while (kv->n_mapped > n_keep)
        b->free_list[b->n_free++] = kv->table[--kv->n_mapped];
}

void bnet_kv_close(bnet_kv *kv)
{
    if (!kv)
        return;
    give_back(kv, 0);
    if (kv->owner)
        bnet_kv_blocks_close(kv->blocks);
    bnet_free(kv->table);
    bnet_free(kv);
}

int bnet_kv_mapped(const bnet_kv *kv)
{
    return kv->n_mapped;
}

bitnet_status bnet_kv_reserve(bnet_kv *kv, int n_pos, bitnet_error *err)
{
    give_back(kv, bnet_kv_blocks_for((size_t)n_pos)); /* the timeline was rewound */
    return bnet_kv_cover(kv, n_pos, err);
}

bitnet_status bnet_kv_cover(bnet_kv *kv, int n_pos, bitnet_error *err)
{
    bnet_kv_blocks *b = kv->blocks;
    int need = bnet_kv_blocks_for((size_t)n_pos), n_mapped = kv->n_mapped;
    assert(need <= kv->n_table);
    if (need <= n_mapped) /* reads nothing of the blocks: others may be taking some */
        return BITNET_OK;
    int n_cleared = b->n_cleared;
    bnet_op_hold(b->be);
    while (kv->n_mapped < need) {
        assert(b->n_free > 0);
        kv->table[kv->n_mapped] = b->free_list[--b->n_free];
        clear(b, kv->table[kv->n_mapped++]);
    }
    bitnet_status st = bnet_op_release(b->be, BITNET_OK, err);
    if (st != BITNET_OK) { /* which of them was not zeroed is not known */
        give_back(kv, n_mapped);
        b->n_cleared = n_cleared;
    }
    return st;
}

uint64_t bnet_kv_walk_bytes(const bnet_kv *kv, int n_pos)
{
    const bnet_kv_blocks *b = kv->blocks;
    return b->be->v->kv_block_bytes(&b->shape) * (uint64_t)b->shape.n_layers *
           (uint64_t)bnet_kv_blocks_for((size_t)n_pos);
}

/* One block, which may have to be fetched and brought back. */
static bitnet_status walk_block(bnet_kv_blocks *b, int layer, int block, void *copy, size_t n_bytes,
                                bnet_kv_io io, void *user, bitnet_error *err)
{
    if (!copy)
        return io(user, b->be->v->kv_block(b->store, layer, block), n_bytes, err);
    bnet_op_hold(b->be);
    bnet_op_kv_get(b->be, b->store, layer, block, copy, n_bytes);
    bitnet_status st = bnet_op_release(b->be, bnet_op_sync(b->be, err), err);
    if (st == BITNET_OK)
        st = io(user, copy, n_bytes, err); /* a file: nobody waits for it */
    if (st != BITNET_OK)
        return st;
    bnet_op_hold(b->be);
    bnet_op_kv_put(b->be, b->store, layer, block, copy, n_bytes);
    return bnet_op_release(b->be, st, err);
}

/* Whole blocks, in the order layer, logical block: what physical block they are in is nobody's
 * business. */
bitnet_status bnet_kv_walk(bnet_kv *kv, int n_pos, bnet_kv_io io, void *user, bitnet_error *err)
{
    bnet_kv_blocks *b = kv->blocks;
    int need = bnet_kv_blocks_for((size_t)n_pos);
    bitnet_status st = bnet_kv_cover(kv, n_pos, err);
    if (st != BITNET_OK)
        return st;
    size_t n_bytes = (size_t)b->be->v->kv_block_bytes(&b->shape);
    void *copy = b->be->v->kv_block ? NULL : bnet_alloc(n_bytes);
    if (!copy && !b->be->v->kv_block)
        return bnet_no_memory(err, "key/value cache");
    for (int i = 0; st == BITNET_OK && i < b->shape.n_layers * need; i++)
        st = walk_block(b, i / need, kv->table[i % need], copy, n_bytes, io, user, err);
    if (st == BITNET_OK && copy)
        st = bnet_op_sync(b->be, err);
    bnet_free(copy);
    return st;
}
