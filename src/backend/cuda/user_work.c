/* user_work.c - work of programs: a launch or a copy in a stream between two events, by which it is
 * waited for, timed, and waited for by work of other streams. */
#include "backend/cuda/user.h"

static user_work *work_of(const bnet_user_work *w)
{
    return (user_work *)(uintptr_t)(const void *)w;
}

/* One that was freed, or a new one. */
static user_work *take(user_device *u, int *r)
{
    user_work *w = u->spare;
    if (w) {
        u->spare = w->next;
        return w;
    }
    w = bnet_calloc(1, sizeof *w);
    *r = w ? u->d->cu.event_new(&w->begin, 0) : 2;
    if (*r == 0)
        *r = u->d->cu.event_new(&w->end, 0);
    if (*r == 0) {
        w->base.device = &u->base;
        return w;
    }
    if (w && w->begin)
        u->d->cu.event_free(w->begin);
    bnet_free(w);
    return NULL;
}

static void put_back(user_device *u, user_work *w)
{
    w->next = u->spare;
    u->spare = w;
}

static int start(user_device *u, const bnet_user_order *o, cu_stream s)
{
    const cu_entries *cu = &u->d->cu;
    cu_ptr dst = (cu_ptr)(uintptr_t)o->dst, src = (cu_ptr)(uintptr_t)o->src;
    switch (o->kind) {
    case BNET_USER_TO_DEVICE:
        return cu->to_device(dst, o->src, o->n_bytes, s);
    case BNET_USER_TO_HOST:
        return cu->to_host(o->dst, src, o->n_bytes, s);
    case BNET_USER_ON_DEVICE:
        return cu->copy(dst, src, o->n_bytes, s);
    default:
        return cu->launch((cu_function)o->kernel, o->grid[0], o->grid[1], o->grid[2], o->block[0],
                          o->block[1], o->block[2], o->shared_bytes, s, o->params, NULL);
    }
}

static int submit(user_device *u, const bnet_user_order *o, const user_work *w)
{
    const cu_entries *cu = &u->d->cu;
    int r = 0;
    cu_stream s = bnet_cuda_user_stream(u, o->stream, &r);
    if (s && o->after)
        r = cu->stream_after(s, work_of(o->after)->end, 0);
    if (r == 0)
        r = cu->event_record(w->begin, s);
    if (r == 0)
        r = start(u, o, s);
    return r == 0 ? cu->event_record(w->end, s) : r;
}

bitnet_status bnet_cuda_user_submit(bnet_user_device *d, const bnet_user_order *o,
                                    bnet_user_work **out, bitnet_error *err)
{
    user_device *u = user_of(d);
    int r = bnet_cuda_user_enter(u);
    user_work *w = r == 0 ? take(u, &r) : NULL;
    if (w)
        r = submit(u, o, w);
    if (w && r != 0)
        put_back(u, w);
    bnet_cuda_user_leave(u);
    if (r != 0)
        return bnet_cuda_user_fail(u, "submitting work", r, err);
    *out = &w->base;
    return BITNET_OK;
}

/* The lock is not held while the device is waited for: others may go on submitting. */
static int wait(const bnet_user_work *w)
{
    const cuda_driver *d = user_of(w->device)->d;
    cu_context ours;
    int r = d->cu.context_push(d->context);
    if (r != 0)
        return r;
    r = d->cu.event_wait(work_of(w)->end);
    d->cu.context_pop(&ours);
    return r;
}

bool bnet_cuda_user_done(const bnet_user_work *w)
{
    user_device *u = user_of(w->device);
    int r = bnet_cuda_user_enter(u);
    if (r == 0)
        r = u->d->cu.event_query(work_of(w)->end);
    bnet_cuda_user_leave(u);
    return r != 600; /* CUDA_ERROR_NOT_READY */
}

bitnet_status bnet_cuda_user_wait(const bnet_user_work *w, bitnet_error *err)
{
    int r = wait(w);
    return r == 0 ? BITNET_OK : bnet_cuda_user_fail(user_of(w->device), "waiting", r, err);
}

bitnet_status bnet_cuda_user_times(const bnet_user_work *w, double *begin_ms, double *end_ms,
                                   bitnet_error *err)
{
    user_device *u = user_of(w->device);
    float begin = 0, end = 0;
    int r = wait(w);
    int entered = bnet_cuda_user_enter(u);
    r = r ? r : entered;
    if (r == 0)
        r = u->d->cu.event_between(&begin, u->origin, work_of(w)->begin);
    if (r == 0)
        r = u->d->cu.event_between(&end, u->origin, work_of(w)->end);
    bnet_cuda_user_leave(u);
    if (r != 0)
        return bnet_cuda_user_fail(u, "reading times", r, err);
    *begin_ms = (double)begin;
    *end_ms = (double)end;
    return BITNET_OK;
}

void bnet_cuda_user_work_free(bnet_user_work *w)
{
    user_device *u = user_of(w->device);
    bnet_cuda_user_enter(u);
    put_back(u, work_of(w));
    bnet_cuda_user_leave(u);
}
