/* mempool.h - what the device layer adds to the pools of bitnet_device.h, and the memory of the
 * host. A pool's book-keeping never touches a buffer: its address may be one of a GPU. */
#ifndef BNET_MEMPOOL_H
#define BNET_MEMPOOL_H

#include "base/str.h"
#include "bitnet_device.h"
#include "bitnet_tools.h"

/* Seed-level defaults (M-1); weights and caches of keys and values are outside this cap (D-42). */
#define BNET_MEMPOOL_BYTES       ((uint64_t)2 << 30)
#define BNET_MEMPOOL_BUFFERS     1000
#define BNET_MEMPOOL_INTERVAL_MS 30000

/* min(2 GB, 10 % of the device's memory) (D-34); 0: not known, 2 GB. */
uint64_t bnet_mempool_cap(uint64_t device_bytes);

/* Memory of the host, read anew at every call (M-8, D-35). False where the system does not say.
 * `root` "": the real /proc. */
bool bnet_host_memory_read(const char *root, bitnet_host_memory *out);
/* What is resident of this process, page by page: process_bytes is a sum of counters that some
 * kernels keep for each CPU and add up only roughly (megabytes off with many). Slower. */
bool bnet_resident_read(const char *root, uint64_t *n_bytes);

#endif
