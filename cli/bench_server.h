/* bench_server.h - a server of its own for `bitnet bench --serve`. */
#ifndef BITNET_CLI_BENCH_SERVER_H
#define BITNET_CLI_BENCH_SERVER_H

#include <sys/types.h>

#include "bench.h"
#include "traffic.h"

/* `bitnet serve` as another process, so that its work and the client's are told apart. */
typedef struct own_server {
    pid_t pid; /* 0: none */
    traffic_server at;
} own_server;

/* Starts it with the model file and waits until it answers. */
int own_server_start(const args *a, const char *model, own_server *out);
void own_server_stop(own_server *s);

/* bench --server URL, bench --serve */
int bench_url(const bench_plan *p);
int bench_own(const bench_plan *p);

#endif
