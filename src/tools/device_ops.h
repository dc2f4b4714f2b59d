/* device_ops.h - the inside of bitnet_ops, shared by its files. */
#ifndef BNET_DEVICE_OPS_H
#define BNET_DEVICE_OPS_H

#include "engine/engine.h"
#include "bitnet_device.h"

struct bitnet_ops {
    const bitnet_runtime *runtime;
    const bnet_provider *gpu, *cpu;
    pthread_mutex_t lock; /* of all below; held while the device works */
    bnet_backend *device; /* NULL: the CPU computes */
    bitnet_precision precision;
    bitnet_ops_stats stats;
    double quantize_ms, matmul_ms;
};

/* n operations that do not need each other, on the device or the CPU. */
bitnet_status bnet_ops_run(bitnet_ops *o, bnet_plain *p, size_t n, bitnet_error *err);
bool bnet_ops_on_device(bitnet_ops *o);

#endif
