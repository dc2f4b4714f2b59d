/* test_program.c - the pen that writes programs: a choice of no texts does not become the empty
 * text. */
#include "test.h"

#include "grammar/program.h"

static bitnet_status close_choice(bool may_be_empty, bool written, bitnet_error *err)
{
    bnet_program p = {.err = err};
    p.root = bnet_program_rule(&p, "root", 4);
    bnet_program_begin(&p, p.root);
    bnet_choice c = bnet_program_either(&p);
    c.may_be_empty = may_be_empty;
    if (written)
        bnet_program_or(&p, &c);
    bnet_program_close(&p, &c);
    bnet_program_end(&p);
    bitnet_status st = bnet_program_finish(&p);
    bnet_program_free(&p);
    return st;
}

static void test_choice_of_nothing(void **state)
{
    (void)state;
    bitnet_error err = {0};
    assert_int_equal(close_choice(false, false, &err), BITNET_ARGUMENT);
    assert_non_null(strstr(err.message, "has none"));
    assert_int_equal(close_choice(false, true, &err), BITNET_OK);
    assert_int_equal(close_choice(true, false, &err), BITNET_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_choice_of_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
