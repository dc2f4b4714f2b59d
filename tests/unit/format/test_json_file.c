/* test_json_file.c - a JSON file that is there, malformed, too long, missing; and a lack of memory,
 * which is never called a malformed text. */
#include "test.h"

#include <unistd.h>

#include "base/json_reader.h"
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
        {"", "line 1, column 1, byte 0: the text ends where a value was expected"},
        {"{\"a\": 1,\n \"a\": 2}", "line 2, column 4: duplicate object key"},
        {"{\"a\": 1} x", "line 1, column 10, byte 9: text behind the value"},
        {"[1, 2", "line 1, column 6, byte 5: a comma or the closing bracket was expected"},
        {"[1e999]", "real number overflow"},
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

/* `n` times "[1,[1,...": a value for each and one array more. */
static char *repeated(const char *part, size_t n, const char *first, const char *last)
{
    bnet_str s = {0};
    bnet_str_puts(&s, first);
    for (size_t i = 0; i < n; i++)
        bnet_str_puts(&s, part);
    bnet_str_puts(&s, last);
    assert_false(s.failed);
    return s.data;
}

/* A tree of many small values is a hundred times its text: such a text is refused before. */
static void test_limits(void **state)
{
    (void)state;
    static const struct {
        const char *part, *first, *last, *why;
        size_t n;
    } rows[] = {
        {"{},", "[", "0]", "more than 262144 values", BNET_JSON_VALUES - 1},
        {"[", "", "", "arrays and objects are nested more than 64 deep", 65},
        {"{},", "[", "0]", NULL, BNET_JSON_VALUES - 2},
    };
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        char *text = repeated(rows[i].part, rows[i].n, rows[i].first, rows[i].last), why[200] = "";
        json_t *root = NULL;
        put_text(text);
        assert_int_equal(read_text(1 << 21, &root, why), BITNET_OK);
        assert_int_equal(!root, rows[i].why != NULL);
        if (rows[i].why && !strstr(why, rows[i].why))
            fail_msg("row %zu: \"%s\"", i, why);
        json_decref(root);
        bnet_free(text);
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
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests_name("json_file", tests, make_file, remove_file);
}
