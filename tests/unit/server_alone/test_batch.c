/* test_batch.c - the files of a batch, with a stand-in for the server: what is acknowledged is
 * never computed again, cut lines are repaired, shards divide, bad lines are told, others' files
 * stay. */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../server/batch/batch.h"
#include "../server/batch/batch_files.h"
#include "../server/http/json_limits.h"
#include "../server/http/local.h"
#include "../server/metrics/metrics.h"

/* ---- stand-ins: a server that answers with the body it got ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int n_calls;
static int n_full, n_at_once, most_at_once;
static int stop_after;        /* calls; 0: never */
static const char *full_code; /* what a full server says; NULL: nothing that says it is full */
static atomic_int n_syncs;    /* of files of results */
static int sync_error;        /* 0: they succeed */
static int n_folders;         /* that were brought to the disk */
static bool no_json;          /* replies cannot be read, as where memory is short */

int fdatasync(int fd)
{
    (void)fd;
    atomic_fetch_add(&n_syncs, 1);
    errno = sync_error;
    return sync_error ? -1 : 0;
}

/* Of folders. */
int fsync(int fd)
{
    struct stat is;
    n_folders += fstat(fd, &is) == 0 && S_ISDIR(is.st_mode);
    return 0;
}

srv_local *srv_local_open(srv_server *server)
{
    return (srv_local *)server;
}

void srv_local_close(srv_local *l)
{
    (void)l;
}

bool srv_local_call(srv_local *l, const char *method, const char *path, const char *body,
                    size_t n_body, srv_local_reply *reply)
{
    (void)l;
    assert_string_equal(method, "POST");
    pthread_mutex_lock(&lock);
    int call = ++n_calls;
    n_at_once++;
    most_at_once = n_at_once > most_at_once ? n_at_once : most_at_once;
    bool full = n_full > 0;
    n_full -= full;
    pthread_mutex_unlock(&lock);
    usleep(500);
    *reply = (srv_local_reply){.status = full ? 503 : strstr(body, "wrong") != NULL ? 400 : 200};
    snprintf(reply->request_id, sizeof reply->request_id, "req_%d", call);
    reply->body = malloc(n_body + strlen(path) + 64);
    reply->n_body = full && full_code
                        ? (size_t)sprintf(reply->body, "{\"error\":{\"code\":\"%s\"}}", full_code)
                        : (size_t)sprintf(reply->body, "{\"path\":\"%s\",\"got\":%.*s}", path,
                                          (int)n_body, body);
    reply->n_body -= no_json;
    pthread_mutex_lock(&lock);
    n_at_once--;
    pthread_mutex_unlock(&lock);
    return true;
}

bitnet_status srv_models_open(const srv_models_options *options, bool lazy, srv_models **out,
                              bitnet_error *err)
{
    (void)options, (void)lazy, (void)out, (void)err;
    return BITNET_OK;
}

void srv_models_close(srv_models *m)
{
    (void)m;
}

srv_metrics *srv_metrics_open(void)
{
    return (srv_metrics *)&lock;
}

void srv_metrics_close(srv_metrics *m)
{
    (void)m;
}

/* The deepest bracket, and half the bytes. */
srv_json_cost srv_json_measure(const char *text, size_t n_bytes)
{
    srv_json_cost cost = {.n_values = n_bytes / 2};
    size_t depth = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        depth += text[i] == '{' || text[i] == '[';
        depth -= depth && (text[i] == '}' || text[i] == ']');
        cost.depth = depth > cost.depth ? depth : cost.depth;
    }
    return cost;
}

/* ---- files ---- */

static char in[64], out[64];

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static char *read_file(const char *path)
{
    static char text[1 << 20];
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return text;
}

static size_t count(const char *text, const char *what)
{
    size_t n = 0;
    for (const char *p = strstr(text, what); p; p = strstr(p + 1, what))
        n++;
    return n;
}

static int prepare(void **state)
{
    (void)state;
    snprintf(in, sizeof in, "/tmp/bitnet-batch-in-%d", (int)getpid());
    snprintf(out, sizeof out, "/tmp/bitnet-batch-out-%d", (int)getpid());
    unlink(in);
    unlink(out);
    n_calls = 0;
    n_full = most_at_once = stop_after = sync_error = 0;
    n_syncs = 0;
    no_json = false;
    full_code = NULL;
    return 0;
}

static int clean(void **state)
{
    (void)state;
    unlink(in);
    unlink(out);
    return 0;
}

static bool enough(void *unused)
{
    (void)unused;
    return stop_after && n_calls >= stop_after;
}

static srv_batch_progress progress;
static bitnet_error error;
static size_t max_body = 4096;
static bitnet_cancel_fn stop = enough;

static bitnet_status run_shard(size_t shard, size_t n_shards)
{
    srv_config config = {.max_body = max_body, .max_depth = 16};
    srv_batch_options o = {
        .in = in, .out = out, .shard = shard, .n_shards = n_shards, .n_parallel = 4, .pause_ms = 1};
    error = (bitnet_error){0};
    return srv_batch(&config, &o, stop, NULL, &progress, &error);
}

static bitnet_status run(void)
{
    return run_shard(1, 1);
}

static void write_requests(FILE *f, int n)
{
    for (int i = 1; i <= n; i++)
        fprintf(f,
                "{\"custom_id\":\"c%d\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":"
                "{\"prompt\":\"p%d\"}}\n",
                i, i);
    fclose(f);
}

static void make_input(int n)
{
    FILE *f = fopen(in, "w");
    assert_non_null(f);
    write_requests(f, n);
}

/* Standard input has n lines, and does not end before the descriptor is closed. */
static int open_pipe(int n)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(dup2(ends[0], 0), 0);
    close(ends[0]);
    FILE *f = fdopen(dup(ends[1]), "w");
    assert_non_null(f);
    write_requests(f, n);
    snprintf(in, sizeof in, "-");
    return ends[1];
}

/* ---- tests ---- */

static void every_line_is_answered(void **state)
{
    (void)state;
    char want[64];
    make_input(50);
    assert_int_equal(run(), BITNET_OK);
    char *text = read_file(out);
    assert_int_equal(count(text, "\n"), 50);
    for (int i = 1; i <= 50; i++) {
        snprintf(want, sizeof want, "\"id\":\"batch_req_%d\",\"custom_id\":\"c%d\"", i, i);
        assert_int_equal(count(text, want), 1);
        snprintf(want, sizeof want, "\"got\":{\"prompt\":\"p%d\"}", i);
        assert_int_equal(count(text, want), 1);
    }
    assert_int_equal(progress.n_answered, 50);
    assert_true(most_at_once > 1 && most_at_once <= 4);
}

static void what_is_there_is_not_computed_again(void **state)
{
    (void)state;
    make_input(20);
    assert_int_equal(run(), BITNET_OK);
    n_calls = 0;
    assert_int_equal(run(), BITNET_OK);
    assert_int_equal(n_calls, 0);
    assert_int_equal(progress.n_known, 20);
    make_input(25); /* lines may be added */
    assert_int_equal(run(), BITNET_OK);
    assert_int_equal(n_calls, 5);
    assert_int_equal(count(read_file(out), "\n"), 25);
}

static void a_stopped_batch_goes_on(void **state)
{
    (void)state;
    make_input(400);
    stop_after = 30;
    assert_int_equal(run(), BITNET_CANCELLED);
    size_t had = count(read_file(out), "\n");
    assert_true(had >= 20 && had < 400);
    stop_after = 0;
    n_calls = 0;
    assert_int_equal(run(), BITNET_OK);
    assert_int_equal(n_calls + had, 400);
    assert_int_equal(count(read_file(out), "\n"), 400);
}

/* Cut at every byte: the last line is removed and computed again, the others stay. If only its
 * newline is missing, nothing is. */
static void a_cut_line_is_repaired(void **state)
{
    (void)state;
    make_input(3);
    assert_int_equal(run(), BITNET_OK);
    char *whole = strdup(read_file(out));
    size_t n = strlen(whole), last = n - 1;
    while (whole[last - 1] != '\n')
        last--;
    for (size_t cut = last; cut < n; cut++) {
        char *part = strndup(whole, cut);
        write_file(out, part);
        free(part);
        n_calls = 0;
        assert_int_equal(run(), BITNET_OK);
        assert_int_equal(n_calls, cut < n - 1);
        char *now = read_file(out);
        assert_int_equal(count(now, "\n"), 3);
        assert_memory_equal(now, whole, last);
    }
    free(whole);
}

static void shards_divide(void **state)
{
    (void)state;
    make_input(31);
    for (size_t i = 1; i <= 3; i++)
        assert_int_equal(run_shard(i, 3), BITNET_OK); /* one file: each knows what is its own */
    assert_int_equal(n_calls, 31);
    assert_int_equal(count(read_file(out), "\n"), 31);
    n_calls = 0;
    assert_int_equal(run(), BITNET_OK);
    assert_int_equal(n_calls, 0);
}

static void bad_lines_are_told(void **state)
{
    (void)state;
    char *text = malloc(200000);
    char *long_line = malloc(90001);
    memset(long_line, 'x', 90000);
    long_line[90000] = '\0';
    sprintf(text,
            "nonsense\n"
            "\n"
            "{\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{}}\n"
            "{\"custom_id\":\"a\",\"method\":\"GET\",\"url\":\"/v1/completions\",\"body\":{}}\n"
            "{\"custom_id\":\"b\",\"method\":\"POST\",\"url\":\"/v1/models/load\",\"body\":{}}\n"
            "{\"custom_id\":\"c\",\"method\":\"POST\",\"url\":\"/v1/embeddings\",\"body\":7}\n"
            "{\"custom_id\":\"d\",\"method\":\"POST\",\"url\":\"/v1/embeddings\",\"body\":"
            "{\"stream\":true}}\n"
            "%s\n"
            "[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]\n"
            "{\"custom_id\":\"e\",\"method\":\"POST\",\"url\":\"/v1/embeddings\",\"body\":"
            "{\"wrong\":1}}\n"
            "{\"custom_id\":\"f\",\"method\":\"POST\",\"url\":\"/v1/embeddings\",\"body\":{}}",
            long_line);
    write_file(in, text);
    assert_int_equal(run(), BITNET_OK);
    char *got = read_file(out);
    assert_int_equal(progress.n_failed, 9);
    assert_int_equal(progress.n_answered, 1);
    assert_int_equal(n_calls, 2);
    static const char *const said[] = {"line 1: the line is not a JSON object",
                                       "line 3: custom_id",
                                       "line 4: method",
                                       "line 5: url",
                                       "line 6: body must",
                                       "line 7: body.stream",
                                       "line 8: the line is longer",
                                       "line 9: the line nests",
                                       "\"status_code\":400"};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        assert_int_equal(count(got, said[i]), 1);
    n_calls = 0; /* failures are acknowledged, too; the line without its newline as well */
    assert_int_equal(run(), BITNET_OK);
    assert_int_equal(n_calls, 0);
    free(text);
    free(long_line);
}

#define REQUEST(id, body)                                                                          \
    "{\"custom_id\":\"" id "\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":" body "}" \
    "\n"

/* The stand-in says what it was asked. */
static void zero_characters_are_kept(void **state)
{
    (void)state;
    write_file(in, REQUEST("a", "{\"prompt\":\"x\\u0000y\"}") REQUEST("b\\u0000c", "{}"));
    assert_int_equal(run(), BITNET_OK);
    assert_int_equal(progress.n_answered, 1);
    assert_int_equal(progress.n_failed, 1);
    assert_int_equal(count(read_file(out), "\"got\":{\"prompt\":\"x\\u0000y\"}"), 1);
    assert_int_equal(count(read_file(out), "\"custom_id\":null"), 1);
    n_calls = 0;
    assert_int_equal(run(), BITNET_OK);
    assert_int_equal(n_calls, 0);
    assert_int_equal(progress.n_known, 2);
}

/* As a real it would be another number. */
static void large_numbers_are_refused_by_name(void **state)
{
    (void)state;
    write_file(in, REQUEST("a", "{\"seed\":12345678901234567890}")
                       REQUEST("b", "{\"seed\":9223372036854775807}"));
    assert_int_equal(run(), BITNET_OK);
    char *text = read_file(out);
    assert_int_equal(count(text, "\"custom_id\":\"a\",\"response\":null"), 1);
    assert_int_equal(count(text, "line 1: the line has a number that is too large"), 1);
    assert_int_equal(count(text, "\"got\":{\"seed\":9223372036854775807}"), 1);
    assert_int_equal(n_calls, 1);
}

/* Whoever made them: results are not computed again. */
static void results_with_large_numbers_are_known(void **state)
{
    (void)state;
    make_input(1);
    write_file(out, "{\"id\":\"batch_req_1\",\"custom_id\":\"c1\",\"response\":"
                    "{\"body\":12345678901234567890},\"error\":null}\n");
    assert_int_equal(run(), BITNET_OK);
    assert_int_equal(progress.n_known, 1);
}

/* A reply that cannot be kept is not acknowledged: the line is computed again. */
static void an_answer_without_memory_is_not_lost(void **state)
{
    (void)state;
    make_input(1);
    no_json = true;
    assert_int_equal(run(), BITNET_MEMORY);
    assert_int_equal(progress.n_answered, 0);
    assert_string_equal(read_file(out), "");
    no_json = false;
    assert_int_equal(run(), BITNET_OK);
    assert_int_equal(progress.n_answered, 1);
}

static void a_full_server_is_asked_again(void **state)
{
    (void)state;
    make_input(3);
    n_full = 4;
    assert_int_equal(run(), BITNET_OK);
    assert_int_equal(progress.n_answered, 3);
    assert_int_equal(n_calls, 7);
}

/* Others' requests end, so that a place is waited for as long as it takes; but not memory. */
static void what_stays_refused_is_recorded(void **state)
{
    (void)state;
    make_input(1);
    n_full = 20;
    full_code = "server_busy";
    assert_int_equal(run(), BITNET_OK);
    assert_int_equal(progress.n_answered, 1);
    unlink(out);
    n_full = 1000;
    full_code = "out_of_memory";
    assert_int_equal(run(), BITNET_OK);
    assert_int_equal(progress.n_failed, 1);
    assert_true(n_full > 900);
    assert_int_equal(count(read_file(out), "\"status_code\":503"), 1);
}

static void an_idle_input_does_not_keep_it_from_stopping(void **state)
{
    (void)state;
    int held = open_pipe(1);
    stop_after = 1;
    alarm(60); /* it ends the test where the batch does not end */
    assert_int_equal(run(), BITNET_CANCELLED);
    alarm(0);
    close(held);
}

/* With a larger limit it is a request whose custom_id can be read. Its result stays. */
static void a_line_that_was_too_long_is_the_same_line(void **state)
{
    (void)state;
    FILE *f = fopen(in, "w");
    assert_non_null(f);
    fprintf(f,
            "{\"custom_id\":\"l\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":"
            "{\"prompt\":\"%090000d\"}}\n",
            7);
    fclose(f);
    assert_int_equal(run(), BITNET_OK);
    assert_int_equal(progress.n_failed, 1);
    max_body = 200000;
    bitnet_status st = run();
    assert_int_equal(st, BITNET_OK);
    assert_int_equal(progress.n_known, 1);
    unlink(out);
    assert_int_equal(run(), BITNET_OK);
    assert_int_equal(progress.n_answered, 1);
    max_body = 4096; /* and the other way round */
    assert_int_equal(run(), BITNET_OK);
    assert_int_equal(progress.n_known, 1);
}

static bool synced_twice(void *unused)
{
    (void)unused;
    return n_syncs >= 2;
}

/* The first result goes to the disk at once, others within about a second, also while no more come.
 */
static void results_reach_the_disk_while_it_waits(void **state)
{
    (void)state;
    int held = open_pipe(6);
    stop = synced_twice;
    alarm(20);
    bitnet_status st = run();
    alarm(0);
    stop = enough;
    close(held);
    assert_int_equal(st, BITNET_CANCELLED);
    assert_int_equal(count(read_file(out), "\n"), 6);
}

/* Else a machine that ends could lose the file with all its results. */
static void the_name_of_a_new_file_reaches_the_disk(void **state)
{
    (void)state;
    make_input(1);
    n_folders = 0;
    assert_int_equal(run(), BITNET_OK);
    assert_int_equal(n_folders, 1);
    assert_int_equal(run(), BITNET_OK);
    assert_int_equal(n_folders, 1);
}

static void a_failed_sync_is_told_by_its_reason(void **state)
{
    (void)state;
    srv_results *r;
    assert_int_equal(srv_results_open(out, &r, &error), BITNET_OK);
    sync_error = EIO;
    assert_false(srv_results_add(r, "{}"));
    sync_error = 0;
    errno = 0;
    assert_false(srv_results_add(r, "{}"));
    assert_int_equal(errno, EIO);
    errno = 0;
    assert_false(srv_results_close(r));
    assert_int_equal(errno, EIO);
}

static void other_files_stay(void **state)
{
    (void)state;
    make_input(2);
    static const char *const foreign[] = {"my notes\nand more\n", "my notes",
                                          "{\"a\":1}\n{\"b\":2}\n", "{\"a\":1}\n", "{\"a\""};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        write_file(out, foreign[i]);
        assert_int_equal(run(), BITNET_ARGUMENT);
        assert_string_equal(read_file(out), foreign[i]);
        assert_non_null(strstr(error.message, out));
    }
    unlink(out);
    assert_int_equal(link(in, out), 0);
    assert_int_equal(run(), BITNET_ARGUMENT);
    unlink(out);
    unlink(in);
    assert_int_equal(run(), BITNET_IO);
}

/* Behind results, too: only what may be the beginning of one is removed. */
static void lines_of_others_stay(void **state)
{
    (void)state;
    static const char *const foreign[] = {
        "my notes, a whole line\n",
        "my notes, a whole line",
        "\n",
        "{\"a\":1}\n",
        "{\"id\":\"batch_req_2\",\"custom_id\":\"c2\n",
        "{\"id\":\"batch_req_2\",\"customers\":",
        "{\"id\":\"batch_req_two\"",
        "{\"id\":\"batch_req_-2\",\"custom_id\":null}\n",
    };
    make_input(2);
    assert_int_equal(run(), BITNET_OK);
    char *results = strdup(read_file(out)), text[1024];
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        snprintf(text, sizeof text, "%s%s", results, foreign[i]);
        write_file(out, text);
        assert_int_equal(run(), BITNET_ARGUMENT);
        assert_string_equal(read_file(out), text);
        assert_non_null(strstr(error.message, out));
        assert_non_null(strstr(error.message, "line 3 is no result"));
    }
    free(results);
}

static void another_input_is_noticed(void **state)
{
    (void)state;
    make_input(2);
    assert_int_equal(run(), BITNET_OK);
    write_file(
        in, "{\"custom_id\":\"z\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{}}\n");
    assert_int_equal(run(), BITNET_ARGUMENT);
    assert_non_null(strstr(error.message, "another"));
}

static void two_batches_do_not_share_a_file(void **state)
{
    (void)state;
    srv_results *held;
    make_input(2);
    assert_int_equal(srv_results_open(out, &held, &error), BITNET_OK);
    assert_int_equal(run(), BITNET_ARGUMENT);
    assert_true(srv_results_close(held));
    assert_int_equal(run(), BITNET_OK);
}

/* As on a full disk: nothing beyond so many bytes can be written. What was acknowledged stays
 * whole.
 */
static void a_full_disk_is_told(void **state)
{
    (void)state;
    struct rlimit before, small;
    make_input(40);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 1500;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    bitnet_status st = run();
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(st, BITNET_IO);
    assert_non_null(strstr(error.message, out));
    char *text = read_file(out);
    size_t n = strlen(text);
    assert_true(n > 0 && n <= 1500 && text[n - 1] == '\n');
    assert_int_equal(count(text, "\n"), progress.n_answered);
    assert_int_equal(run(), BITNET_OK);
    assert_int_equal(count(read_file(out), "\n"), 40);
}

static void results_need_a_file(void **state)
{
    (void)state;
    make_input(1);
    snprintf(out, sizeof out, "/dev/full");
    assert_int_equal(run(), BITNET_ARGUMENT);
    snprintf(out, sizeof out, "/nowhere/at/all");
    assert_int_equal(run(), BITNET_IO);
    *out = '\0';
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, prepare, clean)
    const struct CMUnitTest tests[] = {
        TEST(every_line_is_answered),
        TEST(what_is_there_is_not_computed_again),
        TEST(a_stopped_batch_goes_on),
        TEST(a_cut_line_is_repaired),
        TEST(shards_divide),
        TEST(bad_lines_are_told),
        TEST(zero_characters_are_kept),
        TEST(large_numbers_are_refused_by_name),
        TEST(results_with_large_numbers_are_known),
        TEST(an_answer_without_memory_is_not_lost),
        TEST(a_full_server_is_asked_again),
        TEST(what_stays_refused_is_recorded),
        TEST(an_idle_input_does_not_keep_it_from_stopping),
        TEST(a_line_that_was_too_long_is_the_same_line),
        TEST(results_reach_the_disk_while_it_waits),
        TEST(the_name_of_a_new_file_reaches_the_disk),
        TEST(a_failed_sync_is_told_by_its_reason),
        TEST(other_files_stay),
        TEST(lines_of_others_stay),
        TEST(another_input_is_noticed),
        TEST(two_batches_do_not_share_a_file),
        TEST(a_full_disk_is_told),
        TEST(results_need_a_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
