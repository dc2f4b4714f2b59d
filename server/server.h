/* server.h - everything that lives as long as the process: what the parts of the server share. */
#ifndef SRV_SERVER_H
#define SRV_SERVER_H

#include "config.h"
#include "metrics.h"
#include "models.h"
#include "receipts.h"

struct srv_server {
    const srv_config *config;
    srv_models *models;
    srv_metrics *metrics;
    srv_receipts *receipts;
    int64_t started; /* seconds since 1970 */
};

#endif
