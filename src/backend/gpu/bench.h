/* bench.h - entries of the table that measure: single kernels, and how fast memory is read. */
#ifndef BNET_GPU_BENCH_H
#define BNET_GPU_BENCH_H

#include "backend/gpu/gpu.h"

bitnet_status bnet_gpu_bench_new(bnet_backend *b, const bnet_kernel_query *q, bnet_bench **out,
                                 bitnet_error *err);
double bnet_gpu_bench_run(bnet_bench *b, const bnet_kernel_record *k, bitnet_launch *shape);
void bnet_gpu_bench_free(bnet_bench *b);
double bnet_gpu_read_limit(bnet_backend *b); /* GB/s; 0: it could not be measured */

#endif
