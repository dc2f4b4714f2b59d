/* special.h - the GEMV compiled for one matrix's shape when it is first wanted. It stands behind
 * its own row (i2s_gpu_gemv_rtc), which nothing chooses by itself: tuning, validation, or the
 * option that prefers it. What cannot be compiled is served by the build's kernel. */
#ifndef BNET_CUDA_SPECIAL_H
#define BNET_CUDA_SPECIAL_H

#include "backend/cuda/launch.h"
#include "backend/cuda/one.h"

/* Keeps what `want` says about it; the backend owns the result. A wish that can have no effect, on
 * this chip or without a compiler, is told; in strict mode it fails NOT_AVAILABLE. */
bitnet_status bnet_cuda_special_open(gpu_backend *be, const bnet_backend_want *want,
                                     bitnet_error *err);
/* Is it to serve where the build's GEMV was chosen? */
bool bnet_cuda_special_wanted(const gpu_backend *be);
/* Launches it; false: the build's kernel must. */
bool bnet_cuda_special_gemv(gpu_backend *be, bnet_cu_gemv_args *a, const bnet_cu_launch *l);
bool bnet_cuda_special_one(gpu_backend *be, bnet_cu_one_args *o, const bnet_cu_launch *l);

#endif
