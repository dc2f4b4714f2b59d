/* vec.cu - elementwise operations, softmax of rows, conversions between floats and halves: these by
 * their bits, so that every value, not-a-numbers too, becomes what it becomes on the CPU. */
#include "common.cuh"
#include "ref_dialect.cuh"

#include "backend/gpu/ref/ref_math.h"

static __device__ __forceinline__ uint16_t to_bf16(float f)
{
    uint32_t b = __float_as_uint(f);
    return (b & 0x7fffffffu) > 0x7f800000u ? (uint16_t)(b >> 16 | 0x40u)
                                           : (uint16_t)((b + 0x7fffu + (b >> 16 & 1u)) >> 16);
}

#define ELEMENTWISE(name, X, Y, expression)                                                        \
    KERNEL __launch_bounds__(256) bnet_##name(const __grid_constant__ bnet_cu_vec_args a)          \
    {                                                                                              \
        const X *x = (const X *)a.x;                                                               \
        Y *y = (Y *)a.y;                                                                           \
        uint64_t step = (uint64_t)gridDim.x * blockDim.x;                                          \
        for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < a.n; i += step)     \
            y[i] = expression;                                                                     \
    }

ELEMENTWISE(add, float, float, __fadd_rn(x[i], ((const float *)a.z)[i]))
ELEMENTWISE(mul, float, float, __fmul_rn(x[i], ((const float *)a.z)[i]))
ELEMENTWISE(relu2, float, float, relu2_gate(x[i], 1.0f))
ELEMENTWISE(silu, float, float, silu_gate(x[i], 1.0f))
ELEMENTWISE(glu_relu2, float, float, relu2_gate(x[i], ((const float *)a.z)[i]))
ELEMENTWISE(glu_silu, float, float, silu_gate(x[i], ((const float *)a.z)[i]))
ELEMENTWISE(to_f16, float, uint16_t, (uint16_t)ref_to_half(x[i]))
ELEMENTWISE(to_bf16, float, uint16_t, to_bf16(x[i]))
ELEMENTWISE(from_f16, uint16_t, float, ref_half(x[i]))
ELEMENTWISE(from_bf16, uint16_t, float, ref_bf16(x[i]))

enum { THREADS = 256 };

/* A block per row; the row's largest value first, so that nothing overflows. */
KERNEL __launch_bounds__(THREADS) bnet_softmax(const __grid_constant__ bnet_cu_vec_args a)
{
    __shared__ float tops[32];
    __shared__ double sums[32];
    const float *x = (const float *)a.x + blockIdx.x * a.n;
    float *y = (float *)a.y + blockIdx.x * a.n, top = -INFINITY;
    for (uint64_t i = threadIdx.x; i < a.n; i += THREADS)
        top = fmaxf(top, x[i]);
    top = warp_max(top);
    if (threadIdx.x % 32 == 0)
        tops[threadIdx.x / 32] = top;
    __syncthreads();
    top = warp_max(tops[threadIdx.x % (THREADS / 32)]);
    double sum = 0;
    for (uint64_t i = threadIdx.x; i < a.n; i += THREADS)
        sum += expf(x[i] - top);
    sum = block_sum<THREADS>(sum, sums);
    for (uint64_t i = threadIdx.x; i < a.n; i += THREADS)
        y[i] = (float)(expf(x[i] - top) / sum);
}
