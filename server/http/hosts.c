/* hosts.c - from which pages a browser may call. A page of a stranger can reach a server on this
 * machine in two ways: under its own name, which it lets point here (then Host is that name), or
 * across origins (then Origin is that page's). Both are refused unless they were allowed. */
#include <string.h>
#include <strings.h>

#include "http/http.h"

/* Bytes of the host in "host:port" or "[::1]:port". */
static size_t host_length(const char *host)
{
    if (host[0] == '[') {
        const char *end = strchr(host, ']');
        return end ? (size_t)(end + 1 - host) : strlen(host);
    }
    return strcspn(host, ":");
}

static bool same_name(const char *host, size_t n, const char *name)
{
    return strlen(name) == n && strncasecmp(host, name, n) == 0;
}

/* Also "::1" for "[::1]". */
static bool is_bound(const srv_http *h, const char *host, size_t n)
{
    size_t k = strlen(h->bound_host);
    bool bracketed = n == k + 2 && host[0] == '[' && host[n - 1] == ']' &&
                     strncasecmp(host + 1, h->bound_host, k) == 0;
    return k && (bracketed || same_name(host, n, h->bound_host));
}

static bool is_listed(const srv_config *c, const char *host, size_t n)
{
    for (size_t i = 0; i < c->n_hosts; i++)
        if (strcmp(c->hosts[i], "*") == 0 || same_name(host, n, c->hosts[i]))
            return true;
    return false;
}

bool srv_host_allowed(const srv_http *h, const char *host)
{
    static const char *const local[] = {"localhost", "127.0.0.1", "[::1]"};
    if (h->is_unix || (!h->is_loopback && !h->server->config->n_hosts))
        return true;
    size_t n = host_length(host);
    for (size_t i = 0; i < sizeof local / sizeof *local; i++)
        if (same_name(host, n, local[i]))
            return true;
    return is_bound(h, host, n) || is_listed(h->server->config, host, n);
}

bool srv_cors_allows(const srv_config *config, const char *origin)
{
    return config->cors &&
           (strcmp(config->cors, "*") == 0 || strcasecmp(config->cors, origin) == 0);
}

bool srv_origin_allowed(const srv_http *h, const char *origin, const char *host)
{
    const char *colon = strstr(origin, "://");
    const char *name = colon ? colon + 3 : origin;
    if (srv_cors_allows(h->server->config, origin))
        return true;
    if (colon && host && strcasecmp(name, host) == 0) /* its own page */
        return true;
    return colon && is_listed(h->server->config, name, host_length(name));
}
