/* http_gate.c - what is decided about a request from its first line and its headers: whether it is
 * well formed, from where, where to, whose, how often, how large. Its body is read only if all that
 * is in order. */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "http/http.h"
#include "http/short_memory.h"
#include "http/keys.h"

/* ---- taking it in ---- */

static int hex(char c)
{
    return isdigit((unsigned char)c)    ? c - '0'
           : isxdigit((unsigned char)c) ? tolower((unsigned char)c) - 'a' + 10
                                        : -1;
}

/* %41 becomes A; false: a zero byte, or % without two digits. Works in place. */
static bool percent_decode(char *text)
{
    char *out = text;
    for (const char *p = text; *p; p++) {
        if (*p != '%') {
            *out++ = *p;
            continue;
        }
        int high = hex(p[1]), low = high < 0 ? -1 : hex(p[2]);
        if (low < 0 || high * 16 + low == 0)
            return false;
        *out++ = (char)(high * 16 + low);
        p += 2;
    }
    *out = '\0';
    return true;
}

/* An exchange whose headers and query are copied; `whole` while nothing had to be left out for lack
 * of memory. A request of which a part is missing could be another request. */
typedef struct taking {
    srv_exchange *x;
    bool whole;
} taking;

static enum MHD_Result take_header(void *user, enum MHD_ValueKind kind, const char *name,
                                   size_t n_name, const char *value, size_t n_value)
{
    taking *t = user;
    (void)kind;
    (void)n_name;
    t->whole &= srv_pair_add(&t->x->pairs, OF_HEADER, name, value ? value : "", n_value);
    return t->whole ? MHD_YES : MHD_NO;
}

/* What cannot be decoded is left out. */
static enum MHD_Result take_variable(void *user, enum MHD_ValueKind kind, const char *name,
                                     size_t n_name, const char *value, size_t n_value)
{
    taking *t = user;
    char *copy = strndup(value ? value : "", n_value);
    (void)kind;
    (void)n_name;
    t->whole &= copy != NULL;
    if (copy && percent_decode(copy))
        t->whole &= srv_pair_add(&t->x->pairs, OF_QUERY, name, copy, strlen(copy));
    free(copy);
    return t->whole ? MHD_YES : MHD_NO;
}

/* An id of the client's is taken if it is short and plain. */
static void take_id(srv_exchange *x)
{
    static const char *const names[] = {"x-request-id", "X-Client-Request-Id"};
    for (size_t i = 0; i < 2; i++) {
        const char *id = srv_header(x, names[i]);
        size_t n = id ? strlen(id) : 0;
        if (!n || n >= sizeof x->id || n > 64)
            continue;
        for (size_t k = 0; k < n; k++)
            if (!isalnum((unsigned char)id[k]) && !strchr("-_.", id[k]))
                n = 0;
        if (n) {
            memcpy(x->id, id, n + 1);
            return;
        }
    }
}

/* The path of http://host/path, as proxies are asked; the host must be that of the Host header. */
static const char *path_of(srv_exchange *x, const char *url)
{
    if (strncasecmp(url, "http://", 7) != 0)
        return url;
    const char *host = srv_header(x, "Host");
    size_t n = strcspn(url + 7, "/");
    x->other_host = host && (strlen(host) != n || strncasecmp(url + 7, host, n) != 0);
    return url[7 + n] ? url + 7 + n : "/";
}

/* False: there is no memory for a copy of all. */
static bool take_in(srv_exchange *x, const char *url, const char *method)
{
    const char *part = "";
    taking t = {x, true};
    snprintf(x->method, sizeof x->method, "%s", method);
    MHD_get_connection_values_n(x->connection, MHD_HEADER_KIND, take_header, &t);
    MHD_get_connection_values_n(x->connection, MHD_GET_ARGUMENT_KIND, take_variable, &t);
    url = path_of(x, url);
    x->path = strdup(url);
    take_id(x);
    x->api = srv_route_api(url);
    x->route = srv_route_find(method, url, &part);
    if (!x->route)
        x->route = srv_page_route(x->server->config, method, url);
    if (x->route)
        x->api = x->route->api;
    bool has_part = x->route && *part;
    x->part = has_part ? strdup(part) : NULL;
    if (x->part && !percent_decode(x->part))
        x->part[0] = '\0';
    return t.whole && x->path && (x->part || !has_part);
}

/* ---- checks: each returns true, or has refused ---- */

static size_t count_headers(const srv_exchange *x, const char *name)
{
    size_t n = 0;
    for (const pair *p = x->pairs; p; p = p->next)
        n += p->kind == OF_HEADER && strcasecmp(p->name, name) == 0;
    return n;
}

static bool is_token(const char *name)
{
    static const char marks[] = "!#$%&'*+-.^_`|~";
    const char *p = name;
    while (isalnum((unsigned char)*p) || (*p && strchr(marks, *p)))
        p++;
    return p > name && !*p;
}

/* Is a name none, or does it only begin like one that tells a length? So does libmicrohttpd show a
 * header with a blank before its colon, and one that goes on in the next line; a proxy may take
 * them for what they look like. */
static bool has_broken_header(const srv_exchange *x)
{
    static const char *const lengths[] = {"Content-Length", "Transfer-Encoding"};
    for (const pair *p = x->pairs; p; p = p->next) {
        if (p->kind != OF_HEADER)
            continue;
        if (!is_token(p->name))
            return true;
        for (size_t i = 0; i < 2; i++)
            if (strncasecmp(p->name, lengths[i], strlen(lengths[i])) == 0 &&
                p->name[strlen(lengths[i])])
                return true;
    }
    return false;
}

/* Two ways to say where a body ends are one too many: somebody in between may take the other. */
static bool check_framing(srv_exchange *x, const char *version)
{
    const char *encoding = srv_header(x, "Transfer-Encoding");
    size_t n_length = count_headers(x, "Content-Length");
    if (has_broken_header(x))
        srv_fail(
            x, 400, "bad_header", NULL,
            "a header is malformed: a name is followed by its colon, and a value by the end of "
            "its line");
    else if (x->other_host)
        srv_fail(x, 400, "bad_host", NULL, "the address that is asked for is not that of Host");
    else if (n_length > 1 || (encoding && n_length) || count_headers(x, "Transfer-Encoding") > 1)
        srv_fail(x, 400, "bad_framing", NULL,
                 "the length of the body is given more than once (Content-Length, "
                 "Transfer-Encoding)");
    else if (encoding && strcasecmp(encoding, "chunked") != 0)
        srv_fail(x, 501, "unsupported_transfer_encoding", NULL,
                 "Transfer-Encoding must be chunked");
    else if (count_headers(x, "Host") > 1 ||
             (strcmp(version, "HTTP/1.1") == 0 && !srv_header(x, "Host")))
        srv_fail(x, 400, "bad_host", NULL, "a request has exactly one Host header");
    else
        return true;
    x->closes = true;
    return false;
}

/* What a client has sent, where it can be told back. */
static const char *plain(const char *text)
{
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] > '~' || n > 200)
            return "that was sent";
    return n ? text : "that was sent";
}

static bool check_origin(srv_exchange *x)
{
    const char *host = srv_header(x, "Host"), *origin = srv_header(x, "Origin");
    if (host && !srv_host_allowed(x->http, host))
        srv_fail(x, 403, "host_not_allowed", NULL,
                 "this server does not answer to the name %s of the Host header; --allowed-host "
                 "NAME allows one",
                 plain(host));
    else if (origin && !srv_origin_allowed(x->http, origin, host))
        srv_fail(x, 403, "origin_not_allowed", NULL,
                 "pages of this origin may not call; --cors ORIGIN allows one");
    else
        return true;
    return false;
}

/* Names of headers as a preflight lists them, at least one character. */
static bool is_header_list(const char *s)
{
    return *s && strlen(s) < 1024 &&
           s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_, ")] == 0;
}

/* OPTIONS: the methods of a path; for a page of an allowed origin also that it may use them. */
static void reply_options(srv_exchange *x, const char *methods)
{
    const char *origin = srv_header(x, "Origin");
    const char *wanted = srv_header(x, "Access-Control-Request-Headers");
    srv_reply_header(x, "Allow", methods);
    if (origin && srv_cors_allows(x->server->config, origin)) {
        srv_reply_header(x, "Access-Control-Allow-Methods", methods);
        srv_reply_header(x, "Access-Control-Max-Age", "600");
        if (wanted && is_header_list(wanted))
            srv_reply_header(x, "Access-Control-Allow-Headers", wanted);
    }
    srv_reply_bytes(x, 204, NULL, "", 0);
}

static bool check_route(srv_exchange *x)
{
    char methods[128] = "GET, HEAD, OPTIONS";
    if (x->route)
        return true;
    bool known = srv_route_methods(x->path, methods, sizeof methods) ||
                 srv_page_route(x->server->config, "GET", x->path);
    if (strcmp(x->method, "OPTIONS") == 0 && (known || strcmp(x->path, "*") == 0))
        reply_options(x, methods);
    else if (known) {
        srv_reply_header(x, "Allow", methods);
        srv_fail(x, 405, "method_not_allowed", NULL, "this path takes %s", methods);
    } else
        srv_fail(x, 404, "not_found", NULL, "there is no path %s", plain(x->path));
    return false;
}

static bool check_draining(srv_exchange *x)
{
    if (!atomic_load(&x->server->draining) || x->route->access == SRV_OPEN)
        return true;
    x->closes = true;
    srv_fail(x, 503, "shutting_down", NULL,
             "the server is about to end; try another one, or later");
    return false;
}

/* One number for an address; for IPv6 of its first 64 bits, which belong to one owner. */
static uint64_t address_number(const srv_exchange *x)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *a = info ? info->client_addr : NULL;
    uint64_t n = 0;
    if (a && a->sa_family == AF_INET)
        n = ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr);
    if (a && a->sa_family == AF_INET6) {
        const uint8_t *b = ((const struct sockaddr_in6 *)(const void *)a)->sin6_addr.s6_addr;
        bool mapped = memcmp(b, "\0\0\0\0\0\0\0\0\0\0\xff\xff", 12) == 0;
        for (int i = mapped ? 12 : 0; i < (mapped ? 16 : 8); i++)
            n = n << 8 | b[i];
    }
    return n;
}

static bool check_rate(srv_exchange *x, srv_rates *rates, uint64_t who)
{
    char seconds[16];
    int wait_s = srv_rates_take(rates, who, srv_steady_ms());
    if (!wait_s)
        return true;
    snprintf(seconds, sizeof seconds, "%d", wait_s);
    srv_reply_header(x, "Retry-After", seconds);
    srv_fail(x, 429, "rate_limit_exceeded", NULL,
             "too many requests; the next one may come in %d seconds", wait_s);
    return false;
}

static size_t find_key(const srv_exchange *x, const char *given)
{
    return given ? srv_key_find(x->server->config, given, strlen(given)) : 0;
}

/* Clients may send a key of another service in the one header and ours in the other. */
static bool check_key(srv_exchange *x)
{
    const srv_config *c = x->server->config;
    const char *bearer = srv_key_bearer(srv_header(x, "Authorization"));
    const char *other = srv_header(x, "x-api-key"), *given = bearer ? bearer : other;
    size_t first = find_key(x, bearer), second = find_key(x, other);
    x->key = first ? first : second;
    if (!c->n_keys || x->key || x->route->access == SRV_OPEN)
        return true;
    srv_reply_header(x, "WWW-Authenticate", "Bearer");
    srv_fail(x, 401, "invalid_api_key", NULL,
             given ? "this API key is not known here"
                   : "an API key is needed: Authorization: Bearer KEY, or x-api-key: KEY");
    return false;
}

static bool check_length(srv_exchange *x)
{
    const char *length = srv_header(x, "Content-Length");
    size_t most = x->server->config->max_body;
    errno = 0;
    unsigned long long n = length ? strtoull(length, NULL, 10) : 0;
    if (n <= most && errno == 0)
        return true;
    srv_fail(x, 413, "body_too_large", NULL, "the body may have at most %zu bytes", most);
    return false;
}

static bool check_all(srv_exchange *x, const char *version)
{
    if (!check_framing(x, version) || !check_origin(x))
        return false;
    if (!x->route || x->route->access == SRV_KEY)
        if (!check_rate(x, x->http->by_address, address_number(x)))
            return false;
    if (!check_route(x) || !check_draining(x) || !check_key(x))
        return false;
    if (x->key && !check_rate(x, x->http->by_key, x->key))
        return false;
    return check_length(x);
}

bool srv_gate(srv_exchange *x, const char *url, const char *method, const char *version)
{
    x->begun = true;
    srv_memory_forget();
    x->is_old = strcmp(version, "HTTP/1.1") != 0;
    bool whole = take_in(x, url, method);
    if (x->server->metrics)
        srv_metrics_begin(x->server->metrics, x->route ? x->route->path : "-");
    if (!whole) {
        x->closes = true; /* where its body ends may be among what is missing */
        srv_reply_static(x, 503, "text/plain", "out of memory\n", 14);
        return false;
    }
    double limit = x->server->config->request_timeout_s;
    x->deadline_ms = limit > 0 ? x->began_ms + limit * 1e3 : 0;
    return check_all(x, version);
}
