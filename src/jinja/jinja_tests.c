/* jinja_tests.c - the tests of templates: what may follow `is`. */
#include "jinja/jinja_impl.h"

typedef bool test_fn(jinja *m, jinja_value v, jinja_value other);

#define TYPE_TEST(name, condition)                                                                 \
    static bool name(jinja *m, jinja_value v, jinja_value other)                                   \
    {                                                                                              \
        (void)m;                                                                                   \
        (void)other;                                                                               \
        return condition;                                                                          \
    }
TYPE_TEST(defined, v.type != JINJA_UNDEFINED)
TYPE_TEST(undefined, v.type == JINJA_UNDEFINED)
TYPE_TEST(none, v.type == JINJA_NONE)
TYPE_TEST(boolean, v.type == JINJA_BOOL)
TYPE_TEST(integer, v.type == JINJA_INT)
TYPE_TEST(real, v.type == JINJA_FLOAT)
TYPE_TEST(number, v.type == JINJA_INT || v.type == JINJA_FLOAT || v.type == JINJA_BOOL)
TYPE_TEST(string, v.type == JINJA_STRING)
TYPE_TEST(mapping, v.type == JINJA_DICT)
TYPE_TEST(row, v.type == JINJA_STRING || v.type == JINJA_LIST || v.type == JINJA_TUPLE ||
                   v.type == JINJA_DICT || v.type == JINJA_UNDEFINED)
TYPE_TEST(callable, v.type == JINJA_MACRO || v.type == JINJA_FUNCTION)
TYPE_TEST(is_true, v.type == JINJA_BOOL && v.u.b)
TYPE_TEST(is_false, v.type == JINJA_BOOL && !v.u.b)
TYPE_TEST(equal, bnet_jinja_equal(m, v, other))
TYPE_TEST(unequal, !bnet_jinja_equal(m, v, other))
TYPE_TEST(below, bnet_jinja_order(m, v, other) < 0)
TYPE_TEST(at_most, bnet_jinja_order(m, v, other) <= 0)
TYPE_TEST(above, bnet_jinja_order(m, v, other) > 0)
TYPE_TEST(at_least, bnet_jinja_order(m, v, other) >= 0)
TYPE_TEST(inside, bnet_jinja_in(m, v, other))
TYPE_TEST(same, v.type == other.type && bnet_jinja_equal(m, v, other))

/* The remainder of v by n; -1, and failed: v or n is no integer. */
static int64_t remainder_of(jinja *m, jinja_value v, jinja_value n)
{
    jinja_value r = bnet_jinja_operate(m, OP_MOD, v, n);
    int64_t i = -1;
    if (!m->failed && !bnet_jinja_whole(r, &i))
        bnet_jinja_fail(m, "odd, even and divisibleby take integers");
    return i;
}
TYPE_TEST(odd, remainder_of(m, v, bnet_jinja_int(2)) == 1)
TYPE_TEST(even, remainder_of(m, v, bnet_jinja_int(2)) == 0)
TYPE_TEST(divisible, remainder_of(m, v, other) == 0)

/* All letters of a text are of one case, and there is one. */
static bool of_case(jinja *m, jinja_value v, bool upper)
{
    bool any = false;
    v = bnet_jinja_string(m, v);
    bnet_jinja_step(m, m->failed ? 0 : v.u.s.n);
    for (size_t i = 0; i < v.u.s.n && !m->failed; i++) {
        char c = v.u.s.data[i];
        if ((unsigned char)c >= 128)
            bnet_jinja_fail(m, "tests 'upper' and 'lower' answer for ASCII text only");
        bool letter = (c | 32) >= 'a' && (c | 32) <= 'z';
        if (letter && (c >= 'A' && c <= 'Z') != upper)
            return false;
        any = any || letter;
    }
    return any;
}
TYPE_TEST(is_upper, of_case(m, v, true))
TYPE_TEST(is_lower, of_case(m, v, false))

static const struct {
    const char *name;
    size_t n_args;
    test_fn *fn;
} tests[] = {
    {"defined", 0, defined}, {"undefined", 0, undefined},
    {"none", 0, none},       {"boolean", 0, boolean},
    {"integer", 0, integer}, {"float", 0, real},
    {"number", 0, number},   {"string", 0, string},
    {"mapping", 0, mapping}, {"sequence", 0, row},
    {"iterable", 0, row},    {"callable", 0, callable},
    {"true", 0, is_true},    {"false", 0, is_false},
    {"equalto", 1, equal},   {"eq", 1, equal},
    {"==", 1, equal},        {"ne", 1, unequal},
    {"!=", 1, unequal},      {"lt", 1, below},
    {"lessthan", 1, below},  {"<", 1, below},
    {"le", 1, at_most},      {"<=", 1, at_most},
    {"gt", 1, above},        {"greaterthan", 1, above},
    {">", 1, above},         {"ge", 1, at_least},
    {">=", 1, at_least},     {"in", 1, inside},
    {"sameas", 1, same},     {"odd", 0, odd},
    {"even", 0, even},       {"divisibleby", 1, divisible},
    {"upper", 0, is_upper},  {"lower", 0, is_lower},
};

bool bnet_jinja_has_test(bnet_span name)
{
    for (size_t i = 0; i < BNET_COUNT(tests); i++)
        if (bnet_jinja_named(name, tests[i].name))
            return true;
    return false;
}

bool bnet_jinja_test(jinja *m, bnet_span name, jinja_value v, jinja_args *a)
{
    for (size_t i = 0; i < BNET_COUNT(tests) && bnet_jinja_step(m, 0); i++) {
        if (!bnet_jinja_named(name, tests[i].name))
            continue;
        if (a->n == tests[i].n_args)
            return tests[i].fn(m, v, a->n ? a->at[0].value : v);
        bnet_jinja_fail(m, "test '%s' takes %zu arguments", tests[i].name, tests[i].n_args);
    }
    return false;
}
