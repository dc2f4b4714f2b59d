/* user_device.h - a device as programs use it beside an engine: their own kernels, streams, memory
 * and work that is submitted and waited for (bitnet_device.h has the meaning). The engine layer
 * checks arguments and calls through the table; a vendor's folder fills it. Any thread. */
#ifndef BNET_USER_DEVICE_H
#define BNET_USER_DEVICE_H

#include "device/device.h"
#include "bitnet_device.h"

enum { BNET_USER_STREAMS = 8 };

typedef struct bitnet_cuda bnet_user_device;
typedef struct bitnet_cuda_module bnet_user_module;
typedef struct bitnet_work bnet_user_work;

typedef enum bnet_user_copy {
    BNET_USER_KERNEL,
    BNET_USER_TO_DEVICE,
    BNET_USER_TO_HOST,
    BNET_USER_ON_DEVICE,
    BNET_USER_COPIES
} bnet_user_copy;

/* One piece of work; stream and kind were checked. */
typedef struct bnet_user_order {
    int stream;
    const bnet_user_work *after;
    bnet_user_copy kind;
    void *kernel, **params;
    unsigned grid[3], block[3], shared_bytes;
    void *dst;
    const void *src;
    size_t n_bytes;
} bnet_user_order;

typedef struct bnet_user_calls {
    void (*close)(bnet_user_device *d);
    void *(*context)(const bnet_user_device *d);
    void *(*stream)(bnet_user_device *d, int stream);
    bitnet_status (*module_load)(bnet_user_device *d, const void *image, bnet_user_module **out,
                                 bitnet_error *err);
    void (*module_free)(bnet_user_module *m);
    void *(*module_handle)(const bnet_user_module *m);
    bitnet_status (*kernel)(bnet_user_device *d, const bnet_user_module *m, const char *name,
                            void **out, bitnet_error *err);
    void *(*take)(void *d, size_t n_bytes);
    void (*give)(void *d, void *p, size_t n_bytes);
    void *(*host_take)(bnet_user_device *d, size_t n_bytes);
    void (*host_give)(bnet_user_device *d, void *p);
    bitnet_status (*submit)(bnet_user_device *d, const bnet_user_order *o, bnet_user_work **out,
                            bitnet_error *err);
    bool (*done)(const bnet_user_work *w);
    bitnet_status (*wait)(const bnet_user_work *w, bitnet_error *err);
    bitnet_status (*times)(const bnet_user_work *w, double *begin_ms, double *end_ms,
                           bitnet_error *err);
    void (*work_free)(bnet_user_work *w);
} bnet_user_calls;

/* What the vendor's own structs begin with. */
struct bitnet_cuda {
    const bnet_user_calls *c;
};
struct bitnet_cuda_module {
    bnet_user_device *device;
};
struct bitnet_work {
    bnet_user_device *device;
};

#ifdef BITNET_HAVE_CUDA
bitnet_status bnet_cuda_user_open(int index, bnet_user_device **out, bitnet_error *err);
#endif

#endif
