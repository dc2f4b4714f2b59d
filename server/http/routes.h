/* routes.h - the list of routes.inc as data: dispatch and /openapi.json read it. */
#ifndef SRV_ROUTES_H
#define SRV_ROUTES_H

#include "http/exchange.h"

/* Who may call a route. */
typedef enum srv_access { SRV_OPEN, SRV_KEY } srv_access;

typedef struct srv_route {
    const char *method, *path; /* path may end in "{id}" */
    void (*handler)(srv_exchange *x);
    srv_api api;
    srv_access access;
    const char *summary;
} srv_route;

/* The row for a method (HEAD is GET) and a path as it came, without its query. *part is what stands
 * in place of {id}, still encoded, or "". NULL: there is none. */
const srv_route *srv_route_find(const char *method, const char *path, const char **part);
/* The methods of a path, "GET, POST, OPTIONS", cut at cap; false: no method has it. */
bool srv_route_methods(const char *path, char *buf, size_t cap);
/* In whose words a path without a route is refused. */
srv_api srv_route_api(const char *path);

#endif
