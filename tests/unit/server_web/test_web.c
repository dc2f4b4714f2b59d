/* test_web.c - the chat page as it is embedded: every file of server/web/ is there, byte for byte,
 * and what the page asks for is among them. */
#include "native/web.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

/* The file's bytes, to be freed. */
static unsigned char *read_file(const char *name, size_t *n)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/server/web/%s", TEST_SOURCE_DIR, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    unsigned char *bytes = malloc(1 << 20);
    assert_non_null(bytes);
    *n = fread(bytes, 1, 1 << 20, f);
    fclose(f);
    return bytes;
}

static void test_every_file(void **state)
{
    (void)state;
    DIR *d = opendir(TEST_SOURCE_DIR "/server/web");
    assert_non_null(d);
    size_t n_files = 0;
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        if (e->d_name[0] == '.') {
            continue;
        }
        char path[300];
        snprintf(path, sizeof path, "/%s", e->d_name);
        const srv_file *f = srv_web_find(path);
        assert_non_null(f);
        size_t n = 0;
        unsigned char *bytes = read_file(e->d_name, &n);
        assert_int_equal(f->n_bytes, n);
        assert_memory_equal(f->bytes, bytes, n);
        assert_int_equal(strlen(f->etag), 18);
        assert_true(f->etag[0] == '"' && f->etag[17] == '"');
        free(bytes);
        n_files++;
    }
    closedir(d);
    assert_int_equal(n_files, srv_n_web_files);
}

static void test_types(void **state)
{
    (void)state;
    assert_string_equal(srv_web_find("/")->content_type, "text/html; charset=utf-8");
    assert_ptr_equal(srv_web_find("/"), srv_web_find("/index.html"));
    assert_string_equal(srv_web_find("/style.css")->content_type, "text/css; charset=utf-8");
    assert_string_equal(srv_web_find("/app.js")->content_type, "text/javascript; charset=utf-8");
    assert_string_equal(srv_web_find("/icon.svg")->content_type, "image/svg+xml");
}

static void test_no_others(void **state)
{
    (void)state;
    static const char *const paths[] = {"",           "//",        "/app.js/",     "app.js",
                                        "/APP.JS",    "/../web.h", "/index.html/", "/index.htm",
                                        "/v1/models", "/app.j",    "/%2e%2e"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        assert_null(srv_web_find(paths[i]));
    }
}

/* What `name` imports or loads, each as "./x.js" or "x.js" between quotes, is embedded. */
static void check_references(const srv_file *f)
{
    char *text = calloc(1, f->n_bytes + 1);
    assert_non_null(text);
    memcpy(text, f->bytes, f->n_bytes);
    static const char *const before[] = {"from \"./", "src=\"", "href=\""};
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        for (char *at = strstr(text, before[i]); at; at = strstr(at + 1, before[i])) {
            char path[200] = "/";
            size_t n = strcspn(at + strlen(before[i]), "\"");
            if (n + 2 > sizeof path || at[strlen(before[i])] == '#') {
                continue; /* a symbol of the page itself */
            }
            memcpy(path + 1, at + strlen(before[i]), n);
            if (!srv_web_find(path)) {
                fail_msg("%s wants %s, which is not embedded", f->path, path);
            }
        }
    }
    free(text);
}

static void test_references(void **state)
{
    (void)state;
    for (size_t i = 0; i < srv_n_web_files; i++) {
        check_references(&srv_web_files[i]);
    }
}

/* The policy allows neither of these, so a page that had them would be broken. */
static void test_nothing_inline(void **state)
{
    (void)state;
    const srv_file *f = srv_web_find("/");
    char *text = calloc(1, f->n_bytes + 1);
    assert_non_null(text);
    memcpy(text, f->bytes, f->n_bytes);
    static const char *const never[] = {" style=\"", "<style",      "<script>", " onclick",
                                        " onload",   "javascript:", "http:",    "https:"};
    for (size_t i = 0; i < sizeof never / sizeof *never; i++) {
        if (strstr(text, never[i])) {
            fail_msg("index.html has %s", never[i]);
        }
    }
    free(text);
    assert_null(strstr(SRV_WEB_POLICY, "unsafe"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_file),     cmocka_unit_test(test_types),
        cmocka_unit_test(test_no_others),      cmocka_unit_test(test_references),
        cmocka_unit_test(test_nothing_inline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
