/* cuda.h - the inside of bitnet_cuda: functions found in libcuda, the device's primary context,
 * which engines use too, and the streams, modules and events of a program. The types are ours:
 * nothing of the toolkit is needed to build this. */
#ifndef BITNET_EXTRAS_CUDA_H
#define BITNET_EXTRAS_CUDA_H

#include <pthread.h>
#include <stdlib.h>

#include "check.h"

typedef uint64_t cu_ptr; /* an address on the device, CUdeviceptr */
typedef struct cu_context_s *cu_context;
typedef struct cu_stream_s *cu_stream;
typedef struct cu_event_s *cu_event;
typedef struct cu_module_s *cu_module;
typedef struct cu_function_s *cu_function;
typedef struct cu_pool_s *cu_pool;

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

typedef struct cu_entries {
#define ENTRY(field, symbol, parameters) int(*field) parameters;
#define OPTIONAL                         ENTRY
#include "cuda_entries.inc"
#undef ENTRY
#undef OPTIONAL
} cu_entries;

enum { CU_OUT_OF_MEMORY = 2, CU_NO_BINARY = 209, CU_NOT_FOUND = 500, CU_NOT_READY = 600 };

struct bitnet_cuda_module {
    bitnet_cuda *cuda;
    cu_module module;
    bool built_in; /* an image of libbitnet */
    bitnet_cuda_module *next;
};

/* A launch or a copy between two events, which are kept for the next piece of work. */
struct bitnet_work {
    bitnet_cuda *cuda;
    cu_event begin, end;
    bitnet_work *next; /* among those that wait to be used again */
};

struct bitnet_cuda {
    cu_entries cu;
    void *library;
    int index, device;
    char name[96];
    cu_context context;
    pthread_mutex_t lock; /* of all below */
    bool inside;          /* the context is current in the thread that holds the lock */
    cu_stream streams[BITNET_CUDA_STREAMS]; /* NULL: not made yet */
    cu_pool pool;        /* memory in stream order; NULL: the driver has no pools */
    cu_event fork, join; /* order between memory and streams */
    cu_event origin;     /* when the device was opened */
    bitnet_cuda_module *modules;
    size_t n_images; /* how many of libbitnet's were loaded or passed over */
    bitnet_work *spare;
};

static inline bitnet_status missing(const char *what, bitnet_error *err)
{
    return fail(err, BITNET_ARGUMENT, "cuda: %s must not be NULL", what);
}

/* cuda.c. Takes the lock and makes the context current; returns a CUresult. Leave in any case. */
int bnetx_enter(bitnet_cuda *c);
void bnetx_leave(bitnet_cuda *c);
/* Inside. The stream, made if it is new; NULL with the CUresult in *r. */
cu_stream bnetx_stream(bitnet_cuda *c, int stream, int *r);
/* What a CUresult means, with its name and what the driver says about it. */
bitnet_status bnetx_fail(const bitnet_cuda *c, const char *what, int code, bitnet_error *err);
/* cuda_memory.c */
void bnetx_pool_open(bitnet_cuda *c);

#endif
