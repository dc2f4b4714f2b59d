/* stand_in.h - a machine made up by a test: driver libraries that are functions of this file, a
 * root folder for /proc and /sys, a folder of vendor tools that are shell scripts. */
#ifndef STAND_IN_H
#define STAND_IN_H

#include "test.h"

#include <dirent.h>
#include <ftw.h>
#include <unistd.h>

#include "device/probe.h"

/* ---- what the stand-in drivers answer ---- */

typedef struct stand_in {
    const char *libraries; /* space-separated names that can be opened */
    const char *missing;   /* a function none of them has */
    int n_open, n_opened;  /* balance of open and close; opens altogether */
    int cu_init, cu_version, cu_count_result, n_cuda;
    unsigned cu_peers; /* bit 4 i + k: device i can read the memory of k */
    bnet_gpu cuda[BNET_GPUS_MAX];
    int hip_init, n_hip;
    int ze_init, ze_type;
    int cl_result, n_cl;
    uint64_t cl_type;
    int vk_create, n_vk;
    uint32_t vk_type;
    int vk_instances;
} stand_in;

static stand_in S;

static int cu_init(unsigned flags)
{
    return flags ? 1 : S.cu_init;
}
static int cu_version(int *v)
{
    *v = S.cu_version;
    return 0;
}
static int cu_count(int *n)
{
    *n = S.n_cuda;
    return S.cu_count_result;
}
static int cu_get(int *device, int ordinal)
{
    *device = 100 + ordinal; /* a handle is not an ordinal */
    return ordinal < S.n_cuda ? 0 : 101;
}
static int cu_name(char *name, int n, int device)
{
    snprintf(name, (size_t)n, "%s", S.cuda[device - 100].name);
    return 0;
}
static int cu_memory(size_t *bytes, int device)
{
    *bytes = (size_t)S.cuda[device - 100].total_memory;
    return 0;
}
static int cu_attribute(int *v, int which, int device)
{
    const bnet_gpu *g = &S.cuda[device - 100];
    switch (which) {
    case 1:
        *v = g->max_threads_per_block;
        return 0;
    case 8:
        *v = (int)g->max_shared_memory_per_block;
        return 0;
    case 16:
        *v = g->multiprocessors;
        return 0;
    case 75:
        *v = g->cc_major;
        return 0;
    case 76:
        *v = g->cc_minor;
        return 0;
    case 97:
        *v = (int)g->max_shared_memory_optin;
        return 0;
    default:
        return 1;
    }
}

static int cu_peer(int *can, int device, int other)
{
    unsigned bit = 4u * (unsigned)(device - 100) + (unsigned)(other - 100);
    *can = bit < 32 && (S.cu_peers >> bit & 1);
    return 0;
}

static int hip_init(unsigned flags)
{
    (void)flags;
    return S.hip_init;
}
static int hip_version(int *v)
{
    *v = 60241133;
    return 0;
}
static int hip_count(int *n)
{
    *n = S.n_hip;
    return S.n_hip ? 0 : 100;
}
static int hip_name(char *name, int n, int device)
{
    snprintf(name, (size_t)n, "AMD Instinct MI300X #%d", device);
    return 0;
}
static int hip_memory(size_t *bytes, int device)
{
    (void)device;
    *bytes = (size_t)192 << 30;
    return 0;
}
static int hip_capability(int *major, int *minor, int device)
{
    (void)device;
    *major = 9;
    *minor = 4;
    return 0;
}
static int hip_attribute(int *v, int which, int device)
{
    (void)device;
    *v = which == 56 ? 1024 : which == 63 ? 304 : which == 74 ? 65536 : -1;
    return 0;
}

static int ze_init(uint32_t flags)
{
    (void)flags;
    return S.ze_init;
}
static int ze_drivers(uint32_t *n, void **out)
{
    *n = 1;
    out[0] = &S;
    return 0;
}
static int ze_devices(void *driver, uint32_t *n, void **out)
{
    *n = 2;
    out[0] = driver;
    out[1] = driver;
    return 0;
}
/* offsets of ze_device_properties_t: type 16, numSlices 72.., name 112.. are checked by what is
 * read */
static int ze_properties(void *device, void *out)
{
    (void)device;
    uint32_t type = (uint32_t)S.ze_type, subslices = 8, slices = 4;
    memcpy((char *)out + 16, &type, 4);
    memcpy((char *)out + 68, &subslices, 4);
    memcpy((char *)out + 72, &slices, 4);
    snprintf((char *)out + 112, 256, "Intel(R) Data Center GPU Max 1550");
    return 0;
}
static int ze_compute(void *device, void *out)
{
    (void)device;
    uint32_t group = 1024, shared = 131072;
    memcpy((char *)out + 16, &group, 4);
    memcpy((char *)out + 44, &shared, 4);
    return 0;
}
static int ze_memory(void *device, uint32_t *n, void *out)
{
    (void)device;
    uint64_t total = (uint64_t)64 << 30;
    *n = 1;
    memcpy((char *)out + 32, &total, 8);
    return 0;
}

static int32_t cl_platforms(uint32_t cap, void **out, uint32_t *n)
{
    (void)cap;
    *n = S.cl_result ? 0 : 1;
    out[0] = &S;
    return S.cl_result;
}
static int32_t cl_platform_info(void *p, uint32_t what, size_t cap, void *out, size_t *n)
{
    (void)p, (void)n;
    snprintf(out, cap, "OpenCL 3.0 %s", what == 0x0901 ? "stand-in" : "?");
    return 0;
}
static int32_t cl_devices(void *p, uint64_t type, uint32_t cap, void **out, uint32_t *n)
{
    (void)p, (void)type;
    *n = (uint32_t)S.n_cl;
    for (uint32_t i = 0; i < *n && i < cap; i++)
        out[i] = &S;
    return S.n_cl ? 0 : -1;
}
static int32_t cl_device_info(void *d, uint32_t what, size_t cap, void *out, size_t *n)
{
    static const char extensions[] = "cl_khr_global_int32_base_atomics cl_khr_fp16";
    (void)d;
    if (what == 0x102b)
        snprintf(out, cap, "  Arc   A770\n");
    else if (what == 0x1000)
        memcpy(out, &S.cl_type, 8);
    else if (what == 0x101f)
        memcpy(out, &(uint64_t){16000000000u}, 8);
    else if (what == 0x1023)
        memcpy(out, &(uint64_t){65536}, 8);
    else if (what == 0x1002)
        memcpy(out, &(uint32_t){512}, 4);
    else if (what == 0x1004)
        memcpy(out, &(size_t){1024}, sizeof(size_t));
    else if (what == 0x1030 && out)
        memcpy(out, extensions, cap);
    else if (what == 0x1030)
        *n = sizeof extensions;
    else
        return -30;
    return 0;
}

/* As the loader reads it: VkInstanceCreateInfo is type 1, its VkApplicationInfo type 0. */
static int vk_create(const void *info, const void *allocator, void **instance)
{
    uint32_t type, of_application;
    const void *application;
    (void)allocator;
    memcpy(&type, info, sizeof type);
    memcpy(&application, (const char *)info + 24, sizeof application);
    memcpy(&of_application, application, sizeof of_application);
    if (type != 1 || of_application != 0)
        return -3; /* VK_ERROR_INITIALIZATION_FAILED */
    *instance = &S;
    S.vk_instances += S.vk_create == 0;
    return S.vk_create;
}
static void vk_destroy(void *instance, const void *allocator)
{
    (void)instance, (void)allocator;
    S.vk_instances--;
}
static int vk_devices(void *instance, uint32_t *n, void **out)
{
    *n = (uint32_t)S.n_vk;
    for (uint32_t i = 0; i < *n; i++)
        out[i] = instance;
    return 0;
}
static void vk_properties(void *device, void *out)
{
    (void)device;
    uint32_t version = 1u << 22 | 3u << 12 | 277, shared = 49152, invocations = 1536;
    memcpy(out, &version, 4);
    memcpy((char *)out + 16, &S.vk_type, 4);
    snprintf((char *)out + 20, 256, "NVIDIA RTX A4000");
    memcpy((char *)out + 296 + 216, &shared, 4);
    memcpy((char *)out + 296 + 232, &invocations, 4);
}
static void vk_memory(void *device, void *out)
{
    (void)device;
    uint32_t heaps = 2, local = 1;
    uint64_t vram = 17000000000u, host = 64000000000u;
    memcpy((char *)out + 260, &heaps, 4);
    memcpy((char *)out + 264, &vram, 8);
    memcpy((char *)out + 272, &local, 4);
    memcpy((char *)out + 280, &host, 8);
}
static bnet_fn vk_proc(void *instance, const char *name);

/* ---- the loader ---- */

static const struct {
    const char *library, *name;
    bnet_fn fn;
} symbols[] = {
    {"libcuda.so.1", "cuInit", (bnet_fn)cu_init},
    {"libcuda.so.1", "cuDriverGetVersion", (bnet_fn)cu_version},
    {"libcuda.so.1", "cuDeviceGetCount", (bnet_fn)cu_count},
    {"libcuda.so.1", "cuDeviceGet", (bnet_fn)cu_get},
    {"libcuda.so.1", "cuDeviceGetName", (bnet_fn)cu_name},
    {"libcuda.so.1", "cuDeviceTotalMem_v2", (bnet_fn)cu_memory},
    {"libcuda.so.1", "cuDeviceGetAttribute", (bnet_fn)cu_attribute},
    {"libcuda.so.1", "cuDeviceCanAccessPeer", (bnet_fn)cu_peer},
    {"libamdhip64.so.6", "hipInit", (bnet_fn)hip_init},
    {"libamdhip64.so.6", "hipRuntimeGetVersion", (bnet_fn)hip_version},
    {"libamdhip64.so.6", "hipGetDeviceCount", (bnet_fn)hip_count},
    {"libamdhip64.so.6", "hipDeviceGetName", (bnet_fn)hip_name},
    {"libamdhip64.so.6", "hipDeviceTotalMem", (bnet_fn)hip_memory},
    {"libamdhip64.so.6", "hipDeviceComputeCapability", (bnet_fn)hip_capability},
    {"libamdhip64.so.6", "hipDeviceGetAttribute", (bnet_fn)hip_attribute},
    {"libze_loader.so.1", "zeInit", (bnet_fn)ze_init},
    {"libze_loader.so.1", "zeDriverGet", (bnet_fn)ze_drivers},
    {"libze_loader.so.1", "zeDeviceGet", (bnet_fn)ze_devices},
    {"libze_loader.so.1", "zeDeviceGetProperties", (bnet_fn)ze_properties},
    {"libze_loader.so.1", "zeDeviceGetComputeProperties", (bnet_fn)ze_compute},
    {"libze_loader.so.1", "zeDeviceGetMemoryProperties", (bnet_fn)ze_memory},
    {"libOpenCL.so.1", "clGetPlatformIDs", (bnet_fn)cl_platforms},
    {"libOpenCL.so.1", "clGetPlatformInfo", (bnet_fn)cl_platform_info},
    {"libOpenCL.so.1", "clGetDeviceIDs", (bnet_fn)cl_devices},
    {"libOpenCL.so.1", "clGetDeviceInfo", (bnet_fn)cl_device_info},
    {"libvulkan.so.1", "vkGetInstanceProcAddr", (bnet_fn)vk_proc},
    {"libvulkan.so.1", "vkCreateInstance", (bnet_fn)vk_create},
    {"libvulkan.so.1", "vkDestroyInstance", (bnet_fn)vk_destroy},
    {"libvulkan.so.1", "vkEnumeratePhysicalDevices", (bnet_fn)vk_devices},
    {"libvulkan.so.1", "vkGetPhysicalDeviceProperties", (bnet_fn)vk_properties},
    {"libvulkan.so.1", "vkGetPhysicalDeviceMemoryProperties", (bnet_fn)vk_memory},
};

static void *stand_in_open(void *user, const char *name)
{
    (void)user;
    if (!S.libraries || !strstr(S.libraries, name))
        return NULL;
    for (size_t i = 0; i < BNET_COUNT(symbols); i++)
        if (strcmp(symbols[i].library, name) == 0) {
            S.n_open++;
            S.n_opened++;
            return (void *)(uintptr_t)symbols[i].library;
        }
    return NULL;
}

static bnet_fn stand_in_sym(void *user, void *lib, const char *name)
{
    (void)user;
    if (S.missing && strcmp(S.missing, name) == 0)
        return NULL;
    for (size_t i = 0; i < BNET_COUNT(symbols); i++)
        if (strcmp(symbols[i].library, lib) == 0 && strcmp(symbols[i].name, name) == 0)
            return symbols[i].fn;
    return NULL;
}

static void stand_in_close(void *user, void *lib)
{
    (void)user, (void)lib;
    S.n_open--;
}

static bnet_fn vk_proc(void *instance, const char *name)
{
    (void)instance;
    return stand_in_sym(NULL, (void *)(uintptr_t) "libvulkan.so.1", name);
}

static const bnet_loader stand_in_loader = {stand_in_open, stand_in_sym, stand_in_close, NULL};

#define ALL_LIBRARIES                                                                              \
    "libcuda.so.1 libamdhip64.so.6 libze_loader.so.1 libOpenCL.so.1 libvulkan.so.1"

/* ---- records ---- */

static inline bnet_gpu h200(void)
{
    return (bnet_gpu){.name = "NVIDIA H200",
                      .cc_major = 9,
                      .total_memory = 150110011392,
                      .multiprocessors = 132,
                      .max_threads_per_block = 1024,
                      .max_shared_memory_per_block = 49152,
                      .max_shared_memory_optin = 232448,
                      .fp16 = true,
                      .bf16 = true};
}

/* ---- folders ---- */

static inline int remove_one(const char *path, const struct stat *st, int flag, struct FTW *f)
{
    (void)st, (void)flag, (void)f;
    return remove(path);
}

static inline void remove_tree(const char *dir)
{
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline void make_dir(char *buf, size_t cap)
{
    snprintf(buf, cap, "%s/device-XXXXXX", TEST_BINARY_DIR);
    assert_non_null(mkdtemp(buf));
}

/* Writes root + path, making the folders on the way. mode 0755 makes a tool. */
static inline void put_file(const char *root, const char *path, const char *text, int mode)
{
    char full[4096];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        mkdir(full, 0755);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    chmod(full, (mode_t)mode);
}

static inline int count_fds(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

#endif
