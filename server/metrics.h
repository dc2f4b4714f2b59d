/* metrics.h - what /metrics and /v1/stats tell: counters and histograms, updated by any thread. */
#ifndef SRV_METRICS_H
#define SRV_METRICS_H

#include <stddef.h>

typedef struct srv_metrics srv_metrics;

srv_metrics *srv_metrics_open(void); /* NULL: out of memory */
void srv_metrics_close(srv_metrics *m);
/* A request has come in; it has ended with this HTTP status (499: the client went away). */
void srv_metrics_begin(srv_metrics *m, const char *route);
void srv_metrics_end(srv_metrics *m, const char *route, int status, double seconds);
/* The first token of an answer came after so many seconds; another one after so many. */
void srv_metrics_first_token(srv_metrics *m, double seconds);
void srv_metrics_token(srv_metrics *m, double seconds);

#endif
