/* metrics_text.c - GET /metrics: the Prometheus text format, version 0.0.4. Names and labels are
 * here; what they count is in metrics.c, and what models do is asked of their schedulers. */
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bitnet_tools.h"
#include "metrics/metrics_impl.h"
#include "http/operation.h"
#include "server.h"

enum { MODELS_MAX = 64 }; /* whose figures are told; more files than that are only counted */

/* ---- text that grows ---- */

typedef struct text {
    char *data;
    size_t n, cap;
    bool failed; /* out of memory: what came since is missing */
} text;

static bool text_room(text *t, size_t n)
{
    if (t->failed || t->n + n + 1 <= t->cap)
        return !t->failed;
    size_t cap = 2 * t->cap + n + 4096;
    char *data = realloc(t->data, cap);
    t->failed = data == NULL;
    if (data) {
        t->data = data;
        t->cap = cap;
    }
    return data != NULL;
}

static void add(text *t, const char *format, ...) BITNET_PRINTF(2, 3);
static void add(text *t, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(NULL, 0, format, ap);
    va_end(ap);
    if (n < 0 || !text_room(t, (size_t)n))
        return;
    va_start(ap, format);
    vsnprintf(t->data + t->n, (size_t)n + 1, format, ap);
    va_end(ap);
    t->n += (size_t)n;
}

/* A label's value: backslash and quote are escaped; control characters, and bytes of a name that is
 * no UTF-8, are written in hex. */
static void add_label(text *t, const char *value)
{
    json_t *as_text = json_string(value); /* NULL: no UTF-8 */
    for (; *value; value++) {
        unsigned char c = (unsigned char)*value;
        if (c == '\\' || c == '"')
            add(t, "\\%c", c);
        else if (c < ' ' || c == 127 || (c > 127 && !as_text))
            add(t, "\\\\x%02x", c);
        else
            add(t, "%c", c);
    }
    json_decref(as_text);
}

static void head(text *t, const char *name, const char *type, const char *help)
{
    add(t, "# HELP bitnet_%s %s\n# TYPE bitnet_%s %s\n", name, help, name, type);
}

static void count_line(text *t, const char *name, const char *help, uint64_t n)
{
    head(t, name, "counter", help);
    add(t, "bitnet_%s %" PRIu64 "\n", name, n);
}

static void gauge_line(text *t, const char *name, const char *help, double x)
{
    head(t, name, "gauge", help);
    add(t, "bitnet_%s %.10g\n", name, x);
}

/* ---- requests ---- */

static void histogram_lines(text *t, const char *name, const char *route, const srv_histogram *h)
{
    srv_histogram_values v;
    char label[160] = "", only[160] = "";
    srv_histogram_read(h, &v);
    if (route) {
        snprintf(label, sizeof label, "route=\"%s\",", route);
        snprintf(only, sizeof only, "{route=\"%s\"}", route);
    }
    for (size_t i = 0; i < h->n_bounds; i++)
        add(t, "bitnet_%s_bucket{%sle=\"%g\"} %" PRIu64 "\n", name, label, h->bounds[i], v.upto[i]);
    add(t, "bitnet_%s_bucket{%sle=\"+Inf\"} %" PRIu64 "\n", name, label, v.n);
    add(t, "bitnet_%s_sum%s %.9f\nbitnet_%s_count%s %" PRIu64 "\n", name, only, v.sum, name, only,
        v.n);
}

static void histogram(text *t, const char *name, const char *help, const srv_histogram *h)
{
    head(t, name, "histogram", help);
    histogram_lines(t, name, NULL, h);
}

static void status_lines(text *t, const srv_route_counts *r, uint64_t errors[3])
{
    for (size_t i = 0; i < srv_n_statuses(); i++) {
        uint64_t n = atomic_load(&r->by_status[i]);
        int status = srv_status_at(i);
        if (!n)
            continue;
        errors[0] += status == 499 ? n : 0;
        errors[1] += status >= 400 && status < 499 ? n : 0;
        errors[2] += status >= 500 || status == 0 ? n : 0;
        add(t, "bitnet_requests_total{route=\"%s\",status=\"", r->path);
        if (status)
            add(t, "%d\"} %" PRIu64 "\n", status, n);
        else
            add(t, "other\"} %" PRIu64 "\n", n);
    }
}

static void requests(text *t, const srv_metrics *m)
{
    uint64_t errors[3] = {0};
    count_line(t, "requests_received_total", "Requests that were begun.", atomic_load(&m->n_begun));
    gauge_line(t, "requests_active", "Requests that are being answered.",
               (double)atomic_load(&m->n_active));
    head(t, "requests_total", "counter",
         "Requests that have ended, by path and HTTP status; 499: the client went away.");
    for (size_t i = 0; i < m->n_routes; i++)
        status_lines(t, &m->routes[i], errors);
    head(t, "errors_total", "counter", "Requests that failed: whose doing it was.");
    add(t, "bitnet_errors_total{kind=\"cancelled\"} %" PRIu64 "\n", errors[0]);
    add(t, "bitnet_errors_total{kind=\"client\"} %" PRIu64 "\n", errors[1]);
    add(t, "bitnet_errors_total{kind=\"server\"} %" PRIu64 "\n", errors[2]);
    head(t, "request_duration_seconds", "histogram", "From the request to the end of its reply.");
    for (size_t i = 0; i < m->n_routes; i++) {
        srv_histogram_values v;
        srv_histogram_read(&m->routes[i].seconds, &v);
        if (v.n) /* of a path that nobody asked for there are no buckets */
            histogram_lines(t, "request_duration_seconds", m->routes[i].path,
                            &m->routes[i].seconds);
    }
}

static void tokens(text *t, const srv_metrics *m)
{
    count_line(t, "tokens_generated_total", "Tokens sent in answers.", atomic_load(&m->n_tokens));
    histogram(t, "time_to_first_token_seconds", "From a prompt's being queued to its first token.",
              &m->first_token);
    histogram(t, "time_per_token_seconds", "Between one token of an answer and the next.",
              &m->token);
    histogram(t, "inference_duration_seconds", "A job, from its queue to its last token.",
              &m->inference);
    histogram(t, "model_load_duration_seconds", "Loading a model.", &m->model_load);
}

/* ---- models ---- */

typedef struct model_figures {
    char name[SRV_MODEL_NAME_MAX];
    srv_model_state state;
    bool known; /* the rest is filled */
    srv_load load;
    uint64_t n_bytes, gpu_bytes;
} model_figures;

static void read_model(srv_models *models, model_figures *f)
{
    bitnet_stats stats;
    srv_model *model = srv_model_peek(models, f->name);
    if (!model)
        return;
    srv_scheduler_load(model->scheduler, &f->load);
    bitnet_stats_init(&stats);
    if (bitnet_engine_stats(model->engine, &stats, NULL) == BITNET_OK)
        f->gpu_bytes = stats.precision.memory_allocated;
    f->n_bytes = model->info->n_file_bytes + f->load.kv.n_blocks * f->load.kv.block_bytes;
    f->known = true;
    srv_model_looked(models, model);
}

static size_t read_models(srv_models *models, model_figures *all)
{
    srv_model_row row;
    size_t n = 0;
    for (; n < MODELS_MAX && srv_models_at(models, n, &row); n++) {
        all[n] = (model_figures){.state = row.state};
        memcpy(all[n].name, row.name, sizeof all[n].name);
        read_model(models, &all[n]);
    }
    return n;
}

/* One series: what it is called, and what of a model it shows. */
typedef struct series {
    const char *name, *type, *help;
    double (*of)(const model_figures *f);
} series;

#define SERIES_MAP(X)                                                                              \
    X(queue_length, "gauge", "Jobs that wait for a slot.", f->load.n_queued)                       \
    X(queue_limit, "gauge", "Jobs that may wait; more are refused.", f->load.max_queued)           \
    X(slots, "gauge", "Continuations that can be computed at a time.", f->load.max_active)         \
    X(slots_active, "gauge", "Continuations that are computed.", f->load.n_active)                 \
    X(slots_prompting, "gauge", "Of these, the ones that read their prompt.", f->load.n_prompting) \
    X(tokens_per_second, "gauge", "Tokens generated, over the last seconds.",                      \
      f->load.tokens_per_s)                                                                        \
    X(step_seconds, "gauge", "A step of all slots, recent median.", f->load.step_ms / 1e3)         \
    X(steps_total, "counter", "Steps that were computed.", f->load.n_steps)                        \
    X(jobs_total, "counter", "Jobs that have ended.", f->load.n_jobs)                              \
    X(jobs_cancelled_total, "counter", "Jobs that were cancelled.", f->load.n_cancelled)           \
    X(jobs_failed_total, "counter", "Jobs that failed.", f->load.n_failed)                         \
    X(prompt_tokens_total, "counter", "Tokens of prompts, computed or found in the cache.",        \
      f->load.n_prompt_tokens + f->load.n_cached_tokens)                                           \
    X(prompt_tokens_cached_total, "counter", "Of these, those found in the cache.",                \
      f->load.n_cached_tokens)                                                                     \
    X(decode_tokens_total, "counter", "Tokens chosen, sent or not.", f->load.n_tokens)             \
    X(kv_blocks, "gauge", "Blocks of the key/value cache.", f->load.kv.n_blocks)                   \
    X(kv_blocks_used, "gauge", "Blocks that running jobs hold.", f->load.kv.n_used)                \
    X(kv_blocks_cached, "gauge", "Blocks that only the prefix cache keeps.", f->load.kv.n_cached)  \
    X(kv_usage_ratio, "gauge", "Share of the blocks that running jobs hold.",                      \
      f->load.kv.n_blocks ? (double)f->load.kv.n_used / (double)f->load.kv.n_blocks : 0)           \
    X(kv_evictions_total, "counter", "Sessions that lost blocks to others.",                       \
      f->load.kv.n_evictions)                                                                      \
    X(prefix_lookups_total, "counter", "Prompts looked for in the prefix cache.",                  \
      f->load.kv.n_prefix_lookups)                                                                 \
    X(prefix_hits_total, "counter", "Prompts whose beginning was found there.",                    \
      f->load.kv.n_prefix_hits)                                                                    \
    X(prefix_hit_tokens_total, "counter", "Tokens that need not be computed because of that.",     \
      f->load.kv.n_prefix_tokens)                                                                  \
    X(model_memory_usage_bytes, "gauge", "Weights as in the file, and the key/value cache.",       \
      f->n_bytes)                                                                                  \
    X(gpu_memory_usage_bytes, "gauge", "Memory taken on the GPU; 0 on a CPU.", f->gpu_bytes)

#define SERIES_OF(name, type, help, value)                                                         \
    static double name##_of(const model_figures *f)                                                \
    {                                                                                              \
        return (double)(value);                                                                    \
    }
SERIES_MAP(SERIES_OF)

static const series all_series[] = {
#define SERIES_ROW(name, type, help, value) {#name, type, help, name##_of},
    SERIES_MAP(SERIES_ROW)};

static void model_line(text *t, const char *name, const char *model, double value)
{
    add(t, "bitnet_%s{model=\"", name);
    add_label(t, model);
    add(t, "\"} %.15g\n", value);
}

static void models(text *t, srv_models *of)
{
    model_figures *all = calloc(MODELS_MAX, sizeof *all);
    size_t n = of && all ? read_models(of, all) : 0;
    t->failed |= all == NULL;
    head(t, "model_loaded", "gauge", "1: loaded; 0: known by name, loading, or broken.");
    for (size_t i = 0; i < n; i++)
        model_line(t, "model_loaded", all[i].name, all[i].state == SRV_LOADED);
    for (size_t s = 0; s < sizeof all_series / sizeof *all_series; s++) {
        head(t, all_series[s].name, all_series[s].type, all_series[s].help);
        for (size_t i = 0; i < n; i++)
            if (all[i].known)
                model_line(t, all_series[s].name, all[i].name, all_series[s].of(&all[i]));
    }
    free(all);
}

/* ---- the process ---- */

static void process(text *t, const srv_server *server)
{
    bitnet_host_memory memory = {0};
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    if (bitnet_host_memory_read(&memory, NULL) == BITNET_OK)
        gauge_line(t, "memory_usage_bytes", "Resident bytes of the process.",
                   (double)memory.process_bytes);
    gauge_line(t, "cpu_usage_percent", "Of one CPU, since the scrape before.",
               srv_metrics_cpu(server->metrics));
    head(t, "cpu_seconds_total", "counter", "CPU time of the process.");
    add(t, "bitnet_cpu_seconds_total %.3f\n", (double)used.tv_sec + (double)used.tv_nsec / 1e9);
    gauge_line(t, "start_time_seconds", "When the server began, since 1970.",
               (double)server->started);
    head(t, "build_info", "gauge", "The version, as a label.");
    add(t, "bitnet_build_info{version=\"%s\"} 1\n", bitnet_version());
}

/* What is sent, to be freed; NULL: out of memory. */
static char *whole_text(const srv_server *server, size_t *n_bytes)
{
    text t = {0};
    requests(&t, server->metrics);
    tokens(&t, server->metrics);
    models(&t, server->models);
    process(&t, server);
    if (t.failed) {
        free(t.data);
        return NULL;
    }
    *n_bytes = t.n;
    return t.data;
}

void srv_get_metrics(srv_exchange *x)
{
    size_t n = 0;
    char *body = whole_text(srv_server_of(x), &n);
    if (body)
        srv_reply_bytes(x, 200, "text/plain; version=0.0.4; charset=utf-8", body, n);
    else
        srv_fail(x, 503, "out_of_memory", NULL, "no memory for the figures; try again");
    free(body);
}
