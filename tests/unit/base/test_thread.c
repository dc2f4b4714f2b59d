/* test_thread.c - the pool under odd conditions: more threads than CPUs, sleeping workers, several
 * callers, pinned workers, and an idle pool that must not use the CPU. */
#include "test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"

typedef struct count {
    atomic_int calls;
    atomic_int cpu[64]; /* where each thread last ran */
} count;

static void tick(void *arg, int thread, int n_threads)
{
    count *c = arg;
    (void)n_threads;
    atomic_fetch_add(&c->calls, 1);
    if (thread < 64)
        atomic_store(&c->cpu[thread], sched_getcpu());
}

/* More threads than any machine here has CPUs: nobody spins, everything still happens once. */
static void test_more_threads_than_cpus(void **state)
{
    (void)state;
    int n = bnet_cpu_count() * 4 + 3;
    bnet_pool *p;
    count c = {0};
    assert_int_equal(bnet_pool_open(n, &p, NULL), BITNET_OK);
    for (int i = 0; i < 200; i++)
        bnet_pool_run(p, tick, &c);
    bnet_pool_close(p);
    assert_int_equal(atomic_load(&c.calls), 200 * n);
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
    for (int i = 0; i < 1000; i++)
        bnet_pool_run(p, tick, &c);
    usleep(100000);
    double before = cpu_ms();
    sleep(1);
    double used = cpu_ms() - before;
    print_message("CPU time of an idle second: %.2f ms\n", used);
    assert_true(used < 20);
    bnet_pool_run(p, tick, &c); /* and they wake again */
    bnet_pool_close(p);
    assert_int_equal(atomic_load(&c.calls), 4 * 1001);
}

typedef struct caller {
    bnet_pool *pool;
    count c;
} caller;

static void *call_often(void *arg)
{
    caller *me = arg;
    for (int i = 0; i < 300; i++) {
        bnet_pool_run(me->pool, tick, &me->c);
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
        assert_int_equal(atomic_load(&who[i].c.calls), 3 * 300);
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
    for (int i = 0; i < 50; i++) {
        bnet_pool_run(p, tick, &c);
        assert_int_equal(atomic_load(&c.cpu[1]), cpu);
    }
    bnet_pool_close(p);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
}

/* Open and close without and with one job, many times: no thread is left behind. */
static void test_short_lives(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        bnet_pool *p;
        count c = {0};
        assert_int_equal(bnet_pool_open(1 + i % 5, &p, NULL), BITNET_OK);
        if (i % 2)
            bnet_pool_run(p, tick, &c);
        bnet_pool_close(p);
        assert_int_equal(atomic_load(&c.calls), i % 2 ? 1 + i % 5 : 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_more_threads_than_cpus),
        cmocka_unit_test(test_idle_threads_sleep),
        cmocka_unit_test(test_callers_take_turns),
        cmocka_unit_test(test_pinned_workers),
        cmocka_unit_test(test_short_lives),
    };
    return cmocka_run_group_tests_name("base/thread", tests, NULL, NULL);
}
