/* cuda.h - the inside of the CUDA driver: functions found in libcuda and what was opened with them.
 * The types are ours: nothing of the toolkit is needed to build this. */
#ifndef BNET_CUDA_H
#define BNET_CUDA_H

#include "backend/gpu/driver.h"
#include "device/probe.h"

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
    gpu_ptr src;
    void *src_array;
    size_t src_pitch, dst_x, dst_y;
    unsigned dst_type;
    void *dst_host;
    gpu_ptr dst;
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

enum { CU_EVENTS = 144, CU_MODULES = 64 };

typedef struct cuda_driver {
    gpu_driver base; /* first: a gpu_driver * is a cuda_driver * */
    const bnet_loader *loader;
    void *library;
    cu_entries cu;
    int device;
    int version; /* of the driver, 13000 for 13.0 */
    cu_context context;
    cu_module modules[CU_MODULES];
    size_t n_modules;
    cu_stream stream;
    cu_event events[CU_EVENTS];
    cu_event mark;     /* of the work another device waits for; made when first needed */
    cu_stream side;    /* for copies beside the work; made when first needed, as its events: */
    cu_event ends[2];  /* of the last such copy, of the work it was beside */
    bnet_library nvtx; /* handle NULL: not asked for, or not there */
    bool pooled;       /* memory is taken in stream order */
    cu_pool pool;      /* from a pool of our own; NULL: from the device's */
} cuda_driver;

/* Opens device `index` with the kernels of this build. `loader` is dlopen's but in tests. Fails
 * NOT_COMPILED (none is for its chip), NOT_AVAILABLE with the remedy of DET-20, MEMORY. */
bitnet_status bnet_cuda_driver_open(const bnet_loader *loader, int index, gpu_driver **out,
                                    bitnet_error *err);
/* Finds what marks ranges for profilers (nvtx.c). Where it is missing that is told; if strict,
 * fails NOT_AVAILABLE. */
bitnet_status bnet_cuda_ranges_open(gpu_driver *d, const bnet_log *log, bool strict,
                                    bitnet_error *err);
/* Copies beside the work (beside.c). */
int bnet_cuda_beside(gpu_driver *d, gpu_ptr dst, const void *src, size_t n_bytes);
int bnet_cuda_lead(gpu_driver *d, double *ms);
void bnet_cuda_beside_close(gpu_driver *d);
/* Entries of the table for several devices (peer.c). */
int bnet_cuda_after(gpu_driver *d, gpu_driver *other);
bool bnet_cuda_reach(gpu_driver *d, gpu_driver *other);
int bnet_cuda_fetch(gpu_driver *d, gpu_ptr dst, gpu_driver *other, gpu_ptr src, size_t n_bytes);
/* Rows (rows.c). */
int bnet_cuda_copy_rows(gpu_driver *d, const gpu_rows *r);
int bnet_cuda_fill_rows(gpu_driver *d, const gpu_rows *r, int byte);
/* The i-th of the images this build carries, for cuModuleLoadData; NULL past the end. */
const void *bnet_cuda_image(size_t i, size_t *n_bytes);

#endif
