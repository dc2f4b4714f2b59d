/* test_json_numbers.c - whole numbers beyond 64 bits become real ones, and nothing else changes. */
#include "test.h"

#include <jansson.h>

#include "../../../server/http/json_numbers.h"

/* NULL: it is refused. */
static void reads(const char *text, const char *wanted)
{
    json_error_t e;
    json_t *value = srv_json_load_wide(text, strlen(text), JSON_DECODE_ANY, &e);
    char *got = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    if (!got != !wanted || (got && strcmp(got, wanted) != 0))
        fail_msg("%s: got %s, want %s", text, got ? got : "nothing", wanted ? wanted : "nothing");
    free(got);
    json_decref(value);
}

static void test_numbers(void **state)
{
    (void)state;
    reads("[9223372036854775807,-9223372036854775807,1]",
          "[9223372036854775807,-9223372036854775807,1]");
    reads("[9223372036854775808,1,2.5,-7]", "[9.2233720368547758e18,1,2.5,-7]");
    reads("[-9223372036854775808,1]", "[-9223372036854775808,1]");
    reads("[1,10000000000000000000000]", "[1,1e22]");
    reads("{\"a\":99999999999999999999,\"b\":[3]}", "{\"a\":1e20,\"b\":[3]}");
    reads("12345678901234567890", "1.2345678901234567e19");
    reads("[1e30,100000000000000000000e2,1]", "[1e30,1e22,1]");
    reads("[100000000000000000000,1.99999999999999999999999,1e5]", "[1e20,2.0,100000.0]");
    reads("[100000000000000000000,1E+00000000000000000000001]", "[1e20,10.0]");
}

static void test_texts_stay(void **state)
{
    (void)state;
    reads("[\"99999999999999999999\",\"\\\"99999999999999999999\",99999999999999999999]",
          "[\"99999999999999999999\",\"\\\"99999999999999999999\",1e20]");
    reads("{\"99999999999999999999\":99999999999999999999}", "{\"99999999999999999999\":1e20}");
}

static void test_what_is_no_json(void **state)
{
    (void)state;
    char many[500];
    memset(many, '9', sizeof many);
    many[sizeof many - 1] = '\0';
    reads(many, NULL); /* beyond real numbers, too */
    reads("[1e999]", NULL);
    reads("[099999999999999999999]", NULL);
    reads("[99999999999999999999", NULL);
    reads("[99999999999999999999,\"", NULL);
    reads("[99999999999999999999,\"\\", NULL);
    reads("[99999999999999999999x]", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_texts_stay),
        cmocka_unit_test(test_what_is_no_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
