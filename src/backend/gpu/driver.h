/* driver.h - what the GPU host asks of one vendor's interface: memory, copies, launches in one
 * order, and a few optional things. Hides: handles, libraries, contexts, error numbers.
 *
 * A driver is a struct that begins with gpu_driver and a table gpu_calls; docs/BACKEND.md shows how
 * one is added. Work is done in the order in which it was asked for. Only `wait`, `between` and
 * calls whose comment says so block the host. All calls but `close` are made between `enter` and
 * `leave` of the same thread, one thread at a time per driver. */
#ifndef BNET_GPU_DRIVER_H
#define BNET_GPU_DRIVER_H

#include "ops/registry.h"

/* How a call ended. The driver keeps its vendor's number of the last failure of each kind, for
 * `explain`. */
typedef enum gpu_result {
    GPU_OK,
    GPU_NO_MEMORY,   /* on the device or of the host; smaller requests may work */
    GPU_NO_KERNEL,   /* nothing that was loaded has a kernel of this name */
    GPU_UNSUPPORTED, /* this device or version of the interface cannot do it */
    GPU_FAILED,      /* it failed; the device still works */
    GPU_LOST,        /* nothing works any more until the driver is closed */
    GPU_RESULTS
} gpu_result;

typedef struct gpu_memory *gpu_memory; /* one allocation on the device; the driver's handle */
typedef struct gpu_code *gpu_kernel;   /* a kernel that was found */
typedef struct gpu_record *gpu_graph;  /* work recorded to be repeated */

/* A place on the device. memory NULL: nowhere. */
typedef struct gpu_at {
    gpu_memory memory;
    size_t offset; /* bytes */
} gpu_at;

static inline bool gpu_none(gpu_at at)
{
    return at.memory == NULL;
}
/* n bytes behind; nowhere stays nowhere. */
static inline gpu_at gpu_plus(gpu_at at, size_t n_bytes)
{
    at.offset += at.memory ? n_bytes : 0;
    return at;
}
static inline bool gpu_same(gpu_at a, gpu_at b)
{
    return a.memory == b.memory && a.offset == b.offset;
}

/* ---- launches ---- */

/* An argument of a kernel. Kernels that every driver has (ref/ref_args.h) take lists of places and
 * numbers; a vendor's own may take one struct by value. */
typedef enum gpu_arg_kind {
    GPU_ARG_AT, /* where a buffer begins; nowhere: a null pointer, or whatever the kernel ignores */
    GPU_ARG_I32, /* four bytes */
    GPU_ARG_F32,
    GPU_ARG_U64,
    GPU_ARG_STRUCT, /* the only argument: the struct that the vendor's kernel takes */
} gpu_arg_kind;

typedef struct gpu_arg {
    gpu_arg_kind kind;
    union {
        gpu_at at;
        int32_t i32;
        float f32;
        uint64_t u64;
        const void *whole; /* GPU_ARG_STRUCT; read before launch returns */
    } of;
} gpu_arg;

static inline gpu_arg gpu_arg_at(gpu_at at)
{
    return (gpu_arg){GPU_ARG_AT, {.at = at}};
}
static inline gpu_arg gpu_arg_i32(int64_t i)
{
    return (gpu_arg){GPU_ARG_I32, {.i32 = (int32_t)i}};
}
static inline gpu_arg gpu_arg_f32(float f)
{
    return (gpu_arg){GPU_ARG_F32, {.f32 = f}};
}
static inline gpu_arg gpu_arg_u64(uint64_t n)
{
    return (gpu_arg){GPU_ARG_U64, {.u64 = n}};
}

typedef struct gpu_dims {
    unsigned grid[3], block[3];
    unsigned shared_bytes; /* dynamic */
    unsigned flags;        /* GPU_OVERLAP, GPU_COOPERATIVE */
    unsigned cluster;      /* blocks along x that see each other's shared memory; 0: as compiled */
} gpu_dims;
/* OVERLAP: the kernel itself waits for the one before it and may start early; drivers without that
 * ignore it. COOPERATIVE: all blocks are resident at the same time. */
enum { GPU_OVERLAP = 1, GPU_COOPERATIVE = 2 };

typedef struct gpu_occupancy {
    int blocks_per_sm, registers, local_bytes, shared_bytes, max_threads;
    int threads_per_sm; /* that a multiprocessor can hold */
    int clusters; /* resident on the device together; 0: none were asked for, or it is not known */
} gpu_occupancy;

/* Rows of n bytes, each a pitch after the one before it. */
typedef struct gpu_rows {
    gpu_at dst, src;
    size_t dst_pitch, src_pitch, n_bytes, n_rows;
} gpu_rows;

enum { GPU_STAMPS = 144 };

typedef struct gpu_driver gpu_driver;

typedef struct gpu_calls {
    const char *name; /* of the kind of device */
    /* Ends everything and frees the driver; not between enter and leave. */
    void (*close)(gpu_driver *d);
    /* The calling thread may use the device until `leave`, which restores what the thread used
     * before. Not called again before `leave`; `leave` only if `enter` succeeded. */
    gpu_result (*enter)(gpu_driver *d);
    void (*leave)(gpu_driver *d);

    gpu_result (*alloc)(gpu_driver *d, size_t n_bytes, gpu_memory *out); /* n_bytes > 0 */
    void (*release)(gpu_driver *d, gpu_memory m); /* after the work asked for so far; NULL: none */
    /* The number by which a kernel reaches the memory when it finds that number in other memory;
     * the same for the memory's life. */
    uint64_t (*address)(gpu_driver *d, gpu_memory m);
    void *(*host_alloc)(gpu_driver *d, size_t n_bytes); /* memory that copies fastest; or NULL */
    void (*host_release)(gpu_driver *d, void *p);
    void (*memory)(gpu_driver *d, uint64_t *free_bytes, uint64_t *total_bytes);

    /* Memory of the host must stay as it is until the copy was done; host_alloc's is fastest. */
    gpu_result (*to_device)(gpu_driver *d, gpu_at dst, const void *src, size_t n_bytes);
    gpu_result (*to_host)(gpu_driver *d, void *dst, gpu_at src, size_t n_bytes);
    gpu_result (*copy)(gpu_driver *d, gpu_at dst, gpu_at src, size_t n_bytes);
    gpu_result (*fill)(gpu_driver *d, gpu_at dst, int byte, size_t n_bytes);
    gpu_result (*wait)(gpu_driver *d);

    gpu_result (*find)(gpu_driver *d, const char *kernel, gpu_kernel *out);
    /* The arguments are copied before it returns. */
    gpu_result (*launch)(gpu_driver *d, gpu_kernel k, const gpu_dims *dims, const gpu_arg *args,
                         int n_args);
    /* Writes device, `what`, the vendor's words for the last failure of this kind, and a remedy. */
    bitnet_status (*explain)(const gpu_driver *d, const char *what, gpu_result r,
                             bitnet_error *err);

    /* ---- optional: NULL where the interface has nothing of the kind ---- */
    gpu_result (*fill_rows)(gpu_driver *d, const gpu_rows *rows, int byte); /* of dst */
    void *(*stream)(gpu_driver *d); /* the vendor's handle of the order in which work is done */
    gpu_result (*record_begin)(gpu_driver *d); /* what follows is recorded, not done */
    gpu_result (*record_end)(gpu_driver *d, gpu_graph *out);
    gpu_result (*replay)(gpu_driver *d, gpu_graph g);
    void (*graph_release)(gpu_driver *d, gpu_graph g);
    gpu_result (*stamp)(gpu_driver *d, int slot); /* notes the time on the device, < GPU_STAMPS */
    gpu_result (*between)(gpu_driver *d, int first, int second, double *ms); /* waits for second */
    /* Copies while the work asked for is being done, to memory that none of it uses and that
     * existed before the last `wait`; what is asked for next waits for the copy. `src` as for
     * to_device. */
    gpu_result (*upload_aside)(gpu_driver *d, gpu_at dst, const void *src, size_t n_bytes);
    gpu_result (*aside_lead)(gpu_driver *d,
                             double *ms); /* by how much it ended first; after wait */
    gpu_result (*occupancy)(gpu_driver *d, gpu_kernel k, const gpu_dims *dims, gpu_occupancy *out);

    /* ---- several devices: all of these or none ---- */
    /* d's next work waits for other's. If that is being recorded, d's work becomes part of the
     * record until it ends. */
    gpu_result (*after)(gpu_driver *d, gpu_driver *other);
    bool (*reach)(gpu_driver *d, gpu_driver *other); /* lets d read other's memory; false: no */
    gpu_result (*fetch)(gpu_driver *d, gpu_at dst, gpu_driver *other, gpu_at src, size_t n_bytes);
    gpu_result (*copy_rows)(gpu_driver *d, const gpu_rows *rows);
} gpu_calls;

struct gpu_driver {
    const gpu_calls *c;
    bnet_gpu gpu;
    bnet_capabilities caps;              /* what kernels may use, for the registry */
    bnet_gpu_caps has;                   /* arithmetic of the chip */
    char chip[48];                       /* kind of chip, for messages */
    char version[32];                    /* of the interface, for reports */
    double open_ms;                      /* library, context and kernels */
    int (*range_push)(const char *name); /* for profilers; NULL: nobody asked for ranges */
    int (*range_pop)(void);
};

/* For drivers whose kernels take their arguments as one struct by value: writes the members in
 * order with C's alignment, places as 64-bit addresses. Returns the size of the struct; 0: it is
 * larger than `cap`. A GPU_ARG_STRUCT is not packed. */
size_t bnet_gpu_pack_args(gpu_driver *d, const gpu_arg *args, int n, void *out, size_t cap);

#endif
