/* native_read.h - a request of the server's own inference API as an ask. */
#ifndef SRV_NATIVE_READ_H
#define SRV_NATIVE_READ_H

#include "ask/ask.h"

typedef struct srv_inference {
    srv_ask ask;
    json_t *sampling; /* the fields with the defaults of this API, made */
    double timeout_ms;
    bool detailed_errors;
} srv_inference;

/* Reads the body. `timeout_s`: of a request that names none; 0: none. False: the client has been
 * told. _free in any case. */
bool srv_inference_read(srv_exchange *x, double timeout_s, srv_inference *r);
void srv_inference_free(srv_inference *r);

#endif
