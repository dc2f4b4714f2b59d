/* openapi.c - GET /openapi.json: the description of every route, as it lies in server/openapi.json.
 */
#include "native/openapi.h"

#include "http/exchange.h"

void srv_native_openapi(srv_exchange *x);

void srv_native_openapi(srv_exchange *x)
{
    srv_reply_bytes(x, 200, "application/json", srv_openapi, srv_n_openapi);
}
