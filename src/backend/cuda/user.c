/* user.c - a CUDA device for programs that bring kernels of their own: the primary context, which
 * engines use too, streams, modules, and memory in stream order.
 *
 * Memory belongs to stream 0. A buffer that is handed out exists for the other streams at once, and
 * one that is given back is gone after what all of them were asked to do so far: events make that
 * order on the device, the host waits for nothing. */
#include "backend/cuda/user.h"

enum { STREAM_NON_BLOCKING = 1, EVENT_NO_TIME = 2 };

int bnet_cuda_user_enter(user_device *u)
{
    pthread_mutex_lock(&u->lock);
    int r = u->d->cu.context_push(u->d->context);
    u->inside = r == 0;
    return r;
}

void bnet_cuda_user_leave(user_device *u)
{
    cu_context ours;
    if (u->inside)
        u->d->cu.context_pop(&ours);
    pthread_mutex_unlock(&u->lock);
}

bitnet_status bnet_cuda_user_fail(const user_device *u, const char *what, int code,
                                  bitnet_error *err)
{
    return bnet_cuda_explain(&u->d->base, what, code, err);
}

/* ---- streams ---- */

cu_stream bnet_cuda_user_stream(user_device *u, int stream, int *r)
{
    cu_stream *s = &u->streams[stream];
    *r = *s ? 0 : u->d->cu.stream_new(s, STREAM_NON_BLOCKING);
    return *r == 0 ? *s : NULL;
}

static void *stream(bnet_user_device *d, int i)
{
    user_device *u = user_of(d);
    int r = bnet_cuda_user_enter(u);
    void *s = r == 0 ? bnet_cuda_user_stream(u, i, &r) : NULL;
    bnet_cuda_user_leave(u);
    return s;
}

static void *context(const bnet_user_device *d)
{
    return user_of(d)->d->context;
}

/* ---- modules ---- */

static bitnet_status module_load(bnet_user_device *d, const void *image, bnet_user_module **out,
                                 bitnet_error *err)
{
    user_device *u = user_of(d);
    user_module *m = bnet_calloc(1, sizeof *m);
    if (!m)
        return bnet_no_memory(err, "cuda module");
    m->base.device = d;
    int r = bnet_cuda_user_enter(u);
    if (r == 0)
        r = u->d->cu.module_load(&m->module, image);
    if (r == 0) {
        m->next = u->modules;
        u->modules = m;
    }
    bnet_cuda_user_leave(u);
    if (r != 0) {
        bnet_free(m);
        return bnet_cuda_user_fail(u, "loading a module", r, err);
    }
    *out = &m->base;
    return BITNET_OK;
}

static void module_free(bnet_user_module *base)
{
    user_module *m = (user_module *)(void *)base;
    user_device *u = user_of(base->device);
    bnet_cuda_user_enter(u);
    for (user_module **at = &u->modules; *at; at = &(*at)->next)
        if (*at == m) {
            *at = m->next;
            break;
        }
    u->d->cu.module_free(m->module);
    bnet_cuda_user_leave(u);
    bnet_free(m);
}

static void *module_handle(const bnet_user_module *m)
{
    return ((const user_module *)(const void *)m)->module;
}

static bitnet_status kernel(bnet_user_device *d, const bnet_user_module *m, const char *name,
                            void **out, bitnet_error *err)
{
    user_device *u = user_of(d);
    cu_function f = NULL;
    gpu_kernel found = NULL;
    int r = bnet_cuda_user_enter(u);
    if (r == 0 && m)
        r = u->d->cu.module_function(&f, module_handle(m), name);
    else if (r == 0)
        r = u->d->code[u->d->base.c->find(&u->d->base, name, &found)];
    bnet_cuda_user_leave(u);
    if (r == 500) /* CUDA_ERROR_NOT_FOUND */
        return bnet_fail(err, BITNET_NOT_AVAILABLE, "cuda: %s has no kernel \"%s\"",
                         m ? "the module" : "this build", name);
    if (r != 0)
        return bnet_cuda_user_fail(u, "looking for a kernel", r, err);
    *out = m ? (void *)f : (void *)found;
    return BITNET_OK;
}

/* ---- memory ---- */

/* Stream 0 waits for the others, or they for it. */
static int order(user_device *u, bool others_wait)
{
    const cu_entries *cu = &u->d->cu;
    int r = others_wait ? cu->event_record(u->fork, u->streams[0]) : 0;
    for (int i = 1; r == 0 && u->d->pooled && i < BNET_USER_STREAMS; i++) {
        if (!u->streams[i])
            continue;
        if (!others_wait)
            r = cu->event_record(u->join, u->streams[i]);
        if (r == 0)
            r = others_wait ? cu->stream_after(u->streams[i], u->fork, 0)
                            : cu->stream_after(u->streams[0], u->join, 0);
    }
    return r;
}

static void *take(void *d, size_t n_bytes)
{
    user_device *u = user_of(d);
    const gpu_calls *c = u->d->base.c;
    gpu_memory m = NULL;
    int r = bnet_cuda_user_enter(u);
    for (int i = 1; r == 0 && i < BNET_USER_STREAMS; i++) /* later ones would not have waited */
        bnet_cuda_user_stream(u, i, &r);
    if (r == 0)
        r = u->d->code[c->alloc(&u->d->base, n_bytes, &m)];
    if (r == 0 && order(u, true) != 0) {
        c->release(&u->d->base, m);
        m = NULL;
    }
    bnet_cuda_user_leave(u);
    return m;
}

static void give(void *d, void *p, size_t n_bytes)
{
    user_device *u = user_of(d);
    (void)n_bytes;
    if (bnet_cuda_user_enter(u) == 0)
        order(u, false);
    u->d->base.c->release(&u->d->base, p);
    bnet_cuda_user_leave(u);
}

static void *host_take(bnet_user_device *d, size_t n_bytes)
{
    user_device *u = user_of(d);
    void *p = NULL;
    if (bnet_cuda_user_enter(u) == 0)
        p = u->d->base.c->host_alloc(&u->d->base, n_bytes);
    bnet_cuda_user_leave(u);
    return p;
}

static void host_give(bnet_user_device *d, void *p)
{
    user_device *u = user_of(d);
    bnet_cuda_user_enter(u);
    u->d->base.c->host_release(&u->d->base, p);
    bnet_cuda_user_leave(u);
}

/* ---- opening ---- */

static void free_event(const user_device *u, cu_event e)
{
    if (e)
        u->d->cu.event_free(e);
}

static void user_close(bnet_user_device *d)
{
    user_device *u = user_of(d);
    const cu_entries *cu = &u->d->cu;
    bool inside = cu->context_push(u->d->context) == 0;
    cu_context ours;
    for (int i = 0; i < BNET_USER_STREAMS; i++)
        if (u->streams[i])
            cu->stream_wait(u->streams[i]);
    for (int i = 1; i < BNET_USER_STREAMS; i++)
        if (u->streams[i])
            cu->stream_free(u->streams[i]);
    while (u->modules)
        module_free(&u->modules->base);
    for (user_work *w = u->spare, *next; w; w = next) {
        next = w->next;
        free_event(u, w->begin);
        free_event(u, w->end);
        bnet_free(w);
    }
    free_event(u, u->fork);
    free_event(u, u->join);
    free_event(u, u->origin);
    if (inside)
        cu->context_pop(&ours);
    u->d->base.c->close(&u->d->base);
    pthread_mutex_destroy(&u->lock);
    bnet_free(u);
}

static const bnet_user_calls calls = {.close = user_close,
                                      .context = context,
                                      .stream = stream,
                                      .module_load = module_load,
                                      .module_free = module_free,
                                      .module_handle = module_handle,
                                      .kernel = kernel,
                                      .take = take,
                                      .give = give,
                                      .host_take = host_take,
                                      .host_give = host_give,
                                      .submit = bnet_cuda_user_submit,
                                      .done = bnet_cuda_user_done,
                                      .wait = bnet_cuda_user_wait,
                                      .times = bnet_cuda_user_times,
                                      .work_free = bnet_cuda_user_work_free};

static int make_events(user_device *u)
{
    const cu_entries *cu = &u->d->cu;
    int r = cu->event_new(&u->fork, EVENT_NO_TIME);
    if (r == 0)
        r = cu->event_new(&u->join, EVENT_NO_TIME);
    if (r == 0)
        r = cu->event_new(&u->origin, 0);
    return r == 0 ? cu->event_record(u->origin, u->streams[0]) : r;
}

bitnet_status bnet_cuda_user_open(int index, bnet_user_device **out, bitnet_error *err)
{
    gpu_driver *d = NULL;
    user_device *u = bnet_calloc(1, sizeof *u);
    if (!u)
        return bnet_no_memory(err, "cuda device");
    bitnet_status st = bnet_cuda_driver_open(&bnet_dl, index, &d, err);
    if (st != BITNET_OK) {
        bnet_free(u);
        return st;
    }
    u->base.c = &calls;
    u->d = (cuda_driver *)d;
    u->streams[0] = u->d->stream;
    pthread_mutex_init(&u->lock, NULL);
    int r = bnet_cuda_user_enter(u);
    if (r == 0)
        r = make_events(u);
    bnet_cuda_user_leave(u);
    if (r != 0) {
        st = bnet_cuda_user_fail(u, "cuEventCreate", r, err);
        user_close(&u->base);
        return st;
    }
    *out = &u->base;
    return BITNET_OK;
}
