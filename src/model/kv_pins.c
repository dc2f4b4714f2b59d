/* kv_pins.c - blocks of a pool among its sessions, on any number of threads. Invariants: a pinned
 * session loses nothing; no pinned session waits, so whoever waits is waiting for a pass to end;
 * the first n_valid positions of an entry are right, whatever happened to the rest; a block that
 * several hold has positions that are valid for all of them. */
#include "model/kv_pool.h"

/* ---- eviction, under the lock ---- */

/* True if a is the better victim of the two. */
static bool goes_before(bitnet_kv_policy policy, const bnet_kv_entry *a, const bnet_kv_entry *b)
{
    if (a->wanted != b->wanted)
        return b->wanted;
    if (policy == BITNET_KV_FIFO)
        return a->entered < b->entered;
    if (policy == BITNET_KV_LFU && a->n_uses != b->n_uses)
        return a->n_uses < b->n_uses;
    return a->last_use < b->last_use;
}

/* Could the i-th block be taken if e dropped it? */
static bool is_sole(const bitnet_kv_pool *p, const bnet_kv_entry *e, int i)
{
    int32_t block = bnet_kv_block_at(e->kv, i);
    return bnet_kv_blocks_refs(p->blocks, block) ==
           1 + bnet_kv_prefix_has(bnet_kv_prefixes_of(p->blocks), block);
}

static bool has_sole(const bitnet_kv_pool *p, const bnet_kv_entry *e)
{
    for (int i = bnet_kv_mapped(e->kv) - 1; i >= 0; i--)
        if (is_sole(p, e, i))
            return true;
    return false;
}

static bool can_lose(const bnet_kv_entry *x, const bnet_kv_entry *to)
{
    return x != to && !x->pinned && bnet_kv_mapped(x->kv) > 0;
}

/* freeing: only of those whose loss frees a block. */
static bnet_kv_entry *choose_victim(const bitnet_kv_pool *p, const bnet_kv_entry *to, bool freeing)
{
    bnet_kv_entry *best = NULL;
    for (bnet_kv_entry *x = p->first; x; x = x->next)
        if (can_lose(x, to) && (!freeing || has_sole(p, x)) &&
            (!best || goes_before(p->o.policy, x, best)))
            best = x;
    return best;
}

static void shrink(bnet_kv_entry *e, int n_blocks)
{
    bnet_kv_trim(e->kv, n_blocks);
    e->n_valid = BNET_MIN(e->n_valid, (size_t)n_blocks * BNET_KV_BLOCK);
}

/* How many blocks a victim keeps so that n_missing are freed, or as many as can be. */
static int blocks_kept(const bitnet_kv_pool *p, const bnet_kv_entry *victim, int n_missing)
{
    int keep = 0; /* all of its blocks are shared: they are freed when the others lose them, too */
    for (int i = bnet_kv_mapped(victim->kv) - 1; i >= 0 && n_missing > 0; i--)
        if (is_sole(p, victim, i)) {
            n_missing--;
            keep = i;
        }
    return p->o.whole_sequences ? 0 : keep;
}

static void evict(bitnet_kv_pool *p, bnet_kv_entry *victim, int n_missing)
{
    int has = bnet_kv_mapped(victim->kv), keep = blocks_kept(p, victim, n_missing);
    shrink(victim, keep);
    p->counts.n_evictions++;
    p->counts.n_blocks_evicted += (uint64_t)(has - keep);
}

/* 1 if the block was not marked before, else 0. */
static int mark(bitnet_kv_pool *p, int32_t block)
{
    int is_new = !p->marks[block];
    p->marks[block] = 1;
    return is_new;
}

static int mark_blocks(bitnet_kv_pool *p, const bnet_kv *kv, int n)
{
    int n_new = 0;
    for (int i = 0; i < n; i++)
        n_new += mark(p, bnet_kv_block_at(kv, i));
    return n_new;
}

/* Blocks of e that a pass from n_valid to n_need only reads. */
static int blocks_read(const bnet_kv_entry *e, size_t n_need)
{
    return e->n_valid < n_need ? (int)(e->n_valid / BNET_KV_BLOCK) : bnet_kv_blocks_for(n_need);
}

/* Can e have n_need positions without waiting, if all who are not pinned lose their blocks? Blocks
 * that it only reads may belong to pinned entries; nobody may hold the others. */
static bool within_reach(bitnet_kv_pool *p, const bnet_kv_entry *e, size_t n_need)
{
    if (bnet_kv_missing(e->kv, (int)e->n_valid, (int)n_need) <= bnet_kv_blocks_free(p->blocks))
        return true;
    int n_read = blocks_read(e, n_need);
    memset(p->marks, 0, (size_t)p->n_blocks);
    int n_taken = mark_blocks(p, e->kv, n_read);
    for (const bnet_kv_entry *x = p->first; x; x = x->next) {
        if (x != e && x->pinned)
            n_taken += mark_blocks(p, x->kv, bnet_kv_mapped(x->kv));
        if (x != e && x->pinned && x->copied != BNET_KV_NONE)
            n_taken += mark(p, x->copied);
    }
    return p->n_blocks - n_taken >= bnet_kv_blocks_for(n_need) - n_read;
}

/* Gives up a cached block; with `unused`, only one that no session has. False: there is none. */
static bool evict_cached(bitnet_kv_pool *p, bool unused)
{
    int32_t block = bnet_kv_prefix_evict(bnet_kv_prefixes_of(p->blocks), unused);
    if (block == BNET_KV_NONE)
        return false;
    bnet_kv_blocks_drop(p->blocks, block);
    p->counts.n_cached_evicted++;
    return true;
}

/* The entry will write into a block that it shares with the cache alone: the cache gives it up, and
 * no copy is needed. False: there is none. */
static bool keep_own(bitnet_kv_pool *p, const bnet_kv_entry *e, size_t n_need)
{
    int i = (int)(e->n_valid / BNET_KV_BLOCK);
    if (e->n_valid % BNET_KV_BLOCK == 0 || n_need <= e->n_valid || i >= bnet_kv_mapped(e->kv))
        return false;
    int32_t block = bnet_kv_block_at(e->kv, i);
    if (bnet_kv_blocks_refs(p->blocks, block) != 2 ||
        !bnet_kv_prefix_forget(bnet_kv_prefixes_of(p->blocks), block))
        return false;
    bnet_kv_blocks_drop(p->blocks, block);
    p->counts.n_cached_evicted++;
    return true;
}

/* One step towards n_missing free blocks: first what no session has, then the cache's hold on the
 * entry's own block, then what the policy's victim has alone, then whatever is left of what is
 * shared. */
static void make_room(bitnet_kv_pool *p, const bnet_kv_entry *e, size_t n_need, int n_missing)
{
    if (evict_cached(p, true) || keep_own(p, e, n_need))
        return;
    bnet_kv_entry *victim = choose_victim(p, e, true);
    if (!victim && evict_cached(p, false))
        return;
    evict(p, victim ? victim : choose_victim(p, e, false), n_missing);
}

/* Requires that enough blocks can be freed. Every round takes some from a session or the cache. */
static bnet_kv_taken give_blocks(bitnet_kv_pool *p, bnet_kv_entry *e, size_t n_need)
{
    int missing;
    if (bnet_kv_mapped(e->kv) == 0)
        e->entered = p->clock + 1;
    bnet_kv_trim(e->kv, bnet_kv_blocks_for(e->n_valid));
    while ((missing = bnet_kv_missing(e->kv, (int)e->n_valid, (int)n_need) -
                      bnet_kv_blocks_free(p->blocks)) > 0)
        make_room(p, e, n_need, missing);
    return bnet_kv_take(e->kv, (int)e->n_valid, (int)n_need);
}

static void count_use(bitnet_kv_pool *p, bnet_kv_entry *e, size_t n_pos)
{
    e->last_use = ++p->clock;
    e->n_uses++;
    p->counts.n_hits += n_pos > 0 && n_pos <= e->n_valid;
}

/* ---- pins ---- */

bitnet_status bnet_kv_fits(const bnet_kv_entry *e, size_t n_pos, bitnet_error *err)
{
    const bitnet_kv_pool *p = e->pool;
    if (!p || bnet_kv_blocks_for(n_pos) <= p->n_blocks)
        return BITNET_OK;
    return bnet_fail(err, BITNET_CONTEXT,
                     "context is full: %zu positions need %d blocks, the whole cache pool has %d; "
                     "open it with a larger max_bytes or with compression",
                     n_pos, bnet_kv_blocks_for(n_pos), p->n_blocks);
}

/* Zeroes and copies the blocks that were taken, without the lock: the device may be at work. */
static bitnet_status ready_blocks(bitnet_kv_pool *p, bnet_kv_entry *e, const bnet_kv_taken *t,
                                  bitnet_error *err)
{
    bitnet_status st = bnet_kv_ready(e->kv, t, err);
    pthread_mutex_lock(&p->lock);
    bnet_kv_settle(e->kv, t, st == BITNET_OK);
    e->copied = BNET_KV_NONE;
    e->pinned = st == BITNET_OK;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    return st;
}

bitnet_status bnet_kv_pin(bnet_kv_entry *e, size_t n_pos, size_t n_need, const bnet_cancel *wait,
                          bool *pinned, bitnet_error *err)
{
    bitnet_kv_pool *p = e->pool;
    bitnet_status st = bnet_kv_fits(e, n_need, err);
    *pinned = !p;
    if (!p || st != BITNET_OK)
        return st;
    bnet_kv_taken t;
    pthread_mutex_lock(&p->lock);
    e->n_valid = BNET_MIN(e->n_valid, n_pos);
    bool reached = within_reach(p, e, n_need);
    for (bool wanted = wait != NULL; wanted && !reached; reached = within_reach(p, e, n_need))
        if (!(wanted = bnet_cond_wait(&p->changed, &p->lock, wait)))
            st = bnet_fail(err, BITNET_CANCELLED,
                           "cancelled at position %zu, while waiting for cache blocks", n_pos);
    reached = reached && st == BITNET_OK;
    if (reached) {
        t = give_blocks(p, e, n_need);
        e->copied = t.copied;
        e->pinned = true;
        count_use(p, e, n_pos);
    }
    pthread_mutex_unlock(&p->lock);
    if (reached && bnet_kv_took(e->kv, &t))
        st = ready_blocks(p, e, &t, err);
    *pinned = reached && st == BITNET_OK;
    return st;
}

void bnet_kv_rebuilt(bnet_kv_entry *e, size_t n_tokens)
{
    bitnet_kv_pool *p = e->pool;
    if (!p || n_tokens == 0)
        return;
    pthread_mutex_lock(&p->lock);
    p->counts.n_rebuilds++;
    p->counts.n_tokens_rebuilt += n_tokens;
    pthread_mutex_unlock(&p->lock);
}

void bnet_kv_unpin(bnet_kv_entry *e)
{
    bitnet_kv_pool *p = e->pool;
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    if (e->pinned) {
        e->pinned = e->wanted = false;
        pthread_cond_broadcast(&p->changed);
    }
    pthread_mutex_unlock(&p->lock);
}

void bnet_kv_cut(bnet_kv_entry *e, size_t n_pos)
{
    bitnet_kv_pool *p = e->pool;
    if (p)
        pthread_mutex_lock(&p->lock);
    e->n_valid = BNET_MIN(e->n_valid, n_pos);
    if (!p)
        return;
    int keep = bnet_kv_blocks_for(e->n_valid);
    if (!e->pinned && bnet_kv_mapped(e->kv) > keep) {
        shrink(e, keep);
        pthread_cond_broadcast(&p->changed);
    }
    pthread_mutex_unlock(&p->lock);
}

void bnet_kv_want(bnet_kv_entry *e, bool wanted)
{
    bitnet_kv_pool *p = e->pool;
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    e->wanted = wanted;
    pthread_mutex_unlock(&p->lock);
}
