/* kv.c - blocks of 64 positions, taken from a free list when a timeline grows and found through its
 * table. Blocks belong to one timeline or to a pool of several; in a pool, tables may share blocks.
 * Invariant: a block that several hold is never written, its writer takes a copy first. */
#include "model/kv.h"

#include <stdio.h>

#include "model/kv_prefix.h"
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
    return bnet_kv_layer_bytes(&s) * (uint64_t)s.n_layers;
}

uint64_t bnet_kv_bytes(const bnet_model *m, int n_ctx, bitnet_kv_type type)
{
    return bnet_kv_block_bytes(m, type) * (uint64_t)bnet_kv_blocks_for((size_t)n_ctx);
}

int bnet_kv_blocks_for(size_t n_pos)
{
    return (int)((n_pos + BNET_KV_BLOCK - 1) / BNET_KV_BLOCK);
}

/* Makes the store and the two lists; the message of a failure names the size. */
static bitnet_status make_lists(const bnet_model *m, bnet_kv_blocks *b, bitnet_error *err)
{
    size_t n = (size_t)b->shape.n_blocks;
    char what[64];
    bitnet_status st = BITNET_OK;
    bnet_op_hold(m->be);
    b->store = bnet_op_kv_new(m->be, &b->shape);
    b->free_list = bnet_calloc(n, sizeof *b->free_list);
    b->n_refs = bnet_calloc(n, sizeof *b->n_refs);
    snprintf(what, sizeof what, "key/value cache of %zu positions", n * BNET_KV_BLOCK);
    if (!b->store || !b->free_list || !b->n_refs)
        st = bnet_op_no_memory(m->be, what, bnet_kv_block_bytes(m, b->shape.type) * (uint64_t)n,
                               "ask for a smaller context or an int8 cache", err);
    return bnet_op_release(m->be, st, err);
}

bitnet_status bnet_kv_blocks_open(const bnet_model *m, int n_blocks, bitnet_kv_type type,
                                  bnet_kv_blocks **out, bitnet_error *err)
{
    bnet_kv_blocks *b = bnet_calloc(1, sizeof *b);
    if (!b)
        return bnet_no_memory(err, "key/value cache");
    b->be = m->be;
    b->model = m;
    b->shape = shape_of(m, n_blocks, type);
    b->pooled = true;
    bitnet_status st = make_lists(m, b, err);
    if (st != BITNET_OK) {
        bnet_kv_blocks_close(b);
        return st;
    }
    b->n_free = b->n_untouched = n_blocks;
    bnet_model_reserve(m, bnet_kv_block_bytes(m, type) * (uint64_t)n_blocks);
    for (int i = 0; i < n_blocks; i++)
        b->free_list[i] = n_blocks - 1 - i; /* taken from the end: block 0 first */
    *out = b;
    return BITNET_OK;
}

/* All blocks but n_left have been taken at some time, or never will be. */
static void touch(bnet_kv_blocks *b, int n_left)
{
    if (n_left >= b->n_untouched)
        return;
    bnet_model_release(b->model, bnet_kv_block_bytes(b->model, b->shape.type) *
                                     (uint64_t)(b->n_untouched - n_left));
    b->n_untouched = n_left;
}

void bnet_kv_blocks_close(bnet_kv_blocks *b)
{
    if (!b)
        return;
    touch(b, 0);
    bnet_kv_prefixes_close(b->prefixes);
    bnet_op_kv_free(b->be, b->store);
    bnet_free(b->free_list);
    bnet_free(b->n_refs);
    bnet_free(b);
}

int bnet_kv_blocks_free(const bnet_kv_blocks *b)
{
    return b->n_free;
}

int bnet_kv_blocks_refs(const bnet_kv_blocks *b, int32_t block)
{
    return b->n_refs[block];
}

void bnet_kv_blocks_hold(bnet_kv_blocks *b, int32_t block)
{
    assert(b->n_refs[block] > 0);
    if (++b->n_refs[block] == 2)
        bnet_kv_prefix_changed(b->prefixes, block);
}

void bnet_kv_blocks_drop(bnet_kv_blocks *b, int32_t block)
{
    assert(b->n_refs[block] > 0);
    if (--b->n_refs[block] == 0)
        b->free_list[b->n_free++] = block;
    else if (b->n_refs[block] == 1)
        bnet_kv_prefix_changed(b->prefixes, block);
}

static int32_t take(bnet_kv_blocks *b)
{
    assert(b->n_free > 0);
    int32_t block = b->free_list[--b->n_free];
    touch(b, b->n_free);
    b->n_refs[block] = 1;
    return block;
}

/* ---- timelines ---- */

bitnet_status bnet_kv_open_pooled(bnet_kv_blocks *b, int n_ctx, bnet_kv **out, bitnet_error *err)
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
    st = bnet_kv_open_pooled(b, n_ctx, out, err);
    if (st != BITNET_OK) {
        bnet_kv_blocks_close(b);
        return st;
    }
    b->pooled = false;
    (*out)->owner = true;
    return BITNET_OK;
}

/* The last block first, so that they are taken again in the same order. */
void bnet_kv_trim(bnet_kv *kv, int n_blocks)
{
    while (kv->n_mapped > n_blocks)
        bnet_kv_blocks_drop(kv->blocks, kv->table[--kv->n_mapped]);
}

void bnet_kv_close(bnet_kv *kv)
{
    if (!kv)
        return;
    bnet_kv_trim(kv, 0);
    if (kv->owner)
        bnet_kv_blocks_close(kv->blocks);
    bnet_free(kv->table);
    bnet_free(kv);
}

int bnet_kv_mapped(const bnet_kv *kv)
{
    return kv->n_mapped;
}

int32_t bnet_kv_block_at(const bnet_kv *kv, int i)
{
    assert(i >= 0 && i < kv->n_mapped);
    return kv->table[i];
}

void bnet_kv_map(bnet_kv *kv, int32_t block)
{
    assert(kv->n_mapped < kv->n_table);
    bnet_kv_blocks_hold(kv->blocks, block);
    kv->table[kv->n_mapped++] = block;
}

/* ---- writing beside others ---- */

/* Will position n_valid be written into a block that others hold, too? */
static bool must_part(const bnet_kv *kv, int n_valid, int n_pos)
{
    int i = n_valid / BNET_KV_BLOCK;
    return n_pos > n_valid && n_valid % BNET_KV_BLOCK != 0 && i < kv->n_mapped &&
           kv->blocks->n_refs[kv->table[i]] > 1;
}

int bnet_kv_missing(const bnet_kv *kv, int n_valid, int n_pos)
{
    int has = BNET_MIN(kv->n_mapped, bnet_kv_blocks_for((size_t)n_valid));
    return bnet_kv_blocks_for((size_t)n_pos) - has + must_part(kv, n_valid, n_pos);
}

bnet_kv_taken bnet_kv_take(bnet_kv *kv, int n_valid, int n_pos)
{
    bnet_kv_blocks *b = kv->blocks;
    int need = bnet_kv_blocks_for((size_t)n_pos);
    bnet_kv_taken t = {.copied = BNET_KV_NONE, .n_cleared = b->n_cleared};
    assert(need <= kv->n_table);
    bnet_kv_trim(kv, bnet_kv_blocks_for((size_t)n_valid)); /* the timeline may have been rewound */
    if (must_part(kv, n_valid, n_pos)) {
        int32_t *last = &kv->table[kv->n_mapped - 1];
        t.copied = *last;
        *last = take(b);
    }
    for (t.n_before = kv->n_mapped; kv->n_mapped < need;)
        kv->table[kv->n_mapped++] = take(b);
    return t;
}

/* A cache of one timeline zeroes a block when it is first used: blocks leave the free list in their
 * order the first time, so one number says which were. In a pool a block is zeroed whenever it is
 * taken. */
static void clear(bnet_kv_blocks *b, int32_t block)
{
    if (!b->pooled && block < b->n_cleared)
        return;
    bnet_op_kv_clear(b->be, b->store, block);
    if (!b->pooled)
        b->n_cleared = block + 1;
}

bitnet_status bnet_kv_ready(bnet_kv *kv, const bnet_kv_taken *t, bitnet_error *err)
{
    bnet_kv_blocks *b = kv->blocks;
    if (!bnet_kv_took(kv, t))
        return BITNET_OK;
    bnet_op_hold(b->be);
    if (t->copied != BNET_KV_NONE)
        bnet_op_kv_copy(b->be, b->store, kv->table[t->n_before - 1], b->store, t->copied);
    for (int i = t->n_before; i < kv->n_mapped; i++)
        clear(b, kv->table[i]);
    return bnet_op_release(b->be, BITNET_OK, err);
}

void bnet_kv_settle(bnet_kv *kv, const bnet_kv_taken *t, bool ready)
{
    bnet_kv_blocks *b = kv->blocks;
    int32_t dropped = t->copied;
    if (!ready) { /* any of the new blocks may not have been zeroed */
        bnet_kv_trim(kv, t->n_before);
        b->n_cleared = t->n_cleared;
    }
    if (dropped != BNET_KV_NONE && !ready) {
        dropped = kv->table[t->n_before - 1];
        kv->table[t->n_before - 1] = t->copied;
    }
    if (dropped != BNET_KV_NONE)
        bnet_kv_blocks_drop(b, dropped);
}

bitnet_status bnet_kv_cover(bnet_kv *kv, int n_pos, bitnet_error *err)
{
    if (bnet_kv_blocks_for((size_t)n_pos) <= kv->n_mapped)
        return BITNET_OK; /* reads nothing of the blocks: others may be taking some */
    bnet_kv_taken t = bnet_kv_take(kv, kv->n_mapped * BNET_KV_BLOCK, n_pos);
    bitnet_status st = bnet_kv_ready(kv, &t, err);
    bnet_kv_settle(kv, &t, st == BITNET_OK);
    return st;
}

bitnet_status bnet_kv_copy(bnet_kv *kv, const bnet_kv *from, int n_pos, bitnet_error *err)
{
    bnet_kv_blocks *b = kv->blocks;
    bnet_kv_trim(kv, 0);
    bitnet_status st = bnet_kv_cover(kv, n_pos, err);
    if (st != BITNET_OK)
        return st;
    bnet_op_hold(b->be);
    for (int i = 0; i < kv->n_mapped; i++)
        bnet_op_kv_copy(b->be, b->store, kv->table[i], from->blocks->store, from->table[i]);
    return bnet_op_release(b->be, bnet_op_sync(b->be, err), err);
}

/* ---- saving and restoring ---- */

static size_t layer_bytes(const bnet_kv_blocks *b)
{
    return (size_t)bnet_kv_layer_bytes(&b->shape);
}

uint64_t bnet_kv_saved_bytes(const bnet_kv *kv, int n_pos)
{
    const bnet_kv_blocks *b = kv->blocks;
    return (uint64_t)layer_bytes(b) * (uint64_t)b->shape.n_layers *
           (uint64_t)bnet_kv_blocks_for((size_t)n_pos);
}

/* Zeroes what lies behind the first n positions of a block of one layer: the timeline may have been
 * rewound or forked, and what others wrote there is not its own. */
static void zero_tail(const bnet_kv_shape *s, int n, uint8_t *block)
{
    size_t hd = (size_t)s->head_dim, row = hd * bnet_kv_elem(s->type), used = (size_t)n;
    size_t part = bnet_kv_part_bytes(s->type, hd), scales = bnet_kv_scale_offset(hd);
    size_t groups = bnet_kv_groups(hd) * sizeof(float);
    for (int i = 0; i < 2 * s->n_kv_heads; i++, block += part) {
        memset(block + used * row, 0, (BNET_KV_BLOCK - used) * row);
        if (s->type == BITNET_KV_INT8)
            memset(block + scales + used * groups, 0, (BNET_KV_BLOCK - used) * groups);
    }
}

/* Copies one block of one layer to the host. */
static bitnet_status fetch(const bnet_kv_blocks *b, int layer, int32_t block, void *copy,
                           bitnet_error *err)
{
    bnet_op_hold(b->be);
    bnet_op_kv_get(b->be, b->store, layer, block, copy);
    return bnet_op_release(b->be, bnet_op_sync(b->be, err), err);
}

bitnet_status bnet_kv_read(const bnet_kv *kv, int n_pos, bnet_kv_sink sink, void *user,
                           bitnet_error *err)
{
    const bnet_kv_blocks *b = kv->blocks;
    int need = bnet_kv_blocks_for((size_t)n_pos);
    assert(need <= kv->n_mapped);
    void *copy = bnet_alloc(layer_bytes(b));
    if (!copy)
        return bnet_no_memory(err, "key/value cache");
    bitnet_status st = BITNET_OK;
    for (int i = 0; st == BITNET_OK && i < b->shape.n_layers * need; i++) {
        st = fetch(b, i / need, kv->table[i % need], copy, err);
        if (i % need == need - 1 && n_pos % BNET_KV_BLOCK)
            zero_tail(&b->shape, n_pos % BNET_KV_BLOCK, copy);
        if (st == BITNET_OK)
            st = sink(user, copy, layer_bytes(b), err);
    }
    bnet_free(copy);
    return st;
}

bitnet_status bnet_kv_write(bnet_kv *kv, int n_pos, const uint8_t *bytes, bitnet_error *err)
{
    const bnet_kv_blocks *b = kv->blocks;
    int need = bnet_kv_blocks_for((size_t)n_pos);
    bitnet_status st = bnet_kv_cover(kv, n_pos, err);
    if (st != BITNET_OK)
        return st;
    bnet_op_hold(b->be);
    for (int i = 0; i < b->shape.n_layers * need; i++, bytes += layer_bytes(b))
        bnet_op_kv_put(b->be, b->store, i / need, kv->table[i % need], bytes);
    return bnet_op_release(b->be, bnet_op_sync(b->be, err), err);
}
