/* precision.h - the narrow arithmetic of float matrices: which one, by which kernels, how long. */
#ifndef BNET_GPU_PRECISION_H
#define BNET_GPU_PRECISION_H

#include "backend/gpu/gpu.h"

/* n floats to halves, halves to floats. */
typedef void gpu_fn_convert(gpu_backend *be, const bnet_kernel_record *k, gpu_at src, size_t n,
                            gpu_at dst);
/* One operation of bitnet_single_op on what lies on the device; products of halves get halves. */
typedef void gpu_fn_single(gpu_backend *be, const bnet_kernel_record *k, const bitnet_single_op *p,
                           const gpu_at *in, const gpu_at *out);

static inline bool gpu_half(bitnet_precision p)
{
    return p == BITNET_PRECISION_FP16 || p == BITNET_PRECISION_BF16;
}
static inline bnet_format gpu_float_format(bitnet_precision p)
{
    return p == BITNET_PRECISION_FP16   ? BNET_FORMAT_F16
           : p == BITNET_PRECISION_BF16 ? BNET_FORMAT_BF16
                                        : BNET_FORMAT_F32;
}
static inline bnet_dtype gpu_float_dtype(bitnet_precision p)
{
    return p == BITNET_PRECISION_FP16   ? BNET_DTYPE_F16
           : p == BITNET_PRECISION_BF16 ? BNET_DTYPE_BF16
                                        : BNET_DTYPE_F32;
}

/* Settles the backend's precision: what the device has, whose kernels are in the image and whose
 * results are right. Fails NOT_AVAILABLE: a kernel of the precision that was asked for is missing;
 * strict and not what was asked for. */
bitnet_status bnet_gpu_precision(gpu_backend *be, bitnet_precision wanted, bitnet_error *err);
/* The precision in which a kernel computes products, or for which it converts their inputs. */
bitnet_precision bnet_gpu_precision_of(const gpu_backend *be, const bnet_kernel_record *k);
/* Logs it if the settled precision has no effect because none of the model's weights uses it. */
void bnet_gpu_precision_used(const gpu_backend *be, size_t n_half, const bnet_log *log);
/* The backend's entry `plain`. */
bitnet_status bnet_gpu_single(bnet_backend *b, bitnet_single_op *p, size_t n, bitnet_error *err);

#endif
