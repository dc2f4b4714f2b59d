/* kv_manager.c - blocks of a pool among sessions, on any number of threads. Invariants: a pinned
 * session loses nothing; nobody waits while pinned, so whoever waits is waiting for a pass to end;
 * the first n_valid positions of an entry are right, whatever happened to the rest; a block that
 * two entries share holds positions that are valid in both. */
#include "engine/engine.h"

#include <pthread.h>
#include <unistd.h>

struct bitnet_kv_pool {
    bitnet_engine *engine;
    bitnet_kv_pool_options o; /* kv_type: the effective one */
    bnet_kv_blocks *blocks;
    int n_blocks;
    uint8_t *marks; /* [n_blocks] scratch of within_reach */
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
    if (st != BITNET_OK)
        return st;
    p->n_blocks = (int)n;
    p->marks = bnet_calloc((size_t)n, sizeof *p->marks);
    if (!p->marks)
        return bnet_no_memory(err, "cache pool");
    return bnet_kv_blocks_open(m, p->n_blocks, p->o.kv_type, &p->blocks, err);
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
        bnet_free(p->marks);
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
    bnet_free(p->marks);
    bnet_free(p);
}

static size_t count_shared(const bitnet_kv_pool *p)
{
    size_t n = 0;
    for (int i = 0; i < p->n_blocks; i++)
        n += bnet_kv_blocks_refs(p->blocks, i) > 1;
    return n;
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
        .n_shared = count_shared(p),
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
    bitnet_status st = bnet_kv_open_pooled(p->blocks, n_ctx, kv, err);
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

void bnet_kv_fork(bnet_kv_entry *e, const bnet_kv_entry *from, size_t n_pos)
{
    bitnet_kv_pool *p = e->pool;
    assert(from->pool == p && bnet_kv_mapped(e->kv) == 0);
    pthread_mutex_lock(&p->lock);
    e->n_valid = BNET_MIN(from->n_valid, n_pos);
    for (int i = 0; i < bnet_kv_blocks_for(e->n_valid); i++)
        bnet_kv_map(e->kv, bnet_kv_block_at(from->kv, i));
    e->entered = e->last_use = ++p->clock;
    e->n_uses = 1;
    pthread_mutex_unlock(&p->lock);
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

/* Would the i-th block be free if e dropped it? */
static bool is_sole(const bitnet_kv_pool *p, const bnet_kv_entry *e, int i)
{
    return bnet_kv_blocks_refs(p->blocks, bnet_kv_block_at(e->kv, i)) == 1;
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
    p->n_evictions++;
    p->n_blocks_evicted += (uint64_t)(has - keep);
}

static int mark_blocks(bitnet_kv_pool *p, const bnet_kv *kv, int n)
{
    int n_new = 0;
    for (int i = 0; i < n; i++) {
        uint8_t *mark = &p->marks[bnet_kv_block_at(kv, i)];
        n_new += !*mark;
        *mark = 1;
    }
    return n_new;
}

/* Blocks of e that a pass from n_valid to n_need only reads. */
static int blocks_read(const bnet_kv_entry *e, size_t n_need)
{
    return e->n_valid < n_need ? (int)(e->n_valid / BNET_KV_BLOCK) : bnet_kv_blocks_for(n_need);
}

/* Can e have n_need positions without waiting, if all who are not pinned lose their blocks? Blocks
 * that it only reads may be those of pinned entries; all others must be nobody's. */
static bool within_reach(bitnet_kv_pool *p, const bnet_kv_entry *e, size_t n_need)
{
    if (bnet_kv_missing(e->kv, (int)e->n_valid, (int)n_need) <= bnet_kv_blocks_free(p->blocks))
        return true;
    int n_read = blocks_read(e, n_need);
    memset(p->marks, 0, (size_t)p->n_blocks);
    int n_taken = mark_blocks(p, e->kv, n_read);
    for (const bnet_kv_entry *x = p->first; x; x = x->next)
        if (x != e && x->pinned)
            n_taken += mark_blocks(p, x->kv, bnet_kv_mapped(x->kv));
    return p->n_blocks - n_taken >= bnet_kv_blocks_for(n_need) - n_read;
}

/* Within reach: every round either ends or takes the blocks of somebody who has some. */
static bitnet_status give_blocks(bitnet_kv_pool *p, bnet_kv_entry *e, size_t n_need,
                                 bitnet_error *err)
{
    int missing;
    if (bnet_kv_mapped(e->kv) == 0)
        e->entered = p->clock + 1;
    bnet_kv_trim(e->kv, bnet_kv_blocks_for(e->n_valid));
    while ((missing = bnet_kv_missing(e->kv, (int)e->n_valid, (int)n_need) -
                      bnet_kv_blocks_free(p->blocks)) > 0) {
        bnet_kv_entry *victim = choose_victim(p, e, true);
        evict(p, victim ? victim : choose_victim(p, e, false), missing);
    }
    return bnet_kv_reserve(e->kv, (int)e->n_valid, (int)n_need, err);
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
    pthread_mutex_lock(&p->lock);
    e->n_valid = BNET_MIN(e->n_valid, n_pos);
    bool reached = within_reach(p, e, n_need);
    while (wait && !reached) {
        pthread_cond_wait(&p->changed, &p->lock);
        reached = within_reach(p, e, n_need);
    }
    if (reached)
        st = give_blocks(p, e, n_need, err);
    if (reached && st == BITNET_OK) {
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
