/* kv_prefix.h - which texts are in the blocks of a pool: an index from tokens to the block that
 * holds their keys and values. A text is a chain of blocks: each is known by the block before it
 * and its own 64 tokens, of the last one perhaps fewer, which are compared, so a hash that collides
 * finds nothing wrong. At most one entry per block of the pool. Finding is O(1), all else O(log n)
 * of the number of entries. No lock: the pool brings it. */
#ifndef BNET_KV_PREFIX_H
#define BNET_KV_PREFIX_H

#include "model/model.h"

typedef struct bnet_kv_prefixes bnet_kv_prefixes;

/* An index of these blocks, which own it and tell it when a block gets its second holder or has one
 * holder left (_changed; NULL: nothing happens). */
bitnet_status bnet_kv_prefixes_open(bnet_kv_blocks *blocks, bitnet_kv_policy policy,
                                    bitnet_error *err);
bnet_kv_prefixes *bnet_kv_prefixes_of(const bnet_kv_blocks *blocks); /* NULL: none was opened */
void bnet_kv_prefix_changed(bnet_kv_prefixes *x, int32_t block);
void bnet_kv_prefixes_close(bnet_kv_prefixes *x);

/* The block that continues `parent` (BNET_KV_NONE: begins a text of this scope) with these 64
 * tokens; BNET_KV_NONE if none does. */
int32_t bnet_kv_prefix_find(const bnet_kv_prefixes *x, uint64_t scope, int32_t parent,
                            const int32_t *tokens);
/* The block, among the 64 used last that continue `parent`, that begins with the most of these n
 * tokens; *n_common: with how many. BNET_KV_NONE: none of them begins with the first. */
int32_t bnet_kv_prefix_begins(const bnet_kv_prefixes *x, uint64_t scope, int32_t parent,
                              const int32_t *tokens, int n, int *n_common);
/* Enters a block that is not in the index, as the one that continues parent with n tokens (1..64).
 */
void bnet_kv_prefix_add(bnet_kv_prefixes *x, uint64_t scope, int32_t parent, const int32_t *tokens,
                        int n, int32_t block, uint64_t now);
bool bnet_kv_prefix_has(const bnet_kv_prefixes *x, int32_t block);
void bnet_kv_prefix_use(bnet_kv_prefixes *x, int32_t block,
                        uint64_t now); /* it was found at `now` */

/* Removes the entry that the policy gives up first, among those that no other continues: with
 * unused, only of blocks that nobody but the index holds. Returns its block, which the caller
 * drops, or BNET_KV_NONE. */
int32_t bnet_kv_prefix_evict(bnet_kv_prefixes *x, bool unused);
/* Removes this entry, if there is one that no other continues: true; the caller drops the block. */
bool bnet_kv_prefix_forget(bnet_kv_prefixes *x, int32_t block);
/* Removes an entry of fewer than n tokens that continues parent, whose block nobody but the index
 * holds and with all of whose tokens these n begin. Returns its block, which the caller drops, or
 * BNET_KV_NONE. */
int32_t bnet_kv_prefix_outgrown(bnet_kv_prefixes *x, uint64_t scope, int32_t parent,
                                const int32_t *tokens, int n);

#endif
