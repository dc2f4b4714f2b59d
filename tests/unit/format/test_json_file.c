/* test_json_file.c - a JSON file that is there, malformed, too long, missing; and a lack of memory,
 * which is never called a malformed text. */
#include "test.h"

#include <unistd.h>

#include "format/json_file.h"
#include "torture/interpose.h"

static char path[] = "/tmp/bitnet-json-XXXXXX";

static void put_text(const char *text)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static bitnet_status read_text(size_t max, json_t **out, char why[200])
{
    bitnet_error err = {0};
    why[0] = '\0';
    return bnet_json_read(path, max, out, why, 200, &err);
}

static void test_texts(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why; /* NULL: it is read */
    } rows[] = {
        {"{\"a\": [1, 2]}", NULL},
        {"[]", NULL},
        {"", "line 1, column 0: "},
        {"{\"a\": 1,\n \"a\": 2}", "line 2, column 4: duplicate object key"},
        {"{\"a\": 1} x", "line 1, column 10: end of file expected"},
        {"[1, 2", "line 1, column 5: "},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char why[200];
        json_t *root = NULL;
        put_text(rows[i].text);
        assert_int_equal(read_text(1 << 10, &root, why), BITNET_OK);
        if (!root != !!rows[i].why || (rows[i].why && !strstr(why, rows[i].why)))
            fail_msg("row %zu: %s, \"%s\"", i, root ? "read" : "not read", why);
        json_decref(root);
    }
}

static void test_lengths(void **state)
{
    (void)state;
    char why[200];
    json_t *root = NULL;
    put_text("[1, 2]");
    assert_int_equal(read_text(6, &root, why), BITNET_OK);
    assert_int_equal(json_array_size(root), 2);
    json_decref(root);
    assert_int_equal(read_text(5, &root, why), BITNET_IO);
    assert_null(root);
    remove(path);
    assert_int_equal(read_text(5, &root, why), BITNET_IO);
}

static void test_no_memory(void **state)
{
    (void)state;
    put_text("{\"name\": [1, 2.5, true, \"text\"], \"more\": {\"x\": null}}");
    long n = 0;
    for (long at = -1; at < n; at++) /* first all succeed, and are counted */
        for (int onward = 0; onward < 2; onward++) {
            char why[200];
            json_t *root = NULL;
            interpose_start(at, onward);
            bitnet_status st = read_text(1 << 10, &root, why);
            n = BNET_MAX(n, interpose_stop());
            if (st != (root ? BITNET_OK : BITNET_MEMORY))
                fail_msg("allocation %ld%s: status %d, \"%s\"", at, onward ? " and on" : "",
                         (int)st, why);
            json_decref(root);
        }
    print_message("%ld allocations, each failed\n", n);
    assert_true(n >= 3 || INTERPOSE_SANITIZED);
}

static int make_file(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
    (void)state;
    remove(path);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests_name("json_file", tests, make_file, remove_file);
}
