/* reply.c - one whole reply: its headers, its bytes, and the error that may be its content. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "http/http.h"
#include "http/short_memory.h"

/* A client takes at least this much of a reply in a second, or the connection ends. */
static const double LEAST_BYTES_PER_MS = 16;

/* ---- pairs ---- */

const char *srv_pair_find(const pair *list, int kind, const char *name)
{
    for (; list; list = list->next)
        if ((int)list->kind == kind && strcasecmp(list->name, name) == 0)
            return list->value;
    return NULL;
}

bool srv_pair_add(pair **list, int kind, const char *name, const char *value, size_t n_value)
{
    size_t n_name = strlen(name);
    pair *p = malloc(sizeof *p + n_name + n_value + 2);
    if (!p)
        return false;
    p->kind = kind;
    p->name = (char *)(p + 1);
    p->value = p->name + n_name + 1;
    memcpy(p->name, name, n_name + 1);
    memcpy(p->value, value, n_value);
    p->value[n_value] = '\0';
    p->next = NULL;
    while (*list) /* in the order in which they came */
        list = &(*list)->next;
    *list = p;
    return true;
}

void srv_pairs_free(pair *list)
{
    while (list) {
        pair *next = list->next;
        free(list);
        list = next;
    }
}

/* ---- headers ---- */

void srv_reply_header(srv_exchange *x, const char *name, const char *value)
{
    if (!strpbrk(value, "\r\n"))
        srv_pair_add(&x->pairs, OF_REPLY, name, value, strlen(value));
}

static void add_cors(const srv_exchange *x, struct MHD_Response *r)
{
    const char *allowed = x->server->config->cors, *origin = srv_header(x, "Origin");
    if (!allowed || !origin)
        return;
    MHD_add_response_header(r, "Vary", "Origin");
    if (!srv_cors_allows(x->server->config, origin))
        return;
    MHD_add_response_header(r, "Access-Control-Allow-Origin",
                            strcmp(allowed, "*") == 0 ? "*" : origin);
    MHD_add_response_header(r, "Access-Control-Expose-Headers",
                            "x-request-id, request-id, x-bitnet-receipt, retry-after");
}

static void add_headers(const srv_exchange *x, struct MHD_Response *r)
{
    for (const pair *p = x->pairs; p; p = p->next)
        if (p->kind == OF_REPLY)
            MHD_add_response_header(r, p->name, p->value);
    MHD_add_response_header(r, "x-request-id", x->id);
    if (x->api == SRV_ANTHROPIC)
        MHD_add_response_header(r, "request-id", x->id); /* where its clients look for it */
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    if (!srv_pair_find(x->pairs, OF_REPLY, "Cache-Control"))
        MHD_add_response_header(r, "Cache-Control", "no-store");
    if (x->closes || atomic_load(&x->server->draining))
        MHD_add_response_header(r, "Connection", "close");
    add_cors(x, r);
}

/* ---- replies ---- */

void srv_reply_with(srv_exchange *x, int status, struct MHD_Response *response, size_t n_bytes)
{
    double patience =
        x->server->config->write_timeout_s * 1e3 + (double)n_bytes / LEAST_BYTES_PER_MS;
    if (response)
        add_headers(x, response);
    pthread_mutex_lock(&x->lock);
    bool first = !x->replied, taken = first && !x->completed;
    x->replied = true;
    x->status = first ? status : x->status;
    x->response = taken ? response : x->response;
    if (taken && !x->streaming)
        atomic_store(&x->send_by_ms, (int64_t)(srv_steady_ms() + patience));
    srv_exchange_unlock(x);
    if (!taken && response)
        MHD_destroy_response(response);
    if (!first)
        srv_log(x->server, BITNET_LOG_ERROR, "%s: a second reply (%d) was not sent", x->id, status);
}

static void reply_buffer(srv_exchange *x, int status, const char *content_type, void *bytes,
                         size_t n_bytes, enum MHD_ResponseMemoryMode mode)
{
    if (x->local) {
        bool ours = mode == MHD_RESPMEM_MUST_FREE;
        srv_local_take(x, status, ours ? bytes : strndup(bytes, n_bytes), n_bytes);
        return;
    }
    struct MHD_Response *r = MHD_create_response_from_buffer(n_bytes, bytes, mode);
    if (!r && mode == MHD_RESPMEM_MUST_FREE)
        free(bytes);
    if (r && content_type)
        MHD_add_response_header(r, "Content-Type", content_type);
    srv_reply_with(x, status, r, n_bytes);
}

void srv_reply_static(srv_exchange *x, int status, const char *content_type, const void *bytes,
                      size_t n_bytes)
{
    /* libmicrohttpd only reads it */
    reply_buffer(x, status, content_type, (void *)(uintptr_t)bytes, n_bytes,
                 MHD_RESPMEM_PERSISTENT);
}

void srv_reply_bytes(srv_exchange *x, int status, const char *content_type, const void *bytes,
                     size_t n_bytes)
{
    char *copy = malloc(n_bytes + 1);
    if (!copy) {
        srv_reply_static(x, 503, "text/plain", "out of memory\n", 14);
        return;
    }
    if (n_bytes)
        memcpy(copy, bytes, n_bytes);
    reply_buffer(x, status, content_type, copy, n_bytes, MHD_RESPMEM_MUST_FREE);
}

void srv_reply_json(srv_exchange *x, int status, json_t *value)
{
    char *text = srv_json_whole(value);
    json_decref(value);
    if (!text && status < 400) {
        srv_fail(x, 503, "out_of_memory", NULL, "there is no memory for the reply now");
        return;
    }
    if (!text) {
        srv_reply_static(x, 500, "application/json", "{\"error\":\"out of memory\"}", 25);
        return;
    }
    reply_buffer(x, status, "application/json", text, strlen(text), MHD_RESPMEM_MUST_FREE);
}

/* ---- failures ---- */

/* A fault of a request whose JSON lacks something is not the client's. */
static bool is_ours(int status)
{
    bool lacks = srv_memory_short();
    srv_memory_forget(); /* the error is told with what memory there is now */
    return lacks && status >= 400 && status < 500;
}

void srv_fail(srv_exchange *x, int status, const char *code, const char *param, const char *format,
              ...)
{
    char message[1024];
    va_list ap;
    va_start(ap, format);
    vsnprintf(message, sizeof message, format, ap);
    va_end(ap);
    if (is_ours(status)) {
        status = 503;
        code = "out_of_memory";
        param = NULL;
        snprintf(message, sizeof message, "there is no memory for this request now");
    }
    if ((status == 429 || status == 503) && !srv_pair_find(x->pairs, OF_REPLY, "Retry-After"))
        srv_reply_header(x, "Retry-After", "1");
    srv_reply_json(x, status, srv_error_json(x->api, status, code, param, message, x->id));
}

bool srv_is_timeout(const srv_exchange *x, const bitnet_error *err)
{
    return err->status == BITNET_CANCELLED && !atomic_load(&x->client_gone) &&
           (atomic_load(&x->late) || !atomic_load(&x->server->draining));
}

/* The time that the server has for a request is over, whoever noticed first. */
static bool is_late(const srv_exchange *x)
{
    return atomic_load(&x->late) || srv_time_left(x) <= 0;
}

/* What took too long would again: clients that know the header do not repeat it of themselves. */
static void fail_late(srv_exchange *x, int status, const char *why)
{
    srv_reply_header(x, "x-should-retry", "false");
    srv_fail(x, status, "timeout", NULL, "%s", why);
}

static void fail_cancelled(srv_exchange *x, const bitnet_error *err)
{
    if (atomic_load(&x->client_gone))
        srv_fail(x, 499, "client_closed_request", NULL, "the client has gone");
    else if (is_late(x))
        fail_late(x, 504, "the time for this request is over");
    else if (atomic_load(&x->server->draining))
        srv_fail(x, 503, "shutting_down", NULL, "the server is about to end");
    else /* the deadline that the request itself had: no fault of the server */
        fail_late(x, 408, err->message);
}

void srv_fail_with(srv_exchange *x, const bitnet_error *err)
{
    switch (err->status) {
    case BITNET_ARGUMENT:
        srv_fail(x, 400, "invalid_value", NULL, "%s", err->message);
        return;
    case BITNET_CONTEXT:
        srv_fail(x, 400, "context_length_exceeded", NULL, "%s", err->message);
        return;
    case BITNET_NOT_AVAILABLE:
        srv_fail(x, 404, "model_not_found", "model", "%s", err->message);
        return;
    case BITNET_MEMORY:
        srv_fail(x, 503, "out_of_memory", NULL, "there is no memory for this now");
        return;
    case BITNET_AGAIN:
        srv_fail(x, 503, "overloaded", NULL, "%s", err->message);
        return;
    case BITNET_CANCELLED:
        fail_cancelled(x, err);
        return;
    default:
        srv_log(x->server, BITNET_LOG_ERROR, "%s: %s", x->id, err->message);
        srv_fail(x, 500, "internal_error", NULL,
                 "the server cannot answer this; its log says why under %s", x->id);
    }
}
