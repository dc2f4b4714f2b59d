/* routes.c - from method and path to a handler. Hides how patterns are compared. */
#include "http/routes.h"

#include <stdio.h>
#include <string.h>

#ifndef SRV_ROUTES_GIVEN /* a test has rows of its own */
#define ROUTE(method, path, handler, ...) void handler(srv_exchange *x);
#include "http/routes.inc"
#undef ROUTE
#endif

static const srv_route routes[] = {
#define ROUTE(method, path, handler, api, access, summary)                                         \
    {method, path, handler, api, SRV_##access, summary},
#ifdef SRV_ROUTES_GIVEN
    SRV_ROUTES_GIVEN
#else
#include "http/routes.inc"
#endif
#undef ROUTE
};

enum { N_ROUTES = sizeof routes / sizeof *routes };

/* True if the pattern is the path; *part: what stands for its {id}. */
static bool matches(const char *pattern, const char *path, const char **part)
{
    const char *brace = strchr(pattern, '{');
    size_t n = brace ? (size_t)(brace - pattern) : strlen(pattern);
    if (strncmp(pattern, path, n) != 0)
        return false;
    *part = path + n;
    return brace ? path[n] != '\0' && !strchr(path + n, '/') : path[n] == '\0';
}

static bool serves(const srv_route *r, const char *method)
{
    return strcmp(r->method, method) == 0 ||
           (strcmp(method, "HEAD") == 0 && strcmp(r->method, "GET") == 0);
}

const srv_route *srv_route_find(const char *method, const char *path, const char **part)
{
    const srv_route *found = NULL;
    const char *candidate;
    *part = "";
    for (size_t i = 0; i < N_ROUTES; i++) {
        if (!serves(&routes[i], method) || !matches(routes[i].path, path, &candidate))
            continue;
        if (found && strchr(routes[i].path, '{')) /* a whole name beats a pattern */
            continue;
        found = &routes[i];
        *part = candidate;
    }
    return found;
}

bool srv_route_methods(const char *path, char *buf, size_t cap)
{
    const char *part;
    size_t n = 0;
    bool found = false;
    for (size_t i = 0; i < N_ROUTES; i++) {
        if (!matches(routes[i].path, path, &part))
            continue;
        bool get = strcmp(routes[i].method, "GET") == 0;
        found = true;
        n += (size_t)snprintf(buf + n, cap - n, "%s%s, ", routes[i].method, get ? ", HEAD" : "");
        n = n < cap ? n : cap - 1;
    }
    if (found)
        snprintf(buf + n, cap - n, "OPTIONS");
    return found;
}

srv_api srv_route_api(const char *path)
{
    const char *part;
    for (size_t i = 0; i < N_ROUTES; i++) /* another method of the path */
        if (matches(routes[i].path, path, &part) && !strchr(routes[i].path, '{'))
            return routes[i].api;
    if (strncmp(path, "/v1/messages", 12) == 0)
        return SRV_ANTHROPIC;
    if (strncmp(path, "/api/", 5) == 0)
        return SRV_OLLAMA;
    return strncmp(path, "/v1/", 4) == 0 ? SRV_OPENAI : SRV_NATIVE;
}
