/* launch_ref.h - the reference kernels that every driver has: the functions that launch them, for
 * the `fn` of a driver's records. ref/ref_kernels.inc lists the records, ref/ref_args.h says what
 * each kernel takes and ref/ref_*.h what it computes. */
#ifndef BNET_GPU_LAUNCH_REF_H
#define BNET_GPU_LAUNCH_REF_H

#include "backend/gpu/gpu.h"

gpu_fn_ternary bnet_gpu_ref_ternary;
gpu_fn_linear bnet_gpu_ref_linear;
gpu_fn_embed bnet_gpu_ref_embed;
gpu_fn_norm bnet_gpu_ref_norm;
gpu_fn_quantize bnet_gpu_ref_quantize;
gpu_fn_table bnet_gpu_ref_table;
gpu_fn_rope bnet_gpu_ref_rope;
gpu_fn_kv_store bnet_gpu_ref_kv_store;
gpu_fn_attention bnet_gpu_ref_attention;
gpu_fn_glu bnet_gpu_ref_glu;
gpu_fn_add bnet_gpu_ref_add;
gpu_fn_gather bnet_gpu_ref_gather;
gpu_fn_topk bnet_gpu_ref_topk;
gpu_fn_pack bnet_gpu_ref_pack;

#endif
