/* nvtx.c - ranges that NVIDIA's profilers show beside the kernels, where they were asked for:
 * passes, their phases, tensors on their way. The library is found at run time; it hands the ranges
 * to a profiler that is attached and does nothing else. */
#include "backend/cuda/cuda.h"

static const char *const names[] = {"libnvtx3interop.so.1", "libnvToolsExt.so.1", NULL};
static const char *const wanted[] = {"nvtxRangePushA", "nvtxRangePop", NULL};

bitnet_status bnet_cuda_ranges_open(gpu_driver *d, const bnet_log *log, bool strict,
                                    bitnet_error *err)
{
    cuda_driver *c = (cuda_driver *)d;
    char why[160];
    if (bnet_library_open(c->loader, names, wanted, &c->nvtx, why, sizeof why)) {
        memcpy(&d->range_push, &c->nvtx.fn[0], sizeof d->range_push);
        memcpy(&d->range_pop, &c->nvtx.fn[1], sizeof d->range_pop);
        return BITNET_OK;
    }
    if (strict)
        return bnet_fail(err, BITNET_NOT_AVAILABLE,
                         "nvtx: %s: install the CUDA toolkit's NVTX (package cuda-nvtx)", why);
    bnet_logf(log, BITNET_LOG_WARN, "cuda",
              "nvtx: %s: no ranges are marked; install the CUDA toolkit's NVTX (package cuda-nvtx)",
              why);
    return BITNET_OK;
}
