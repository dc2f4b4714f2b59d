/* usage.h - what the backend takes of a device: its own memory, what was taken before it, and how
 * fast weights came up. */
#ifndef BNET_GPU_USAGE_H
#define BNET_GPU_USAGE_H

#include "backend/gpu/gpu.h"

/* Counts an allocation (n > 0) or a release (n < 0) on the device; every one must come here. */
static inline void bnet_gpu_own(gpu_backend *be, int64_t n_bytes)
{
    be->own_bytes += (uint64_t)n_bytes;
    be->own_peak = BNET_MAX(be->own_peak, be->own_bytes);
}

/* Call it when the driver is open and before anything is allocated. */
void bnet_gpu_usage_begin(gpu_backend *be);
/* Call it at the end: logs memory that was not released; the pool reports buffers of passes. */
void bnet_gpu_usage_end(const gpu_backend *be);
/* Before a tensor of the file is read. */
void bnet_gpu_load_begin(gpu_backend *be, uint64_t n_bytes);

/* Entries of the table. */
void bnet_gpu_weights_done(bnet_backend *b, const bnet_log *log);
void bnet_gpu_usage(bnet_backend *b, bnet_usage *out);
int bnet_gpu_batch_limit(const bnet_backend *b);

#endif
