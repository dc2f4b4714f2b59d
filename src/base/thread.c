/* thread.c - the pool. Taking a share is one compare-and-swap on the word of the thread that it
 * belongs to; the caller waits by reading one word per thread. Waiting is spinning for a while (the
 * operations of a decode step follow each other within microseconds), then sleeping on the word;
 * nobody holds a lock while another needs it. Where other programs use the same CPUs (company.h),
 * threads spin less, shares are smaller, and all shares can be taken over by all threads. */
#include "base/thread.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/company.h"

/* Long enough for what one thread does alone inside a decode step (tens of microseconds) and for
 * sampling between two steps; too short to be seen in the CPU time of an idle program. */
#define SPIN_MS           0.3
#define SPIN_DISTURBED_MS 0.03
enum {
    LINE = 64,
    SPINS_PER_LOOK = 64,
    FINE = 4,            /* shares per thread in company */
    LEAVE_FIRST_MS = 50, /* how long a disturbed thread stays away from jobs without it */
    LEAVE_LAST_MS = 800
};

typedef struct worker {
    _Alignas(LINE) _Atomic uint64_t claimed; /* its shares that were begun, of all jobs */
    bnet_pool *pool;
    pthread_t thread; /* index 0: who called last */
    bnet_pulse pulse;
    int index, cpu;                  /* cpu < 0: wherever the system likes */
    int leave_ms;                    /* the last one */
    double back_ms;                  /* when it ended */
    _Alignas(LINE) atomic_uint done; /* its shares that are finished */
} worker;

struct bnet_pool {
    int n_threads, n_started;
    double spin_ms;
    worker *workers;      /* n_threads; the first is the caller's */
    pthread_mutex_t turn; /* one job at a time */
    uint64_t n_before;    /* shares of each thread in all earlier jobs */
    bnet_plan plan;
    _Alignas(LINE) _Atomic uint64_t posted; /* of the job: n_before, crew, shares per thread */
    atomic_uint generation;                 /* jobs posted; workers sleep on it */
    bnet_job job;
    void *arg;
    _Alignas(LINE) atomic_int n_sleeping; /* workers */
    atomic_int caller_waits;              /* 1 + index of the worker it sleeps for */
    atomic_int n_disturbed;               /* threads */
    atomic_int crew;                      /* of the last job */
    atomic_uint recall;                   /* when it changes, threads on leave come back */
    atomic_bool quit;
};

/* ---- postings ---- */

static uint64_t posting(uint64_t n_before, bnet_crew crew, int n_each)
{
    return n_before << 8 | (uint64_t)crew << 6 | (uint64_t)n_each;
}

static inline uint64_t before_of(uint64_t posted)
{
    return posted >> 8;
}

static inline unsigned each_of(uint64_t posted)
{
    return posted & 63;
}

static inline bnet_crew crew_of(uint64_t posted)
{
    return (bnet_crew)(posted >> 6 & 3);
}

/* ---- waiting ---- */

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory"); /* on ARM `yield` is a no-op; isb waits a few cycles */
#endif
}

static void futex_sleep(const atomic_uint *word, unsigned while_equal, const struct timespec *most)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, while_equal, most, NULL, 0);
}

static void futex_wake(const atomic_uint *word, int n)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

/* How long `me` may spin. */
static double spin_limit(const bnet_pool *p, const worker *me)
{
    return me->pulse.n_naps > 0 ? BNET_MIN(SPIN_DISTURBED_MS, p->spin_ms) : p->spin_ms;
}

/* Counts one round of spinning; false: the time is up. */
static bool spin_on(unsigned *i, double *start, double limit_ms)
{
    relax();
    if (++*i % SPINS_PER_LOOK != 0)
        return true;
    double now = bnet_now_ms();
    *start = *start < 0 ? now : *start;
    return now - *start < limit_ms;
}

/* ---- company ---- */

static void look(worker *w, bool may_nap)
{
    int change = bnet_pulse_look(&w->pulse, bnet_now_ms(), may_nap);
    if (change)
        atomic_fetch_add_explicit(&w->pool->n_disturbed, change, memory_order_relaxed);
}

/* A disturbed thread stays away from jobs that are done without it: for a while, the longer the
 * sooner it was disturbed again, or until all are called back. After a while away it counts as
 * undisturbed. */
static void take_leave(worker *w)
{
    bnet_pool *p = w->pool;
    unsigned seen = atomic_load(&p->recall);
    bool long_ago = bnet_now_ms() - w->back_ms > LEAVE_LAST_MS;
    w->leave_ms = long_ago ? LEAVE_FIRST_MS : BNET_MIN(2 * w->leave_ms, LEAVE_LAST_MS);
    struct timespec t = {w->leave_ms / 1000, w->leave_ms % 1000 * 1000000L};
    while (atomic_load(&p->crew) >= BNET_CREW_UNDISTURBED && !atomic_load(&p->quit)) {
        futex_sleep(&p->recall, seen, &t);
        if (atomic_load(&p->recall) != seen)
            break;
        if (atomic_load(&p->crew) == BNET_CREW_UNDISTURBED) {
            atomic_fetch_sub_explicit(&p->n_disturbed, 1, memory_order_relaxed);
            w->pulse.n_naps = 0;
            break;
        }
    }
    bnet_pulse_start(&w->pulse);
    w->back_ms = w->pulse.wall_ms;
}

/* The calls of a pool may come from different threads, each with clocks of its own. */
static worker *enter(bnet_pool *p)
{
    worker *w = &p->workers[0];
    if (!pthread_equal(w->thread, pthread_self())) {
        w->thread = pthread_self();
        bnet_pulse_start(&w->pulse);
    }
    return w;
}

/* ---- shares ---- */

/* Takes the next share of `owner` that nobody has begun; -1: there is none. A posting that is over
 * matches no count, so whoever comes late takes nothing. */
static int claim(worker *owner, uint64_t posted)
{
    uint64_t n = atomic_load_explicit(&owner->claimed, memory_order_relaxed);
    for (;;) {
        uint64_t k = n - before_of(posted);
        if (k >= each_of(posted))
            return -1;
        if (atomic_compare_exchange_weak_explicit(&owner->claimed, &n, n + 1, memory_order_acq_rel,
                                                  memory_order_relaxed))
            return (int)k;
    }
}

/* The increment and the load of caller_waits are sequentially consistent, as are the caller's store
 * and load: one of the two sees the other. The same holds of generation and n_sleeping. */
static void finish(bnet_pool *p, worker *owner)
{
    atomic_fetch_add(&owner->done, 1);
    if (atomic_load(&p->caller_waits) == owner->index + 1)
        futex_wake(&owner->done, 1);
}

/* All shares of `owner` that nobody has begun. */
static void run_shares(bnet_pool *p, worker *owner, worker *me, uint64_t posted)
{
    int n = (int)each_of(posted);
    for (int k; (k = claim(owner, posted)) >= 0; look(me, true)) {
        p->job(p->arg, (bnet_share){owner->index * n + k, p->n_threads * n, me->index});
        finish(p, owner);
    }
}

/* One's own shares, and in company then those of all others. */
static void work(bnet_pool *p, worker *me, uint64_t posted)
{
    run_shares(p, me, me, posted);
    if (each_of(posted) > 1)
        for (int i = 1; i < p->n_threads; i++)
            run_shares(p, &p->workers[(me->index + i) % p->n_threads], me, posted);
}

/* ---- workers ---- */

static void sleep_for_job(bnet_pool *p, unsigned seen)
{
    atomic_fetch_add(&p->n_sleeping, 1);
    while (atomic_load(&p->generation) == seen)
        futex_sleep(&p->generation, seen, NULL);
    atomic_fetch_sub(&p->n_sleeping, 1);
}

static void wait_for_job(bnet_pool *p, worker *me, unsigned seen)
{
    double start = -1, limit = spin_limit(p, me);
    for (unsigned i = 0; atomic_load_explicit(&p->generation, memory_order_acquire) == seen;)
        if (!spin_on(&i, &start, limit)) {
            sleep_for_job(p, seen);
            bnet_pulse_start(&me->pulse);
            return;
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
    unsigned seen = 0;
    pin(w->cpu);
    bnet_pulse_start(&w->pulse);
    for (;;) {
        wait_for_job(p, w, seen);
        if (atomic_load(&p->quit))
            return NULL;
        seen = atomic_load_explicit(&p->generation, memory_order_acquire);
        uint64_t posted = atomic_load_explicit(&p->posted, memory_order_acquire);
        if (w->pulse.n_naps > 0 && crew_of(posted) == BNET_CREW_UNDISTURBED)
            take_leave(w);
        else
            work(p, w, posted);
    }
}

/* ---- the caller ---- */

static void wake_workers(bnet_pool *p)
{
    atomic_fetch_add(&p->generation, 1);
    if (atomic_load(&p->n_sleeping) > 0)
        futex_wake(&p->generation, p->n_threads);
}

static void call_back(bnet_pool *p)
{
    atomic_fetch_add(&p->recall, 1);
    futex_wake(&p->recall, p->n_threads);
}

static void sleep_for_share(bnet_pool *p, worker *owner, worker *me, unsigned done)
{
    atomic_store(&p->caller_waits, owner->index + 1);
    if (atomic_load(&owner->done) == done)
        futex_sleep(&owner->done, done, NULL);
    atomic_store(&p->caller_waits, 0);
    bnet_pulse_start(&me->pulse);
}

/* Until the shares of `owner` are finished; those that it has not begun after a moment are taken
 * over. */
static void settle(bnet_pool *p, worker *owner, worker *me, uint64_t posted)
{
    enum { PATIENCE = 32 }; /* rounds of spinning: a microsecond */
    uint64_t after = before_of(posted) + each_of(posted);
    double start = -1, limit = spin_limit(p, me);
    unsigned i = 0, done;
    while ((done = atomic_load_explicit(&owner->done, memory_order_acquire)) != (unsigned)after) {
        if (i >= PATIENCE && atomic_load_explicit(&owner->claimed, memory_order_relaxed) != after)
            run_shares(p, owner, me, posted);
        else if (!spin_on(&i, &start, limit))
            sleep_for_share(p, owner, me, done);
    }
}

static int run(bnet_pool *p, bnet_job job, void *arg, bnet_crew crew)
{
    worker *me = enter(p);
    int n_each = crew == BNET_CREW_QUIET ? 1 : FINE;
    uint64_t posted = posting(p->n_before, crew, n_each);
    p->job = job;
    p->arg = arg;
    p->n_before += (uint64_t)n_each;
    atomic_store_explicit(&p->posted, posted, memory_order_release);
    wake_workers(p);
    work(p, me, posted);
    for (int i = 0; i < p->n_threads; i++) /* others may have begun our own */
        settle(p, &p->workers[i], me, posted);
    return n_each * p->n_threads;
}

static bnet_crew next_crew(bnet_pool *p)
{
    bnet_crew before = p->plan.crew;
    int n_disturbed = bnet_pool_disturbed(p);
    if (n_disturbed == 0 && before == BNET_CREW_QUIET)
        return BNET_CREW_QUIET;
    bnet_crew crew = bnet_plan_next(&p->plan, n_disturbed, bnet_now_ms());
    if (crew != before) {
        atomic_store(&p->crew, (int)crew);
        if (crew < BNET_CREW_UNDISTURBED)
            call_back(p);
    }
    return crew;
}

int bnet_pool_run(bnet_pool *p, bnet_job job, void *arg)
{
    int n = 1;
    if (p->n_threads == 1) {
        job(arg, (bnet_share){0, 1, 0});
        return n;
    }
    pthread_mutex_lock(&p->turn);
    bnet_crew crew = next_crew(p);
    if (crew == BNET_CREW_CALLER) {
        job(arg, (bnet_share){0, 1, 0});
        look(enter(p), false);
    } else {
        n = run(p, job, arg, crew);
    }
    pthread_mutex_unlock(&p->turn);
    return n;
}

void bnet_pool_each(bnet_pool *p, bnet_job job, void *arg)
{
    pthread_mutex_lock(&p->turn);
    run(p, job, arg, BNET_CREW_QUIET);
    pthread_mutex_unlock(&p->turn);
}

int bnet_pool_shares(const bnet_pool *p)
{
    return p->n_threads == 1 ? 1 : p->n_threads * FINE;
}

int bnet_pool_disturbed(const bnet_pool *p)
{
    return atomic_load_explicit(&p->n_disturbed, memory_order_relaxed);
}

/* ---- opening and closing ---- */

static bool start_worker(bnet_pool *p, int index, const int *cpus)
{
    worker *w = &p->workers[index];
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
    for (int i = 0; i < n_threads; i++) {
        workers[i].pool = p;
        workers[i].index = i;
    }
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
    call_back(p);
    wake_workers(p);
    for (int i = 1; i <= p->n_started; i++)
        pthread_join(p->workers[i].thread, NULL);
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
