/* refuse.h - what several APIs refuse in the same words. All return false. */
#ifndef SRV_REFUSE_H
#define SRV_REFUSE_H

#include "exchange.h"

/* A field that every request must have. */
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

#endif
