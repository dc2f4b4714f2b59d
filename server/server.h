/* server.h - everything that lives as long as the process: what the parts of the server share. */
#ifndef SRV_SERVER_H
#define SRV_SERVER_H

#include <stdatomic.h>

#include "config.h"
#include "metrics/metrics.h"
#include "jobs/models.h"
#include "metrics/receipts.h"
#include "jobs/tellers.h"

struct srv_server {
    const srv_config *config;
    srv_models *models;
    srv_metrics *metrics;
    srv_receipts *receipts;
    srv_tellers *tellers; /* NULL: every request tells its client itself */
    int64_t started;      /* seconds since 1970 */
    atomic_bool unsound;  /* the last look at a loaded model found wrong results */
    atomic_bool ready;    /* the first model is loaded */
    atomic_bool draining; /* told to stop: new requests are refused */
    atomic_bool ending;   /* running ones are told to stop, too */
};

#endif
