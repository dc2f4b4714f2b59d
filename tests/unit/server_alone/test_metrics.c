/* test_metrics.c - what /metrics says, with stand-ins for models: every name has its HELP and TYPE,
 * histograms add up, labels are bounded, what many threads count is exact. */
#include "test.h"

#include <pthread.h>

#include "../server/metrics/metrics_impl.h"
#include "../server/http/operation.h"
#include "../server/server.h"

/* ---- stand-ins ---- */

static srv_model_row rows[3];
static size_t n_rows;
static bitnet_model_info info = {.n_file_bytes = 1000};
static srv_model loaded = {.info = &info};
static srv_load load;
static int n_held;

bool srv_models_at(srv_models *m, size_t i, srv_model_row *out)
{
    (void)m;
    if (i < n_rows)
        *out = rows[i];
    return i < n_rows;
}

srv_model *srv_model_peek(srv_models *m, const char *name)
{
    (void)m;
    for (size_t i = 0; i < n_rows && i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, name) == 0 && rows[i].state == SRV_LOADED) {
            n_held++;
            return &loaded;
        }
    return NULL;
}

void srv_model_looked(srv_models *m, srv_model *model)
{
    (void)m, (void)model;
    n_held--;
}

void srv_scheduler_load(srv_scheduler *s, srv_load *out)
{
    (void)s;
    *out = load;
}

static srv_server server;
static char *reply;
static char reply_type[64];

srv_server *srv_server_of(const srv_exchange *x)
{
    (void)x;
    return &server;
}

void srv_reply_bytes(srv_exchange *x, int status, const char *content_type, const void *bytes,
                     size_t n_bytes)
{
    (void)x;
    assert_int_equal(status, 200);
    snprintf(reply_type, sizeof reply_type, "%s", content_type);
    reply = strndup(bytes, n_bytes);
}

void srv_fail(srv_exchange *x, int status, const char *code, const char *param, const char *format,
              ...)
{
    (void)x, (void)status, (void)code, (void)param, (void)format;
    fail();
}

/* ---- reading the text ---- */

static char *text_now(void)
{
    free(reply);
    reply = NULL;
    srv_get_metrics(NULL);
    assert_non_null(reply);
    return reply;
}

/* The value of the line that begins so, or NAN. */
static double value_of(const char *text, const char *series)
{
    size_t n = strlen(series);
    for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (strncmp(line, series, n) == 0 && line[n] == ' ')
            return strtod(line + n, NULL);
    return -1;
}

static int open_all(void **state)
{
    (void)state;
    server = (srv_server){.metrics = srv_metrics_open(), .started = 1000};
    server.models = (srv_models *)&server;
    n_rows = 0;
    load = (srv_load){0};
    return server.metrics ? 0 : -1;
}

static int close_all(void **state)
{
    (void)state;
    srv_metrics_close(server.metrics);
    free(reply);
    reply = NULL;
    return n_held;
}

/* ---- tests ---- */

static void requests_are_counted(void **state)
{
    (void)state;
    srv_metrics *m = server.metrics;
    for (int i = 0; i < 5; i++)
        srv_metrics_begin(m, "/metrics");
    srv_metrics_end(m, "/metrics", 200, 0.002);
    srv_metrics_end(m, "/metrics", 200, 0.2);
    srv_metrics_end(m, "/metrics", 499, 1);
    srv_metrics_end(m, "/metrics", 503, 400);
    char *t = text_now();
    assert_true(value_of(t, "bitnet_requests_received_total") == 5);
    assert_true(value_of(t, "bitnet_requests_active") == 1);
    assert_true(value_of(t, "bitnet_requests_total{route=\"/metrics\",status=\"200\"}") == 2);
    assert_true(value_of(t, "bitnet_errors_total{kind=\"cancelled\"}") == 1);
    assert_true(value_of(t, "bitnet_errors_total{kind=\"client\"}") == 0);
    assert_true(value_of(t, "bitnet_errors_total{kind=\"server\"}") == 1);
    const char *name = "bitnet_request_duration_seconds";
    char series[128];
    const struct {
        const char *le;
        int n;
    } buckets[] = {{"0.005", 1}, {"0.25", 2}, {"1", 3}, {"300", 3}, {"+Inf", 4}};
    for (size_t i = 0; i < sizeof buckets / sizeof *buckets; i++) {
        snprintf(series, sizeof series, "%s_bucket{route=\"/metrics\",le=\"%s\"}", name,
                 buckets[i].le);
        assert_true(value_of(t, series) == buckets[i].n);
    }
    assert_true(value_of(t, "bitnet_request_duration_seconds_count{route=\"/metrics\"}") == 4);
    assert_true(value_of(t, "bitnet_request_duration_seconds_sum{route=\"/metrics\"}") > 401.2);
}

/* What a client sends as a path never becomes a label. */
static void labels_are_bounded(void **state)
{
    (void)state;
    char path[64];
    for (int i = 0; i < 1000; i++) {
        snprintf(path, sizeof path, "/no/such/%d", i);
        srv_metrics_begin(server.metrics, path);
        srv_metrics_end(server.metrics, path, 600 + i, 0.001);
    }
    srv_metrics_end(server.metrics, NULL, 404, -1);
    char *t = text_now();
    assert_null(strstr(t, "no/such"));
    assert_true(value_of(t, "bitnet_requests_total{route=\"other\",status=\"other\"}") == 1000);
    assert_true(value_of(t, "bitnet_requests_total{route=\"other\",status=\"404\"}") == 1);
}

static void tokens_have_times(void **state)
{
    (void)state;
    srv_metrics_first_token(server.metrics, 0.3);
    for (int i = 0; i < 9; i++)
        srv_metrics_token(server.metrics, 0.02);
    srv_metrics_inference(server.metrics, 0.48);
    srv_metrics_model_load(server.metrics, 2);
    char *t = text_now();
    assert_true(value_of(t, "bitnet_tokens_generated_total") == 10);
    assert_true(value_of(t, "bitnet_time_to_first_token_seconds_bucket{le=\"0.25\"}") == 0);
    assert_true(value_of(t, "bitnet_time_to_first_token_seconds_bucket{le=\"0.5\"}") == 1);
    assert_true(value_of(t, "bitnet_time_per_token_seconds_count") == 9);
    assert_true(value_of(t, "bitnet_inference_duration_seconds_count") == 1);
    assert_true(value_of(t, "bitnet_model_load_duration_seconds_sum") == 2);
    json_t *j = srv_metrics_json(server.metrics);
    assert_int_equal(json_integer_value(json_object_get(j, "tokens_generated")), 10);
    json_t *times = json_object_get(j, "time_per_token_seconds");
    double p50 = json_real_value(json_object_get(times, "p50"));
    assert_true(p50 > 0.01 && p50 <= 0.025);
    assert_true(json_real_value(json_object_get(times, "mean")) > 0.0199);
    json_decref(j);
}

static void models_are_told_apart(void **state)
{
    (void)state;
    n_rows = 3;
    rows[0] = (srv_model_row){.name = "story", .state = SRV_LOADED};
    rows[1] = (srv_model_row){.name = "a\"b\\c\n", .state = SRV_LOADING};
    rows[2] = (srv_model_row){.name = "\xff", .state = SRV_BROKEN};
    load = (srv_load){.n_queued = 7, .max_active = 64, .n_active = 3, .tokens_per_s = 12.5};
    load.kv = (bitnet_kv_pool_stats){.n_blocks = 10, .n_used = 4, .block_bytes = 100};
    load.kv.n_prefix_hits = 2;
    char *t = text_now();
    assert_true(value_of(t, "bitnet_queue_length{model=\"story\"}") == 7);
    assert_true(value_of(t, "bitnet_slots{model=\"story\"}") == 64);
    assert_true(value_of(t, "bitnet_slots_active{model=\"story\"}") == 3);
    assert_true(value_of(t, "bitnet_tokens_per_second{model=\"story\"}") == 12.5);
    assert_true(value_of(t, "bitnet_kv_usage_ratio{model=\"story\"}") == 0.4);
    assert_true(value_of(t, "bitnet_prefix_hits_total{model=\"story\"}") == 2);
    assert_true(value_of(t, "bitnet_model_memory_usage_bytes{model=\"story\"}") == 2000);
    assert_true(value_of(t, "bitnet_model_loaded{model=\"story\"}") == 1);
    assert_true(value_of(t, "bitnet_model_loaded{model=\"a\\\"b\\\\c\\\\x0a\"}") == 0);
    assert_true(value_of(t, "bitnet_model_loaded{model=\"\\\\xff\"}") == 0);
    assert_true(value_of(t, "bitnet_queue_length{model=\"\\\\xff\"}") == -1);
}

/* Each line is a comment or a sample; the samples of a name follow its HELP and TYPE. */
static void the_format_holds(void **state)
{
    (void)state;
    n_rows = 1;
    rows[0] = (srv_model_row){.name = "story", .state = SRV_LOADED};
    srv_metrics_end(server.metrics, "/metrics", 200, 0.1);
    char *t = text_now(), last[128] = "";
    assert_string_equal(reply_type, "text/plain; version=0.0.4; charset=utf-8");
    for (char *line = strtok(t, "\n"); line; line = strtok(NULL, "\n")) {
        if (sscanf(line, "# HELP %127s", last) == 1)
            continue;
        char name[128];
        if (sscanf(line, "# TYPE %127s", name) == 1) {
            assert_string_equal(name, last);
            continue;
        }
        assert_memory_equal(line, last, strlen(last));
        assert_non_null(strchr("{ _", line[strlen(last)]));
        assert_non_null(strrchr(line, ' '));
        char *end;
        strtod(strrchr(line, ' '), &end);
        assert_int_equal(*end, 0);
    }
    static const char *const wanted[] = {"memory_usage_bytes", "cpu_usage_percent",
                                         "gpu_memory_usage_bytes{model=\"story\"}",
                                         "cpu_seconds_total", "start_time_seconds"};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        char series[128];
        snprintf(series, sizeof series, "bitnet_%s", wanted[i]);
        assert_true(value_of(text_now(), series) >= 0);
    }
}

static void *count_some(void *unused)
{
    (void)unused;
    for (int i = 0; i < 20000; i++) {
        srv_metrics_begin(server.metrics, "/metrics");
        srv_metrics_token(server.metrics, 0.001 * (i % 40));
        srv_metrics_end(server.metrics, "/metrics", 200, 0.01);
    }
    return NULL;
}

static void nothing_is_lost(void **state)
{
    (void)state;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count_some, NULL), 0);
    double most = 0; /* while they count */
    for (int i = 0; i < 200; i++) {
        double active = value_of(text_now(), "bitnet_requests_active");
        most = active > most ? active : most;
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_true(most <= 4); /* one too few would be 2^64 - 1 */
    char *t = text_now();
    assert_true(value_of(t, "bitnet_tokens_generated_total") == 80000);
    assert_true(value_of(t, "bitnet_requests_active") == 0);
    assert_true(value_of(t, "bitnet_time_per_token_seconds_bucket{le=\"+Inf\"}") == 80000);
    assert_true(value_of(t, "bitnet_requests_total{route=\"/metrics\",status=\"200\"}") == 80000);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, open_all, close_all)
    const struct CMUnitTest tests[] = {
        TEST(requests_are_counted),  TEST(labels_are_bounded), TEST(tokens_have_times),
        TEST(models_are_told_apart), TEST(the_format_holds),   TEST(nothing_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
