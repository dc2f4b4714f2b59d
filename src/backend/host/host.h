/* host.h - the GPU host of backend/gpu on plain memory, with portable kernels: the executable
 * definition of gpu/driver.h. It needs no hardware and no library, checks every range it is given,
 * and does work as late as the contract allows, so that host code which forgets to wait fails here
 * first. A new driver is compared with it (docs/BACKEND.md). */
#ifndef BNET_HOST_H
#define BNET_HOST_H

#include "backend/gpu/driver.h"
#include "ops/open.h"

bitnet_status bnet_host_open(const bnet_backend_want *w, bnet_backend **out, bitnet_error *err);
const bnet_kernel_record *bnet_host_kernel_rows(size_t *n);

/* Opens the driver; kernels run on `pool`, which is borrowed. */
bitnet_status bnet_host_driver_open(bnet_pool *pool, gpu_driver **out, bitnet_error *err);

/* ---- for tests ---- */

/* What can be made to fail. */
typedef enum host_call {
    HOST_ENTER,
    HOST_ALLOC,
    HOST_COPY, /* to_device, to_host, copy and fill */
    HOST_LAUNCH,
    HOST_WAIT,
    HOST_RECORD, /* record_begin, record_end and replay */
    HOST_CALLS
} host_call;
/* The nth call of this kind from now on fails with r (1: the next one; 0: none); if that is
 * NO_MEMORY, so do all after it. */
void bnet_host_fail(gpu_driver *d, host_call call, uint64_t nth, gpu_result r);
/* How many calls of this kind there were. */
uint64_t bnet_host_calls(const gpu_driver *d, host_call call);
/* Bytes on the device that were not released. */
uint64_t bnet_host_used(const gpu_driver *d);

/* ---- kernels (kernels.c) ---- */

enum { HOST_PLACES = 16, HOST_ARGS_BYTES = 256 };

/* What a launch takes, from its arguments. */
typedef struct host_needs {
    uint64_t n_bytes[HOST_PLACES]; /* of each place, in their order; 0: any, or none */
    uint64_t cost;                 /* of a thread, in simple operations */
} host_needs;

typedef struct host_kernel {
    const char *name;
    size_t args_bytes;
    void (*run)(const void *args, uint64_t begin, uint64_t end); /* these threads */
    void (*needs)(const void *args, host_needs *out);
} host_kernel;
const host_kernel *bnet_host_kernel(const char *name); /* NULL: there is none */

#endif
