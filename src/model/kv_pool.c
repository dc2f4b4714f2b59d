/* kv_pool.c - a pool of cache blocks: its memory, its members, the texts in its blocks. Who loses
 * blocks when they run out is decided in kv_pins.c. */
#include "model/kv_pool.h"

/* ---- opening ---- */

void bitnet_kv_pool_options_init(bitnet_kv_pool_options *o)
{
    if (o)
        *o = (bitnet_kv_pool_options){.struct_size = sizeof *o,
                                      .max_bytes = (uint64_t)1 << 30,
                                      .max_sequence = 2048,
                                      .block_size = BNET_KV_BLOCK,
                                      .policy = BITNET_KV_LRU,
                                      .kv_type = BITNET_KV_F16};
}

bitnet_status bnet_kv_pool_options(const bitnet_kv_pool_options *given, bitnet_kv_pool_options *o,
                                   bitnet_error *err)
{
    static const char owner[] = "cache pool options";
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

bitnet_status bnet_kv_pool_make(const bnet_model *m, const bitnet_kv_pool_options *o, int n_blocks,
                                bitnet_kv_pool **out, bitnet_error *err)
{
    bitnet_kv_pool *p = bnet_calloc(1, sizeof *p);
    if (!p)
        return bnet_no_memory(err, "cache pool");
    *p = (bitnet_kv_pool){.model = m,
                          .o = *o,
                          .n_blocks = n_blocks,
                          .marks = bnet_calloc((size_t)n_blocks, sizeof *p->marks)};
    bitnet_status st = p->marks ? bnet_kv_blocks_open(m, n_blocks, o->kv_type, &p->blocks, err)
                                : bnet_no_memory(err, "cache pool");
    if (st != BITNET_OK) {
        bnet_free(p->marks);
        bnet_free(p);
        return st;
    }
    pthread_mutex_init(&p->lock, NULL);
    bnet_cond_init(&p->changed);
    *out = p;
    return BITNET_OK;
}

void bitnet_kv_pool_close(bitnet_kv_pool *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    size_t n = p->n_entries;
    pthread_mutex_unlock(&p->lock);
    if (n > 0) {
        bnet_logf(&p->log, BITNET_LOG_ERROR, "session",
                  "cache pool not closed: close its sessions first (%zu)", n);
        return;
    }
    bnet_kv_blocks_close(p->blocks);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    bnet_free(p->marks);
    bnet_free(p);
}

/* The prefix cache has the block. */
static bool is_known(const bitnet_kv_pool *p, int32_t block)
{
    return bnet_kv_prefix_has(bnet_kv_prefixes_of(p->blocks), block);
}

/* Sessions that have the block. */
static int n_users(const bitnet_kv_pool *p, int32_t block)
{
    return bnet_kv_blocks_refs(p->blocks, block) - is_known(p, block);
}

void bitnet_kv_pool_read(bitnet_kv_pool *p, bitnet_kv_pool_stats *out)
{
    if (!p || !out)
        return;
    pthread_mutex_lock(&p->lock);
    *out = p->counts;
    out->block_bytes = bnet_kv_block_bytes(p->model, p->o.kv_type);
    out->n_blocks = (size_t)p->n_blocks;
    out->n_free = (size_t)bnet_kv_blocks_free(p->blocks);
    out->n_sessions = p->n_entries;
    for (int32_t i = 0; i < p->n_blocks; i++) {
        int n = n_users(p, i);
        out->n_used += n > 0;
        out->n_shared += n > 1;
        out->n_cached += n == 0 && is_known(p, i);
    }
    pthread_mutex_unlock(&p->lock);
}

/* ---- coming and going ---- */

bitnet_status bnet_kv_join(bitnet_kv_pool *p, bnet_kv_entry *e, int n_ctx, bnet_kv **kv,
                           bitnet_error *err)
{
    bitnet_status st = bnet_kv_open_pooled(p->blocks, n_ctx, kv, err);
    if (st != BITNET_OK)
        return st;
    *e = (bnet_kv_entry){.pool = p, .kv = *kv, .copied = BNET_KV_NONE};
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

size_t bnet_kv_valid(const bnet_kv_entry *e, size_t n_pos)
{
    if (e->pool)
        pthread_mutex_lock(&e->pool->lock);
    size_t n = BNET_MIN(e->n_valid, n_pos);
    if (e->pool)
        pthread_mutex_unlock(&e->pool->lock);
    return n;
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

/* ---- texts ---- */

enum { LEAST = 8 }; /* for fewer tokens, a block that is not full is neither kept nor copied */

/* The block that continues `parent` with the tokens of the i-th block of a text. */
static int32_t known_block(const bitnet_kv_pool *p, uint64_t scope, int32_t parent,
                           const int32_t *tokens, int i)
{
    return bnet_kv_prefix_find(bnet_kv_prefixes_of(p->blocks), scope, parent,
                               tokens + (size_t)i * BNET_KV_BLOCK);
}

/* A text as far as the cache has it: whole blocks, then the first tokens of one more. */
typedef struct known_text {
    int n_blocks, n_more;
    int32_t more; /* the block of the latter; BNET_KV_NONE: there is none */
} known_text;

static size_t length_of(const known_text *t)
{
    return (size_t)t->n_blocks * BNET_KV_BLOCK + (size_t)t->n_more;
}

static known_text find_known(const bitnet_kv_pool *p, uint64_t scope, const int32_t *tokens,
                             size_t n_tokens)
{
    int32_t last = BNET_KV_NONE, next;
    known_text t = {.more = BNET_KV_NONE};
    if (!bnet_kv_prefixes_of(p->blocks))
        return t;
    while ((size_t)(t.n_blocks + 1) * BNET_KV_BLOCK <= n_tokens &&
           (next = known_block(p, scope, last, tokens, t.n_blocks)) != BNET_KV_NONE) {
        last = next;
        t.n_blocks++;
    }
    size_t done = length_of(&t), left = BNET_MIN(n_tokens - done, (size_t)BNET_KV_BLOCK);
    t.more = bnet_kv_prefix_begins(bnet_kv_prefixes_of(p->blocks), scope, last, tokens + done,
                                   (int)left, &t.n_more);
    return t.n_more < LEAST ? (known_text){t.n_blocks, 0, BNET_KV_NONE} : t;
}

static void adopt_block(bitnet_kv_pool *p, bnet_kv_entry *e, int32_t block)
{
    bnet_kv_prefix_use(bnet_kv_prefixes_of(p->blocks), block, p->clock);
    bnet_kv_map(e->kv, block);
}

static void adopt(bitnet_kv_pool *p, bnet_kv_entry *e, uint64_t scope, const int32_t *tokens,
                  const known_text *t)
{
    int32_t block = BNET_KV_NONE;
    bnet_kv_trim(e->kv, 0);
    e->entered = e->last_use = ++p->clock;
    e->n_uses++;
    for (int i = 0; i < t->n_blocks; i++) {
        block = known_block(p, scope, block, tokens, i);
        adopt_block(p, e, block);
    }
    if (t->n_more)
        adopt_block(p, e, t->more);
    p->counts.n_prefix_hits++;
    p->counts.n_prefix_tokens += length_of(t) - e->n_valid;
    e->n_valid = length_of(t);
    pthread_cond_broadcast(&p->changed);
}

size_t bnet_kv_adopt(bnet_kv_entry *e, uint64_t scope, const int32_t *tokens, size_t n_tokens)
{
    bitnet_kv_pool *p = e->pool;
    if (!p)
        return 0;
    pthread_mutex_lock(&p->lock);
    p->counts.n_prefix_lookups++;
    known_text t = find_known(p, scope, tokens, n_tokens);
    bool more = length_of(&t) > e->n_valid;
    if (more)
        adopt(p, e, scope, tokens, &t);
    pthread_mutex_unlock(&p->lock);
    return more ? length_of(&t) : 0;
}

/* Enters the entry's i-th block, which holds n tokens, behind `parent`. */
static void make_known(bitnet_kv_pool *p, const bnet_kv_entry *e, int i, uint64_t scope,
                       int32_t parent, const int32_t *tokens, int n)
{
    bnet_kv_prefixes *x = bnet_kv_prefixes_of(p->blocks);
    int32_t old, own = bnet_kv_block_at(e->kv, i);
    while ((old = bnet_kv_prefix_outgrown(x, scope, parent, tokens, n)) != BNET_KV_NONE)
        bnet_kv_blocks_drop(p->blocks, old);
    bnet_kv_prefix_add(x, scope, parent, tokens, n, own, p->clock);
    bnet_kv_blocks_hold(p->blocks, own);
}

/* Blocks that another session published with the same tokens stay; a block that is known in another
 * scope ends it, for nothing of one scope may be found in another. False: that was so; else *last
 * is the last full block. */
static bool publish_full(bitnet_kv_pool *p, const bnet_kv_entry *e, uint64_t scope,
                         const int32_t *tokens, int32_t *last)
{
    *last = BNET_KV_NONE;
    for (int i = 0; i < (int)(e->n_valid / BNET_KV_BLOCK); i++) {
        int32_t known = known_block(p, scope, *last, tokens, i), own = bnet_kv_block_at(e->kv, i);
        if (known == BNET_KV_NONE && is_known(p, own))
            return false;
        if (known == BNET_KV_NONE)
            make_known(p, e, i, scope, *last, tokens + (size_t)i * BNET_KV_BLOCK, BNET_KV_BLOCK);
        *last = known == BNET_KV_NONE ? own : known;
    }
    return true;
}

/* The block behind the full ones, unless it has few tokens or these are known already. */
static void publish_rest(bitnet_kv_pool *p, const bnet_kv_entry *e, uint64_t scope, int32_t last,
                         const int32_t *tokens)
{
    int i = (int)(e->n_valid / BNET_KV_BLOCK), n = (int)(e->n_valid % BNET_KV_BLOCK), common;
    tokens += (size_t)i * BNET_KV_BLOCK;
    if (n < LEAST || is_known(p, bnet_kv_block_at(e->kv, i)))
        return;
    bnet_kv_prefix_begins(bnet_kv_prefixes_of(p->blocks), scope, last, tokens, n, &common);
    if (common < n)
        make_known(p, e, i, scope, last, tokens, n);
}

bitnet_status bnet_kv_publish(bnet_kv_entry *e, uint64_t scope, const int32_t *tokens, bool whole,
                              bitnet_error *err)
{
    bitnet_kv_pool *p = e->pool;
    bitnet_status st = BITNET_OK;
    int32_t last;
    if (!p)
        return st;
    pthread_mutex_lock(&p->lock);
    if (!bnet_kv_prefixes_of(p->blocks))
        st = bnet_kv_prefixes_open(p->blocks, p->o.policy, err);
    p->clock++;
    if (st == BITNET_OK && publish_full(p, e, scope, tokens, &last) && whole)
        publish_rest(p, e, scope, last, tokens);
    pthread_mutex_unlock(&p->lock);
    return st;
}
