/* exchange.c - one request, as handlers ask about it, and how long it lives. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "http/http.h"
#include "http/json_limits.h"
#include "http/json_numbers.h"
#include "http/short_memory.h"
#include "jobs/clock.h"

enum {
    MAX_JSON_VALUES = 262144,
    JSON_ROOM = 1 << 30,
    REPLY_SHARE = 4, /* of the room, at most */
    BODY_SHARE = 4   /* the same of the largest body */
};

double srv_steady_ms(void)
{
    return srv_clock_ms();
}

void srv_log(const srv_server *server, bitnet_log_level level, const char *format, ...)
{
    char line[600];
    va_list ap;
    if (!server->config->log)
        return;
    va_start(ap, format);
    vsnprintf(line, sizeof line, format, ap);
    va_end(ap);
    server->config->log(server->config->log_user, level, "server", line);
}

/* ---- life ---- */

static void make_id(srv_exchange *x)
{
    uint64_t n = atomic_fetch_add(&x->http->n_ids, 1);
    uint64_t z = x->http->id_base + n * 0x9e3779b97f4a7c15u; /* differs for every n */
    snprintf(x->id, sizeof x->id, "req_%016llx%06llx", (unsigned long long)z,
             (unsigned long long)(n & 0xffffff));
}

srv_exchange *srv_exchange_new(srv_http *h, struct MHD_Connection *connection, watched *conn)
{
    srv_exchange *x = calloc(1, sizeof *x);
    if (!x)
        return NULL;
    x->http = h;
    x->server = h->server;
    x->connection = connection;
    x->conn = conn;
    x->fd = conn ? conn->fd : -1;
    x->began_ms = srv_steady_ms();
    snprintf(x->method, sizeof x->method, "-");
    atomic_init(&x->n_holders, 1);
    pthread_mutex_init(&x->lock, NULL);
    srv_cond_open(&x->room);
    make_id(x);
    return x;
}

void srv_exchange_hold(srv_exchange *x)
{
    atomic_fetch_add(&x->n_holders, 1);
}

static void log_request(const srv_exchange *x)
{
    const srv_config *c = x->server->config;
    const char *route = x->route ? x->route->path : "-";
    double ms = srv_steady_ms() - x->began_ms;
    if (x->begun && x->server->metrics)
        srv_metrics_end(x->server->metrics, route, x->status, ms / 1e3);
    if (c->on_request)
        c->on_request(c->on_request_user, &(srv_request_line){x->id, x->method, route, x->status,
                                                              ms, x->n_prompt, x->n_generated});
}

static void drop_json(srv_exchange *x)
{
    json_decref(x->json);
    x->json = NULL;
    atomic_fetch_sub(&x->http->json_bytes, x->n_json_bytes);
    x->n_json_bytes = 0;
}

void srv_exchange_release(srv_exchange *x)
{
    if (atomic_fetch_sub(&x->n_holders, 1) != 1)
        return;
    if (!x->status && x->begun)
        x->status = 499;
    if (x->status)
        log_request(x);
    if (x->response)
        MHD_destroy_response(x->response);
    drop_json(x);
    srv_body_drop(x);
    srv_pairs_free(x->pairs);
    free(x->path);
    free(x->part);
    free(x->out);
    free(x->rest);
    pthread_cond_destroy(&x->room);
    pthread_mutex_destroy(&x->lock);
    if (x->handed)
        atomic_fetch_sub(&x->http->n_running, 1);
    free(x);
}

void srv_exchange_unlock(srv_exchange *x)
{
    struct MHD_Connection *sleeper = x->suspended ? x->connection : NULL;
    x->suspended = x->may_send = false;
    pthread_mutex_unlock(&x->lock);
    if (sleeper) /* stays as it is until here: whoever finds `suspended` false leaves it alone */
        MHD_resume_connection(sleeper);
}

void srv_exchange_hung_up(srv_exchange *x)
{
    atomic_store(&x->client_gone, true);
    pthread_mutex_lock(&x->lock);
    pthread_cond_broadcast(&x->room);
    if (x->streaming) /* HTTP's thread finds the connection broken and lets go of it */
        srv_exchange_unlock(x);
    else
        pthread_mutex_unlock(&x->lock);
}

void srv_exchange_work(srv_exchange *x)
{
    srv_memory_forget();
    x->route->handler(x);
    pthread_mutex_lock(&x->lock);
    bool replied = x->replied, open = x->streaming && !x->stream_ended;
    pthread_mutex_unlock(&x->lock);
    if (!replied || open)
        srv_log(x->server, BITNET_LOG_ERROR, "%s: the handler of %s ended without a reply", x->id,
                x->route->path);
    if (open)
        srv_stream_end(x);
    else if (!replied)
        srv_fail(x, 500, "internal_error", NULL, "the server has no answer to this; that is a bug");
    srv_exchange_release(x);
}

/* ---- what was asked ---- */

srv_server *srv_server_of(const srv_exchange *x)
{
    return x->server;
}

const char *srv_request_id(const srv_exchange *x)
{
    return x->id;
}

const char *srv_path_part(const srv_exchange *x)
{
    return x->part ? x->part : "";
}

const char *srv_query(const srv_exchange *x, const char *name)
{
    return srv_pair_find(x->pairs, OF_QUERY, name);
}

const char *srv_header(const srv_exchange *x, const char *name)
{
    return srv_pair_find(x->pairs, OF_HEADER, name);
}

uint64_t srv_scope(const srv_exchange *x)
{
    return x->server->config->share_prefixes || !x->key ? 1 : 1 + x->key;
}

bool srv_gone(const srv_exchange *x)
{
    return atomic_load_explicit(&x->client_gone, memory_order_relaxed) ||
           atomic_load_explicit(&x->late, memory_order_relaxed) ||
           atomic_load_explicit(&x->server->ending, memory_order_relaxed);
}

bool srv_gone_fn(void *exchange)
{
    return srv_gone(exchange);
}

double srv_time_left(const srv_exchange *x)
{
    return x->deadline_ms > 0 ? x->deadline_ms - srv_steady_ms() : INFINITY;
}

void srv_count_tokens(srv_exchange *x, size_t n_prompt, size_t n_generated)
{
    x->n_prompt += n_prompt;
    x->n_generated += n_generated;
}

/* ---- the body as JSON ---- */

/* A body without a type is taken as JSON. So is what curl calls a form unless told otherwise, for
 * the API whose manual calls curl that way; a browser's page cannot use that: it sends an Origin.
 */
static bool says_json(const srv_exchange *x)
{
    const char *type = srv_header(x, "Content-Type");
    if (!type || !*type)
        return true;
    size_t n = strcspn(type, "; \t");
    bool form = n == 33 && strncasecmp(type, "application/x-www-form-urlencoded", n) == 0;
    if (form)
        return x->api == SRV_OLLAMA && !srv_header(x, "Origin");
    return (n == 16 && strncasecmp(type, "application/json", n) == 0) ||
           (n == 9 && strncasecmp(type, "text/json", n) == 0) ||
           (n > 5 && strncasecmp(type + n - 5, "+json", 5) == 0);
}

static size_t json_room(const srv_exchange *x)
{
    const srv_config *c = x->server->config;
    size_t usual = c->max_body < JSON_ROOM / BODY_SHARE ? JSON_ROOM : c->max_body * BODY_SHARE;
    return c->json_room ? c->json_room : usual;
}

/* Counts values among those of all requests. False: they are too large together. */
static bool has_room(srv_exchange *x, size_t n_bytes)
{
    x->n_json_bytes += n_bytes;
    return atomic_fetch_add(&x->http->json_bytes, n_bytes) + n_bytes <= json_room(x);
}

/* False: there is no room for the tree; the client has been told. */
static bool charge(srv_exchange *x, size_t n_bytes)
{
    if (has_room(x, n_bytes))
        return true;
    drop_json(x);
    srv_fail(x, 503, "overloaded", NULL, "there is no memory for the values of the body now");
    return false;
}

bitnet_status srv_reply_charge(srv_exchange *x, size_t n_bytes, bitnet_error *err)
{
    size_t most = json_room(x) / REPLY_SHARE;
    x->n_reply_bytes += n_bytes;
    if (x->n_reply_bytes > most) {
        *err = (bitnet_error){.status = BITNET_ARGUMENT};
        snprintf(err->message, sizeof err->message,
                 "the reply would take more than %zu MB; ask for less in one request: fewer "
                 "prompts, choices (n), log-probabilities or pieces",
                 most >> 20);
    } else if (!has_room(x, n_bytes)) {
        *err = (bitnet_error){BITNET_AGAIN, "there is no memory for the values of the reply now"};
    } else {
        return BITNET_OK;
    }
    return err->status;
}

size_t srv_work_charge(srv_exchange *x, size_t n_bytes)
{
    size_t most = json_room(x) / 2; /* one request alone always finds room */
    n_bytes = n_bytes < most ? n_bytes : most;
    if (has_room(x, n_bytes))
        return n_bytes;
    srv_work_done(x, n_bytes);
    srv_fail(x, 503, "overloaded", NULL, "there is no memory for a text of this length now");
    return 0;
}

void srv_work_done(srv_exchange *x, size_t n_bytes)
{
    x->n_json_bytes -= n_bytes;
    atomic_fetch_sub(&x->http->json_bytes, n_bytes);
}

void srv_reply_sent(srv_exchange *x, size_t n_bytes)
{
    x->n_reply_bytes -= n_bytes;
    srv_work_done(x, n_bytes);
}

/* False: too deep or too large for a tree; the client has been told. */
static bool within_limits(srv_exchange *x, const char *what, const char *field, srv_json_cost cost)
{
    int most = x->server->config->max_depth;
    if (cost.depth > (size_t)most)
        srv_fail(x, 400, "json_too_deep", field,
                 "%s nests arrays and objects %zu deep; at most %d levels are accepted", what,
                 cost.depth, most);
    else if (cost.n_values > MAX_JSON_VALUES)
        srv_fail(x, 400, "json_too_large", field, "%s has more than %d values; send less at once",
                 what, MAX_JSON_VALUES);
    else
        return true;
    return false;
}

bool srv_json_admit(srv_exchange *x, const char *field, const char *text, size_t n)
{
    srv_json_cost cost = srv_json_measure(text, n);
    if (!within_limits(x, field, field, cost))
        return false;
    if (has_room(x, cost.n_bytes))
        return true;
    srv_fail(x, 503, "overloaded", NULL, "there is no memory for the values of the body now");
    return false;
}

static const char *reason(const json_error_t *e)
{
    switch (json_error_code(e)) {
    case json_error_invalid_utf8:
        return "bytes that are not UTF-8";
    case json_error_premature_end_of_input:
        return "it ends too early";
    case json_error_end_of_input_expected:
        return "something follows its end";
    case json_error_numeric_overflow:
        return "a number that is too large";
    case json_error_null_character:
    case json_error_null_byte_in_key:
        return "a zero character";
    case json_error_out_of_memory:
        return "no memory for it";
    default:
        return "a mistake in the syntax";
    }
}

json_t *srv_body_json(srv_exchange *x)
{
    json_error_t e;
    if (x->json)
        return x->json;
    if (!says_json(x)) {
        srv_fail(x, 415, "unsupported_media_type", NULL,
                 "the body must be JSON: send the header Content-Type: application/json");
        return NULL;
    }
    const char *coding = srv_header(x, "Content-Encoding");
    if (coding && *coding && strcasecmp(coding, "identity") != 0) {
        srv_fail(x, 415, "unsupported_content_encoding", NULL,
                 "Content-Encoding: the body may not be compressed; send it as it is");
        return NULL;
    }
    if (!x->n_body) {
        srv_fail(x, 400, "empty_body", NULL, "there is no body; send a JSON object");
        return NULL;
    }
    srv_json_cost cost = srv_json_measure(x->body, x->n_body);
    if (!within_limits(x, "the body", NULL, cost) || !charge(x, cost.n_bytes))
        return NULL;
    x->json = srv_json_load_wide(x->body, x->n_body, 0, &e);
    if (srv_memory_short()) {
        drop_json(x);
        srv_fail(x, 503, "out_of_memory", NULL,
                 "there is no memory for the values of the body now");
    } else if (!x->json) {
        drop_json(x);
        srv_fail(x, 400, "invalid_json", NULL, "the body is not valid JSON: line %d, column %d: %s",
                 e.line, e.column, reason(&e));
    } else if (!json_is_object(x->json)) {
        srv_fail(x, 400, "invalid_json", NULL, "the body must be a JSON object, {...}");
        drop_json(x);
    }
    srv_body_drop(x); /* its room is another's now */
    return x->json;
}
