/* jinja_math.c - the binary operators of templates, as Python computes them. */
#include <math.h>

#include "jinja/jinja_impl.h"

static jinja_value wrong(jinja *m, jinja_op op, jinja_value a, jinja_value b)
{
    static const char *const signs[] = {
        [OP_ADD] = "+",    [OP_SUB] = "-", [OP_MUL] = "*", [OP_DIV] = "/",
        [OP_FLOOR] = "//", [OP_MOD] = "%", [OP_POW] = "**"};
    jinja_value v = a.type == JINJA_UNDEFINED ? a : b;
    if (v.type == JINJA_UNDEFINED)
        return bnet_jinja_fail(m, "'%.*s' is undefined", (int)BNET_MIN(v.u.s.n, (size_t)80),
                               v.u.s.n ? v.u.s.data : "");
    return bnet_jinja_fail(m, "%s %s %s cannot be computed", bnet_jinja_type_name(a), signs[op],
                           bnet_jinja_type_name(b));
}

static jinja_value too_large(jinja *m)
{
    return bnet_jinja_fail(m, "an integer has more than 64 bits");
}

static jinja_value power(jinja *m, int64_t a, int64_t b)
{
    int64_t r = 1;
    if (b < 0)
        return bnet_jinja_float(pow((double)a, (double)b));
    for (; b > 0 && bnet_jinja_step(m, 0) && a != 1; b--)
        if (__builtin_mul_overflow(r, a, &r))
            return too_large(m);
    return bnet_jinja_int(r);
}

/* Rounds towards minus infinity; the remainder has the divisor's sign. */
static jinja_value divided(jinja *m, jinja_op op, int64_t a, int64_t b)
{
    if (b == 0)
        return bnet_jinja_fail(m, "a division by zero");
    if (op == OP_DIV)
        return bnet_jinja_float((double)a / (double)b);
    if (b == -1)
        return op == OP_MOD     ? bnet_jinja_int(0)
               : a == INT64_MIN ? too_large(m)
                                : bnet_jinja_int(-a);
    bool down = a % b != 0 && (a % b < 0) != (b < 0);
    return bnet_jinja_int(op == OP_MOD ? a % b + (down ? b : 0) : a / b - down);
}

static jinja_value with_ints(jinja *m, jinja_op op, int64_t a, int64_t b)
{
    int64_t r = 0;
    bool over = false;
    switch (op) {
    case OP_ADD:
        over = __builtin_add_overflow(a, b, &r);
        break;
    case OP_SUB:
        over = __builtin_sub_overflow(a, b, &r);
        break;
    case OP_MUL:
        over = __builtin_mul_overflow(a, b, &r);
        break;
    case OP_POW:
        return power(m, a, b);
    default:
        return divided(m, op, a, b);
    }
    return over ? too_large(m) : bnet_jinja_int(r);
}

static jinja_value with_floats(jinja *m, jinja_op op, double a, double b)
{
    if (b == 0 && (op == OP_DIV || op == OP_FLOOR || op == OP_MOD))
        return bnet_jinja_fail(m, "a division by zero");
    double rest = op == OP_MOD ? fmod(a, b) : 0;
    rest += rest != 0 && (rest < 0) != (b < 0) ? b : 0;
    return bnet_jinja_float(op == OP_ADD     ? a + b
                            : op == OP_SUB   ? a - b
                            : op == OP_MUL   ? a * b
                            : op == OP_DIV   ? a / b
                            : op == OP_FLOOR ? floor(a / b)
                            : op == OP_MOD   ? rest
                                             : pow(a, b));
}

static jinja_value joined(jinja *m, bnet_span a, bnet_span b)
{
    bnet_str s = {0};
    if (a.n + b.n > m->limits.memory)
        return bnet_jinja_fail(m, "its values take more than %zu bytes", m->limits.memory);
    bnet_str_add(&s, a.data, a.n);
    bnet_str_add(&s, b.data, b.n);
    return bnet_jinja_take(m, &s);
}

static jinja_value lists_joined(jinja *m, jinja_value a, jinja_value b)
{
    jinja_value all = bnet_jinja_list_of(m, a.type);
    for (size_t i = 0; i < a.u.list->n && !m->failed; i++)
        bnet_jinja_append(m, all, a.u.list->items[i]);
    for (size_t i = 0; i < b.u.list->n && !m->failed; i++)
        bnet_jinja_append(m, all, b.u.list->items[i]);
    return all;
}

static jinja_value text_repeated(jinja *m, bnet_span text, int64_t times)
{
    bnet_str s = {0};
    for (int64_t i = 0; i < times && bnet_jinja_step(m, 0); i++) {
        if (s.n + text.n > m->limits.output)
            bnet_jinja_fail(m, "a text has more than %zu bytes", m->limits.output);
        else
            bnet_str_add(&s, text.data, text.n);
    }
    return bnet_jinja_take(m, &s);
}

static jinja_value repeated(jinja *m, jinja_value v, int64_t times)
{
    size_t n = 0;
    if (v.type == JINJA_STRING)
        return text_repeated(m, v.u.s, times);
    if (__builtin_mul_overflow(v.u.list->n, (uint64_t)BNET_MAX(times, (int64_t)0), &n))
        n = SIZE_MAX; /* which is refused */
    jinja_value all = bnet_jinja_list_for(m, v.type, n);
    for (size_t i = 0; i < n && !m->failed; i++)
        bnet_jinja_append(m, all, v.u.list->items[i % v.u.list->n]);
    return all;
}

static bool is_row(jinja_value v)
{
    return v.type == JINJA_STRING || v.type == JINJA_LIST || v.type == JINJA_TUPLE;
}

jinja_value bnet_jinja_operate(jinja *m, jinja_op op, jinja_value a, jinja_value b)
{
    int64_t i, j;
    double x, y;
    if (m->failed)
        return a;
    if (op == OP_CONCAT)
        return joined(m, bnet_jinja_string(m, a).u.s, bnet_jinja_string(m, b).u.s);
    if (bnet_jinja_whole(a, &i) && bnet_jinja_whole(b, &j))
        return with_ints(m, op, i, j);
    if (bnet_jinja_number(a, &x) && bnet_jinja_number(b, &y))
        return with_floats(m, op, x, y);
    if (op == OP_ADD && a.type == b.type && is_row(a))
        return a.type == JINJA_STRING ? joined(m, a.u.s, b.u.s) : lists_joined(m, a, b);
    if (op == OP_MUL && is_row(a) && bnet_jinja_whole(b, &j))
        return repeated(m, a, j);
    if (op == OP_MUL && is_row(b) && bnet_jinja_whole(a, &i))
        return repeated(m, b, i);
    return wrong(m, op, a, b);
}
