/* device.h - what hardware there is, said truthfully: compiled in and available are two facts, a
 * fake is called fake. Facts come from driver APIs first (by dlopen), from vendor tools second
 * (with a deadline). Nothing here computes. */
#ifndef BNET_DEVICE_H
#define BNET_DEVICE_H

#include "base/str.h"
#include "bitnet_tools.h"

/* BNET_DEV_CUDA, ...: the rows of kinds.inc. Those before BNET_DEV_CPU are accelerators. */
typedef enum bnet_device_kind {
#define KIND(id, ...) BNET_DEV_##id,
#include "device/kinds.inc"
#undef KIND
    BNET_DEV_COUNT
} bnet_device_kind;

const char *bnet_device_name(bnet_device_kind k);  /* "cuda", "hip", ..., "cpu" */
const char *bnet_device_label(bnet_device_kind k); /* "NVIDIA CUDA", ... */
/* Has this version of bitnet a backend for the kind, in this build or in another? */
bool bnet_device_supported(bnet_device_kind k);

/* What the CUDA kernels of a build are made with and for; all empty: it has none. */
typedef struct bnet_cuda_build {
    const char *archs;   /* "sm_75 sm_80 sm_90a compute_80" */
    const char *toolkit; /* its version: "13.0" */
    const char *known;   /* what it could have compiled for: "sm_75 sm_80 sm_86 ..." */
    int driver;          /* the least version of the driver's API, the major number: 13 */
} bnet_cuda_build;
extern const bnet_cuda_build bnet_cuda_this_build;
const char *bnet_cuda_archs(void); /* of this build */
/* The lowest compute capability of such a list, ten times its number; 0: the list is empty. */
int bnet_cuda_least(const char *archs);
/* Does any of them run on a chip of this compute capability? */
bool bnet_cuda_serves(const char *archs, int cc_major, int cc_minor);
/* A chip's compute capability becomes the one up to which it has kernels of them: that of the code
 * it runs, which may be made for an earlier chip. Kernels of 9.0 are in code for that chip alone.
 */
void bnet_cuda_code(const char *archs, int *major, int *minor);
/* Markdown table of what each kind is detected by, and what this build computes on (DET-19). */
void bnet_device_matrix(const bool compiled[BNET_DEV_COUNT], bnet_str *out);

/* One GPU: the nine fields of DET-11, and two more. Zero and "" where the source did not say. */
typedef struct bnet_gpu {
    int device_id;
    char name[96];
    int cc_major, cc_minor;
    uint64_t total_memory;
    int multiprocessors, max_threads_per_block;
    uint64_t max_shared_memory_per_block;
    bool fp16, bf16;
    uint64_t max_shared_memory_optin; /* CUDA: what a kernel may ask for explicitly */
    bool software; /* a driver that computes on the CPU (OpenCL or Vulkan without a GPU) */
} bnet_gpu;

/* Can kernels of the build run on the device under this driver (API "12.4"; "": not known)? A
 * device that does not tell its capability is let through. Fails NOT_AVAILABLE (the driver is too
 * old) or NOT_COMPILED (no kernels for the chip), naming what the build needs of the driver and of
 * the chip, what its toolkit compiles for, and a remedy that works with that toolkit. */
bitnet_status bnet_cuda_check(const bnet_cuda_build *b, const char *driver_api, const bnet_gpu *g,
                              bitnet_error *err);
/* "kernels for sm_75 sm_80 (compute capability 7.5 and later), compiled with CUDA 13.0, which
 * begins at 7.5; the driver must serve CUDA 13.0 or later" */
void bnet_cuda_minima(const bnet_cuda_build *b, bnet_str *out);

/* Capability tiers of DET-13 as D-8..D-10 decide: FP16 arithmetic from 6.0, tensor cores 7.0,
 * BF16 8.0, FP8 8.9. */
typedef struct bnet_gpu_caps {
    bool fp16, tensor_cores, bf16, fp8,
        auto_fp16; /* auto_fp16: Auto precision prefers FP16 (7.0 on) */
} bnet_gpu_caps;
bnet_gpu_caps bnet_gpu_capabilities(int cc_major, int cc_minor);
/* Has a device of these capabilities arithmetic of that precision? AUTO and FP32: always. */
bool bnet_precision_has(const bnet_gpu_caps *c, bitnet_precision p);
/* The i-th precision to try for the one asked for, best first; FP32 is always the last. */
bitnet_precision bnet_precision_at(const bnet_gpu_caps *c, bitnet_precision wanted, int i);

enum { BNET_GPUS_MAX = 16 };

/* What is known of one kind of device. */
typedef struct bnet_device_status {
    bool compiled;    /* this build has a backend for it */
    bool available;   /* present at run time (or faked) */
    bool fake;        /* available only by BITNET_GPU_FAKE */
    bool runnable;    /* its driver library answered: neither a fake nor only a tool's word */
    bool hidden;      /* by CUDA_VISIBLE_DEVICES: not asked, or none was left */
    char source[24];  /* "driver", "nvidia-smi", "fake", "" */
    char version[48]; /* of the API or runtime ("12.4"), "" if unknown */
    char driver[48];  /* CUDA: of the kernel driver ("550.54.15"), "" if unknown */
    char toolkit[48]; /* CUDA: toolkit version, "" if unknown */
    char reason[160]; /* why it is not available */
    char hint[240];   /* what to do about it; "": nothing helps this version */
    int n_gpus;
    bnet_gpu gpus[BNET_GPUS_MAX];
    bool peers_known;              /* the driver was asked */
    uint32_t peers[BNET_GPUS_MAX]; /* bit j of i: device i can read the memory of j itself */
} bnet_device_status;

typedef struct bnet_cpu_info {
    char brand[96];
    uint32_t features; /* cpu_features.h */
    int n_logical, n_physical, n_usable, n_numa_nodes;
    int sve_bytes;                           /* vector length, 0 without SVE */
    uint64_t l1d_bytes, l2_bytes, l3_bytes;  /* one instance of each */
    uint64_t memory_total, memory_available; /* system */
    uint64_t memory_limit;                   /* of our control group, 0: none */
    uint64_t process_rss, process_peak_rss;
} bnet_cpu_info;

typedef struct bnet_devices {
    bnet_cpu_info cpu;
    bnet_device_status kind[BNET_DEV_COUNT];
    bool wgpu;         /* true whenever another GPU is present */
    bool fake_ignored; /* a fake was set and strict mode ignored it: say so */
} bnet_devices;

typedef struct bnet_probe_options {
    const char *fake;      /* value of BITNET_GPU_FAKE; NULL: unset (probe the real machine); "" or
                              "none": no GPU */
    bool strict;           /* BITNET_STRICT_MODE: a fake is ignored, with a warning */
    bool no_fake;          /* BITNET_STRICT_NO_FAKE_GPU: a fake is a fatal error */
    const char *visible;   /* CUDA_VISIBLE_DEVICES; NULL: unset */
    const char *cuda_home; /* CUDA_HOME; NULL: /usr/local/cuda */
    const char *tool_path; /* PATH to search vendor tools in; NULL: do not run tools */
    int tool_deadline_ms;  /* default 2000 */
    bool quick; /* for starting up: OpenCL, Vulkan and Level Zero, whose drivers bring whole
                   compilers along, are asked only if this build could use them; else "not asked" */
    const bnet_log *log;
} bnet_probe_options;

/* Fills *out. Fails: NOT_AVAILABLE (fake with no_fake), ARGUMENT (a fake value nobody knows, naming
 * the known). A fake that names a device hides the real GPUs; it is listed as available and fake,
 * and never runs anything. CUDA_VISIBLE_DEVICES is obeyed by the CUDA driver itself, which reads
 * the environment of the process; here it explains an empty list and filters what nvidia-smi says.
 */
bitnet_status bnet_probe(const bnet_probe_options *o, bnet_devices *out, bitnet_error *err);
void bnet_probe_options_init(bnet_probe_options *o);
/* The kind that the pair of DET-9 is about, so that both are true of the same one: the first that
 * is compiled in and has a GPU (fake included), else the first compiled in, else the first with a
 * GPU; BNET_DEV_CPU: there is none of either. */
bnet_device_kind bnet_gpu_kind(const bnet_devices *d);
bool bnet_gpu_compiled(const bnet_devices *d);          /* any GPU backend in this build */
bool bnet_gpu_available_runtime(const bnet_devices *d); /* a GPU of that kind is present now */
bool bnet_gpu_present(const bnet_devices *d);           /* of any kind */
bool bnet_supports_device(const bnet_devices *d,
                          bnet_device_kind k); /* compiled and available; CPU always */
/* "cuda 1 device(s) (CUDA 12.4), vulkan 1 device(s)" or "no GPU backend available" */
void bnet_devices_summary(const bnet_devices *d, bnet_str *out);

/* ---- request -> selection ---- */

/* How a model is divided among several devices. */
typedef enum bnet_split_kind {
    BNET_SPLIT_NONE,
    BNET_SPLIT_LAYER, /* each has some of the layers; they work one after the other */
    BNET_SPLIT_TENSOR /* each has some rows of every matrix; they work together */
} bnet_split_kind;

/* Which devices work together. The same one several times: virtual ranks, for tests. */
typedef struct bnet_selection_ranks {
    bnet_split_kind split;
    int n; /* 0 or 1: one device alone */
    int index[BNET_GPUS_MAX];
} bnet_selection_ranks;
/* How many different devices these are. */
int bnet_ranks_devices(const bnet_selection_ranks *r);
/* "cuda:0,cuda:0 split=layer (2 virtual ranks on one device)" */
void bnet_ranks_text(bnet_device_kind k, const bnet_selection_ranks *r, char *out, size_t cap);

typedef struct bnet_request {
    bool is_auto, any_gpu;
    bool strict; /* auto does not pass over a GPU that is there and cannot be used */
    bnet_device_kind kind;
    int index;                  /* cuda:1; -1: any */
    char text[160];             /* as asked, for the summary: "auto", "cuda:1", "cuda:0,cuda:1" */
    bnet_selection_ranks ranks; /* n: how many were listed */
    bool all;                   /* a split was asked for and no index: all devices of the kind */
} bnet_request;

/* auto cpu gpu cuda[:i] hip(=rocm) oneapi opencl(=ocl) vulkan metal npu, any case; NULL: auto.
 * `source` names where the value came from ("--device", "BITNET_DEVICE") in messages. Fails
 * ARGUMENT naming the allowed set. */
bitnet_status bnet_request_parse(const char *text, const char *source, bnet_request *out,
                                 bitnet_error *err);

/* Adds `--split none|layer|tensor` to a parsed request (NULL: layer if several devices were listed,
 * else none). Fails ARGUMENT: an unknown word; none for several devices; a split without a kind. */
bitnet_status bnet_request_split(const char *text, const char *source, bnet_request *r,
                                 bitnet_error *err);

typedef struct bnet_selection {
    bnet_device_kind kind;
    int index;
    bool is_auto; /* nobody asked for this one */
    bnet_selection_ranks ranks;
    char summary[512]; /* "requested=auto detected=[cuda,cpu] selected=cuda" */
    char passed[400];  /* auto took the CPU though there is a GPU, or may be: why; else "" */
} bnet_selection;

/* Can this build compute on device `index` of a kind? The one place that decides it: whatever
 * selects, lists or checks devices asks here. Fails with the first that holds: NOT_AVAILABLE (a
 * fake), NOT_COMPILED (no backend in this build), NOT_AVAILABLE (no driver answers, no such device,
 * the driver is too old), NOT_COMPILED (no kernels for the chip); the message has the remedy. */
bitnet_status bnet_device_check(const bnet_devices *d, bnet_device_kind k, int index,
                                bitnet_error *err);

/* auto: the first GPU that passes bnet_device_check, else cpu. A fake is detected but never
 * selected; a driver that computes on the CPU is chosen only by name. Explicit requests never fall
 * back: they fail as the check does. */
bitnet_status bnet_select(const bnet_devices *d, const bnet_request *r, bnet_selection *out,
                          bitnet_error *err);
/* The same selection, gone back to the CPU. */
void bnet_select_cpu(bnet_selection *s);

/* ---- planning: pure functions over a device record ---- */

typedef struct bnet_launch {
    int block;          /* 16 or 32: threads are block * block */
    int grid_x, grid_y; /* x over columns (n), y over rows (m) */
    uint64_t shared_bytes;
} bnet_launch;
bnet_launch bnet_launch_params(const bnet_gpu *g, uint64_t m, uint64_t n,
                               uint64_t k); /* K-22, D-11 */
/* Blocks of a persistent kernel: `per_sm` on every multiprocessor (DET-15). At least 1. */
int bnet_persistent_grid(const bnet_gpu *g, int per_sm);
typedef struct bnet_memory_plan {
    int max_batch;   /* timelines of a recorded step */
    int pass_tokens; /* of a pass; longer prompts are divided */
    uint64_t workspace_bytes, shared_bytes;
    const char *policy; /* "conservative" (< 8 GB), "standard", "large" (> 16 GB) */
} bnet_memory_plan;
bnet_memory_plan bnet_memory_policy(const bnet_gpu *g); /* DET-14 */
/* The cap of a pool of buffers on a device (D-34): 2 GiB, at most a tenth of its memory; 0 bytes:
 * not known. */
uint64_t bnet_buffer_cap(uint64_t device_bytes);
/* Explanation and remedy for a CUresult (DET-20); never NULL. */
const char *bnet_cuda_error_hint(int cu_result, const char **name);

/* ---- memory of the host, read anew at every call (M-8, D-35); `root` "": the real /proc ---- */

/* False where the system does not say. */
bool bnet_host_memory_read(const char *root, bitnet_host_memory *out);
/* What is resident of this process, page by page: process_bytes is a sum of counters that some
 * kernels keep for each CPU and add up only roughly (megabytes off with many). Slower. */
bool bnet_resident_read(const char *root, uint64_t *n_bytes);

/* What this process can still take, in bytes, and what sets that limit: the machine's MemAvailable,
 * a control group of ours or above it (version 1 or 2; what it has cached of files and can give up
 * counts as free), RLIMIT_AS or RLIMIT_DATA. */
typedef struct bnet_host_room {
    uint64_t free;
    char limit[160]; /* "the limit of control group /a/b of 2.00 GiB" */
} bnet_host_room;
bnet_host_room bnet_host_room_read(const char *root);
/* What a program has promised of the host's memory. */
typedef struct bnet_host_ledger {
    atomic_uint_fast64_t reserved; /* bytes that were promised and have not been touched yet */
    const char *root;              /* where /proc and /sys are; NULL: as everywhere */
} bnet_host_ledger;
/* Fails MEMORY if `need` bytes do not fit beside what is reserved. `what` begins the message and
 * ends before the size; `remedy` says what to do instead. With `held`, *held bytes (0 after a
 * failure) are reserved then, so that others who ask see them, until the caller takes them off
 * again. */
bitnet_status bnet_host_admit(bnet_host_ledger *l, uint64_t need, const char *what,
                              const char *remedy, uint64_t *held, bitnet_error *err);

/* ---- preflight (DET-7) ---- */

/* Text for people: what is there, what is missing, a remedy for what this build could compute on.
 * Returns what a request for `gpu` would: OK if some backend of this build has a real device to
 * compute on, else the reason in *err. */
bitnet_status bnet_preflight(const bnet_devices *d, bnet_str *out, bitnet_error *err);
/* "Device 0: NVIDIA H200 (CC 9.0)" and its properties, as `bitnet devices` lists them (DET-12). */
void bnet_gpu_text(const bnet_gpu *g, bnet_str *out);
/* Which devices of a kind can copy from which directly; nothing where that is not known. */
void bnet_topology_text(bnet_device_kind k, const bnet_device_status *s, bnet_str *out);

#endif
