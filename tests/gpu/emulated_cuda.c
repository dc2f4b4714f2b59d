/* emulated_cuda.c - a libcuda.so.1 for machines without a GPU: memory is the host's, a stream does
 * everything at once, and the reference kernels, which are plain C, run thread after thread. It
 * does not say its compute capability, so that nothing else is chosen; with BITNET_EMULATED_CC=90
 * the fast kernels are, as emulated_fast.c means them. Tests find it by LD_LIBRARY_PATH.
 *
 * BITNET_EMULATED_FAIL="NAME N CODE": the N-th call of that function fails with the code.
 * BITNET_EMULATED_WITHOUT="KERNEL[,KERNEL] CODE": they are not in any image, or cannot be compiled.
 * BITNET_EMULATED_WRONG="KERNEL": what it computes is not what it should be (emulated_spoil.c,
 * emulated_single_ops.c).
 * BITNET_EMULATED_REFUSE="cooperative CODE": launches of that kind; "both CODE": those that may
 * also start early. BITNET_EMULATED_MEMORY: bytes the device has. BITNET_EMULATED_DEVICES: more
 * than one (emulated_devices.c). BITNET_EMULATED_VERSION: of the driver. Graphs record launches and
 * copies and replay them. BITNET_EMULATED_POOLS=1: memory pools in stream order exist. Everything
 * that runs is counted in bnet_emulated_counts, for tests of statistics.
 *
 * Work is done when it is asked for, but every stream has a clock: work begins when it was asked
 * for and what was before it in the stream has ended, and takes a microsecond, a kernel of a user's
 * module (emulated_user.c) 2 ms. Events read these clocks, so that a timeline shows what a device
 * could do at once. One lock makes calls from several threads safe.
 */
#include "backend/cuda/head_copy.h"
#include "emulated.h"
#include "emulated_fast.h"
#include "emulated_modules.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/kernels.h"
#include "backend/gpu/ref/ref_args.h"

_Thread_local uint64_t bnet_emulated_thread;
uint64_t bnet_emulated_grid; /* blocks of the launch that runs */

API emulated_counts bnet_emulated_counts;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Does this call fail, and with what? */
int bnet_emulated_fault(const char *name)
{
    static int calls;
    static char seen[128];
    const char *s = getenv("BITNET_EMULATED_FAIL");
    char which[64];
    int n, code;
    bool wanted = s && sscanf(s, "%63s %d %d", which, &n, &code) == 3 && strcmp(which, name) == 0;
    pthread_mutex_lock(&lock);
    if (strncmp(seen, s ? s : "", sizeof seen - 1) != 0) { /* another wish: counting begins anew */
        snprintf(seen, sizeof seen, "%s", s ? s : "");
        calls = 0;
    }
    int now = wanted ? ++calls : 0;
    pthread_mutex_unlock(&lock);
    return wanted && (now == n || (n < 0 && now >= -n)) ? code : OK;
}

static int fault(const char *name)
{
    return bnet_emulated_fault(name);
}

/* ---- graphs: a list of what was asked for ---- */

typedef void (*kernel_fn)(void *args);

typedef struct work {
    struct work *next;
    kernel_fn fn; /* NULL: a copy or a fill */
    char name[64];
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

typedef struct stream {
    struct stream *next; /* all there are */
    graph *recording;    /* NULL: what is asked for is done */
    double free_at;      /* ms: when what was asked for so far has ended */
    int device;
    uint64_t n_works, n_joined; /* recorded; of these, others waited for */
} stream;

typedef struct event {
    double at;
    int device;
    stream *of; /* where it was recorded, into what, after how much */
    graph *graph;
    uint64_t n_works;
} event;

static stream default_stream, *streams;

static stream *stream_of(void *s)
{
    return s ? s : &default_stream;
}

/* Is the stream, and each address that is not 0, of the device that is current? */
static bool mine(void *s, uint64_t p, uint64_t q)
{
    int d = bnet_emulated_current();
    return (!s || ((stream *)s)->device == d) && (!p || bnet_emulated_device_of(p) == d) &&
           (!q || bnet_emulated_device_of(q) == d);
}

/* The clock of the host as the device's: a microsecond a call, so that no machine is too slow for a
 * test. Under the lock. */
static double now_ms(void)
{
    static double now;
    return now += 0.001;
}

static double later(double a, double b)
{
    return a > b ? a : b;
}

/* ---- what went to and from the device: copies, and kernels that reach into pinned memory ---- */

enum { TO_HOST = 1, TO_DEVICE = 2 };

void bnet_ref_fetch(void *p);
void bnet_ref_topk(void *p);
void bnet_topk_merge(void *p);
void bnet_screen_best(void *p);
void bnet_screen_best_batch(void *p);

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
    if (w->fn == bnet_screen_best || w->fn == bnet_screen_best_batch) {
        const bnet_cu_screen_args *a = (const bnet_cu_screen_args *)w->args;
        count_to_host((size_t)a->n_tokens * a->k * 8);
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
    bnet_emulated_spoil(w->name, 1, w->args);
    for (uint64_t i = 0; i < w->n_threads; i++) {
        bnet_emulated_thread = i;
        w->fn(w->args);
    }
    bnet_emulated_spoil(w->name, 0, w->args);
}

static int submit(void *s, const work *w, double ms)
{
    graph *recording = stream_of(s)->recording;
    if (!recording) {
        work now = *w;
        pthread_mutex_lock(&lock);
        run_work(&now);
        stream_of(s)->free_at = later(stream_of(s)->free_at, now_ms()) + ms;
        pthread_mutex_unlock(&lock);
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
    stream_of(s)->n_works++;
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

static const struct {
    int code;
    const char *name, *hint;
} errors[] = {
#define CUDA_ERROR(code, name, hint) {code, name, hint},
#include "device/cuda_errors.inc"
#undef CUDA_ERROR
};

API int cuGetErrorName(int code, const char **out)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].code == code)
            return *out = errors[i].name, OK;
    return 1;
}

API int cuGetErrorString(int code, const char **out)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].code == code)
            return *out = errors[i].hint, OK;
    return 1;
}

/* Asked for by the real NVRTC, which takes no for an answer. */
API int cuGetExportTable(const void **out, const void *id)
{
    (void)id;
    *out = NULL;
    return NOT_FOUND;
}

API int cuDeviceGetCount(int *n)
{
    *n = bnet_emulated_devices();
    return fault("cuDeviceGetCount");
}

API int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return ordinal >= 0 && ordinal < bnet_emulated_devices() ? OK : BAD_DEVICE;
}

API int cuDeviceGetName(char *name, int cap, int device)
{
    (void)device;
    snprintf(name, (size_t)cap, "emulated device");
    return OK;
}

API int cuDeviceTotalMem_v2(size_t *n, int device)
{
    *n = bnet_emulated_memory(device);
    return OK;
}

/* Shared memory that a block may ask for, by compute capability. */
static int shared_most(int cc)
{
    return cc < 70                ? 49152
           : cc < 80              ? 65536
           : cc == 80 || cc == 87 ? 166912
           : cc < 90 || cc >= 120 ? 101376
                                  : 232448;
}

static int emulated_cc(void)
{
    const char *cc = getenv("BITNET_EMULATED_CC");
    return cc ? atoi(cc) : 0;
}

API int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)device;
    static const int known[][2] = {{1, 1024}, {8, 49152}, {16, 2}, {39, 2048}};
    const char *pools = getenv("BITNET_EMULATED_POOLS");
    int number = emulated_cc();
    *value = attribute == 75    ? number / 10
             : attribute == 76  ? number % 10
             : attribute == 97  ? shared_most(number)
             : attribute == 115 ? !!pools
                                : 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i][0] == attribute)
            *value = known[i][1];
    return OK;
}

API int cuDevicePrimaryCtxRetain(void **out, int device)
{
    *out = bnet_emulated_context(device);
    return fault("cuDevicePrimaryCtxRetain");
}

API int cuDevicePrimaryCtxRelease_v2(int device)
{
    (void)device;
    return OK;
}

/* ---- memory: 256 bytes before each piece, in which is whose pool it is of ---- */

API int cuMemGetInfo_v2(size_t *left, size_t *total)
{
    *total = bnet_emulated_memory(bnet_emulated_current());
    *left = *total - bnet_emulated_used();
    return OK;
}

API int cuMemAlloc_v2(uint64_t *out, size_t n)
{
    int r = fault("cuMemAlloc");
    if (r != OK)
        return r;
    size_t whole = (n + 511) / 256 * 256;
    uint8_t *p = aligned_alloc(256, whole);
    if (!p || !bnet_emulated_note((uint64_t)(uintptr_t)(p + 256), n)) {
        free(p);
        return OUT_OF_MEMORY;
    }
    memset(p, 0xa5, whole); /* nobody may count on zeros */
    *out = (uint64_t)(uintptr_t)(p + 256);
    return OK;
}

API int cuMemFree_v2(uint64_t p)
{
    if (!bnet_emulated_forget(p))
        return INVALID;
    free((uint8_t *)(uintptr_t)p - 256);
    return OK;
}

/* ---- pools: a count of what was taken from each ---- */

typedef struct pool {
    int64_t n_used;
} pool;

typedef struct pool_props { /* CUmemPoolProps as far as it is looked at */
    int type, handles, location_type, device;
} pool_props;

API int cuMemPoolCreate(void **out, const pool_props *props)
{
    int r = fault("cuMemPoolCreate");
    if (r == OK &&
        (props->type != 1 || props->location_type != 1 || props->device != bnet_emulated_current()))
        return INVALID;
    *out = r == OK ? calloc(1, sizeof(pool)) : NULL;
    return r;
}

API int cuMemPoolSetAttribute(void *p, int attribute, void *value)
{
    return p && attribute == 4 && value ? OK : INVALID;
}

/* A pool that is destroyed before its memory came back is a mistake of the host's code. */
API int cuMemPoolDestroy(void *p)
{
    if (((pool *)p)->n_used)
        fprintf(stderr, "emulated: pool destroyed with %lld pieces in use\n",
                (long long)((pool *)p)->n_used);
    free(p);
    return OK;
}

static void *pool_of_piece(uint64_t p)
{
    void *owner;
    memcpy(&owner, (uint8_t *)(uintptr_t)p - 256 + sizeof(size_t), sizeof owner);
    return owner;
}

static int pool_take(uint64_t *out, size_t n, void *p)
{
    int r = cuMemAlloc_v2(out, n);
    if (r != OK)
        return r;
    memcpy((uint8_t *)(uintptr_t)*out - 256 + sizeof(size_t), &p, sizeof p);
    if (p)
        ((pool *)p)->n_used++;
    return OK;
}

API int cuMemAllocAsync(uint64_t *out, size_t n, void *s)
{
    (void)s;
    return pool_take(out, n, NULL);
}

API int cuMemAllocFromPoolAsync(uint64_t *out, size_t n, void *p, void *s)
{
    int r = fault("cuMemAllocFromPoolAsync");
    (void)s;
    return r == OK ? pool_take(out, n, p) : r;
}

API int cuMemFreeAsync(uint64_t p, void *s)
{
    pool *owner = pool_of_piece(p);
    (void)s;
    if (owner)
        owner->n_used--;
    return cuMemFree_v2(p);
}

API int cuMemHostAlloc(void **out, size_t n, unsigned flags)
{
    int r = fault("cuMemHostAlloc");
    (void)flags;
    if (r != OK) /* as a driver does, it has given nothing then */
        return r;
    *out = aligned_alloc(256, (n + 255) / 256 * 256);
    return *out ? OK : OUT_OF_MEMORY;
}

API int cuMemFreeHost(void *p)
{
    free(p);
    return OK;
}

static int copy(void *dst, const void *src, size_t n, int way, void *s, const char *name)
{
    int r = fault(name);
    work w = {.dst = dst, .src = src, .n = n, .way = way};
    return r != OK ? r : submit(s, &w, 0.001);
}

API int cuMemcpyHtoDAsync_v2(uint64_t dst, const void *src, size_t n, void *s)
{
    if (!mine(s, dst, 0))
        return BAD_HANDLE;
    return copy((void *)(uintptr_t)dst, src, n, TO_DEVICE, s, "cuMemcpyHtoD");
}

API int cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t n, void *s)
{
    if (!mine(s, src, 0))
        return BAD_HANDLE;
    return copy(dst, (const void *)(uintptr_t)src, n, TO_HOST, s, "cuMemcpyDtoH");
}

API int cuMemcpyDtoDAsync_v2(uint64_t dst, uint64_t src, size_t n, void *s)
{
    if (!mine(s, dst, src))
        return BAD_HANDLE;
    return copy((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, n, 0, s, "cuMemcpyDtoD");
}

API int cuMemsetD8Async(uint64_t dst, unsigned char value, size_t n, void *s)
{
    work w = {.dst = (void *)(uintptr_t)dst, .byte = value, .n = n};
    int r = mine(s, dst, 0) ? fault("cuMemsetD8") : BAD_HANDLE;
    return r != OK ? r : submit(s, &w, 0.001);
}

API int cuMemsetD2D8Async(uint64_t dst, size_t pitch, unsigned char value, size_t n, size_t rows,
                          void *s)
{
    int r = n <= pitch && pitch < INT32_MAX ? OK : INVALID;
    for (size_t i = 0; i < rows && r == OK; i++)
        r = cuMemsetD8Async(dst + i * pitch, value, n, s);
    return r;
}

API int cuMemcpyPeerAsync(uint64_t dst, void *to, uint64_t src, void *from, size_t n, void *s)
{
    int r = mine(s, dst, 0) ? bnet_emulated_may_fetch(to, dst, from, src) : BAD_HANDLE;
    return r != OK ? r
                   : copy((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, n, 0, s,
                          "cuMemcpyPeer");
}

/* ---- streams, graphs, events ---- */

API int cuStreamCreate(void **out, unsigned flags)
{
    *out = calloc(1, sizeof(stream));
    (void)flags;
    if (*out) {
        pthread_mutex_lock(&lock);
        *(stream *)*out = (stream){.next = streams, .device = bnet_emulated_current()};
        streams = *out;
        pthread_mutex_unlock(&lock);
    }
    return *out ? fault("cuStreamCreate") : OUT_OF_MEMORY;
}

API int cuStreamDestroy_v2(void *s)
{
    pthread_mutex_lock(&lock);
    for (stream **at = &streams; *at; at = &(*at)->next)
        if (*at == s) {
            *at = (*at)->next;
            break;
        }
    pthread_mutex_unlock(&lock);
    free(s);
    return OK;
}

API int cuStreamSynchronize(void *s)
{
    (void)s;
    return fault("cuStreamSynchronize");
}

/* A stream that waits for one that is recorded is recorded too, from there on. */
static void join_recording(stream *s, const event *e)
{
    bool open = false;
    for (const stream *i = streams; i; i = i->next)
        open = open || (e->graph && i->recording == e->graph);
    if (!open)
        return;
    if (!s->recording)
        s->n_works = s->n_joined = 0;
    s->recording = e->graph;
    e->of->n_joined = e->n_works;
}

API int cuStreamWaitEvent(void *s, void *e, unsigned flags)
{
    (void)flags;
    if (!mine(s, 0, 0))
        return BAD_HANDLE;
    pthread_mutex_lock(&lock);
    stream_of(s)->free_at = later(stream_of(s)->free_at, ((event *)e)->at);
    join_recording(stream_of(s), e);
    pthread_mutex_unlock(&lock);
    return fault("cuStreamWaitEvent");
}

API int cuStreamBeginCapture_v2(void *s, int mode)
{
    int r = fault("cuStreamBeginCapture");
    (void)mode;
    if (r != OK)
        return r;
    stream_of(s)->recording = calloc(1, sizeof(graph));
    return stream_of(s)->recording ? OK : OUT_OF_MEMORY;
}

API int cuStreamEndCapture(void *s, void **out)
{
    graph *done = stream_of(s)->recording;
    bool lost = false;
    pthread_mutex_lock(&lock);
    for (stream *i = streams; i; i = i->next)
        if (i->recording == done) {
            lost = lost || (i != s && i->n_joined != i->n_works);
            i->recording = NULL;
        }
    pthread_mutex_unlock(&lock);
    stream_of(s)->recording = NULL;
    *out = done;
    return lost ? CAPTURE_UNJOINED : fault("cuStreamEndCapture");
}

API int cuGraphInstantiateWithFlags(void **out, void *g, unsigned long long flags)
{
    int r = fault("cuGraphInstantiate");
    graph *to = r == OK ? calloc(1, sizeof *to) : NULL;
    (void)flags;
    if (!to)
        return r == OK ? OUT_OF_MEMORY : r;
    *to = *(graph *)g;
    *(graph *)g = (graph){0};
    *out = to;
    return OK;
}

API int cuGraphLaunch(void *exec, void *s)
{
    (void)s;
    int r = fault("cuGraphLaunch");
    pthread_mutex_lock(&lock);
    for (work *w = r == OK ? ((graph *)exec)->first : NULL; w; w = w->next)
        run_work(w);
    pthread_mutex_unlock(&lock);
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

API int cuEventCreate(void **out, unsigned flags)
{
    *out = calloc(1, sizeof(event));
    (void)flags;
    if (*out)
        ((event *)*out)->device = bnet_emulated_current();
    return *out ? fault("cuEventCreate") : OUT_OF_MEMORY;
}

API int cuEventDestroy_v2(void *e)
{
    free(e);
    return OK;
}

API int cuEventRecord(void *e, void *s)
{
    if (((event *)e)->device != stream_of(s)->device)
        return BAD_HANDLE;
    pthread_mutex_lock(&lock);
    ((event *)e)->of = stream_of(s);
    ((event *)e)->graph = stream_of(s)->recording;
    ((event *)e)->n_works = stream_of(s)->n_works;
    ((event *)e)->at = stream_of(s)->recording ? 0 /* an order, no time */
                                               : later(stream_of(s)->free_at, now_ms());
    pthread_mutex_unlock(&lock);
    return fault("cuEventRecord");
}

API int cuEventQuery(void *e)
{
    pthread_mutex_lock(&lock);
    bool done = now_ms() >= ((event *)e)->at;
    pthread_mutex_unlock(&lock);
    return done ? OK : NOT_READY;
}

/* Whoever waits finds it done: the clock moves there. */
API int cuEventSynchronize(void *e)
{
    pthread_mutex_lock(&lock);
    while (now_ms() < ((event *)e)->at)
        ;
    pthread_mutex_unlock(&lock);
    return fault("cuEventSynchronize");
}

API int cuEventElapsedTime(float *ms, void *a, void *b)
{
    if (((event *)a)->at <= 0 || ((event *)b)->at <= 0)
        return INVALID;
    *ms = (float)(((event *)b)->at - ((event *)a)->at);
    return OK;
}

/* ---- kernels: the functions of the same name in this library ---- */

API int cuModuleLoadData(void **out, const void *image)
{
    bool compiled = strncmp(image, EMULATED_CODE, strlen(EMULATED_CODE)) == 0;
    int r = fault(compiled ? "cuModuleLoadData.compiled" : "cuModuleLoadData");
    *out = r == OK ? bnet_emulated_module(image) : NULL;
    bnet_emulated_counts.n_modules += *out != NULL;
    return r != OK ? r : *out ? OK : INVALID_PTX;
}

API int cuModuleUnload(void *m)
{
    bnet_emulated_module_free(m);
    return OK;
}

static void *symbol(const char *name)
{
    Dl_info self;
    if (!dladdr((void *)&bnet_emulated_grid, &self))
        return NULL;
    void *lib = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    return lib ? dlsym(lib, name) : NULL;
}

API int cuModuleGetFunction(void **out, void *m, const char *name)
{
    const char *without = getenv("BITNET_EMULATED_WITHOUT"),
               *code = strchr(without ? without : "", ' ');
    size_t n = strlen(name);
    for (const char *at = without; at && code; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, name, n) == 0 && (at[n] == ',' || at[n] == ' '))
            return atoi(code);
    void *f = symbol(name);
    *out = f ? bnet_emulated_function(m, name, f) : NULL;
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

/* Groups of multiprocessors of which whole clusters leave some empty. */
API int cuOccupancyMaxActiveClusters(int *n, void *f, const void *config)
{
    (void)f;
    (void)config;
    *n = 15;
    return OK;
}

API int cuFuncSetAttribute(void *f, int attribute, int value)
{
    (void)f;
    (void)attribute;
    (void)value;
    return fault("cuFuncSetAttribute");
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
    const emulated_function *e = f;
    work w = {.n_threads = (uint64_t)gx * gy * gz * bx * by * bz,
              .n_blocks = (uint64_t)gx * gy * gz};
    int r = fault("cuLaunchKernel");
    (void)extra;
    if (!mine(s, 0, 0))
        return BAD_HANDLE;
    if (shared > (unsigned)shared_most(emulated_cc()))
        return INVALID;
    memcpy(&w.fn, &e->fn, sizeof w.fn);
    memcpy(w.name, e->name, sizeof w.name);
    if (e->n_params < 0)
        copy_args(w.args, params[0]);
    else
        bnet_emulated_params(e, params, w.args);
    if (r == OK && !bnet_emulated_fits(e, w.args))
        return INVALID;
    return r != OK ? r : submit(s, &w, e->n_params < 0 ? 0.001 : 2.0);
}

typedef struct attribute { /* CUlaunchAttribute */
    int id, pad;
    char value[64];
} attribute;

typedef struct launch_config { /* CUlaunchConfig */
    unsigned grid[3], block[3], shared;
    void *stream;
    const attribute *attributes;
    unsigned n_attributes;
} launch_config;

static int refused(const launch_config *c)
{
    const char *s = getenv("BITNET_EMULATED_REFUSE");
    char what[16];
    int code;
    bool together = false, early = false;
    for (unsigned i = 0; i < c->n_attributes; i++) {
        together = together || c->attributes[i].id == 2;
        early = early || c->attributes[i].id == 6;
    }
    if (!s || sscanf(s, "%15s %d", what, &code) != 2)
        return OK;
    return together && (early || strcmp(what, "both") != 0) ? code : OK;
}

API int cuLaunchKernelEx(const launch_config *c, void *f, void **params, void **extra)
{
    int r = refused(c);
    return r != OK ? r
                   : cuLaunchKernel(f, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1],
                                    c->block[2], c->shared, c->stream, params, extra);
}
