/* test_json_limits.c - what a text of JSON would cost is never told too low, also of texts that are
 * cut or no JSON at all. */
#include "test.h"

#include <jansson.h>
#include <malloc.h>

#include "../../../server/http/json_limits.h"

static void costs(const char *text, size_t depth, size_t n_values)
{
    srv_json_cost cost = srv_json_measure(text, strlen(text));
    assert_int_equal(cost.depth, depth);
    assert_true(cost.n_values >= n_values && cost.n_values <= 2 * n_values + 2);
}

static void test_known_texts(void **state)
{
    (void)state;
    costs("", 0, 0);
    costs("1", 0, 1);
    costs("[]", 1, 1);
    costs("[1,2,[3]]", 2, 5);
    costs("{\"a\":{\"b\":[1,2]}}", 3, 5);
    costs("\"[[[[\"", 0, 1);
    costs("[\"\\\"[\",\"\\\\\",[1]]", 2, 5);
    costs("]]]]}}[", 1, 1);
}

static void test_texts_that_are_cut(void **state)
{
    static const char *const texts[] = {"\"", "\"\\", "[\"a\\\"", "[[[[\"", "{\"", "\\"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        size_t n = strlen(texts[i]);
        char *exact = malloc(n); /* a sanitizer sees a byte behind it */
        assert_non_null(exact);
        memcpy(exact, texts[i], n);
        assert_true(srv_json_measure(exact, n).depth <= 4);
        free(exact);
    }
}

static size_t depth_of(const json_t *j)
{
    size_t deepest = 0, i;
    const char *key;
    json_t *value;
    if (json_is_array(j))
        json_array_foreach(j, i, value) deepest =
            depth_of(value) > deepest ? depth_of(value) : deepest;
    if (json_is_object(j))
        json_object_foreach((json_t *)(uintptr_t)j, key, value) deepest =
            depth_of(value) > deepest ? depth_of(value) : deepest;
    return json_is_array(j) || json_is_object(j) ? deepest + 1 : 0;
}

/* Whatever jansson takes is as deep as was told. */
static void test_as_deep_as_jansson_finds_it(void **state)
{
    static const char alphabet[] = "[[[]]]{}\"\"\\a1,:, ";
    uint64_t random = 7;
    size_t n_valid = 0;
    (void)state;
    for (int i = 0; i < 200000; i++) {
        char text[12];
        size_t n = 1 + test_rand(&random) % sizeof text;
        for (size_t k = 0; k < n; k++)
            text[k] = alphabet[test_rand(&random) % (sizeof alphabet - 1)];
        json_t *j = json_loadb(text, n, JSON_DECODE_ANY, NULL);
        if (!j)
            continue;
        n_valid++;
        assert_int_equal(srv_json_measure(text, n).depth, depth_of(j));
        json_decref(j);
    }
    assert_true(n_valid > 500);
}

/* ---- bytes ---- */

static size_t n_now, n_peak;

static void *counted_malloc(size_t n)
{
    void *p = malloc(n);
    n_now += p ? malloc_usable_size(p) + sizeof(size_t) : 0;
    n_peak = n_now > n_peak ? n_now : n_peak;
    return p;
}

static void counted_free(void *p)
{
    n_now -= p ? malloc_usable_size(p) + sizeof(size_t) : 0;
    free(p);
}

/* The text is `open`, 5000 times `part`, `close`. */
static void takes(const char *open, const char *part, const char *close)
{
    enum { N = 5000 };
    char *text = malloc(strlen(open) + N * (strlen(part) + 8) + strlen(close) + 1), *p = text;
    assert_non_null(text);
    p += sprintf(p, "%s", open);
    for (int i = 0; i < N; i++)
        p += strstr(part, "%d") ? sprintf(p, "\"%d\":{},", i) : sprintf(p, "%s", part);
    p += sprintf(p, "%s", close);
    size_t n = (size_t)(p - text), told = srv_json_measure(text, n).n_bytes;
    n_now = n_peak = 0;
    json_t *j = json_loadb(text, n, 0, NULL);
    assert_non_null(j);
    if (told + n < n_peak || told > 4 * n_peak)
        fail_msg("%s%s...: told %zu, took %zu", open, part, told, n_peak);
    json_decref(j);
    free(text);
}

static void test_about_as_many_bytes_as_jansson_takes(void **state)
{
    (void)state;
    json_set_alloc_funcs(counted_malloc, counted_free);
    takes("[", "{},", "{}]");
    takes("[", "[],", "[]]");
    takes("[", "1,", "1]");
    takes("[", "0.5,", "1]");
    takes("[", "\"\",", "\"\"]");
    takes("[", "{\"a\":1},", "1]");
    takes("[", "[{\"a\":[]}],", "1]");
    takes("{", "%d", "\"x\":1}");
    json_set_alloc_funcs(malloc, free);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_texts),
        cmocka_unit_test(test_texts_that_are_cut),
        cmocka_unit_test(test_as_deep_as_jansson_finds_it),
        cmocka_unit_test(test_about_as_many_bytes_as_jansson_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
