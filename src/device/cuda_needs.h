/* cuda_needs.h - what a CUDA kernel may need of its device, as bits of a registry record. */
#ifndef BNET_CUDA_NEEDS_H
#define BNET_CUDA_NEEDS_H

#include "device/device.h"

enum {
#define LEVEL(cc, name) BNET_CUDA_INDEX_##cc,
#include "device/cuda_levels.inc"
#undef LEVEL
    BNET_CUDA_INDEX_TENSOR_CORES,
    BNET_CUDA_INDEX_BUILT /* code of this build for the chip */
};
/* A kernel needs one level and BUILT; a device has its own level and all below. */
#define BNET_CUDA_NEED(what) (UINT64_C(1) << BNET_CUDA_INDEX_##what)

/* With BUILT: whoever loaded code for the chip knows. */
uint64_t bnet_cuda_has(int cc_major, int cc_minor, bool tensor_cores);
/* What kernels of this build may use on the chip, once they are loaded; level: its text, for
 * messages. */
uint64_t bnet_cuda_may_use(const bnet_gpu *g, char *level, size_t cap);
/* The level of "sm_75"; 0: no kernel asks for such a one. */
uint64_t bnet_cuda_need_of(const char *isa);
/* "compute capability 7.5", "tensor cores", "one of sm_75 sm_80"; NULL: no such bit. */
const char *bnet_cuda_need_name(int bit);

#endif
