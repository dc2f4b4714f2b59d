/* fuzz_gate.c - any first line, headers and query through what decides on a request before its body
 * is read: framing, Host and Origin, route, key, rates, length.
 *
 * Input: byte 0 chooses the configuration (the bits of `settings`), byte 1 the family of the
 * client's address; then lines: "METHOD PATH VERSION", and each further one a header "Name: value"
 * or, with a question mark before it, a variable of the query "?name=value". What must hold: no
 * crash, no leak; a request is let in or told why not, once; one that is let in has a route, a name
 * in Host that is allowed, a key where keys are needed, and a body that is not too long. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "http/http.h"

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "fuzz_gate: %s\n", #what);                                             \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

enum {
    KEYS = 1,
    UNIX = 2,
    OUTSIDE = 4,
    HOSTS = 8,
    CORS_ALL = 16,
    CORS_ONE = 32,
    DRAINS = 64,
    RATE = 128
};
#define MAX_BODY  1000
#define MAX_LINES 64

/* ---- stand-ins for HTTP: a request is lines, and a reply is counted ---- */

static char *lines[MAX_LINES];
static size_t n_lines, n_replies;
static union MHD_ConnectionInfo address;

int MHD_get_connection_values_n(struct MHD_Connection *connection, enum MHD_ValueKind kind,
                                MHD_KeyValueIteratorN iterator, void *user)
{
    int n = 0;
    (void)connection;
    for (size_t i = 1; i < n_lines; i++) {
        bool query = lines[i][0] == '?';
        const char *name = lines[i] + query;
        size_t n_name = strcspn(name, query ? "=" : ":");
        if (!n_name || query != (kind == MHD_GET_ARGUMENT_KIND))
            continue;
        char *copy = strndup(name, n_name);
        const char *value = name[n_name] ? name + n_name + 1 : NULL;
        if (value && !query)
            value += strspn(value, " ");
        n++;
        bool more = iterator(user, kind, copy, n_name, value, value ? strlen(value) : 0) == MHD_YES;
        free(copy);
        if (!more)
            break;
    }
    return n;
}

const union MHD_ConnectionInfo *MHD_get_connection_info(struct MHD_Connection *connection,
                                                        enum MHD_ConnectionInfoType type, ...)
{
    (void)connection;
    (void)type;
    return address.client_addr ? &address : NULL;
}

void srv_fail(srv_exchange *x, int status, const char *code, const char *param, const char *format,
              ...)
{
    char message[1024];
    va_list ap;
    va_start(ap, format);
    vsnprintf(message, sizeof message, format, ap);
    va_end(ap);
    CHECK(x && !param && status >= 400 && *code && message[0]);
    n_replies++;
}

void srv_reply_bytes(srv_exchange *x, int status, const char *type, const void *bytes, size_t n)
{
    CHECK(x && status == 204 && !type && bytes && !n);
    n_replies++;
}

void srv_reply_static(srv_exchange *x, int status, const char *type, const void *bytes, size_t n)
{
    CHECK(x && status && type && bytes && n);
    n_replies++;
}

void srv_reply_header(srv_exchange *x, const char *name, const char *value)
{
    CHECK(x && *name && *value && !strpbrk(value, "\r\n"));
}

const char *srv_pair_find(const pair *list, int kind, const char *name)
{
    for (; list; list = list->next)
        if ((int)list->kind == kind && strcasecmp(list->name, name) == 0)
            return list->value;
    return NULL;
}

bool srv_pair_add(pair **list, int kind, const char *name, const char *value, size_t n_value)
{
    pair *p = calloc(1, sizeof *p);
    while (*list)
        list = &(*list)->next;
    p->kind = kind == OF_HEADER ? OF_HEADER : OF_QUERY;
    p->name = strdup(name);
    p->value = strndup(value, n_value);
    *list = p;
    return true;
}

const char *srv_header(const srv_exchange *x, const char *name)
{
    return srv_pair_find(x->pairs, OF_HEADER, name);
}

const srv_route *srv_page_route(const srv_config *config, const char *method, const char *path)
{
    static const srv_route page = {"GET", "/", NULL, SRV_NATIVE, SRV_OPEN, "the page"};
    bool get = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
    return config && get && strcmp(path, "/") == 0 ? &page : NULL;
}

double srv_steady_ms(void)
{
    return 1e6;
}

void srv_metrics_begin(srv_metrics *m, const char *path)
{
    (void)m;
    CHECK(*path);
}

#define ROUTE(method, path, handler, ...)                                                          \
    void handler(srv_exchange *x);                                                                 \
    void handler(srv_exchange *x)                                                                  \
    {                                                                                              \
        (void)x;                                                                                   \
    }
#include "http/routes.inc"
#undef ROUTE

/* ---- the request ---- */

static void take_lines(const uint8_t *data, size_t n_bytes)
{
    n_lines = 0;
    while (n_bytes && n_lines < MAX_LINES) {
        const uint8_t *end = memchr(data, '\n', n_bytes);
        size_t n = end ? (size_t)(end - data) : n_bytes;
        char *line = malloc(n + 1);
        memcpy(line, data, n);
        line[n] = '\0';
        lines[n_lines++] = line;
        n += end != NULL;
        data += n;
        n_bytes -= n;
    }
}

/* Cuts the first word off; "": there is none. */
static char *word(char **text)
{
    char *begin = *text, *end = begin + strcspn(begin, " ");
    *text = *end ? end + 1 : end;
    *end = '\0';
    return begin;
}

static void come_from(uint8_t family)
{
    static struct sockaddr_in v4 = {.sin_family = AF_INET};
    static struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    memcpy(v6.sin6_addr.s6_addr,
           family % 4 == 2 ? "\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0" : "\0\0\0\0\0\0\0\0\0\0\xff\xff",
           12);
    v4.sin_addr.s_addr = htonl(0x0a000001);
    address.client_addr = family % 4 == 0   ? NULL
                          : family % 4 == 1 ? (struct sockaddr *)(void *)&v4
                                            : (struct sockaddr *)(void *)&v6;
}

/* ---- what is looked at ---- */

/* The name in Host, as this file reads it: nothing but these and numbers is let in from this
 * machine. */
static bool host_is_fine(const char *host)
{
    static const char *const names[] = {"localhost", "model.example", "::1"};
    bool v6 = host[0] == '[';
    size_t n = v6 ? strcspn(host, "]") + 1 : strcspn(host, ":");
    size_t k = strspn(host + v6, v6 ? "0123456789abcdefABCDEF:." : "0123456789.") + v6;
    if (v6 ? k > 1 && k + 1 == n && host[k] == ']' : n && k >= n)
        return true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == n && strncasecmp(host, names[i], n) == 0)
            return true;
    return false;
}

static void check_let_in(const srv_exchange *x, uint8_t settings)
{
    const char *host = srv_header(x, "Host"), *length = srv_header(x, "Content-Length");
    CHECK(x->route && (!x->part || x->route->path));
    CHECK((settings & (UNIX | OUTSIDE)) || !host || host_is_fine(host));
    CHECK(!(settings & KEYS) || x->key || x->route->access == SRV_OPEN);
    CHECK(!(settings & DRAINS) || x->route->access == SRV_OPEN);
    CHECK(!length || strtoull(length, NULL, 10) <= MAX_BODY);
    CHECK(!length || !srv_header(x, "Transfer-Encoding"));
    CHECK(strspn(x->id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") ==
          strlen(x->id));
}

static void free_pairs(pair *p)
{
    while (p) {
        pair *next = p->next;
        free(p->name);
        free(p->value);
        free(p);
        p = next;
    }
}

static void ask(srv_http *http, uint8_t settings)
{
    srv_exchange x = {.http = http, .server = http->server, .id = "req_0"};
    char *rest = n_lines ? lines[0] : NULL;
    if (!rest)
        return;
    const char *method = word(&rest), *path = word(&rest);
    n_replies = 0;
    bool in = srv_gate(&x, path, method, rest);
    CHECK(n_replies == (in ? 0 : 1));
    if (in)
        check_let_in(&x, settings);
    free_pairs(x.pairs);
    free(x.path);
    free(x.part);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const char *const keys[] = {"one", "another key"}, *const hosts[] = {"model.example",
                                                                                "[::1]"};
    if (n_bytes < 2)
        return 0;
    uint8_t settings = data[0];
    srv_config config = {.keys = keys,
                         .n_keys = settings & KEYS ? 2 : 0,
                         .hosts = hosts,
                         .n_hosts = settings & HOSTS ? 2 : 0,
                         .max_body = MAX_BODY,
                         .request_timeout_s = settings & RATE ? 1 : 0,
                         .cors = settings & CORS_ALL   ? "*"
                                 : settings & CORS_ONE ? "https://a.example"
                                                       : NULL};
    srv_server server = {.config = &config};
    srv_http http = {.server = &server,
                     .is_unix = settings & UNIX,
                     .is_loopback = !(settings & OUTSIDE),
                     .bound_host = "::1"};
    atomic_store(&server.draining, (settings & DRAINS) != 0);
    http.by_address = srv_rates_open(settings & RATE ? 1 : 0);
    http.by_key = srv_rates_open(settings & RATE ? 1 : 0);
    come_from(data[1]);
    for (int i = 0; i < (settings & RATE ? 4 : 1); i++) { /* until the bucket is empty */
        take_lines(data + 2, n_bytes - 2);
        ask(&http, settings);
        while (n_lines)
            free(lines[--n_lines]);
    }
    srv_rates_close(http.by_address);
    srv_rates_close(http.by_key);
    return 0;
}
