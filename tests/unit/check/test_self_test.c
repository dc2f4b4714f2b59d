/* test_self_test.c - every instruction set this CPU has passes its self-test, in milliseconds;
 * others are refused as everywhere. What happens to one that lies: tests/cli/test_self_test.py. */
#include "unit/engine/nano.h"

#include <time.h>

#include "bitnet_check.h"

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void test_every_set_of_this_cpu_is_sound(void **state)
{
    (void)state;
    int n_sound = 0;
    for (int i = 0; bitnet_isa_at(i); i++) {
        bitnet_error why = {0};
        bitnet_status st = bitnet_isa_self_test(bitnet_isa_at(i), &why);
        if (st == BITNET_NOT_AVAILABLE)
            print_message("%s: not available on this CPU, not tested\n", bitnet_isa_at(i));
        else if (st != BITNET_OK)
            fail_msg("%s", why.message);
        n_sound += st == BITNET_OK;
    }
    assert_true(n_sound >= 1);
    assert_string_equal(bitnet_isa_at(0), "scalar");
    assert_null(bitnet_isa_at(-1));
    FAILS(bitnet_isa_self_test("mmx", &err), BITNET_ARGUMENT, "isa 'mmx' is unknown");
}

static void test_the_best_is_sound_and_quick(void **state)
{
    (void)state;
    double best = 1e9;
    for (int i = 0; i < (test_quick() ? 2 : 5); i++) {
        double start = now_ms();
        OK(bitnet_isa_self_test(NULL, NULL));
        best = now_ms() - start < best ? now_ms() - start : best;
    }
    print_message("%.3f ms; virtual: %d\n", best, bitnet_cpu_is_virtual());
    assert_true(best < (test_quick() ? 8000 : 800)); /* a few, but for emulators */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_set_of_this_cpu_is_sound),
        cmocka_unit_test(test_the_best_is_sound_and_quick),
    };
    return cmocka_run_group_tests_name("self_test", tests, NULL, NULL);
}
