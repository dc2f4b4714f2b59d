/* buffer_pool.c - memory for the buffers of passes and of single operations: at most a cap, freed
 * pieces kept for the next request of their size, and what is still held at the end named by the
 * line that asked. Called by whoever has entered the backend. */
#include "backend/gpu/gpu.h"

#include <math.h>

enum { KEEP_MS = 30000 }; /* a kept piece that nobody asked for so long is released */

typedef struct gpu_piece {
    struct gpu_piece *next; /* of its list */
    gpu_memory memory;
    size_t n_bytes;
    double since_ms; /* when it was taken or given back */
    const char *file;
    int line;
} gpu_piece;

static gpu_piece *unlink_piece(gpu_piece **at, uint64_t *n_bytes)
{
    gpu_piece *p = *at;
    *at = p->next;
    *n_bytes -= p->n_bytes;
    return p;
}

static void link_piece(gpu_piece **list, uint64_t *n_bytes, gpu_piece *p, double now_ms)
{
    p->since_ms = now_ms;
    p->next = *list;
    *list = p;
    *n_bytes += p->n_bytes;
}

static void release(gpu_backend *be, gpu_piece *p)
{
    bnet_gpu_own(be, -(int64_t)p->n_bytes);
    be->d->c->release(be->d, p->memory);
    bnet_free(p);
}

/* The newest are first: from some place on all are old enough. */
static void release_kept(gpu_backend *be, double before_ms)
{
    gpu_buffer_pool *pool = &be->buffers;
    gpu_piece **at = &pool->kept;
    while (*at && (*at)->since_ms > before_ms)
        at = &(*at)->next;
    while (*at)
        release(be, unlink_piece(at, &pool->kept_bytes));
}

static void release_old(gpu_backend *be, double now_ms)
{
    if (now_ms - be->buffers.looked_ms < KEEP_MS)
        return;
    be->buffers.looked_ms = now_ms;
    release_kept(be, now_ms - KEEP_MS);
}

void bnet_gpu_pool_empty(gpu_backend *be)
{
    release_kept(be, INFINITY);
}

uint64_t bnet_gpu_pool_idle(const gpu_backend *be)
{
    return gpu_alive(be) && !be->recording ? be->buffers.kept_bytes : 0;
}

static gpu_memory from_driver(gpu_backend *be, size_t n_bytes)
{
    gpu_memory m = NULL;
    if (be->d->c->alloc(be->d, n_bytes, &m) == GPU_OK)
        return m;
    if (bnet_gpu_pool_idle(be)) {
        bnet_gpu_pool_empty(be);
        if (be->d->c->alloc(be->d, n_bytes, &m) == GPU_OK)
            return m;
    }
    bool given = bnet_gpu_give_head_copy(be);
    return given && be->d->c->alloc(be->d, n_bytes, &m) == GPU_OK ? m : NULL;
}

static gpu_piece *fresh(gpu_backend *be, size_t n_bytes, bitnet_error *err)
{
    const gpu_buffer_pool *pool = &be->buffers;
    int id = be->d->gpu.device_id;
    if (n_bytes > pool->cap_bytes || pool->held_bytes > pool->cap_bytes - n_bytes) {
        bnet_fail(err, BITNET_MEMORY,
                  "memory pool of device %d: %zu bytes asked with %llu in use would exceed its cap "
                  "of %llu",
                  id, n_bytes, (unsigned long long)pool->held_bytes,
                  (unsigned long long)pool->cap_bytes);
        return NULL;
    }
    if (pool->held_bytes + pool->kept_bytes > pool->cap_bytes - n_bytes)
        bnet_gpu_pool_empty(be);
    gpu_piece *p = bnet_calloc(1, sizeof *p);
    if (p)
        p->memory = from_driver(be, n_bytes);
    if (!p || !p->memory) {
        bnet_free(p);
        bnet_fail(err, BITNET_MEMORY, "memory pool: device %d has no %zu bytes left", id, n_bytes);
        return NULL;
    }
    p->n_bytes = n_bytes;
    bnet_gpu_own(be, (int64_t)n_bytes);
    return p;
}

bitnet_status bnet_gpu_pool_take(gpu_backend *be, size_t n_bytes, const char *file, int line,
                                 gpu_at *out, bitnet_error *err)
{
    gpu_buffer_pool *pool = &be->buffers;
    gpu_piece **at = &pool->kept;
    double now_ms = bnet_now_ms();
    release_old(be, now_ms);
    while (*at && (*at)->n_bytes != n_bytes)
        at = &(*at)->next;
    bool hit = *at != NULL;
    gpu_piece *p = hit ? unlink_piece(at, &pool->kept_bytes) : fresh(be, n_bytes, err);
    if (!p)
        return BITNET_MEMORY;
    *(hit ? &pool->n_hits : &pool->n_misses) += 1;
    p->file = file;
    p->line = line;
    link_piece(&pool->held, &pool->held_bytes, p, now_ms);
    *out = (gpu_at){p->memory, 0};
    return BITNET_OK;
}

void bnet_gpu_pool_give(gpu_backend *be, gpu_at memory)
{
    gpu_buffer_pool *pool = &be->buffers;
    gpu_piece **at = &pool->held;
    double now_ms = bnet_now_ms();
    while (*at && (*at)->memory != memory.memory)
        at = &(*at)->next;
    if (*at)
        link_piece(&pool->kept, &pool->kept_bytes, unlink_piece(at, &pool->held_bytes), now_ms);
    release_old(be, now_ms);
}

void bnet_gpu_pool_close(gpu_backend *be)
{
    gpu_buffer_pool *pool = &be->buffers;
    bnet_gpu_pool_empty(be);
    while (pool->held) {
        const gpu_piece *p = pool->held;
        bnet_logf(&be->log, BITNET_LOG_WARN, "mempool",
                  "leak: %zu bytes of device %d held for %.1f s, taken at %s:%d", p->n_bytes,
                  be->d->gpu.device_id, (bnet_now_ms() - p->since_ms) * 1e-3, p->file, p->line);
        release(be, unlink_piece(&pool->held, &pool->held_bytes));
    }
}
