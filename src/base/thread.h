/* thread.h - a pool that runs one function on every thread at once and waits for all of them.
 *
 * The caller is thread 0. Workers spin briefly between jobs, then sleep. How work is divided is the
 * job's own affair and must not change results: split by output rows, never inside a sum.
 *
 * On machines with several memory nodes a page lies near the thread that first wrote it: memory
 * that bnet_split divides the same way when it is filled and when it is read stays local, the more
 * so where threads are pinned. */
#ifndef BNET_THREAD_H
#define BNET_THREAD_H

#include "base/base.h"

typedef struct bnet_pool bnet_pool;
typedef void (*bnet_job)(void *arg, int thread, int n_threads);

/* n_threads >= 1, the caller counted. */
bitnet_status bnet_pool_open(int n_threads, bnet_pool **out, bitnet_error *err);
/* The same with thread t pinned to cpus[t] (t >= 1: the caller is not ours to move); NULL: not
 * pinned. */
bitnet_status bnet_pool_open_on(int n_threads, const int *cpus, bnet_pool **out, bitnet_error *err);
void bnet_pool_close(bnet_pool *pool);
int bnet_pool_threads(const bnet_pool *pool);
/* Runs job(arg, t, n) for t = 0..n-1, returns when all are done. Calls from several threads take
 * turns. */
void bnet_pool_run(bnet_pool *pool, bnet_job job, void *arg);
/* CPUs this process may use: affinity mask and cgroup quota, at least 1. */
int bnet_cpu_count(void);

/* The half-open range of thread t when n items are dealt to n_threads in multiples of `grain`. */
static inline void bnet_split(size_t n, size_t grain, int t, int n_threads, size_t *begin,
                              size_t *end)
{
    size_t n_grains = (n + grain - 1) / grain;
    size_t b = n_grains * (size_t)t / (size_t)n_threads * grain;
    size_t e = n_grains * ((size_t)t + 1) / (size_t)n_threads * grain;
    *begin = BNET_MIN(b, n);
    *end = BNET_MIN(e, n);
}

#endif
