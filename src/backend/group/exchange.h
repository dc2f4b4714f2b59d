/* exchange.h - how the ranks of a group hand each other what they computed. One interface; copies
 * from device to device (exchange_copies.c) and NCCL (cuda/nccl.c) are behind it.
 *
 * Two calls are enough, because nothing is ever summed across ranks: see group.h. What is asked for
 * happens in the ranks' own order of work; nothing waits on the host. Failures are noted with the
 * rank they happened on. One thread at a time. */
#ifndef BNET_GROUP_EXCHANGE_H
#define BNET_GROUP_EXCHANGE_H

#include "backend/gpu/gpu.h"

enum { GPU_RANKS = BNET_GPUS_MAX };

typedef struct gpu_exchange gpu_exchange;

typedef struct gpu_exchange_calls {
    void (*close)(gpu_exchange *l);
    /* n bytes at src of one rank become those at dst of another */
    void (*send)(gpu_exchange *l, int from, gpu_at src, int to, gpu_at dst, size_t n_bytes);
    /* of every rank r: to[r] + i * n_bytes becomes what from[i] is on rank i, for all i. from[r]
     * may be its own place there; else the ranges must not overlap. What was read may be
     * overwritten after `settle` or the next gather; writes to other places need not wait.
     */
    void (*all_gather)(gpu_exchange *l, const gpu_at *from, const gpu_at *to, size_t n_bytes);
    void (*settle)(gpu_exchange *l);
    /* Optional: failures that showed after the calls are noted with their ranks. */
    void (*ask)(gpu_exchange *l);
} gpu_exchange_calls;

struct gpu_exchange {
    const gpu_exchange_calls *c;
    char name[64]; /* "NCCL 2.27", "direct copies", "copies through the host" */
    int n;
    gpu_backend *rank[GPU_RANKS];
    uint64_t n_settled; /* how often */
    bool recordable;    /* its calls may be part of recorded work */
};

/* By copies: inside a device, directly where the driver allows it, else through pinned memory. */
bitnet_status bnet_gpu_copies_open(gpu_backend *const *ranks, int n, gpu_exchange **out,
                                   bitnet_error *err);
/* A rank failed: no rank gets further work until sync has reported it. */
bool bnet_gpu_exchange_alive(const gpu_exchange *l);

#endif
