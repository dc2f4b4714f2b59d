/* test_event_form.c - events written by a form are those that jansson writes, whatever their text.
 */
#include "test.h"

#include "ask/event_form.h"
#include "ask/textbuf.c"

/* In place of HTTP: what was written. */
static srv_textbuf written;
static bool listens;

bool srv_stream_write(srv_exchange *x, const void *bytes, size_t n)
{
    assert_null(x);
    srv_textbuf_add(&written, bytes, n);
    return listens;
}

bool srv_stream_event(srv_exchange *x, const char *name, json_t *value)
{
    assert_true(!x && !name && !value); /* an event that there is no memory for */
    return false;
}

static json_t *event(const char *name, json_t *text)
{
    return json_pack("{s:s, s:[{s:o, s:i}], s:n}", "model", name, "choices", "text", text, "index",
                     0, "usage");
}

static void expect(srv_form *f, const char *name, const char *text, size_t n)
{
    json_t *wanted = event(name, json_stringn(text, n));
    char *json = json_dumps(wanted, JSON_COMPACT), whole[4096];
    json_decref(wanted);
    assert_non_null(json);
    snprintf(whole, sizeof whole, "data: %s\n\n", json);
    srv_textbuf_drop(&written, written.n);
    assert_true(srv_form_write(f, NULL, text, n));
    assert_string_equal(written.data, whole);
    free(json);
}

static void texts(void **state)
{
    (void)state;
    static const char *const names[] = {"story", "MARK", "a \"b\" \\ \n"};
    char all[128], one[2] = {0};
    listens = true;
    for (size_t i = 0; i < sizeof all; i++)
        all[i] = (char)i;
    for (size_t k = 0; k < 3; k++) {
        srv_form f = {0};
        assert_true(srv_form_open(&f, event(names[k], json_string("MARK")), "MARK"));
        expect(&f, names[k], "", 0);
        expect(&f, names[k], all, sizeof all);
        expect(&f, names[k], "MARK", 4);
        expect(&f, names[k],
               " Gr\xc3\xbc\xc3\x9f"
               "e \xe2\x82\xac \xf0\x9f\xa6\x8a \xe2\x80\xa8/",
               22);
        for (int c = 0; c < 128; c++) {
            one[0] = (char)c;
            expect(&f, names[k], one, 1);
        }
        srv_form_free(&f);
    }
}

static void failures(void **state)
{
    (void)state;
    srv_form f = {0};
    assert_false(srv_form_open(&f, NULL, "MARK"));
    assert_int_equal(f.n_before, 0);
    assert_false(srv_form_open(&f, json_pack("{s:s}", "text", "other"), "MARK"));
    assert_true(srv_form_open(&f, event("m", json_string("MARK")), "MARK"));
    listens = false; /* the client has gone */
    assert_false(srv_form_write(&f, NULL, "x", 1));
    srv_form_free(&f);
}

static int drop(void **state)
{
    (void)state;
    srv_textbuf_free(&written);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(texts), cmocka_unit_test(failures)};
    return cmocka_run_group_tests(tests, NULL, drop);
}
