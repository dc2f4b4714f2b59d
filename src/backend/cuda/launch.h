/* launch.h - the functions behind the rows of kernels.inc, by the type of gpu.h they have. */
#ifndef BNET_CUDA_LAUNCH_H
#define BNET_CUDA_LAUNCH_H

#include "backend/cuda/kernels.h"
#include "backend/cuda/kernels/ref.h"
#include "backend/gpu/gpu.h"

gpu_fn_ternary bnet_cuda_ref_ternary;
gpu_fn_linear bnet_cuda_ref_linear;
gpu_fn_embed bnet_cuda_ref_embed;
gpu_fn_norm bnet_cuda_ref_norm;
gpu_fn_quantize bnet_cuda_ref_quantize;
gpu_fn_table bnet_cuda_ref_table;
gpu_fn_rope bnet_cuda_ref_rope;
gpu_fn_kv_store bnet_cuda_ref_kv_store;
gpu_fn_attention bnet_cuda_ref_attention;
gpu_fn_glu bnet_cuda_ref_glu;
gpu_fn_add bnet_cuda_ref_add;
gpu_fn_gather bnet_cuda_ref_gather;
gpu_fn_topk bnet_cuda_ref_topk;
gpu_fn_pack bnet_cuda_ref_pack;

static inline bnet_cu_act8 cuda_act(const gpu_act8 *a)
{
    return (bnet_cu_act8){a->q, a->scale, a->sum, (uint32_t)a->stride, 0};
}

/* The step's tokens whose cache is of this type. */
static inline bnet_cu_step cuda_step(const gpu_backend *be, int type)
{
    const gpu_step_view *v = &be->step;
    return (bnet_cu_step){v->ids, v->pos[type], v->seq, v->seqs, v->tables};
}

#endif
