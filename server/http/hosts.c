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

/* Ports do not count, in the list as in what clients send. */
static bool is_listed(const srv_config *c, const char *host, size_t n)
{
    for (size_t i = 0; i < c->n_hosts; i++) {
        const char *listed = c->hosts[i];
        bool same = host_length(listed) == n && strncasecmp(listed, host, n) == 0;
        if (same || strcmp(listed, "*") == 0)
            return true;
    }
    return false;
}

const char *srv_hosts_wrong(const srv_config *c)
{
    for (size_t i = 0; i < c->n_hosts; i++) {
        const char *host = c->hosts[i];
        size_t n = host_length(host), rest = strlen(host + n);
        bool port = rest == 0 || (rest > 1 && strspn(host + n + 1, "0123456789") == rest - 1);
        bool any = strcmp(host, "*") == 0;
        if (!any && (!n || !port || strcspn(host, "/?#@* \t,") != strlen(host)))
            return host;
    }
    return NULL;
}

/* A name that points nowhere else than it says. */
static bool is_address(const char *host, size_t n)
{
    bool v6 = n > 2 && host[0] == '[' && strspn(host + 1, "0123456789abcdefABCDEF:.") == n - 2;
    return (v6 && host[n - 1] == ']') || (n > 0 && strspn(host, "0123456789.") == n);
}

/* An address, or a name without a dot: no stranger's page has such a name. */
static bool is_never_a_strangers(const char *host, size_t n)
{
    return is_address(host, n) || (n > 0 && !memchr(host, '.', n));
}

/* Beyond loopback without a list any name will do where a key is asked for: such a page has none.
 */
bool srv_host_allowed(const srv_http *h, const char *host)
{
    const srv_config *c = h->server->config;
    size_t n = host_length(host);
    bool any = c->n_keys > 0 && c->n_hosts == 0;
    if (h->is_unix || (!h->is_loopback && (any || is_never_a_strangers(host, n))))
        return true;
    return is_address(host, n) || same_name(host, n, "localhost") || is_bound(h, host, n) ||
           is_listed(c, host, n);
}

/* ---- origins that may call ---- */

/* The next origin of a list with commas: its bytes; 0: there are no more. */
static size_t next_origin(const char **list)
{
    *list += strspn(*list, ", ");
    return strcspn(*list, ", ");
}

/* scheme://host or scheme://host:port, as browsers write it, or "*". */
static bool is_origin(const char *s, size_t n)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-";
    size_t scheme = strspn(s, letters), host = scheme + 3;
    if (n == 1 && s[0] == '*')
        return true;
    return scheme > 0 && n > host && memcmp(s + scheme, "://", 3) == 0 &&
           host + strcspn(s + host, "/?#@*") >= n;
}

bool srv_cors_is_valid(const char *list, const char **bad, size_t *n_bad)
{
    size_t n;
    for (; list && (n = next_origin(&list)) > 0; list += n)
        if (!is_origin(list, n)) {
            *bad = list;
            *n_bad = n;
            return false;
        }
    return true;
}

bool srv_cors_allows(const srv_config *config, const char *origin)
{
    const char *list = config->cors;
    size_t n;
    for (; list && (n = next_origin(&list)) > 0; list += n)
        if (same_name(list, n, "*") || same_name(list, n, origin))
            return true;
    return false;
}

bool srv_origin_allowed(const srv_http *h, const char *origin, const char *host)
{
    const char *colon = strstr(origin, "://");
    const char *name = colon ? colon + 3 : origin;
    bool own = colon && host && strcasecmp(name, host) == 0; /* its own page */
    return own || srv_cors_allows(h->server->config, origin);
}
