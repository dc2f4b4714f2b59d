/* local.h - requests from inside the process: the same handlers, without HTTP. The reply lands in
 * memory. Nothing asks for a key or counts a rate; limits of the configuration hold. */
#ifndef SRV_LOCAL_H
#define SRV_LOCAL_H

#include "http/exchange.h"

typedef struct srv_local srv_local;

typedef struct srv_local_reply {
    int status;
    char request_id[72];
    char *body; /* NUL-terminated, to be freed; NULL: there was no memory for one */
    size_t n_body;
} srv_local_reply;

/* NULL: out of memory. Close it after all calls. */
srv_local *srv_local_open(srv_server *server);
void srv_local_close(srv_local *l);
/* Runs the handler of method and path on the calling thread. A path without a route gets 404, a
 * reply that would be a stream 400. Its scope is that of a request without a key. False: out of
 * memory. Any thread. */
bool srv_local_call(srv_local *l, const char *method, const char *path, const char *body,
                    size_t n_body, srv_local_reply *reply);

#endif
