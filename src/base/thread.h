/* thread.h - a pool that divides a job among threads and returns when all of it is done.
 *
 * A job is cut into shares. Every thread, the caller too, begins with shares of its own, and
 * whoever has time left takes over shares that nobody has begun for a while: a thread that the
 * system runs late or not at all delays nobody for long. A share that was begun is never begun
 * again. On a machine with CPUs to itself there is one share per thread; where other programs are
 * seen to take CPU time there are more and smaller ones. Which thread computes a share, and how
 * many shares there are, must not change results: split by output rows, never inside a sum.
 *
 * On machines with several memory nodes a page lies near the thread that first wrote it: memory
 * that bnet_split divides the same way when it is filled and when it is read stays local, the more
 * so where threads are pinned. */
#ifndef BNET_THREAD_H
#define BNET_THREAD_H

#include "base/base.h"

typedef struct bnet_pool bnet_pool;

/* Part `index` of `count`. `thread` (0: the caller) runs it and nothing else meanwhile: what is
 * indexed by it is its own until the job returns. */
typedef struct bnet_share {
    int index, count, thread;
} bnet_share;

typedef void (*bnet_job)(void *arg, bnet_share share);

/* n_threads >= 1, the caller counted. */
bitnet_status bnet_pool_open(int n_threads, bnet_pool **out, bitnet_error *err);
/* The same with thread t pinned to cpus[t] (t >= 1: the caller is moved when it asks); NULL: not
 * pinned. */
bitnet_status bnet_pool_open_on(int n_threads, const int *cpus, bnet_pool **out, bitnet_error *err);
/* Pins the calling thread to cpus[0], where its pool has no other thread. False: the pool is not
 * pinned or has no other thread, or there is no such CPU any more; the thread stays as it is. */
bool bnet_pool_pin_caller(const bnet_pool *pool);
void bnet_pool_close(bnet_pool *pool);
int bnet_pool_threads(const bnet_pool *pool);
/* Runs job(arg, share) for index = 0 .. count-1, each once, and returns the count when all are
 * done: any number from 1 to bnet_pool_shares. Calls from several threads take turns; a job must
 * not call the pool it runs on. */
int bnet_pool_run(bnet_pool *pool, bnet_job job, void *arg);
/* The same with exactly one share per thread. */
void bnet_pool_each(bnet_pool *pool, bnet_job job, void *arg);
/* The most shares a job can have. */
int bnet_pool_shares(const bnet_pool *pool);
/* Runs fn(arg, begin, end) over [0, n), divided among the threads in multiples of `grain`. `cost`
 * is about how many simple operations an item takes: the caller works alone when all of them
 * together are fewer than a barrier costs. */
enum { BNET_POOL_SMALL = 16384 };
typedef void (*bnet_items_fn)(void *arg, size_t begin, size_t end);
void bnet_pool_items(bnet_pool *pool, size_t n, size_t grain, size_t cost, bnet_items_fn fn,
                     void *arg);
/* How many threads were lately seen to lose their CPU to other programs. */
int bnet_pool_disturbed(const bnet_pool *pool);
/* CPUs this process may use: affinity mask and cgroup quota, at least 1. */
int bnet_cpu_count(void);

/* The half-open range of share t of n_shares when n items are dealt out in multiples of `grain`. */
static inline void bnet_split(size_t n, size_t grain, int t, int n_shares, size_t *begin,
                              size_t *end)
{
    size_t n_grains = (n + grain - 1) / grain;
    size_t b = n_grains * (size_t)t / (size_t)n_shares * grain;
    size_t e = n_grains * ((size_t)t + 1) / (size_t)n_shares * grain;
    *begin = BNET_MIN(b, n);
    *end = BNET_MIN(e, n);
}

#endif
