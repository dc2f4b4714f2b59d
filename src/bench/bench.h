/* bench.h - what the files of bench share. */
#ifndef BNET_BENCH_H
#define BNET_BENCH_H

#include "engine/engine.h"
#include "bitnet_tools.h"
#include "bench/read_limit.h"

struct bitnet_bench {
    bitnet_engine *engine;
    bitnet_session *session;
    bitnet_sampler *sampler;
    int32_t *ids; /* [n_ctx] a text of any tokens */
    int n_ctx;
    uint64_t memory, crowd_memory; /* bytes of the session and the crowd, by calculation */
    uint64_t workspace;            /* of the largest pass: one serves all */
    bitnet_kernel_use before[BNET_KERNELS_MAX]; /* at _forget */
    size_t n_before;
    bitnet_bench_options options;
    /* tests "bt": timelines and what a step does with each; opened when first needed */
    bitnet_kv_pool *pool; /* NULL: every timeline has a cache of its own */
    bitnet_session **crowd;
    bitnet_batch *batch;
    bitnet_batch_item *items, *left; /* of all; of those that a step still owes an answer */
    int32_t *now;
    size_t n_crowd;
};

/* bench_crowd.c */
/* Opens the timelines of a test and brings them to its depth; then times its steps. */
bitnet_status bnet_bench_crowd_open(bitnet_bench *b, const bitnet_bench_test *t, bitnet_error *err);
bitnet_status bnet_bench_crowd_run(bitnet_bench *b, const bitnet_bench_test *t, bitnet_bench_run *r,
                                   bitnet_error *err);
void bnet_bench_crowd_close(bitnet_bench *b);

/* Opens a session and adds the bytes it should take to *memory. */
bitnet_status bnet_bench_session(bitnet_bench *b, const bitnet_session_options *o, uint64_t *memory,
                                 bitnet_session **out, bitnet_error *err);

/* Does the test fit the session? */
bitnet_status bnet_bench_check(const bitnet_bench *b, const bitnet_bench_test *t,
                               bitnet_error *err);
/* Puts the first n tokens of the text on the timeline, reusing what is there. */
bitnet_status bnet_bench_fill(bitnet_bench *b, size_t n, bitnet_error *err);

#endif
