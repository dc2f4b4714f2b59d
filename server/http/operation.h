/* operation.h - routes for those who run the server. */
#ifndef SRV_OPERATION_H
#define SRV_OPERATION_H

#include "http/exchange.h"

/* GET /metrics. */
void srv_get_metrics(srv_exchange *x);

#endif
