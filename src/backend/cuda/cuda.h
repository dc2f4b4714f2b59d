/* cuda.h - the inside of the CUDA driver: functions found in libcuda and what was opened with them.
 * The types are ours: nothing of the toolkit is needed to build this. */
#ifndef BNET_CUDA_H
#define BNET_CUDA_H

#include "backend/group/exchange.h"
#include "device/cuda_needs.h"
#include "device/probe.h"

typedef uint64_t cu_ptr; /* an address on the device, CUdeviceptr */

/* The address of a place; 0: nowhere. */
static inline cu_ptr cuda_at(gpu_at at)
{
    return (cu_ptr)(uintptr_t)at.memory + at.offset;
}
/* Pinned memory of the host as a place: kernels see it at the host's address. */
static inline gpu_at cuda_pinned(void *p)
{
    return (gpu_at){p, 0};
}

typedef struct cu_context_s *cu_context;
typedef struct cu_stream_s *cu_stream;
typedef struct cu_event_s *cu_event;
typedef struct cu_module_s *cu_module;
typedef struct cu_function_s *cu_function;
typedef struct cu_graph_s *cu_graph;
typedef struct cu_graph_exec_s *cu_graph_exec;
typedef struct cu_pool_s *cu_pool;

/* CUlaunchAttribute: the value is a union of 64 bytes. */
typedef struct cu_attribute {
    int id;
    char pad[4];
    union {
        char bytes[64];
        int on;
        unsigned cluster[3];
    } value;
} cu_attribute;

/* CUlaunchConfig */
typedef struct cu_launch_config {
    unsigned grid[3], block[3], shared;
    cu_stream stream;
    cu_attribute *attributes;
    unsigned n_attributes;
} cu_launch_config;

/* CUmemPoolProps: memory of one device, without handles for other processes. */
typedef struct cu_pool_props {
    int type, handles;
    struct {
        int type, id;
    } location;
    void *security;
    size_t max_bytes;
    unsigned short usage;
    unsigned char reserved[54];
} cu_pool_props;
static_assert(sizeof(cu_pool_props) == 88, "as the driver has it");

/* CUDA_MEMCPY2D; memory types 2: device */
typedef struct cu_copy_2d {
    size_t src_x, src_y;
    unsigned src_type;
    const void *src_host;
    cu_ptr src;
    void *src_array;
    size_t src_pitch, dst_x, dst_y;
    unsigned dst_type;
    void *dst_host;
    cu_ptr dst;
    void *dst_array;
    size_t dst_pitch, width, height;
} cu_copy_2d;

/* CUmemAccessDesc: a device (type 1) and what it may do (3: read and write) */
typedef struct cu_access {
    int type, device, flags;
} cu_access;

typedef struct cu_entries {
#define ENTRY(field, symbol, parameters) int(*field) parameters;
#define OPTIONAL                         ENTRY
#include "backend/cuda/entries.inc"
#undef ENTRY
#undef OPTIONAL
} cu_entries;

/* A function and how much shared memory the driver was told that its blocks may have. */
typedef struct cuda_allowed {
    cu_function f;
    unsigned n_bytes;
} cuda_allowed;
enum { CUDA_ALLOWED = 64 };

typedef struct cuda_driver {
    gpu_driver base; /* first: a gpu_driver * is a cuda_driver * */
    const bnet_loader *loader;
    void *library;
    cu_entries cu;
    int device;
    int version;           /* of the driver, 13000 for 13.0 */
    int code[GPU_RESULTS]; /* of the last failure of each kind */
    cu_context context;
    cu_module *modules; /* one per image that has code for the chip */
    size_t n_modules;
    cu_stream stream;
    cu_event events[GPU_STAMPS];
    cu_event mark;     /* of the work another device waits for; made when first needed */
    cu_stream side;    /* for copies during the work; made when first needed, as its events: */
    cu_event ends[2];  /* of the last such copy, of the work meanwhile */
    bnet_library nvtx; /* handle NULL: not asked for, or not there */
    bool pooled;       /* memory is taken in stream order */
    cu_pool pool;      /* from a pool of our own; NULL: from the device's */
    cuda_allowed allowed[CUDA_ALLOWED]; /* modules stay as long as this */
    int n_allowed;
} cuda_driver;

/* Opens device `index` with the kernels of this build. `loader` is dlopen's but in tests. Fails
 * NOT_COMPILED (none is for its chip), NOT_AVAILABLE with the remedy of DET-20, MEMORY. */
bitnet_status bnet_cuda_driver_open(const bnet_loader *loader, int index, gpu_driver **out,
                                    bitnet_error *err);
extern const gpu_calls bnet_cuda_calls;
/* What a number of libcuda means; failures are kept for `explain`. */
gpu_result bnet_cuda_result(gpu_driver *d, int code);
/* `explain` for callers that have the number. */
bitnet_status bnet_cuda_explain(const gpu_driver *d, const char *what, int code, bitnet_error *err);

/* driver_copies.c: entries of the table that copy and fill other than in one piece. */
gpu_result bnet_cuda_copy_rows(gpu_driver *d, const gpu_rows *r);
gpu_result bnet_cuda_fill_rows(gpu_driver *d, const gpu_rows *r, int byte);
gpu_result bnet_cuda_upload_aside(gpu_driver *d, gpu_at dst, const void *src, size_t n_bytes);
gpu_result bnet_cuda_aside_lead(gpu_driver *d, double *ms);
void bnet_cuda_aside_close(gpu_driver *d);
gpu_result bnet_cuda_after(gpu_driver *d, gpu_driver *other);
bool bnet_cuda_reach(gpu_driver *d, gpu_driver *other);
gpu_result bnet_cuda_fetch(gpu_driver *d, gpu_at dst, gpu_driver *other, gpu_at src,
                           size_t n_bytes);
/* The i-th image, for cuModuleLoadData; NULL past the end. */
typedef const void *cuda_image_at(size_t i, size_t *n_bytes);
cuda_image_at bnet_cuda_image; /* those this build carries */
/* Loads every image that has code for the chip. Returns libcuda's number, 209 if none has. */
int bnet_cuda_load_images(cuda_driver *c, cuda_image_at *image_at);

/* nccl.c: joins ranks by NCCL where it is installed and every rank has a device of its own, else by
 * copies, and the log says so. */
bitnet_status bnet_cuda_exchange_open(gpu_backend *const *ranks, int n, const bnet_log *log,
                                      gpu_exchange **out, bitnet_error *err);

#endif
