/* bitnet_dev.h - for tools and kernel authors: looking into model files, listing kernels.
 * Same rules as bitnet.h (errors, ownership, threads), but no promise of stability between
 * versions. */
#ifndef BITNET_DEV_H
#define BITNET_DEV_H

#include "bitnet.h"

#ifdef __cplusplus
extern "C" {
#endif

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

/* ---- kernels ---- */

typedef struct bitnet_kernel_info {
    const char *id;     /* "linear_i2s.dotprod" */
    const char *op;     /* "linear" */
    const char *format; /* "i2s" */
    const char *isa;    /* "dotprod" */
    bool available;     /* this CPU has the instruction set */
} bitnet_kernel_info;

/* The i-th compiled kernel row, best first within an op; false past the end. */
BITNET_API bool bitnet_kernel_at(int i, bitnet_kernel_info *out);

/* ---- kernel registry: one per runtime; docs/KERNEL.md ---- */

#define BITNET_KERNEL_ABI 1 /* of the types below; a kernel made for another one is refused */

/* Op "linear", format "i2s", dtype "i8". acc[t][r] = sum over k of trit[r][k] * x[t][k], exactly:
 * n_rows rows of n_blocks * 32 bytes, 128 weights in 32 bytes (element i of a block in byte i % 32,
 * bits 6 - 2 * (i / 32); codes 0,1,2 = -1,0,+1); 1..16 tokens, x[t] at x + t * x_stride with
 * n_blocks * 128 values, x_sum[t] their sum; acc is [n_tokens][n_rows]. Called from several threads
 * at once with different rows; a pass of M tokens comes in pieces. */
typedef void bitnet_fn_ternary(const uint8_t *w, size_t n_blocks, size_t n_rows, const int8_t *x,
                               size_t x_stride, const int32_t *x_sum, size_t n_tokens,
                               int32_t *acc);
/* Format "i2s_b256", dtype "i8": the same with one scale per 256 weights, scales[r][n_blocks / 2];
 * y[t][r] = sum over b, ascending, of scales[r][b] * (float)(integer sum of block b). */
typedef void bitnet_fn_ternary_scaled(const uint8_t *w, size_t n_blocks, const float *scales,
                                      size_t n_rows, const int8_t *x, size_t x_stride,
                                      size_t n_tokens, float *y);
/* Formats "f32", "f16", "bf16", "q8_0", "q4_0", "q6_k", and "q4_k", "iq4_nl", "q1_0", "q2_0", which
 * have no kernel in the tree; dtype "f32". One weight row against 1..8 tokens: y[t] = dot(row,
 * x[t]). */
typedef void bitnet_fn_linear(const uint8_t *row, const float *x, size_t x_stride, size_t n_cols,
                              size_t n_tokens, float *y);
/* Op "rmsnorm", format "f32", dtype "f32"; y may be x. */
typedef void bitnet_fn_rmsnorm(const float *x, const float *w, size_t n, float eps, float *y);
/* Op "quantize", format "i8", dtype "f32": q[0..n), zero up to stride; returns the scale. */
typedef float bitnet_fn_quantize(const float *x, size_t n, size_t stride, int8_t *q, int32_t *sum);
/* Op "glu", formats "relu2", "silu", dtype "f32". */
typedef void bitnet_fn_glu(const float *gate, const float *up, size_t n, float *y);
/* Op "add", format "f32", dtype "f32": x += y. */
typedef void bitnet_fn_add(float *x, const float *y, size_t n);

typedef enum bitnet_kernel_tier {
    BITNET_TIER_REFERENCE = 0,
    BITNET_TIER_OPTIMIZED = 1,
    BITNET_TIER_HIGHLY = 2,
    BITNET_TIER_EXTREMELY = 3,
} bitnet_kernel_tier;

/* min <= size <= max (0: no limit) and size % multiple == 0 (0, 1: any) */
typedef struct bitnet_dim_rule {
    uint64_t min, max, multiple;
} bitnet_dim_rule;

/* A kernel of yours, for the CPU. Texts are copied. */
typedef struct bitnet_kernel {
    size_t struct_size;
    uint32_t abi;   /* BITNET_KERNEL_ABI, set by _init */
    const char *id; /* unique: "linear_i2s.mine"; letters, digits, _.:-, at most 128, no "mock" */
    const char *op, *format, *dtype; /* the key */
    const char *isa;         /* what it needs: "scalar" (default), "neon", "dotprod", "avx2" */
    bitnet_kernel_tier tier; /* the highest compatible is chosen; yours before ours on ties */
    uint64_t temp_bytes;     /* scratch it takes for itself */
    uint32_t alignment;      /* of the weights, at which it runs best */
    bitnet_dim_rule m, n, k; /* tokens of a pass, outputs, inputs */
    const char *agreement;   /* "exact" (default) or "close(4 ulp)", with the scalar kernel */
    void (*fn)(void);        /* of the type its op and format say, cast */
} bitnet_kernel;

typedef enum bitnet_priority {
    BITNET_PRIORITY_SPEED = 0,     /* tuning cache, else the highest tier */
    BITNET_PRIORITY_MEMORY = 1,    /* the least temp_bytes */
    BITNET_PRIORITY_REFERENCE = 2, /* the lowest tier */
} bitnet_priority;

typedef struct bitnet_kernel_query {
    const char *op, *format, *dtype;
    uint64_t m, n, k; /* 0: not known, rules on it are not applied */
    bitnet_priority priority;
} bitnet_kernel_query;

BITNET_API void bitnet_kernel_init(bitnet_kernel *kernel);
/* Any thread, any time; engines opened afterwards use it, running ones from their next pass on (ops
 * other than linear: from the next engine on). The function must stay callable until the runtime is
 * closed. Fails: ARGUMENT (id taken, ABI, missing or wrong field, unknown key or isa, agreement, a
 * rule on sizes where op is not linear), MEMORY (full). */
BITNET_API bitnet_status bitnet_kernel_register(bitnet_runtime *runtime,
                                                const bitnet_kernel *kernel, bitnet_error *err);
/* Is there a kernel for this key that this CPU can run? False for anything unknown. */
BITNET_API bool bitnet_runtime_has_kernel(const bitnet_runtime *runtime, const char *op,
                                          const char *format, const char *dtype);
/* The id of the kernel that would serve; borrowed until the runtime is closed. Fails NOT_AVAILABLE:
 * UnsupportedKernelConfiguration or NoCompatibleKernel with each candidate's reason. */
BITNET_API bitnet_status bitnet_runtime_select(const bitnet_runtime *runtime,
                                               const bitnet_kernel_query *query, const char **id,
                                               bitnet_error *err);
/* All records with all fields as JSON: {"provider", "generation", "kernels": [{"id", "device",
 * "op", "format", "dtype", "isa", "tier", "temp_bytes", "alignment", "constraints": {"m": {"min",
 * "max", "multiple"}, ...}, "requires": {...}, "abi", "agreement", "available"}]}. With a query:
 * only the records of its op (and format, dtype, where not NULL), each with "veto" (the reason, ""
 * if none) and "selected". *n_bytes is always set; at most cap bytes are written, no NUL. Fails:
 * ARGUMENT (cap too small: call again), MEMORY. */
BITNET_API bitnet_status bitnet_kernels_json(const bitnet_runtime *runtime,
                                             const bitnet_kernel_query *query, char *out,
                                             size_t cap, size_t *n_bytes, bitnet_error *err);

/* ---- providers: what a family of kernels is called, in order of preference ---- */

typedef struct bitnet_provider_info {
    int priority;       /* 1 is best */
    const char *name;   /* "cuda", ..., "avx2", "neon", ..., "fallback" */
    const char *device; /* "cuda", "cpu" */
    bool available;     /* has kernels this machine can run */
} bitnet_provider_info;
BITNET_API bool bitnet_provider_at(const bitnet_runtime *runtime, int i, bitnet_provider_info *out);
/* The name of the provider that ternary matrices run on: "dotprod". Chosen once. */
BITNET_API const char *bitnet_runtime_provider(const bitnet_runtime *runtime);

/* ---- tuning: measured choices ---- */

/* The distinct shapes of an engine's matrices, m = 0; returns how many there are. */
BITNET_API size_t bitnet_engine_shapes(const bitnet_engine *engine, bitnet_kernel_query *out,
                                       size_t cap);

typedef struct bitnet_tune_result {
    bitnet_kernel_query shape;
    const char *kernel; /* one candidate */
    double median_ms;
    bool best;
} bitnet_tune_result;
typedef void (*bitnet_tune_fn)(void *user, const bitnet_tune_result *result);

/* Measures every compatible kernel on every shape (m, n, k all set) with n_repeats interleaved
 * passes (0: 9) on the runtime's threads, keeps the fastest by median, and writes the cache to path
 * (NULL: this runtime only). `each` (may be NULL) is told every median. Fails: ARGUMENT (a shape
 * that cannot be made), NOT_AVAILABLE (no kernel), IO, MEMORY. */
BITNET_API bitnet_status bitnet_runtime_tune(bitnet_runtime *runtime,
                                             const bitnet_kernel_query *shapes, size_t n_shapes,
                                             int n_repeats, const char *path, bitnet_tune_fn each,
                                             void *user, bitnet_error *err);

/* Calls of this engine that a dequantised fallback served for want of a kernel. */
BITNET_API uint64_t bitnet_engine_fallbacks(const bitnet_engine *engine);

/* ---- reference operations: plain, exact, single-threaded; the meaning of the words ---- */

typedef enum bitnet_qtype {
    BITNET_QTYPE_I2S = 0, /* 4 codes per byte, first lowest; 0,1,2 = -1,0,+1 */
    BITNET_QTYPE_TL1 = 1, /* pairs 3a + b + 4 in nibbles, first pair high */
    BITNET_QTYPE_TL2 = 2, /* triples |9a + 3b + c| in nibbles, first high; then their sign bits */
} bitnet_qtype;
typedef enum bitnet_scale_rule {
    BITNET_SCALE_ABSMEAN = 0, /* max(mean |w|, 1e-5) */
    BITNET_SCALE_ABSMAX = 1,  /* max |w| / 1.5; no weight is off by more than max |w| / 3 */
} bitnet_scale_rule;
/* What 2-bit codes 0, 1, 2, 3 stand for. */
typedef enum bitnet_code_map {
    BITNET_CODES_TERNARY = 0, /* -1, 0, +1, 0 */
    BITNET_CODES_OFFSET = 1,  /* -2, -1, 0, +1 */
    BITNET_CODES_NOZERO = 2,  /* -2, -1, +1, +2 */
} bitnet_code_map;

/* c [m][n] = a [m][k] times b [k][n], b one I2S code per byte (above 2: 0). Exact for k <= 131072.
 * Fails ARGUMENT: "Matrix dimension mismatch" unless n_a = m*k, n_b = k*n, n_c = m*n. */
BITNET_API bitnet_status bitnet_matmul_i2s(const int8_t *a, size_t n_a, const uint8_t *b,
                                           size_t n_b, float *c, size_t n_c, size_t m, size_t n,
                                           size_t k, bitnet_error *err);

typedef struct bitnet_matmul {
    const int8_t *a;
    size_t n_a;
    const uint8_t *b;
    size_t n_b;
    float *c;
    size_t n_c, m, n, k;
} bitnet_matmul;
/* Many at once, in the order of their shapes (m, n, k); each result lies in its item's c. None: OK.
 * All are checked before the first is computed; the message names the item. */
BITNET_API bitnet_status bitnet_batch_matmul_i2s(const bitnet_matmul *items, size_t n_items,
                                                 bitnet_error *err);

/* Bytes n weights take packed. */
BITNET_API size_t bitnet_quantized_bytes(bitnet_qtype type, size_t n);
/* n floats to ternary with n_scales scales, each for ceil(n / n_scales) weights. The three types
 * hold the same weights. Fails ARGUMENT: unknown type or rule, sizes, a value that is not finite.
 */
BITNET_API bitnet_status bitnet_quantize(bitnet_qtype type, bitnet_scale_rule rule, const float *in,
                                         size_t n, uint8_t *out, size_t n_out, float *scales,
                                         size_t n_scales, bitnet_error *err);
BITNET_API bitnet_status bitnet_dequantize(bitnet_qtype type, const uint8_t *in, size_t n_in,
                                           size_t n, const float *scales, size_t n_scales,
                                           float *out, bitnet_error *err);
/* n codes of packed I2S, one per byte: what bitnet_matmul_i2s takes. */
BITNET_API void bitnet_i2s_unpack(const uint8_t *packed, size_t n, uint8_t *codes);
/* The trit of a code: 0,1,2 = -1,0,+1; anything else 0. */
BITNET_API int bitnet_i2s_trit(uint8_t code);

/* y [rows] = w x for rows of 2-bit codes (lowest bits first) in blocks of 256 = 64 bytes, each row
 * padded to whole blocks, so n_w = rows * ceil(cols / 256) * 64; scales one per block, or NULL
 * for 1. Fails ARGUMENT: sizes, unknown map. */
BITNET_API bitnet_status bitnet_qk256_gemv(const uint8_t *w, size_t n_w, const float *scales,
                                           size_t n_scales, size_t rows, size_t cols,
                                           const float *x, bitnet_code_map map, float *y,
                                           bitnet_error *err);

/* BitNet32-F16: blocks of 32 weights in 10 bytes, codes then an f16 scale. Maps OFFSET (the one
 * that has a zero) and NOZERO (|scale| limited to 1e-3..1e3) both occur; files do not say which.
 * n_data = ceil(n / 32) * 10; for _gemv cols must be a multiple of 32. */
BITNET_API bitnet_status bitnet_bitnet32_decode(const uint8_t *data, size_t n_data, size_t n,
                                                bitnet_code_map map, float *out, bitnet_error *err);
BITNET_API bitnet_status bitnet_bitnet32_gemv(const uint8_t *data, size_t n_data, size_t rows,
                                              size_t cols, const float *x, bitnet_code_map map,
                                              float *y, bitnet_error *err);

/* ---- single operations on a device: what the reference operations mean, and some more, computed
 * by the kernels of the runtime's device, or by the best instruction set of the CPU ---- */

typedef enum bitnet_conversion {
    BITNET_F32_TO_F16 = 0, /* nearest, ties to even; not-a-number stays one, with its upper bits */
    BITNET_F32_TO_BF16 = 1,
    BITNET_F16_TO_F32 = 2,
    BITNET_BF16_TO_F32 = 3,
} bitnet_conversion;
typedef enum bitnet_vector {
    BITNET_VECTOR_ADD = 0,       /* x + z */
    BITNET_VECTOR_MUL = 1,       /* x * z */
    BITNET_VECTOR_RELU2 = 2,     /* max(x, 0)^2 */
    BITNET_VECTOR_SILU = 3,      /* x / (1 + e^-x) */
    BITNET_VECTOR_GLU_RELU2 = 4, /* max(x, 0)^2 * z */
    BITNET_VECTOR_GLU_SILU = 5,  /* x / (1 + e^-x) * z */
} bitnet_vector;

enum { BITNET_OPS_STEPS = 7 };

typedef struct bitnet_ops_stats {
    size_t struct_size;
    const char *provider; /* that computes now: "cuda", "neon" */
    const char *kernel;   /* of the last call on a device; NULL: there was none */
    uint64_t n_ops, n_device_ops, n_quantize, n_matmul;
    double avg_quantize_ms, avg_matmul_ms;
    uint64_t fallback_count; /* calls that failed on the device and were computed on the CPU */
    /* capability, kernel, memory, inputs there and converted, the kernel itself, results back,
     * recording: of all calls together */
    double step_ms[BITNET_OPS_STEPS];
    bitnet_precision_stats precision;
    uint64_t memory_current; /* held by calls at work; 0 between them */
} bitnet_ops_stats;

typedef struct bitnet_ops bitnet_ops;

/* Opens the runtime's device for operations in a precision (that of bitnet_ops_matmul). Where the
 * runtime was asked for `auto`, a device that cannot be opened, or fails later, leaves its work to
 * the CPU, with a warning, unless the runtime is strict. Any thread may call the object. Fails as
 * bitnet_engine_open for device and precision; MEMORY. */
BITNET_API bitnet_status bitnet_ops_open(bitnet_runtime *runtime, bitnet_precision precision,
                                         bitnet_ops **out, bitnet_error *err);
BITNET_API void bitnet_ops_close(bitnet_ops *ops);
/* The provider that computes, "cuda" or a family of the CPU's kernels; lives as long as the
 * runtime. */
BITNET_API const char *bitnet_ops_provider(bitnet_ops *ops);
BITNET_API bitnet_precision bitnet_ops_precision(bitnet_ops *ops); /* never AUTO */
/* Fails: ARGUMENT (NULL, struct_size). */
BITNET_API bitnet_status bitnet_ops_read(bitnet_ops *ops, bitnet_ops_stats *stats,
                                         bitnet_error *err);
BITNET_API void bitnet_ops_stats_init(bitnet_ops_stats *stats);

/* As bitnet_matmul_i2s, _batch_matmul_i2s, _quantize, _qk256_gemv; the same bits, but for the last,
 * which may be off by one unit in the last place. All fail also: MEMORY (the device has no room;
 * all is given back and the object goes on), NOT_AVAILABLE (the device failed). A batch is done by
 * shape, as many at once as fit; quantising goes in pieces where the whole does not fit. */
BITNET_API bitnet_status bitnet_ops_matmul_i2s(bitnet_ops *ops, const bitnet_matmul *item,
                                               bitnet_error *err);
BITNET_API bitnet_status bitnet_ops_batch_matmul_i2s(bitnet_ops *ops, const bitnet_matmul *items,
                                                     size_t n_items, bitnet_error *err);
BITNET_API bitnet_status bitnet_ops_quantize(bitnet_ops *ops, bitnet_qtype type,
                                             bitnet_scale_rule rule, const float *in, size_t n,
                                             uint8_t *out, size_t n_out, float *scales,
                                             size_t n_scales, bitnet_error *err);
BITNET_API bitnet_status bitnet_ops_qk256_gemv(bitnet_ops *ops, const uint8_t *w, size_t n_w,
                                               const float *scales, size_t n_scales, size_t rows,
                                               size_t cols, const float *x, bitnet_code_map map,
                                               float *y, bitnet_error *err);
/* c [m][n] = a [m][k] b [k][n] in the object's precision with float sums. Off from exact arithmetic
 * by at most (2 u + u^2 + k 2^-23) times the sum of |a b|, u = 0 (FP32), 2^-11 (FP16, for values it
 * can hold: below 65520, not below 2^-14), 2^-8 (BF16). */
BITNET_API bitnet_status bitnet_ops_matmul(bitnet_ops *ops, const float *a, const float *b,
                                           float *c, size_t m, size_t n, size_t k,
                                           bitnet_error *err);
BITNET_API bitnet_status bitnet_ops_convert(bitnet_ops *ops, bitnet_conversion conversion,
                                            const void *in, size_t n, void *out, bitnet_error *err);
/* z: NULL where the function has none. */
BITNET_API bitnet_status bitnet_ops_vector(bitnet_ops *ops, bitnet_vector function, const float *x,
                                           const float *z, size_t n, float *y, bitnet_error *err);
/* Rows of x [rows][n]; a row without a finite value becomes not-a-number. */
BITNET_API bitnet_status bitnet_ops_softmax(bitnet_ops *ops, const float *x, size_t rows, size_t n,
                                            float *y, bitnet_error *err);
/* The index of each row's largest finite value, the lowest of equal ones; -1: there is none. */
BITNET_API bitnet_status bitnet_ops_argmax(bitnet_ops *ops, const float *x, size_t rows, size_t n,
                                           int32_t *index, bitnet_error *err);

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
    BITNET_DEVICES_PREFLIGHT = 2, /* what is missing to compute on a GPU, a remedy per vendor */
} bitnet_devices_view;

typedef struct bitnet_device_choice {
    char device[16]; /* "cuda", "cpu" */
    int index;       /* of the device within its kind */
    int max_batch;
    char summary[160]; /* "requested=auto detected=[cuda,cpu] selected=cuda", for log and receipt */
} bitnet_device_choice;

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
BITNET_API bool bitnet_devices_gpu_compiled(const bitnet_devices *devices);
BITNET_API bool bitnet_devices_gpu_available(const bitnet_devices *devices); /* fakes count */
/* Compiled and available (a fake counts); cpu always; false for what is no device. */
BITNET_API bool bitnet_devices_supports(const bitnet_devices *devices, const char *device);
/* The value of --device if not NULL, else that of BITNET_DEVICE if neither NULL nor empty, else
 * auto. Only auto falls back to the CPU; a fake is never chosen. Fails: ARGUMENT (names the allowed
 * values), NOT_COMPILED ("NotCompiled: ..."), NOT_AVAILABLE ("NotAvailableRuntime: ..."). */
BITNET_API bitnet_status bitnet_devices_select(const bitnet_devices *devices, const char *flag,
                                               const char *variable, bitnet_device_choice *out,
                                               bitnet_error *err);

/* ---- memory pools: buffers of one device, freed ones kept for reuse by their size ---- */

/* Where a pool gets its bytes. Called under the pool's lock: must not call the pool. */
typedef struct bitnet_allocator {
    void *(*take)(void *user, size_t n_bytes); /* NULL: no memory */
    void (*give)(void *user, void *p, size_t n_bytes);
    void *user;
} bitnet_allocator;

typedef struct bitnet_mempool_options {
    size_t struct_size;
    uint64_t max_pool_size; /* bytes in use and cached together. Default 2 GiB; weights and caches
                               of keys and values are outside of it */
    uint64_t device_memory; /* of the device; default 0, not known. Else max_pool_size is at most
                               a tenth of it */
    size_t max_cached_buffers; /* over all sizes. Default 1000 */
    int cleanup_interval_ms;   /* cached buffers unused for so long are given back. Default 30000 */
    bool tracking;             /* time and site of every buffer, for _leaks. Default true */
    int device_id;
    bitnet_allocator allocator;     /* take NULL: memory of the host, 64-byte aligned */
    double (*clock_ms)(void *user); /* NULL: the monotonic clock */
    void *clock_user;
    bitnet_log_fn log; /* told about leaks by _close; may be NULL */
    void *log_user;
} bitnet_mempool_options;

typedef struct bitnet_mempool_stats {
    uint64_t allocated_bytes, freed_bytes; /* handed out and brought back, reused ones counted */
    uint64_t current_bytes, peak_bytes;
    uint64_t n_allocs, n_frees;
    uint64_t n_hits, n_misses; /* served from the cache; by the allocator */
    uint64_t cached_bytes, n_cached;
    uint64_t n_expired; /* given back for their age or to make room */
    uint64_t n_refused; /* asked beyond the cap, or the allocator had none */
} bitnet_mempool_stats;

typedef struct bitnet_mempool_leak {
    const void *p;
    size_t n_bytes;
    double age_ms;
    const char *file; /* of the line that asked */
    int line;
} bitnet_mempool_leak;

typedef struct bitnet_mempool bitnet_mempool;

/* Any thread may use a pool at any time. */
BITNET_API void bitnet_mempool_options_init(bitnet_mempool_options *options);
BITNET_API bitnet_status bitnet_mempool_open(const bitnet_mempool_options *options,
                                             bitnet_mempool **out, bitnet_error *err);
/* Gives back everything, also what is still held, which is logged as leaked. */
BITNET_API void bitnet_mempool_close(bitnet_mempool *pool);
BITNET_API int bitnet_mempool_device_id(const bitnet_mempool *pool);
/* A reused buffer holds what its last owner left. `file` must live as long as the pool. Fails:
 * ARGUMENT (0 bytes), MEMORY (beyond max_pool_size, or the allocator has none). */
BITNET_API bitnet_status bitnet_mempool_alloc_at(bitnet_mempool *pool, size_t n_bytes,
                                                 const char *file, int line, void **out,
                                                 bitnet_error *err);
#define bitnet_mempool_alloc(pool, n_bytes, out, err)                                              \
    bitnet_mempool_alloc_at(pool, n_bytes, __FILE__, __LINE__, out, err)
/* Fails: ARGUMENT if p is no buffer in use of this pool (freed twice, of another pool). NULL: OK.
 */
BITNET_API bitnet_status bitnet_mempool_free(bitnet_mempool *pool, void *p, bitnet_error *err);
/* Gives cached buffers back: the expired ones, or all. Returns how many. */
BITNET_API size_t bitnet_mempool_cleanup(bitnet_mempool *pool, bool all);
BITNET_API void bitnet_mempool_read(bitnet_mempool *pool, bitnet_mempool_stats *out);
/* Buffers now held, the oldest first, at most cap of them; returns how many there are. Without
 * tracking: 0. */
BITNET_API size_t bitnet_mempool_leaks(bitnet_mempool *pool, bitnet_mempool_leak *out, size_t cap);

typedef struct bitnet_host_memory {
    uint64_t total_bytes, available_bytes, used_bytes; /* of the system */
    uint64_t process_bytes, process_peak_bytes;        /* resident */
    double used_percent;                               /* of the system's total */
} bitnet_host_memory;
/* Read anew at every call. Fails: NOT_AVAILABLE where the system does not say. */
BITNET_API bitnet_status bitnet_host_memory_read(bitnet_host_memory *out, bitnet_error *err);
/* Quick look for servers (a few file reads): OK, or MEMORY_GATE with what is wrong: hardly any host
 * memory available, a pool nearly full, requests refused, buffers held longer than held_ms (0: not
 * looked at). pool may be NULL. */
BITNET_API bitnet_status bitnet_memory_health(bitnet_mempool *pool, double held_ms,
                                              bitnet_error *err);

/* ---- CUDA: kernels of your own, streams, memory of the device (docs/KERNEL.md) ----
 *
 * The device's primary context, in which engines of this process compute too, with streams of its
 * own. Handles of the driver's interface go out as void *, so that other CUDA code can go on with
 * them; nothing of the toolkit is needed to build. Any thread may call; the context becomes the
 * calling thread's current one. */

typedef struct bitnet_cuda bitnet_cuda;
typedef struct bitnet_cuda_module bitnet_cuda_module;

enum { BITNET_CUDA_STREAMS = 8 }; /* numbered from 0; made when first used */

/* Device `index` as `bitnet devices` numbers them. Fails: NOT_COMPILED (a build without CUDA),
 * NOT_AVAILABLE (no driver, no such device; the remedy is in the message), MEMORY. */
BITNET_API bitnet_status bitnet_cuda_open(int index, bitnet_cuda **out, bitnet_error *err);
/* Waits for what was submitted, unloads modules that are left. Pools and work first. */
BITNET_API void bitnet_cuda_close(bitnet_cuda *cuda);
BITNET_API void *bitnet_cuda_context(const bitnet_cuda *cuda); /* CUcontext */
/* CUstream; NULL: no such number, or the driver has none left. */
BITNET_API void *bitnet_cuda_stream(bitnet_cuda *cuda, int stream);

/* PTX (text with a NUL), a cubin or a fatbin. Fails: NOT_AVAILABLE (not for this device, damaged),
 * MEMORY. */
BITNET_API bitnet_status bitnet_cuda_module_load(bitnet_cuda *cuda, const void *image,
                                                 bitnet_cuda_module **out, bitnet_error *err);
/* None of its kernels may be at work. */
BITNET_API void bitnet_cuda_module_free(bitnet_cuda_module *module);
BITNET_API void *bitnet_cuda_module_handle(const bitnet_cuda_module *module); /* CUmodule */
/* CUfunction of a kernel in the module; module NULL: in the images of this build. Fails
 * NOT_AVAILABLE: it is not there. */
BITNET_API bitnet_status bitnet_cuda_kernel(bitnet_cuda *cuda, const bitnet_cuda_module *module,
                                            const char *name, void **out, bitnet_error *err);

/* For bitnet_mempool_options.allocator: memory of the device in stream order, from a pool of the
 * driver that belongs to this object (drivers without such pools: plain memory). Every stream may
 * use a buffer at once; wait for the work on a buffer before freeing it, because the pool may hand
 * it to somebody else. */
BITNET_API bitnet_allocator bitnet_cuda_allocator(bitnet_cuda *cuda);
/* Pinned memory of the host, without which copies do not overlap. NULL: there is none. */
BITNET_API void *bitnet_cuda_host_alloc(bitnet_cuda *cuda, size_t n_bytes);
BITNET_API void bitnet_cuda_host_free(bitnet_cuda *cuda, void *p);

/* ---- work: submitted to a stream, done while the host goes on ---- */

typedef enum bitnet_copy {
    BITNET_COPY_NONE = 0, /* the work is a kernel */
    BITNET_COPY_TO_DEVICE = 1,
    BITNET_COPY_TO_HOST = 2,
    BITNET_COPY_ON_DEVICE = 3,
} bitnet_copy;

typedef struct bitnet_work bitnet_work;

typedef struct bitnet_work_options {
    size_t struct_size;
    int stream; /* 0..BITNET_CUDA_STREAMS - 1; work of one stream is done in its order */
    const bitnet_work *after; /* of any stream: begins when that is done; NULL: none */
    /* a kernel, with the arguments as cuLaunchKernel takes them: copied before _submit returns */
    void *kernel;
    unsigned grid[3], block[3]; /* default 1 */
    unsigned shared_bytes;
    void **params;
    /* or a copy; memory of the host must stay until the work is done */
    bitnet_copy copy;
    void *dst;
    const void *src;
    size_t n_bytes;
} bitnet_work_options;

BITNET_API void bitnet_work_options_init(bitnet_work_options *options);
/* Returns at once. Fails: ARGUMENT, NOT_AVAILABLE (the driver refuses), MEMORY. */
BITNET_API bitnet_status bitnet_work_submit(bitnet_cuda *cuda, const bitnet_work_options *options,
                                            bitnet_work **out, bitnet_error *err);
/* Is it done (or failed, which _wait tells)? */
BITNET_API bool bitnet_work_done(const bitnet_work *work);
/* Returns when it is done. Fails NOT_AVAILABLE: it, or work before it, failed on the device. */
BITNET_API bitnet_status bitnet_work_wait(const bitnet_work *work, bitnet_error *err);
/* When it began and ended, in ms since _open by the device's clock; waits for it. */
BITNET_API bitnet_status bitnet_work_times(const bitnet_work *work, double *begin_ms,
                                           double *end_ms, bitnet_error *err);
BITNET_API void bitnet_work_free(bitnet_work *work); /* may still be at work */

/* ---- bridge: another implementation as a plugin, to compare with (docs/BRIDGE.md) ---- */

#define BITNET_BRIDGE_ABI 1

/* What a plugin exports under the names bitnet_bridge_init, _cleanup, _available, _matmul_i2s,
 * _quantize, _last_error. Functions that return int: 0 is success. */
typedef int bitnet_bridge_init_fn(int abi); /* BITNET_BRIDGE_ABI; called once, first */
typedef void bitnet_bridge_cleanup_fn(void);
typedef int bitnet_bridge_available_fn(void); /* 1: it can compute here, 0: not */
/* Meaning of bitnet_matmul_i2s and bitnet_quantize (rule absmean). */
typedef int bitnet_bridge_matmul_fn(const int8_t *a, const uint8_t *b, float *c, size_t m, size_t n,
                                    size_t k);
typedef int bitnet_bridge_quantize_fn(int qtype, const float *in, size_t n, uint8_t *out,
                                      size_t n_out, float *scales, size_t n_scales);
typedef const char *bitnet_bridge_error_fn(void); /* of the last failure; may be NULL */

typedef struct bitnet_bridge bitnet_bridge;

/* Loads and starts a plugin. Fails NOT_AVAILABLE: "ffi bridge unavailable" (path NULL or "", no
 * such file, or the plugin says it is not available); cannot be loaded, a function missing, init
 * failed (the message names it). One thread at a time. */
BITNET_API bitnet_status bitnet_bridge_open(const char *path, bitnet_bridge **out,
                                            bitnet_error *err);
BITNET_API void bitnet_bridge_close(bitnet_bridge *bridge);
BITNET_API const char *bitnet_bridge_path(const bitnet_bridge *bridge);

typedef struct bitnet_comparison {
    uint64_t native_ns, reference_ns; /* best of three after a warm-up */
    bool accuracy_match;              /* integers equal, floats within 1e-5 relative */
    double max_error;
    double improvement;         /* reference_ns / native_ns - 1 */
    bool migration_recommended; /* match, and improvement >= -0.1 */
    bool release_gate;          /* match, and at least 95 % of the reference's speed */
} bitnet_comparison;

/* The rule alone. */
BITNET_API bitnet_comparison bitnet_compare_times(uint64_t native_ns, uint64_t reference_ns,
                                                  bool accuracy_match, double max_error);
/* The best native function of this runtime and the plugin's, on the same random input. Fails ERROR:
 * the plugin reported a failure (its words are in the message); ARGUMENT; MEMORY. */
BITNET_API bitnet_status bitnet_bridge_compare_matmul(const bitnet_runtime *runtime,
                                                      bitnet_bridge *bridge, size_t m, size_t n,
                                                      size_t k, bitnet_comparison *out,
                                                      bitnet_error *err);
BITNET_API bitnet_status bitnet_bridge_compare_quantize(bitnet_bridge *bridge, bitnet_qtype type,
                                                        size_t n, bitnet_comparison *out,
                                                        bitnet_error *err);

/* ---- validation ---- */

typedef enum bitnet_verdict {
    BITNET_VERDICT_PASS = 0,
    BITNET_VERDICT_FAIL = 1,
    BITNET_VERDICT_SKIP = 2, /* could not be checked; the note says why */
} bitnet_verdict;

enum { /* parts of a validation */
       BITNET_VALIDATE_ACCURACY = 1,
       BITNET_VALIDATE_PERFORMANCE = 2,
       BITNET_VALIDATE_MEMORY = 4,
       BITNET_VALIDATE_MODEL = 8,
       BITNET_VALIDATE_GOLDEN = 16,
       BITNET_VALIDATE_BRIDGE = 32,
};

typedef struct bitnet_validate_options {
    size_t struct_size;
    const char *device;     /* what is checked: NULL or "auto": what the runtime computes on; "cpu",
                               "cpu:ISA", or any name the runtime's option takes */
    const char *against;    /* what is right: default "cpu:scalar"; out-of-tree kernels and tuning
                               never serve it */
    const char *model_path; /* NULL: kernels alone */
    const char *golden_dir; /* with golden.json; needs model_path. NULL: skipped */
    bitnet_bridge *bridge;  /* NULL: skipped */
    unsigned parts;         /* BITNET_VALIDATE_...; 0: all. The others are skipped */
    bool quick;             /* small shapes, few rounds */
    bitnet_i2s_layout i2s_layout;
    bitnet_cancel_fn cancel; /* polled between cases: true ends with CANCELLED; may be NULL */
    void *cancel_user;
    const char *kernel; /* only rows of the kernel with this id; NULL: all. Fails ARGUMENT if the
                           registry has none */
    bitnet_progress_fn on_progress; /* shares of the work, as it usually takes time; may be NULL */
    void *progress_user;
} bitnet_validate_options;

/* One kernel, one shape. Texts live as long as the runtime. */
typedef struct bitnet_accuracy {
    const char *kernel, *op, *format, *dtype, *agreement;
    uint64_t m, n, k;
    bitnet_verdict verdict;
    double max_error; /* largest difference, as a share of the largest value of its row */
    double bound;     /* the most that may be; 0: equal bits */
    char note[160];   /* what it was compared with; what differs; why it was skipped */
} bitnet_accuracy;

typedef struct bitnet_performance {
    const char *kernel, *op, *format, *dtype;
    uint64_t m, n, k;
    double device_ms; /* the operation until the device is done; median, after a warm-up */
    double wall_ms;   /* with the input's way there and the result's way back */
    double reference_ms, speedup; /* wall time of the reference; reference_ms / wall_ms */
    double gflops;                /* 2 m n k / device_ms */
} bitnet_performance;

typedef struct bitnet_memory_result {
    bitnet_verdict verdict;
    int n_rounds;                    /* engine, session, generation, all closed again */
    uint64_t start_bytes, end_bytes; /* resident, after warming up and at the end */
    int64_t growth_bytes;            /* within 1 MiB is a pass */
    char note[160];
} bitnet_memory_result;

/* The whole model on both, operation by operation. */
typedef struct bitnet_model_result {
    bitnet_verdict verdict;
    uint64_t n_tokens, n_ops, n_values, n_differ, n_ties;
    double max_error;
    /* the first difference, if n_differ > 0 */
    char op[24], tensor[64];
    int layer;        /* -1: outside the layers */
    int position;     /* of the token */
    uint64_t element; /* inside its row */
    double got, want;
    char kernels[96], reference_kernels[96];
    char note[160];
} bitnet_model_result;

typedef struct bitnet_golden_result {
    bitnet_verdict verdict;
    uint64_t n_prompts, n_positions, n_argmax, n_wrong;
    double min_cosine; /* 0.998 and more is a pass; the argmax where the margin is 0.5 or more */
    char note[160];
} bitnet_golden_result;

typedef struct bitnet_bridge_result {
    bitnet_verdict verdict;
    bitnet_comparison matmul, quantize;
    char note[160];
} bitnet_bridge_result;

typedef struct bitnet_validation {
    bool success; /* nothing failed */
    const char *device, *against;
    bitnet_accuracy *accuracy;
    size_t n_accuracy;
    bitnet_performance *performance;
    size_t n_performance;
    bitnet_memory_result memory;
    bitnet_model_result model;
    bitnet_golden_result golden;
    bitnet_bridge_result bridge;
} bitnet_validation;

BITNET_API void bitnet_validate_options_init(bitnet_validate_options *options);
/* Every kernel of the runtime's registry on several shapes, their speed, the model, memory, the
 * golden logits, the bridge. A difference is a result, not a failure: the status is OK and success
 * false. Fails: ARGUMENT, NOT_COMPILED, NOT_AVAILABLE (device), IO, MODEL, TOKENIZER, MEMORY. */
BITNET_API bitnet_status bitnet_validate(bitnet_runtime *runtime,
                                         const bitnet_validate_options *options,
                                         bitnet_validation **out, bitnet_error *err);
BITNET_API void bitnet_validation_free(bitnet_validation *validation);
/* As one JSON object. *n_bytes is always set; at most cap bytes are written, no NUL. Fails:
 * ARGUMENT (cap too small: call again), MEMORY. */
BITNET_API bitnet_status bitnet_validation_json(const bitnet_validation *validation, char *out,
                                                size_t cap, size_t *n_bytes, bitnet_error *err);

/* ---- health: a quick look for servers ---- */

typedef struct bitnet_health {
    size_t struct_size;
    bool healthy;    /* all three */
    bool memory_ok;  /* the host has memory left */
    bool compute_ok; /* one of the model's matrices times a vector is what the file says */
    bool cache_ok;   /* a key and value written are read back by attention */
    uint64_t memory_available, process_bytes;
    double elapsed_ms;
    char detail[240]; /* "" or what is wrong */
} bitnet_health;

BITNET_API void bitnet_health_init(bitnet_health *health);
/* Well below 100 ms, from any thread, while sessions run. An unhealthy engine is a result: the
 * status is OK. Fails: ARGUMENT (vocab_only), MEMORY, ERROR (the device). */
BITNET_API bitnet_status bitnet_health_check(bitnet_engine *engine, bitnet_health *health,
                                             bitnet_error *err);
/* One JSON object into buf, cut at cap, NUL-terminated; returns the length of the whole. */
BITNET_API size_t bitnet_health_json(const bitnet_health *health, char *buf, size_t cap);

/* ---- self-test: does the CPU compute with the instructions it says it has? ----
 *
 * Virtual machines and emulators may advertise what they cannot run. The test runs every kind of
 * operation once, small, with the kernels an engine would choose for `isa` (NULL: the best), and
 * compares with the scalar ones bit for bit: a few ms, on the calling thread alone, which keeps
 * nothing. An instruction that does not exist raises SIGILL in it, so call it where that ends
 * nothing of value: in a child process, as the command does. */

/* Names of instruction sets, of any architecture, lowest first; NULL past the end. */
BITNET_API const char *bitnet_isa_at(int i);
/* Fails: ARGUMENT (no such isa), NOT_AVAILABLE (the CPU does not claim to have it), MISMATCH (a
 * result is wrong), MEMORY. */
BITNET_API bitnet_status bitnet_isa_self_test(const char *isa, bitnet_error *err);
/* Does the CPU say that it is not the real one (x86-64 under a hypervisor or emulator)? Then what
 * it claims deserves the test. */
BITNET_API bool bitnet_cpu_is_virtual(void);

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
} bitnet_bench_options;

/* One engine ready to be timed. Close it before the engine. */
typedef struct bitnet_bench bitnet_bench;

typedef struct bitnet_bench_run {
    double tok_s;
    size_t n_tokens; /* timed */
    double ms;
    double first_token_ms, total_ms; /* tg: of the whole call, what came before included */
} bitnet_bench_run;

BITNET_API void bitnet_bench_options_init(bitnet_bench_options *options);
BITNET_API bitnet_status bitnet_bench_open(bitnet_engine *engine,
                                           const bitnet_bench_options *options, bitnet_bench **out,
                                           bitnet_error *err);
BITNET_API void bitnet_bench_close(bitnet_bench *bench);
/* Times the test once: pp by bitnet_session_append, tg by bitnet_generate, bt by
 * bitnet_batch_sample, greedily; tok_s is of all timelines together. What the depth asks for is
 * computed before the clock starts. Fails: CONTEXT, CANCELLED, MEMORY, ERROR. */
BITNET_API bitnet_status bitnet_bench_once(bitnet_bench *bench, const bitnet_bench_test *test,
                                           bitnet_bench_run *run, bitnet_error *err);
/* The kernels that ran since _open or the last _forget, with their calls; as
 * bitnet_engine_kernels. */
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

/* Where the time of n_tokens decode steps, or of a prompt of so many, at this depth goes, the
 * largest share first. No other session of the engine may be at work. Writes at most cap entries;
 * *n says how many there are; *total_ms the time of all. Fails: ARGUMENT, as _once. */
BITNET_API bitnet_status bitnet_bench_profile(bitnet_bench *bench, const bitnet_bench_test *test,
                                              bitnet_profile_entry *out, size_t cap, size_t *n,
                                              double *total_ms, bitnet_error *err);

/* Where a device's memory is, in bytes, and how the weights came there. */
typedef struct bitnet_memory_use {
    size_t struct_size;
    uint64_t weights, caches, workspace; /* ours, by purpose */
    uint64_t own, own_peak; /* ours as they were taken of the driver, now and at most */
    uint64_t foreign;       /* in use before us: the driver's context, other programs */
    uint64_t total;
    uint64_t load_bytes; /* of the file */
    double load_ms;      /* from the first tensor read to the last one there */
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
