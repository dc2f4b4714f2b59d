/* http.c - libmicrohttpd: its daemon, and what it calls on its own threads. Nothing here waits.
 *
 * The way of a request: on_line (its first line is there), on_request with the headers (the gate),
 * with pieces of the body, and with none (all is there: handed over, connection suspended), and
 * again once the reply is there; on_completed when it is sent, or the connection is broken. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "http/http.h"

/* Headers, and what is being sent, of one connection. Above 32 KB libmicrohttpd maps it, so that an
 * idle connection costs the pages it touched. */
enum { CONNECTION_BYTES = 64 * 1024, MOST_THREADS = 16, LAST_WORDS_MS = 1000 };

/* ---- connections ---- */

static void on_connection(void *http, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    srv_http *h = http;
    watched *c = *context;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (c)
            srv_watch_remove(h->watch, c);
        free(c);
        *context = NULL;
        return;
    }
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    c = calloc(1, sizeof *c);
    if (c)
        srv_watch_add(h->watch, c, info->connect_fd);
    *context = c;
}

static void *on_line(void *http, const char *uri, struct MHD_Connection *connection)
{
    srv_http *h = http;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    watched *c = info ? info->socket_context : NULL;
    (void)uri;
    srv_exchange *x = c ? srv_exchange_new(h, connection, c) : NULL;
    if (x)
        srv_watch_move(h->watch, c, WATCH_READING, NULL);
    return x;
}

/* Paths and queries come as they are written; who uses a part decodes it. */
static size_t leave_escaped(void *unused, struct MHD_Connection *connection, char *text)
{
    (void)unused;
    (void)connection;
    return strlen(text);
}

/* ---- requests ---- */

/* Queues the reply that is there. */
static enum MHD_Result answer(srv_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    struct MHD_Response *r = x->response;
    unsigned status = (unsigned)x->status;
    x->response = NULL;
    pthread_mutex_unlock(&x->lock);
    if (!r)
        return MHD_NO;
    enum MHD_Result ok = MHD_queue_response(x->connection, status, r);
    MHD_destroy_response(r); /* the connection holds it now */
    return ok;
}

static void refuse_body(srv_exchange *x)
{
    if (x->refusal == 413)
        srv_fail(x, 413, "body_too_large", NULL, "the body may have at most %zu bytes",
                 x->server->config->max_body);
    else
        srv_fail(x, 503, "overloaded", NULL, "there is no memory for the body now");
}

/* Whoever may take time gets a thread; the connection sleeps meanwhile. It is not sent to sleep
 * here: libmicrohttpd would remember that it was reading, read before it sends the reply, and find
 * with that the end of a client that has closed its side. So it asks once more (go_on). */
static void hand_over(srv_exchange *x)
{
    x->handed = true;
    atomic_fetch_add(&x->http->n_running, 1);
    srv_exchange_hold(x); /* the thread's */
    if (srv_workers_give(x->http->workers, x))
        return;
    if (atomic_load(&x->server->draining))
        srv_fail(x, 503, "shutting_down", NULL, "the server is about to end");
    else
        srv_fail(x, 503, "overloaded", NULL, "all %d places for requests are taken; try again soon",
                 x->server->config->max_requests);
    srv_exchange_release(x);
}

/* The request is whole. */
static enum MHD_Result begin_work(srv_exchange *x)
{
    srv_watch_move(x->http->watch, x->conn, WATCH_BUSY, x);
    if (x->replied) /* refused by its headers */
        return answer(x);
    if (x->refusal)
        refuse_body(x);
    else if (x->route->access == SRV_OPEN)
        x->route->handler(x);
    else {
        hand_over(x);
        return MHD_YES;
    }
    return answer(x);
}

/* Asked once more, or woken up: there may be a reply, or the server ends. */
static enum MHD_Result go_on(srv_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    bool waits = !x->replied && !atomic_load(&x->server->ending);
    if (waits) {
        x->suspended = true;
        MHD_suspend_connection(x->connection);
    }
    pthread_mutex_unlock(&x->lock);
    return waits ? MHD_YES : answer(x);
}

static enum MHD_Result on_request(void *http, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *bytes,
                                  size_t *n_bytes, void **exchange)
{
    srv_exchange *x = *exchange;
    (void)http;
    (void)connection;
    if (!x)
        return MHD_NO;
    if (!x->begun) {
        if (srv_gate(x, url, method, version) || srv_body_is_short(x))
            return MHD_YES;
        srv_watch_move(x->http->watch, x->conn, WATCH_BUSY, x);
        return answer(x);
    }
    if (*n_bytes) {
        bool ok = srv_body_add(x, bytes, *n_bytes);
        *n_bytes = 0;
        return ok ? MHD_YES : MHD_NO;
    }
    return x->handed ? go_on(x) : begin_work(x);
}

/* A refusal of libmicrohttpd itself, such as 431, has a status, too. */
static int status_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_HTTP_STATUS);
    return info ? (int)info->http_status : 0;
}

static void on_completed(void *http, struct MHD_Connection *connection, void **exchange,
                         enum MHD_RequestTerminationCode code)
{
    srv_http *h = http;
    srv_exchange *x = *exchange;
    *exchange = NULL;
    if (!x)
        return;
    srv_watch_move(h->watch, x->conn, WATCH_WAITING, NULL);
    pthread_mutex_lock(&x->lock);
    struct MHD_Response *unsent = x->response;
    x->response = NULL;
    x->completed = true;
    x->suspended = x->may_send = false;
    if (code != MHD_REQUEST_TERMINATED_COMPLETED_OK) {
        atomic_store(&x->client_gone, true);
        x->status = x->begun ? 499 : status_of(connection);
    }
    pthread_cond_broadcast(&x->room);
    pthread_mutex_unlock(&x->lock);
    if (unsent)
        MHD_destroy_response(unsent);
    srv_exchange_release(x);
}

/* ---- the end of listening ---- */

/* Where MHD_quiesce_daemon and a thread of the daemon take the listening socket out of the same set
 * at once, libmicrohttpd (0.9.75) finds that it is gone, and would end the process. Nothing is
 * wrong then: the call, which holds no lock, is begun again and finds what is left to do. */
static void on_panic(void *http, const char *file, unsigned line, const char *reason)
{
    srv_http *h = http;
    if (h->stopping && pthread_equal(h->stopper, pthread_self()))
        longjmp(h->again, 1);
    srv_log(h->server, BITNET_LOG_ERROR, "libmicrohttpd cannot go on: %s (%s:%u)", reason, file,
            line);
    __builtin_trap(); /* it does not expect to be told to */
}

static void stop_listening(srv_http *h)
{
    enum { TRIES = 1000, PAUSE_NS = 1000000 };
    volatile int n = 0;
    h->stopper = pthread_self();
    if (setjmp(h->again) != 0) {
        n++;
        nanosleep(&(struct timespec){0, PAUSE_NS}, NULL);
    }
    h->stopping = n < TRIES;
    MHD_quiesce_daemon(h->daemon);
    h->stopping = false;
}

/* ---- the daemon ---- */

static int n_threads(const srv_config *c)
{
    int n = c->n_threads_http > 0 ? c->n_threads_http : 2;
    return n < MOST_THREADS ? n : MOST_THREADS;
}

static struct MHD_Daemon *start_daemon(srv_http *h, int listen_fd)
{
    const srv_config *c = h->server->config;
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC;
    MHD_set_panic_func(on_panic, h);
    return MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, h, MHD_OPTION_LISTEN_SOCKET, listen_fd,
        MHD_OPTION_THREAD_POOL_SIZE, (unsigned)n_threads(c), MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)c->max_connections, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)c->idle_timeout_s,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES, MHD_OPTION_NOTIFY_COMPLETED,
        on_completed, h, MHD_OPTION_NOTIFY_CONNECTION, on_connection, h,
        MHD_OPTION_URI_LOG_CALLBACK, on_line, h, MHD_OPTION_UNESCAPE_CALLBACK, leave_escaped, h,
        MHD_OPTION_END);
}

static void free_parts(srv_http *h)
{
    srv_workers_close(h->workers);
    srv_watch_close(h->watch);
    srv_rates_close(h->by_key);
    srv_rates_close(h->by_address);
    free(h);
}

static bool open_parts(srv_http *h)
{
    const srv_config *c = h->server->config;
    h->watch = srv_watch_open(c);
    h->workers = srv_workers_open(c->max_requests);
    h->by_key = srv_rates_open(c->per_key_per_s);
    h->by_address = srv_rates_open(c->per_address_per_s);
    return h->watch && h->workers && h->by_key && h->by_address;
}

static bitnet_status check_cors(const char *list, bitnet_error *err)
{
    const char *bad;
    size_t n;
    if (srv_cors_is_valid(list, &bad, &n))
        return BITNET_OK;
    *err = (bitnet_error){.status = BITNET_ARGUMENT};
    snprintf(err->message, sizeof err->message,
             "--cors: '%.*s' is no origin; one looks like https://example.org or "
             "http://localhost:3000, without a path",
             (int)(n < 200 ? n : 200), bad);
    return BITNET_ARGUMENT;
}

static bitnet_status check_hosts(const srv_config *c, bitnet_error *err)
{
    const char *bad = srv_hosts_wrong(c);
    if (!bad)
        return BITNET_OK;
    *err = (bitnet_error){.status = BITNET_ARGUMENT};
    snprintf(err->message, sizeof err->message,
             "--allowed-host: '%.200s' is no name of a host; one looks like chat.example.org", bad);
    return BITNET_ARGUMENT;
}

bitnet_status srv_http_open(srv_server *server, int listen_fd, bool is_unix, bool is_loopback,
                            srv_http **out, bitnet_error *err)
{
    bitnet_status st = check_cors(server->config->cors, err);
    st = st == BITNET_OK ? check_hosts(server->config, err) : st;
    if (st != BITNET_OK)
        return st;
    srv_http *h = calloc(1, sizeof *h);
    if (h) {
        h->server = server;
        h->is_unix = is_unix;
        h->is_loopback = is_loopback;
        snprintf(h->bound_host, sizeof h->bound_host, "%s",
                 server->config->host ? server->config->host : "");
        if (getrandom(&h->id_base, sizeof h->id_base, GRND_NONBLOCK) < 0)
            h->id_base = (uint64_t)server->started << 20;
    }
    if (h && open_parts(h))
        h->daemon = start_daemon(h, listen_fd);
    if (h && h->daemon) {
        *out = h;
        return BITNET_OK;
    }
    if (h)
        free_parts(h);
    *err = (bitnet_error){.status = BITNET_ERROR};
    snprintf(err->message, sizeof err->message,
             "cannot start the threads of HTTP: out of memory, threads or descriptors");
    return BITNET_ERROR;
}

/* What handlers have said last is sent, unless clients take it slowly. */
static void wait_for_replies(const srv_http *h)
{
    double until = srv_steady_ms() + LAST_WORDS_MS;
    while (atomic_load(&h->n_running) && srv_steady_ms() < until)
        nanosleep(&(struct timespec){0, 5000000}, NULL);
}

void srv_http_close(srv_http *h)
{
    if (!h)
        return;
    /* nobody else is accepted: who waits in the socket's queue is for the next server that listens
     * with it; without this call the socket would be shut down and closed below */
    stop_listening(h);
    /* handlers end, and with them the last suspended connections wake up; requests that are whole
     * only now are refused */
    srv_workers_end(h->workers);
    wait_for_replies(h);
    MHD_stop_daemon(h->daemon);
    free_parts(h);
}
