/* probe_oneapi.c - Intel GPUs, asked of the Level Zero loader. The structures of its interface are
 * written out here as far as we read them, so that no header is needed to build. */
#include "device/probe.h"

#include <stdio.h>

enum { INIT, DRIVERS, DEVICES, PROPERTIES, COMPUTE, MEMORY };
static const char *const names[] = {"libze_loader.so.1", NULL};
static const char *const wanted[] = {"zeInit",
                                     "zeDriverGet",
                                     "zeDeviceGet",
                                     "zeDeviceGetProperties",
                                     "zeDeviceGetComputeProperties",
                                     "zeDeviceGetMemoryProperties",
                                     NULL};

typedef struct ze_properties {
    uint32_t stype;
    void *next;
    uint32_t type, vendor_id, device_id, flags, subdevice_id, core_clock;
    uint64_t max_alloc;
    uint32_t max_contexts, max_priority, threads_per_eu, simd_width;
    uint32_t eus_per_subslice, subslices_per_slice, n_slices;
    uint64_t timer_resolution;
    uint32_t timestamp_bits, kernel_timestamp_bits;
    uint8_t uuid[16];
    char name[256];
} ze_properties;

typedef struct ze_compute {
    uint32_t stype;
    void *next;
    uint32_t max_total_group, max_group[3], max_count[3], max_shared, n_subgroups, subgroups[8];
} ze_compute;

typedef struct ze_memory {
    uint32_t stype;
    void *next;
    uint32_t flags, max_clock, max_bus_width;
    uint64_t total;
    char name[256];
} ze_memory;

enum { STYPE_PROPERTIES = 3, STYPE_COMPUTE = 4, STYPE_MEMORY = 7, TYPE_GPU = 1, LIST_MAX = 16 };

typedef int (*init_fn)(uint32_t flags);
typedef int (*drivers_fn)(uint32_t *n, void **drivers);
typedef int (*devices_fn)(void *driver, uint32_t *n, void **devices);
typedef int (*properties_fn)(void *device, ze_properties *out);
typedef int (*compute_fn)(void *device, ze_compute *out);
typedef int (*memory_fn)(void *device, uint32_t *n, ze_memory *out);

static void read_memory(const bnet_library *lib, void *device, bnet_gpu *g)
{
    ze_memory m[4] = {{0}};
    uint32_t n = BNET_COUNT(m);
    for (uint32_t i = 0; i < n; i++)
        m[i].stype = STYPE_MEMORY;
    if (((memory_fn)lib->fn[MEMORY])(device, &n, m) != 0)
        return;
    for (uint32_t i = 0; i < n && i < BNET_COUNT(m); i++)
        if (!bnet_add(g->total_memory, m[i].total, &g->total_memory))
            g->total_memory = 0;
}

static bool read_device(const bnet_library *lib, void *device, int id, bnet_gpu *g)
{
    ze_properties p = {.stype = STYPE_PROPERTIES};
    ze_compute c = {.stype = STYPE_COMPUTE};
    if (((properties_fn)lib->fn[PROPERTIES])(device, &p) != 0 || p.type != TYPE_GPU)
        return false;
    *g = (bnet_gpu){.device_id = id};
    bnet_copy_name(g->name, sizeof g->name, p.name, sizeof p.name);
    g->multiprocessors = (int)((uint64_t)p.n_slices * p.subslices_per_slice % INT32_MAX);
    g->fp16 = true; /* every GPU that Level Zero drives has it */
    if (((compute_fn)lib->fn[COMPUTE])(device, &c) == 0) {
        g->max_threads_per_block = (int)BNET_MIN(c.max_total_group, (uint32_t)INT32_MAX);
        g->max_shared_memory_per_block = c.max_shared;
    }
    read_memory(lib, device, g);
    return true;
}

static void ask_loader(const bnet_library *lib, bnet_device_status *s)
{
    void *drivers[LIST_MAX], *devices[LIST_MAX];
    uint32_t n_drivers = LIST_MAX;
    int r = ((init_fn)lib->fn[INIT])(0);
    if (r == 0)
        r = ((drivers_fn)lib->fn[DRIVERS])(&n_drivers, drivers);
    if (r != 0) {
        snprintf(s->reason, sizeof s->reason, "Level Zero does not start: error 0x%x", (unsigned)r);
        return;
    }
    for (uint32_t d = 0; d < n_drivers && d < LIST_MAX; d++) {
        uint32_t n = LIST_MAX;
        if (((devices_fn)lib->fn[DEVICES])(drivers[d], &n, devices) != 0)
            continue;
        for (uint32_t i = 0; i < n && i < LIST_MAX && s->n_gpus < BNET_GPUS_MAX; i++)
            s->n_gpus += read_device(lib, devices[i], s->n_gpus, &s->gpus[s->n_gpus]);
    }
    if (s->n_gpus == 0)
        snprintf(s->reason, sizeof s->reason, "Level Zero finds no GPU");
}

void bnet_probe_oneapi(const bnet_world *w, const bnet_probe_options *o, bnet_device_status *s)
{
    (void)o;
    bnet_library_ask(w, names, wanted, ask_loader, s);
}
