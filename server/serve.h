/* serve.h - what the command calls: runs the server until it is told to stop. */
#ifndef SRV_SERVE_H
#define SRV_SERVE_H

#include "config.h"

/* Where it listens, told once it does: "http://127.0.0.1:8080". */
typedef void (*srv_ready_fn)(void *user, const char *address, srv_models *models);

/* Loads, listens, serves until `stop` says so (asked several times a second; a signal handler may
 * set what it reads), then drains: running requests finish within drain_s, new ones get 503.
 * Fails: ARGUMENT (a bind beyond loopback without keys), IO (address in use), what loading fails
 * with. */
bitnet_status srv_serve(const srv_config *config, bitnet_cancel_fn stop, void *stop_user,
                        srv_ready_fn ready, void *ready_user, bitnet_error *err);

#endif
