/* probe_opencl.c - every device of every OpenCL platform, asked of the ICD loader. CPU drivers
 * count as present, marked as software. */
#include "device/probe.h"

#include <stdio.h>

enum { PLATFORMS, PLATFORM_INFO, DEVICES, DEVICE_INFO };
static const char *const names[] = {"libOpenCL.so.1", NULL};
static const char *const wanted[] = {"clGetPlatformIDs", "clGetPlatformInfo", "clGetDeviceIDs",
                                     "clGetDeviceInfo", NULL};

typedef int32_t (*platforms_fn)(uint32_t cap, void **out, uint32_t *n);
typedef int32_t (*devices_fn)(void *platform, uint64_t type, uint32_t cap, void **out, uint32_t *n);
typedef int32_t (*info_fn)(void *object, uint32_t what, size_t cap, void *out, size_t *n);

enum {
    PLATFORM_VERSION = 0x0901,
    DEVICE_TYPE = 0x1000,
    DEVICE_UNITS = 0x1002,
    DEVICE_GROUP = 0x1004,
    DEVICE_MEMORY = 0x101f,
    DEVICE_LOCAL_MEMORY = 0x1023,
    DEVICE_NAME = 0x102b,
    DEVICE_EXTENSIONS = 0x1030,
    TYPE_CPU = 1 << 1,
    NOT_FOUND_KHR = -1001,
    LIST_MAX = 16,
};
#define TYPE_ALL 0xffffffffu

static bool info(const bnet_library *lib, void *device, uint32_t what, void *out, size_t cap)
{
    return ((info_fn)lib->fn[DEVICE_INFO])(device, what, cap, out, NULL) == 0;
}

static bool has_fp16(const bnet_library *lib, void *device)
{
    size_t n = 0;
    info_fn ask = (info_fn)lib->fn[DEVICE_INFO];
    if (ask(device, DEVICE_EXTENSIONS, 0, NULL, &n) != 0 || n == 0 || n > 1 << 20)
        return false;
    char *text = bnet_calloc(n + 1, 1);
    bool yes =
        text && ask(device, DEVICE_EXTENSIONS, n, text, NULL) == 0 && strstr(text, "cl_khr_fp16");
    bnet_free(text);
    return yes;
}

static void read_device(const bnet_library *lib, void *device, int id, bnet_gpu *g)
{
    char name[256] = "";
    uint64_t type = 0, memory = 0, local = 0;
    uint32_t units = 0;
    size_t group = 0;
    *g = (bnet_gpu){.device_id = id};
    if (info(lib, device, DEVICE_NAME, name, sizeof name - 1))
        bnet_copy_name(g->name, sizeof g->name, name, sizeof name);
    if (info(lib, device, DEVICE_TYPE, &type, sizeof type))
        g->software = type & TYPE_CPU;
    if (info(lib, device, DEVICE_MEMORY, &memory, sizeof memory))
        g->total_memory = memory;
    if (info(lib, device, DEVICE_LOCAL_MEMORY, &local, sizeof local))
        g->max_shared_memory_per_block = local;
    if (info(lib, device, DEVICE_UNITS, &units, sizeof units))
        g->multiprocessors = (int)BNET_MIN(units, (uint32_t)INT32_MAX);
    if (info(lib, device, DEVICE_GROUP, &group, sizeof group))
        g->max_threads_per_block = (int)BNET_MIN(group, (size_t)INT32_MAX);
    g->fp16 = has_fp16(lib, device);
}

/* "OpenCL 3.0 PoCL 3.1 ..." */
static void read_version(const bnet_library *lib, void *platform, bnet_device_status *s)
{
    char text[256] = "";
    if (s->version[0] || ((info_fn)lib->fn[PLATFORM_INFO])(platform, PLATFORM_VERSION,
                                                           sizeof text - 1, text, NULL) != 0)
        return;
    if (strncmp(text, "OpenCL ", 7) == 0)
        bnet_copy_name(s->version, sizeof s->version, text + 7, strcspn(text + 7, " "));
}

static void ask_loader(const bnet_library *lib, bnet_device_status *s)
{
    void *platforms[LIST_MAX], *devices[LIST_MAX];
    uint32_t n_platforms = 0;
    int32_t r = ((platforms_fn)lib->fn[PLATFORMS])(LIST_MAX, platforms, &n_platforms);
    if (r != 0 && r != NOT_FOUND_KHR) {
        snprintf(s->reason, sizeof s->reason, "clGetPlatformIDs: error %d", (int)r);
        return;
    }
    for (uint32_t p = 0; r == 0 && p < n_platforms && p < LIST_MAX; p++) {
        uint32_t n = 0;
        if (((devices_fn)lib->fn[DEVICES])(platforms[p], TYPE_ALL, LIST_MAX, devices, &n) != 0)
            continue;
        if (n > 0)
            read_version(lib, platforms[p], s);
        for (uint32_t i = 0; i < n && i < LIST_MAX && s->n_gpus < BNET_GPUS_MAX; i++, s->n_gpus++)
            read_device(lib, devices[i], s->n_gpus, &s->gpus[s->n_gpus]);
    }
    if (s->n_gpus == 0)
        snprintf(s->reason, sizeof s->reason,
                 "the OpenCL loader knows %u platform(s) and no device", (unsigned)n_platforms);
}

void bnet_probe_opencl(const bnet_world *w, const bnet_probe_options *o, bnet_device_status *s)
{
    (void)o;
    bnet_library_ask(w, names, wanted, ask_loader, s);
}
