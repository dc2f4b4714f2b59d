/* kv_prefix.h - which texts are in the blocks of a pool: an index from the tokens of whole blocks
 * to the block that holds their keys and values. A text is a chain of blocks: each is known by the
 * block before it and its own 64 tokens, which are compared, so a hash that collides finds nothing
 * wrong. At most one entry per block of the pool. No lock: the pool brings it. */
#ifndef BNET_KV_PREFIX_H
#define BNET_KV_PREFIX_H

#include "model/model.h"

enum { BNET_KV_NONE = -1 };

typedef struct bnet_kv_prefixes bnet_kv_prefixes;

bitnet_status bnet_kv_prefixes_open(int n_blocks, bnet_kv_prefixes **out, bitnet_error *err);
void bnet_kv_prefixes_close(bnet_kv_prefixes *x);

/* The block that continues `parent` (BNET_KV_NONE: begins a text of this scope) with these 64
 * tokens; BNET_KV_NONE if none does. */
int32_t bnet_kv_prefix_find(const bnet_kv_prefixes *x, uint64_t scope, int32_t parent,
                            const int32_t *tokens);
/* Enters a block that is not in the index, as the one that continues parent. */
void bnet_kv_prefix_add(bnet_kv_prefixes *x, uint64_t scope, int32_t parent, const int32_t *tokens,
                        int32_t block, uint64_t now);
bool bnet_kv_prefix_has(const bnet_kv_prefixes *x, int32_t block);
void bnet_kv_prefix_use(bnet_kv_prefixes *x, int32_t block,
                        uint64_t now); /* it was found at `now` */

/* Removes the entry that the policy gives up first, among those that no other continues: with
 * unused, only of blocks that nobody but the index holds. Returns its block, which the caller
 * drops, or BNET_KV_NONE. */
int32_t bnet_kv_prefix_evict(bnet_kv_prefixes *x, const bnet_kv_blocks *blocks,
                             bitnet_kv_policy policy, bool unused);

#endif
