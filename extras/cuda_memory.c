/* cuda_memory.c - memory of a device in stream order, and pinned memory of the host.
 *
 * Memory belongs to stream 0. A buffer that is handed out exists for the other streams at once, and
 * one that is given back is gone after what all of them were asked to do so far: events make that
 * order on the device, the host waits for nothing. */
#include "cuda.h"

enum { POOLS_SUPPORTED = 115 }; /* CUdevice_attribute */
enum { POOL_RELEASE_THRESHOLD = 4, POOL_PINNED = 1, POOL_ON_DEVICE = 1 };

/* A pool of its own, in which memory that was given back stays until the device is closed: asking
 * anew is quick, and other users of the device's pool are not concerned. */
void bnetx_pool_open(bitnet_cuda *c)
{
    const cu_pool_props props = {.type = POOL_PINNED, .location = {POOL_ON_DEVICE, c->device}};
    _Static_assert(sizeof props == 88, "as the driver has it");
    uint64_t keep = UINT64_MAX;
    int supported = 0;
    c->cu.device_attribute(&supported, POOLS_SUPPORTED, c->device);
    if (supported <= 0 || !c->cu.release_async || !c->cu.pool_alloc || !c->cu.pool_free ||
        !c->cu.pool_new || c->cu.pool_new(&c->pool, &props) != 0)
        c->pool = NULL;
    if (c->pool && c->cu.pool_set)
        c->cu.pool_set(c->pool, POOL_RELEASE_THRESHOLD, &keep);
}

/* Stream 0 waits for the others, or they for it. */
static int order(bitnet_cuda *c, bool others_wait)
{
    int r = others_wait ? c->cu.event_record(c->fork, c->streams[0]) : 0;
    for (int i = 1; r == 0 && c->pool && i < BITNET_CUDA_STREAMS; i++) {
        if (!c->streams[i])
            continue;
        if (!others_wait)
            r = c->cu.event_record(c->join, c->streams[i]);
        if (r == 0)
            r = others_wait ? c->cu.stream_after(c->streams[i], c->fork, 0)
                            : c->cu.stream_after(c->streams[0], c->join, 0);
    }
    return r;
}

static void release(bitnet_cuda *c, cu_ptr p)
{
    if (c->pool)
        c->cu.release_async(p, c->streams[0]);
    else
        c->cu.release(p);
}

static void *take(void *user, size_t n_bytes)
{
    bitnet_cuda *c = user;
    cu_ptr p = 0;
    int r = bnetx_enter(c);
    for (int i = 1; r == 0 && i < BITNET_CUDA_STREAMS; i++) /* later ones would not have waited */
        bnetx_stream(c, i, &r);
    if (r == 0)
        r = c->pool ? c->cu.pool_alloc(&p, n_bytes, c->pool, c->streams[0])
                    : c->cu.alloc(&p, n_bytes);
    if (r == 0 && order(c, true) != 0) {
        release(c, p);
        p = 0;
    }
    bnetx_leave(c);
    return r == 0 ? (void *)(uintptr_t)p : NULL;
}

static void give(void *user, void *p, size_t n_bytes)
{
    bitnet_cuda *c = user;
    (void)n_bytes;
    if (bnetx_enter(c) == 0)
        order(c, false);
    release(c, (cu_ptr)(uintptr_t)p);
    bnetx_leave(c);
}

bitnet_allocator bitnet_cuda_allocator(bitnet_cuda *c)
{
    const bitnet_allocator of_device = {take, give, c}, none = {NULL, NULL, NULL};
    return c ? of_device : none;
}

void *bitnet_cuda_host_alloc(bitnet_cuda *c, size_t n_bytes)
{
    void *p = NULL;
    if (!c || !n_bytes)
        return NULL;
    int r = bnetx_enter(c);
    if (r == 0)
        r = c->cu.host_alloc(&p, n_bytes, 0);
    bnetx_leave(c);
    return r == 0 ? p : NULL;
}

void bitnet_cuda_host_free(bitnet_cuda *c, void *p)
{
    if (!c || !p)
        return;
    bnetx_enter(c);
    c->cu.host_release(p);
    bnetx_leave(c);
}
