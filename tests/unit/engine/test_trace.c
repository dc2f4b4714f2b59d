/* test_trace.c - traces of an engine (src/ops/trace.h) that the command cannot show: a trace that
 * can no longer be written is an error, passes of several threads do not mix. */
#include "unit/engine/nano.h"

#include <dirent.h>
#include <pthread.h>
#include <unistd.h>

#define FOLDER TEST_BINARY_DIR "/trace_of_test"

static const int32_t ids[] = {1, 20, 30, 40, 50};

static void remove_folder(void)
{
    if (system("rm -rf " FOLDER) != 0)
        fail_msg("%s cannot be removed", FOLDER);
}

static nano traced(void)
{
    nano n = {0};
    bitnet_engine_options o;
    remove_folder();
    bitnet_engine_options_init(&o);
    o.trace_dir = FOLDER;
    OK(bitnet_runtime_open(NULL, &n.runtime, &err));
    OK(bitnet_engine_open(n.runtime, NANO_PATH, &o, &n.engine, &err));
    return n;
}

/* Number of files, and that of those whose record names this pass. */
static size_t count(int pass, size_t *n_all)
{
    char path[512], text[1024], wanted[32];
    size_t n = 0;
    DIR *d = opendir(FOLDER);
    assert_non_null(d);
    *n_all = 0;
    snprintf(wanted, sizeof wanted, "\"seq\": %d,", pass);
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", FOLDER, e->d_name);
        FILE *f = fopen(path, "r");
        assert_non_null(f);
        text[fread(text, 1, sizeof text - 1, f)] = '\0';
        fclose(f);
        n += strstr(text, wanted) != NULL;
        ++*n_all;
    }
    closedir(d);
    return n;
}

static void test_a_trace_that_cannot_be_written_is_an_error(void **state)
{
    (void)state;
    nano n = traced();
    bitnet_session *s = nano_session(&n, 64, 16, BITNET_KV_F32);
    OK(bitnet_session_append(s, ids, 2, NULL, NULL, &err));
    remove_folder();
    FAILS(bitnet_session_append(s, ids, 2, NULL, NULL, &err), BITNET_IO, FOLDER);
    bitnet_session_close(s);
    nano_close(&n);
}

enum { THREADS = 4, PASSES = 3 };

static void *append(void *session)
{
    for (int i = 0; i < PASSES; i++)
        OK(bitnet_session_append(session, ids, 5, NULL, NULL, &err));
    return NULL;
}

static void test_passes_of_threads_do_not_mix(void **state)
{
    (void)state;
    nano n = traced();
    pthread_t thread[THREADS];
    bitnet_session *s[THREADS];
    size_t n_all, first;
    for (int i = 0; i < THREADS; i++)
        s[i] = nano_session(&n, 64, 16, BITNET_KV_F32);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, append, s[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        bitnet_session_close(s[i]);
    }
    first = count(0, &n_all);
    assert_true(first > 40);
    assert_int_equal(n_all, first * THREADS * PASSES);
    for (int i = 1; i < THREADS * PASSES; i++)
        assert_int_equal(count(i, &n_all), first);
    nano_close(&n);
    remove_folder();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_trace_that_cannot_be_written_is_an_error),
        cmocka_unit_test(test_passes_of_threads_do_not_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
