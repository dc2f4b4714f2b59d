/* kv.h - the paged cache inside the model layer. */
#ifndef BNET_KV_H
#define BNET_KV_H

#include "model/model.h"

struct bnet_kv {
    bnet_backend *be;
    bnet_kv_store *store; /* n_blocks blocks */
    bnet_kv_shape shape;
    int32_t *table;     /* logical block -> physical block, [n_mapped] valid */
    int32_t *free_list; /* physical blocks nobody uses, [n_free] */
    int n_mapped, n_free;
    int n_cleared; /* physical blocks below this were zeroed when first used: no stray bytes are
                      saved */
};

/* Maps blocks so that positions [0, n_pos) have a place. The caller checked n_pos <= n_ctx. */
void bnet_kv_reserve(bnet_kv *kv, int n_pos);

#endif
