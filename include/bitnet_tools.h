/* bitnet_tools.h - what the machine and the files have and how fast models run: devices, kernels,
 * inspection, synthetic models, measurements and baselines.
 *
 * The rules of bitnet.h hold (errors, ownership, threads), but not its promise of stability. */
#ifndef BITNET_TOOLS_H
#define BITNET_TOOLS_H

#include "bitnet_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- devices: what this machine has, what this build computes on; docs/DEVICES.md ---- */

/* The library reads no environment: whoever does passes its values here. NULL: the variable is not
 * set. Texts need not outlive _open. */
typedef struct bitnet_devices_options {
    size_t struct_size;
    const char *gpu_fake;             /* BITNET_GPU_FAKE */
    bool strict;                      /* BITNET_STRICT_MODE: gpu_fake is ignored, with a warning */
    bool no_fake_gpu;                 /* BITNET_STRICT_NO_FAKE_GPU: a fake device is an error */
    const char *cuda_visible_devices; /* CUDA_VISIBLE_DEVICES */
    const char *cuda_home;            /* CUDA_HOME; NULL: /usr/local/cuda */
    const char *tool_path;            /* PATH, to find vendor tools; NULL: no tool is run */
    int tool_deadline_ms;             /* of each tool; 0: 2000 */
    bool quick;                       /* before a run: slow drivers that this build cannot use are
                                         not asked */
    bitnet_log_fn log;                /* NULL: silent */
    void *log_user;
} bitnet_devices_options;

typedef struct bitnet_devices bitnet_devices;

typedef enum bitnet_devices_view {
    BITNET_DEVICES_INFO = 0,      /* CPU, memory, one line of GPUs, compiled and available */
    BITNET_DEVICES_LIST = 1,      /* every kind and every device with its properties */
    BITNET_DEVICES_PREFLIGHT = 2, /* what is missing to compute on a GPU, remedies */
} bitnet_devices_view;

BITNET_API void bitnet_devices_options_init(bitnet_devices_options *options);
/* Looks at the machine once. Fails: ARGUMENT (gpu_fake names nothing known), NOT_AVAILABLE (a fake
 * device with no_fake_gpu), MEMORY. The result may be read from any thread. */
BITNET_API bitnet_status bitnet_devices_open(const bitnet_devices_options *options,
                                             bitnet_devices **out, bitnet_error *err);
BITNET_API void bitnet_devices_close(bitnet_devices *devices);
/* What was found, for people and for programs (one JSON object), ending in a newline; borrowed
 * until _close. NULL for a number that is no view. */
BITNET_API const char *bitnet_devices_text(const bitnet_devices *devices, bitnet_devices_view view);
BITNET_API const char *bitnet_devices_json(const bitnet_devices *devices, bitnet_devices_view view);
/* Some backend of this build has a real GPU to compute on: what `preflight --require` asks. */
BITNET_API bool bitnet_devices_preflight(const bitnet_devices *devices);
/* The second is of the kind the first is of; of any where none is compiled. Fakes count. */
BITNET_API bool bitnet_devices_gpu_compiled(const bitnet_devices *devices);
BITNET_API bool bitnet_devices_gpu_available(const bitnet_devices *devices);
/* Compiled and available, as these two; cpu always; false for what is no device. */
BITNET_API bool bitnet_devices_supports(const bitnet_devices *devices, const char *device);

/* ---- memory of the host ---- */

typedef struct bitnet_host_memory {
    uint64_t total_bytes, available_bytes, used_bytes; /* of the system */
    uint64_t process_bytes, process_peak_bytes;        /* resident */
    double used_percent;                               /* of the system's total */
} bitnet_host_memory;
/* Read anew at every call. Fails: NOT_AVAILABLE where the system does not say. */
BITNET_API bitnet_status bitnet_host_memory_read(bitnet_host_memory *out, bitnet_error *err);

/* ---- inspect: any GGUF file, also one we cannot run ---- */

typedef struct bitnet_inspect bitnet_inspect;

typedef struct bitnet_inspect_kv {
    const char *key;   /* NUL-terminated, borrowed until _close */
    const char *type;  /* "u32", "string", "array of string", ... */
    const char *value; /* as text; long arrays are cut with a count */
} bitnet_inspect_kv;

typedef struct bitnet_inspect_tensor {
    const char *name;
    const char *type; /* "I2_S" */
    uint32_t n_dims;
    uint64_t dims[4]; /* innermost first */
    uint64_t n_elems, n_bytes, offset;
} bitnet_inspect_tensor;

/* Found by reading the data. */
typedef struct bitnet_tensor_stats {
    double min, max, mean, rms;
    uint64_t n_nan, n_inf, n_zero;
    uint64_t n_minus, n_plus, n_invalid; /* ternary types: -1, +1, code 3 */
    float scale;                         /* I2_S; else 0 */
    bool ternary;
    char suspicious[160]; /* "" or what is wrong: "scale is nan", "all zero", "12 codes are 3" */
} bitnet_tensor_stats;

BITNET_API bitnet_status bitnet_inspect_open(const char *path, bitnet_inspect **out,
                                             bitnet_error *err);
BITNET_API void bitnet_inspect_close(bitnet_inspect *inspect);
BITNET_API uint32_t bitnet_inspect_version(const bitnet_inspect *inspect);
BITNET_API uint64_t bitnet_inspect_file_bytes(const bitnet_inspect *inspect);
BITNET_API size_t bitnet_inspect_n_kv(const bitnet_inspect *inspect);
BITNET_API size_t bitnet_inspect_n_tensors(const bitnet_inspect *inspect);
/* False past the end or without memory. */
BITNET_API bool bitnet_inspect_kv_at(bitnet_inspect *inspect, size_t i, bitnet_inspect_kv *out);
BITNET_API bool bitnet_inspect_tensor_at(bitnet_inspect *inspect, size_t i,
                                         bitnet_inspect_tensor *out);
/* Reads the whole tensor. Fails: ARGUMENT, MEMORY; a type without a decoder gives zeros and
 * suspicious "". */
BITNET_API bitnet_status bitnet_inspect_stats(bitnet_inspect *inspect, size_t i,
                                              bitnet_tensor_stats *out, bitnet_error *err);
/* SHA-256 of a file as 64 hex digits and a NUL. */
BITNET_API bitnet_status bitnet_file_sha256(const char *path, char hex[65], bitnet_error *err);

/* ---- what can be run ---- */

/* The i-th value of general.architecture that an engine opens, or NULL past the end. */
BITNET_API const char *bitnet_architecture_list(int i);
typedef struct bitnet_kernel_info {
    const char *id;     /* "linear_i2s.dotprod" */
    const char *op;     /* "linear" */
    const char *format; /* "i2s" */
    const char *isa;    /* "dotprod" */
    bool available;     /* this CPU has the instruction set */
} bitnet_kernel_info;

/* The i-th compiled kernel row, best first within an op; false past the end. */
BITNET_API bool bitnet_kernel_at(int i, bitnet_kernel_info *out);

/* ---- synthetic models: known shapes with random weights, without a file ---- */

typedef struct bitnet_synthetic_info {
    const char *name;  /* "2b-4t" */
    const char *about; /* whose shape it is */
    const char *architecture;
    const char *head; /* format of the embeddings and the head, unless another is asked for */
    int n_layers, n_embd, n_ff, n_heads, n_kv_heads, head_dim, n_vocab;
} bitnet_synthetic_info;
/* The i-th shape; false past the end. */
BITNET_API bool bitnet_synthetic_at(int i, bitnet_synthetic_info *out);

typedef struct bitnet_synthetic bitnet_synthetic;

/* Makes the model in memory: a whole GGUF file with I2_S projections and a generated vocabulary,
 * the same bytes every time. head NULL: the shape's own. Fails: ARGUMENT (names what is known), IO,
 * MEMORY. */
BITNET_API bitnet_status bitnet_synthetic_open(const char *name, const char *head,
                                               bitnet_synthetic **out, bitnet_error *err);
BITNET_API void bitnet_synthetic_close(bitnet_synthetic *synthetic);
BITNET_API const char *bitnet_synthetic_name(const bitnet_synthetic *synthetic);
/* As bitnet_engine_open; the engine may outlive the model. */
BITNET_API bitnet_status bitnet_synthetic_engine(const bitnet_synthetic *synthetic,
                                                 bitnet_runtime *runtime,
                                                 const bitnet_engine_options *options,
                                                 bitnet_engine **out, bitnet_error *err);
/* Writes it to a file that other programs can read. */
BITNET_API bitnet_status bitnet_synthetic_save(const bitnet_synthetic *synthetic, const char *path,
                                               bitnet_error *err);

/* ---- bench: how fast, and how fast it could be ---- */

typedef struct bitnet_peak {
    const char *name, *isa; /* "smmla", "i8mm" */
    double gop_s;           /* products and sums, all threads together */
} bitnet_peak;

enum { BITNET_PEAKS_MAX = 16 };

/* What the machine could do at best with the runtime's threads and instruction set. */
typedef struct bitnet_limits {
    size_t struct_size;
    int n_threads;
    double read_gb_s;      /* memory that no cache holds, every thread its own part end to end */
    double read_best_gb_s; /* the same with several streams and prefetching, the best found */
    bitnet_peak peaks[BITNET_PEAKS_MAX]; /* integer instructions on registers, best set first */
    size_t n_peaks;
} bitnet_limits;

BITNET_API void bitnet_limits_init(bitnet_limits *limits);
/* Measured at the call, about a second. A runtime that computes on another device than the CPU has
 * none of these: zeros. Fails: ARGUMENT, MEMORY. */
BITNET_API bitnet_status bitnet_limits_measure(bitnet_runtime *runtime, bitnet_limits *limits,
                                               bitnet_error *err);

typedef struct bitnet_bench_test {
    bool prompt;    /* pp: a prompt of n_tokens; else tg: n_tokens one after the other */
    int n_tokens;   /* 1.. */
    int depth;      /* tokens that are in the cache already */
    int n_sessions; /* bt: so many timelines make n_tokens each, one pass a step; 0: one timeline */
} bitnet_bench_test;

/* "pp512", "tg64", "bt64" (64 timelines of 32 tokens each). False: it is no such name (1..1048576
 * tokens). */
BITNET_API bool bitnet_bench_parse(const char *text, bitnet_bench_test *out);

typedef struct bitnet_bench_options {
    size_t struct_size;
    int n_ctx;   /* room for the longest test: depth + n_tokens + 1 */
    int n_batch; /* tokens per pass; default 512 */
    bitnet_kv_type kv_type;
    bitnet_cancel_fn cancel; /* may be NULL */
    void *cancel_user;
    uint64_t kv_pool_bytes;     /* bt: one cache of so many bytes for all timelines; 0: one each */
    bitnet_kv_policy kv_policy; /* who loses blocks of it when there are not enough */
} bitnet_bench_options;

/* One engine ready to be timed. Close it before the engine. */
typedef struct bitnet_bench bitnet_bench;

typedef struct bitnet_bench_run {
    double tok_s;
    size_t n_tokens, n_rebuilt; /* timed; of a kv_pool: computed again, their blocks were taken */
    double ms;
    double first_token_ms, total_ms; /* tg: of the whole call, what came before included */
} bitnet_bench_run;

BITNET_API void bitnet_bench_options_init(bitnet_bench_options *options);
BITNET_API bitnet_status bitnet_bench_open(bitnet_engine *engine,
                                           const bitnet_bench_options *options, bitnet_bench **out,
                                           bitnet_error *err);
BITNET_API void bitnet_bench_close(bitnet_bench *bench);
/* Times the test once: pp by bitnet_session_append, tg by _generate, bt by _batch_step, greedily;
 * the depth is computed before. Fails: CONTEXT, CANCELLED, MEMORY, ERROR. */
BITNET_API bitnet_status bitnet_bench_once(bitnet_bench *bench, const bitnet_bench_test *test,
                                           bitnet_bench_run *run, bitnet_error *err);
/* The kernels that ran since _open or the last _forget; as bitnet_engine_kernels. */
BITNET_API size_t bitnet_bench_kernels(const bitnet_bench *bench, bitnet_kernel_use *out,
                                       size_t cap);
BITNET_API void bitnet_bench_forget(bitnet_bench *bench);

typedef struct bitnet_summary {
    size_t n;
    double median, min, max;
    double spread; /* (max - min) / 2, relative to the median */
} bitnet_summary;
/* Sorts the values. Without any: zeros. */
BITNET_API bitnet_summary bitnet_summarize(double *values, size_t n);

/* Bytes of weights one token needs, the whole head counted, and the operations (products and sums)
 * of its linear layers. */
BITNET_API uint64_t bitnet_engine_token_bytes(const bitnet_engine *engine);
BITNET_API uint64_t bitnet_engine_token_ops(const bitnet_engine *engine);

typedef struct bitnet_profile_entry {
    const char *name; /* "linear", "head", "attention", ... , "sampling", "rest" */
    uint64_t n_calls;
    double ms;
    double share; /* of the whole */
} bitnet_profile_entry;

/* Where the time of n_tokens decode steps, or of a prompt of so many, goes at this depth, the
 * largest share first. No other session may be at work. Writes at most cap entries; *n: how many
 * there are; *total_ms: the time of all. Fails: ARGUMENT, as _once. */
BITNET_API bitnet_status bitnet_bench_profile(bitnet_bench *bench, const bitnet_bench_test *test,
                                              bitnet_profile_entry *out, size_t cap, size_t *n,
                                              double *total_ms, bitnet_error *err);

/* What a device's memory is used for, in bytes, and how the weights were loaded. */
typedef struct bitnet_memory_use {
    size_t struct_size;
    uint64_t weights, caches, workspace; /* ours, by purpose */
    uint64_t own, own_peak;              /* ours as taken from the driver, now and at the peak */
    uint64_t foreign; /* in use before us: the driver's context, other programs */
    uint64_t total;
    uint64_t load_bytes; /* of the file */
    double load_ms;      /* from reading the first tensor until the last is loaded */
} bitnet_memory_use;

BITNET_API void bitnet_memory_use_init(bitnet_memory_use *use);
/* Any thread. Fails: ARGUMENT, NOT_AVAILABLE (a device without memory of its own: the CPU). */
BITNET_API bitnet_status bitnet_engine_memory_use(const bitnet_engine *engine,
                                                  bitnet_memory_use *use, bitnet_error *err);
/* What bitnet_session_memory said of the bench's sessions before they were opened. */
BITNET_API uint64_t bitnet_bench_memory(const bitnet_bench *bench);

/* What one launch of a kernel takes of a GPU; zeros on a CPU. */
typedef struct bitnet_launch {
    unsigned grid[3], block; /* blocks; threads of a block */
    unsigned shared_bytes;   /* of a block */
    int registers;           /* of a thread */
    int blocks_per_sm;       /* that fit on a multiprocessor at once */
    double occupancy;        /* their threads / those it can hold */
} bitnet_launch;

/* All launches of one kernel in a test, timed by the device's own clock, each by itself. */
typedef struct bitnet_kernel_time {
    const char *kernel, *op; /* live as long as the engine */
    int variant;             /* 0, 1, ...: which code of that kernel */
    uint64_t n_launches;
    double ms;
    bitnet_launch launch; /* of the last one */
} bitnet_kernel_time;

/* Kernel by kernel through a test, the most time first: the test is done once as always
 * (*total_ms), then once with every kernel launched and timed alone; what they add up to may be
 * more than the whole, because kernels overlap. No other session of the engine may be at work.
 * Fails: ARGUMENT, NOT_AVAILABLE (a CPU: see _profile), as _once. */
BITNET_API bitnet_status bitnet_bench_kernel_times(bitnet_bench *bench,
                                                   const bitnet_bench_test *test,
                                                   bitnet_kernel_time *out, size_t cap, size_t *n,
                                                   double *total_ms, bitnet_error *err);

/* One kernel on one shape of an engine: gb_s of its weights (m = 1, weights larger than the last
 * cache in turn) or gop_s (m = 512). */
typedef struct bitnet_kernel_rate {
    bitnet_kernel_query shape;
    const char *kernel;
    bool chosen; /* it would serve this shape */
    double ms;   /* of one pass, median */
    double gb_s, gop_s;
    bitnet_launch launch;
} bitnet_kernel_rate;
typedef void (*bitnet_kernel_rate_fn)(void *user, const bitnet_kernel_rate *rate);

/* Every kernel that can run here on every shape of the engine's matrices, with m tokens. Fails:
 * ARGUMENT, NOT_AVAILABLE (a device that is not measured so), MEMORY. */
BITNET_API bitnet_status bitnet_bench_each_kernel(bitnet_engine *engine, uint64_t m, int n_repeats,
                                                  bitnet_kernel_rate_fn each, void *user,
                                                  bitnet_error *err);

/* ---- baselines: has anything become slower? ---- */

typedef struct bitnet_regression {
    char name[128]; /* "tg128 story.gguf cpu 2": name, model, device, threads of the row */
    double before, now;
    double change; /* relative, positive is better; -1 for a row that is missing */
    bool missing, regressed;
} bitnet_regression;
typedef void (*bitnet_regression_fn)(void *user, const bitnet_regression *row);

typedef struct bitnet_baseline_result {
    size_t n_compared, n_regressed, n_missing, n_new;
} bitnet_baseline_result;

/* Compares JSON lines of `now` with those of `baseline`. A row is an object with "name" (a text),
 * "value" (a number above 0), and, where present, "model", "device", "threads", which belong to its
 * identity, and "better": "higher" (default) or "lower". Other members are ignored. Of rows that
 * occur twice the last counts. A row of the baseline that is missing now, or is worse by more than
 * max_regress (0.05: five per cent), is a regression: PERFORMANCE. `each` (may be NULL) is told
 * every row of the baseline. Fails also: ARGUMENT (not such lines; the message names the line),
 * MEMORY. */
BITNET_API bitnet_status bitnet_baseline_compare(const char *baseline, size_t n_baseline,
                                                 const char *now, size_t n_now, double max_regress,
                                                 bitnet_regression_fn each, void *user,
                                                 bitnet_baseline_result *result, bitnet_error *err);

#ifdef __cplusplus
}
#endif
#endif
