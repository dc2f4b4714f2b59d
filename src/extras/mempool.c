/* mempool.c - the memory pool of the device layer as programs see it. */
#include "device/mempool.h"
#include "bitnet_tools.h"
#include "engine/engine.h"

static const char owner[] = "memory pool options";

void bitnet_mempool_options_init(bitnet_mempool_options *o)
{
    if (!o)
        return;
    bnet_mempool_config c;
    bnet_mempool_config_init(&c);
    memset(o, 0, sizeof *o);
    o->struct_size = sizeof *o;
    o->max_pool_size = c.max_pool_size;
    o->max_cached_buffers = c.max_cached_buffers;
    o->cleanup_interval_ms = (int)c.cleanup_ms;
    o->tracking = c.tracking;
}

static bitnet_status check(const bitnet_mempool_options *o, bitnet_error *err)
{
    if (!o->allocator.take != !o->allocator.give)
        return bnet_fail(err, BITNET_ARGUMENT, "%s: allocator has only one of take and give",
                         owner);
    if (o->max_pool_size == 0)
        return bnet_fail(err, BITNET_ARGUMENT, "%s: max_pool_size is 0", owner);
    return bnet_check_int(owner, "cleanup_interval_ms", o->cleanup_interval_ms, 0, INT32_MAX, err);
}

bitnet_status bitnet_mempool_open(const bitnet_mempool_options *options, bitnet_mempool **out,
                                  bitnet_error *err)
{
    if (!out)
        return bnet_fail(err, BITNET_ARGUMENT, "memory pool: out must not be NULL");
    bitnet_mempool_options o;
    bitnet_mempool_options_init(&o);
    bitnet_status st = bnet_options_copy(&o, sizeof o, options, owner, err);
    if (st == BITNET_OK)
        st = check(&o, err);
    if (st != BITNET_OK)
        return st;
    bnet_mempool_config c = {
        .max_pool_size = o.max_pool_size,
        .max_cached_buffers = o.max_cached_buffers,
        .cleanup_ms = o.cleanup_interval_ms,
        .tracking = o.tracking,
        .device_id = o.device_id,
        .allocator = {o.allocator.take, o.allocator.give, o.allocator.user},
        .clock_ms = o.clock_ms,
        .clock_user = o.clock_user,
        .log = {o.log, o.log_user},
    };
    if (o.device_memory)
        c.max_pool_size = BNET_MIN(c.max_pool_size, BNET_MAX(o.device_memory / 10, 1));
    return bnet_mempool_open(&c, out, err);
}

void bitnet_mempool_close(bitnet_mempool *pool)
{
    bnet_mempool_close(pool);
}

int bitnet_mempool_device_id(const bitnet_mempool *pool)
{
    if (!pool)
        return 0;
    return bnet_mempool_device(pool);
}

bitnet_status bitnet_mempool_alloc_at(bitnet_mempool *pool, size_t n_bytes, const char *file,
                                      int line, void **out, bitnet_error *err)
{
    if (!pool || !out)
        return bnet_fail(err, BITNET_ARGUMENT, "memory pool: pool and out must not be NULL");
    return bnet_mempool_take(pool, n_bytes, file, line, out, err);
}

bitnet_status bitnet_mempool_free(bitnet_mempool *pool, void *p, bitnet_error *err)
{
    if (!pool && p)
        return bnet_fail(err, BITNET_ARGUMENT, "memory pool: pool must not be NULL");
    return bnet_mempool_give(pool, p, err);
}

size_t bitnet_mempool_cleanup(bitnet_mempool *pool, bool all)
{
    if (!pool)
        return 0;
    return bnet_mempool_cleanup(pool, all);
}

void bitnet_mempool_read(bitnet_mempool *pool, bitnet_mempool_stats *out)
{
    if (!pool || !out)
        return;
    bnet_mempool_stats s;
    bnet_mempool_read(pool, &s);
    *out = (bitnet_mempool_stats){
        .allocated_bytes = s.allocated_bytes,
        .freed_bytes = s.freed_bytes,
        .current_bytes = s.current_bytes,
        .peak_bytes = s.peak_bytes,
        .n_allocs = s.n_allocs,
        .n_frees = s.n_frees,
        .n_hits = s.n_hits,
        .n_misses = s.n_misses,
        .cached_bytes = s.cached_bytes,
        .n_cached = s.n_cached,
        .n_expired = s.n_expired,
        .n_refused = s.n_refused,
    };
}

typedef struct listing {
    bitnet_mempool_leak *out;
    size_t cap;
} listing;

static void list_one(void *user, size_t i, const bnet_mempool_held *h)
{
    const listing *l = user;
    if (i < l->cap)
        l->out[i] = (bitnet_mempool_leak){h->p, h->n_bytes, h->age_ms, h->file, h->line};
}

size_t bitnet_mempool_leaks(bitnet_mempool *pool, bitnet_mempool_leak *out, size_t cap)
{
    if (!pool || (cap && !out))
        return 0;
    return bnet_mempool_each(pool, list_one, &(listing){out, cap});
}

bitnet_status bitnet_host_memory_read(bitnet_host_memory *out, bitnet_error *err)
{
    if (!out)
        return bnet_fail(err, BITNET_ARGUMENT, "host memory: out must not be NULL");
    bnet_host_memory m;
    if (!bnet_host_memory_read("", &m))
        return bnet_fail(err, BITNET_NOT_AVAILABLE, "host memory: /proc/meminfo cannot be read");
    *out = (bitnet_host_memory){m.total_bytes,   m.available_bytes,    m.used_bytes,
                                m.process_bytes, m.process_peak_bytes, m.used_percent};
    return BITNET_OK;
}

bitnet_status bitnet_memory_health(bitnet_mempool *pool, double held_ms, bitnet_error *err)
{
    bnet_str text = {0};
    bitnet_status st = BITNET_OK;
    if (!bnet_memory_health(pool, held_ms, &text)) {
        while (text.n && text.data[text.n - 1] == '\n')
            text.data[--text.n] = '\0';
        st = text.failed ? bnet_no_memory(err, "memory health")
                         : bnet_fail(err, BITNET_MEMORY_GATE, "memory: %s", text.data);
    }
    bnet_str_free(&text);
    return st;
}
