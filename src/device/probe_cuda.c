/* probe_cuda.c - NVIDIA devices, asked of the driver; of nvidia-smi where the driver's library does
 * not answer. Only what the library answers can be computed on. */
#include "device/probe.h"

#include <stdio.h>

enum { INIT, VERSION, COUNT, GET, NAME, MEMORY, ATTRIBUTE };
static const char *const names[] = {"libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1", NULL};
static const char *const wanted[] = {
    "cuInit",          "cuDriverGetVersion",  "cuDeviceGetCount",     "cuDeviceGet",
    "cuDeviceGetName", "cuDeviceTotalMem_v2", "cuDeviceGetAttribute", NULL};

typedef int (*init_fn)(unsigned flags);
typedef int (*int_fn)(int *out);
typedef int (*get_fn)(int *device, int ordinal);
typedef int (*name_fn)(char *name, int n, int device);
typedef int (*memory_fn)(size_t *bytes, int device);
typedef int (*attribute_fn)(int *value, int attribute, int device);
typedef int (*peer_fn)(int *can, int device, int other);

/* CUdevice_attribute */
enum {
    MAX_THREADS_PER_BLOCK = 1,
    MAX_SHARED_PER_BLOCK = 8,
    MULTIPROCESSORS = 16,
    CC_MAJOR = 75,
    CC_MINOR = 76,
    MAX_SHARED_OPTIN = 97,
};

#define HINT_DRIVER                                                                                \
    "install the NVIDIA driver and check it with nvidia-smi; start a container with --gpus all"

static void fail(bnet_device_status *s, const char *call, int result)
{
    const char *name;
    const char *hint = bnet_cuda_error_hint(result, &name);
    snprintf(s->reason, sizeof s->reason, "%s: %s (%d)", call, name, result);
    snprintf(s->hint, sizeof s->hint, "%s", hint);
}

static int attribute(const bnet_library *lib, int which, int device)
{
    int v = 0;
    if (((attribute_fn)lib->fn[ATTRIBUTE])(&v, which, device) != 0 || v < 0)
        return 0;
    return v;
}

static bool read_device(const bnet_library *lib, int ordinal, bnet_gpu *g, bnet_device_status *s)
{
    int device = 0;
    int r = ((get_fn)lib->fn[GET])(&device, ordinal);
    if (r != 0) {
        fail(s, "cuDeviceGet", r);
        return false;
    }
    char name[256] = "";
    size_t bytes = 0;
    *g = (bnet_gpu){.device_id = ordinal};
    if (((name_fn)lib->fn[NAME])(name, (int)sizeof name - 1, device) == 0)
        bnet_copy_name(g->name, sizeof g->name, name, sizeof name);
    if (((memory_fn)lib->fn[MEMORY])(&bytes, device) == 0)
        g->total_memory = bytes;
    g->cc_major = attribute(lib, CC_MAJOR, device);
    g->cc_minor = attribute(lib, CC_MINOR, device);
    g->multiprocessors = attribute(lib, MULTIPROCESSORS, device);
    g->max_threads_per_block = attribute(lib, MAX_THREADS_PER_BLOCK, device);
    g->max_shared_memory_per_block = (uint64_t)attribute(lib, MAX_SHARED_PER_BLOCK, device);
    g->max_shared_memory_optin = (uint64_t)attribute(lib, MAX_SHARED_OPTIN, device);
    bnet_gpu_caps caps = bnet_gpu_capabilities(g->cc_major, g->cc_minor);
    g->fp16 = caps.fp16;
    g->bf16 = caps.bf16;
    return true;
}

/* Who can read whose memory without the host; drivers that cannot say leave it unknown. */
static void ask_peers(const bnet_library *lib, bnet_device_status *s)
{
    bnet_fn f = lib->loader->sym(lib->loader->user, lib->handle, "cuDeviceCanAccessPeer");
    int device[BNET_GPUS_MAX];
    for (int i = 0; f && i < s->n_gpus; i++)
        if (((get_fn)lib->fn[GET])(&device[i], s->gpus[i].device_id) != 0)
            return;
    for (int i = 0; f && i < s->n_gpus; i++)
        for (int k = 0; k < s->n_gpus; k++) {
            int can = 0;
            if (i != k && ((peer_fn)f)(&can, device[i], device[k]) == 0 && can)
                s->peers[i] |= 1u << k;
        }
    s->peers_known = f != NULL;
}

enum { NO_DEVICE = 100 }; /* CUDA_ERROR_NO_DEVICE */

/* Returns what the driver did: 0, or the first result that ended it. */
static int ask_driver(const bnet_library *lib, bnet_device_status *s)
{
    int version = 0, n = 0;
    if (((int_fn)lib->fn[VERSION])(&version) == 0 && version > 0)
        snprintf(s->version, sizeof s->version, "%d.%d", version / 1000, version % 1000 / 10);
    int r = ((init_fn)lib->fn[INIT])(0);
    if (r != 0) {
        fail(s, "cuInit", r);
        return r;
    }
    r = ((int_fn)lib->fn[COUNT])(&n);
    if (r != 0 || n <= 0) {
        r = r ? r : NO_DEVICE;
        fail(s, "cuDeviceGetCount", r);
        return r;
    }
    for (int i = 0; i < n && s->n_gpus < BNET_GPUS_MAX; i++)
        s->n_gpus += read_device(lib, i, &s->gpus[s->n_gpus], s);
    ask_peers(lib, s);
    s->available = s->runnable = s->n_gpus > 0;
    if (s->available) {
        snprintf(s->source, sizeof s->source, "driver");
        s->reason[0] = s->hint[0] = '\0';
    }
    return 0;
}

/* ---- fallback ---- */

static void ask_tool(const bnet_probe_options *o, bnet_device_status *s)
{
    static const char *const argv[] = {
        "nvidia-smi", "--query-gpu=index,uuid,name,memory.total,compute_cap,driver_version",
        "--format=csv,noheader,nounits", NULL};
    bnet_str out = {0};
    bnet_tool_result r = bnet_tool_run(o->tool_path, argv, o->tool_deadline_ms, &out);
    bnet_gpu *all = bnet_calloc(BNET_GPUS_MAX, sizeof *all); /* NULL: what it said is not read */
    char uuids[BNET_GPUS_MAX][BNET_UUID_MAX], driver[sizeof s->driver] = "";
    int order[BNET_GPUS_MAX];
    int n = r == BNET_TOOL_OK && all ? bnet_parse_nvidia_smi(out.data, out.n, all, BNET_GPUS_MAX,
                                                             uuids, driver, sizeof driver)
                                     : 0;
    int left = bnet_cuda_visible(o->visible, n, (const char(*)[BNET_UUID_MAX])uuids, order);
    bnet_str_free(&out);
    if (r == BNET_TOOL_TIMEOUT || r == BNET_TOOL_FLOOD)
        bnet_logf(o->log, BITNET_LOG_WARN, "device", "nvidia-smi %s", bnet_tool_text(r));
    for (int i = 0; i < left; i++) {
        s->gpus[i] = all[order[i]];
        s->gpus[i].device_id = i;
    }
    bnet_free(all);
    s->n_gpus = left;
    s->available = left > 0;
    if (driver[0])
        snprintf(s->driver, sizeof s->driver, "%s", driver);
    if (s->available)
        snprintf(s->source, sizeof s->source, "nvidia-smi");
}

static void find_toolkit(const bnet_world *w, const bnet_probe_options *o, bnet_device_status *s)
{
    static const char *const argv[] = {"nvcc", "--version", NULL};
    bnet_str out = {0};
    bnet_tool_result r = bnet_tool_run(o->tool_path, argv, o->tool_deadline_ms, &out);
    bool found =
        r == BNET_TOOL_OK && bnet_parse_nvcc(out.data, out.n, s->toolkit, sizeof s->toolkit);
    bnet_str_free(&out);
    if (found)
        return;
    if (r == BNET_TOOL_TIMEOUT || r == BNET_TOOL_FLOOD)
        bnet_logf(o->log, BITNET_LOG_WARN, "device", "nvcc %s", bnet_tool_text(r));
    char path[1024], text[5000];
    const char *home = o->cuda_home && o->cuda_home[0] ? o->cuda_home : "/usr/local/cuda";
    snprintf(path, sizeof path, "%s/version.json", home);
    long n = bnet_read_text(o->cuda_home ? "" : w->root, path, text, sizeof text);
    if (n > 0)
        bnet_parse_cuda_json(text, (size_t)n, s->toolkit, sizeof s->toolkit);
}

/* Nothing is left by CUDA_VISIBLE_DEVICES. */
static void hide(const bnet_probe_options *o, bnet_device_status *s)
{
    s->hidden = true;
    if (o->visible[0])
        snprintf(s->reason, sizeof s->reason, "CUDA_VISIBLE_DEVICES=%.60s leaves no CUDA device",
                 o->visible);
    else
        snprintf(s->reason, sizeof s->reason,
                 "CUDA_VISIBLE_DEVICES is set and empty: every CUDA device is hidden");
    snprintf(s->hint, sizeof s->hint, "unset CUDA_VISIBLE_DEVICES to use the GPU");
}

void bnet_probe_cuda(const bnet_world *w, const bnet_probe_options *o, bnet_device_status *s)
{
    char text[1024];
    bnet_library lib;
    bool none = false;
    long n = bnet_read_text(w->root, "/proc/driver/nvidia/version", text, sizeof text);
    if (n > 0)
        bnet_parse_nvidia_proc(text, (size_t)n, s->driver, sizeof s->driver);
    find_toolkit(w, o, s);
    if (o->visible && !o->visible[0]) {
        hide(o, s);
        return;
    }
    if (bnet_library_open(w->loader, names, wanted, &lib, s->reason, sizeof s->reason)) {
        none = ask_driver(&lib, s) == NO_DEVICE;
        bnet_library_close(&lib);
    } else {
        snprintf(s->hint, sizeof s->hint, HINT_DRIVER);
    }
    if (!s->available)
        ask_tool(o, s);
    if (!s->available && o->visible && none)
        hide(o, s);
}
