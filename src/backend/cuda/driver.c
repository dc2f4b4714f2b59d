/* driver.c - libcuda behind driver.h: errors, memory, launches, graphs, times, closing. Everything
 * runs in one stream of the device's primary context, which is current between enter and leave
 * alone: the calling thread's own context comes back. */
#include "backend/cuda/cuda.h"

enum { MAX_THREADS_PER_SM = 39 }; /* CUdevice_attribute */
enum {                            /* CUresult */
       OUT_OF_MEMORY = 2,
       NOT_FOUND = 500,
       NOT_SUPPORTED = 801,
       UNKNOWN = 999
};
enum { ARGS_MAX = 256 }; /* bytes of a struct of arguments that is put together here */
enum { CAPTURE_THREAD_LOCAL = 1 };
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

/* Errors after which the context is of no use: CUDA calls them sticky. */
static bool is_sticky(int code)
{
    return (code >= 700 && code < 720 && code != 701) || code == 214 || code == 46 || code == 4 ||
           code == UNKNOWN;
}

gpu_result bnet_cuda_result(gpu_driver *d, int code)
{
    gpu_result r = code == 0               ? GPU_OK
                   : is_sticky(code)       ? GPU_LOST
                   : code == OUT_OF_MEMORY ? GPU_NO_MEMORY
                   : code == NOT_FOUND     ? GPU_NO_KERNEL
                   : code == NOT_SUPPORTED ? GPU_UNSUPPORTED
                                           : GPU_FAILED;
    cuda(d)->code[r] = code;
    return r;
}

bitnet_status bnet_cuda_explain(const gpu_driver *d, const char *what, int code, bitnet_error *err)
{
    const char *name, *hint = bnet_cuda_error_hint(code, &name);
    return bnet_fail(err, code == OUT_OF_MEMORY ? BITNET_MEMORY : BITNET_NOT_AVAILABLE,
                     "cuda: device %d%s%s%s: %s: %s (%d); %s", d->gpu.device_id,
                     d->gpu.name[0] ? " (" : "", d->gpu.name, d->gpu.name[0] ? ")" : "", what, name,
                     code, hint);
}

/* What the host says failed without asking libcuda has the number libcuda would have given. */
static bitnet_status cuda_explain(const gpu_driver *d, const char *what, gpu_result r,
                                  bitnet_error *err)
{
    static const int usual[GPU_RESULTS] = {[GPU_NO_MEMORY] = OUT_OF_MEMORY,
                                           [GPU_NO_KERNEL] = NOT_FOUND,
                                           [GPU_UNSUPPORTED] = NOT_SUPPORTED,
                                           [GPU_FAILED] = UNKNOWN,
                                           [GPU_LOST] = UNKNOWN};
    int code = ((const cuda_driver *)(const void *)d)->code[r];
    return bnet_cuda_explain(d, what, code ? code : usual[r], err);
}

/* ---- memory ---- */

static gpu_result cuda_enter(gpu_driver *d)
{
    return bnet_cuda_result(d, cuda(d)->cu.context_push(cuda(d)->context));
}

static void cuda_leave(gpu_driver *d)
{
    cu_context ours;
    cuda(d)->cu.context_pop(&ours);
}

static int alloc(cuda_driver *c, size_t n_bytes, cu_ptr *out)
{
    if (c->pool)
        return c->cu.pool_alloc(out, n_bytes, c->pool, c->stream);
    return c->pooled ? c->cu.alloc_async(out, n_bytes, c->stream) : c->cu.alloc(out, n_bytes);
}

static gpu_result cuda_alloc(gpu_driver *d, size_t n_bytes, gpu_memory *out)
{
    cu_ptr p = 0;
    int r = alloc(cuda(d), n_bytes, &p);
    if (r == 0)
        *out = (gpu_memory)(uintptr_t)p;
    return bnet_cuda_result(d, r);
}

static uint64_t cuda_address(gpu_driver *d, gpu_memory m)
{
    (void)d;
    return (uint64_t)(uintptr_t)m;
}

static void cuda_release(gpu_driver *d, gpu_memory m)
{
    cuda_driver *c = cuda(d);
    cu_ptr p = cuda_address(d, m);
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

static gpu_result cuda_to_device(gpu_driver *d, gpu_at dst, const void *src, size_t n_bytes)
{
    cuda_driver *c = cuda(d);
    return bnet_cuda_result(d, c->cu.to_device(cuda_at(dst), src, n_bytes, c->stream));
}

static gpu_result cuda_to_host(gpu_driver *d, void *dst, gpu_at src, size_t n_bytes)
{
    cuda_driver *c = cuda(d);
    return bnet_cuda_result(d, c->cu.to_host(dst, cuda_at(src), n_bytes, c->stream));
}

static gpu_result cuda_copy(gpu_driver *d, gpu_at dst, gpu_at src, size_t n_bytes)
{
    cuda_driver *c = cuda(d);
    return bnet_cuda_result(d, c->cu.copy(cuda_at(dst), cuda_at(src), n_bytes, c->stream));
}

static gpu_result cuda_fill(gpu_driver *d, gpu_at dst, int byte, size_t n_bytes)
{
    cuda_driver *c = cuda(d);
    return bnet_cuda_result(d, c->cu.fill(cuda_at(dst), (unsigned char)byte, n_bytes, c->stream));
}

static gpu_result cuda_wait(gpu_driver *d)
{
    return bnet_cuda_result(d, cuda(d)->cu.stream_wait(cuda(d)->stream));
}

/* ---- kernels ---- */

static gpu_result cuda_find(gpu_driver *d, const char *kernel, gpu_kernel *out)
{
    cuda_driver *c = cuda(d);
    cu_function f = NULL;
    int r = NOT_FOUND;
    for (size_t i = 0; r == NOT_FOUND && i < c->n_modules; i++)
        r = c->cu.module_function(&f, c->modules[i], kernel);
    if (r == 0)
        *out = (gpu_kernel)(void *)f;
    return bnet_cuda_result(d, r);
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

/* Lets a function's blocks have that much shared memory. The driver is told once: launches are
 * many. */
static int allow_shared(cuda_driver *c, cu_function f, unsigned n_bytes)
{
    int i = 0;
    if (n_bytes <= PLAIN_SHARED)
        return 0;
    while (i < c->n_allowed && c->allowed[i].f != f)
        i++;
    if (i < c->n_allowed && c->allowed[i].n_bytes >= n_bytes)
        return 0;
    int r = c->cu.function_set(f, FUNC_DYNAMIC, (int)n_bytes);
    if (r == 0 && i < CUDA_ALLOWED) {
        c->allowed[i] = (cuda_allowed){f, n_bytes};
        c->n_allowed = BNET_MAX(c->n_allowed, i + 1);
    }
    return r;
}

static int launch(cuda_driver *c, gpu_kernel k, const gpu_dims *g, void *args)
{
    void *params[] = {args};
    cu_attribute attributes[3];
    unsigned n = c->cu.launch_ex ? attributes_of(g, attributes) : 0;
    int allowed = allow_shared(c, function(k), g->shared_bytes);
    if (allowed != 0)
        return allowed;
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

/* Every kernel takes one struct by value. */
static gpu_result cuda_launch(gpu_driver *d, gpu_kernel k, const gpu_dims *g, const gpu_arg *args,
                              int n_args)
{
    uint64_t packed[ARGS_MAX / 8];
    void *bytes = packed;
    if (args->kind == GPU_ARG_STRUCT)
        bytes = (void *)(uintptr_t)args->of.whole;
    else if (!bnet_gpu_pack_args(d, args, n_args, packed, sizeof packed))
        return bnet_cuda_result(d, NOT_SUPPORTED);
    return bnet_cuda_result(d, launch(cuda(d), k, g, bytes));
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

static int occupancy(cuda_driver *c, gpu_kernel k, const gpu_dims *g, gpu_occupancy *out)
{
    const cu_entries *cu = &c->cu;
    cu_function f = function(k);
    int threads = (int)(g->block[0] * g->block[1] * g->block[2]);
    *out = (gpu_occupancy){0};
    if (!cu->max_blocks)
        return NOT_SUPPORTED;
    allow_shared(c, f, g->shared_bytes);
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
        r = cu->device_attribute(&out->threads_per_sm, MAX_THREADS_PER_SM, c->device);
    return r;
}

static gpu_result cuda_occupancy(gpu_driver *d, gpu_kernel k, const gpu_dims *g, gpu_occupancy *out)
{
    return bnet_cuda_result(d, occupancy(cuda(d), k, g, out));
}

/* ---- graphs and times ---- */

static gpu_result cuda_record_begin(gpu_driver *d)
{
    return bnet_cuda_result(d, cuda(d)->cu.capture_begin(cuda(d)->stream, CAPTURE_THREAD_LOCAL));
}

static gpu_result cuda_record_end(gpu_driver *d, gpu_graph *out)
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
    return bnet_cuda_result(d, r);
}

static gpu_result cuda_replay(gpu_driver *d, gpu_graph g)
{
    cuda_driver *c = cuda(d);
    return bnet_cuda_result(d, c->cu.graph_launch((cu_graph_exec)(void *)g, c->stream));
}

static void cuda_graph_release(gpu_driver *d, gpu_graph g)
{
    if (g)
        cuda(d)->cu.graph_exec_free((cu_graph_exec)(void *)g);
}

static gpu_result cuda_stamp(gpu_driver *d, int slot)
{
    cuda_driver *c = cuda(d);
    int r = c->events[slot] ? 0 : c->cu.event_new(&c->events[slot], 0);
    return bnet_cuda_result(d, r ? r : c->cu.event_record(c->events[slot], c->stream));
}

static gpu_result cuda_between(gpu_driver *d, int first, int second, double *ms)
{
    cuda_driver *c = cuda(d);
    float f = 0;
    int r = c->cu.event_wait(c->events[second]);
    if (r == 0)
        r = c->cu.event_between(&f, c->events[first], c->events[second]);
    *ms = (double)f;
    return bnet_cuda_result(d, r);
}

/* ---- closing ---- */

/* The last of a process that gives the primary context back destroys it: that resets a lost device,
 * and never below others that still hold handles of it. */
static void cuda_close(gpu_driver *d)
{
    cuda_driver *c = cuda(d);
    if (c->context) {
        bool inside = cuda_enter(d) == GPU_OK;
        for (int i = 0; i < GPU_STAMPS; i++)
            if (c->events[i])
                c->cu.event_free(c->events[i]);
        if (c->mark)
            c->cu.event_free(c->mark);
        bnet_cuda_aside_close(d);
        if (c->stream) {
            c->cu.stream_wait(c->stream);
            c->cu.stream_free(c->stream);
        }
        if (c->pool)
            c->cu.pool_free(c->pool);
        for (size_t i = 0; i < c->n_modules; i++)
            c->cu.module_free(c->modules[i]);
        bnet_free(c->modules);
        if (inside)
            cuda_leave(d);
        c->cu.context_release(c->device);
    }
    if (c->nvtx.handle)
        bnet_library_close(&c->nvtx);
    if (c->library)
        c->loader->close(c->loader->user, c->library);
    bnet_free(c);
}

static void *cuda_stream(gpu_driver *d)
{
    return ((cuda_driver *)d)->stream;
}

const gpu_calls bnet_cuda_calls = {.name = "cuda",
                                   .close = cuda_close,
                                   .enter = cuda_enter,
                                   .leave = cuda_leave,
                                   .alloc = cuda_alloc,
                                   .release = cuda_release,
                                   .address = cuda_address,
                                   .host_alloc = cuda_host_alloc,
                                   .host_release = cuda_host_release,
                                   .memory = cuda_memory,
                                   .to_device = cuda_to_device,
                                   .to_host = cuda_to_host,
                                   .copy = cuda_copy,
                                   .fill = cuda_fill,
                                   .wait = cuda_wait,
                                   .stream = cuda_stream,
                                   .find = cuda_find,
                                   .launch = cuda_launch,
                                   .explain = cuda_explain,
                                   .record_begin = cuda_record_begin,
                                   .record_end = cuda_record_end,
                                   .replay = cuda_replay,
                                   .graph_release = cuda_graph_release,
                                   .stamp = cuda_stamp,
                                   .between = cuda_between,
                                   .fill_rows = bnet_cuda_fill_rows,
                                   .upload_aside = bnet_cuda_upload_aside,
                                   .aside_lead = bnet_cuda_aside_lead,
                                   .occupancy = cuda_occupancy,
                                   .after = bnet_cuda_after,
                                   .reach = bnet_cuda_reach,
                                   .fetch = bnet_cuda_fetch,
                                   .copy_rows = bnet_cuda_copy_rows};
