/* driver_open.c - from a device's number to a driver: libcuda found at run time, so that one binary
 * serves machines with and without it; context, kernels, stream and memory pool. */
#include "backend/cuda/cuda.h"

#include <stdio.h>

enum { /* CUdevice_attribute */
       MAX_THREADS_PER_BLOCK = 1,
       MAX_SHARED_PER_BLOCK = 8,
       MULTIPROCESSORS = 16,
       CC_MAJOR = 75,
       CC_MINOR = 76,
       MAX_SHARED_OPTIN = 97,
       POOLS_SUPPORTED = 115,
};
enum { OUT_OF_MEMORY = 2, NO_BINARY = 209 }; /* CUresult; 209: for this chip */
enum { STREAM_NON_BLOCKING = 1 };
enum { POOL_RELEASE_THRESHOLD = 4, POOL_PINNED = 1, POOL_ON_DEVICE = 1 };

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
    if (g->cc_major == 0) /* not told: what every kernel of reference runs on */
        g->cc_major = 5;
    g->multiprocessors = attribute(c, MULTIPROCESSORS);
    g->max_threads_per_block = attribute(c, MAX_THREADS_PER_BLOCK);
    g->max_shared_memory_per_block = (uint64_t)attribute(c, MAX_SHARED_PER_BLOCK);
    g->max_shared_memory_optin = (uint64_t)attribute(c, MAX_SHARED_OPTIN);
    c->base.has = bnet_gpu_capabilities(g->cc_major, g->cc_minor);
    g->fp16 = c->base.has.fp16;
    g->bf16 = c->base.has.bf16;
    snprintf(c->base.chip, sizeof c->base.chip, "compute capability %d.%d", g->cc_major,
             g->cc_minor);
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
int bnet_cuda_load_images(cuda_driver *c, cuda_image_at *image_at)
{
    const void *image;
    size_t n_bytes, n = 0;
    while (image_at(n, &n_bytes))
        n++;
    c->modules = bnet_calloc(BNET_MAX(n, 1), sizeof *c->modules);
    if (!c->modules)
        return OUT_OF_MEMORY;
    for (size_t i = 0; (image = image_at(i, &n_bytes)) != NULL; i++) {
        int r = c->cu.module_load(&c->modules[c->n_modules], image);
        if (r == 0)
            c->n_modules++;
        else if (r != NO_BINARY)
            return r;
    }
    return c->n_modules ? 0 : NO_BINARY;
}

/* What the kernels of these images may use on this chip. */
static void find_capabilities(cuda_driver *c)
{
    bnet_capabilities *caps = &c->base.caps;
    *caps = (bnet_capabilities){.device = BNET_DEV_CUDA, .builds = 1u << BNET_DEV_CUDA};
    caps->has = bnet_cuda_may_use(&c->base.gpu, caps->level, sizeof caps->level);
}

/* The driver found no code for the chip in any image. */
static bitnet_status not_compiled(const bnet_gpu *g, bitnet_error *err)
{
    bitnet_status st = bnet_cuda_check(&bnet_cuda_this_build, "", g, err);
    if (st != BITNET_OK)
        return st;
    return bnet_fail(err, BITNET_NOT_COMPILED,
                     "cuda: device %d (%s): the driver takes no kernels of this build (%s), though "
                     "its compute capability is %d.%d; update the driver, or use --device cpu",
                     g->device_id, g->name, bnet_cuda_archs(), g->cc_major, g->cc_minor);
}

/* In order, up to the context; *what names the call that failed. */
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
#undef STEP
    return 0;
}

/* With the context current: images, stream, memory pool. */
static int equip(cuda_driver *c, const char **what)
{
    *what = "cuModuleLoadData";
    int r = bnet_cuda_load_images(c, bnet_cuda_image);
    if (r == 0) {
        find_capabilities(c);
        *what = "cuStreamCreate";
        r = c->cu.stream_new(&c->stream, STREAM_NON_BLOCKING);
    }
    if (r == 0)
        own_pool(c);
    return r;
}

static int start_and_equip(cuda_driver *c, int index, const char **what)
{
    int r = start(c, index, what);
    if (r != 0)
        return r;
    *what = "cuCtxPushCurrent";
    r = c->cu.context_push(c->context);
    if (r != 0)
        return r;
    r = equip(c, what);
    c->base.c->leave(&c->base);
    return r;
}

bitnet_status bnet_cuda_driver_open(const bnet_loader *loader, int index, gpu_driver **out,
                                    bitnet_error *err)
{
    cuda_driver *c = bnet_calloc(1, sizeof *c);
    if (!c)
        return bnet_no_memory(err, "cuda driver");
    c->base.c = &bnet_cuda_calls;
    c->base.gpu.device_id = index;
    c->loader = loader;
    double begun = bnet_now_ms();
    const char *what = "";
    bitnet_status st = find_library(c, err);
    int r = st == BITNET_OK ? start_and_equip(c, index, &what) : 0;
    if (r != 0)
        st = r == NO_BINARY ? not_compiled(&c->base.gpu, err)
                            : bnet_cuda_explain(&c->base, what, r, err);
    if (st != BITNET_OK) {
        c->base.c->close(&c->base);
        return st;
    }
    snprintf(c->base.version, sizeof c->base.version, "CUDA %d.%d", c->version / 1000,
             c->version % 1000 / 10);
    c->base.open_ms = bnet_now_ms() - begun;
    *out = &c->base;
    return BITNET_OK;
}
