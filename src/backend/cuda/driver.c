/* driver.c - libcuda behind driver.h: found at run time, so that one binary serves machines with
 * and without it. Everything runs in one stream of the device's primary context. */
#include "backend/cuda/cuda.h"

#include <stdio.h>

enum { /* CUdevice_attribute */
       MAX_THREADS_PER_BLOCK = 1,
       MAX_SHARED_PER_BLOCK = 8,
       MULTIPROCESSORS = 16,
       MAX_THREADS_PER_SM = 39,
       CC_MAJOR = 75,
       CC_MINOR = 76,
       MAX_SHARED_OPTIN = 97,
       POOLS_SUPPORTED = 115,
};
enum { NO_BINARY = 209 }; /* CUDA_ERROR_NO_BINARY_FOR_GPU */
enum { STREAM_NON_BLOCKING = 1, CAPTURE_THREAD_LOCAL = 1 };
enum { POOL_RELEASE_THRESHOLD = 4, POOL_PINNED = 1, POOL_ON_DEVICE = 1 };
enum {
    FUNC_MAX_THREADS = 0,
    FUNC_SHARED = 1,
    FUNC_LOCAL = 3,
    FUNC_REGISTERS = 4,
    FUNC_DYNAMIC = 8
};
enum { LAUNCH_COOPERATIVE = 2, LAUNCH_CLUSTER = 4, LAUNCH_PROGRAMMATIC = 6 };
enum { PLAIN_SHARED = 32 << 10 }; /* with static memory to 48 KiB; more must be asked for */

static cuda_driver *cuda(gpu_driver *d)
{
    return (cuda_driver *)d;
}

static cu_function function(gpu_kernel k)
{
    return (cu_function)(void *)k;
}

/* ---- errors ---- */

static bitnet_status status_of(int code)
{
    return code == 2 ? BITNET_MEMORY : BITNET_NOT_AVAILABLE;
}

static bitnet_status cuda_explain(const gpu_driver *d, const char *what, int code,
                                  bitnet_error *err)
{
    const char *name, *hint = bnet_cuda_error_hint(code, &name);
    return bnet_fail(err, status_of(code), "cuda: device %d%s%s%s: %s: %s (%d); %s",
                     d->gpu.device_id, d->gpu.name[0] ? " (" : "", d->gpu.name,
                     d->gpu.name[0] ? ")" : "", what, name, code, hint);
}

/* Errors after which the context is of no use: CUDA calls them sticky. */
static bool cuda_lost(int code)
{
    return (code >= 700 && code < 720 && code != 701) || code == 214 || code == 46 || code == 4 ||
           code == 999;
}

/* ---- memory ---- */

static int cuda_enter(gpu_driver *d)
{
    return cuda(d)->cu.context_set(cuda(d)->context);
}

static int cuda_alloc(gpu_driver *d, size_t n_bytes, gpu_ptr *out)
{
    cuda_driver *c = cuda(d);
    if (c->pool)
        return c->cu.pool_alloc(out, n_bytes, c->pool, c->stream);
    return c->pooled ? c->cu.alloc_async(out, n_bytes, c->stream) : c->cu.alloc(out, n_bytes);
}

static void cuda_release(gpu_driver *d, gpu_ptr p)
{
    cuda_driver *c = cuda(d);
    if (!p)
        return;
    if (c->pooled)
        c->cu.release_async(p, c->stream);
    else
        c->cu.release(p);
}

static void *cuda_host_alloc(gpu_driver *d, size_t n_bytes)
{
    void *p = NULL;
    return cuda(d)->cu.host_alloc(&p, n_bytes, 0) == 0 ? p : NULL;
}

static void cuda_host_release(gpu_driver *d, void *p)
{
    if (p)
        cuda(d)->cu.host_release(p);
}

static void cuda_memory(gpu_driver *d, uint64_t *free_bytes, uint64_t *total_bytes)
{
    size_t f = 0, t = 0;
    cuda(d)->cu.memory_info(&f, &t);
    *free_bytes = f;
    *total_bytes = t;
}

static int cuda_to_device(gpu_driver *d, gpu_ptr dst, const void *src, size_t n_bytes)
{
    return cuda(d)->cu.to_device(dst, src, n_bytes, cuda(d)->stream);
}

static int cuda_to_host(gpu_driver *d, void *dst, gpu_ptr src, size_t n_bytes)
{
    return cuda(d)->cu.to_host(dst, src, n_bytes, cuda(d)->stream);
}

static int cuda_copy(gpu_driver *d, gpu_ptr dst, gpu_ptr src, size_t n_bytes)
{
    return cuda(d)->cu.copy(dst, src, n_bytes, cuda(d)->stream);
}

static int cuda_fill(gpu_driver *d, gpu_ptr dst, int byte, size_t n_bytes)
{
    return cuda(d)->cu.fill(dst, (unsigned char)byte, n_bytes, cuda(d)->stream);
}

static int cuda_wait(gpu_driver *d)
{
    return cuda(d)->cu.stream_wait(cuda(d)->stream);
}

/* ---- kernels ---- */

static int cuda_find(gpu_driver *d, const char *kernel, gpu_kernel *out)
{
    cuda_driver *c = cuda(d);
    cu_function f = NULL;
    int r = 500; /* CUDA_ERROR_NOT_FOUND */
    for (size_t i = 0; r == 500 && i < c->n_modules; i++)
        r = c->cu.module_function(&f, c->modules[i], kernel);
    if (r == 0)
        *out = (gpu_kernel)(void *)f;
    return r;
}

static unsigned attributes_of(const gpu_dims *g, cu_attribute out[3])
{
    unsigned n = 0;
    if (g->flags & GPU_OVERLAP)
        out[n++] = (cu_attribute){.id = LAUNCH_PROGRAMMATIC, .value = {.on = 1}};
    if (g->flags & GPU_COOPERATIVE)
        out[n++] = (cu_attribute){.id = LAUNCH_COOPERATIVE, .value = {.on = 1}};
    if (g->cluster)
        out[n++] = (cu_attribute){.id = LAUNCH_CLUSTER, .value = {.cluster = {g->cluster, 1, 1}}};
    return n;
}

static int cuda_launch(gpu_driver *d, gpu_kernel k, const gpu_dims *g, void *args)
{
    cuda_driver *c = cuda(d);
    void *params[] = {args};
    cu_attribute attributes[3];
    unsigned n = c->cu.launch_ex ? attributes_of(g, attributes) : 0;
    if (g->shared_bytes > PLAIN_SHARED) {
        int r = c->cu.function_set(function(k), FUNC_DYNAMIC, (int)g->shared_bytes);
        if (r != 0)
            return r;
    }
    if (n == 0)
        return c->cu.launch(function(k), g->grid[0], g->grid[1], g->grid[2], g->block[0],
                            g->block[1], g->block[2], g->shared_bytes, c->stream, params, NULL);
    cu_launch_config config = {{g->grid[0], g->grid[1], g->grid[2]},
                               {g->block[0], g->block[1], g->block[2]},
                               g->shared_bytes,
                               c->stream,
                               attributes,
                               n};
    return c->cu.launch_ex(&config, function(k), params, NULL);
}

/* Groups of multiprocessors are not all of one size: whole clusters may leave some of them empty.
 */
static void count_clusters(const cu_entries *cu, cu_function f, const gpu_dims *g, int *n)
{
    cu_attribute cluster = {.id = LAUNCH_CLUSTER, .value = {.cluster = {g->cluster, 1, 1}}};
    cu_launch_config config = {{g->cluster, 1, 1}, {g->block[0], g->block[1], g->block[2]},
                               g->shared_bytes,    NULL,
                               &cluster,           1};
    if (!g->cluster || !cu->max_clusters || cu->max_clusters(n, f, &config) != 0)
        *n = 0;
}

static int cuda_occupancy(gpu_driver *d, gpu_kernel k, const gpu_dims *g, gpu_occupancy *out)
{
    const cu_entries *cu = &cuda(d)->cu;
    cu_function f = function(k);
    int threads = (int)(g->block[0] * g->block[1] * g->block[2]);
    *out = (gpu_occupancy){0};
    if (!cu->max_blocks)
        return 801; /* CUDA_ERROR_NOT_SUPPORTED */
    if (g->shared_bytes > PLAIN_SHARED)
        cu->function_set(f, FUNC_DYNAMIC, (int)g->shared_bytes);
    count_clusters(cu, f, g, &out->clusters);
    int r = cu->max_blocks(&out->blocks_per_sm, f, threads, g->shared_bytes);
    if (r == 0)
        r = cu->function_get(&out->registers, FUNC_REGISTERS, f);
    if (r == 0)
        r = cu->function_get(&out->local_bytes, FUNC_LOCAL, f);
    if (r == 0)
        r = cu->function_get(&out->shared_bytes, FUNC_SHARED, f);
    if (r == 0)
        r = cu->function_get(&out->max_threads, FUNC_MAX_THREADS, f);
    if (r == 0)
        r = cu->device_attribute(&out->threads_per_sm, MAX_THREADS_PER_SM, cuda(d)->device);
    return r;
}

/* ---- graphs and times ---- */

static int cuda_record_begin(gpu_driver *d)
{
    return cuda(d)->cu.capture_begin(cuda(d)->stream, CAPTURE_THREAD_LOCAL);
}

static int cuda_record_end(gpu_driver *d, gpu_graph *out)
{
    cuda_driver *c = cuda(d);
    cu_graph graph = NULL;
    cu_graph_exec exec = NULL;
    int r = c->cu.capture_end(c->stream, &graph);
    if (r == 0)
        r = c->cu.graph_instantiate(&exec, graph, 0);
    if (graph)
        c->cu.graph_free(graph);
    if (r == 0)
        *out = (gpu_graph)(void *)exec;
    return r;
}

static int cuda_replay(gpu_driver *d, gpu_graph g)
{
    return cuda(d)->cu.graph_launch((cu_graph_exec)(void *)g, cuda(d)->stream);
}

static void cuda_graph_release(gpu_driver *d, gpu_graph g)
{
    if (g)
        cuda(d)->cu.graph_exec_free((cu_graph_exec)(void *)g);
}

static int cuda_stamp(gpu_driver *d, int slot)
{
    cuda_driver *c = cuda(d);
    int r = c->events[slot] ? 0 : c->cu.event_new(&c->events[slot], 0);
    if (r != 0)
        return r;
    return cuda(d)->cu.event_record(cuda(d)->events[slot], cuda(d)->stream);
}

static int cuda_between(gpu_driver *d, int first, int second, double *ms)
{
    cuda_driver *c = cuda(d);
    float f = 0;
    int r = c->cu.event_wait(c->events[second]);
    if (r == 0)
        r = c->cu.event_between(&f, c->events[first], c->events[second]);
    *ms = (double)f;
    return r;
}

/* ---- opening and closing ---- */

/* The last of a process that gives the primary context back destroys it: that resets a lost device,
 * and never below others that still hold handles of it. */
static void cuda_close(gpu_driver *d)
{
    cuda_driver *c = cuda(d);
    if (c->context) {
        c->cu.context_set(c->context);
        for (int i = 0; i < CU_EVENTS; i++)
            if (c->events[i])
                c->cu.event_free(c->events[i]);
        if (c->mark)
            c->cu.event_free(c->mark);
        bnet_cuda_beside_close(d);
        if (c->stream) {
            c->cu.stream_wait(c->stream);
            c->cu.stream_free(c->stream);
        }
        if (c->pool)
            c->cu.pool_free(c->pool);
        for (size_t i = 0; i < c->n_modules; i++)
            c->cu.module_free(c->modules[i]);
        c->cu.context_set(NULL);
        c->cu.context_release(c->device);
    }
    if (c->nvtx.handle)
        bnet_library_close(&c->nvtx);
    if (c->library)
        c->loader->close(c->loader->user, c->library);
    bnet_free(c);
}

static const gpu_calls calls = {.name = "cuda",
                                .close = cuda_close,
                                .enter = cuda_enter,
                                .alloc = cuda_alloc,
                                .release = cuda_release,
                                .host_alloc = cuda_host_alloc,
                                .host_release = cuda_host_release,
                                .memory = cuda_memory,
                                .to_device = cuda_to_device,
                                .to_host = cuda_to_host,
                                .copy = cuda_copy,
                                .fill = cuda_fill,
                                .wait = cuda_wait,
                                .find = cuda_find,
                                .launch = cuda_launch,
                                .explain = cuda_explain,
                                .lost = cuda_lost,
                                .record_begin = cuda_record_begin,
                                .record_end = cuda_record_end,
                                .replay = cuda_replay,
                                .graph_release = cuda_graph_release,
                                .stamp = cuda_stamp,
                                .between = cuda_between,
                                .fill_rows = bnet_cuda_fill_rows,
                                .beside = bnet_cuda_beside,
                                .lead = bnet_cuda_lead,
                                .occupancy = cuda_occupancy,
                                .after = bnet_cuda_after,
                                .reach = bnet_cuda_reach,
                                .fetch = bnet_cuda_fetch,
                                .copy_rows = bnet_cuda_copy_rows};

static bitnet_status find_library(cuda_driver *c, bitnet_error *err)
{
    static const char *const names[] = {"libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"};
    for (size_t i = 0; i < BNET_COUNT(names) && !c->library; i++)
        c->library = c->loader->open(c->loader->user, names[i]);
    if (!c->library)
        return bnet_fail(err, BITNET_NOT_AVAILABLE,
                         "cuda: the library %s is not installed; install the NVIDIA driver and "
                         "check it with nvidia-smi; start a container with --gpus all",
                         names[0]);
    bnet_fn f;
#define OPTIONAL(field, symbol, parameters)                                                        \
    f = c->loader->sym(c->loader->user, c->library, symbol);                                       \
    memcpy(&c->cu.field, &f, sizeof f);
#define ENTRY(field, symbol, parameters)                                                           \
    OPTIONAL(field, symbol, parameters)                                                            \
    if (!f)                                                                                        \
        return bnet_fail(err, BITNET_NOT_AVAILABLE,                                                \
                         "cuda: libcuda.so.1 has no function %s: update the NVIDIA driver",        \
                         symbol);
#include "backend/cuda/entries.inc"
#undef ENTRY
#undef OPTIONAL
    return BITNET_OK;
}

static int attribute(const cuda_driver *c, int which)
{
    int v = 0;
    return c->cu.device_attribute(&v, which, c->device) == 0 && v > 0 ? v : 0;
}

static void describe(cuda_driver *c)
{
    bnet_gpu *g = &c->base.gpu;
    char name[256] = "";
    size_t n_bytes = 0;
    if (c->cu.device_name(name, (int)sizeof name - 1, c->device) == 0)
        bnet_copy_name(g->name, sizeof g->name, name, sizeof name);
    if (c->cu.device_memory(&n_bytes, c->device) == 0)
        g->total_memory = n_bytes;
    g->cc_major = attribute(c, CC_MAJOR);
    g->cc_minor = attribute(c, CC_MINOR);
    g->multiprocessors = attribute(c, MULTIPROCESSORS);
    g->max_threads_per_block = attribute(c, MAX_THREADS_PER_BLOCK);
    g->max_shared_memory_per_block = (uint64_t)attribute(c, MAX_SHARED_PER_BLOCK);
    g->max_shared_memory_optin = (uint64_t)attribute(c, MAX_SHARED_OPTIN);
    bnet_gpu_caps caps = bnet_gpu_capabilities(g->cc_major, g->cc_minor);
    g->fp16 = caps.fp16;
    g->bf16 = caps.bf16;
    c->pooled = c->cu.alloc_async && c->cu.release_async && attribute(c, POOLS_SUPPORTED);
}

/* A pool of our own, in which memory that was given back stays until we are closed: asking anew is
 * quick, and other users of the device's pool are not concerned. Without it the device's. */
static void own_pool(cuda_driver *c)
{
    const cu_pool_props props = {.type = POOL_PINNED, .location = {POOL_ON_DEVICE, c->device}};
    uint64_t keep = UINT64_MAX;
    if (!c->pooled || !c->cu.pool_new || !c->cu.pool_free || !c->cu.pool_alloc ||
        c->cu.pool_new(&c->pool, &props) != 0)
        c->pool = NULL;
    if (c->pool && c->cu.pool_set)
        c->cu.pool_set(c->pool, POOL_RELEASE_THRESHOLD, &keep);
}

/* Images without code for this chip (Hopper's own instructions on others) are left out; at least
 * one must fit. */
static int load_images(cuda_driver *c)
{
    const void *image;
    size_t n_bytes;
    for (size_t i = 0; (image = bnet_cuda_image(i, &n_bytes)) && c->n_modules < CU_MODULES; i++) {
        int r = c->cu.module_load(&c->modules[c->n_modules], image);
        if (r == 0)
            c->n_modules++;
        else if (r != NO_BINARY)
            return r;
    }
    c->base.code_major = c->base.gpu.cc_major;
    c->base.code_minor = c->base.gpu.cc_minor;
    bnet_cuda_code(bnet_cuda_archs(), &c->base.code_major, &c->base.code_minor);
    return c->n_modules ? 0 : NO_BINARY;
}

static bitnet_status not_compiled(const bnet_gpu *g, bitnet_error *err)
{
    return bnet_fail(err, BITNET_NOT_COMPILED,
                     "cuda: device %d (%s): this build is not compiled for sm_%d%d, it has kernels "
                     "for %s; build it with CUDA_ARCH=sm_%d%d and a CUDA toolkit that knows the "
                     "chip, or use --device cpu",
                     g->device_id, g->name, g->cc_major, g->cc_minor, bnet_cuda_archs(),
                     g->cc_major, g->cc_minor);
}

/* Steps in order; the name of the one that failed. */
static int start(cuda_driver *c, int index, const char **what)
{
    int n = 0, r;
#define STEP(call, name)                                                                           \
    *what = name;                                                                                  \
    if ((r = (call)) != 0)                                                                         \
        return r;
    STEP(c->cu.init(0), "cuInit")
    STEP(c->cu.version(&c->version), "cuDriverGetVersion")
    STEP(c->version / 1000 >= BITNET_CUDA_MAJOR ? 0 : 35, "cuDriverGetVersion")
    STEP(c->cu.device_count(&n), "cuDeviceGetCount")
    STEP(n > 0 ? 0 : 100, "cuDeviceGetCount")
    STEP(c->cu.device_get(&c->device, index), "cuDeviceGet")
    describe(c);
    STEP(c->cu.context_retain(&c->context, c->device), "cuDevicePrimaryCtxRetain")
    STEP(c->cu.context_set(c->context), "cuCtxSetCurrent")
    STEP(load_images(c), "cuModuleLoadData")
    STEP(c->cu.stream_new(&c->stream, STREAM_NON_BLOCKING), "cuStreamCreate")
#undef STEP
    return 0;
}

bitnet_status bnet_cuda_driver_open(const bnet_loader *loader, int index, gpu_driver **out,
                                    bitnet_error *err)
{
    cuda_driver *c = bnet_calloc(1, sizeof *c);
    if (!c)
        return bnet_no_memory(err, "cuda driver");
    c->base.c = &calls;
    c->base.gpu.device_id = index;
    c->loader = loader;
    double begun = bnet_now_ms();
    const char *what = "";
    bitnet_status st = find_library(c, err);
    int r = st == BITNET_OK ? start(c, index, &what) : 0;
    if (r != 0)
        st =
            r == NO_BINARY ? not_compiled(&c->base.gpu, err) : cuda_explain(&c->base, what, r, err);
    if (st != BITNET_OK) {
        cuda_close(&c->base);
        return st;
    }
    own_pool(c);
    snprintf(c->base.version, sizeof c->base.version, "CUDA %d.%d", c->version / 1000,
             c->version % 1000 / 10);
    c->base.open_ms = bnet_now_ms() - begun;
    *out = &c->base;
    return BITNET_OK;
}
