/* cuda_work.c - work of programs: a launch or a copy in a stream between two events, by which it is
 * waited for, timed, and waited for by work of other streams. */
#include "cuda.h"

void bitnet_work_options_init(bitnet_work_options *o)
{
    if (o)
        *o = (bitnet_work_options){.struct_size = sizeof *o, .grid = {1, 1, 1}, .block = {1, 1, 1}};
}

static bitnet_status check(const bitnet_work_options *o, bitnet_error *err)
{
    static const char owner[] = "work options";
    bitnet_status st = check_int(owner, "stream", o->stream, 0, BITNET_CUDA_STREAMS - 1, err);
    if (st == BITNET_OK)
        st = check_int(owner, "copy", (int)o->copy, BITNET_COPY_NONE, BITNET_COPY_ON_DEVICE, err);
    if (st != BITNET_OK)
        return st;
    if (!o->copy != !!o->kernel)
        return fail(err, BITNET_ARGUMENT, "%s: set either kernel or copy", owner);
    if (o->copy && (!o->dst || !o->src || !o->n_bytes))
        return fail(err, BITNET_ARGUMENT, "%s: a copy needs dst, src and n_bytes", owner);
    for (int i = 0; o->kernel && i < 3; i++)
        if (!o->grid[i] || !o->block[i])
            return fail(err, BITNET_ARGUMENT, "%s: grid and block must not be 0", owner);
    return BITNET_OK;
}

/* ---- submitting; with the context current ---- */

/* One that was freed, or a new one; NULL with the CUresult in *r. */
static bitnet_work *take(bitnet_cuda *c, int *r)
{
    bitnet_work *w = c->spare;
    if (w) {
        c->spare = w->next;
        return w;
    }
    w = calloc(1, sizeof *w);
    *r = w ? c->cu.event_new(&w->begin, 0) : CU_OUT_OF_MEMORY;
    if (*r == 0)
        *r = c->cu.event_new(&w->end, 0);
    if (*r == 0) {
        w->cuda = c;
        return w;
    }
    if (w && w->begin)
        c->cu.event_free(w->begin);
    free(w);
    return NULL;
}

static void put_back(bitnet_work *w)
{
    w->next = w->cuda->spare;
    w->cuda->spare = w;
}

static int start(bitnet_cuda *c, const bitnet_work_options *o, cu_stream s)
{
    cu_ptr dst = (cu_ptr)(uintptr_t)o->dst, src = (cu_ptr)(uintptr_t)o->src;
    switch (o->copy) {
    case BITNET_COPY_TO_DEVICE:
        return c->cu.to_device(dst, o->src, o->n_bytes, s);
    case BITNET_COPY_TO_HOST:
        return c->cu.to_host(o->dst, src, o->n_bytes, s);
    case BITNET_COPY_ON_DEVICE:
        return c->cu.copy(dst, src, o->n_bytes, s);
    default:
        return c->cu.launch((cu_function)o->kernel, o->grid[0], o->grid[1], o->grid[2], o->block[0],
                            o->block[1], o->block[2], o->shared_bytes, s, o->params, NULL);
    }
}

static int submit(const bitnet_work *w, const bitnet_work_options *o)
{
    bitnet_cuda *c = w->cuda;
    int r = 0;
    cu_stream s = bnetx_stream(c, o->stream, &r);
    if (s && o->after)
        r = c->cu.stream_after(s, o->after->end, 0);
    if (r == 0)
        r = c->cu.event_record(w->begin, s);
    if (r == 0)
        r = start(c, o, s);
    return r == 0 ? c->cu.event_record(w->end, s) : r;
}

bitnet_status bitnet_work_submit(bitnet_cuda *c, const bitnet_work_options *options,
                                 bitnet_work **out, bitnet_error *err)
{
    if (!c || !options || !out)
        return missing("cuda, options and out", err);
    bitnet_work_options o;
    bitnet_work_options_init(&o);
    bitnet_status st = copy_options(&o, sizeof o, options, "work options", err);
    if (st == BITNET_OK)
        st = check(&o, err);
    if (st != BITNET_OK)
        return st;
    int r = bnetx_enter(c);
    bitnet_work *w = r == 0 ? take(c, &r) : NULL;
    if (w)
        r = submit(w, &o);
    if (w && r != 0)
        put_back(w);
    bnetx_leave(c);
    if (r != 0)
        return bnetx_fail(c, "submitting work", r, err);
    *out = w;
    return BITNET_OK;
}

/* ---- waiting ---- */

/* The lock is not held while the device is waited for: others may go on submitting. */
static int wait(const bitnet_work *w)
{
    const bitnet_cuda *c = w->cuda;
    cu_context ours;
    int r = c->cu.context_push(c->context);
    if (r != 0)
        return r;
    r = c->cu.event_wait(w->end);
    c->cu.context_pop(&ours);
    return r;
}

bool bitnet_work_done(const bitnet_work *w)
{
    if (!w)
        return false;
    int r = bnetx_enter(w->cuda);
    if (r == 0)
        r = w->cuda->cu.event_query(w->end);
    bnetx_leave(w->cuda);
    return r != CU_NOT_READY;
}

bitnet_status bitnet_work_wait(const bitnet_work *w, bitnet_error *err)
{
    if (!w)
        return missing("work", err);
    int r = wait(w);
    return r == 0 ? BITNET_OK : bnetx_fail(w->cuda, "waiting", r, err);
}

bitnet_status bitnet_work_times(const bitnet_work *w, double *begin_ms, double *end_ms,
                                bitnet_error *err)
{
    if (!w || !begin_ms || !end_ms)
        return missing("work, begin_ms and end_ms", err);
    bitnet_cuda *c = w->cuda;
    float begin = 0, end = 0;
    int waited = wait(w), r = bnetx_enter(c);
    r = waited ? waited : r;
    if (r == 0)
        r = c->cu.event_between(&begin, c->origin, w->begin);
    if (r == 0)
        r = c->cu.event_between(&end, c->origin, w->end);
    bnetx_leave(c);
    if (r != 0)
        return bnetx_fail(c, "reading times", r, err);
    *begin_ms = (double)begin;
    *end_ms = (double)end;
    return BITNET_OK;
}

void bitnet_work_free(bitnet_work *w)
{
    if (!w)
        return;
    bnetx_enter(w->cuda);
    put_back(w);
    bnetx_leave(w->cuda);
}
