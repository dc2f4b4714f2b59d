/* work.h - the inside of the host-memory driver: its state, and the list of work that is done when
 * somebody waits for it. */
#ifndef BNET_HOST_WORK_H
#define BNET_HOST_WORK_H

#include "backend/host/host.h"

enum { HOST_QUEUE = 256 };

struct gpu_memory {
    struct gpu_memory *prev, *next;
    size_t n_bytes;
    uint8_t *data;
};

/* One thing to do. Addresses and arguments are those of the moment it was asked for. */
typedef enum host_work_kind {
    HOST_DO_COPY,
    HOST_DO_FILL,
    HOST_DO_LAUNCH,
    HOST_DO_STAMP
} host_work_kind;
typedef struct host_work {
    host_work_kind kind;
    uint8_t *dst; /* COPY and FILL: rows of n_bytes */
    const uint8_t *src;
    size_t dst_pitch, src_pitch, n_bytes, n_rows;
    int value; /* the byte of FILL; the slot of STAMP */
    const host_kernel *kernel;
    uint64_t n_threads, cost;
    _Alignas(16) uint8_t args[HOST_ARGS_BYTES];
} host_work;

struct gpu_record {
    host_work *works;
    size_t n, cap;
    struct host_driver *joined[BNET_GPUS_MAX]; /* whose work it has while it is made */
    int n_joined;
};

typedef struct host_driver {
    gpu_driver base;
    bnet_pool *pool;
    struct gpu_memory *pieces;
    uint64_t n_used, n_total;
    host_work queue[HOST_QUEUE];
    size_t n_queued;
    struct gpu_record *recording; /* NULL: work is queued */
    bool inside;                  /* between enter and leave */
    double stamps[GPU_STAMPS];    /* ms */
    uint64_t n_calls[HOST_CALLS], fail_at[HOST_CALLS];
    gpu_result fail_with[HOST_CALLS];
    char why[GPU_RESULTS][160]; /* of the last failure of each kind */
} host_driver;

static inline host_driver *host_of(const gpu_driver *d)
{
    return (host_driver *)(uintptr_t)(const void *)d;
}

/* Notes why, with two numbers that say more, and returns r. */
gpu_result bnet_host_why(host_driver *h, gpu_result r, const char *why, uint64_t a, uint64_t b);
/* Counts a call. Fails if it is one that should, or stands outside of enter and leave. */
gpu_result bnet_host_count(host_driver *h, host_call call);
/* The bytes at a place; NULL, noted: they are not all inside its memory. */
uint8_t *bnet_host_bytes(host_driver *h, gpu_at at, uint64_t n_bytes);
/* Puts work behind what was asked for before, or into the record that is being made. */
gpu_result bnet_host_submit(host_driver *h, const host_work *w);
void bnet_host_run_queue(host_driver *h);

gpu_result bnet_host_find(gpu_driver *d, const char *name, gpu_kernel *out);
gpu_result bnet_host_launch(gpu_driver *d, gpu_kernel code, const gpu_dims *dims,
                            const gpu_arg *args, int n_args);
gpu_result bnet_host_record_begin(gpu_driver *d);
gpu_result bnet_host_record_end(gpu_driver *d, gpu_graph *out);
gpu_result bnet_host_replay(gpu_driver *d, gpu_graph g);
void bnet_host_graph_release(gpu_driver *d, gpu_graph g);

#endif
