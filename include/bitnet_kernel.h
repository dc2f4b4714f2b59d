/* bitnet_kernel.h - for authors of kernels: the function types, registration, the registry and its
 * choices, providers, tuning. docs/KERNEL.md is the guide.
 *
 * The rules of bitnet.h hold (errors, ownership, threads); there is no promise of stability between
 * versions. */
#ifndef BITNET_KERNEL_H
#define BITNET_KERNEL_H

#include "bitnet.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- kernel registry: one per runtime; docs/KERNEL.md ---- */

#define BITNET_KERNEL_ABI 1 /* version of the types below; a kernel made for another is refused */

/* Op "linear", format "i2s", dtype "i8". Sets acc[t][r] = sum over k of trit[r][k] * x[t][k],
 * exactly: n_rows rows of n_blocks * 32 bytes, 128 weights in 32 bytes (element i of a block in
 * byte i % 32, bits 6 - 2 * (i / 32); codes 0,1,2 = -1,0,+1); 1..16 tokens, x[t] at x + t *
 * x_stride with n_blocks * 128 values, x_sum[t] their sum; acc is [n_tokens][n_rows]. Called from
 * several threads at once with different rows; a pass of many tokens is divided into several calls.
 */
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
/* Dtype "i8", formats of files that this version cannot read itself ("tl1", "tl2", "iq2_xxs", ...):
 * projections of ternary models come as the file has them. y[t][i] = x_scale[t] * w->scale * sum
 * over k of weight[first + i][k] * x[t][k], y[t] at y + t * y_stride; 1..16 tokens. Called from
 * several threads at once; `first` is a multiple of 32, n_rows is 32 but for the last rows. */
typedef struct bitnet_matrix {
    const void *data; /* all bytes of the tensor */
    size_t n_bytes, n_out, n_in;
    float scale; /* of a tensor of its own; else 1 */
} bitnet_matrix;
typedef void bitnet_fn_matrix(const bitnet_matrix *w, size_t first, size_t n_rows, const int8_t *x,
                              size_t x_stride, const float *x_scale, size_t n_tokens, float *y,
                              size_t y_stride);
/* Op "rmsnorm", format "f32", dtype "f32"; y may be x. */
typedef void bitnet_fn_rmsnorm(const float *x, const float *w, size_t n, float eps, float *y);
/* Op "quantize", format "i8", dtype "f32": q[0..n), zero up to stride; returns the scale. */
typedef float bitnet_fn_quantize(const float *x, size_t n, size_t stride, int8_t *q, int32_t *sum);
/* Op "glu", formats "relu2", "silu", dtype "f32". */
typedef void bitnet_fn_glu(const float *gate, const float *up, size_t n, float *y);
/* Op "add", format "f32", dtype "f32": x += y. */
typedef void bitnet_fn_add(float *x, const float *y, size_t n);

/* For a GPU ("cuda"; "host", the same on plain memory): op "linear", format "i2s", dtype "i8", and
 * formats "f32", "f16", "bf16" with dtype "f32". Called on the host by one thread at a time, with
 * the device's context current; puts its work on the stream, or on "host" does it. Returns 0, or
 * the number of the driver's error. y[t][r] = sum over k of w[r][k] * x[t][k], for "i2s" times the
 * scales of both. Places are addresses on the device. Engines opened after such a kernel was
 * registered use it; they compose every pass of single operations. */
typedef struct bitnet_gpu_linear {
    void *stream;    /* CUstream; "host": NULL */
    size_t m, n, k;  /* tokens, outputs, inputs */
    uint64_t w;      /* floats: rows of w_stride values. i2s: units of 16 rows x 128 columns, 512
                        bytes each, unit (tile, chunk) at 512 * (tile * w_stride / 128 + chunk);
                        in it byte 16 * (4 * g + t) + 4 * r + b has in bits 2s the code (0, 1, 2
                        = -1, 0, +1) of row g + 8 * (r & 1), column 32 * s + 16 * (r >> 1) + 4 * t
                        + b */
    size_t w_stride; /* columns of a row, padded with zeros */
    uint64_t x;      /* [m][x_stride]: int8, padded with zeros, or floats */
    size_t x_stride;
    uint64_t x_scale; /* [m]; floats: 0 */
    float w_scale;
    uint64_t y; /* floats [m][n] */
} bitnet_gpu_linear;
typedef int bitnet_fn_gpu_linear(const bitnet_gpu_linear *call);

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

/* A kernel of yours. Texts are copied. */
typedef struct bitnet_kernel {
    size_t struct_size;
    uint32_t abi;   /* BITNET_KERNEL_ABI, set by _init */
    const char *id; /* unique: "linear_i2s.mine"; letters, digits, _.:-, at most 128, no "mock" */
    const char *op, *format, *dtype; /* the key */
    const char *isa; /* what it needs: "scalar" (default), "neon", "dotprod", "avx2"; of a GPU
                        "sm_80" and later, "" or "scalar": nothing */
    bitnet_kernel_tier tier; /* the highest compatible one is chosen; a registered kernel is
                                preferred to one of the library of the same tier */
    uint64_t temp_bytes;     /* scratch it allocates; BITNET_PRIORITY_MEMORY takes the least */
    uint32_t alignment;      /* of the weights, in bytes, at which it runs best */
    bitnet_dim_rule m, n, k; /* tokens of a pass, outputs, inputs */
    const char *agreement;   /* "exact" (default) or "close(4 ulp)", with the scalar kernel */
    void (*fn)(void);        /* cast from the type that its device, op and format name above */
    const char *device;      /* "cpu" (NULL), "cuda", "host" */
} bitnet_kernel;

typedef enum bitnet_priority {
    BITNET_PRIORITY_SPEED = 0,     /* tuning cache, else the highest tier */
    BITNET_PRIORITY_MEMORY = 1,    /* the least temp_bytes */
    BITNET_PRIORITY_REFERENCE = 2, /* the lowest tier */
} bitnet_priority;

/* A question. With BITNET_PRIORITY_SPEED the answer is the kernel that a model would run: weights
 * are taken as the device keeps them (a CPU packs rows of "i2s" into groups, "i2s_r16", where that
 * is faster; types of files, "i2_s", "q4_0", are what they become), a pass in parts where no kernel
 * takes all of it. With another priority it is the registry's own, for the key as it stands. */
typedef struct bitnet_kernel_query {
    const char *op, *format, *dtype;
    uint64_t m, n, k; /* 0: not known, rules on it are not applied; k as padded: i2s to 128 */
    bitnet_priority priority;
    const char *device; /* "cpu", "cuda:1", "gpu", ...; NULL: the runtime's */
    bool no_pack;       /* as in bitnet_engine_options */
    bool head;          /* the matrix is the model's head */
} bitnet_kernel_query;

BITNET_API void bitnet_kernel_init(bitnet_kernel *kernel);
/* Adds a kernel; may be called from any thread at any time. Engines opened afterwards use it; open
 * ones use it from their next pass on if its op is "linear". The function must stay callable until
 * the runtime is closed. Fails: ARGUMENT (id taken, ABI, missing or wrong field, a key without a
 * type above, unknown device, isa, agreement, a rule on sizes where op is not linear), NOT_COMPILED
 * (a device that this build cannot compute on), MEMORY (full). */
BITNET_API bitnet_status bitnet_kernel_register(bitnet_runtime *runtime,
                                                const bitnet_kernel *kernel, bitnet_error *err);
/* Is there a kernel for this key that the device (NULL: the runtime's) can run? False for anything
 * unknown, and for a device that is not there. */
BITNET_API bool bitnet_runtime_has_kernel(const bitnet_runtime *runtime, const char *device,
                                          const char *op, const char *format, const char *dtype);
/* Sets *id to the kernel that would serve; borrowed until the runtime is closed. Fails
 * NOT_AVAILABLE: UnsupportedKernelConfiguration or NoCompatibleKernel with each candidate's reason;
 * for the device as bitnet_runtime_open does. */
BITNET_API bitnet_status bitnet_runtime_select(const bitnet_runtime *runtime,
                                               const bitnet_kernel_query *query, const char **id,
                                               bitnet_error *err);
/* All records with all fields as JSON: {"provider", "device", "generation", "kernels": [{"id",
 * "device", "op", "format", "dtype", "isa", "tier", "temp_bytes", "alignment", "constraints": {"m":
 * {"min", "max", "multiple"}, ...}, "requires": {...}, "abi", "agreement", "available"}]}. A record
 * is available if the CPU, the runtime's device or the first one of another kind can run it. With
 * a query: only the records of its op (and format, dtype, where not NULL) and of the format that
 * the device keeps instead, each with "veto" (the reason, "" if none) and "selected"; and "within",
 * kernels by which a model may do the op together with others. *n_bytes is set unless the device
 * is refused; at most cap bytes are written, no NUL. Fails: ARGUMENT (cap too small: call again),
 * MEMORY; for the device as bitnet_runtime_open does. */
BITNET_API bitnet_status bitnet_kernels_json(const bitnet_runtime *runtime,
                                             const bitnet_kernel_query *query, char *out,
                                             size_t cap, size_t *n_bytes, bitnet_error *err);

/* The i-th image of CUDA kernels in this build, for cuModuleLoadData; NULL past the end, or in a
 * build without CUDA. */
BITNET_API const void *bitnet_cuda_image(size_t i);

/* ---- providers: families of kernels, in order of preference ---- */

typedef struct bitnet_provider_info {
    int priority;       /* 1 is best */
    const char *name;   /* "cuda", ..., "avx2", "neon", ..., "fallback" */
    const char *device; /* "cuda", "cpu" */
    bool available;     /* has kernels this machine can run */
} bitnet_provider_info;
BITNET_API bool bitnet_provider_at(const bitnet_runtime *runtime, int i, bitnet_provider_info *out);
/* The name of the provider that computes ternary matrices, such as "dotprod"; it changes only when
 * a bridge begins to serve (bitnet_check.h). */
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

/* Measures every compatible kernel on every shape (m, n, k all set) on the runtime's device, with
 * n_repeats interleaved passes (0: 9), keeps the fastest by median, and writes the cache to path
 * (NULL: this runtime only); the file serves this device, driver and version. Keys are taken as
 * bitnet_engine_shapes gives them. `each` (may be NULL) is told every median. Fails: ARGUMENT (a
 * shape that cannot be made, or of another device), NOT_AVAILABLE (no kernel), IO, MEMORY; for the
 * device as bitnet_engine_open does. */
BITNET_API bitnet_status bitnet_runtime_tune(bitnet_runtime *runtime,
                                             const bitnet_kernel_query *shapes, size_t n_shapes,
                                             int n_repeats, const char *path, bitnet_tune_fn each,
                                             void *user, bitnet_error *err);

/* How many calls of this engine a dequantised fallback served because there was no kernel. */
BITNET_API uint64_t bitnet_engine_fallbacks(const bitnet_engine *engine);

/* ---- single operations: kernels called by themselves on host memory. libbitnet-extras has a
 * checked call for each of them ---- */

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

typedef enum bitnet_single_kind {
    BITNET_SINGLE_MATMUL_I2S, /* in: int8 [m][k], codes [k][n]; out: float [m][n]; k below 2^24 */
    BITNET_SINGLE_MATMUL,     /* in: float [m][k], [k][n]; out: float [m][n] */
    BITNET_SINGLE_QUANTIZE,   /* in: float [n]; type: bitnet_qtype; out: bytes, scales [k], one for
                                 m values each */
    BITNET_SINGLE_QK256,      /* in: codes, scales or none, float [k]; type: bitnet_code_map; out:
                                 float [m] */
    BITNET_SINGLE_CONVERT,    /* in: [n]; type: bitnet_conversion; out: [n] */
    BITNET_SINGLE_VECTOR,     /* in: float [n], and another; type: bitnet_vector; out: float [n] */
    BITNET_SINGLE_SOFTMAX,    /* in: float [m][n]; out: float [m][n] */
    BITNET_SINGLE_ARGMAX,     /* in: float [m][n]; out: int32 [m], -1: no finite value */
    BITNET_SINGLE_DEQUANTIZE, /* in: bytes, scales [k]; type: bitnet_qtype; out: float [n]; on the
                                 CPU alone */
} bitnet_single_kind;

/* The steps of a call, in order; each is timed. */
typedef enum bitnet_single_step {
    BITNET_STEP_CAPABILITY,
    BITNET_STEP_KERNEL,
    BITNET_STEP_ALLOC,
    BITNET_STEP_CONVERT_IN, /* with the copies to the device */
    BITNET_STEP_EXECUTE,
    BITNET_STEP_CONVERT_OUT, /* with the copies from it */
    BITNET_STEP_RECORD,
    BITNET_SINGLE_STEPS
} bitnet_single_step;

/* One operation. Requires that the sizes of its buffers fit m, n and k. */
typedef struct bitnet_single_op {
    bitnet_single_kind op;
    int type, rule; /* rule: bitnet_scale_rule */
    size_t m, n, k;
    const void *in[3];
    size_t in_bytes[3]; /* 0: none */
    void *out[2];
    size_t out_bytes[2];
    /* set by the call */
    bitnet_precision precision; /* in which a MATMUL was computed */
    const char *kernel;         /* its id; NULL: the CPU computed */
    double ms[BITNET_SINGLE_STEPS];
} bitnet_single_op;

typedef struct bitnet_single_info {
    const char *provider; /* that computes now: "cuda", "neon" */
    bool on_device;
    bitnet_precision precision;    /* never AUTO */
    uint64_t n_fallbacks;          /* operations that failed on the device and went to the CPU */
    uint64_t memory_current;       /* bytes held by calls in progress; 0 between them */
    bitnet_precision_stats device; /* its memory and transfers; no times */
} bitnet_single_info;

typedef struct bitnet_single bitnet_single; /* the runtime's device, or its CPU */

/* Opens the runtime's device for MATMUL in a precision. Where the runtime was asked for `auto`, a
 * device that cannot be opened, or fails later, leaves its work to the CPU, with a warning, unless
 * the runtime is strict. Any thread may call the object. Fails as bitnet_engine_open for device and
 * precision; MEMORY. */
BITNET_API bitnet_status bitnet_single_open(bitnet_runtime *runtime, bitnet_precision precision,
                                            bitnet_single **out, bitnet_error *err);
BITNET_API void bitnet_single_close(bitnet_single *single);
/* Computes n independent operations; a device is waited for once per step of all of them. single
 * NULL: by the scalar functions, which define what the kernels compute. If one of them is a
 * DEQUANTIZE, the CPU computes all. Fails: ARGUMENT (NULL, a type or a number of scales that does
 * not fit, quantising what is not finite; nothing was computed), MEMORY (the device has no room;
 * all is given back), NOT_AVAILABLE (the device failed). */
BITNET_API bitnet_status bitnet_single_run(bitnet_single *single, bitnet_single_op *ops, size_t n,
                                           bitnet_error *err);
BITNET_API void bitnet_single_read(bitnet_single *single, bitnet_single_info *out);

#ifdef __cplusplus
}
#endif
#endif
