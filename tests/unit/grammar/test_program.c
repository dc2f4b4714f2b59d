/* test_program.c - the pen that writes programs: a choice of no texts does not become the empty
 * text, and JUMPs in a row are one. */
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

/* Calls that JUMPs in a row stand behind; at their end is a byte, or nothing. */
static void write_row(bnet_program *p, bool byte)
{
    enum { N = 5 };
    p->root = bnet_program_rule(p, "root", 4);
    uint32_t other = bnet_program_rule(p, "other", 5);
    bnet_program_begin(p, p->root);
    bnet_choice c = bnet_program_either(p);
    for (int i = 0; i < N; i++) {
        bnet_program_call(p, other, 1, 1);
        bnet_program_or(p, &c);
    }
    bnet_program_byte(p, 'b', 'b');
    bnet_program_close(p, &c);
    for (int i = 0; i < N; i++)
        bnet_program_land(p, bnet_program_leap(p));
    if (byte)
        bnet_program_byte(p, 'c', 'c');
    bnet_program_end(p);
    bnet_program_begin(p, other);
    bnet_program_byte(p, 'a', 'a');
    bnet_program_end(p);
}

static void test_rows_of_jumps(void **state)
{
    (void)state;
    for (int byte = 0; byte < 2; byte++) {
        bitnet_error err = {0};
        bnet_program p = {.err = &err};
        int n_calls = 0;
        write_row(&p, byte);
        assert_int_equal(bnet_program_finish(&p), BITNET_OK);
        for (const bnet_gram_op *op = p.code; op < p.code + p.n_code; op++) {
            if (op->code == BNET_GRAM_JUMP) {
                assert_true(op->arg > 0);
                assert_int_not_equal(op[op->arg].code, BNET_GRAM_JUMP);
            }
            if (op->code == BNET_GRAM_CALL)
                assert_int_equal(op->tail, !byte);
            n_calls += op->code == BNET_GRAM_CALL;
        }
        assert_int_equal(n_calls, 5);
        bnet_program_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_choice_of_nothing),
                                       cmocka_unit_test(test_rows_of_jumps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
