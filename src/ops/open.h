/* open.h - which backends and kernels there are, and from a chosen device to its backend. */
#ifndef BNET_OPEN_H
#define BNET_OPEN_H

#include "bitnet_tools.h"
#include "ops/backend.h"

/* ---- backends (one line each in backends.inc) ---- */

/* Where a backend may keep packed weights, and what identifies the model they were packed from. */
typedef struct bnet_pack_cache {
    const char *path, *identity;
    const char *source; /* the model file, for people */
    uint64_t min_bytes; /* less is not worth a file */
    uint64_t max_bytes; /* more has no room */
} bnet_pack_cache;

/* What an engine wants to compute with. Pool and registry must outlive the backend; kernels
 * registered before a weight is prepared can serve it. */
typedef struct bnet_backend_want {
    bnet_device_kind device;
    int index;                  /* which of that kind */
    bnet_selection_ranks ranks; /* several of them together; n < 2: one */
    bnet_pool *pool;
    const bnet_registry *registry;
    const char *isa; /* CPU: the highest set kernels may use; NULL: the best */
    bool strict;     /* a weight without a kernel is an error, never a fallback */
    const bnet_log *log;
    const bnet_pack_cache *cache; /* NULL: nothing is kept; read when the backend opens */
    const char *cache_dir;        /* where other things may be kept; NULL: nowhere */
    const char *nvrtc;            /* the run-time compiler's library; NULL: the system's */
    bool specialise;              /* kernels compiled for the model's shapes are preferred */
    bool ranges;                  /* passes are marked for a profiler */
    bool no_pack;                 /* weights are used as they lie in the file, where they can be */
    bitnet_precision precision;   /* of float matrices; the backend says in what it computes */
    bool batch_invariant;         /* sums in one order, whatever the number of timelines */
    const char *trace_dir;        /* where results leave a trace (trace.h); NULL: nowhere */
} bnet_backend_want;
#define BACKEND(name)                                                                              \
    bitnet_status bnet_##name##_open(const bnet_backend_want *w, bnet_backend **out,               \
                                     bitnet_error *err);
#include "ops/backends.inc"
#undef BACKEND
/* Opens the backend of the device's kind. Fails NOT_COMPILED if there is none; else as it does.
 * What is wanted and the device has not is done without, with a warning; an error if strict. */
bitnet_status bnet_backend_open(const bnet_backend_want *w, bnet_backend **out, bitnet_error *err);
/* What the CPU makes of a precision: FP32, with a warning where another was asked for by name; an
 * error if strict. */
bitnet_status bnet_precision_on_cpu(bitnet_precision wanted, bool strict, const bnet_log *log,
                                    bitnet_error *err);

/* The rows of each backend's kernels.inc. The registry takes those that have a function; the others
 * are of another architecture, known so that what was computed there can be checked here. */
#define BACKEND(name) const bnet_kernel_record *bnet_##name##_kernel_rows(size_t *n);
#include "ops/backends.inc"
#undef BACKEND

/* A program's kernel for the backend's device: fills in needs and their names, and fn where the
 * backend calls it in its own way. Fails NOT_AVAILABLE, without a message: no type of
 * bitnet_kernel.h has the key; ARGUMENT: the isa is unknown. */
#define BACKEND(name) bitnet_status bnet_##name##_adopt(bnet_kernel_record *k, bitnet_error *err);
#include "ops/backends.inc"
#undef BACKEND
/* The same by the record's device. Fails also NOT_COMPILED. */
bitnet_status bnet_kernel_adopt(bnet_kernel_record *k, bitnet_error *err);

/* For questions on what a model would run on a device. */
typedef struct bnet_serving {
    const bnet_registry *registry;
    const bnet_capabilities *caps; /* of the device */
    bool no_pack;                  /* as in bnet_backend_want */
    bool head;                     /* the matrix is the model's head */
} bnet_serving;
/* The key of a weight becomes the one under which the backend keeps it, and m the tokens that one
 * call takes of so many; both stay where the backend alters nothing or has no kernel. */
#define BACKEND(name) void bnet_##name##_kept(const bnet_serving *s, bnet_kernel_query *q);
#include "ops/backends.inc"
#undef BACKEND
/* The kernel that a model would run for *q, which becomes what the registry is asked then; with a
 * priority other than SPEED it stays. Fails as bnet_registry_select. */
bitnet_status bnet_kernel_serving(const bnet_serving *s, bnet_kernel_query *q,
                                  const bnet_kernel_record **out, bitnet_error *err);

/* The row of any backend with that id; NULL: none has it. */
const bnet_kernel_record *bnet_kernel_row_find(const char *id);

/* Every kernel is chosen by the registry, which must outlive the backend like the pool; kernels
 * registered before a weight is prepared can serve it. isa NULL: the best here; else the highest
 * set kernels may use. strict: a weight without a kernel is an error, never a fallback. Fails
 * ARGUMENT for an unknown isa, NOT_AVAILABLE for one this CPU lacks. */
bitnet_status bnet_backend_open_cpu(bnet_pool *pool, const bnet_registry *registry, const char *isa,
                                    bool strict, const bnet_log *log, bnet_backend **out,
                                    bitnet_error *err);
/* What kernels may use on this CPU, limited to a named instruction set (NULL: all it has). */
bitnet_status bnet_cpu_capabilities(const char *isa, bnet_capabilities *out, bitnet_error *err);
/* The i-th instruction set, lowest first, of any architecture; NULL past the end. */
const char *bnet_cpu_isa_at(int i);
/* Feature bits that a named instruction set needs, present or not. Fails ARGUMENT: unknown. */
bitnet_status bnet_cpu_isa_needs(const char *isa, uint32_t *needs, bitnet_error *err);
/* What this CPU could do at best, measured on all threads of the pool (limits.c): the rate of the
 * integer instructions the capabilities allow, best set first; returns how many. */
size_t bnet_cpu_peaks(bnet_pool *pool, const bnet_capabilities *c, bitnet_peak *out, size_t cap);
/* GB/s at which all threads together read memory that no cache holds: each one stream from end to
 * end, and the best that several streams and prefetching reach. */
typedef struct bnet_cpu_reads {
    double plain, best;
} bnet_cpu_reads;
/* cache_bytes: the last cache's size, 0: not known. */
bnet_cpu_reads bnet_cpu_read_rate(bnet_pool *pool, const bnet_capabilities *c,
                                  uint64_t cache_bytes);
const char *bnet_backend_at(int i); /* compiled backends by name; NULL past the end */

/* One compiled kernel, for listings. False past the end. */
bool bnet_backend_kernel_at(int i, bitnet_kernel_info *out);

#ifdef BITNET_HAVE_CUDA
/* The i-th image of CUDA kernels that this build carries; NULL past the end. */
const void *bnet_cuda_image(size_t i, size_t *n_bytes);
#endif

#endif
