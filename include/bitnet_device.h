/* bitnet_device.h - single operations on a device, without a model.
 *
 * The rules of bitnet.h hold (errors, ownership, threads); there is no promise of stability between
 * versions. */
#ifndef BITNET_DEVICE_H
#define BITNET_DEVICE_H

#include "bitnet_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

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
 * all is given back, the object stays usable), NOT_AVAILABLE (the device failed). A batch is done
 * by shape, as many at once as fit; quantising goes in pieces where the whole does not fit. */
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

#ifdef __cplusplus
}
#endif
#endif
