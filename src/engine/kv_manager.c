/* kv_manager.c - blocks of a shared cache among sessions, on any number of threads. Invariants: a
 * pinned session loses nothing; nobody waits while pinned, so whoever waits is waiting for a pass
 * to end; the n_valid first positions of an entry are right, whatever happened to the rest. */
#include "engine/engine.h"

#include <pthread.h>
#include <unistd.h>

struct bitnet_kv_pool {
    bitnet_engine *engine;
    bitnet_kv_pool_options o; /* kv_type: the effective one */
    bnet_kv_blocks *blocks;
    int n_blocks;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* blocks or pins were given up */
    bnet_kv_entry *first;
    size_t n_entries;
    uint64_t clock; /* counts uses */
    uint64_t n_evictions, n_blocks_evicted, n_hits, n_rebuilds, n_tokens_rebuilt;
};

enum { BLOCKS_MAX = 1 << 24 };

static const char owner[] = "cache pool options";

/* ---- opening ---- */

void bitnet_kv_pool_options_init(bitnet_kv_pool_options *o)
{
    if (!o)
        return;
    memset(o, 0, sizeof *o);
    o->struct_size = sizeof *o;
    o->max_bytes = (uint64_t)1 << 30;
    o->max_sequence = 2048;
    o->block_size = BNET_KV_BLOCK;
    o->policy = BITNET_KV_LRU;
    o->kv_type = BITNET_KV_F16;
}

static bitnet_status read_options(const bitnet_kv_pool_options *given, bitnet_kv_pool_options *o,
                                  bitnet_error *err)
{
    bitnet_kv_pool_options_init(o);
    bitnet_status st = bnet_options_copy(o, sizeof *o, given, owner, err);
    if (st == BITNET_OK)
        st = bnet_check_int(owner, "max_sequence", o->max_sequence, 1, 1 << 24, err);
    if (st == BITNET_OK)
        st = bnet_check_int(owner, "block_size", o->block_size, BNET_KV_BLOCK, BNET_KV_BLOCK, err);
    if (st == BITNET_OK)
        st = bnet_check_int(owner, "policy", (int)o->policy, BITNET_KV_LRU, BITNET_KV_LFU, err);
    if (st == BITNET_OK)
        st = bnet_check_int(owner, "kv_type", (int)o->kv_type, BITNET_KV_F16, BITNET_KV_INT8, err);
    if (o->compression)
        o->kv_type = BITNET_KV_INT8;
    return st;
}

/* Systems that overcommit would grant any size and kill the process later, so ask first. */
static bitnet_status check_ram(uint64_t need, bitnet_error *err)
{
    uint64_t have = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    if (need <= have)
        return BITNET_OK;
    return bnet_fail(err, BITNET_MEMORY,
                     "%s: max_bytes asks for %.1f GiB, this machine has %.1f GiB", owner,
                     (double)need / 0x1p30, (double)have / 0x1p30);
}

static bitnet_status open_blocks(bitnet_kv_pool *p, bitnet_error *err)
{
    const bnet_model *m = p->engine->model;
    uint64_t each = bnet_kv_block_bytes(m, p->o.kv_type);
    uint64_t n = BNET_MIN(p->o.max_bytes / each, (uint64_t)BLOCKS_MAX);
    if (n == 0)
        return bnet_fail(err, BITNET_MEMORY,
                         "%s: max_bytes %llu holds no block of this model, which has %llu bytes",
                         owner, (unsigned long long)p->o.max_bytes, (unsigned long long)each);
    bitnet_status st = check_ram(n * each, err);
    p->n_blocks = (int)n;
    return st == BITNET_OK ? bnet_kv_blocks_open(m, p->n_blocks, p->o.kv_type, &p->blocks, err)
                           : st;
}

bitnet_status bitnet_kv_pool_open(bitnet_engine *e, const bitnet_kv_pool_options *options,
                                  bitnet_kv_pool **out, bitnet_error *err)
{
    if (!e || !out)
        return bnet_fail(err, BITNET_ARGUMENT, "cache pool: engine and out must not be NULL");
    if (!e->model)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "%s: opened with vocab_only, there are no weights to run", e->path);
    bitnet_kv_pool *p = bnet_calloc(1, sizeof *p);
    if (!p)
        return bnet_no_memory(err, "cache pool");
    p->engine = e;
    bitnet_status st = read_options(options, &p->o, err);
    if (st == BITNET_OK)
        st = open_blocks(p, err);
    if (st != BITNET_OK) {
        bnet_free(p);
        return st;
    }
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    *out = p;
    return BITNET_OK;
}

void bitnet_kv_pool_close(bitnet_kv_pool *p)
{
    if (!p)
        return;
    assert(p->n_entries == 0);
    bnet_kv_blocks_close(p->blocks);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    bnet_free(p);
}

void bitnet_kv_pool_read(bitnet_kv_pool *p, bitnet_kv_pool_stats *out)
{
    if (!p || !out)
        return;
    pthread_mutex_lock(&p->lock);
    size_t n_free = (size_t)bnet_kv_blocks_free(p->blocks);
    *out = (bitnet_kv_pool_stats){
        .block_bytes = bnet_kv_block_bytes(p->engine->model, p->o.kv_type),
        .n_blocks = (size_t)p->n_blocks,
        .n_used = (size_t)p->n_blocks - n_free,
        .n_free = n_free,
        .n_sessions = p->n_entries,
        .n_evictions = p->n_evictions,
        .n_blocks_evicted = p->n_blocks_evicted,
        .n_hits = p->n_hits,
        .n_rebuilds = p->n_rebuilds,
        .n_tokens_rebuilt = p->n_tokens_rebuilt,
    };
    pthread_mutex_unlock(&p->lock);
}

const bitnet_engine *bnet_kv_pool_engine(const bitnet_kv_pool *p)
{
    return p->engine;
}

bitnet_kv_type bnet_kv_pool_type(const bitnet_kv_pool *p)
{
    return p->o.kv_type;
}

int bnet_kv_pool_max_sequence(const bitnet_kv_pool *p)
{
    return p->o.max_sequence;
}

/* ---- coming and going ---- */

bitnet_status bnet_kv_join(bitnet_kv_pool *p, bnet_kv_entry *e, int n_ctx, bnet_kv **kv,
                           bitnet_error *err)
{
    bitnet_status st = bnet_kv_open_shared(p->blocks, n_ctx, kv, err);
    if (st != BITNET_OK)
        return st;
    *e = (bnet_kv_entry){.pool = p, .kv = *kv};
    pthread_mutex_lock(&p->lock);
    e->next = p->first;
    if (p->first)
        p->first->prev = e;
    p->first = e;
    p->n_entries++;
    pthread_mutex_unlock(&p->lock);
    return BITNET_OK;
}

void bnet_kv_leave(bnet_kv_entry *e)
{
    bitnet_kv_pool *p = e->pool;
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    bnet_kv_close(e->kv);
    *(e->prev ? &e->prev->next : &p->first) = e->next;
    if (e->next)
        e->next->prev = e->prev;
    p->n_entries--;
    *e = (bnet_kv_entry){0};
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

/* ---- eviction; all below here under the lock ---- */

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

static bool can_lose(const bnet_kv_entry *x, const bnet_kv_entry *to)
{
    return x != to && !x->pinned && bnet_kv_mapped(x->kv) > 0;
}

static bnet_kv_entry *choose_victim(const bitnet_kv_pool *p, const bnet_kv_entry *to)
{
    bnet_kv_entry *best = NULL;
    for (bnet_kv_entry *x = p->first; x; x = x->next)
        if (can_lose(x, to) && (!best || goes_before(p->o.policy, x, best)))
            best = x;
    return best;
}

static void shrink(bnet_kv_entry *e, int n_blocks)
{
    bnet_kv_reserve(e->kv, n_blocks * BNET_KV_BLOCK, NULL); /* only returns some */
    e->n_valid = BNET_MIN(e->n_valid, (size_t)n_blocks * BNET_KV_BLOCK);
}

static void evict(bitnet_kv_pool *p, bnet_kv_entry *victim, int n_missing)
{
    int has = bnet_kv_mapped(victim->kv);
    int keep = p->o.whole_sequences ? 0 : BNET_MAX(has - n_missing, 0);
    shrink(victim, keep);
    p->n_evictions++;
    p->n_blocks_evicted += (uint64_t)(has - keep);
}

/* Blocks that e can have without waiting, its own included. */
static int within_reach(const bitnet_kv_pool *p, const bnet_kv_entry *e)
{
    int n = bnet_kv_blocks_free(p->blocks) + bnet_kv_mapped(e->kv);
    for (const bnet_kv_entry *x = p->first; x; x = x->next)
        if (can_lose(x, e))
            n += bnet_kv_mapped(x->kv);
    return n;
}

/* need <= within_reach: every round either ends or takes the blocks of somebody who has some. */
static bitnet_status give_blocks(bitnet_kv_pool *p, bnet_kv_entry *e, int need, bitnet_error *err)
{
    int missing;
    if (bnet_kv_mapped(e->kv) == 0)
        e->entered = p->clock + 1;
    while ((missing = need - bnet_kv_mapped(e->kv) - bnet_kv_blocks_free(p->blocks)) > 0)
        evict(p, choose_victim(p, e), missing);
    return bnet_kv_reserve(e->kv, need * BNET_KV_BLOCK, err);
}

static void count_use(bitnet_kv_pool *p, bnet_kv_entry *e, size_t n_pos)
{
    e->last_use = ++p->clock;
    e->n_uses++;
    if (n_pos > e->n_valid) {
        p->n_rebuilds++;
        p->n_tokens_rebuilt += n_pos - e->n_valid;
    } else if (n_pos > 0) {
        p->n_hits++;
    }
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

bitnet_status bnet_kv_pin(bnet_kv_entry *e, size_t n_pos, size_t n_need, bool wait, bool *pinned,
                          bitnet_error *err)
{
    bitnet_kv_pool *p = e->pool;
    bitnet_status st = bnet_kv_fits(e, n_need, err);
    *pinned = !p;
    if (!p || st != BITNET_OK)
        return st;
    int need = bnet_kv_blocks_for(n_need);
    pthread_mutex_lock(&p->lock);
    while (wait && within_reach(p, e) < need)
        pthread_cond_wait(&p->changed, &p->lock);
    bool reached = within_reach(p, e) >= need;
    if (reached)
        st = give_blocks(p, e, need, err);
    if (reached && st == BITNET_OK) {
        e->n_valid = BNET_MIN(e->n_valid, n_pos);
        count_use(p, e, n_pos);
        *pinned = e->pinned = true;
    }
    pthread_mutex_unlock(&p->lock);
    return st;
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
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    e->n_valid = BNET_MIN(e->n_valid, n_pos);
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
