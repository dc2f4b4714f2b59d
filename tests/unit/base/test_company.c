/* test_company.c - which crew a pool settles for, when jobs take as long as the test says; and a
 * pool whose threads are disturbed. */
#include "test.h"

#include <time.h>
#include <unistd.h>

#include "base/company.h"
#include "base/thread.h"

typedef struct clockwork {
    bnet_plan plan;
    double now_ms;
    int n_jobs[4]; /* by crew */
    double ms[4];
} clockwork;

/* Plays jobs for some time; a job takes us[crew]. */
static void play(clockwork *c, const double *us, double ms, int n_disturbed)
{
    for (double end = c->now_ms + ms; c->now_ms < end;) {
        bnet_crew crew = bnet_plan_next(&c->plan, n_disturbed, c->now_ms);
        c->n_jobs[crew]++;
        c->ms[crew] += us[crew] / 1e3;
        c->now_ms += us[crew] / 1e3;
        bnet_plan_done(&c->plan, c->now_ms);
    }
}

static void settles_for(const double *us, bnet_crew want)
{
    clockwork c = {0};
    play(&c, us, 10000, 2);
    print_message("all %.0f ms, undisturbed %.0f ms, caller %.0f ms\n", c.ms[1], c.ms[2], c.ms[3]);
    assert_int_equal(c.n_jobs[BNET_CREW_QUIET], 0);
    assert_true(c.ms[want] > 9200);
}

static void test_best_crew(void **state)
{
    (void)state;
    settles_for((const double[]){0, 20, 40, 60}, BNET_CREW_ALL);
    settles_for((const double[]){0, 60, 20, 40}, BNET_CREW_UNDISTURBED);
    settles_for((const double[]){0, 60, 40, 20}, BNET_CREW_CALLER);
    settles_for((const double[]){0, 80, 600, 900}, BNET_CREW_ALL);
}

/* A crew that is a hundred times slower is given up as soon as that is clear. */
static void test_bad_crews_are_cut_short(void **state)
{
    (void)state;
    clockwork c = {0};
    play(&c, (const double[]){0, 10, 1000, 1000}, 500, 1);
    assert_true(c.n_jobs[BNET_CREW_UNDISTURBED] >= 1 && c.ms[BNET_CREW_UNDISTURBED] < 60);
    assert_true(c.n_jobs[BNET_CREW_CALLER] >= 1 && c.ms[BNET_CREW_CALLER] < 60);
}

/* What was best may change: another crew takes over after a while. */
static void test_change_is_noticed(void **state)
{
    (void)state;
    clockwork c = {0};
    play(&c, (const double[]){0, 20, 40, 60}, 3000, 1);
    play(&c, (const double[]){0, 200, 100, 30}, 8000, 1);
    assert_int_equal(c.plan.trying ? BNET_CREW_CALLER : c.plan.crew, BNET_CREW_CALLER);
    assert_true(c.ms[BNET_CREW_CALLER] > 4000);
}

/* Without disturbed threads the plan is quiet at once, and begins anew with the next one. */
static void test_quiet(void **state)
{
    (void)state;
    clockwork c = {0};
    const double us[] = {5, 5, 5, 5};
    play(&c, us, 10, 0);
    assert_int_equal(c.n_jobs[BNET_CREW_ALL], 0);
    play(&c, us, 300, 1);
    assert_int_equal(bnet_plan_next(&c.plan, 0, c.now_ms), BNET_CREW_QUIET);
    assert_int_equal(bnet_plan_next(&c.plan, 1, c.now_ms), BNET_CREW_ALL);
}

/* Few long jobs in a phase: they are shared by everybody without further trials. */
static void test_long_jobs_are_shared(void **state)
{
    (void)state;
    clockwork c = {0};
    play(&c, (const double[]){0, 20000, 1, 1}, 3000, 1);
    assert_int_equal(c.n_jobs[BNET_CREW_UNDISTURBED] + c.n_jobs[BNET_CREW_CALLER], 0);
}

/* Time in which nobody wants anything computed is not held against the crew of that time. */
static void test_pauses_do_not_count(void **state)
{
    (void)state;
    clockwork c = {0};
    const double us[] = {0, 20, 40, 60};
    play(&c, us, 5, 1); /* in the middle of the first trial */
    c.now_ms += 10000;
    play(&c, us, 1000, 1);
    assert_true(c.ms[BNET_CREW_ALL] > 800);
}

/* What a job costs is known also where every one takes longer than a pause. */
static void test_very_long_jobs(void **state)
{
    (void)state;
    clockwork c = {0};
    play(&c, (const double[]){0, 400000, 1, 1}, 3000, 1);
    assert_true(c.plan.cost_ms[BNET_CREW_ALL] > 300);
    assert_int_equal(c.n_jobs[BNET_CREW_UNDISTURBED] + c.n_jobs[BNET_CREW_CALLER], 0);
}

static double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Computes until the thread has had the CPU for so long; returns how long that was. */
static double spin_ms(double ms)
{
    double start = cpu_ms(), now;
    while ((now = cpu_ms()) < start + ms)
        ;
    return now - start;
}

/* A thread that slept, as one does that has lost its CPU, was disturbed; it recovers in time. */
static void test_pulse(void **state)
{
    (void)state;
    bnet_pulse p = {0};
    bnet_pulse_start(&p);
    assert_int_equal(bnet_pulse_look(&p, p.wall_ms + 0.1, true), 0); /* too early to look */
    usleep(5000);
    assert_int_equal(bnet_pulse_look(&p, bnet_now_ms(), false), 1);
    assert_true(p.n_naps > 0);
    int change = 0;
    for (int i = 0; i < 20 && change == 0; i++) /* as on a machine where nobody else computes */
        change = bnet_pulse_look(&p, p.wall_ms + spin_ms(1.2), false);
    assert_int_equal(change, -1);
    bool quiet = false;
    p.rests = true;                           /* only being taken off the CPU counts as a loss */
    for (int i = 0; i < 100 && !quiet; i++) { /* until that does not happen in between */
        bnet_pulse_start(&p);
        p.n_naps = 0;
        double later = p.wall_ms + 1e6;
        bnet_pulse_look(&p, later, true);
        quiet = p.n_naps == 0;
        assert_true(!quiet || p.wall_ms == later); /* alone nobody naps: that would set the clock */
    }
    assert_true(quiet);
}

enum { THREADS = 4, SHARES_MAX = 64 };

typedef struct restless {
    int hits[SHARES_MAX]; /* not atomic: a share is begun once, and seen when the job returns */
    bool dozes;
} restless;

/* A share that sleeps takes as long as one that has lost its CPU. */
static void doze(void *arg, bnet_share s)
{
    restless *r = arg;
    r->hits[s.index]++;
    if (r->dozes && s.index == s.count - 1)
        usleep(1500);
}

/* All crews take turns; every share is computed once, also by those who come late, and the pool
 * closes while some of its threads stay away. */
static void test_disturbed_pool(void **state)
{
    (void)state;
    bnet_pool *p;
    int n_alone = 0, n_finer = 0, n_disturbed = 0;
    assert_int_equal(bnet_pool_open(THREADS, &p, NULL), BITNET_OK);
    assert_true(bnet_pool_shares(p) <= SHARES_MAX);
    alarm(100); /* ends a test that hangs */
    double start = bnet_now_ms(), ms = 0;
    int i = 0;
    for (; ms < 500 || (ms < 30000 && !(n_alone && n_finer)); i++) {
        restless r = {.dozes = i % 20 == 0};
        int n = bnet_pool_run(p, doze, &r);
        for (int k = 0; k < SHARES_MAX; k++)
            assert_int_equal(r.hits[k], k < n);
        n_alone += n == 1;
        n_finer += n > THREADS;
        n_disturbed += bnet_pool_disturbed(p) > 0;
        ms = bnet_now_ms() - start;
    }
    bnet_pool_close(p);
    alarm(0);
    print_message("alone %d, finer %d, disturbed %d of %d in %.0f ms\n", n_alone, n_finer,
                  n_disturbed, i, ms);
    assert_true(n_alone > 0 && n_finer > 0 && n_disturbed > 0);
}

static void nothing(void *arg, bnet_share s)
{
    (void)arg, (void)s;
}

static int disturbed_pauses(void)
{
    bnet_pool *p;
    int n_disturbed = 0;
    assert_int_equal(bnet_pool_open(2, &p, NULL), BITNET_OK);
    for (int i = 0; i < 40; i++) {
        bnet_pool_run(p, nothing, NULL);
        n_disturbed += bnet_pool_disturbed(p) > 0;
        usleep(3000);
    }
    bnet_pool_close(p);
    print_message("disturbed after %d of 40 pauses\n", n_disturbed);
    return n_disturbed;
}

/* A caller that waits for somebody between two jobs has not lost its CPU. Other programs may take
 * it meanwhile, but not in every one of ten rounds. */
static void test_pauses_of_the_caller(void **state)
{
    (void)state;
    int least = 40;
    for (int round = 0; round < 10 && least >= 30; round++)
        least = BNET_MIN(least, disturbed_pauses());
    assert_true(least < 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_best_crew),
        cmocka_unit_test(test_bad_crews_are_cut_short),
        cmocka_unit_test(test_change_is_noticed),
        cmocka_unit_test(test_quiet),
        cmocka_unit_test(test_long_jobs_are_shared),
        cmocka_unit_test(test_pauses_do_not_count),
        cmocka_unit_test(test_very_long_jobs),
        cmocka_unit_test(test_pulse),
        cmocka_unit_test(test_disturbed_pool),
        cmocka_unit_test(test_pauses_of_the_caller),
    };
    return cmocka_run_group_tests_name("base/company", tests, NULL, NULL);
}
