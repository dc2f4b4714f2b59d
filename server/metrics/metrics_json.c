/* metrics_json.c - the counters as JSON, for /v1/stats. */
#include "metrics/metrics_impl.h"

static json_t *number(uint64_t n)
{
    return json_integer((json_int_t)n);
}

static json_t *times_json(const srv_histogram *h)
{
    srv_histogram_values v;
    srv_histogram_read(h, &v);
    return json_pack("{s:o, s:f, s:f, s:f}", "count", number(v.n), "mean",
                     v.n ? v.sum / (double)v.n : 0.0, "p50", srv_histogram_quantile(h, 0.5), "p99",
                     srv_histogram_quantile(h, 0.99));
}

/* Requests that ended with a status from low to high. */
static uint64_t ended_between(const srv_route_counts *r, int low, int high)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < srv_n_statuses(); i++)
        if (srv_status_at(i) >= low && srv_status_at(i) <= high)
            sum += atomic_load(&r->by_status[i]);
    return sum;
}

/* Paths that were asked for, with how often, and how often in vain. */
static json_t *routes_json(const srv_metrics *m, uint64_t *errors)
{
    json_t *all = json_object();
    for (size_t i = 0; i < m->n_routes; i++) {
        const srv_route_counts *r = &m->routes[i];
        uint64_t n = ended_between(r, 0, 999), failed = ended_between(r, 400, 599);
        *errors += failed;
        if (n)
            json_object_set_new(
                all, r->path,
                json_pack("{s:o, s:o}", "requests", number(n), "errors", number(failed)));
    }
    return all;
}

json_t *srv_metrics_json(const srv_metrics *m)
{
    uint64_t errors = 0, ended = atomic_load(&m->n_ended), begun = atomic_load(&m->n_begun);
    json_t *routes = routes_json(m, &errors);
    return json_pack("{s:{s:o, s:o, s:o, s:o}, s:o, s:o, s:o, s:o, s:o, s:o}", "requests",
                     "received", number(begun), "active", number(atomic_load(&m->n_active)),
                     "ended", number(ended), "errors", number(errors), "routes", routes,
                     "tokens_generated", number(atomic_load(&m->n_tokens)),
                     "time_to_first_token_seconds", times_json(&m->first_token),
                     "time_per_token_seconds", times_json(&m->token), "inference_seconds",
                     times_json(&m->inference), "model_load_seconds", times_json(&m->model_load));
}
