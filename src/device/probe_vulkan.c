/* probe_vulkan.c - physical devices, asked of the Vulkan loader. The structures of its interface
 * are written out here as far as we read them, so that no header is needed to build. */
#include "device/probe.h"

#include <stddef.h>
#include <stdio.h>

static const char *const names[] = {"libvulkan.so.1", NULL};
static const char *const wanted[] = {"vkGetInstanceProcAddr", NULL};

typedef struct vk_application {
    uint32_t stype;
    const void *next;
    const char *name;
    uint32_t version;
    const char *engine;
    uint32_t engine_version, api_version;
} vk_application;

typedef struct vk_instance_info {
    uint32_t stype;
    const void *next;
    uint32_t flags;
    const vk_application *application;
    uint32_t n_layers;
    const char *const *layers;
    uint32_t n_extensions;
    const char *const *extensions;
} vk_instance_info;

/* VkPhysicalDeviceProperties: 824 bytes, of whose limits we want three. */
typedef struct vk_properties {
    uint32_t api_version, driver_version, vendor_id, device_id, type;
    char name[256];
    uint8_t cache_uuid[16];
    uint64_t limits[6 + 21]; /* up to maxComputeSharedMemorySize */
    uint32_t max_shared, max_count[3], max_invocations;
    uint8_t rest[512];
} vk_properties;
static_assert(offsetof(vk_properties, limits) == 296, "VkPhysicalDeviceProperties.limits");
static_assert(offsetof(vk_properties, max_shared) == 296 + 216, "maxComputeSharedMemorySize");
static_assert(sizeof(vk_properties) >= 824, "VkPhysicalDeviceProperties");

typedef struct vk_memory {
    uint32_t n_types;
    uint32_t types[32][2];
    uint32_t n_heaps;
    struct {
        uint64_t bytes;
        uint32_t flags;
    } heaps[16];
} vk_memory;
static_assert(offsetof(vk_memory, heaps) == 264 && sizeof(vk_memory) == 520,
              "VkPhysicalDeviceMemoryProperties");

enum {
    STYPE_APPLICATION = 0,
    STYPE_INSTANCE = 1,
    TYPE_CPU = 4,
    HEAP_DEVICE_LOCAL = 1,
    INCOMPLETE = 5,
    API_1_0 = 1 << 22,
};

typedef bnet_fn (*proc_fn)(void *instance, const char *name);
typedef int (*create_fn)(const vk_instance_info *info, const void *allocator, void **instance);
typedef void (*destroy_fn)(void *instance, const void *allocator);
typedef int (*devices_fn)(void *instance, uint32_t *n, void **devices);
typedef void (*properties_fn)(void *device, vk_properties *out);
typedef void (*memory_fn)(void *device, vk_memory *out);

typedef struct vk {
    void *instance;
    destroy_fn destroy;
    devices_fn devices;
    properties_fn properties;
    memory_fn memory;
} vk;

static bool open_instance(proc_fn proc, vk *v, bnet_device_status *s)
{
    const vk_application app = {
        .stype = STYPE_APPLICATION, .name = "bitnet", .api_version = API_1_0};
    const vk_instance_info info = {.stype = STYPE_INSTANCE, .application = &app};
    create_fn create = (create_fn)proc(NULL, "vkCreateInstance");
    int r = create ? create(&info, NULL, &v->instance) : -1;
    if (r != 0) {
        snprintf(s->reason, sizeof s->reason, "vkCreateInstance: error %d%s", r,
                 r == -9 ? " (no driver is installed)" : "");
        return false;
    }
    v->destroy = (destroy_fn)proc(v->instance, "vkDestroyInstance");
    v->devices = (devices_fn)proc(v->instance, "vkEnumeratePhysicalDevices");
    v->properties = (properties_fn)proc(v->instance, "vkGetPhysicalDeviceProperties");
    v->memory = (memory_fn)proc(v->instance, "vkGetPhysicalDeviceMemoryProperties");
    if (v->destroy && v->devices && v->properties && v->memory)
        return true;
    snprintf(s->reason, sizeof s->reason, "the Vulkan loader lacks functions of Vulkan 1.0");
    if (v->destroy)
        v->destroy(v->instance, NULL);
    return false;
}

static void read_device(const vk *v, void *device, int id, bnet_device_status *s)
{
    vk_properties p = {0};
    vk_memory m = {0};
    bnet_gpu *g = &s->gpus[s->n_gpus++];
    v->properties(device, &p);
    v->memory(device, &m);
    *g = (bnet_gpu){.device_id = id, .software = p.type == TYPE_CPU};
    bnet_copy_name(g->name, sizeof g->name, p.name, sizeof p.name);
    g->max_threads_per_block = (int)BNET_MIN(p.max_invocations, (uint32_t)INT32_MAX);
    g->max_shared_memory_per_block = p.max_shared;
    for (uint32_t i = 0; i < m.n_heaps && i < BNET_COUNT(m.heaps); i++)
        if ((m.heaps[i].flags & HEAP_DEVICE_LOCAL) &&
            !bnet_add(g->total_memory, m.heaps[i].bytes, &g->total_memory))
            g->total_memory = 0;
    if (!s->version[0])
        snprintf(s->version, sizeof s->version, "%u.%u.%u", p.api_version >> 22 & 0x7f,
                 p.api_version >> 12 & 0x3ff, p.api_version & 0xfff);
}

static void ask_loader(const bnet_library *lib, bnet_device_status *s)
{
    vk v = {0};
    void *devices[BNET_GPUS_MAX];
    uint32_t n = BNET_GPUS_MAX;
    if (!open_instance((proc_fn)lib->fn[0], &v, s))
        return;
    int r = v.devices(v.instance, &n, devices);
    if (r == 0 || r == INCOMPLETE)
        for (uint32_t i = 0; i < n && i < BNET_GPUS_MAX; i++)
            read_device(&v, devices[i], (int)i, s);
    if (s->n_gpus == 0)
        snprintf(s->reason, sizeof s->reason, "Vulkan finds no device (result %d)", r);
    v.destroy(v.instance, NULL);
}

void bnet_probe_vulkan(const bnet_world *w, const bnet_probe_options *o, bnet_device_status *s)
{
    (void)o;
    bnet_library_ask(w, names, wanted, ask_loader, s);
}
