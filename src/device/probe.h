/* probe.h - inside of the device layer: the ways out to the world (dynamic libraries, vendor tools,
 * the file systems /proc and /sys), each replaceable so that tests decide what the machine is. */
#ifndef BNET_PROBE_H
#define BNET_PROBE_H

#include "device/device.h"

/* ---- the table of kinds ---- */

typedef struct bnet_kind {
    const char *name, *alias, *label;
    const char *remedy; /* how to get a backend; NULL: this version has none */
    const char *detection, *checked;
} bnet_kind;
const bnet_kind *bnet_kind_info(bnet_device_kind k);
/* By name or alias, any case; false if nobody is called so. */
bool bnet_kind_find(const char *text, size_t n, bnet_device_kind *out);
/* What --device may say, for messages; returns out. */
enum { BNET_KIND_VALUES = 200 };
const char *bnet_kind_values(char out[BNET_KIND_VALUES]);
/* What BITNET_HAVE_CUDA and its kin said when this was compiled. */
void bnet_compiled(bool compiled[BNET_DEV_COUNT]);

/* ---- several devices (ranks.c) ---- */

/* A list of devices of one kind; fails ARGUMENT. */
bitnet_status bnet_ranks_parse(const char *given, const char *source, bnet_request *out,
                               bitnet_error *err);

/* ---- dynamic libraries ---- */

typedef void (*bnet_fn)(void);

typedef struct bnet_loader {
    void *(*open)(void *user, const char *name); /* NULL: not there */
    bnet_fn (*sym)(void *user, void *lib, const char *name);
    void (*close)(void *user, void *lib);
    void *user;
} bnet_loader;

extern const bnet_loader bnet_dl; /* dlopen; libraries stay mapped after close */

/* A library and the functions wanted of it. */
typedef struct bnet_library {
    const bnet_loader *loader;
    void *handle;
    bnet_fn fn[12];
} bnet_library;

/* Opens the first of `names` (NULL-terminated) that exists and resolves all `wanted` (ditto). On
 * failure nothing stays open and `reason` says what was missing. */
bool bnet_library_open(const bnet_loader *l, const char *const *names, const char *const *wanted,
                       bnet_library *out, char *reason, size_t cap);
void bnet_library_close(bnet_library *lib);

/* ---- vendor tools ---- */

typedef enum bnet_tool_result {
    BNET_TOOL_OK,
    BNET_TOOL_ABSENT,  /* not found on the path */
    BNET_TOOL_FAILED,  /* could not start, or exit status other than 0 */
    BNET_TOOL_TIMEOUT, /* killed at the deadline, with all it started */
    BNET_TOOL_FLOOD,   /* killed: printed more than BNET_TOOL_MAX_OUTPUT */
} bnet_tool_result;

enum { BNET_TOOL_MAX_OUTPUT = 1 << 20 };

/* Runs argv[0], searched in `path` (as $PATH: colons), without a shell, in its own process group
 * with a minimal environment, and collects what it prints. When it returns, no process, no
 * descriptor is left. argv is NULL-terminated. */
bnet_tool_result bnet_tool_run(const char *path, const char *const *argv, int deadline_ms,
                               bnet_str *out);
const char *bnet_tool_text(bnet_tool_result r); /* "did not answer before the deadline" */

/* Parsers of tool output: pure, for any bytes. `s` needs no NUL. False (or 0): nothing usable. */

/* `nvidia-smi --query-gpu=index,uuid,name,memory.total,compute_cap,driver_version
 * --format=csv,noheader,nounits`. Returns how many devices were filled in. uuids may be NULL. */
enum { BNET_UUID_MAX = 48 };
int bnet_parse_nvidia_smi(const char *s, size_t n, bnet_gpu *out, int max,
                          char (*uuids)[BNET_UUID_MAX], char *driver, size_t driver_cap);
bool bnet_parse_nvcc(const char *s, size_t n, char *version, size_t cap); /* `nvcc --version` */
bool bnet_parse_cuda_json(const char *s, size_t n, char *version, size_t cap); /* version.json */
/* `/proc/driver/nvidia/version` */
bool bnet_parse_nvidia_proc(const char *s, size_t n, char *version, size_t cap);
int bnet_parse_rocm_smi(const char *s, size_t n, bnet_gpu *out, int max); /* `rocm-smi --showid` */
bool bnet_parse_rocm_version(const char *s, size_t n, char *version,
                             size_t cap); /* `rocm-smi --version` */

/* Which of n devices CUDA_VISIBLE_DEVICES leaves, in its order: indices or UUID prefixes, up to the
 * first entry that names nothing; an entry named twice leaves none. Returns how many. */
int bnet_cuda_visible(const char *visible, int n, const char (*uuids)[BNET_UUID_MAX], int *order);

/* ---- probes ---- */

/* Where the world is. Tests put their own in each place. */
typedef struct bnet_world {
    const bnet_loader *loader;
    const char *root; /* prefix of /proc and /sys: "" for the real ones */
    bool compiled[BNET_DEV_COUNT];
} bnet_world;
void bnet_world_real(bnet_world *w);

typedef void (*bnet_ask_fn)(const bnet_library *lib, bnet_device_status *s);
/* A kind that a library tells of: `ask` lists its devices. Without one *s gets a reason where `ask`
 * gave none. There is no hint: this version computes on none of these kinds. */
void bnet_library_ask(const bnet_world *w, const char *const *names, const char *const *wanted,
                      bnet_ask_fn ask, bnet_device_status *s);

/* bnet_probe in a given world. */
bitnet_status bnet_probe_world(const bnet_probe_options *o, const bnet_world *w, bnet_devices *out,
                               bitnet_error *err);
void bnet_probe_cpu(const bnet_world *w, bnet_cpu_info *out);
/* Each fills the status of its kind (zeroed before): available or a reason. */
void bnet_probe_cuda(const bnet_world *w, const bnet_probe_options *o, bnet_device_status *s);
void bnet_probe_hip(const bnet_world *w, const bnet_probe_options *o, bnet_device_status *s);
void bnet_probe_oneapi(const bnet_world *w, const bnet_probe_options *o, bnet_device_status *s);
void bnet_probe_opencl(const bnet_world *w, const bnet_probe_options *o, bnet_device_status *s);
void bnet_probe_vulkan(const bnet_world *w, const bnet_probe_options *o, bnet_device_status *s);

/* Calls fn for each folder of the control groups that bind this process by a controller ("cpu",
 * "memory"), from its own group up to the root of the tree; `unified`: of version 2; `group`: the
 * folder's name within its tree. */
typedef void bnet_group_fn(void *user, bool unified, const char *folder, const char *group);
void bnet_control_groups(const char *root, const char *controller, bnet_group_fn *fn, void *user);
/* Reads at most cap - 1 bytes of root + path and adds a NUL; -1 if it cannot be read. */
long bnet_read_text(const char *root, const char *path, char *buf, size_t cap);
/* The number of kB behind `key` ("MemTotal") in such a file, in bytes; 0 if it is not there. */
uint64_t bnet_kib_of(const char *text, const char *key);
/* Copies a name as one line of valid UTF-8: control characters and runs of spaces become one space,
 * broken bytes a question mark. */
void bnet_copy_name(char *dst, size_t cap, const char *src, size_t n);

#endif
