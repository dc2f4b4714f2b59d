/* driver.h - what the shared host of all GPUs asks of one vendor's interface: memory, copies,
 * launches in one order, and a few optional things. Hides: handles, libraries, contexts.
 *
 * Results are the vendor's codes, 0 is success; `explain` turns one into a status and a remedy.
 * Work is done in the order in which it was asked for; only `wait` and copies to the host that are
 * said to wait do. Calls after `enter` on the same thread; one thread at a time per driver. */
#ifndef BNET_GPU_DRIVER_H
#define BNET_GPU_DRIVER_H

#include "device/device.h"

typedef uint64_t gpu_ptr;             /* an address on the device; 0: none */
typedef struct gpu_code *gpu_kernel;  /* a kernel that was found */
typedef struct gpu_record *gpu_graph; /* work recorded to be repeated */

typedef struct gpu_dims {
    unsigned grid[3], block[3];
    unsigned shared_bytes; /* dynamic */
    unsigned flags;        /* GPU_OVERLAP */
    unsigned cluster;      /* blocks along x that see each other's shared memory; 0: as compiled */
} gpu_dims;
/* The kernel waits itself for the one before it (programmatic dependent launch); it may start
 * early. Drivers without that ignore it. */
enum { GPU_OVERLAP = 1, GPU_COOPERATIVE = 2 };

typedef struct gpu_occupancy {
    int blocks_per_sm, registers, local_bytes, shared_bytes, max_threads;
    int threads_per_sm; /* that a multiprocessor can hold */
    int clusters; /* resident on the device together; 0: none were asked for, or it is not known */
} gpu_occupancy;

/* Rows of n bytes, each a pitch after the one before it. */
typedef struct gpu_rows {
    gpu_ptr dst, src;
    size_t dst_pitch, src_pitch, n_bytes, n_rows;
} gpu_rows;

typedef struct gpu_driver gpu_driver;

typedef struct gpu_calls {
    const char *name; /* "cuda" */
    void (*close)(gpu_driver *d);
    int (*enter)(gpu_driver *d); /* the calling thread may use the device from now on */

    int (*alloc)(gpu_driver *d, size_t n_bytes, gpu_ptr *out);
    void (*release)(gpu_driver *d, gpu_ptr p); /* after the work that was asked for so far */
    void *(*host_alloc)(gpu_driver *d, size_t n_bytes); /* memory copies run fast with */
    void (*host_release)(gpu_driver *d, void *p);
    void (*memory)(gpu_driver *d, uint64_t *free_bytes, uint64_t *total_bytes);

    /* `src` from host_alloc must stay as it is until the copy was done */
    int (*to_device)(gpu_driver *d, gpu_ptr dst, const void *src, size_t n_bytes);
    int (*to_host)(gpu_driver *d, void *dst, gpu_ptr src, size_t n_bytes); /* wait before reading */
    int (*copy)(gpu_driver *d, gpu_ptr dst, gpu_ptr src, size_t n_bytes);
    int (*fill)(gpu_driver *d, gpu_ptr dst, int byte, size_t n_bytes);
    int (*wait)(gpu_driver *d);

    int (*find)(gpu_driver *d, const char *kernel, gpu_kernel *out);
    int (*launch)(gpu_driver *d, gpu_kernel k, const gpu_dims *dims, void *args);
    bitnet_status (*explain)(const gpu_driver *d, const char *what, int code, bitnet_error *err);
    bool (*lost)(int code); /* nothing will work any more with this context */

    /* ---- optional: NULL where the interface has nothing of the kind ---- */
    int (*fill_rows)(gpu_driver *d, const gpu_rows *rows, int byte); /* of dst */
    int (*record_begin)(gpu_driver *d); /* what follows is recorded, not done */
    int (*record_end)(gpu_driver *d, gpu_graph *out);
    int (*replay)(gpu_driver *d, gpu_graph g);
    void (*graph_release)(gpu_driver *d, gpu_graph g);
    int (*stamp)(gpu_driver *d, int slot); /* notes the time on the device, 0 <= slot < 144 */
    int (*between)(gpu_driver *d, int first, int second, double *ms); /* waits for the second */
    /* Copies while what was asked for is being done, to memory that none of it uses and that was
     * there before the last `wait`; what is asked for next waits for it. `src` as for to_device. */
    int (*beside)(gpu_driver *d, gpu_ptr dst, const void *src, size_t n_bytes);
    int (*lead)(gpu_driver *d, double *ms); /* by how much it ended before that; after `wait` */
    int (*occupancy)(gpu_driver *d, gpu_kernel k, const gpu_dims *dims, gpu_occupancy *out);

    /* ---- several devices: all of these or none ---- */
    int (*after)(gpu_driver *d, gpu_driver *other);  /* what d does next waits for other's work */
    bool (*reach)(gpu_driver *d, gpu_driver *other); /* may d read other's memory? Sees to it */
    int (*fetch)(gpu_driver *d, gpu_ptr dst, gpu_driver *other, gpu_ptr src, size_t n_bytes);
    int (*copy_rows)(gpu_driver *d, const gpu_rows *rows);
} gpu_calls;

struct gpu_driver {
    const gpu_calls *c;
    bnet_gpu gpu;
    int (*range_push)(const char *name); /* for profilers; NULL: nobody asked for ranges */
    int (*range_pop)(void);
    int code_major, code_minor; /* compute capability up to which its kernels were loaded */
    double open_ms;             /* library, context and kernels */
    char version[32];           /* of the interface, "CUDA 13.0" */
};

#endif
