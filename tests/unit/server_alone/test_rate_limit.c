/* test_rate_limit.c - how often somebody may call, on a clock of the test's own. */
#include "test.h"

#include "../../../server/http/rate_limit.h"

static void test_a_burst_then_the_rate(void **state)
{
    srv_rates *r = srv_rates_open(5);
    int n_passed = 0;
    (void)state;
    for (int i = 0; i < 20; i++)
        n_passed += srv_rates_take(r, 1, 1000) == 0;
    assert_int_equal(n_passed, 10); /* two seconds' worth */
    assert_int_equal(srv_rates_take(r, 1, 1000), 1);
    n_passed = 0;
    for (int ms = 0; ms < 10000; ms += 10)
        n_passed += srv_rates_take(r, 1, 1000 + ms) == 0;
    assert_in_range(n_passed, 49, 50);
    assert_int_equal(srv_rates_take(r, 2, 11000), 0); /* somebody else */
    srv_rates_close(r);
}

static void test_slow_rates_say_how_long(void **state)
{
    srv_rates *r = srv_rates_open(0.1);
    (void)state;
    assert_int_equal(srv_rates_take(r, 7, 0), 0);
    assert_int_equal(srv_rates_take(r, 7, 0), 10);
    assert_int_equal(srv_rates_take(r, 7, 4000), 6);
    assert_int_equal(srv_rates_take(r, 7, 10001), 0);
    srv_rates_close(r);
}

/* Threads read the clock before they come here: an earlier time takes nothing away. */
static void test_an_earlier_time(void **state)
{
    srv_rates *r = srv_rates_open(5);
    (void)state;
    assert_int_equal(srv_rates_take(r, 1, 100000), 0);
    assert_int_equal(srv_rates_take(r, 1, 40000), 0);
    assert_int_equal(srv_rates_take(r, 1, 100000), 0);
    for (int i = 3; i < 10; i++)
        assert_int_equal(srv_rates_take(r, 1, 100000), 0);
    assert_int_equal(srv_rates_take(r, 1, 100000), 1); /* nor does it give anything */
    srv_rates_close(r);
}

static void test_no_limit(void **state)
{
    srv_rates *r = srv_rates_open(0);
    (void)state;
    for (int i = 0; i < 1000; i++)
        assert_int_equal(srv_rates_take(r, 1, 0), 0);
    srv_rates_close(r);
}

/* A million callers take no more memory than one; who was quiet for longest is forgotten. */
static void test_a_crowd(void **state)
{
    srv_rates *r = srv_rates_open(1);
    (void)state;
    for (uint64_t who = 0; who < 1000000; who++)
        assert_int_equal(srv_rates_take(r, who + 1, (double)who), 0);
    while (srv_rates_take(r, 5, 1000000) == 0)
        continue;
    assert_true(srv_rates_take(r, 5, 1000000) > 0);
    srv_rates_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_burst_then_the_rate),
        cmocka_unit_test(test_slow_rates_say_how_long),
        cmocka_unit_test(test_an_earlier_time),
        cmocka_unit_test(test_no_limit),
        cmocka_unit_test(test_a_crowd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
