/* health.c - is the process alive, can it answer? For people, load balancers and supervisors; the
 * answers cost no computation. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "bitnet_check.h"
#include "http/http.h"

typedef struct state {
    size_t n_loaded, n_loading, n_broken, n_models;
    uint64_t available, total; /* memory of the host */
} state;

static void count_models(srv_server *s, state *out)
{
    srv_model_row row;
    for (size_t i = 0; s->models && srv_models_at(s->models, i, &row); i++) {
        out->n_models++;
        out->n_loaded += row.state == SRV_LOADED;
        out->n_loading += row.state == SRV_LOADING;
        out->n_broken += row.state == SRV_BROKEN;
    }
}

/* From /proc/meminfo, in bytes; 0: not known. */
static void read_memory(state *out)
{
    char line[128];
    unsigned long long kb;
    FILE *f = fopen("/proc/meminfo", "re");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "MemTotal: %llu kB", &kb) == 1)
            out->total = kb * 1024;
        if (sscanf(line, "MemAvailable: %llu kB", &kb) == 1)
            out->available = kb * 1024;
    }
    if (f)
        fclose(f);
}

static bool memory_is_short(const state *s)
{
    return s->total && s->available < s->total / 50;
}

void srv_health_look(srv_server *server)
{
    srv_model_row row;
    bool sound = true;
    for (size_t i = 0; srv_models_at(server->models, i, &row); i++) {
        bitnet_health h;
        bitnet_error err = {0};
        srv_model *m = srv_model_peek(server->models, row.name);
        bitnet_health_init(&h);
        if (m && bitnet_health_check(m->engine, &h, &err) == BITNET_OK && !h.healthy) {
            sound = sound && h.compute_ok && h.cache_ok;
            srv_log(server, BITNET_LOG_ERROR, "health of %s: %s", m->name, h.detail);
        }
        if (m)
            srv_model_looked(server->models, m);
    }
    atomic_store(&server->unsound, !sound);
}

static const char *model_word(const srv_server *s, const state *st)
{
    if (st->n_loaded)
        return "healthy";
    if (!atomic_load(&s->ready))
        return "degraded";
    return st->n_broken == st->n_models ? "unhealthy" : "healthy"; /* loads on demand */
}

/* "healthy", "degraded" (starting, ending, short of memory) or "unhealthy". */
static const char *overall(const srv_server *s, const state *st)
{
    const char *model = model_word(s, st);
    if (strcmp(model, "unhealthy") == 0 || atomic_load(&s->unsound))
        return "unhealthy";
    if (atomic_load(&s->draining) || memory_is_short(st) || strcmp(model, "healthy") != 0)
        return "degraded";
    return "healthy";
}

static json_t *component(const char *word, const char *detail)
{
    return json_pack("{s:s, s:s}", "status", word, "message", detail);
}

static json_t *components(const srv_server *s, const state *st)
{
    char models[96];
    snprintf(models, sizeof models, "%zu of %zu loaded, %zu loading, %zu broken", st->n_loaded,
             st->n_models, st->n_loading, st->n_broken);
    const char *engine = atomic_load(&s->unsound)    ? "a model computes wrong results"
                         : atomic_load(&s->draining) ? "draining"
                         : atomic_load(&s->ready)    ? "accepts requests"
                                                     : "starting";
    const char *word = atomic_load(&s->unsound)                  ? "unhealthy"
                       : strcmp(engine, "accepts requests") == 0 ? "healthy"
                                                                 : "degraded";
    return json_pack(
        "{s:o, s:o, s:o}", "model", component(model_word(s, st), models), "memory",
        component(memory_is_short(st) ? "degraded" : "healthy",
                  memory_is_short(st) ? "less than 2 % of the memory is free" : "there is room"),
        "inference_engine", component(word, engine));
}

static void stamp(char *buf, size_t cap)
{
    time_t now = time(NULL);
    struct tm t;
    if (!gmtime_r(&now, &t) || !strftime(buf, cap, "%Y-%m-%dT%H:%M:%SZ", &t))
        buf[0] = '\0';
}

void srv_health(srv_exchange *x)
{
    srv_server *s = srv_server_of(x);
    state st = {0};
    char now[32];
    count_models(s, &st);
    read_memory(&st);
    stamp(now, sizeof now);
    const char *word = overall(s, &st);
    int64_t uptime = (int64_t)time(NULL) - s->started;
    json_t *metrics = json_pack("{s:I, s:I, s:I}", "models_loaded", (json_int_t)st.n_loaded,
                                "memory_available_bytes", (json_int_t)st.available,
                                "memory_total_bytes", (json_int_t)st.total);
    bool healthy = strcmp(word, "healthy") == 0;
    if (!healthy)
        srv_reply_header(x, "Retry-After", "1");
    srv_reply_json(x, healthy ? 200 : 503,
                   json_pack("{s:s, s:s, s:I, s:s, s:o, s:o}", "status", word, "timestamp", now,
                             "uptime_seconds", (json_int_t)uptime, "version", bitnet_version(),
                             "components", components(s, &st), "metrics", metrics));
}

void srv_health_live(srv_exchange *x)
{
    srv_reply_json(x, 200, json_pack("{s:s}", "status", "live"));
}

void srv_health_ready(srv_exchange *x)
{
    srv_server *s = srv_server_of(x);
    state st = {0};
    count_models(s, &st);
    read_memory(&st);
    const char *word = overall(s, &st);
    bool ready = strcmp(word, "healthy") == 0;
    if (!ready)
        srv_reply_header(x, "Retry-After", "1");
    srv_reply_json(
        x, ready ? 200 : 503,
        json_pack("{s:s, s:s}", "status", ready ? "ready" : "not ready", "health", word));
}
