/* ref_dialect.cuh - what makes CUDA kernels of the reference kernels (backend/gpu/ref/ref_args.h).
 * Include it before them. */
#ifndef BNET_CUDA_REF_DIALECT_CUH
#define BNET_CUDA_REF_DIALECT_CUH

#include "backend/cuda/kernels.h"

#define REF_KERNEL(name, args)                                                                     \
    extern "C" __global__ void name(args a);                                                       \
    extern "C" __global__ void name(args a)
#define REF_FN static __device__ __forceinline__
#define REF_THREAD                                                                                 \
    ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) /* kernels are launched in one dimension */
#define REF_SQRT(x)       sqrt(x)
#define REF_FLOAT_BITS(u) __uint_as_float(u)
#define REF_BITS(f)       __float_as_uint(f)
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define REF_START_NEXT() asm volatile("griddepcontrol.launch_dependents;" ::: "memory")
#else
#define REF_START_NEXT()
#endif

#endif
