/* peer.c - what CUDA has for several devices: one stream that waits for another, memory that a
 * neighbour may read, copies between the two. The same device opened twice is its own neighbour. */
#include "backend/cuda/cuda.h"

enum { EVENT_NO_TIMING = 2, ALREADY_ENABLED = 704 };
enum { LOCATION_DEVICE = 1, READ_WRITE = 3 };

static cuda_driver *cuda(gpu_driver *d)
{
    return (cuda_driver *)d;
}

/* The calling thread is inside d again when it returns. */
int bnet_cuda_after(gpu_driver *d, gpu_driver *other)
{
    cuda_driver *to = cuda(d), *from = cuda(other);
    int r = from->cu.context_set(from->context);
    if (r == 0 && !from->mark)
        r = from->cu.event_new(&from->mark, EVENT_NO_TIMING);
    if (r == 0)
        r = from->cu.event_record(from->mark, from->stream);
    int back = to->cu.context_set(to->context);
    r = r ? r : back;
    return r ? r : to->cu.stream_after(to->stream, from->mark, 0);
}

/* Memory taken in stream order is shared by its pool, other memory by its context. */
static bool share_pool(const cuda_driver *reader, const cuda_driver *owner)
{
    cu_access access = {LOCATION_DEVICE, reader->device, READ_WRITE};
    return !owner->pooled || (owner->pool && owner->cu.pool_reach &&
                              owner->cu.pool_reach(owner->pool, &access, 1) == 0);
}

bool bnet_cuda_reach(gpu_driver *d, gpu_driver *other)
{
    cuda_driver *to = cuda(d), *from = cuda(other);
    int can = 0;
    if (to->device == from->device)
        return true;
    if (!to->cu.can_reach || !to->cu.reach || !to->cu.fetch ||
        to->cu.can_reach(&can, to->device, from->device) != 0 || !can)
        return false;
    int r = to->cu.reach(from->context, 0); /* of the context that is current: d's */
    return (r == 0 || r == ALREADY_ENABLED) && share_pool(to, from);
}

int bnet_cuda_fetch(gpu_driver *d, gpu_ptr dst, gpu_driver *other, gpu_ptr src, size_t n_bytes)
{
    cuda_driver *to = cuda(d), *from = cuda(other);
    if (to->device == from->device)
        return to->cu.copy(dst, src, n_bytes, to->stream);
    return to->cu.fetch(dst, to->context, src, from->context, n_bytes, to->stream);
}
