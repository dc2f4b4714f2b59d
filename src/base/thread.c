/* thread.c - the pool: a generation counter starts a job, a counter of each worker ends it. Workers
 * spin on the generation for a while (the operations of a decode step follow each other within
 * microseconds), then sleep on a condition variable; so does the caller, who waits for them. The
 * mutex is touched only if somebody sleeps. Where there are more threads than CPUs nobody spins:
 * that would take the CPU from those who have work. */
#include "base/thread.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Long enough for what one thread does alone inside a decode step (tens of microseconds) and for
 * sampling between two steps; too short to be seen in the CPU time of an idle program. */
#define SPIN_MS 0.3
enum { LINE = 64, SPINS_PER_LOOK = 64 };

typedef struct worker {
    _Alignas(LINE) atomic_uint done; /* generations finished */
    bnet_pool *pool;
    pthread_t thread;
    int index, cpu; /* cpu < 0: wherever the system likes */
} worker;

struct bnet_pool {
    int n_threads, n_started;
    double spin_ms;
    worker *workers;      /* n_threads - 1 */
    pthread_mutex_t turn; /* one job at a time */
    pthread_mutex_t lock;
    pthread_cond_t wake, finished;
    bnet_job job;
    void *arg;
    _Alignas(LINE) atomic_uint generation;
    _Alignas(LINE) atomic_int n_sleeping; /* workers; written under lock */
    atomic_bool caller_sleeps, quit;
};

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory"); /* on ARM `yield` is a no-op; isb waits a few cycles */
#endif
}

/* Until *at is no longer `from`, or the time is up; false: it still is. */
static bool spin_while(const bnet_pool *p, const atomic_uint *at, unsigned from)
{
    double start = -1;
    for (unsigned i = 1;; i++) {
        if (atomic_load_explicit(at, memory_order_acquire) != from)
            return true;
        relax();
        if (i % SPINS_PER_LOOK != 0)
            continue;
        double now = bnet_now_ms();
        start = start < 0 ? now : start;
        if (now - start >= p->spin_ms)
            return false;
    }
}

static void wait_for_job(bnet_pool *p, unsigned seen)
{
    if (spin_while(p, &p->generation, seen))
        return;
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->n_sleeping, 1);
    while (atomic_load(&p->generation) == seen)
        pthread_cond_wait(&p->wake, &p->lock);
    atomic_fetch_sub(&p->n_sleeping, 1);
    pthread_mutex_unlock(&p->lock);
}

/* The store of done and the load of caller_sleeps are sequentially consistent, as are the caller's
 * store and load: one of the two sees the other. The same holds of generation and n_sleeping. */
static void finish(worker *w)
{
    bnet_pool *p = w->pool;
    atomic_fetch_add(&w->done, 1);
    if (atomic_load(&p->caller_sleeps)) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_signal(&p->finished);
        pthread_mutex_unlock(&p->lock);
    }
}

/* A wish: a CPU that went away since leaves the thread where it is. */
static void pin(int cpu)
{
    cpu_set_t set;
    if (cpu < 0 || cpu >= CPU_SETSIZE)
        return;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static void *worker_main(void *arg)
{
    worker *w = arg;
    bnet_pool *p = w->pool;
    pin(w->cpu);
    for (unsigned seen = 0;; seen++) {
        wait_for_job(p, seen);
        if (atomic_load(&p->quit))
            return NULL;
        p->job(p->arg, w->index, p->n_threads);
        finish(w);
    }
}

static void start_generation(bnet_pool *p)
{
    atomic_fetch_add(&p->generation, 1);
    if (atomic_load(&p->n_sleeping) > 0) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_broadcast(&p->wake);
        pthread_mutex_unlock(&p->lock);
    }
}

static void wait_for_worker(bnet_pool *p, const worker *w, unsigned before)
{
    if (spin_while(p, &w->done, before))
        return;
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->caller_sleeps, true);
    while (atomic_load(&w->done) == before)
        pthread_cond_wait(&p->finished, &p->lock);
    atomic_store(&p->caller_sleeps, false);
    pthread_mutex_unlock(&p->lock);
}

void bnet_pool_run(bnet_pool *p, bnet_job job, void *arg)
{
    if (p->n_threads == 1) {
        job(arg, 0, 1);
        return;
    }
    pthread_mutex_lock(&p->turn);
    unsigned before = atomic_load_explicit(&p->generation, memory_order_relaxed);
    p->job = job;
    p->arg = arg;
    start_generation(p);
    job(arg, 0, p->n_threads);
    for (int i = 0; i < p->n_threads - 1; i++)
        wait_for_worker(p, &p->workers[i], before);
    pthread_mutex_unlock(&p->turn);
}

static bool start_worker(bnet_pool *p, int index, const int *cpus)
{
    worker *w = &p->workers[index - 1];
    w->pool = p;
    w->index = index;
    w->cpu = cpus ? cpus[index] : -1;
    if (pthread_create(&w->thread, NULL, worker_main, w) != 0)
        return false;
    p->n_started++;
    return true;
}

bitnet_status bnet_pool_open_on(int n_threads, const int *cpus, bnet_pool **out, bitnet_error *err)
{
    bnet_pool *p = bnet_calloc(1, (sizeof *p + LINE - 1) / LINE * LINE);
    worker *workers = bnet_calloc((size_t)n_threads, sizeof *workers);
    if (!p || !workers) {
        bnet_free(p);
        bnet_free(workers);
        return bnet_no_memory(err, "thread pool");
    }
    p->n_threads = n_threads;
    p->workers = workers;
    p->spin_ms = n_threads > bnet_cpu_count() ? 0 : SPIN_MS;
    pthread_mutex_init(&p->turn, NULL);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->finished, NULL);
    for (int i = 1; i < n_threads; i++)
        if (!start_worker(p, i, cpus)) {
            bnet_pool_close(p);
            return bnet_fail(err, BITNET_MEMORY,
                             "cannot start thread %d of %d; ask for fewer threads", i + 1,
                             n_threads);
        }
    *out = p;
    return BITNET_OK;
}

bitnet_status bnet_pool_open(int n_threads, bnet_pool **out, bitnet_error *err)
{
    return bnet_pool_open_on(n_threads, NULL, out, err);
}

void bnet_pool_close(bnet_pool *p)
{
    if (!p)
        return;
    atomic_store(&p->quit, true);
    start_generation(p);
    for (int i = 0; i < p->n_started; i++)
        pthread_join(p->workers[i].thread, NULL);
    pthread_cond_destroy(&p->finished);
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
