/* thread.c - the pool: a generation counter starts a job, a countdown ends it. Workers spin on the
 * counter for a moment (decode steps follow each other within microseconds), then sleep on a
 * condition variable; the mutex is touched by the caller only if somebody sleeps. */
#include "base/thread.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SPINS = 4000 };

struct bnet_pool {
    int n_threads;
    pthread_t *workers; /* n_threads - 1 */
    int n_started;
    pthread_mutex_t turn; /* one job at a time */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    atomic_uint generation;
    atomic_int n_left;     /* workers still busy with the current job */
    atomic_int n_sleeping; /* under lock for writers */
    atomic_bool quit;
    bnet_job job;
    void *arg;
};

typedef struct worker_start {
    bnet_pool *pool;
    int index;
} worker_start;

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory"); /* on ARM `yield` is a no-op; isb waits a few cycles */
#endif
}

static void wait_for_job(bnet_pool *p, unsigned seen)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&p->generation, memory_order_acquire) != seen)
            return;
        relax();
    }
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->n_sleeping, 1);
    while (atomic_load(&p->generation) == seen)
        pthread_cond_wait(&p->wake, &p->lock);
    atomic_fetch_sub(&p->n_sleeping, 1);
    pthread_mutex_unlock(&p->lock);
}

static void *worker_main(void *start_arg)
{
    worker_start start = *(worker_start *)start_arg;
    bnet_free(start_arg);
    bnet_pool *p = start.pool;
    for (unsigned seen = 0;; seen++) {
        wait_for_job(p, seen);
        if (atomic_load(&p->quit))
            return NULL;
        p->job(p->arg, start.index, p->n_threads);
        atomic_fetch_sub_explicit(&p->n_left, 1, memory_order_release);
    }
}

/* The store of generation and the load of n_sleeping are sequentially consistent, as are the
 * sleeper's increment and its load: one of the two sees the other, so no wake-up is lost. */
static void start_generation(bnet_pool *p)
{
    atomic_fetch_add(&p->generation, 1);
    if (atomic_load(&p->n_sleeping) > 0) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_broadcast(&p->wake);
        pthread_mutex_unlock(&p->lock);
    }
}

void bnet_pool_run(bnet_pool *p, bnet_job job, void *arg)
{
    if (p->n_threads == 1) {
        job(arg, 0, 1);
        return;
    }
    pthread_mutex_lock(&p->turn);
    p->job = job;
    p->arg = arg;
    atomic_store(&p->n_left, p->n_threads - 1);
    start_generation(p);
    job(arg, 0, p->n_threads);
    for (int i = 0; atomic_load_explicit(&p->n_left, memory_order_acquire) > 0; i++) {
        relax();
        if (i > SPINS)
            sched_yield(); /* more threads than cores: let them run */
    }
    pthread_mutex_unlock(&p->turn);
}

static bool start_worker(bnet_pool *p, int index)
{
    worker_start *start = bnet_alloc(sizeof *start);
    if (!start)
        return false;
    *start = (worker_start){p, index};
    if (pthread_create(&p->workers[index - 1], NULL, worker_main, start) != 0) {
        bnet_free(start);
        return false;
    }
    p->n_started++;
    return true;
}

bitnet_status bnet_pool_open(int n_threads, bnet_pool **out, bitnet_error *err)
{
    bnet_pool *p = bnet_calloc(1, sizeof *p);
    pthread_t *workers = bnet_calloc((size_t)n_threads, sizeof *workers);
    if (!p || !workers) {
        bnet_free(p);
        bnet_free(workers);
        return bnet_no_memory(err, "thread pool");
    }
    p->n_threads = n_threads;
    p->workers = workers;
    pthread_mutex_init(&p->turn, NULL);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    for (int i = 1; i < n_threads; i++)
        if (!start_worker(p, i)) {
            bnet_pool_close(p);
            return bnet_fail(err, BITNET_MEMORY,
                             "cannot start thread %d of %d; ask for fewer threads", i + 1,
                             n_threads);
        }
    *out = p;
    return BITNET_OK;
}

void bnet_pool_close(bnet_pool *p)
{
    if (!p)
        return;
    atomic_store(&p->quit, true);
    start_generation(p);
    for (int i = 0; i < p->n_started; i++)
        pthread_join(p->workers[i], NULL);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    pthread_mutex_destroy(&p->turn);
    bnet_free(p->workers);
    bnet_free(p);
}

int bnet_pool_threads(const bnet_pool *p)
{
    return p->n_threads;
}

/* cgroup v2: "max 100000" or "<quota> <period>" in cpu.max of our own group's root view. */
static int cgroup_limit(void)
{
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (!f)
        return 0;
    long long quota = 0, period = 0;
    int n = fscanf(f, "%lld %lld", &quota, &period);
    fclose(f);
    return n == 2 && quota > 0 && period > 0 ? (int)((quota + period - 1) / period) : 0;
}

int bnet_cpu_count(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                        : (int)sysconf(_SC_NPROCESSORS_ONLN);
    int limit = cgroup_limit();
    if (limit > 0 && limit < n)
        n = limit;
    return n < 1 ? 1 : n;
}
