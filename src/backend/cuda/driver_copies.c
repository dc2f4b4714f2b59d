/* driver_copies.c - copies and fills of libcuda other than of one piece in the driver's own stream:
 * by rows, during other work, and between devices. */
#include "backend/cuda/cuda.h"

enum { DEVICE_MEMORY = 2, NOT_SUPPORTED = 801, MAX_PITCH = 0x7fffffff };
enum { STREAM_NON_BLOCKING = 1, COPY = 0, WORK = 1 };
enum { EVENT_NO_TIMING = 2, ALREADY_ENABLED = 704 };
enum { LOCATION_DEVICE = 1, READ_WRITE = 3 };

static cuda_driver *cuda(gpu_driver *d)
{
    return (cuda_driver *)d;
}

/* ---- rows that lie a pitch apart ---- */

gpu_result bnet_cuda_copy_rows(gpu_driver *d, const gpu_rows *r)
{
    cuda_driver *c = cuda(d);
    const cu_copy_2d copy = {.src_type = DEVICE_MEMORY,
                             .src = cuda_at(r->src),
                             .src_pitch = r->src_pitch,
                             .dst_type = DEVICE_MEMORY,
                             .dst = cuda_at(r->dst),
                             .dst_pitch = r->dst_pitch,
                             .width = r->n_bytes,
                             .height = r->n_rows};
    int code = NOT_SUPPORTED;
    if (r->n_rows == 1)
        code = c->cu.copy(copy.dst, copy.src, r->n_bytes, c->stream);
    else if (c->cu.copy_rows)
        code = c->cu.copy_rows(&copy, c->stream);
    return bnet_cuda_result(d, code);
}

gpu_result bnet_cuda_fill_rows(gpu_driver *d, const gpu_rows *r, int byte)
{
    cuda_driver *c = cuda(d);
    unsigned char value = (unsigned char)byte;
    cu_ptr dst = cuda_at(r->dst);
    int code = 0;
    if (c->cu.fill_rows && r->dst_pitch < MAX_PITCH)
        code = c->cu.fill_rows(dst, r->dst_pitch, value, r->n_bytes, r->n_rows, c->stream);
    else
        for (size_t i = 0; i < r->n_rows && code == 0; i++)
            code = c->cu.fill(dst + i * r->dst_pitch, value, r->n_bytes, c->stream);
    return bnet_cuda_result(d, code);
}

/* ---- to the device while it computes: a second stream, for which the first waits by an event ----
 */

static int make_side(cuda_driver *c)
{
    int r = c->side ? 0 : c->cu.stream_new(&c->side, STREAM_NON_BLOCKING);
    for (int i = COPY; i <= WORK && r == 0; i++)
        r = c->ends[i] ? 0 : c->cu.event_new(&c->ends[i], 0);
    return r;
}

gpu_result bnet_cuda_upload_aside(gpu_driver *d, gpu_at dst, const void *src, size_t n_bytes)
{
    cuda_driver *c = cuda(d);
    int r = make_side(c);
    if (r == 0)
        r = c->cu.to_device(cuda_at(dst), src, n_bytes, c->side);
    if (r)
        return bnet_cuda_result(d, r);
    r = c->cu.event_record(c->ends[COPY], c->side);
    r = r ? r : c->cu.event_record(c->ends[WORK], c->stream);
    r = r ? r : c->cu.stream_after(c->stream, c->ends[COPY], 0);
    if (r) /* nothing waits for the copy on the device, and the caller may reuse both its ends */
        c->cu.stream_wait(c->side);
    return bnet_cuda_result(d, r);
}

gpu_result bnet_cuda_aside_lead(gpu_driver *d, double *ms)
{
    cuda_driver *c = cuda(d);
    float f = 0;
    int r = c->cu.event_between(&f, c->ends[COPY], c->ends[WORK]);
    *ms = (double)f;
    return bnet_cuda_result(d, r);
}

void bnet_cuda_aside_close(gpu_driver *d)
{
    cuda_driver *c = cuda(d);
    for (int i = COPY; i <= WORK; i++)
        if (c->ends[i])
            c->cu.event_free(c->ends[i]);
    if (c->side) {
        c->cu.stream_wait(c->side);
        c->cu.stream_free(c->side);
    }
}

/* ---- between devices; the same device opened twice is its own neighbour ---- */

static int mark(cuda_driver *from)
{
    int r = from->mark ? 0 : from->cu.event_new(&from->mark, EVENT_NO_TIMING);
    return r ? r : from->cu.event_record(from->mark, from->stream);
}

gpu_result bnet_cuda_after(gpu_driver *d, gpu_driver *other)
{
    cuda_driver *to = cuda(d), *from = cuda(other);
    gpu_result r = other->c->enter(other);
    if (r != GPU_OK)
        return bnet_cuda_result(d, from->code[r]);
    int code = mark(from);
    other->c->leave(other);
    return bnet_cuda_result(d, code ? code : to->cu.stream_after(to->stream, from->mark, 0));
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

gpu_result bnet_cuda_fetch(gpu_driver *d, gpu_at dst, gpu_driver *other, gpu_at src, size_t n_bytes)
{
    cuda_driver *to = cuda(d), *from = cuda(other);
    int r = to->device == from->device
                ? to->cu.copy(cuda_at(dst), cuda_at(src), n_bytes, to->stream)
                : to->cu.fetch(cuda_at(dst), to->context, cuda_at(src), from->context, n_bytes,
                               to->stream);
    return bnet_cuda_result(d, r);
}
