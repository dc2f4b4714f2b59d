/* mempool.c - every buffer has a record outside of it, which is in one of two sets: held by
 * somebody (found by address) or cached (found by size). Each set is a list in the order of time
 * and a hash table. */
#include "device/mempool.h"

#include <pthread.h>
#include <stdio.h>

typedef struct record record;
struct record {
    record *prev, *next; /* of its set, oldest first */
    record *chain;       /* of its slot, newest first */
    uint64_t key;        /* held: address; cached: size */
    void *p;
    size_t n_bytes;
    double since_ms; /* when it entered its set */
    const char *file;
    int line;
};

typedef struct set {
    record *oldest, *newest;
    record **slots;
    size_t n_slots; /* a power of two */
    size_t n;
    uint64_t n_bytes;
} set;

struct bitnet_mempool {
    bnet_mempool_config c;
    pthread_mutex_t lock;
    set held, cached;
    bnet_mempool_stats stats; /* the fields the sets do not know */
    double cleaned_ms;        /* when expiry last looked */
};

enum { FIRST_SLOTS = 64 };

/* ---- sets ---- */

static record **slot_of(const set *s, uint64_t key)
{
    key *= 0x9e3779b97f4a7c15u; /* addresses and sizes have zeros at their end: mix upward */
    return &s->slots[(key >> 32) & (s->n_slots - 1)];
}

static bool set_init(set *s)
{
    s->n_slots = FIRST_SLOTS;
    s->slots = bnet_calloc(s->n_slots, sizeof(record *));
    return s->slots != NULL;
}

/* Without memory the old table serves on, with longer chains. */
static void set_grow(set *s)
{
    set wide = *s;
    wide.n_slots = s->n_slots * 4;
    wide.slots = bnet_calloc(wide.n_slots, sizeof(record *));
    if (!wide.slots)
        return;
    for (record *r = s->oldest; r; r = r->next) {
        record **slot = slot_of(&wide, r->key);
        r->chain = *slot;
        *slot = r;
    }
    bnet_free(s->slots);
    *s = wide;
}

static void set_put(set *s, record *r, uint64_t key, double now_ms)
{
    if (s->n >= s->n_slots)
        set_grow(s);
    record **slot = slot_of(s, key);
    r->key = key;
    r->since_ms = now_ms;
    r->chain = *slot;
    *slot = r;
    r->prev = s->newest;
    r->next = NULL;
    *(s->newest ? &s->newest->next : &s->oldest) = r;
    s->newest = r;
    s->n++;
    s->n_bytes += r->n_bytes;
}

static record *set_find(const set *s, uint64_t key)
{
    record *r = *slot_of(s, key);
    while (r && r->key != key)
        r = r->chain;
    return r;
}

static void set_remove(set *s, record *r)
{
    record **at = slot_of(s, r->key);
    while (*at != r)
        at = &(*at)->chain;
    *at = r->chain;
    *(r->prev ? &r->prev->next : &s->oldest) = r->next;
    *(r->next ? &r->next->prev : &s->newest) = r->prev;
    s->n--;
    s->n_bytes -= r->n_bytes;
}

/* ---- opening ---- */

static void *host_take(void *user, size_t n_bytes)
{
    (void)user;
    return bnet_alloc(n_bytes);
}

static void host_give(void *user, void *p, size_t n_bytes)
{
    (void)user;
    (void)n_bytes;
    bnet_free(p);
}

static double host_clock(void *user)
{
    (void)user;
    return bnet_now_ms();
}

uint64_t bnet_mempool_cap(uint64_t device_bytes)
{
    return device_bytes ? BNET_MIN(BNET_MEMPOOL_BYTES, device_bytes / 10) : BNET_MEMPOOL_BYTES;
}

void bnet_mempool_config_init(bnet_mempool_config *c)
{
    *c = (bnet_mempool_config){.max_pool_size = BNET_MEMPOOL_BYTES,
                               .max_cached_buffers = BNET_MEMPOOL_BUFFERS,
                               .cleanup_ms = BNET_MEMPOOL_INTERVAL_MS,
                               .tracking = true,
                               .allocator = {host_take, host_give, NULL},
                               .clock_ms = host_clock};
}

static double now_of(const bnet_mempool *p)
{
    return p->c.clock_ms(p->c.clock_user);
}

bitnet_status bnet_mempool_open(const bnet_mempool_config *c, bnet_mempool **out, bitnet_error *err)
{
    bnet_mempool *p = bnet_calloc(1, sizeof *p);
    bool ok = p && set_init(&p->held) && set_init(&p->cached);
    if (!ok) {
        if (p) {
            bnet_free(p->held.slots);
            bnet_free(p->cached.slots);
        }
        bnet_free(p);
        return bnet_no_memory(err, "memory pool");
    }
    p->c = *c;
    if (!p->c.allocator.take || !p->c.allocator.give)
        p->c.allocator = (bnet_allocator){host_take, host_give, NULL};
    if (!p->c.clock_ms)
        p->c.clock_ms = host_clock;
    pthread_mutex_init(&p->lock, NULL);
    p->cleaned_ms = now_of(p);
    *out = p;
    return BITNET_OK;
}

static void destroy(bnet_mempool *p, set *s, record *r)
{
    set_remove(s, r);
    p->c.allocator.give(p->c.allocator.user, r->p, r->n_bytes);
    bnet_free(r);
}

void bnet_mempool_close(bnet_mempool *p)
{
    if (!p)
        return;
    double now_ms = now_of(p);
    for (record *r; (r = p->held.oldest);) {
        if (p->c.tracking)
            bnet_logf(&p->c.log, BITNET_LOG_WARN, "mempool",
                      "leak: %zu bytes of device %d held for %.1f s, taken at %s:%d", r->n_bytes,
                      p->c.device_id, (now_ms - r->since_ms) * 1e-3, r->file, r->line);
        destroy(p, &p->held, r);
    }
    while (p->cached.oldest)
        destroy(p, &p->cached, p->cached.oldest);
    bnet_free(p->held.slots);
    bnet_free(p->cached.slots);
    pthread_mutex_destroy(&p->lock);
    bnet_free(p);
}

int bnet_mempool_device(const bnet_mempool *p)
{
    return p->c.device_id;
}

/* ---- taking and giving; all below here under the lock ---- */

static size_t expire(bnet_mempool *p, double now_ms, bool all)
{
    size_t n = 0;
    p->cleaned_ms = now_ms;
    while (p->cached.oldest && (all || now_ms - p->cached.oldest->since_ms >= p->c.cleanup_ms)) {
        destroy(p, &p->cached, p->cached.oldest);
        n++;
    }
    p->stats.n_expired += n;
    return n;
}

static void expire_if_due(bnet_mempool *p, double now_ms)
{
    if (now_ms - p->cleaned_ms >= p->c.cleanup_ms)
        expire(p, now_ms, false);
}

/* Cached buffers make way for one in use. False: even an empty cache would not do. */
static bool make_room(bnet_mempool *p, size_t n_bytes)
{
    uint64_t most = p->c.max_pool_size;
    if (n_bytes > most || p->held.n_bytes > most - n_bytes)
        return false;
    while (p->cached.oldest && p->held.n_bytes + p->cached.n_bytes > most - n_bytes) {
        destroy(p, &p->cached, p->cached.oldest);
        p->stats.n_expired++;
    }
    return true;
}

static bitnet_status refuse(bnet_mempool *p, size_t n_bytes, bitnet_error *err)
{
    p->stats.n_refused++;
    return bnet_fail(err, BITNET_MEMORY,
                     "memory pool of device %d: %zu bytes asked with %llu in use would exceed "
                     "max_pool_size %llu; free buffers or raise the limit",
                     p->c.device_id, n_bytes, (unsigned long long)p->held.n_bytes,
                     (unsigned long long)p->c.max_pool_size);
}

static bitnet_status fresh(bnet_mempool *p, size_t n_bytes, record **out, bitnet_error *err)
{
    if (!make_room(p, n_bytes))
        return refuse(p, n_bytes, err);
    record *r = bnet_calloc(1, sizeof *r);
    void *bytes = r ? p->c.allocator.take(p->c.allocator.user, n_bytes) : NULL;
    if (!bytes) { /* perhaps the cache sits on what is missing */
        expire(p, p->cleaned_ms, true);
        bytes = r ? p->c.allocator.take(p->c.allocator.user, n_bytes) : NULL;
    }
    if (!bytes) {
        bnet_free(r);
        p->stats.n_refused++;
        return bnet_fail(err, BITNET_MEMORY,
                         "memory pool of device %d: the allocator has no %zu bytes", p->c.device_id,
                         n_bytes);
    }
    r->p = bytes;
    r->n_bytes = n_bytes;
    *out = r;
    return BITNET_OK;
}

static bitnet_status take(bnet_mempool *p, size_t n_bytes, record **out, bitnet_error *err)
{
    record *r = set_find(&p->cached, n_bytes);
    if (!r) {
        bitnet_status st = fresh(p, n_bytes, out, err);
        p->stats.n_misses += st == BITNET_OK;
        return st;
    }
    set_remove(&p->cached, r);
    p->stats.n_hits++;
    *out = r;
    return BITNET_OK;
}

static void hand_out(bnet_mempool *p, record *r, double now_ms)
{
    set_put(&p->held, r, (uint64_t)(uintptr_t)r->p, now_ms);
    p->stats.n_allocs++;
    p->stats.allocated_bytes += r->n_bytes;
    p->stats.peak_bytes = BNET_MAX(p->stats.peak_bytes, p->held.n_bytes);
}

bitnet_status bnet_mempool_take(bnet_mempool *p, size_t n_bytes, const char *file, int line,
                                void **out, bitnet_error *err)
{
    if (n_bytes == 0)
        return bnet_fail(err, BITNET_ARGUMENT, "memory pool of device %d: 0 bytes asked",
                         p->c.device_id);
    pthread_mutex_lock(&p->lock);
    double now_ms = now_of(p);
    expire_if_due(p, now_ms);
    record *r = NULL;
    bitnet_status st = take(p, n_bytes, &r, err);
    if (st == BITNET_OK) {
        r->file = file && p->c.tracking ? file : "";
        r->line = line;
        hand_out(p, r, now_ms);
        *out = r->p;
    }
    pthread_mutex_unlock(&p->lock);
    return st;
}

/* The buffer goes into the cache; if that is full, the oldest there goes. */
static void bring_back(bnet_mempool *p, record *r, double now_ms)
{
    set_remove(&p->held, r);
    p->stats.n_frees++;
    p->stats.freed_bytes += r->n_bytes;
    set_put(&p->cached, r, r->n_bytes, now_ms);
    while (p->cached.n > p->c.max_cached_buffers) {
        destroy(p, &p->cached, p->cached.oldest);
        p->stats.n_expired++;
    }
}

bitnet_status bnet_mempool_give(bnet_mempool *p, void *bytes, bitnet_error *err)
{
    if (!bytes)
        return BITNET_OK;
    pthread_mutex_lock(&p->lock);
    record *r = set_find(&p->held, (uint64_t)(uintptr_t)bytes);
    if (r) {
        double now_ms = now_of(p);
        bring_back(p, r, now_ms);
        expire_if_due(p, now_ms);
    }
    pthread_mutex_unlock(&p->lock);
    return r ? BITNET_OK
             : bnet_fail(err, BITNET_ARGUMENT,
                         "memory pool of device %d: %p is no buffer in use of this pool; it was "
                         "freed before or belongs elsewhere",
                         p->c.device_id, bytes);
}

size_t bnet_mempool_cleanup(bnet_mempool *p, bool all)
{
    pthread_mutex_lock(&p->lock);
    size_t n = expire(p, now_of(p), all);
    pthread_mutex_unlock(&p->lock);
    return n;
}

/* ---- looking ---- */

void bnet_mempool_read(bnet_mempool *p, bnet_mempool_stats *out)
{
    pthread_mutex_lock(&p->lock);
    *out = p->stats;
    out->current_bytes = p->held.n_bytes;
    out->cached_bytes = p->cached.n_bytes;
    out->n_cached = p->cached.n;
    pthread_mutex_unlock(&p->lock);
}

size_t bnet_mempool_each(bnet_mempool *p, bnet_mempool_visit visit, void *user)
{
    size_t n = 0;
    pthread_mutex_lock(&p->lock);
    double now_ms = now_of(p);
    for (record *r = p->c.tracking ? p->held.oldest : NULL; r; r = r->next, n++)
        visit(user, n,
              &(bnet_mempool_held){r->p, r->n_bytes, now_ms - r->since_ms, r->file, r->line});
    pthread_mutex_unlock(&p->lock);
    return n;
}

typedef struct listing {
    bnet_mempool_held *out;
    size_t cap;
} listing;

static void list_one(void *user, size_t i, const bnet_mempool_held *held)
{
    const listing *l = user;
    if (i < l->cap)
        l->out[i] = *held;
}

size_t bnet_mempool_list(bnet_mempool *p, bnet_mempool_held *out, size_t cap)
{
    return bnet_mempool_each(p, list_one, &(listing){out, cap});
}

static void report_one(void *user, size_t i, const bnet_mempool_held *h)
{
    (void)i;
    bnet_str_addf(user, "leak: %zu bytes held for %.1f s, taken at %s:%d\n", h->n_bytes,
                  h->age_ms * 1e-3, h->file, h->line);
}

bool bnet_mempool_report(bnet_mempool *p, bnet_str *out)
{
    bnet_mempool_each(p, report_one, out);
    return !out->failed;
}

/* ---- health ---- */

static void check_pool(bnet_mempool *p, double held_ms, bnet_str *findings)
{
    bnet_mempool_held oldest;
    bnet_mempool_stats s;
    bnet_mempool_read(p, &s);
    if (s.current_bytes > p->c.max_pool_size / 10 * 9)
        bnet_str_addf(findings, "pool of device %d: %llu of %llu bytes are in use\n",
                      p->c.device_id, (unsigned long long)s.current_bytes,
                      (unsigned long long)p->c.max_pool_size);
    if (s.n_refused)
        bnet_str_addf(findings, "pool of device %d: %llu requests were refused\n", p->c.device_id,
                      (unsigned long long)s.n_refused);
    if (held_ms > 0 && bnet_mempool_list(p, &oldest, 1) && oldest.age_ms > held_ms)
        bnet_str_addf(findings, "pool of device %d: %zu bytes held for %.1f s, taken at %s:%d\n",
                      p->c.device_id, oldest.n_bytes, oldest.age_ms * 1e-3, oldest.file,
                      oldest.line);
}

bool bnet_memory_health(bnet_mempool *pool, double held_ms, bnet_str *findings)
{
    size_t before = findings->n;
    bnet_host_memory m;
    if (bnet_host_memory_read("", &m) && m.available_bytes < m.total_bytes / 20)
        bnet_str_addf(findings, "host: %llu of %llu bytes are available\n",
                      (unsigned long long)m.available_bytes, (unsigned long long)m.total_bytes);
    if (pool)
        check_pool(pool, held_ms, findings);
    return findings->n == before && !findings->failed;
}
