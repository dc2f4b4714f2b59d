/* beside.c - copies to the device while it computes: a second stream, and the events by which the
 * first one waits for it. */
#include "backend/cuda/cuda.h"

enum { STREAM_NON_BLOCKING = 1, COPY = 0, WORK = 1 };

static cuda_driver *cuda(gpu_driver *d)
{
    return (cuda_driver *)d;
}

static int make(cuda_driver *c)
{
    int r = c->side ? 0 : c->cu.stream_new(&c->side, STREAM_NON_BLOCKING);
    for (int i = COPY; i <= WORK && r == 0; i++)
        r = c->ends[i] ? 0 : c->cu.event_new(&c->ends[i], 0);
    return r;
}

int bnet_cuda_beside(gpu_driver *d, gpu_ptr dst, const void *src, size_t n_bytes)
{
    cuda_driver *c = cuda(d);
    int r = make(c);
    if (r == 0)
        r = c->cu.to_device(dst, src, n_bytes, c->side);
    if (r)
        return r;
    r = c->cu.event_record(c->ends[COPY], c->side);
    r = r ? r : c->cu.event_record(c->ends[WORK], c->stream);
    r = r ? r : c->cu.stream_after(c->stream, c->ends[COPY], 0);
    if (r) /* nobody else waits for the copy: who is told may use both its ends again */
        c->cu.stream_wait(c->side);
    return r;
}

int bnet_cuda_lead(gpu_driver *d, double *ms)
{
    cuda_driver *c = cuda(d);
    float f = 0;
    int r = c->cu.event_between(&f, c->ends[COPY], c->ends[WORK]);
    *ms = (double)f;
    return r;
}

void bnet_cuda_beside_close(gpu_driver *d)
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
