/* kv.h - the paged cache inside the model layer. */
#ifndef BNET_KV_H
#define BNET_KV_H

#include "model/model.h"

/* Blocks of one timeline or of a pool of several. No lock: the owner of a pool brings one. */
struct bnet_kv_blocks {
    bnet_backend *be;
    bnet_kv_store *store; /* n_blocks blocks */
    bnet_kv_shape shape;
    int32_t *n_refs;    /* [n_blocks] how many tables and others hold a block; 0: it is free */
    int32_t *free_list; /* physical blocks that nobody holds, [n_free] */
    int n_free;
    int n_untouched; /* blocks that nobody has ever taken: free ones are taken last in, first out */
    const bnet_model *model;
    int n_cleared; /* physical blocks below this were zeroed when first used */
    bool pooled;   /* then a block is zeroed whenever it is taken: nobody sees another's */
    struct bnet_kv_prefixes *prefixes; /* the texts that are known in them (kv_prefix.h), or NULL */
};

struct bnet_kv {
    bnet_kv_blocks *blocks;
    bool owner;
    int n_table;    /* blocks of the whole context */
    int32_t *table; /* logical block -> physical block, [n_mapped] valid */
    int n_mapped;
};

#endif
