/* http_body.c - the body of a request as it comes in: bounded for one request and for all. */
#include <stdlib.h>
#include <string.h>

#include "http/http.h"

/* All bodies together may be this many times the largest one, and every request that runs may have
 * a short one. A body is here until its values are read. */
enum { N_LARGEST = 16, FIRST_ROOM = 4096, SHORT_BODY = 64 * 1024 };

void srv_body_drop(srv_exchange *x)
{
    atomic_fetch_sub(&x->http->body_bytes, x->n_body_room);
    free(x->body);
    x->body = NULL;
    x->n_body = x->n_body_room = 0;
}

static size_t most_of_all(const srv_config *c)
{
    size_t large = c->max_body * N_LARGEST, small = (size_t)c->max_requests * FIRST_ROOM;
    return large > small ? large : small;
}

/* Makes room for n bytes and a NUL. 0, or the status of a refusal. */
static int make_room(srv_exchange *x, size_t n)
{
    size_t most = x->server->config->max_body, room = x->n_body_room ? x->n_body_room : FIRST_ROOM;
    if (n > most)
        return 413;
    while (room < n + 1)
        room = room < most / 2 ? room * 2 : most + 1;
    if (room == x->n_body_room)
        return 0;
    size_t more = room - x->n_body_room;
    if (atomic_fetch_add(&x->http->body_bytes, more) + more > most_of_all(x->server->config)) {
        atomic_fetch_sub(&x->http->body_bytes, more);
        return 503;
    }
    char *grown = realloc(x->body, room);
    if (!grown) {
        atomic_fetch_sub(&x->http->body_bytes, more);
        return 503;
    }
    x->body = grown;
    x->n_body_room = room;
    return 0;
}

bool srv_body_is_short(const srv_exchange *x)
{
    const char *length = srv_header(x, "Content-Length");
    if (x->closes || srv_header(x, "Transfer-Encoding") || srv_header(x, "Expect"))
        return false;
    return !length || strtoull(length, NULL, 10) <= SHORT_BODY;
}

/* A refused body is read on, to be told at its end what was wrong, but not forever. */
static bool swallow(srv_exchange *x, size_t n)
{
    x->n_body += n;
    return x->n_body <= 2 * x->server->config->max_body + (1 << 20);
}

bool srv_body_add(srv_exchange *x, const char *bytes, size_t n)
{
    if (x->refusal || x->replied)
        return swallow(x, n);
    x->refusal = make_room(x, x->n_body + n);
    if (x->refusal) {
        size_t had = x->n_body;
        srv_body_drop(x);
        x->n_body = had;
        return swallow(x, n);
    }
    memcpy(x->body + x->n_body, bytes, n);
    x->n_body += n;
    x->body[x->n_body] = '\0';
    return true;
}
