/* w2_gemv_spec.cuh - w2_gemv.cu for one matrix and one number of tokens, compiled at run time
 * (compiler.c): what the host passes in the arguments' struct is known to the compiler, so loops have
 * their ends, divisions become shifts and the epilogue is one. */
#include "w2_spec.cuh"

#define bnet_cu_w2 spec_w2
#define bnet_cu_gemv_args spec_gemv_args
#include "backend/cuda/kernels/w2_gemv.cu"
