/* test_jinja_bounds.c - what a template may take: work that looks small and is not is counted;
 * macros may nest as deep as published templates need on a small stack; values of ordinary kinds
 * may be large. */
#include "test.h"

#include <pthread.h>
#include <sys/mman.h>

#include "jinja/jinja.h"

static bitnet_status render(const char *source, const char *values, const bnet_jinja_limits *limits,
                            bnet_str *out, bitnet_error *err)
{
    bnet_str_puts(out, "");
    return bnet_jinja_render((bnet_span){source, strlen(source)},
                             (bnet_span){values, strlen(values)}, limits, out, err);
}

static void writes_of(const char *source, const char *values, const char *wanted)
{
    bnet_str out = {0};
    bitnet_error err = {0};
    if (render(source, values, NULL, &out, &err) != BITNET_OK)
        fail_msg("%.200s: %s", source, err.message);
    assert_string_equal(out.data, wanted);
    bnet_str_free(&out);
}

static void writes(const char *source, const char *wanted)
{
    writes_of(source, "{}", wanted);
}

static void refused(const char *source, const bnet_jinja_limits *limits, const char *part)
{
    bnet_str out = {0};
    bitnet_error err = {0};
    double begin = bnet_now_ms();
    bitnet_status status = render(source, "{}", limits, &out, &err);
    if (status != BITNET_TOKENIZER || !strstr(err.message, part))
        fail_msg("%.200s: status %d, %s: %.60s", source, (int)status, err.message, out.data);
    if (bnet_now_ms() - begin > 20000)
        fail_msg("%.200s: %.0f ms", source, bnet_now_ms() - begin);
    bnet_str_free(&out);
}

/* ---- work ---- */

#define TWO_LONG "{% set x = 'a' * 60000 ~ 'b' %}{% set y = 'a' * 60000 ~ 'c' %}"

/* Each would take seconds to hours, and few steps, if only the calls were counted. */
static void hidden_work_is_counted(void **state)
{
    static const bnet_jinja_limits few = {.steps = 1000000};
    static const char *const greedy[] = {
        "{% set t = 'a' * 4000 %}{% set s = t * 100 %}{{ s.rsplit(t * 50 ~ 'b', 1) }}",
        "{% set t = 'a' * 4000 %}{% set s = t * 100 %}{% for i in range(40000) %}"
        "{{ s.rsplit('b', 1) | length }}{% endfor %}",
        "{% set s = '\xc3\xa4' * 60000 %}{{ s.strip('\xc3\xb6' * 60000 ~ '\xc3\xa4') | length }}",
        TWO_LONG "{% for i in range(90000) %}{{ x == y }}{% endfor %}",
        TWO_LONG "{% for i in range(90000) %}{{ x in [y, y] }}{% endfor %}",
        TWO_LONG "{% for i in range(90000) %}{{ x.startswith(y) }}{% endfor %}",
        TWO_LONG "{% for i in range(90000) %}{{ x.endswith((y, y)) }}{% endfor %}",
        TWO_LONG "{% for i in range(90000) %}{{ x.removeprefix(y) == y }}{% endfor %}",
        TWO_LONG "{% set d = {x: 1} %}{% for i in range(90000) %}{{ d[y] }}{% endfor %}",
        TWO_LONG "{% set d = {x: 1} %}{% for i in range(90000) %}{{ d.get(x) }}{% endfor %}",
        "{% set l = range(50000) %}{% for i in range(90000) %}{{ l | sum }}{% endfor %}",
        "{% set l = range(50000) %}{% for i in range(90000) %}{{ l | max }}{% endfor %}",
        "{% set l = [0] * 9000 %}{% for i in range(90000) %}{{ l | select | first }}{% endfor %}",
        "{% for i in range(90000) %}{{ 1.2345678901234567e-300 }}{% endfor %}",
        "{% for i in range(90000) %}{{ strftime_now('%c') }}{% endfor %}",
    };
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(greedy); i++)
        refused(greedy[i], &few, "steps");
    /* with the usual limits, as long as texts may be */
    refused("{% set t = 'a' * 4000 %}{% set s = t * 4000 %}{{ s.rsplit(t * 2000 ~ 'b', 1) }}", NULL,
            "steps");
}

/* What is linear in the texts stays cheap. */
static void long_texts_are_cheap(void **state)
{
    static const bnet_jinja_limits few = {.steps = 400000};
    static const char *const fine[] = {
        "{% set s = 'a' * 4000 * 250 %}{% set t = 'b' * 4000 * 250 %}{{ s.strip(t ~ 'a') }}",
        "{% set s = 'a' * 4000 * 1000 %}{{ s.rsplit('b', 1)[0][:0] }}",
        "{% set s = 'a' * 4000 * 1000 %}{{ s[1:-1][4000:4000] }}{{ s[:-4000000] }}",
        "{% set s = 'a' * 4000 * 1000 %}{{ s[9000000:] }}",
    };
    bitnet_error err;
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(fine); i++) {
        bnet_str out = {0};
        if (render(fine[i], "{}", &few, &out, &err) != BITNET_OK)
            fail_msg("%s: %s", fine[i], err.message);
        assert_int_equal(out.n, 0);
        bnet_str_free(&out);
    }
}

/* ---- depth ---- */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true /* whose frames are several times as large */
#elif defined(__has_feature)
#define SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define SANITIZED false
#endif

enum { STACK = 1 << 20, SMALL = 64 << 10, PAINT = 0x5a };

typedef struct job {
    const char *source, *values;
    bitnet_status status;
    bitnet_error err;
    bnet_str out;
} job;

static void *run_job(void *arg)
{
    job *j = arg;
    j->status = render(j->source, j->values, NULL, &j->out, &j->err);
    return NULL;
}

/* Renders on a thread of its own; returns the bytes of stack that took. */
static size_t run_on_stack(job *j)
{
    pthread_attr_t attr;
    pthread_t thread;
    size_t untouched = 0;
    uint8_t *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(stack, MAP_FAILED);
    memset(stack, PAINT, STACK);
    assert_int_equal(pthread_attr_init(&attr), 0);
    assert_int_equal(pthread_attr_setstack(&attr, stack, STACK), 0);
    assert_int_equal(pthread_create(&thread, &attr, run_job, j), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_attr_destroy(&attr);
    while (untouched < STACK && stack[untouched] == PAINT)
        untouched++;
    munmap(stack, STACK);
    return STACK - untouched;
}

/* {"k": {"k": ... {"a": 1}}} */
static char *nested(int levels)
{
    bnet_str s = {0};
    bnet_str_puts(&s, "{\"d\": ");
    for (int i = 0; i < levels; i++)
        bnet_str_puts(&s, "{\"k\": ");
    bnet_str_puts(&s, "{\"a\": 1}");
    for (int i = 0; i <= levels; i++)
        bnet_str_puts(&s, "}");
    return s.data;
}

#define TREE                                                                                       \
    "{% macro show(d, depth=0) %}{% for k, v in d.items() %}{% if v is mapping %}"                 \
    "{% if depth < 99 %}{% with n = depth + 1 %}{{ k ~ '{' }}{{ show(v, n) }}}{% endwith %}"       \
    "{% endif %}{% else %}{{ k }}={{ v }}{% endif %}{% endfor %}{% endmacro %}{{ show(d) }}"
/* the call in an operand, an argument and a filter */
#define CHAINED                                                                                    \
    "{% macro show(d, depth=0) %}{% for k, v in d.items() %}{{ k ~ '{' ~ (show(v, depth + 1) | "   \
    "trim if v is mapping else v | string) + '}' }}{% endfor %}{% endmacro %}{{ show(d) }}"

static void check_depth(const char *source, int levels)
{
    char *values = nested(levels);
    job j = {.source = source, .values = values};
    size_t used = run_on_stack(&j);
    if (j.status != BITNET_OK)
        fail_msg("%d levels: %s", levels, j.err.message);
    size_t opened = 0;
    for (const char *at = j.out.data; (at = strchr(at, '{')) != NULL; at++)
        opened++;
    assert_in_range(opened, levels, levels + 1);
    print_message("%d levels: %zu bytes of stack\n", levels, used);
    assert_true(SANITIZED || used < SMALL);
    bnet_str_free(&j.out);
    bnet_free(values);
}

static void macros_may_nest(void **state)
{
    (void)state;
    check_depth(TREE, 12);
    check_depth(TREE, 30);
    check_depth(CHAINED, 12);
}

/* Whatever a template does, it ends within the stack of a small thread. */
static void stack_is_bounded(void **state)
{
    static const char *const deep[] = {
        "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
        "{% macro f(n) %}{{ ((((((((f(n) ~ 1) ~ 1) ~ 1) ~ 1) ~ 1) ~ 1) ~ 1) ~ 1) }}{% endmacro %}"
        "{{ f(1) }}",
        "{% macro f(n) %}{% set x %}{% filter trim %}{% call f(n) %}{{ f(n) }}{% endcall %}"
        "{% endfilter %}{% endset %}{% endmacro %}{{ f(1) }}",
        "{% macro f(n) %}{{ f(n | map('trim') | join([f(n)] | join)) }}{% endmacro %}{{ f('a') }}",
        "{% macro f(n) %}{% for x in [1] if f(n) %}{% endfor %}{% endmacro %}{{ f(1) }}",
        "{% macro f(n=f()) %}{% endmacro %}{{ f() }}",
        "{% macro f(n) %}{{ {'a': [f(n)[f(n):]]} if f(n) is not none }}{% endmacro %}{{ f(1) }}",
    };
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(deep); i++) {
        job j = {.source = deep[i], .values = "{}"};
        size_t used = run_on_stack(&j);
        assert_int_equal(j.status, BITNET_TOKENIZER);
        assert_true(strstr(j.err.message, "deep") || strstr(j.err.message, "undefined"));
        print_message("%zu bytes of stack: %s\n", used, j.err.message);
        assert_true(SANITIZED || used < SMALL);
        bnet_str_free(&j.out);
    }
}

/* Statements need no stack: they end where they began, whatever is left on the way. */
static void statements_within_statements(void **state)
{
    (void)state;
    writes("{% for a in [1, 2, 3] %}{% with b = a %}{% if b == 2 %}{% for c in [7, 8] %}"
           "{% if c == 8 %}{% break %}{% endif %}{{ c }}{% endfor %}{% continue %}{% endif %}"
           "{{ b }}{% endwith %}{{ b }};{% endfor %}",
           "1;73;");
    writes(
        "{% for a in [1, 2] %}{% for b in [] %}{% else %}{% set x = 5 %}{% break %}{% endfor %}"
        "{{ a }}{% endfor %}{{ x }}|{% set n = namespace(t=1) %}"
        "{% for a in [1, 2] %}{% set n.t %}{{ a }}{% continue %}{% endset %}{% endfor %}{{ n.t }}"
        "{% for a in [1] %}{% filter upper %}x{% break %}{% endfilter %}{% endfor %}",
        "|1");
    writes("{% macro m(x) %}{% for i in [1, 2] %}{% if i == 2 %}{% break %}{% endif %}{{ x }}"
           "{% if x %}{{ m(x - 1) }}{% endif %}{% endfor %}{% endmacro %}"
           "{% for i in [2, 1] %}{{ m(i) }},{% endfor %}",
           "210,10,");
}

/* A scope serves again when it is left, but not while a macro or a loop needs its names. */
static void scopes_are_left(void **state)
{
    (void)state;
    writes("{% set n = namespace() %}{% for i in [1, 2, 3] %}{% set y = i * 10 %}{% if i == 2 %}"
           "{% macro f(a) %}{{ a }}{{ i }}{{ y }}{% endmacro %}{% set n.f = f %}{% endif %}"
           "{% endfor %}{% for i in [7, 8] %}{% set y = i %}{{ n.f(y) }}{% endfor %}",
           "72208220");
    writes("{% set n = namespace() %}{% for i in [1, 2, 3] %}{% for x in [1, 2, 3] if x > i %}"
           "{% if i == 1 %}{% set n.l = loop %}{% endif %}{% break %}{% endfor %}{% endfor %}"
           "{% for i in [9] %}{{ n.l.length }}{% endfor %}",
           "2");
    writes("{% for i in range(200000) %}{% with a = i %}{% set b = a %}{% endwith %}{% endfor %}",
           "");
    writes("{% macro f(a) %}{% set b = a %}{% set c %}{{ b }}{% endset %}{% endmacro %}"
           "{% for i in range(150000) %}{{ f('') }}{% endfor %}",
           "");
}

/* ---- arguments ---- */

static void many_arguments(void **state)
{
    bnet_str source = {0};
    (void)state;
    writes("{% set n = namespace(a=1, b=2, c=3, d=4, e=5, f=6, g=7, h=8, i=9) %}{{ n.a + n.i }}",
           "10");
    writes("{% macro m(a, b, c, d, e, f, g, h, i, j=10, k=11, l=12) %}{{ a }}{{ i }}{{ k }}{{ l }}"
           "{% endmacro %}{{ m(1, 2, 3, 4, 5, 6, 7, 8, 9, l=0) }} {{ m(*[1] * 12) }}",
           "19110 1111");
    writes("{% macro m(a, b) %}{{ [a, b] | join(caller(a, b)) }}{% endmacro %}"
           "{% call(x, y) m(dict(p=1, q=2).q, dict(p=[3], q=dict(r=4).r).q) %}<{{ x }}{{ y }}>"
           "{% endcall %}",
           "2<24>4");
    for (int n = 64; n <= 65; n++) {
        source.n = 0;
        bnet_str_puts(&source, "{% set n = namespace(");
        for (int i = 0; i < n; i++)
            bnet_str_addf(&source, "%sa%d=[%d]|first", i ? "," : "", i, i);
        bnet_str_puts(&source, ") %}{{ n.a0 + n.a63 }}");
        if (n == 64)
            writes(source.data, "63");
        else
            refused(source.data, NULL, "a call has more than 64 arguments");
    }
    bnet_str_free(&source);
    refused("{{ namespace(*range(65)) }}", NULL, "a call has more than 64 arguments");
}

/* ---- large values ---- */

static void large_objects(void **state)
{
    bnet_str values = {0};
    (void)state;
    bnet_str_puts(&values, "{\"d\": {");
    for (int i = 0; i < 20000; i++)
        bnet_str_addf(&values, "%s\"key %d\": %d", i ? "," : "", i * 7919 % 20000, i);
    bnet_str_puts(&values, ", \"key 5\": \"last\"}}");
    writes_of("{{ d | length }} {{ d['key 0'] }} {{ d['key 7919'] }} {{ d['key 5'] }} {{ d.x }}|"
              "{{ 'key 19999' in d }} {{ 'key 20000' in d }} {{ (d | dictsort)[1][0] }} "
              "{{ (d.values() | list)[1] }} {{ (d | tojson(sort_keys=true))[:24] }}",
              values.data, "20000 0 1 last |True False key 1 1 {\"key 0\": 0, \"key 1\": 17");
    bnet_str_free(&values);
    writes("{% set d = {0: 'a', 1.5: 'b', 'c': 2, (1, 2): 't', none: 'n', 3: 3, 4: 4, 5: 5, 6: 6, "
           "7: 7, 8: 8, true: 'y'} %}{{ d[0.0] }}{{ d[false] }}{{ d[1.5] }}{{ d.c }}"
           "{{ d[(1.0, 2)] }}{{ d[none] }}{{ d[1] }}{{ d[8] }}{{ d['8'] }}{{ d | length }}",
           "aab2tny812");
}

static void large_texts(void **state)
{
    (void)state;
    writes("{% set s = 'ab\xc3\xa9' * 4000 * 500 %}{{ s | length }} {{ s[3:-3] | length }} "
           "{{ s[5999997:] }} {{ s[-2:5999999] }} {{ s[2:3] }} {{ (s[:1400000] | list) | length }}",
           "6000000 5999994 ab\xc3\xa9 b \xc3\xa9 1400000");
    writes(
        "{{ 'a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z'[1:-1] }} {{ 'abc'[2:1] }}|{{ 'abc'[-9:9] }} "
        "{{ ''[1:] }}|{{ 'a\xc3\xa9z'[::-1] }}{{ 'abcdef'[1:5:2] }}",
        "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80 |abc |z\xc3\xa9"
        "abd");
}

static void sorting(void **state)
{
    (void)state;
    writes("{{ [3, 1, 2, 1] | sort }}{{ ['b', 'A', 'a', 'B'] | sort }}"
           "{{ ['b', 'A', 'a', 'B'] | sort(true) }}{{ ['b', 'A', 'a'] | sort(false, true) }}"
           "{{ [[2, 'x'], [1, 'y'], [2, 'z']] | sort(attribute=0) | map('last') | join }}"
           "{{ [[2, 'x'], [1, 'y'], [2, 'z']] | sort(true, attribute='0') | map('last') | join }}"
           "{{ [] | sort }}{{ [5] | sort }}{{ range(500) | sort(true) | first }}",
           "[1, 1, 2, 3]['A', 'a', 'b', 'B']['b', 'B', 'A', 'a']['A', 'a', 'b']yxzxzy[][5]499");
    refused("{{ [1, 'a', 2, 3, 4] | sort }}", NULL, "cannot be put in order");
    writes("{{ (range(3000) | list + range(3000) | list) | unique | list | length }}"
           "{{ ['b', 'B', [1], [1], 1, 1.0, true, none] | unique | list }}",
           "3000['b', [1], 1, None]");
}

/* ---- names and escapes ---- */

static void surplus_arguments_are_refused_by_name(void **state)
{
    (void)state;
    refused("{% macro m(a) %}{{ varargs }}{% endmacro %}{{ m(1) }}", NULL, "'varargs' of a macro");
    refused("\n{% macro m() %}{% if kwargs.b %}{% endif %}{% endmacro %}", NULL,
            "line 2: 'kwargs' of a macro");
    refused("{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}{{ varargs }}{% endcall %}",
            NULL, "'varargs'");
    writes("{% macro m(kwargs) %}{{ kwargs }}{% endmacro %}{{ m(1) }}{{ varargs }}", "1");
}

static void repr_escapes(void **state)
{
    (void)state;
    writes("{{ ['\xc2\xa0\xc2\xad\xe2\x80\x8b\xe2\x80\xae\xe3\x80\x80\x7f\xc2\x85'] }}",
           "['\\xa0\\xad\\u200b\\u202e\\u3000\\x7f\\x85']");
    writes("{{ ['\xef\xbb\xbf\xee\x80\x80\xf3\xa0\x80\x81\xf4\x8f\xbc\x80\xc3\xa9\xf0\x9f\x98\x80 "
           "\\\\\\n\\x01'] }}",
           "['\\ufeff\\ue000\\U000e0001\xf4\x8f\xbc\x80\xc3\xa9\xf0\x9f\x98\x80 \\\\\\n\\x01']");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hidden_work_is_counted),
        cmocka_unit_test(long_texts_are_cheap),
        cmocka_unit_test(macros_may_nest),
        cmocka_unit_test(stack_is_bounded),
        cmocka_unit_test(statements_within_statements),
        cmocka_unit_test(scopes_are_left),
        cmocka_unit_test(many_arguments),
        cmocka_unit_test(large_objects),
        cmocka_unit_test(large_texts),
        cmocka_unit_test(sorting),
        cmocka_unit_test(surplus_arguments_are_refused_by_name),
        cmocka_unit_test(repr_escapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
