/* operation.h - routes for those who run the server. */
#ifndef SRV_OPERATION_H
#define SRV_OPERATION_H

#include "exchange.h"

/* GET /metrics. */
void srv_get_metrics(srv_exchange *x);
/* What it sends, to be freed; NULL: out of memory. */
char *srv_metrics_text(const srv_server *server, size_t *n_bytes);

#endif
