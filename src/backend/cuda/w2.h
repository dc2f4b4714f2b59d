/* w2.h - one product of a ternary matrix, as the passes of pass.c and the single operation both
 * want it: parts with their own scales and destinations, an input that may still have to be normed
 * and quantised, and what becomes of the sums. */
#ifndef BNET_CUDA_W2_H
#define BNET_CUDA_W2_H

#include "backend/cuda/launch.h"

typedef struct cuda_w2_call {
    bnet_cu_w2 m;
    bnet_cu_act8 act; /* or x: */
    gpu_at x, norm;   /* one row of floats, normed (nowhere: not) and quantised inside */
    float eps;
    uint32_t k, n_tokens, epilogue;
} cuda_w2_call;

/* k: a row whose function is one of bnet_cuda_w2_*. */
void bnet_cuda_w2(gpu_backend *be, const bnet_kernel_record *k, const cuda_w2_call *call);
/* Can this row take floats (x)? */
bool bnet_cuda_w2_norms(const bnet_kernel_record *k);
bool bnet_cuda_w2_fast(const bnet_kernel_record *k); /* its function is one of bnet_cuda_w2_* */
/* One weight alone, wherever its tiles lie. */
bnet_cu_w2 bnet_cuda_w2_of(const gpu_weight *w, gpu_at y);

#endif
