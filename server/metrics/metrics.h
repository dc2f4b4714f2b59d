/* metrics.h - what /metrics and /v1/stats tell: counters and histograms, updated by any thread.
 * Every update is a few atomic additions; labels are paths of routes.inc and known statuses, so the
 * number of series does not depend on what clients send. No text of a request is ever in them. */
#ifndef SRV_METRICS_H
#define SRV_METRICS_H

#include <jansson.h>
#include <stddef.h>

typedef struct srv_metrics srv_metrics;

srv_metrics *srv_metrics_open(void); /* NULL: out of memory */
void srv_metrics_close(srv_metrics *m);
/* A request has come in; it has ended with this HTTP status (499: the client went away). `route` is
 * a path as routes.inc has it; any other, and NULL, counts as "other". */
void srv_metrics_begin(srv_metrics *m, const char *route);
void srv_metrics_end(srv_metrics *m, const char *route, int status, double seconds);
/* The first token of an answer came after so many seconds; another one after so many. */
void srv_metrics_first_token(srv_metrics *m, double seconds);
void srv_metrics_token(srv_metrics *m, double seconds);
/* A job was computed, from its queue to its last token, in so many seconds. */
void srv_metrics_inference(srv_metrics *m, double seconds);
/* A model was loaded in so many seconds. */
void srv_metrics_model_load(srv_metrics *m, double seconds);
/* The figures of /v1/stats: requests (received, active, by status class, by route), tokens, times
 * (mean, p50, p99 as the histograms know them, in seconds). A new reference; NULL: out of memory.
 */
json_t *srv_metrics_json(const srv_metrics *m);

#endif
