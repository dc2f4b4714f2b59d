/* http_driver.c - HTTP of the server without a model: routes that echo, sleep, stream and forget to
 * reply, for tests/server/test_http.py. Linked with the files of HTTP and serve.c; models, metrics
 * and receipts are stand-ins.
 *
 * http_driver NAME=VALUE... sets fields of srv_config; prints the address, then what it logs. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "bitnet_check.h"
#include "http/http.h"
#include "serve.h"

static atomic_int n_gone, n_stopped, n_streams, n_handled;
static atomic_int told;
static bool computes_wrong, no_metrics;

/* ---- stand-ins ---- */

struct srv_models {
    int unused;
};
static struct srv_models no_models;

bitnet_status srv_models_open(const srv_models_options *o, bool lazy, srv_models **out,
                              bitnet_error *err)
{
    (void)o, (void)lazy, (void)err;
    *out = &no_models;
    return BITNET_OK;
}
void srv_models_close(srv_models *m)
{
    (void)m;
}
void srv_models_drain(srv_models *m)
{
    (void)m;
}
bitnet_status srv_model_use(srv_models *m, const char *name, bitnet_cancel_fn cancel, void *user,
                            srv_model **out, bitnet_error *err)
{
    (void)m, (void)name, (void)cancel, (void)user, (void)err;
    *out = NULL;
    return BITNET_OK;
}
void srv_model_release(srv_models *m, srv_model *model)
{
    (void)m, (void)model;
}
bool srv_models_at(srv_models *m, size_t i, srv_model_row *out)
{
    (void)m;
    *out = (srv_model_row){.name = "none", .state = SRV_LOADED};
    return i == 0;
}
srv_model *srv_model_peek(srv_models *m, const char *name)
{
    static srv_model model = {.name = "none"};
    (void)m;
    return strcmp(name, "none") ? NULL : &model;
}
void srv_model_looked(srv_models *m, srv_model *model)
{
    (void)m, (void)model;
}
void bitnet_health_init(bitnet_health *h)
{
    *h = (bitnet_health){0};
}
bitnet_status bitnet_health_check(bitnet_engine *engine, bitnet_health *h, bitnet_error *err)
{
    (void)engine, (void)err;
    *h = (bitnet_health){.memory_ok = true, .cache_ok = true, .compute_ok = !computes_wrong};
    h->healthy = h->compute_ok;
    return BITNET_OK;
}
struct srv_metrics {
    int unused;
};
srv_metrics *srv_metrics_open(void)
{
    static struct srv_metrics metrics;
    return no_metrics ? NULL : &metrics;
}
void srv_metrics_close(srv_metrics *m)
{
    (void)m;
}
void srv_metrics_begin(srv_metrics *m, const char *route)
{
    (void)m, (void)route;
}
void srv_metrics_end(srv_metrics *m, const char *route, int status, double s)
{
    (void)m, (void)route, (void)status, (void)s;
}
void srv_metrics_model_load(srv_metrics *m, double s)
{
    (void)m, (void)s;
}
void srv_local_take(srv_exchange *x, int status, char *bytes, size_t n_bytes)
{
    (void)x, (void)status, (void)n_bytes;
    free(bytes);
}
/* In place of libc's. With BITNET_TEST_RACE the first removal by the main thread comes too late, as
 * if another thread had just done it, and what that thread notes is noted a moment later. */
__attribute__((visibility("default"))) int epoll_ctl(int set, int op, int fd,
                                                     struct epoll_event *event)
{
    static atomic_int n_late;
    int rc = (int)syscall(SYS_epoll_ctl, set, op, fd, event);
    if (op != EPOLL_CTL_DEL || gettid() != getpid() || n_late > 2 || !getenv("BITNET_TEST_RACE"))
        return rc;
    if (++n_late > 2)
        return 0;
    fprintf(stderr, "raced\n");
    errno = ENOENT;
    return -1;
}
srv_receipts *srv_receipts_open(size_t most)
{
    return (void)most, NULL;
}
void srv_receipts_close(srv_receipts *r)
{
    (void)r;
}
void srv_receipts_put(srv_receipts *r, const char *id, const char *text, size_t n_bytes)
{
    (void)r, (void)id, (void)text, (void)n_bytes;
}
void bitnet_runtime_options_init(bitnet_runtime_options *o)
{
    memset(o, 0, sizeof *o);
}
void bitnet_engine_options_init(bitnet_engine_options *o)
{
    memset(o, 0, sizeof *o);
}
const char *bitnet_version(void)
{
    return "test";
}

/* ---- handlers ---- */

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static long number(const srv_exchange *x, const char *name, long otherwise)
{
    const char *text = srv_query(x, name);
    return text ? strtol(text, NULL, 10) : otherwise;
}

static void echo(srv_exchange *x)
{
    atomic_fetch_add(&n_handled, 1);
    json_t *body = srv_body_json(x);
    if (body)
        srv_reply_json(x, 200,
                       json_pack("{s:O, s:I}", "echo", body, "scope", (json_int_t)srv_scope(x)));
}

/* Each text of the list "texts" may become a tree. */
static void admit(srv_exchange *x)
{
    size_t i;
    json_t *text, *texts = json_object_get(srv_body_json(x), "texts");
    json_array_foreach(texts, i, text)
    {
        if (!srv_json_admit(x, "texts", json_string_value(text), json_string_length(text)))
            return;
    }
    if (texts)
        srv_reply_json(x, 200, json_pack("{s:I}", "texts", (json_int_t)i));
}

static void sleep_unless_gone(const srv_exchange *x, double ms)
{
    double end = srv_steady_ms() + ms;
    while (srv_steady_ms() < end && !srv_gone(x))
        pause_ms(ms < 2 ? 1 : 2);
}

/* Sleeps as many milliseconds as the path says, unless it is told to stop. */
static void nap(srv_exchange *x)
{
    sleep_unless_gone(x, strtod(srv_path_part(x), NULL));
    if (!srv_gone(x)) {
        srv_reply_json(x, 200, json_pack("{s:b}", "slept", 1));
        return;
    }
    atomic_fetch_add(&n_gone, 1);
    srv_fail_with(x, &(bitnet_error){.status = BITNET_CANCELLED});
}

/* Sends what was gathered; a client that is behind is waited for from then on. */
static long flush(srv_exchange *x, long gather)
{
    if (srv_stream_flush(x))
        return gather;
    srv_stream_gather(x, false);
    return 0;
}

/* As many events as the path says, ?bytes=N each, ?ms=N apart, ?before=MS before the first,
 * ?gather=N sent together. */
static void stream(srv_exchange *x)
{
    long n = strtol(srv_path_part(x), NULL, 10), bytes = number(x, "bytes", 10);
    long gather = number(x, "gather", 0);
    char *text = malloc((size_t)bytes + 1);
    memset(text, 'x', (size_t)bytes);
    text[bytes] = '\0';
    atomic_fetch_add(&n_streams, 1);
    srv_stream_begin(x, SRV_EVENT_STREAM);
    bool there = true;
    sleep_unless_gone(x, (double)number(x, "before", 0));
    if (gather)
        srv_stream_gather(x, true);
    for (long i = 0; i < n && there && !srv_gone(x); i++) {
        there = srv_stream_event(x, NULL, json_pack("{s:I, s:s}", "i", (json_int_t)i, "x", text));
        if (gather && i % gather == gather - 1)
            gather = flush(x, gather);
        if (number(x, "ms", 0))
            sleep_unless_gone(x, (double)number(x, "ms", 0));
    }
    if (!there || srv_gone(x))
        atomic_fetch_add(&n_stopped, 1);
    if (there)
        srv_stream_event(x, "end", json_pack("{s:b}", "gone", srv_gone(x)));
    srv_stream_end(x);
    free(text);
}

static void big(srv_exchange *x)
{
    size_t n = strtoul(srv_path_part(x), NULL, 10);
    char *bytes = malloc(n + 1);
    memset(bytes, 'b', n);
    srv_reply_bytes(x, 200, "application/octet-stream", bytes, n);
    free(bytes);
}

static void nothing(srv_exchange *x)
{
    (void)x;
}

static void twice(srv_exchange *x)
{
    srv_reply_bytes(x, 200, "text/plain", "once", 4);
    srv_reply_bytes(x, 200, "text/plain", "twice", 5);
}

static void seen(srv_exchange *x)
{
    srv_reply_json(x, 200,
                   json_pack("{s:i, s:i, s:i, s:i, s:I, s:I, s:I}", "gone", atomic_load(&n_gone),
                             "stopped", atomic_load(&n_stopped), "streams", atomic_load(&n_streams),
                             "handled", atomic_load(&n_handled), "running",
                             (json_int_t)atomic_load(&x->http->n_running), "body_bytes",
                             (json_int_t)atomic_load(&x->http->body_bytes), "json_bytes",
                             (json_int_t)atomic_load(&x->http->json_bytes)));
}

void srv_health(srv_exchange *x);
void srv_health_live(srv_exchange *x);
void srv_health_ready(srv_exchange *x);

#define SRV_ROUTES_GIVEN                                                                           \
    ROUTE("POST", "/echo", echo, SRV_NATIVE, KEY, "")                                              \
    ROUTE("POST", "/admit", admit, SRV_NATIVE, KEY, "")                                            \
    ROUTE("POST", "/v1/echo", echo, SRV_OPENAI, KEY, "")                                           \
    ROUTE("POST", "/v1/messages", echo, SRV_ANTHROPIC, KEY, "")                                    \
    ROUTE("POST", "/api/echo", echo, SRV_OLLAMA, KEY, "")                                          \
    ROUTE("GET", "/sleep/{id}", nap, SRV_NATIVE, KEY, "")                                          \
    ROUTE("GET", "/stream/{id}", stream, SRV_NATIVE, KEY, "")                                      \
    ROUTE("GET", "/big/{id}", big, SRV_NATIVE, KEY, "")                                            \
    ROUTE("GET", "/nothing", nothing, SRV_NATIVE, KEY, "")                                         \
    ROUTE("GET", "/twice", twice, SRV_NATIVE, KEY, "")                                             \
    ROUTE("GET", "/seen", seen, SRV_NATIVE, OPEN, "")                                              \
    ROUTE("GET", "/health", srv_health, SRV_NATIVE, OPEN, "")                                      \
    ROUTE("GET", "/health/live", srv_health_live, SRV_NATIVE, OPEN, "")                            \
    ROUTE("GET", "/health/ready", srv_health_ready, SRV_NATIVE, OPEN, "")

/* dispatch as it is, on these routes */
#include "../../server/http/routes.c"

const srv_route *srv_page_route(const srv_config *config, const char *method, const char *path)
{
    (void)config, (void)method, (void)path;
    return NULL;
}

/* ---- the program ---- */

static void on_signal(int sig)
{
    if (told++)
        _Exit(128 + sig);
}

static bool stop(void *unused)
{
    (void)unused;
    return told != 0;
}

static void ready(void *user, const char *address, srv_models *models)
{
    (void)user, (void)models;
    printf("%s\n", address);
    fflush(stdout);
}

static void say(void *user, bitnet_log_level level, const char *module, const char *message)
{
    (void)user, (void)level;
    fprintf(stderr, "log %s: %s\n", module, message);
}

static void say_request(void *user, const srv_request_line *r)
{
    (void)user;
    fprintf(stderr, "request %s %s %s %d\n", r->id, r->method, r->route, r->status);
}

/* The text of NAME=VALUE where it is that name; else NULL. */
static const char *value_of(const char *arg, const char *name)
{
    size_t n = strlen(name);
    return strncmp(arg, name, n) == 0 && arg[n] == '=' ? arg + n + 1 : NULL;
}

static const char *keys[8], *hosts[8];

static void set(srv_config *c, const char *arg)
{
    const char *v;
    if ((v = value_of(arg, "key")))
        keys[c->n_keys++] = v;
    else if ((v = value_of(arg, "allowed_host")))
        hosts[c->n_hosts++] = v;
    else if ((v = value_of(arg, "host")))
        c->host = v;
    else if ((v = value_of(arg, "unix")))
        c->unix_path = v;
    else if ((v = value_of(arg, "cors")))
        c->cors = v;
    else if ((v = value_of(arg, "notify")))
        c->notify_socket = v;
    else if ((v = value_of(arg, "watchdog")))
        c->watchdog_s = strtod(v, NULL);
    else if ((v = value_of(arg, "allow_open")))
        c->allow_open = true;
    else if ((v = value_of(arg, "listen_fd")))
        c->listen_fd = (int)strtol(v, NULL, 10);
    else if ((v = value_of(arg, "max_body")))
        c->max_body = strtoul(v, NULL, 10);
    else if ((v = value_of(arg, "json_room")))
        c->json_room = strtoul(v, NULL, 10);
    else if ((v = value_of(arg, "max_requests")))
        c->max_requests = (int)strtol(v, NULL, 10);
    else if ((v = value_of(arg, "max_connections")))
        c->max_connections = (int)strtol(v, NULL, 10);
    else if ((v = value_of(arg, "per_key")))
        c->per_key_per_s = strtod(v, NULL);
    else if ((v = value_of(arg, "per_address")))
        c->per_address_per_s = strtod(v, NULL);
    else if ((v = value_of(arg, "read")))
        c->read_timeout_s = strtod(v, NULL);
    else if ((v = value_of(arg, "write")))
        c->write_timeout_s = strtod(v, NULL);
    else if ((v = value_of(arg, "idle")))
        c->idle_timeout_s = strtod(v, NULL);
    else if ((v = value_of(arg, "ping")))
        c->ping_s = strtod(v, NULL);
    else if ((v = value_of(arg, "request")))
        c->request_timeout_s = strtod(v, NULL);
    else if ((v = value_of(arg, "wrong")))
        computes_wrong = true;
    else if ((v = value_of(arg, "no_metrics")))
        no_metrics = true;
    else if ((v = value_of(arg, "drain")))
        c->drain_s = strtod(v, NULL);
}

int main(int argc, char **argv)
{
    srv_config c;
    bitnet_error err = {0};
    srv_config_init(&c);
    c.port = 0;
    c.keys = keys;
    c.hosts = hosts;
    c.log = say;
    c.on_request = say_request;
    for (int i = 1; i < argc; i++)
        set(&c, argv[i]);
    signal(SIGTERM, on_signal);
    signal(SIGPIPE, SIG_IGN);
    if (srv_serve(&c, stop, NULL, ready, NULL, &err) == BITNET_OK)
        return 0;
    fprintf(stderr, "%s\n", err.message);
    return err.status;
}
