/* nccl.h - ranks joined by NCCL where there is one, else by copies. */
#ifndef BNET_CUDA_NCCL_H
#define BNET_CUDA_NCCL_H

#include "backend/group/exchange.h"

/* NCCL serves ranks on different devices only; without it, or for virtual ranks, copies do, and the
 * log says so. */
bitnet_status bnet_cuda_exchange_open(gpu_backend *const *ranks, int n, const bnet_log *log,
                                      gpu_exchange **out, bitnet_error *err);

#endif
