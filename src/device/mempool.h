/* mempool.h - a pool of buffers on one device: a cache of freed buffers by size, limits, counters,
 * who holds what. Hides: where the bytes come from (an allocator that the owner may bring) and the
 * book-keeping, which never touches a buffer: its address may be one of a GPU. Any thread. */
#ifndef BNET_MEMPOOL_H
#define BNET_MEMPOOL_H

#include "base/str.h"
#include "bitnet_extras.h"

/* Called under the pool's lock: must not call the pool. */
typedef struct bnet_allocator {
    void *(*take)(void *user, size_t n_bytes); /* NULL: no memory */
    void (*give)(void *user, void *p, size_t n_bytes);
    void *user;
} bnet_allocator;

/* Seed-level defaults (M-1); weights and caches of keys and values are outside this cap (D-42). */
#define BNET_MEMPOOL_BYTES       ((uint64_t)2 << 30)
#define BNET_MEMPOOL_BUFFERS     1000
#define BNET_MEMPOOL_INTERVAL_MS 30000.0

typedef struct bnet_mempool_config {
    uint64_t max_pool_size;    /* bytes, buffers in use and in the cache together */
    size_t max_cached_buffers; /* in total, over all sizes */
    double cleanup_ms;         /* cached buffers unused for so long are given back */
    bool tracking;             /* keep time and site of every buffer for the leak report */
    int device_id;
    bnet_allocator allocator;       /* take NULL: the host's */
    double (*clock_ms)(void *user); /* NULL: the monotonic clock */
    void *clock_user;
    bnet_log log; /* told about leaks at close */
} bnet_mempool_config;

typedef struct bnet_mempool_stats {
    uint64_t allocated_bytes, freed_bytes; /* handed out and brought back, reused buffers counted */
    uint64_t current_bytes, peak_bytes;
    uint64_t n_allocs, n_frees;
    uint64_t n_hits, n_misses; /* served from the cache; by the allocator */
    uint64_t cached_bytes, n_cached;
    uint64_t n_expired; /* given back for their age or to make room */
    uint64_t n_refused; /* asked beyond the cap, or the allocator had none */
} bnet_mempool_stats;

/* A buffer somebody holds. */
typedef struct bnet_mempool_held {
    const void *p;
    size_t n_bytes;
    double age_ms;
    const char *file; /* of the line that asked; "" if not known */
    int line;
} bnet_mempool_held;

typedef struct bitnet_mempool bnet_mempool;

void bnet_mempool_config_init(bnet_mempool_config *c);
/* min(2 GB, 10 % of the device's memory) (D-34); 0: not known, 2 GB. */
uint64_t bnet_mempool_cap(uint64_t device_bytes);

bitnet_status bnet_mempool_open(const bnet_mempool_config *c, bnet_mempool **out,
                                bitnet_error *err);
/* Gives everything back, also what is still held; that is logged as leaked. NULL is legal. */
void bnet_mempool_close(bnet_mempool *pool);
int bnet_mempool_device(const bnet_mempool *pool);

/* A reused buffer holds what its last owner left. `file` must outlive the buffer. Fails: ARGUMENT
 * (0 bytes), MEMORY (beyond the cap, or the allocator has none). */
bitnet_status bnet_mempool_take(bnet_mempool *pool, size_t n_bytes, const char *file, int line,
                                void **out, bitnet_error *err);
/* Brings a buffer back. Fails: ARGUMENT if it is none of this pool's (or was brought back before).
 * NULL is legal. */
bitnet_status bnet_mempool_give(bnet_mempool *pool, void *p, bitnet_error *err);
/* Gives cached buffers to the allocator: those older than cleanup_ms, or all. Returns how many. */
size_t bnet_mempool_cleanup(bnet_mempool *pool, bool all);

void bnet_mempool_read(bnet_mempool *pool, bnet_mempool_stats *out);
/* Buffers now held, the oldest first, at most cap of them; returns how many there are. With
 * tracking off: always 0. */
size_t bnet_mempool_list(bnet_mempool *pool, bnet_mempool_held *out, size_t cap);
/* The same through a callback, under the pool's lock. */
typedef void (*bnet_mempool_visit)(void *user, size_t i, const bnet_mempool_held *held);
size_t bnet_mempool_each(bnet_mempool *pool, bnet_mempool_visit visit, void *user);
/* "leak: 4096 bytes held for 12.5 s, taken at file.c:42" per line, as _list. */
bool bnet_mempool_report(bnet_mempool *pool, bnet_str *out);

/* ---- memory of the host: read anew at every call (M-8, D-35) ---- */

typedef struct bnet_host_memory {
    uint64_t total_bytes, available_bytes, used_bytes; /* of the system */
    uint64_t process_bytes, process_peak_bytes;        /* resident */
    double used_percent;                               /* of the system's total */
} bnet_host_memory;

/* False where the system does not say. `root` "": the real /proc. */
bool bnet_host_memory_read(const char *root, bnet_host_memory *out);
/* What is resident of this process, page by page: process_bytes is a sum of counters that some
 * kernels keep for each CPU and add up only roughly (megabytes off with many). Slower. */
bool bnet_resident_read(const char *root, uint64_t *n_bytes);

/* ---- health (V-6): quick enough for every request ---- */

/* Is something wrong? Appends one line per finding: less than 5 % of the host's memory available, a
 * pool above 90 % of its cap, refused requests, buffers held for longer than held_ms (0: not
 * looked at). pool may be NULL. True: healthy, nothing appended. */
bool bnet_memory_health(bnet_mempool *pool, double held_ms, bnet_str *findings);

#endif
