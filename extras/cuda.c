/* cuda.c - a CUDA device for programs that bring kernels of their own: libcuda found at run time,
 * the primary context, streams and modules. */
#include <dlfcn.h>

#include "cuda.h"

enum { STREAM_NON_BLOCKING = 1, EVENT_NO_TIME = 2 };

int bnetx_enter(bitnet_cuda *c)
{
    pthread_mutex_lock(&c->lock);
    int r = c->cu.context_push(c->context);
    c->inside = r == 0;
    return r;
}

void bnetx_leave(bitnet_cuda *c)
{
    cu_context ours;
    if (c->inside)
        c->cu.context_pop(&ours);
    pthread_mutex_unlock(&c->lock);
}

bitnet_status bnetx_fail(const bitnet_cuda *c, const char *what, int code, bitnet_error *err)
{
    const char *name = NULL, *text = NULL;
    if (c->cu.error_name(code, &name) != 0 || !name)
        name = "an unknown CUDA error";
    if (c->cu.error_text(code, &text) != 0 || !text)
        text = "update the NVIDIA driver and check nvidia-smi";
    return fail(err, code == CU_OUT_OF_MEMORY ? BITNET_MEMORY : BITNET_NOT_AVAILABLE,
                "cuda: device %d%s%s%s: %s: %s (%d); %s", c->index, c->name[0] ? " (" : "", c->name,
                c->name[0] ? ")" : "", what, name, code, text);
}

/* ---- opening ---- */

static bitnet_status find_library(bitnet_cuda *c, bitnet_error *err)
{
    static const char *const names[] = {"libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"};
    static const struct {
        const char *symbol;
        size_t at;
        bool needed;
    } entries[] = {
#define ENTRY(field, symbol, parameters)    {symbol, offsetof(cu_entries, field), true},
#define OPTIONAL(field, symbol, parameters) {symbol, offsetof(cu_entries, field), false},
#include "cuda_entries.inc"
#undef ENTRY
#undef OPTIONAL
    };
    for (size_t i = 0; i < 2 && !c->library; i++) /* drivers must stay mapped */
        c->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!c->library)
        return fail(err, BITNET_NOT_AVAILABLE,
                    "cuda: the library %s is not installed; install the NVIDIA driver and check it "
                    "with nvidia-smi; start a container with --gpus all",
                    names[0]);
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        void *f = dlsym(c->library, entries[i].symbol);
        if (!f && entries[i].needed)
            return fail(err, BITNET_NOT_AVAILABLE,
                        "cuda: libcuda.so.1 has no function %s: update the NVIDIA driver",
                        entries[i].symbol);
        memcpy((char *)&c->cu + entries[i].at, &f, sizeof f);
    }
    return BITNET_OK;
}

/* Up to the context; *what names the call that failed. */
static int find_device(bitnet_cuda *c, const char **what)
{
    *what = "cuInit";
    int r = c->cu.init(0);
    if (r == 0) {
        *what = "cuDeviceGet; check nvidia-smi and CUDA_VISIBLE_DEVICES";
        r = c->cu.device_get(&c->device, c->index);
    }
    if (r == 0) {
        c->cu.device_name(c->name, (int)sizeof c->name - 1, c->device);
        *what = "cuDevicePrimaryCtxRetain";
        r = c->cu.context_retain(&c->context, c->device);
    }
    return r;
}

static int equip(bitnet_cuda *c)
{
    int r = bnetx_enter(c);
    if (r == 0)
        bnetx_stream(c, 0, &r);
    if (r == 0)
        r = c->cu.event_new(&c->fork, EVENT_NO_TIME);
    if (r == 0)
        r = c->cu.event_new(&c->join, EVENT_NO_TIME);
    if (r == 0)
        r = c->cu.event_new(&c->origin, 0);
    if (r == 0)
        r = c->cu.event_record(c->origin, c->streams[0]);
    if (r == 0)
        bnetx_pool_open(c);
    bnetx_leave(c);
    return r;
}

bitnet_status bitnet_cuda_open(int index, bitnet_cuda **out, bitnet_error *err)
{
    if (!out)
        return missing("out", err);
    if (index < 0)
        return fail(err, BITNET_ARGUMENT, "cuda: device %d: numbers begin at 0", index);
    bitnet_cuda *c = calloc(1, sizeof *c);
    if (!c)
        return fail(err, BITNET_MEMORY, "out of memory: cuda device");
    c->index = index;
    pthread_mutex_init(&c->lock, NULL);
    const char *what = "";
    bitnet_status st = find_library(c, err);
    int r = st == BITNET_OK ? find_device(c, &what) : 0;
    if (st == BITNET_OK && r == 0) {
        what = "making streams and events";
        r = equip(c);
    }
    if (r != 0)
        st = bnetx_fail(c, what, r, err);
    if (st != BITNET_OK) {
        bitnet_cuda_close(c);
        return st;
    }
    *out = c;
    return BITNET_OK;
}

static void free_event(const bitnet_cuda *c, cu_event e)
{
    if (e)
        c->cu.event_free(e);
}

/* With the context current. */
static void free_all(bitnet_cuda *c)
{
    for (int i = 0; i < BITNET_CUDA_STREAMS; i++)
        if (c->streams[i])
            c->cu.stream_wait(c->streams[i]);
    for (bitnet_cuda_module *m = c->modules, *next; m; m = next) {
        next = m->next;
        c->cu.module_free(m->module);
        free(m);
    }
    for (bitnet_work *w = c->spare, *next; w; w = next) {
        next = w->next;
        free_event(c, w->begin);
        free_event(c, w->end);
        free(w);
    }
    free_event(c, c->fork);
    free_event(c, c->join);
    free_event(c, c->origin);
    if (c->pool)
        c->cu.pool_free(c->pool);
    for (int i = 0; i < BITNET_CUDA_STREAMS; i++)
        if (c->streams[i])
            c->cu.stream_free(c->streams[i]);
}

void bitnet_cuda_close(bitnet_cuda *c)
{
    if (!c)
        return;
    if (c->context) {
        bnetx_enter(c);
        free_all(c);
        bnetx_leave(c);
        c->cu.context_release(c->device);
    }
    if (c->library)
        dlclose(c->library);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

/* ---- handles ---- */

void *bitnet_cuda_context(const bitnet_cuda *c)
{
    return c ? c->context : NULL;
}

cu_stream bnetx_stream(bitnet_cuda *c, int stream, int *r)
{
    cu_stream *s = &c->streams[stream];
    *r = *s ? 0 : c->cu.stream_new(s, STREAM_NON_BLOCKING);
    return *r == 0 ? *s : NULL;
}

void *bitnet_cuda_stream(bitnet_cuda *c, int stream)
{
    if (!c || stream < 0 || stream >= BITNET_CUDA_STREAMS)
        return NULL;
    int r = bnetx_enter(c);
    void *s = r == 0 ? bnetx_stream(c, stream, &r) : NULL;
    bnetx_leave(c);
    return s;
}

/* ---- modules; all but the public functions inside ---- */

static int load(bitnet_cuda *c, const void *image, bool built_in, bitnet_cuda_module **out)
{
    bitnet_cuda_module *m = calloc(1, sizeof *m);
    int r = m ? c->cu.module_load(&m->module, image) : CU_OUT_OF_MEMORY;
    if (r != 0) {
        free(m);
        return r;
    }
    m->cuda = c;
    m->built_in = built_in;
    m->next = c->modules;
    c->modules = m;
    *out = m;
    return 0;
}

bitnet_status bitnet_cuda_module_load(bitnet_cuda *c, const void *image, bitnet_cuda_module **out,
                                      bitnet_error *err)
{
    if (!c || !image || !out)
        return missing("cuda, image and out", err);
    int r = bnetx_enter(c);
    if (r == 0)
        r = load(c, image, false, out);
    bnetx_leave(c);
    return r == 0 ? BITNET_OK : bnetx_fail(c, "loading a module", r, err);
}

void bitnet_cuda_module_free(bitnet_cuda_module *m)
{
    if (!m)
        return;
    bitnet_cuda *c = m->cuda;
    bnetx_enter(c);
    bitnet_cuda_module **at = &c->modules;
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    c->cu.module_free(m->module);
    bnetx_leave(c);
    free(m);
}

void *bitnet_cuda_module_handle(const bitnet_cuda_module *m)
{
    return m ? m->module : NULL;
}

/* Those of libbitnet, but for images without code for this chip. After a failure it goes on where
 * it stood. */
static int load_images(bitnet_cuda *c)
{
    const void *image;
    bitnet_cuda_module *m;
    for (; (image = bitnet_cuda_image(c->n_images)); c->n_images++) {
        int r = load(c, image, true, &m);
        if (r != 0 && r != CU_NO_BINARY)
            return r;
    }
    return 0;
}

static int find_built_in(bitnet_cuda *c, const char *name, cu_function *f)
{
    int r = load_images(c), found = CU_NOT_FOUND;
    for (bitnet_cuda_module *m = c->modules; r == 0 && found == CU_NOT_FOUND && m; m = m->next)
        if (m->built_in)
            found = c->cu.module_function(f, m->module, name);
    return r ? r : found;
}

bitnet_status bitnet_cuda_kernel(bitnet_cuda *c, const bitnet_cuda_module *m, const char *name,
                                 void **out, bitnet_error *err)
{
    if (!c || !name || !out)
        return missing("cuda, name and out", err);
    cu_function f = NULL;
    int r = bnetx_enter(c);
    if (r == 0)
        r = m ? c->cu.module_function(&f, m->module, name) : find_built_in(c, name, &f);
    bnetx_leave(c);
    if (r == CU_NOT_FOUND)
        return fail(err, BITNET_NOT_AVAILABLE, "cuda: %s has no kernel \"%s\"",
                    m ? "the module" : "this build", name);
    if (r != 0)
        return bnetx_fail(c, "looking for a kernel", r, err);
    *out = f;
    return BITNET_OK;
}
