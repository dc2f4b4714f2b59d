/* cuda_needs.c - from a compute capability to the bits a kernel may need. */
#include "device/cuda_needs.h"

#include <stdio.h>

static const struct {
    int cc;
    const char *name;
} levels[] = {
#define LEVEL(cc, name) {cc, name},
#include "device/cuda_levels.inc"
#undef LEVEL
};

uint64_t bnet_cuda_has(int cc_major, int cc_minor, bool tensor_cores)
{
    uint64_t has = tensor_cores ? BNET_CUDA_NEED(TENSOR_CORES) : 0;
    for (size_t i = 0; i < BNET_COUNT(levels); i++)
        if (10 * cc_major + cc_minor >= levels[i].cc)
            has |= UINT64_C(1) << i;
    return has;
}

uint64_t bnet_cuda_may_use(const bnet_gpu *g, char *level, size_t cap)
{
    int major = g->cc_major, minor = g->cc_minor;
    bnet_cuda_code(bnet_cuda_archs(), &major, &minor);
    snprintf(level, cap, "compute capability %d.%d", major, minor);
    return bnet_cuda_has(major, minor,
                         bnet_gpu_capabilities(g->cc_major, g->cc_minor).tensor_cores);
}

const char *bnet_cuda_need_name(int bit)
{
    if (bit == BNET_CUDA_INDEX_TENSOR_CORES)
        return "tensor cores";
    return bit >= 0 && (size_t)bit < BNET_COUNT(levels) ? levels[bit].name : NULL;
}
