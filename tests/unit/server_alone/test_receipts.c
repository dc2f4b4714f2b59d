/* test_receipts.c - receipts by id: a bounded number of them, ids that nobody guesses, and threads
 * that come and go. */
#include "test.h"

#include <pthread.h>

#include "../server/metrics/receipts.h"

static void put(srv_receipts *r, const char *id, const char *text)
{
    srv_receipts_put(r, id, text, strlen(text));
}

static bool is_there(srv_receipts *r, const char *id)
{
    json_t *got = srv_receipts_get(r, id);
    bool there = got != NULL;
    json_decref(got);
    return there;
}

static void a_receipt_comes_back(void **state)
{
    (void)state;
    char id[40];
    srv_receipts *r = srv_receipts_open(4);
    assert_non_null(r);
    assert_true(srv_receipts_new(id));
    assert_false(srv_receipts_expected(r, id));
    srv_receipts_keep(r, id);
    assert_true(srv_receipts_expected(r, id));
    assert_false(is_there(r, id));
    put(r, id, "{\"backend\": \"cpu\"}");
    json_t *got = srv_receipts_get(r, id);
    assert_string_equal(json_string_value(json_object_get(got, "backend")), "cpu");
    json_decref(got);
    srv_receipts_close(r);
}

/* A quick answer may be over before whoever asked says that it is awaited. */
static void it_may_come_first(void **state)
{
    (void)state;
    srv_receipts *r = srv_receipts_open(2);
    put(r, "a", "{}");
    srv_receipts_keep(r, "a");
    srv_receipts_keep(r, "b");
    assert_true(is_there(r, "a"));
    put(r, "b", "{\"n\": 1}");
    put(r, "b", "{\"n\": 2}");
    assert_true(is_there(r, "a")); /* nothing had two places */
    json_t *got = srv_receipts_get(r, "b");
    assert_int_equal(json_integer_value(json_object_get(got, "n")), 2);
    json_decref(got);
    srv_receipts_close(r);
}

static void the_oldest_go(void **state)
{
    (void)state;
    char ids[12][40];
    srv_receipts *r = srv_receipts_open(4);
    for (int i = 0; i < 12; i++) {
        assert_true(srv_receipts_new(ids[i]));
        srv_receipts_keep(r, ids[i]);
        put(r, ids[i], "{}");
    }
    for (int i = 0; i < 12; i++) {
        assert_int_equal(is_there(r, ids[i]), i >= 8);
        assert_int_equal(srv_receipts_expected(r, ids[i]), i >= 8);
    }
    srv_receipts_close(r);
    r = srv_receipts_open(0); /* one at least */
    put(r, ids[0], "{}");
    assert_true(is_there(r, ids[0]));
    srv_receipts_close(r);
}

static void what_is_no_receipt(void **state)
{
    (void)state;
    static const char *const strange[] = {"", "rcp_", "../../etc/passwd", "%s%s%n"};
    char id[40], endless[4096];
    memset(endless, 'r', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    srv_receipts *r = srv_receipts_open(4);
    assert_true(srv_receipts_new(id));
    put(r, id, "{}");
    for (size_t i = 0; i < sizeof strange / sizeof *strange; i++)
        assert_false(is_there(r, strange[i]) || srv_receipts_expected(r, strange[i]));
    assert_false(is_there(r, endless) || srv_receipts_expected(r, endless));
    id[35] ^= 1;
    assert_false(is_there(r, id));
    put(r, id, "{\"cut"); /* no JSON */
    assert_false(is_there(r, id));
    put(r, id, "");
    assert_false(is_there(r, id));
    srv_receipts_close(r);
}

static void ids_differ(void **state)
{
    (void)state;
    char a[40], b[40];
    assert_true(srv_receipts_new(a) && srv_receipts_new(b));
    int same = 0;
    for (int i = 4; i < 36; i++)
        same += a[i] == b[i];
    assert_int_equal(strlen(a), 36);
    assert_int_equal(strspn(a + 4, "0123456789abcdef"), 32);
    assert_true(same < 16); /* of 32 digits two are equal by chance */
}

static void *come_and_go(void *receipts)
{
    char id[40];
    for (int i = 0; i < 500; i++) {
        assert_true(srv_receipts_new(id));
        srv_receipts_keep(receipts, id);
        put(receipts, id, "{\"n\": 1}");
        json_decref(srv_receipts_get(receipts, id));
    }
    return NULL;
}

static void threads_come_and_go(void **state)
{
    (void)state;
    pthread_t threads[4];
    srv_receipts *r = srv_receipts_open(8);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, come_and_go, r), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    srv_receipts_close(r);
    srv_receipts_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_receipt_comes_back), cmocka_unit_test(it_may_come_first),
        cmocka_unit_test(the_oldest_go),        cmocka_unit_test(what_is_no_receipt),
        cmocka_unit_test(ids_differ),           cmocka_unit_test(threads_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
