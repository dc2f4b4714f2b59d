/* metrics_impl.h - how the counters lie in memory, for the files that write them out. */
#ifndef SRV_METRICS_IMPL_H
#define SRV_METRICS_IMPL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "metrics/metrics.h"

enum { SRV_BUCKETS_MAX = 16 };

typedef _Atomic uint64_t srv_count;

/* Values at most bounds[i] and above the one before are in counts[i]; the last count has the rest.
 * So the number of values is the sum of the counts, whenever they are read. */
typedef struct srv_histogram {
    const double *bounds; /* ascending seconds */
    size_t n_bounds;
    srv_count counts[SRV_BUCKETS_MAX + 1];
    srv_count sum_ns;
} srv_histogram;

/* What is kept for one path. */
typedef struct srv_route_counts {
    const char *path;
    srv_count *by_status; /* [srv_n_statuses()] */
    srv_histogram seconds;
} srv_route_counts;

struct srv_metrics {
    srv_route_counts *routes; /* the last one is "other" */
    size_t n_routes;
    srv_count n_begun, n_ended;
    srv_count n_active; /* not their difference: requests begin and end between two reads */
    srv_count n_tokens;
    srv_histogram first_token, token, inference, model_load;
    _Atomic double cpu_percent; /* of the last time somebody looked */
    srv_count cpu_ns, cpu_at_ns;
};

/* The statuses that have series of their own; the last one, 0, stands for all others. */
size_t srv_n_statuses(void);
int srv_status_at(size_t i);

/* A histogram as numbers that belong together. */
typedef struct srv_histogram_values {
    uint64_t n, upto[SRV_BUCKETS_MAX + 1]; /* upto[i]: values at most bounds[i] */
    double sum;
} srv_histogram_values;
void srv_histogram_read(const srv_histogram *h, srv_histogram_values *out);
/* The value below which the share q of all lie, within its bucket in proportion; 0 without any. */
double srv_histogram_quantile(const srv_histogram *h, double q);
/* Percent of one CPU that the process used since the last call of half a second ago or longer. */
double srv_metrics_cpu(srv_metrics *m);

#endif
