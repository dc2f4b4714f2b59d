/* test_thread.c - the pool under odd conditions: more threads than CPUs, sleeping workers, workers
 * that do not run, other programs on all CPUs, several callers, pinned workers, and an idle pool
 * that must not use the CPU. */
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"

typedef struct count {
    atomic_int calls;
    atomic_int shares;  /* of the last job */
    atomic_int cpu[64]; /* where each thread last ran */
} count;

static void tick(void *arg, bnet_share s)
{
    count *c = arg;
    atomic_fetch_add(&c->calls, 1);
    atomic_store(&c->shares, s.count);
    if (s.thread < 64)
        atomic_store(&c->cpu[s.thread], sched_getcpu());
}

static void slow_tick(void *arg, bnet_share s)
{
    tick(arg, s);
    usleep(1000);
}

/* Runs `n` jobs; returns how many shares they had. */
static int run_jobs(bnet_pool *p, int n, count *c)
{
    int shares = 0;
    for (int i = 0; i < n; i++)
        shares += bnet_pool_run(p, tick, c);
    return shares;
}

/* More threads than any machine here has CPUs: nobody spins, everything still happens once. */
static void test_more_threads_than_cpus(void **state)
{
    (void)state;
    int n = bnet_cpu_count() * 4 + 3;
    bnet_pool *p;
    count c = {0};
    assert_int_equal(bnet_pool_open(n, &p, NULL), BITNET_OK);
    int shares = run_jobs(p, 200, &c);
    bnet_pool_close(p);
    assert_int_equal(atomic_load(&c.calls), shares);
    assert_true(shares >= 200);
}

static double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Idle workers sleep: a second costs a few milliseconds of CPU at most, whatever ran before. */
static void test_idle_threads_sleep(void **state)
{
    (void)state;
    bnet_pool *p;
    count c = {0};
    assert_int_equal(bnet_pool_open(4, &p, NULL), BITNET_OK);
    int shares = run_jobs(p, 1000, &c);
    usleep(100000);
    double before = cpu_ms();
    sleep(1);
    double used = cpu_ms() - before;
    print_message("CPU time of an idle second: %.2f ms\n", used);
    assert_true(used < 20);
    shares += run_jobs(p, 1, &c); /* and they wake again */
    bnet_pool_close(p);
    assert_int_equal(atomic_load(&c.calls), shares);
}

typedef struct caller {
    bnet_pool *pool;
    count c;
    int shares;
} caller;

static void *call_often(void *arg)
{
    caller *me = arg;
    for (int i = 0; i < 300; i++) {
        me->shares += run_jobs(me->pool, 1, &me->c);
        if (i % 50 == 0)
            usleep(1000);
    }
    return NULL;
}

static void test_callers_take_turns(void **state)
{
    (void)state;
    enum { CALLERS = 4 };
    caller who[CALLERS] = {{0}};
    pthread_t threads[CALLERS];
    bnet_pool *p;
    assert_int_equal(bnet_pool_open(3, &p, NULL), BITNET_OK);
    for (int i = 0; i < CALLERS; i++) {
        who[i].pool = p;
        assert_int_equal(pthread_create(&threads[i], NULL, call_often, &who[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(atomic_load(&who[i].c.calls), who[i].shares);
    }
    bnet_pool_close(p);
}

/* Workers stay where they were put, and the caller's own mask is left alone; a CPU that does not
 * exist is ignored. */
static void test_pinned_workers(void **state)
{
    (void)state;
    cpu_set_t before, after;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    int cpu = 0;
    while (!CPU_ISSET((size_t)cpu, &before))
        cpu++;
    const int cpus[3] = {-1, cpu, CPU_SETSIZE + 5};
    bnet_pool *p;
    count c = {0};
    assert_int_equal(bnet_pool_open_on(3, cpus, &p, NULL), BITNET_OK);
    atomic_store(&c.cpu[1], -1);
    for (int i = 0; i < 5000 && atomic_load(&c.cpu[1]) < 0; i++)
        bnet_pool_run(p, slow_tick,
                      &c); /* until the worker had a share: the caller may be quicker */
    assert_int_equal(atomic_load(&c.cpu[1]), cpu);
    bnet_pool_close(p);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
}

/* The caller is moved when it asks for that and the pool has a place for it. */
static void test_pinned_caller(void **state)
{
    (void)state;
    cpu_set_t before, after;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    int last = CPU_SETSIZE - 1;
    while (!CPU_ISSET((size_t)last, &before))
        last--;
    const int places[] = {-1, CPU_SETSIZE + 5, last};
    for (size_t i = 0; i <= sizeof places / sizeof *places; i++) {
        bool pinned = i < sizeof places / sizeof *places;
        const int cpus[2] = {pinned ? places[i] : 0, last};
        bnet_pool *p;
        assert_int_equal(bnet_pool_open_on(2, pinned ? cpus : NULL, &p, NULL), BITNET_OK);
        assert_int_equal(bnet_pool_pin_caller(p), pinned && places[i] == last);
        bnet_pool_close(p);
        assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
        assert_int_equal(CPU_EQUAL(&before, &after),
                         !(pinned && places[i] == last) || CPU_COUNT(&before) == 1);
        assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    }
}

/* Open and close without and with one job, many times: no thread is left behind. */
static void test_short_lives(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        bnet_pool *p;
        count c = {0};
        assert_int_equal(bnet_pool_open(1 + i % 5, &p, NULL), BITNET_OK);
        int shares = i % 2 ? run_jobs(p, 1, &c) : 0;
        bnet_pool_close(p);
        assert_int_equal(atomic_load(&c.calls), shares);
    }
}

/* ---- workers that do not run ---- */

enum { WORKERS = 3 };
static pthread_t worker_threads[WORKERS + 1];
static atomic_bool known[WORKERS + 1];
static sem_t held, go_on;

static void remember_thread(void *arg, bnet_share s)
{
    (void)arg;
    worker_threads[s.thread] = pthread_self();
    atomic_store(&known[s.thread], true);
    usleep(10000); /* so that every thread gets a share */
}

/* Stands in for a scheduler that does not run the thread: sem_wait, unlike the pool, may be
 * interrupted. */
static void hold_thread(int sig)
{
    (void)sig;
    int saved = errno;
    sem_post(&held);
    while (sem_wait(&go_on) != 0)
        ;
    errno = saved;
}

static void note_thread(void *arg, bnet_share s)
{
    atomic_int *by = arg;
    atomic_fetch_add(&by[s.thread], 1);
}

static void test_caller_takes_over(void **state)
{
    (void)state;
    bnet_pool *p;
    atomic_int by[WORKERS + 1] = {0};
    struct sigaction hold = {.sa_handler = hold_thread};
    assert_int_equal(bnet_pool_open(WORKERS + 1, &p, NULL), BITNET_OK);
    for (int i = 1; i <= WORKERS; i++)
        while (!atomic_load(&known[i]))
            bnet_pool_each(p, remember_thread, NULL);
    sem_init(&held, 0, 0);
    sem_init(&go_on, 0, 0);
    sigaction(SIGPROF, &hold, NULL);
    for (int i = 1; i <= WORKERS; i++)
        assert_int_equal(pthread_kill(worker_threads[i], SIGPROF), 0);
    for (int i = 1; i <= WORKERS; i++)
        sem_wait(&held);
    int shares = bnet_pool_run(p, note_thread, by); /* returns although no worker runs */
    assert_int_equal(atomic_load(&by[0]), shares);
    for (int i = 1; i <= WORKERS; i++)
        sem_post(&go_on);
    bnet_pool_close(p);
}

/* ---- other programs on all CPUs ---- */

enum { HOGS_MAX = 64, ITEMS = 4096 };

static int start_hogs(pid_t *hogs)
{
    int n = BNET_MIN(2 * bnet_cpu_count(), (int)HOGS_MAX);
    for (int i = 0; i < n; i++) {
        hogs[i] = fork();
        if (hogs[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (volatile unsigned long x = 0;;)
                x++;
        }
    }
    return n;
}

typedef struct marks {
    atomic_uchar n[ITEMS];
    atomic_int busy[64]; /* by thread: no two shares at once */
    atomic_int clashes;
} marks;

static void mark(void *arg, bnet_share s)
{
    marks *m = arg;
    size_t begin, end;
    if (s.thread < 64 && atomic_fetch_add(&m->busy[s.thread], 1) != 0)
        atomic_fetch_add(&m->clashes, 1);
    bnet_split(ITEMS, 1, s.index, s.count, &begin, &end);
    for (size_t i = begin; i < end; i++)
        atomic_fetch_add(&m->n[i], 1);
    if (s.thread < 64)
        atomic_fetch_sub(&m->busy[s.thread], 1);
}

/* Every item once per job, whoever takes it; jobs go on for two seconds. */
static void test_each_share_once_in_company(void **state)
{
    (void)state;
    static marks m;
    pid_t hogs[HOGS_MAX];
    int n_hogs = start_hogs(hogs), n_jobs = 0, n_disturbed = 0, n_fine = 0;
    int n_threads = BNET_MAX(bnet_cpu_count(), 2);
    bnet_pool *p;
    assert_int_equal(bnet_pool_open(n_threads, &p, NULL), BITNET_OK);
    for (double start = bnet_now_ms(); bnet_now_ms() - start < 2000; n_jobs++) {
        n_fine += bnet_pool_run(p, mark, &m) > n_threads;
        n_disturbed = BNET_MAX(n_disturbed, bnet_pool_disturbed(p));
        for (size_t i = 0; i < ITEMS; i++)
            if (atomic_exchange_explicit(&m.n[i], 0, memory_order_relaxed) != 1)
                fail_msg("job %d: item %zu not once", n_jobs, i);
    }
    bnet_pool_close(p);
    for (int i = 0; i < n_hogs; i++) {
        kill(hogs[i], SIGKILL);
        waitpid(hogs[i], NULL, 0);
    }
    print_message("%d jobs beside %d busy programs, %d in small shares; at most %d of %d threads "
                  "disturbed\n",
                  n_jobs, n_hogs, n_fine, n_disturbed, n_threads);
    assert_int_equal(atomic_load(&m.clashes), 0);
    assert_true(n_disturbed > 0);
}

static void look_at_signals(void *arg, bnet_share s)
{
    sigset_t mask;
    atomic_int *seen = arg;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    if (s.thread > 0)
        atomic_store(seen, sigismember(&mask, SIGINT) && sigismember(&mask, SIGTERM) &&
                                   sigismember(&mask, SIGUSR1) && !sigismember(&mask, SIGBUS) &&
                                   !sigismember(&mask, SIGSEGV)
                               ? 1
                               : -1);
}

/* A signal that the program waits for cannot end up at a worker; the caller's mask stays. */
static void test_signals_are_for_the_program(void **state)
{
    (void)state;
    bnet_pool *p;
    sigset_t before, after;
    atomic_int seen = 0;
    pthread_sigmask(SIG_BLOCK, NULL, &before);
    assert_int_equal(bnet_pool_open(2, &p, NULL), BITNET_OK);
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    for (int i = 0; i < 10000 && !atomic_load(&seen); i++)
        bnet_pool_each(p, look_at_signals, &seen);
    bnet_pool_close(p);
    assert_int_equal(atomic_load(&seen), 1);
    for (int sig = 1; sig < 32; sig++)
        assert_int_equal(sigismember(&after, sig), sigismember(&before, sig));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_signals_are_for_the_program),
        cmocka_unit_test(test_more_threads_than_cpus),
        cmocka_unit_test(test_idle_threads_sleep),
        cmocka_unit_test(test_callers_take_turns),
        cmocka_unit_test(test_pinned_workers),
        cmocka_unit_test(test_pinned_caller),
        cmocka_unit_test(test_short_lives),
        cmocka_unit_test(test_caller_takes_over),
        cmocka_unit_test(test_each_share_once_in_company),
    };
    return cmocka_run_group_tests_name("base/thread", tests, NULL, NULL);
}
