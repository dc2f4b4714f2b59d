/* probe_hip.c - AMD devices, asked of the HIP runtime; of rocm-smi where that is not installed. */
#include "device/probe.h"

#include <stdio.h>

enum { INIT, VERSION, COUNT, NAME, MEMORY, CAPABILITY, ATTRIBUTE };
static const char *const names[] = {"libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6",
                                    "libamdhip64.so.5", NULL};
static const char *const wanted[] = {
    "hipInit",           "hipRuntimeGetVersion",       "hipGetDeviceCount",     "hipDeviceGetName",
    "hipDeviceTotalMem", "hipDeviceComputeCapability", "hipDeviceGetAttribute", NULL};

typedef int (*init_fn)(unsigned flags);
typedef int (*int_fn)(int *out);
typedef int (*name_fn)(char *name, int n, int device);
typedef int (*memory_fn)(size_t *bytes, int device);
typedef int (*capability_fn)(int *major, int *minor, int device);
typedef int (*attribute_fn)(int *value, int attribute, int device);

/* hipDeviceAttribute_t since ROCm 4.5 */
enum { MAX_THREADS_PER_BLOCK = 56, MULTIPROCESSORS = 63, MAX_SHARED_PER_BLOCK = 74 };

static int attribute(const bnet_library *lib, int which, int device)
{
    int v = 0;
    if (((attribute_fn)lib->fn[ATTRIBUTE])(&v, which, device) != 0 || v < 0)
        return 0;
    return v;
}

static void read_device(const bnet_library *lib, int i, bnet_gpu *g)
{
    char name[256] = "";
    size_t bytes = 0;
    *g = (bnet_gpu){.device_id = i};
    if (((name_fn)lib->fn[NAME])(name, (int)sizeof name - 1, i) == 0)
        bnet_copy_name(g->name, sizeof g->name, name, sizeof name);
    if (((memory_fn)lib->fn[MEMORY])(&bytes, i) == 0)
        g->total_memory = bytes;
    ((capability_fn)lib->fn[CAPABILITY])(&g->cc_major, &g->cc_minor, i);
    g->multiprocessors = attribute(lib, MULTIPROCESSORS, i);
    g->max_threads_per_block = attribute(lib, MAX_THREADS_PER_BLOCK, i);
    g->max_shared_memory_per_block = (uint64_t)attribute(lib, MAX_SHARED_PER_BLOCK, i);
    g->fp16 = g->cc_major >= 8; /* GCN 3 on; the runtime does not tell of BF16 */
}

static void ask_runtime(const bnet_library *lib, bnet_device_status *s)
{
    int version = 0, n = 0;
    int r = ((init_fn)lib->fn[INIT])(0);
    if (r == 0)
        r = ((int_fn)lib->fn[COUNT])(&n);
    if (r != 0 || n <= 0) {
        snprintf(s->reason, sizeof s->reason,
                 "the HIP runtime finds no device (hipGetDeviceCount: error %d, %d devices)", r, n);
        return;
    }
    if (((int_fn)lib->fn[VERSION])(&version) == 0 && version > 0)
        snprintf(s->version, sizeof s->version, "%d.%d", version / 10000000,
                 version / 100000 % 100);
    for (int i = 0; i < n && i < BNET_GPUS_MAX; i++)
        read_device(lib, i, &s->gpus[s->n_gpus++]);
}

static bnet_tool_result rocm_smi(const bnet_probe_options *o, const char *option, bnet_str *out)
{
    const char *argv[] = {"rocm-smi", option, NULL};
    bnet_tool_result r = bnet_tool_run(o->tool_path, argv, o->tool_deadline_ms, out);
    if (r == BNET_TOOL_TIMEOUT || r == BNET_TOOL_FLOOD)
        bnet_logf(o->log, BITNET_LOG_WARN, "device", "rocm-smi %s", bnet_tool_text(r));
    return r;
}

/* A tool that hung once is not asked again. */
static void ask_tool(const bnet_probe_options *o, bnet_device_status *s)
{
    bnet_str ids = {0}, version = {0};
    if (rocm_smi(o, "--showid", &ids) == BNET_TOOL_OK)
        s->n_gpus = bnet_parse_rocm_smi(ids.data, ids.n, s->gpus, BNET_GPUS_MAX);
    s->available = s->n_gpus > 0;
    if (s->available) {
        snprintf(s->source, sizeof s->source, "rocm-smi");
        if (rocm_smi(o, "--version", &version) == BNET_TOOL_OK)
            bnet_parse_rocm_version(version.data, version.n, s->version, sizeof s->version);
    }
    bnet_str_free(&ids);
    bnet_str_free(&version);
}

void bnet_probe_hip(const bnet_world *w, const bnet_probe_options *o, bnet_device_status *s)
{
    bnet_library_ask(w, names, wanted, ask_runtime, s);
    if (!s->available)
        ask_tool(o, s);
}
