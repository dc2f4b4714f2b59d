/* shares.h - who takes how much: pure functions, so that they are tested without a device. */
#ifndef BNET_GROUP_SHARES_H
#define BNET_GROUP_SHARES_H

#include "base/base.h"

/* What is known of a rank before anything is put there. */
typedef struct gpu_rank_facts {
    uint64_t free_bytes; /* of virtual ranks: of each its part */
    double speed;        /* relative; > 0 */
} gpu_rank_facts;

/* Cuts [0, n) into one piece per rank, as large as its speed among all, at least 1: piece r is
 * [first[r], first[r + 1]). False: n < n_ranks. */
bool bnet_gpu_shares(const gpu_rank_facts *ranks, int n_ranks, uint64_t n, uint64_t *first);
/* The same for the rows of a matrix, in multiples of what kernels work in, where there are many. */
bool bnet_gpu_share_rows(const gpu_rank_facts *ranks, int n_ranks, uint64_t n, uint64_t *first);

typedef struct gpu_layers {
    const char *file; /* for messages */
    int n;
    uint64_t layer_bytes, first_bytes, last_bytes; /* before and after all layers */
} gpu_layers;
/* Divides layers by speed, as far as memory allows; those that do not fit on a rank go to the ranks
 * with room, the fastest first. Fails ARGUMENT: fewer layers than ranks; MEMORY: they do not fit
 * together. */
bitnet_status bnet_gpu_share_layers(const gpu_rank_facts *ranks, int n_ranks, const gpu_layers *l,
                                    uint64_t *first, bitnet_error *err);

/* What a rank reads for every token, and how fast its device's memory can be read. */
typedef struct gpu_rank_read {
    int device;
    uint64_t n_bytes;
    double gb_s; /* 0: not known */
} gpu_rank_read;
/* How fast all ranks together can read what they have, in GB/s: one rank after the other, or all at
 * once, where the slowest device decides and those on one device share it. 0: not known of one. */
double bnet_gpu_read_rate(const gpu_rank_read *ranks, int n_ranks, bool at_once);

#endif
