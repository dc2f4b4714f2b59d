/* local.c - an exchange whose client is the program itself. */
#include "http/local.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "http/http.h"

struct srv_local {
    srv_http http; /* of it only ids, and the sum of bodies, are used */
};

srv_local *srv_local_open(srv_server *server)
{
    srv_local *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    l->http.server = server;
    if (getrandom(&l->http.id_base, sizeof l->http.id_base, 0) < 0)
        l->http.id_base = (uint64_t)(uintptr_t)l;
    return l;
}

void srv_local_close(srv_local *l)
{
    free(l);
}

void srv_local_take(srv_exchange *x, int status, char *body, size_t n_bytes)
{
    if (x->replied) { /* a handler that replies twice */
        free(body);
        return;
    }
    x->replied = true;
    x->status = x->local->status = status;
    x->local->body = body;
    x->local->n_body = body ? n_bytes : 0;
}

static void work(srv_exchange *x, const char *path)
{
    const char *part;
    x->route = srv_route_find(x->method, path, &part);
    x->api = x->route ? x->route->api : srv_route_api(path);
    x->part = x->route ? strdup(part) : NULL;
    srv_metrics_begin(x->server->metrics, x->route ? x->route->path : NULL);
    x->begun = true;
    srv_exchange_hold(x); /* the handler's */
    if (x->refusal == 503)
        srv_fail(x, 503, "overloaded", NULL, "there is no memory for the body now");
    else if (x->refusal)
        srv_fail(x, x->refusal, "body_too_large", NULL, "the body has %zu bytes; %zu are accepted",
                 x->n_body, x->server->config->max_body);
    else if (!x->route)
        srv_fail(x, 404, "not_found", NULL, "there is no %s %.200s", x->method, path);
    else {
        srv_exchange_work(x);
        return;
    }
    srv_exchange_release(x);
}

bool srv_local_call(srv_local *l, const char *method, const char *path, const char *body,
                    size_t n_body, srv_local_reply *reply)
{
    *reply = (srv_local_reply){0};
    srv_exchange *x = srv_exchange_new(&l->http, NULL, NULL);
    if (!x)
        return false;
    x->local = reply;
    snprintf(x->method, sizeof x->method, "%s", method);
    snprintf(reply->request_id, sizeof reply->request_id, "%s", x->id);
    srv_body_add(x, body, n_body);
    work(x, path);
    srv_exchange_release(x);
    return reply->body != NULL;
}
