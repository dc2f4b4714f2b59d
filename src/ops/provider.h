/* provider.h - families of kernels by name and rank: which of them this machine can run, asked once
 * and remembered. The registry decides what a kernel is; this only names the family. */
#ifndef BNET_PROVIDER_H
#define BNET_PROVIDER_H

#include "ops/inspect.h"
#include "ops/open.h"
#include "ops/reference.h"
#include "ops/registry.h"

typedef struct bnet_provider {
    const char *name; /* short, lower case */
    bnet_device_kind device;
    const char *isa; /* of its records; NULL: any */
    int rank;        /* 1 is best; several may share one, the earlier is preferred */
    /* Operations on the CPU that can be called directly, from any thread; NULL: the provider is
     * not in this build, or computes on a device (bnet_provider_run). */
    bnet_matmul_fn *matmul_i2s;
    bnet_quantize_fn *quantize;
    const struct bnet_single_fns *single;
} bnet_provider;

/* One operation, from any thread: by the functions above, or by an open backend of the provider's
 * kind of device. Requires finite values to quantise. Fails: NOT_COMPILED, NOT_AVAILABLE (no such
 * backend is open, or it failed), MEMORY. */
bitnet_status bnet_provider_run(const bnet_provider *p, bnet_backend *device, bitnet_single_op *c,
                                bitnet_error *err);

const bnet_provider *bnet_provider_at(size_t i); /* in order of preference; NULL past the end */
const bnet_provider *bnet_provider_find(const char *name);
/* Has the registry a kernel of this provider that one of the devices can run? `op` and `format`
 * NONE: any. */
bool bnet_provider_available(const bnet_provider *p, const bnet_registry *r,
                             const bnet_capabilities *devices, size_t n_devices, bnet_op op,
                             bnet_format format);

/* Asks for the devices of this machine; called at most once per manager. Returns how many. */
typedef size_t (*bnet_devices_fn)(void *user, bnet_capabilities *out, size_t cap);

typedef struct bnet_manager bnet_manager;
/* The registry must outlive the manager. */
bitnet_status bnet_manager_open(const bnet_registry *r, bnet_devices_fn devices, void *user,
                                bnet_manager **out, bitnet_error *err);
void bnet_manager_close(bnet_manager *m);
/* The first available provider of ternary matrices; chosen at the first call, and again once a
 * kernel was registered. NULL: none at all. */
const bnet_provider *bnet_manager_best(bnet_manager *m);
/* The i-th available provider (any op) in order of preference; NULL past the end. */
const bnet_provider *bnet_manager_at(bnet_manager *m, size_t i);

#endif
