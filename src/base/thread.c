/* thread.c - the pool. The shares of a job lie in piles, one for each thread that takes part;
 * taking one is a compare-and-swap on the pile's word, and the caller waits by reading one word per
 * pile. Waiting is spinning for a while (the operations of a decode step follow each other within
 * microseconds), then sleeping on the word; nobody holds a lock while another needs it. Where other
 * programs use the same CPUs (company.h), threads spin less, shares are smaller, and every thread
 * goes on with the piles of the others. */
#include "base/thread.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/company.h"

/* Long enough for what one thread does alone inside a decode step (tens of microseconds) and for
 * sampling between two steps; too short to be seen in the CPU time of an idle program. */
#define SPIN_MS           0.3
#define SPIN_DISTURBED_MS 0.03
/* In company a job of so long is cut finer, so that nobody waits long for the last share. */
#define FINE_MS 0.04
enum {
    LINE = 64,
    SPINS_PER_LOOK = 64,
    FINE = 4,            /* shares per thread, at most */
    LEAVE_FIRST_MS = 50, /* how long a disturbed thread stays away from jobs without it */
    LEAVE_LAST_MS = 800
};

/* A pile of shares of the job. There are as many as threads take part; a thread begins with the
 * pile of its own number. */
typedef struct pile {
    _Alignas(LINE) _Atomic uint64_t claimed; /* generation of the job << 8 | shares begun */
    _Alignas(LINE) atomic_uint done;         /* shares finished, of all jobs */
    unsigned done_after;                     /* of the job; the caller's */
} pile;

typedef struct worker {
    _Alignas(LINE) bnet_pool *pool;
    pthread_t thread; /* index 0: who called last */
    bnet_pulse pulse;
    int index, cpu;    /* cpu < 0: wherever the system likes */
    int leave_ms;      /* the last one */
    double back_ms;    /* when it ended */
    unsigned n_unseen; /* shares after which it did not look */
} worker;

struct bnet_pool {
    int n_threads, n_started;
    double spin_ms;
    worker *workers;      /* n_threads; the first is the caller's */
    pile *piles;          /* n_threads */
    pthread_mutex_t turn; /* one job at a time */
    bnet_plan plan;
    _Alignas(LINE) _Atomic uint64_t posted; /* the job: generation, piles, crew, shares of a pile */
    atomic_uint generation; /* its low bits, once it can be begun: workers sleep on it */
    bnet_job job;
    void *arg;
    _Alignas(LINE) atomic_int n_sleeping; /* workers */
    atomic_int caller_waits;              /* 1 + index of the pile it sleeps for */
    atomic_int n_disturbed;               /* threads */
    atomic_int crew;                      /* of the last job */
    atomic_uint recall;                   /* when it changes, threads on leave come back */
    atomic_bool quit;
};

/* ---- postings ---- */

/* The 45 bits that are left for the generation last for years of the smallest jobs. */
enum { EACH_BITS = 3, CREW_BITS = 2, PILE_BITS = 14 };

static uint64_t posting(uint64_t generation, int n_piles, bnet_crew crew, int n_each)
{
    return ((generation << PILE_BITS | (uint64_t)n_piles) << CREW_BITS | (uint64_t)crew)
               << EACH_BITS |
           (uint64_t)n_each;
}

static inline int each_of(uint64_t posted)
{
    return (int)(posted & ((1u << EACH_BITS) - 1));
}

static inline bnet_crew crew_of(uint64_t posted)
{
    return (bnet_crew)(posted >> EACH_BITS & ((1u << CREW_BITS) - 1));
}

static inline int piles_of(uint64_t posted)
{
    return (int)(posted >> (EACH_BITS + CREW_BITS) & ((1u << PILE_BITS) - 1));
}

static inline uint64_t generation_of(uint64_t posted)
{
    return posted >> (EACH_BITS + CREW_BITS + PILE_BITS);
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

/* While nobody disturbs, the clock is read after some of the shares only. */
static void look(worker *w, bool may_nap)
{
    enum { SOME = 4 };
    if (w->pulse.n_naps == 0 && ++w->n_unseen % SOME != 0)
        return;
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

/* The calls of a pool may come from different threads, each with clocks of its own; and what a
 * caller does between two jobs, such as waiting for a reader, is no disturbance. */
static worker *enter(bnet_pool *p)
{
    worker *w = &p->workers[0];
    if (!pthread_equal(w->thread, pthread_self())) {
        w->thread = pthread_self();
        w->pulse.rests = true;
        bnet_pulse_start(&w->pulse);
    }
    return w;
}

/* ---- shares ---- */

/* Takes the next share of a pile that nobody has begun; -1: there is none. All shares of a job that
 * is over were begun, so whoever comes late takes nothing. */
static int claim(pile *from, uint64_t posted)
{
    uint64_t now = atomic_load_explicit(&from->claimed, memory_order_relaxed);
    uint64_t first = generation_of(posted) << 8;
    for (;;) {
        uint64_t next = now < first ? first : now;
        if (next - first >= (uint64_t)each_of(posted))
            return -1;
        if (atomic_compare_exchange_weak_explicit(&from->claimed, &now, next + 1,
                                                  memory_order_acq_rel, memory_order_relaxed))
            return (int)(next - first);
    }
}

/* The increment and the load of caller_waits are sequentially consistent, as are the caller's store
 * and load: one of the two sees the other. The same holds of generation and n_sleeping. */
static void finish(bnet_pool *p, int i_pile)
{
    atomic_fetch_add(&p->piles[i_pile].done, 1);
    if (atomic_load(&p->caller_waits) == i_pile + 1)
        futex_wake(&p->piles[i_pile].done, 1);
}

/* All shares of a pile that nobody has begun. */
static void run_pile(bnet_pool *p, int i_pile, worker *me, uint64_t posted)
{
    int n = each_of(posted), count = piles_of(posted) * n;
    for (int k; (k = claim(&p->piles[i_pile], posted)) >= 0; look(me, true)) {
        p->job(p->arg, (bnet_share){i_pile * n + k, count, me->index});
        finish(p, i_pile);
    }
}

/* One's own pile, and in company then all others. */
static void work(bnet_pool *p, worker *me, uint64_t posted)
{
    int n = piles_of(posted), own = me->index % n;
    run_pile(p, own, me, posted);
    if (crew_of(posted) != BNET_CREW_QUIET)
        for (int i = 1; i < n; i++)
            run_pile(p, (own + i) % n, me, posted);
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
static bool pin(int cpu)
{
    cpu_set_t set;
    if (cpu < 0 || cpu >= CPU_SETSIZE)
        return false;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    return sched_setaffinity(0, sizeof set, &set) == 0;
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
        seen = atomic_load(&p->generation);
        if (atomic_load(&p->quit)) /* set before the generation that tells of it: none is missed */
            return NULL;
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

static void sleep_for_pile(bnet_pool *p, int i_pile, worker *me, unsigned done)
{
    pile *of = &p->piles[i_pile];
    atomic_store(&p->caller_waits, i_pile + 1);
    if (atomic_load(&of->done) == done)
        futex_sleep(&of->done, done, NULL);
    atomic_store(&p->caller_waits, 0);
    bnet_pulse_start(&me->pulse);
}

/* Until the shares of a pile are finished; those that nobody has begun after a while are taken
 * over. Not at once: their weights lie in the cache of the thread they are for, which may come
 * back. *waited counts the rounds of all piles of the job. */
static void settle(bnet_pool *p, int i_pile, worker *me, uint64_t posted, unsigned *waited)
{
    enum { PATIENCE = 1024 }; /* rounds of spinning: tens of microseconds */
    pile *of = &p->piles[i_pile];
    uint64_t all = (generation_of(posted) << 8) + (uint64_t)each_of(posted);
    double start = -1, limit = spin_limit(p, me);
    unsigned done;
    while ((done = atomic_load_explicit(&of->done, memory_order_acquire)) != of->done_after) {
        bool goes_on = spin_on(waited, &start, limit);
        if (goes_on && *waited < PATIENCE)
            continue;
        if (atomic_load_explicit(&of->claimed, memory_order_relaxed) < all)
            run_pile(p, i_pile, me, posted);
        else if (!goes_on)
            sleep_for_pile(p, i_pile, me, done);
    }
}

/* The job becomes n_piles piles of n_each shares. */
static int run(bnet_pool *p, bnet_job job, void *arg, bnet_crew crew, int n_piles, int n_each)
{
    worker *me = enter(p);
    unsigned waited = 0;
    uint64_t generation = generation_of(atomic_load_explicit(&p->posted, memory_order_relaxed)) + 1;
    uint64_t posted = posting(generation, n_piles, crew, n_each);
    for (int i = 0; i < n_piles; i++)
        p->piles[i].done_after += (unsigned)n_each;
    p->job = job;
    p->arg = arg;
    atomic_store_explicit(&p->posted, posted, memory_order_release);
    wake_workers(p);
    work(p, me, posted);
    for (int i = 0; i < n_piles; i++) /* others may have begun shares of our own */
        settle(p, i, me, posted, &waited);
    return n_piles * n_each;
}

static int run_in_company(bnet_pool *p, bnet_job job, void *arg, bnet_crew crew)
{
    double ms = p->plan.cost_ms[crew];
    int n_away = crew == BNET_CREW_UNDISTURBED ? bnet_pool_disturbed(p) : 0;
    int n_piles = BNET_MAX(p->n_threads - n_away, 1);
    return run(p, job, arg, crew, n_piles, ms > FINE_MS ? FINE : ms > FINE_MS / 4 ? FINE / 2 : 1);
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
    if (crew == BNET_CREW_QUIET) {
        n = run(p, job, arg, crew, p->n_threads, 1);
    } else if (crew == BNET_CREW_CALLER) {
        worker *me = enter(p);
        job(arg, (bnet_share){0, 1, 0});
        look(me, false);
    } else {
        n = run_in_company(p, job, arg, crew);
    }
    if (crew != BNET_CREW_QUIET)
        bnet_plan_done(&p->plan, bnet_now_ms());
    pthread_mutex_unlock(&p->turn);
    return n;
}

void bnet_pool_each(bnet_pool *p, bnet_job job, void *arg)
{
    pthread_mutex_lock(&p->turn);
    run(p, job, arg, BNET_CREW_QUIET, p->n_threads, 1);
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

/* Signals of the program are for its own threads; a worker takes those of its faults, and a
 * profiler's. */
static bool start_worker(bnet_pool *p, int index)
{
    static const int own[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGPROF, SIGSEGV, SIGSYS, SIGTRAP};
    sigset_t others, before;
    worker *w = &p->workers[index];
    sigfillset(&others);
    for (size_t i = 0; i < BNET_COUNT(own); i++)
        sigdelset(&others, own[i]);
    pthread_sigmask(SIG_BLOCK, &others, &before);
    int failed = pthread_create(&w->thread, NULL, worker_main, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    p->n_started += !failed;
    return !failed;
}

bitnet_status bnet_pool_open_on(int n_threads, const int *cpus, bnet_pool **out, bitnet_error *err)
{
    bnet_pool *p = bnet_calloc(1, (sizeof *p + LINE - 1) / LINE * LINE);
    worker *workers = bnet_calloc((size_t)n_threads, sizeof *workers);
    pile *piles = bnet_calloc((size_t)n_threads, sizeof *piles);
    if (!p || !workers || !piles) {
        bnet_free(p);
        bnet_free(workers);
        bnet_free(piles);
        return bnet_no_memory(err, "thread pool");
    }
    p->n_threads = n_threads;
    p->workers = workers;
    p->piles = piles;
    p->spin_ms = n_threads > bnet_cpu_count() ? 0 : SPIN_MS;
    pthread_mutex_init(&p->turn, NULL);
    for (int i = 0; i < n_threads; i++) {
        workers[i].pool = p;
        workers[i].index = i;
        workers[i].cpu = cpus ? cpus[i] : -1;
    }
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

bitnet_status bnet_pool_open(int n_threads, bnet_pool **out, bitnet_error *err)
{
    return bnet_pool_open_on(n_threads, NULL, out, err);
}

bool bnet_pool_pin_caller(const bnet_pool *p)
{
    return p->n_threads > 1 && pin(p->workers[0].cpu);
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
    bnet_free(p->piles);
    bnet_free(p->workers);
    bnet_free(p);
}

int bnet_pool_threads(const bnet_pool *p)
{
    return p->n_threads;
}
