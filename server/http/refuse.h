/* refuse.h - what several APIs refuse in the same words. */
#ifndef SRV_REFUSE_H
#define SRV_REFUSE_H

#include "http/exchange.h"

/* A field that every request must have. Returns false, as the next one does. */
static inline bool srv_missing(srv_exchange *x, const char *field)
{
    srv_fail(x, 400, "missing_field", field, "%s: this field is required", field);
    return false;
}

static inline bool srv_no_memory(srv_exchange *x)
{
    srv_fail(x, 503, "out_of_memory", NULL, "there is no memory for this request now");
    return false;
}

/* What a client may hear of a failure in the middle of a stream: messages about its own request;
 * others may name files. */
static inline const char *srv_failure_text(const bitnet_error *err)
{
    bool own = err->status == BITNET_ARGUMENT || err->status == BITNET_CONTEXT ||
               err->status == BITNET_AGAIN;
    return own ? err->message : bitnet_status_text(err->status);
}

#endif
