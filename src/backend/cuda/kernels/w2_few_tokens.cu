/* w2_few_tokens.cu - the GEMV for any matrix: of one token from codes, or from floats that are
 * normed and quantised inside; of two to eight. Two blocks fit a multiprocessor: one multiplies
 * while the other's weights come, of this kernel or the one behind it. */
#include "w2_few_tokens.cuh"

#if BNET_SM80 || !defined(__CUDA_ARCH__)

KERNEL __launch_bounds__(BNET_ONE_THREADS, 2)
    bnet_w2_one(const __grid_constant__ bnet_cu_few_args o)
{
    one_token<BNET_ONE_UNITS, false>(o);
}

KERNEL __launch_bounds__(BNET_ONE_THREADS, 2)
    bnet_w2_one_norm(const __grid_constant__ bnet_cu_few_args o)
{
    one_token<BNET_ONE_UNITS, true>(o);
}

KERNEL __launch_bounds__(BNET_ONE_THREADS, 2)
    bnet_w2_few(const __grid_constant__ bnet_cu_few_args o)
{
    few_tokens<BNET_FEW_UNITS>(o);
}

#endif
