/* barrier.c - what one job of our thread pool costs beside OpenMP's and, where it is installed,
 * pthreadpool's: an empty job on n threads, started and waited for, in nanoseconds; and the same
 * with 20 microseconds of work on the calling thread between jobs, as a decode step has.
 *
 * bench/barrier [THREADS]     built by: cmake --build BUILD --target barrier */
#include <stdio.h>
#include <stdlib.h>

#ifdef _OPENMP
#include <omp.h>
#endif
#ifdef BENCH_PTHREADPOOL
#include <pthreadpool.h>
#endif

#include "base/thread.h"

enum { JOBS = 2000, ROUNDS = 15 };

static volatile unsigned sink;

static void nothing(void *arg, bnet_share s)
{
    (void)arg;
    if (s.index == 0)
        sink++;
}

static void run_ours(void *pool)
{
    bnet_pool_run(pool, nothing, NULL);
}

#ifdef _OPENMP
static void run_openmp(void *unused)
{
    (void)unused;
#pragma omp parallel
    nothing(NULL, (bnet_share){.index = omp_get_thread_num()});
}
#endif

#ifdef BENCH_PTHREADPOOL
static void nothing_at(void *arg, size_t i)
{
    nothing(arg, (bnet_share){.index = (int)i});
}

static void run_pthreadpool(void *pool)
{
    pthreadpool_parallelize_1d(pool, nothing_at, NULL, pthreadpool_get_threads_count(pool), 0);
}
#endif

static void work(double us)
{
    double end = bnet_now_ms() + us / 1e3;
    while (bnet_now_ms() < end)
        ;
}

/* Best nanoseconds of a job beyond `us` microseconds of own work before it. */
static double best_ns(void (*run)(void *), void *arg, double us)
{
    double best = 1e30;
    for (int r = 0; r < ROUNDS; r++) {
        double start = bnet_now_ms();
        for (int i = 0; i < JOBS; i++) {
            if (us > 0)
                work(us);
            run(arg);
        }
        double ns = (bnet_now_ms() - start) * 1e6 / JOBS - us * 1e3;
        best = ns < best ? ns : best;
    }
    return best;
}

static void row(const char *name, int n, void (*run)(void *), void *arg)
{
    printf("%-12s %3d threads  %8.0f ns a job  %8.0f ns after 20 us alone\n", name, n,
           best_ns(run, arg, 0), best_ns(run, arg, 20));
}

int main(int argc, char **argv)
{
    int most = argc > 1 ? atoi(argv[1]) : bnet_cpu_count();
    for (int n = 1; n <= most; n = n < most && 2 * n > most ? most : 2 * n) {
        bnet_pool *p;
        bitnet_error err;
        if (bnet_pool_open(n, &p, &err) != BITNET_OK) {
            fprintf(stderr, "%s\n", err.message);
            return 1;
        }
        row("bitnet", n, run_ours, p);
        bnet_pool_close(p);
#ifdef _OPENMP
        omp_set_num_threads(n);
        row("OpenMP", n, run_openmp, NULL);
#endif
#ifdef BENCH_PTHREADPOOL
        pthreadpool_t q = pthreadpool_create((size_t)n);
        row("pthreadpool", n, run_pthreadpool, q);
        pthreadpool_destroy(q);
#endif
    }
    return 0;
}
