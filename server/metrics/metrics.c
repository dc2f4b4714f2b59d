/* metrics.c - the counters behind /metrics and /v1/stats: what is counted, and in which buckets. */
#include "metrics/metrics_impl.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const paths[] = {
#define ROUTE(method, path, ...) path,
#include "http/routes.inc"
#undef ROUTE
    "other",
};

static const int statuses[] = {200, 201, 202, 204, 304, 400, 401, 403, 404, 405, 408, 409, 411,
                               413, 414, 415, 422, 429, 431, 499, 500, 501, 503, 504, 0};

static const double request_bounds[] = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
                                        2.5,   5,    10,    30,   60,  120,  300};
static const double first_bounds[] = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                      1,     2.5,  5,     10,   30,  60};
static const double token_bounds[] = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075,
                                      0.1,    0.15,  0.2,    0.3,   0.5,  1,     2.5};

#define COUNT(array) (sizeof(array) / sizeof *(array))

size_t srv_n_statuses(void)
{
    return COUNT(statuses);
}

int srv_status_at(size_t i)
{
    return statuses[i];
}

/* ---- histograms ---- */

static void histogram_init(srv_histogram *h, const double *bounds, size_t n_bounds)
{
    h->bounds = bounds;
    h->n_bounds = n_bounds;
}

static void histogram_add(srv_histogram *h, double seconds)
{
    size_t i = 0;
    if (!(seconds >= 0)) /* a clock that is no clock */
        seconds = 0;
    if (seconds > 1e6)
        seconds = 1e6;
    while (i < h->n_bounds && seconds > h->bounds[i])
        i++;
    atomic_fetch_add_explicit(&h->counts[i], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&h->sum_ns, (uint64_t)(seconds * 1e9), memory_order_relaxed);
}

void srv_histogram_read(const srv_histogram *h, srv_histogram_values *out)
{
    *out = (srv_histogram_values){0};
    for (size_t i = 0; i <= h->n_bounds; i++) {
        out->n += atomic_load_explicit(&h->counts[i], memory_order_relaxed);
        out->upto[i] = out->n;
    }
    out->sum = (double)atomic_load_explicit(&h->sum_ns, memory_order_relaxed) / 1e9;
}

double srv_histogram_quantile(const srv_histogram *h, double q)
{
    srv_histogram_values v;
    srv_histogram_read(h, &v);
    double want = q * (double)v.n;
    for (size_t i = 0; i < h->n_bounds; i++) {
        double before = i ? (double)v.upto[i - 1] : 0, low = i ? h->bounds[i - 1] : 0;
        if (v.n && (double)v.upto[i] >= want && (double)v.upto[i] > before)
            return low + (h->bounds[i] - low) * (want - before) / ((double)v.upto[i] - before);
    }
    return v.n ? h->bounds[h->n_bounds - 1] : 0;
}

/* ---- opening ---- */

/* A path may stand in routes.inc with several methods: it has one series. */
static bool already(const srv_metrics *m, const char *path)
{
    for (size_t i = 0; i < m->n_routes; i++)
        if (strcmp(m->routes[i].path, path) == 0)
            return true;
    return false;
}

static bool open_routes(srv_metrics *m)
{
    m->routes = calloc(COUNT(paths), sizeof *m->routes);
    for (size_t i = 0; m->routes && i < COUNT(paths); i++) {
        srv_route_counts *r = &m->routes[m->n_routes];
        if (already(m, paths[i]))
            continue;
        r->path = paths[i];
        histogram_init(&r->seconds, request_bounds, COUNT(request_bounds));
        r->by_status = calloc(COUNT(statuses), sizeof *r->by_status);
        m->n_routes++;
        if (!r->by_status)
            return false;
    }
    return m->routes != NULL;
}

srv_metrics *srv_metrics_open(void)
{
    srv_metrics *m = calloc(1, sizeof *m);
    if (!m || !open_routes(m)) {
        srv_metrics_close(m);
        return NULL;
    }
    histogram_init(&m->first_token, first_bounds, COUNT(first_bounds));
    histogram_init(&m->token, token_bounds, COUNT(token_bounds));
    histogram_init(&m->inference, request_bounds, COUNT(request_bounds));
    histogram_init(&m->model_load, request_bounds, COUNT(request_bounds));
    return m;
}

void srv_metrics_close(srv_metrics *m)
{
    for (size_t i = 0; m && i < m->n_routes; i++)
        free(m->routes[i].by_status);
    if (m)
        free(m->routes);
    free(m);
}

/* ---- counting ---- */

static srv_route_counts *route_of(srv_metrics *m, const char *path)
{
    for (size_t i = 0; path && i + 1 < m->n_routes; i++)
        if (m->routes[i].path == path || strcmp(m->routes[i].path, path) == 0)
            return &m->routes[i];
    return &m->routes[m->n_routes - 1];
}

static size_t status_index(int status)
{
    size_t i = 0;
    while (statuses[i] && statuses[i] != status)
        i++;
    return i;
}

void srv_metrics_begin(srv_metrics *m, const char *route)
{
    (void)route;
    atomic_fetch_add_explicit(&m->n_begun, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&m->n_active, 1, memory_order_relaxed);
}

void srv_metrics_end(srv_metrics *m, const char *route, int status, double seconds)
{
    srv_route_counts *r = route_of(m, route);
    atomic_fetch_add_explicit(&r->by_status[status_index(status)], 1, memory_order_relaxed);
    histogram_add(&r->seconds, seconds);
    atomic_fetch_add_explicit(&m->n_ended, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&m->n_active, 1, memory_order_release);
}

void srv_metrics_first_token(srv_metrics *m, double seconds)
{
    histogram_add(&m->first_token, seconds);
    atomic_fetch_add_explicit(&m->n_tokens, 1, memory_order_relaxed);
}

void srv_metrics_token(srv_metrics *m, double seconds)
{
    histogram_add(&m->token, seconds);
    atomic_fetch_add_explicit(&m->n_tokens, 1, memory_order_relaxed);
}

void srv_metrics_inference(srv_metrics *m, double seconds)
{
    histogram_add(&m->inference, seconds);
}

void srv_metrics_model_load(srv_metrics *m, double seconds)
{
    histogram_add(&m->model_load, seconds);
}

/* ---- the process ---- */

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

double srv_metrics_cpu(srv_metrics *m)
{
    uint64_t now = clock_ns(CLOCK_MONOTONIC), used = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    uint64_t before = atomic_load(&m->cpu_at_ns), used_before = atomic_load(&m->cpu_ns);
    /* whoever moves the time on measures; another one at the same moment reads what was measured */
    if (now - before > 500000000u && atomic_compare_exchange_strong(&m->cpu_at_ns, &before, now)) {
        atomic_store(&m->cpu_ns, used);
        if (before)
            atomic_store(&m->cpu_percent,
                         100.0 * (double)(used - used_before) / (double)(now - before));
    }
    return atomic_load(&m->cpu_percent);
}
