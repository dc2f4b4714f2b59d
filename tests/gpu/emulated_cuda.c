/* emulated_cuda.c - a libcuda.so.1 for machines without a GPU: memory is the host's, a stream does
 * everything at once, and the reference kernels, which are plain C, run thread after thread. It
 * says it has compute capability 5.0, so that nothing else is chosen; with BITNET_EMULATED_CC=90
 * the fast kernels are, as emulated_fast.c means them. Tests find it by LD_LIBRARY_PATH.
 *
 * BITNET_EMULATED_FAIL="NAME N CODE": the N-th call of that function fails with the code.
 * BITNET_EMULATED_MEMORY: bytes the device has. BITNET_EMULATED_VERSION: of the driver. Graphs
 * record launches and copies and replay them. Everything that runs is counted in
 * bnet_emulated_counts, for tests of statistics.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/cuda/kernels.h"
#include "backend/cuda/kernels/ref.h"
#include "emulated.h"

#define API __attribute__((visibility("default")))

_Thread_local uint64_t bnet_emulated_thread;
uint64_t bnet_emulated_grid; /* blocks of the launch that runs */

enum { OK = 0, INVALID = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, BAD_DEVICE = 101, NOT_FOUND = 500 };

static size_t used_bytes;
API emulated_counts bnet_emulated_counts;

static size_t total_bytes(void)
{
    const char *s = getenv("BITNET_EMULATED_MEMORY");
    return s ? (size_t)strtoull(s, NULL, 10) : (size_t)1 << 32;
}

/* Does this call fail, and with what? */
static int fault(const char *name)
{
    static int calls;
    const char *s = getenv("BITNET_EMULATED_FAIL");
    char which[64];
    int n, code;
    if (!s || sscanf(s, "%63s %d %d", which, &n, &code) != 3 || strcmp(which, name) != 0)
        return OK;
    return ++calls == n || (n < 0 && calls >= -n) ? code : OK;
}

/* ---- graphs: a list of what was asked for ---- */

typedef void (*kernel_fn)(void *args);

typedef struct work {
    struct work *next;
    kernel_fn fn; /* NULL: a copy or a fill */
    uint64_t n_threads, n_blocks;
    _Alignas(16) uint8_t args[1024];
    int way; /* of a copy */
    void *dst;
    const void *src;
    int byte; /* src NULL: the value to fill with */
    size_t n;
} work;

typedef struct graph {
    work *first, *last;
} graph;

static graph *recording;

/* ---- what went to and from the device: copies, and kernels that reach into pinned memory ---- */

enum { TO_HOST = 1, TO_DEVICE = 2 };

void bnet_ref_fetch(void *p);
void bnet_ref_topk(void *p);
void bnet_topk_merge(void *p);

static void count_to_device(size_t n)
{
    bnet_emulated_counts.n_h2d++;
    bnet_emulated_counts.h2d_bytes += n;
}

static void count_to_host(size_t n)
{
    bnet_emulated_counts.n_d2h++;
    bnet_emulated_counts.d2h_bytes += n;
}

static void count(const work *w)
{
    if (!w->fn && w->way == TO_DEVICE)
        count_to_device(w->n);
    if (!w->fn && w->way == TO_HOST)
        count_to_host(w->n);
    if (!w->fn)
        return;
    bnet_emulated_counts.n_launches++;
    if (w->fn == bnet_ref_fetch)
        count_to_device(((const ref_fetch_args *)w->args)->n * 4);
    if (w->fn == bnet_ref_topk) {
        const ref_topk_args *a = (const ref_topk_args *)w->args;
        count_to_host((size_t)a->m * (size_t)a->k * 8);
    }
    if (w->fn == bnet_topk_merge) {
        const bnet_cu_sample_args *a = (const bnet_cu_sample_args *)w->args;
        count_to_host((size_t)a->rows * a->k * 8);
    }
}

static void run_work(work *w)
{
    count(w);
    if (!w->fn) {
        if (w->src)
            memmove(w->dst, w->src, w->n);
        else
            memset(w->dst, w->byte, w->n);
        return;
    }
    bnet_emulated_grid = w->n_blocks;
    for (uint64_t i = 0; i < w->n_threads; i++) {
        bnet_emulated_thread = i;
        w->fn(w->args);
    }
}

static int submit(const work *w)
{
    if (!recording) {
        work now = *w;
        run_work(&now);
        return OK;
    }
    work *copy = malloc(sizeof *copy);
    if (!copy)
        return OUT_OF_MEMORY;
    *copy = *w;
    copy->next = NULL;
    if (recording->last)
        recording->last->next = copy;
    else
        recording->first = copy;
    recording->last = copy;
    return OK;
}

/* ---- the device ---- */

API int cuInit(unsigned flags)
{
    (void)flags;
    return fault("cuInit");
}

API int cuDriverGetVersion(int *v)
{
    const char *s = getenv("BITNET_EMULATED_VERSION");
    *v = s ? atoi(s) : 99000;
    return OK;
}

API int cuDeviceGetCount(int *n)
{
    *n = 1;
    return fault("cuDeviceGetCount");
}

API int cuDeviceGet(int *device, int ordinal)
{
    *device = 0;
    return ordinal == 0 ? OK : BAD_DEVICE;
}

API int cuDeviceGetName(char *name, int cap, int device)
{
    (void)device;
    snprintf(name, (size_t)cap, "emulated device");
    return OK;
}

API int cuDeviceTotalMem_v2(size_t *n, int device)
{
    (void)device;
    *n = total_bytes();
    return OK;
}

API int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)device;
    static const int known[][2] = {{1, 1024},  {8, 49152}, {16, 2},
                                   {39, 2048}, {76, 0},    {97, 232448}};
    const char *cc = getenv("BITNET_EMULATED_CC");
    *value = attribute == 75 ? (cc ? atoi(cc) / 10 : 5) : 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i][0] == attribute)
            *value = known[i][1];
    return OK;
}

API int cuDevicePrimaryCtxRetain(void **out, int device)
{
    *out = &used_bytes;
    (void)device;
    return fault("cuDevicePrimaryCtxRetain");
}

API int cuDevicePrimaryCtxRelease_v2(int device)
{
    (void)device;
    return OK;
}

API int cuCtxSetCurrent(void *c)
{
    (void)c;
    return OK;
}

/* ---- memory: 16 bytes before each piece keep its size ---- */

API int cuMemGetInfo_v2(size_t *left, size_t *total)
{
    *total = total_bytes();
    *left = *total - used_bytes;
    return OK;
}

API int cuMemAlloc_v2(uint64_t *out, size_t n)
{
    int r = fault("cuMemAlloc");
    if (r != OK)
        return r;
    size_t whole = (n + 511) / 256 * 256;
    if (used_bytes + n > total_bytes())
        return OUT_OF_MEMORY;
    uint8_t *p = aligned_alloc(256, whole);
    if (!p)
        return OUT_OF_MEMORY;
    memset(p, 0xa5, whole); /* nobody may count on zeros */
    memcpy(p, &n, sizeof n);
    used_bytes += n;
    *out = (uint64_t)(uintptr_t)(p + 256);
    return OK;
}

API int cuMemFree_v2(uint64_t p)
{
    uint8_t *base = (uint8_t *)(uintptr_t)p - 256;
    size_t n;
    memcpy(&n, base, sizeof n);
    used_bytes -= n;
    free(base);
    return OK;
}

API int cuMemHostAlloc(void **out, size_t n, unsigned flags)
{
    (void)flags;
    *out = aligned_alloc(256, (n + 255) / 256 * 256);
    return *out ? fault("cuMemHostAlloc") : OUT_OF_MEMORY;
}

API int cuMemFreeHost(void *p)
{
    free(p);
    return OK;
}

static int copy(void *dst, const void *src, size_t n, int way, const char *name)
{
    int r = fault(name);
    work w = {.dst = dst, .src = src, .n = n, .way = way};
    return r != OK ? r : submit(&w);
}

API int cuMemcpyHtoDAsync_v2(uint64_t dst, const void *src, size_t n, void *s)
{
    (void)s;
    return copy((void *)(uintptr_t)dst, src, n, TO_DEVICE, "cuMemcpyHtoD");
}

API int cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t n, void *s)
{
    (void)s;
    return copy(dst, (const void *)(uintptr_t)src, n, TO_HOST, "cuMemcpyDtoH");
}

API int cuMemcpyDtoDAsync_v2(uint64_t dst, uint64_t src, size_t n, void *s)
{
    (void)s;
    return copy((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, n, 0, "cuMemcpyDtoD");
}

API int cuMemsetD8Async(uint64_t dst, unsigned char value, size_t n, void *s)
{
    work w = {.dst = (void *)(uintptr_t)dst, .byte = value, .n = n};
    (void)s;
    return submit(&w);
}

/* ---- streams, graphs, events ---- */

API int cuStreamCreate(void **out, unsigned flags)
{
    *out = &used_bytes;
    (void)flags;
    return OK;
}

API int cuStreamDestroy_v2(void *s)
{
    (void)s;
    return OK;
}

API int cuStreamSynchronize(void *s)
{
    (void)s;
    return fault("cuStreamSynchronize");
}

API int cuStreamBeginCapture_v2(void *s, int mode)
{
    (void)s;
    (void)mode;
    recording = calloc(1, sizeof *recording);
    return recording ? fault("cuStreamBeginCapture") : OUT_OF_MEMORY;
}

API int cuStreamEndCapture(void *s, void **out)
{
    (void)s;
    *out = recording;
    recording = NULL;
    return OK;
}

API int cuGraphInstantiateWithFlags(void **out, void *g, unsigned long long flags)
{
    graph *to = calloc(1, sizeof *to);
    (void)flags;
    if (!to)
        return OUT_OF_MEMORY;
    *to = *(graph *)g;
    *(graph *)g = (graph){0};
    *out = to;
    return OK;
}

API int cuGraphLaunch(void *exec, void *s)
{
    (void)s;
    int r = fault("cuGraphLaunch");
    for (work *w = r == OK ? ((graph *)exec)->first : NULL; w; w = w->next)
        run_work(w);
    return r;
}

API int cuGraphDestroy(void *g)
{
    for (work *w = ((graph *)g)->first, *next; w; w = next) {
        next = w->next;
        free(w);
    }
    free(g);
    return OK;
}

API int cuGraphExecDestroy(void *g)
{
    return cuGraphDestroy(g);
}

/* An event is the time of the host's clock, for work is done when it is asked for. */
API int cuEventCreate(void **out, unsigned flags)
{
    (void)flags;
    *out = calloc(1, sizeof(struct timespec));
    return *out ? fault("cuEventCreate") : OUT_OF_MEMORY;
}

API int cuEventDestroy_v2(void *e)
{
    free(e);
    return OK;
}

API int cuEventRecord(void *e, void *s)
{
    (void)s;
    if (recording)
        *(struct timespec *)e = (struct timespec){0}; /* an order, no time */
    else
        clock_gettime(CLOCK_MONOTONIC, e);
    return fault("cuEventRecord");
}

API int cuEventSynchronize(void *e)
{
    (void)e;
    return OK;
}

API int cuEventElapsedTime(float *ms, void *a, void *b)
{
    const struct timespec *from = a, *to = b;
    if (from->tv_sec == 0 || to->tv_sec == 0)
        return INVALID;
    *ms = (float)((double)(to->tv_sec - from->tv_sec) * 1e3 +
                  (double)(to->tv_nsec - from->tv_nsec) / 1e6);
    return OK;
}

/* ---- kernels: the functions of the same name in this library ---- */

API int cuModuleLoadData(void **out, const void *image)
{
    *out = (void *)(uintptr_t)image;
    return fault("cuModuleLoadData");
}

API int cuModuleUnload(void *m)
{
    (void)m;
    return OK;
}

API int cuModuleGetFunction(void **out, void *m, const char *name)
{
    Dl_info self;
    (void)m;
    if (!dladdr((void *)&used_bytes, &self))
        return NOT_FOUND;
    void *lib = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    *out = lib ? dlsym(lib, name) : NULL;
    return *out ? OK : NOT_FOUND;
}

API int cuFuncGetAttribute(int *value, int attribute, void *f)
{
    (void)f;
    *value = attribute == 0 ? 1024 : attribute == 4 ? 32 : 0; /* threads of a block, registers */
    return OK;
}

/* As if registers were 65,536 and nothing else were scarce. */
API int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, void *f, int block, size_t shared)
{
    (void)f;
    (void)shared;
    *n = 2048 / block;
    return OK;
}

API int cuFuncSetAttribute(void *f, int attribute, int value)
{
    (void)f;
    (void)attribute;
    (void)value;
    return OK;
}

/* A driver knows the size of a kernel's arguments from its image; here the most any has is taken,
 * which reads past smaller ones: out of a sanitizer's sight, one byte at a time so that no memcpy
 * is made of it. */
#if defined(__GNUC__)
__attribute__((no_sanitize("address", "undefined")))
#endif
static void
copy_args(void *to, const void *from)
{
    for (size_t i = 0; i < 320; i++)
        ((volatile unsigned char *)to)[i] = ((const volatile unsigned char *)from)[i];
}

API int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                       unsigned bz, unsigned shared, void *s, void **params, void **extra)
{
    work w = {.n_threads = (uint64_t)gx * gy * gz * bx * by * bz,
              .n_blocks = (uint64_t)gx * gy * gz};
    int r = fault("cuLaunchKernel");
    (void)shared;
    (void)s;
    (void)extra;
    memcpy(&w.fn, &f, sizeof f);
    copy_args(w.args, params[0]);
    return r != OK ? r : submit(&w);
}
