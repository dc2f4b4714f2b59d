/* serve.c - the life of the server: open, load, serve, drain, close. */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "http/http.h"
#include "http/short_memory.h"
#include "serve.h"

enum {
    N_RECEIPTS = 1024,
    OWN_DESCRIPTORS = 256,
    TICK_MS = 20,
    LOOK_MS = 30000,
    CPUS_PER_TELLER = 4
};

void srv_config_init(srv_config *c)
{
    *c = (srv_config){.host = "127.0.0.1", .port = 8080, .receipts = true};
    c->max_body = 8 << 20;
    c->max_grammar = 256 << 10;
    c->max_choices = 8;
    c->max_depth = 64;
    c->max_connections = 16384;
    c->max_requests = 256;
    c->read_timeout_s = 30;
    c->write_timeout_s = 30;
    c->idle_timeout_s = 75;
    c->ping_s = 10;
    c->request_timeout_s = 600;
    c->drain_s = 30;
    c->n_threads_http = 2;
    bitnet_runtime_options_init(&c->models.runtime);
    bitnet_engine_options_init(&c->models.engine);
}

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* Room for the connections among the descriptors of the process; fewer connections where the
 * system gives no more. */
static void raise_descriptors(srv_config *c, const srv_server *s)
{
    struct rlimit r;
    rlim_t want = (rlim_t)c->max_connections + OWN_DESCRIPTORS;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur >= want)
        return;
    rlim_t had = r.rlim_cur;
    r.rlim_cur = r.rlim_max == RLIM_INFINITY || r.rlim_max >= want ? want : r.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &r) != 0)
        r.rlim_cur = had;
    if (r.rlim_cur >= want)
        return;
    int most = (int)r.rlim_cur - OWN_DESCRIPTORS;
    c->max_connections = most > 16 ? most : 16;
    srv_log(s, BITNET_LOG_INFO, "at most %d connections: the system allows %llu descriptors",
            c->max_connections, (unsigned long long)r.rlim_cur);
}

/* ---- serving ---- */

typedef struct life {
    srv_config config; /* with what the system allows */
    srv_server server;
    srv_http *http;
    int fd;
    char address[400];
    bitnet_cancel_fn stop;
    void *stop_user;
    double alive_ms; /* when the supervisor was told */
} life;

static void tell_alive(life *l)
{
    double every = l->config.watchdog_s * 500; /* twice as often as it wants */
    if (every <= 0 || srv_steady_ms() - l->alive_ms < every)
        return;
    l->alive_ms = srv_steady_ms();
    srv_notify(&l->config, "WATCHDOG=1");
}

static void serve_until_stopped(life *l)
{
    double looked_ms = 0;
    while (!l->stop(l->stop_user)) {
        tell_alive(l);
        if (srv_steady_ms() - looked_ms > LOOK_MS) {
            srv_health_look(&l->server);
            looked_ms = srv_steady_ms();
        }
        sleep_ms(TICK_MS);
    }
}

/* Running requests may finish within drain_s; the rest is told to stop, and does within a step. */
static void drain(life *l)
{
    double until = srv_steady_ms() + l->config.drain_s * 1e3;
    srv_notify(&l->config, "STOPPING=1\nSTATUS=finishing running requests");
    atomic_store(&l->server.draining, true);
    size_t n = atomic_load(&l->http->n_running);
    if (n)
        srv_log(&l->server, BITNET_LOG_INFO, "stopping: %zu running requests may take %g s", n,
                l->config.drain_s);
    while (atomic_load(&l->http->n_running) && srv_steady_ms() < until)
        sleep_ms(TICK_MS);
    if (l->server.models)
        srv_models_drain(l->server.models);
    atomic_store(&l->server.ending, true);
}

static bool asked_to_stop(void *user)
{
    life *l = user;
    tell_alive(l);
    return l->stop(l->stop_user);
}

/* Connections are accepted meanwhile: who asks for health is told that the model is loading. */
static bitnet_status load_first(life *l, bitnet_error *err)
{
    srv_model *first = NULL;
    bitnet_status st = srv_model_use(l->server.models, NULL, asked_to_stop, l, &first, err);
    if (st == BITNET_OK)
        srv_model_release(l->server.models, first);
    return st;
}

static void on_loaded(void *metrics, double seconds)
{
    srv_metrics_model_load(metrics, seconds);
}

static bitnet_status open_metrics(life *l, bitnet_error *err)
{
    l->server.metrics = srv_metrics_open();
    l->config.models.on_loaded = on_loaded;
    l->config.models.on_loaded_user = l->server.metrics;
    if (l->server.metrics)
        return BITNET_OK;
    *err = (bitnet_error){BITNET_MEMORY, "there is no memory to start the server"};
    return BITNET_MEMORY;
}

static void keep_receipt(void *receipts, const char *id, const char *text, size_t n_bytes)
{
    srv_receipts_put(receipts, id, text, n_bytes);
}

static bitnet_status open_parts(life *l, bitnet_error *err)
{
    srv_server *s = &l->server;
    s->config = &l->config;
    s->started = (int64_t)time(NULL);
    raise_descriptors(&l->config, s);
    srv_memory_watch();
    bitnet_status st = open_metrics(l, err);
    if (st != BITNET_OK)
        return st;
    s->tellers = srv_tellers_open((int)(sysconf(_SC_NPROCESSORS_ONLN) / CPUS_PER_TELLER));
    if (l->config.receipts)
        s->receipts = srv_receipts_open(N_RECEIPTS);
    if (s->receipts) {
        l->config.models.scheduler.receipt = keep_receipt;
        l->config.models.scheduler.receipt_user = s->receipts;
    }
    bool is_unix, is_loopback;
    st = srv_listen(&l->config, &l->fd, &is_unix, &is_loopback, l->address, sizeof l->address, err);
    if (st != BITNET_OK)
        return st;
    st = srv_models_open(&l->config.models, true, &s->models, err);
    if (st == BITNET_OK)
        st = srv_http_open(s, l->fd, is_unix, is_loopback, &l->http, err);
    return st == BITNET_OK ? load_first(l, err) : st;
}

static void close_parts(life *l)
{
    atomic_store(&l->server.draining, true); /* also where the start has failed */
    atomic_store(&l->server.ending, true);
    srv_http_close(l->http);
    if (l->fd >= 0)
        srv_unlisten(&l->config, l->fd);
    srv_models_close(l->server.models);
    srv_tellers_close(l->server.tellers); /* models ring their bells */
    srv_receipts_close(l->server.receipts);
    srv_metrics_close(l->server.metrics);
}

bitnet_status srv_serve(const srv_config *config, bitnet_cancel_fn stop, void *stop_user,
                        srv_ready_fn ready, void *ready_user, bitnet_error *err)
{
    life l = {.config = *config, .fd = -1, .stop = stop, .stop_user = stop_user};
    bitnet_status st = open_parts(&l, err);
    if (st == BITNET_OK) {
        atomic_store(&l.server.ready, true);
        ready(ready_user, l.address, l.server.models);
        srv_notify(&l.config, "READY=1\nSTATUS=answering requests");
        serve_until_stopped(&l);
        drain(&l);
    }
    close_parts(&l);
    return st;
}
