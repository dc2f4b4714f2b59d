/* mempool.c - every buffer has a record outside of it, which is in one of two sets: held by
 * somebody (found by address) or cached (found by size). Each set is a list in the order of time
 * and a hash table. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "bitnet_tools.h"
#include "check.h"

/* Defaults; weights and caches of keys and values are outside this cap. */
#define POOL_BYTES       ((uint64_t)2 << 30)
#define POOL_BUFFERS     1000
#define POOL_INTERVAL_MS 30000

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
    bitnet_mempool_options c;
    pthread_mutex_t lock;
    set held, cached;
    bitnet_mempool_stats stats; /* the fields the sets do not know */
    double cleaned_ms;          /* when expiry last looked */
};

enum { FIRST_SLOTS = 64, ALIGNMENT = 64 };

/* ---- sets ---- */

static record **slot_of(const set *s, uint64_t key)
{
    key *= 0x9e3779b97f4a7c15u; /* addresses and sizes have zeros at their end: mix upward */
    return &s->slots[(key >> 32) & (s->n_slots - 1)];
}

static bool set_init(set *s)
{
    s->n_slots = FIRST_SLOTS;
    s->slots = calloc(s->n_slots, sizeof(record *));
    return s->slots != NULL;
}

/* Without memory the old table serves on, with longer chains. */
static void set_grow(set *s)
{
    set wide = *s;
    wide.n_slots = s->n_slots * 4;
    wide.slots = calloc(wide.n_slots, sizeof(record *));
    if (!wide.slots)
        return;
    for (record *r = s->oldest; r; r = r->next) {
        record **slot = slot_of(&wide, r->key);
        r->chain = *slot;
        *slot = r;
    }
    free(s->slots);
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
    void *p = NULL;
    (void)user;
    return posix_memalign(&p, ALIGNMENT, n_bytes) == 0 ? p : NULL;
}

static void host_give(void *user, void *p, size_t n_bytes)
{
    (void)user;
    (void)n_bytes;
    free(p);
}

static double host_clock(void *user)
{
    struct timespec t;
    (void)user;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static const char owner[] = "memory pool options";

void bitnet_mempool_options_init(bitnet_mempool_options *o)
{
    if (!o)
        return;
    *o = (bitnet_mempool_options){.struct_size = sizeof *o,
                                  .max_pool_size = POOL_BYTES,
                                  .max_cached_buffers = POOL_BUFFERS,
                                  .cleanup_interval_ms = POOL_INTERVAL_MS,
                                  .tracking = true};
}

static bitnet_status check(const bitnet_mempool_options *o, bitnet_error *err)
{
    if (!o->allocator.take != !o->allocator.give)
        return fail(err, BITNET_ARGUMENT, "%s: allocator has only one of take and give", owner);
    if (o->max_pool_size == 0)
        return fail(err, BITNET_ARGUMENT, "%s: max_pool_size is 0", owner);
    return check_int(owner, "cleanup_interval_ms", o->cleanup_interval_ms, 0, INT32_MAX, err);
}

static double now_of(const bitnet_mempool *p)
{
    return p->c.clock_ms(p->c.clock_user);
}

static bitnet_status read_options(const bitnet_mempool_options *given, bitnet_mempool_options *o,
                                  bitnet_error *err)
{
    bitnet_mempool_options_init(o);
    bitnet_status st = copy_options(o, sizeof *o, given, owner, err);
    if (st == BITNET_OK)
        st = check(o, err);
    if (st != BITNET_OK)
        return st;
    uint64_t tenth = o->device_memory / 10;
    if (o->device_memory && tenth < o->max_pool_size)
        o->max_pool_size = tenth ? tenth : 1;
    if (!o->allocator.take)
        o->allocator = (bitnet_allocator){host_take, host_give, NULL};
    if (!o->clock_ms)
        o->clock_ms = host_clock;
    return BITNET_OK;
}

bitnet_status bitnet_mempool_open(const bitnet_mempool_options *options, bitnet_mempool **out,
                                  bitnet_error *err)
{
    if (!out)
        return fail(err, BITNET_ARGUMENT, "memory pool: out must not be NULL");
    bitnet_mempool_options o;
    bitnet_status st = read_options(options, &o, err);
    if (st != BITNET_OK)
        return st;
    bitnet_mempool *p = calloc(1, sizeof *p);
    if (!p || !set_init(&p->held) || !set_init(&p->cached)) {
        if (p)
            free(p->held.slots);
        free(p);
        return fail(err, BITNET_MEMORY, "out of memory: memory pool");
    }
    p->c = o;
    pthread_mutex_init(&p->lock, NULL);
    p->cleaned_ms = now_of(p);
    *out = p;
    return BITNET_OK;
}

static void destroy(bitnet_mempool *p, set *s, record *r)
{
    set_remove(s, r);
    p->c.allocator.give(p->c.allocator.user, r->p, r->n_bytes);
    free(r);
}

static void tell_leak(const bitnet_mempool *p, const record *r, double now_ms)
{
    char text[256];
    snprintf(text, sizeof text, "leak: %zu bytes of device %d held for %.1f s, taken at %s:%d",
             r->n_bytes, p->c.device_id, (now_ms - r->since_ms) * 1e-3, r->file, r->line);
    p->c.log(p->c.log_user, BITNET_LOG_WARN, "mempool", text);
}

void bitnet_mempool_close(bitnet_mempool *p)
{
    if (!p)
        return;
    double now_ms = now_of(p);
    for (record *r; (r = p->held.oldest);) {
        if (p->c.tracking && p->c.log)
            tell_leak(p, r, now_ms);
        destroy(p, &p->held, r);
    }
    while (p->cached.oldest)
        destroy(p, &p->cached, p->cached.oldest);
    free(p->held.slots);
    free(p->cached.slots);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

int bitnet_mempool_device_id(const bitnet_mempool *p)
{
    if (!p)
        return 0;
    return p->c.device_id;
}

/* ---- taking and giving; all below here under the lock ---- */

static size_t expire(bitnet_mempool *p, double now_ms, bool all)
{
    size_t n = 0;
    p->cleaned_ms = now_ms;
    while (p->cached.oldest &&
           (all || now_ms - p->cached.oldest->since_ms >= p->c.cleanup_interval_ms)) {
        destroy(p, &p->cached, p->cached.oldest);
        n++;
    }
    p->stats.n_expired += n;
    return n;
}

static void expire_if_due(bitnet_mempool *p, double now_ms)
{
    if (now_ms - p->cleaned_ms >= p->c.cleanup_interval_ms)
        expire(p, now_ms, false);
}

/* Cached buffers make way for one in use. False: even an empty cache would not do. */
static bool make_room(bitnet_mempool *p, size_t n_bytes)
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

static bitnet_status refuse(bitnet_mempool *p, size_t n_bytes, bitnet_error *err)
{
    p->stats.n_refused++;
    return fail(err, BITNET_MEMORY,
                "memory pool of device %d: %zu bytes asked with %llu in use would exceed "
                "max_pool_size %llu; free buffers or raise the limit",
                p->c.device_id, n_bytes, (unsigned long long)p->held.n_bytes,
                (unsigned long long)p->c.max_pool_size);
}

static bitnet_status fresh(bitnet_mempool *p, size_t n_bytes, record **out, bitnet_error *err)
{
    if (!make_room(p, n_bytes))
        return refuse(p, n_bytes, err);
    record *r = calloc(1, sizeof *r);
    void *bytes = r ? p->c.allocator.take(p->c.allocator.user, n_bytes) : NULL;
    if (!bytes) { /* perhaps the cache sits on what is missing */
        expire(p, p->cleaned_ms, true);
        bytes = r ? p->c.allocator.take(p->c.allocator.user, n_bytes) : NULL;
    }
    if (!bytes) {
        free(r);
        p->stats.n_refused++;
        return fail(err, BITNET_MEMORY, "memory pool of device %d: the allocator has no %zu bytes",
                    p->c.device_id, n_bytes);
    }
    r->p = bytes;
    r->n_bytes = n_bytes;
    *out = r;
    return BITNET_OK;
}

static bitnet_status take(bitnet_mempool *p, size_t n_bytes, record **out, bitnet_error *err)
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

static void hand_out(bitnet_mempool *p, record *r, double now_ms)
{
    set_put(&p->held, r, (uint64_t)(uintptr_t)r->p, now_ms);
    p->stats.n_allocs++;
    p->stats.allocated_bytes += r->n_bytes;
    if (p->stats.peak_bytes < p->held.n_bytes)
        p->stats.peak_bytes = p->held.n_bytes;
}

bitnet_status bitnet_mempool_alloc_at(bitnet_mempool *p, size_t n_bytes, const char *file, int line,
                                      void **out, bitnet_error *err)
{
    if (!p || !out)
        return fail(err, BITNET_ARGUMENT, "memory pool: pool and out must not be NULL");
    if (n_bytes == 0)
        return fail(err, BITNET_ARGUMENT, "memory pool of device %d: 0 bytes asked",
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
static void bring_back(bitnet_mempool *p, record *r, double now_ms)
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

bitnet_status bitnet_mempool_free(bitnet_mempool *p, void *bytes, bitnet_error *err)
{
    if (!bytes)
        return BITNET_OK;
    if (!p)
        return fail(err, BITNET_ARGUMENT, "memory pool: pool must not be NULL");
    pthread_mutex_lock(&p->lock);
    record *r = set_find(&p->held, (uint64_t)(uintptr_t)bytes);
    if (r) {
        double now_ms = now_of(p);
        bring_back(p, r, now_ms);
        expire_if_due(p, now_ms);
    }
    pthread_mutex_unlock(&p->lock);
    return r ? BITNET_OK
             : fail(err, BITNET_ARGUMENT,
                    "memory pool of device %d: %p is no buffer in use of this pool; it was "
                    "freed before or belongs elsewhere",
                    p->c.device_id, bytes);
}

size_t bitnet_mempool_cleanup(bitnet_mempool *p, bool all)
{
    if (!p)
        return 0;
    pthread_mutex_lock(&p->lock);
    size_t n = expire(p, now_of(p), all);
    pthread_mutex_unlock(&p->lock);
    return n;
}

/* ---- looking ---- */

void bitnet_mempool_read(bitnet_mempool *p, bitnet_mempool_stats *out)
{
    if (!p || !out)
        return;
    pthread_mutex_lock(&p->lock);
    *out = p->stats;
    out->current_bytes = p->held.n_bytes;
    out->cached_bytes = p->cached.n_bytes;
    out->n_cached = p->cached.n;
    pthread_mutex_unlock(&p->lock);
}

size_t bitnet_mempool_leaks(bitnet_mempool *p, bitnet_mempool_leak *out, size_t cap)
{
    size_t n = 0;
    if (!p || (cap && !out))
        return 0;
    pthread_mutex_lock(&p->lock);
    double now_ms = now_of(p);
    for (record *r = p->c.tracking ? p->held.oldest : NULL; r; r = r->next, n++)
        if (n < cap)
            out[n] =
                (bitnet_mempool_leak){r->p, r->n_bytes, now_ms - r->since_ms, r->file, r->line};
    pthread_mutex_unlock(&p->lock);
    return n;
}

/* ---- health ---- */

/* What is wrong, collected as sentences divided by line ends. */
typedef struct findings {
    char text[BITNET_MESSAGE_MAX];
    size_t n;
} findings;

BITNET_PRINTF(2, 3) static void found(findings *f, const char *format, ...)
{
    va_list ap;
    int n;
    if (f->n >= sizeof f->text - 1)
        return;
    if (f->n)
        f->text[f->n++] = '\n';
    va_start(ap, format);
    n = vsnprintf(f->text + f->n, sizeof f->text - f->n, format, ap);
    va_end(ap);
    f->n += n > 0 ? at_most((size_t)n, sizeof f->text - 1 - f->n) : 0;
}

static void check_pool(bitnet_mempool *p, double held_ms, findings *f)
{
    bitnet_mempool_leak oldest;
    bitnet_mempool_stats s;
    int id = p->c.device_id;
    bitnet_mempool_read(p, &s);
    if (s.current_bytes > p->c.max_pool_size / 10 * 9)
        found(f, "pool of device %d: %llu of %llu bytes are in use", id,
              (unsigned long long)s.current_bytes, (unsigned long long)p->c.max_pool_size);
    if (s.n_refused)
        found(f, "pool of device %d: %llu requests were refused", id,
              (unsigned long long)s.n_refused);
    if (held_ms > 0 && bitnet_mempool_leaks(p, &oldest, 1) && oldest.age_ms > held_ms)
        found(f, "pool of device %d: %zu bytes held for %.1f s, taken at %s:%d", id, oldest.n_bytes,
              oldest.age_ms * 1e-3, oldest.file, oldest.line);
}

bitnet_status bitnet_memory_health(bitnet_mempool *pool, double held_ms, bitnet_error *err)
{
    findings f = {0};
    bitnet_host_memory m;
    if (bitnet_host_memory_read(&m, NULL) == BITNET_OK && m.available_bytes < m.total_bytes / 20)
        found(&f, "host: %llu of %llu bytes are available", (unsigned long long)m.available_bytes,
              (unsigned long long)m.total_bytes);
    if (pool)
        check_pool(pool, held_ms, &f);
    return f.n ? fail(err, BITNET_MEMORY_GATE, "memory: %.*s", BITNET_MESSAGE_MAX - 16, f.text)
               : BITNET_OK;
}
