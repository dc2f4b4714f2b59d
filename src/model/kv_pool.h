/* kv_pool.h - cache blocks that sessions share, and which session has which. A session pins its
 * blocks for a pass; between passes others may evict it, and what it lost is computed again before
 * its next pass. */
#ifndef BNET_KV_POOL_H
#define BNET_KV_POOL_H

#include <pthread.h>

#include "base/progress.h"
#include "model/kv_prefix.h"

/* A session's place in a pool. All fields but `pool` are under the pool's lock; while pinned,
 * n_valid and the blocks are the session's alone. */
typedef struct bnet_kv_entry bnet_kv_entry;
struct bnet_kv_entry {
    bitnet_kv_pool *pool; /* NULL: a cache of its own; all other fields but n_valid are unused */
    bnet_kv_entry *prev, *next;
    bnet_kv *kv;
    size_t n_valid; /* positions whose keys and values are in the blocks */
    bool pinned;
    int32_t copied; /* a block it holds while it is copied, besides those of kv; BNET_KV_NONE */
    bool wanted;    /* part of a batch step that has yet to compute it: evicted last */
    uint64_t last_use, n_uses, entered; /* by the pool's clock, which counts uses */
};

struct bitnet_kv_pool {
    const bitnet_engine *engine; /* whose sessions may use it */
    const bnet_model *model;
    bitnet_kv_pool_options o; /* kv_type: the effective one */
    bnet_log log;
    bnet_kv_blocks *blocks;
    int n_blocks;
    uint8_t *marks; /* [n_blocks] scratch of eviction */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* blocks or pins were given up */
    bnet_kv_entry *first;
    size_t n_entries;
    uint64_t clock;              /* counts uses */
    bitnet_kv_pool_stats counts; /* those of events; blocks are counted when asked for */
};

/* The caller's options with defaults filled in, every field in its range. Fails: ARGUMENT. */
bitnet_status bnet_kv_pool_options(const bitnet_kv_pool_options *given, bitnet_kv_pool_options *o,
                                   bitnet_error *err);
/* A pool of n_blocks blocks, by options that were checked. Fails: MEMORY. */
bitnet_status bnet_kv_pool_make(const bnet_model *m, const bitnet_kv_pool_options *o, int n_blocks,
                                bitnet_kv_pool **out, bitnet_error *err);
/* Opens *kv on the pool's blocks and enters it. */
bitnet_status bnet_kv_join(bitnet_kv_pool *p, bnet_kv_entry *e, int n_ctx, bnet_kv **kv,
                           bitnet_error *err);
/* Gives e, which joined and has no blocks, those of `from` that hold its first n_pos positions, or
 * as many of these as are valid. Both share them from then on. */
void bnet_kv_fork(bnet_kv_entry *e, const bnet_kv_entry *from, size_t n_pos);
/* Looks in the scope for published texts that begin as these tokens do, and how far. If that is
 * more than the entry's n_valid positions, gives their blocks to the entry and returns how many
 * positions they are; else returns 0. */
size_t bnet_kv_adopt(bnet_kv_entry *e, uint64_t scope, const int32_t *tokens, size_t n_tokens);
/* Makes the full blocks of the entry, which hold these tokens, known in a scope; with `whole`, the
 * one behind them, too. Fails: MEMORY. */
bitnet_status bnet_kv_publish(bnet_kv_entry *e, uint64_t scope, const int32_t *tokens, bool whole,
                              bitnet_error *err);
/* Closes the kv and leaves the pool, pinned or not. Nothing if there is no pool. */
void bnet_kv_leave(bnet_kv_entry *e);

/* Fails CONTEXT if n_pos positions are more than the whole pool holds. */
bitnet_status bnet_kv_fits(const bnet_kv_entry *e, size_t n_pos, bitnet_error *err);
/* Pins the entry with blocks for n_need positions, of which the first n_pos have tokens; n_valid of
 * these need not be computed again. The blocks that will be written are the entry's alone. Evicts
 * others; if what is missing is pinned by other threads, waits for it until `wait` says to end, or
 * with wait NULL returns OK and *pinned false. Waits for the device without the pool's lock. Fails
 * as _fits, CANCELLED, and as the backend does that zeroes and copies blocks. Without a pool: OK,
 * *pinned true. */
bitnet_status bnet_kv_pin(bnet_kv_entry *e, size_t n_pos, size_t n_need, const bnet_cancel *wait,
                          bool *pinned, bitnet_error *err);
/* Says, while pinned or without a pool, that the first n_valid positions have been computed. */
static inline void bnet_kv_filled(bnet_kv_entry *e, size_t n_valid)
{
    if (e->pinned || !e->pool)
        e->n_valid = n_valid;
}
/* Counts tokens of the entry that were lost and have been computed again. */
void bnet_kv_rebuilt(bnet_kv_entry *e, size_t n_tokens);
/* How many of the first n_pos positions are computed. */
size_t bnet_kv_valid(const bnet_kv_entry *e, size_t n_pos);
/* Does nothing if the entry is not pinned. */
void bnet_kv_unpin(bnet_kv_entry *e);
/* The timeline was cut to n_pos: returns blocks beyond. */
void bnet_kv_cut(bnet_kv_entry *e, size_t n_pos);
void bnet_kv_want(bnet_kv_entry *e, bool wanted);

#endif
