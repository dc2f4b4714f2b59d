/* models.c - the models by name (models.h). Hides: who waits for whom while one is loaded. */
#include "jobs/models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bitnet_tools.h"
#include "jobs/clock.h"
#include "jobs/grammars.h"
#include "jobs/models_impl.h"
#include "jobs/scheduler_impl.h"

static const double retry_ms = 30000;

/* ---- opening ---- */

static void find_load_dirs(srv_models *m)
{
    m->load_dirs = calloc(m->o.n_load_dirs + 1, sizeof *m->load_dirs);
    if (!m->load_dirs)
        m->o.n_load_dirs = 0;
    for (size_t i = 0; i < m->o.n_load_dirs; i++)
        m->load_dirs[i] = realpath(m->o.load_dirs[i], NULL);
}

static void find_budget(srv_models *m)
{
    bitnet_host_memory host = {0};
    m->budget = m->o.budget_bytes;
    if (m->budget == 0 && bitnet_host_memory_read(&host, NULL) == BITNET_OK)
        m->budget = host.available_bytes / 4 * 3;
}

static void read_options(srv_models *m)
{
    if (m->o.runtime.struct_size == 0)
        bitnet_runtime_options_init(&m->o.runtime);
    if (m->o.engine.struct_size == 0)
        bitnet_engine_options_init(&m->o.engine);
    find_load_dirs(m);
    find_budget(m);
}

static bitnet_status scan_all(srv_models *m, bitnet_error *err)
{
    bitnet_status st = BITNET_OK;
    if (m->o.n_paths == 0 || !m->o.paths)
        return srv_error(err, BITNET_ARGUMENT, "models: no file and no folder is given");
    for (size_t i = 0; i < m->o.n_paths && st == BITNET_OK; i++)
        st = srv_models_scan(m, m->o.paths[i], err);
    return st;
}

static void make_lock(srv_models *m)
{
    pthread_mutex_init(&m->lock, NULL);
    srv_cond_open(&m->changed);
}

static bitnet_status load_first(srv_models *m, bitnet_error *err)
{
    pthread_mutex_lock(&m->lock);
    bitnet_status st = srv_models_load(m, m->entries[0], (srv_wish){NULL, NULL}, err);
    pthread_mutex_unlock(&m->lock);
    return st;
}

/* Threads that compute wait for each other in every operation, so one that has to make room for
 * HTTP holds up all of them. Where nobody chose a number and there are CPUs enough, one of them is
 * left to HTTP, of many two. Returns 0 where it should be as many as usual. */
static int threads_beside_http(const bitnet_runtime_options *wanted)
{
    enum { CPUS_ENOUGH = 4, CPUS_MANY = 12 };
    bitnet_runtime_options o = *wanted;
    bitnet_runtime *r = NULL;
    o.device = "cpu";
    o.log = NULL;
    if (o.n_threads || bitnet_runtime_open(&o, &r, NULL) != BITNET_OK)
        return o.n_threads;
    int n = bitnet_runtime_threads(r);
    bitnet_runtime_close(r);
    return n >= CPUS_MANY ? n - 2 : n >= CPUS_ENOUGH ? n - 1 : 0;
}

bitnet_status srv_models_open(const srv_models_options *options, bool lazy, srv_models **out,
                              bitnet_error *err)
{
    if (!options || !out)
        return srv_error(err, BITNET_ARGUMENT, "models: options and out must not be NULL");
    srv_models *m = calloc(1, sizeof *m);
    if (!m)
        return srv_no_memory(err);
    m->o = *options;
    atomic_init(&m->closing, false);
    make_lock(m);
    read_options(m);
    bitnet_status st = scan_all(m, err);
    m->o.runtime.n_threads = threads_beside_http(&m->o.runtime);
    if (st == BITNET_OK)
        st = bitnet_runtime_open(&m->o.runtime, &m->runtime, err);
    if (st == BITNET_OK && !lazy)
        st = load_first(m, err);
    if (st != BITNET_OK) {
        srv_models_close(m);
        return st;
    }
    *out = m;
    return BITNET_OK;
}

static void free_entry(srv_entry *e)
{
    srv_scheduler_close(e->model.scheduler);
    srv_grammars_close(e->model.grammars);
    bitnet_engine_close(e->model.engine);
    free(e->name);
    free(e->path);
    free(e);
}

void srv_models_close(srv_models *m)
{
    if (!m)
        return;
    atomic_store(&m->closing, true);
    for (size_t i = 0; i < m->n; i++)
        free_entry(m->entries[i]);
    bitnet_runtime_close(m->runtime);
    for (size_t i = 0; i < m->o.n_load_dirs; i++)
        free(m->load_dirs[i]);
    free(m->load_dirs);
    free(m->entries);
    pthread_cond_destroy(&m->changed);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

void srv_models_drain(srv_models *m)
{
    if (!m)
        return;
    pthread_mutex_lock(&m->lock);
    m->draining = true;
    for (size_t i = 0; i < m->n; i++)
        if (m->entries[i]->state == SRV_LOADED)
            srv_scheduler_drain(m->entries[i]->model.scheduler);
    pthread_mutex_unlock(&m->lock);
}

/* ---- using ---- */

/* Under the lock: waits until something changes, at most for a moment. */
static void wait_a_moment(srv_models *m)
{
    struct timespec t = srv_clock_after(50);
    pthread_cond_timedwait(&m->changed, &m->lock, &t);
}

static srv_entry *first(const srv_models *m, size_t *n)
{
    srv_entry *found = NULL;
    *n = 0;
    for (size_t i = 0; i < m->n; i++)
        if (!m->entries[i]->gone) {
            found = found ? found : m->entries[i];
            ++*n;
        }
    return found;
}

/* By its very name, or else by that with a tag. */
static srv_entry *find_called(const srv_models *m, const char *called)
{
    srv_entry *e = srv_models_find(m, called);
    for (size_t i = 0; !e && i < m->n; i++)
        if (!m->entries[i]->gone && srv_model_is_called(m->entries[i]->name, called))
            e = m->entries[i];
    return e;
}

static srv_entry *choose(const srv_models *m, const char *name)
{
    size_t n;
    srv_entry *e = first(m, &n);
    if (!name || !*name)
        return e;
    srv_entry *named = find_called(m, name);
    return named || !m->o.any_name || n != 1 ? named : e;
}

static bool asked_to_end(const srv_models *m, srv_wish wish)
{
    return atomic_load(&m->closing) || (wish.cancel && wish.cancel(wish.user));
}

/* Waits while another thread loads or unloads. False: the wish was withdrawn. */
static bool wait_for_others(srv_models *m, srv_entry *e, srv_wish wish)
{
    e->n_waiting++;
    wait_a_moment(m);
    pthread_mutex_unlock(&m->lock); /* others may be asked without it */
    bool end = asked_to_end(m, wish);
    pthread_mutex_lock(&m->lock);
    e->n_waiting--;
    return !end;
}

/* Makes the entry loaded. Under the lock. */
static bitnet_status need(srv_models *m, srv_entry *e, srv_wish wish, bitnet_error *err)
{
    while (e->state != SRV_LOADED) {
        if (e->gone)
            return srv_error(err, BITNET_NOT_AVAILABLE, "the model %s was removed", e->name);
        if (e->state == SRV_BROKEN && srv_now_ms() - e->broken_ms < retry_ms)
            return srv_error(err, e->why_status, "%s", e->why);
        if (!m->busy) {
            bitnet_status st = srv_models_load(m, e, wish, err);
            if (st != BITNET_OK)
                return st;
        } else if (!wait_for_others(m, e, wish)) {
            return srv_error(err, BITNET_CANCELLED,
                             "the request ended while the model %s was loaded", e->name);
        }
    }
    return BITNET_OK;
}

bitnet_status srv_model_use(srv_models *m, const char *name, bitnet_cancel_fn cancel, void *user,
                            srv_model **out, bitnet_error *err)
{
    if (!m || !out)
        return srv_error(err, BITNET_ARGUMENT, "models: models and out must not be NULL");
    pthread_mutex_lock(&m->lock);
    srv_entry *e = choose(m, name);
    bitnet_status st =
        e ? need(m, e, (srv_wish){cancel, user}, err)
          : srv_error(err, BITNET_NOT_AVAILABLE, "there is no model %.200s", name ? name : "");
    if (st == BITNET_OK) {
        e->n_users++;
        e->used_ms = srv_now_ms();
        *out = &e->model;
    }
    pthread_mutex_unlock(&m->lock);
    return st;
}

void srv_model_release(srv_models *m, srv_model *model)
{
    if (!m || !model)
        return;
    srv_entry *e = (srv_entry *)model;
    pthread_mutex_lock(&m->lock);
    e->n_users--;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
}

/* ---- listing ---- */

static srv_entry *nth(const srv_models *m, size_t i)
{
    for (size_t k = 0; k < m->n; k++)
        if (!m->entries[k]->gone && i-- == 0)
            return m->entries[k];
    return NULL;
}

srv_model *srv_model_peek(srv_models *m, const char *name)
{
    if (!m)
        return NULL;
    pthread_mutex_lock(&m->lock);
    srv_entry *e = srv_models_find(m, name);
    bool loaded = e && e->state == SRV_LOADED;
    if (loaded)
        e->n_looks++;
    pthread_mutex_unlock(&m->lock);
    return loaded ? &e->model : NULL;
}

void srv_model_looked(srv_models *m, srv_model *model)
{
    srv_entry *e = (srv_entry *)model;
    pthread_mutex_lock(&m->lock);
    e->n_looks--;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
}

static void describe(const srv_entry *e, srv_model_row *out)
{
    snprintf(out->name, sizeof out->name, "%s", e->name);
    snprintf(out->path, sizeof out->path, "%s", e->path);
    snprintf(out->why, sizeof out->why, "%s", e->state == SRV_BROKEN ? e->why : "");
    out->state = e->state;
    out->progress = e->state == SRV_LOADED ? 1 : (double)atomic_load(&e->progress) / 1000;
    out->created = e->created;
    out->n_bytes = e->n_bytes;
}

bool srv_models_at(srv_models *m, size_t i, srv_model_row *out)
{
    if (!m || !out)
        return false;
    pthread_mutex_lock(&m->lock);
    const srv_entry *e = nth(m, i);
    if (e)
        describe(e, out);
    pthread_mutex_unlock(&m->lock);
    return e != NULL;
}

/* ---- adding and removing ---- */

/* Under the lock. What could not be loaded is forgotten, unless others load it, have loaded it or
 * still wait for it. */
static bitnet_status add(srv_models *m, const char *path, const char *name, srv_wish wish,
                         bitnet_error *err)
{
    srv_entry *e = srv_models_find(m, name);
    if (e && strcmp(e->path, path) != 0 && !srv_models_same_file(e->path, path))
        return srv_error(err, BITNET_ARGUMENT, "models: the name %.200s is taken by another file",
                         name);
    bitnet_status st = e ? BITNET_OK : srv_models_enter(m, path, name, &e, err);
    if (st != BITNET_OK)
        return st;
    st = need(m, e, wish, err);
    bool wanted = e->state == SRV_LOADING || e->state == SRV_LOADED || e->n_waiting;
    if (st != BITNET_OK && !e->given && !wanted)
        e->gone = true;
    return st;
}

bitnet_status srv_models_add(srv_models *m, const char *path, const char *name,
                             bitnet_cancel_fn cancel, void *user, bitnet_error *err)
{
    if (!m || !path)
        return srv_error(err, BITNET_ARGUMENT, "models: models and path must not be NULL");
    char *real = srv_models_allowed(m, path);
    if (!real)
        return m->o.n_load_dirs
                   ? srv_error(err, BITNET_ARGUMENT,
                               "models: '%.200s' is no file in a folder from which models may be "
                               "loaded",
                               path)
                   : srv_error(err, BITNET_ARGUMENT,
                               "models: this server has no folder from which requests may load "
                               "models; --model-dir FOLDER gives it one");
    char *own = name && *name ? strdup(name) : srv_models_name_of(real);
    bitnet_status st = own ? BITNET_OK : srv_no_memory(err);
    if (st == BITNET_OK) {
        pthread_mutex_lock(&m->lock);
        st = add(m, real, own, (srv_wish){cancel, user}, err);
        pthread_mutex_unlock(&m->lock);
    }
    free(own);
    free(real);
    return st;
}

/* Waits a moment for requests that have their answer and are about to end. Fails: NOT_AVAILABLE,
 * AGAIN. Under the lock. */
static bitnet_status find_idle(srv_models *m, const char *name, srv_entry **out, bitnet_error *err)
{
    srv_entry *e = *out = find_called(m, name);
    for (int i = 0; e && e->n_users && i < 4; i++) {
        e->n_waiting++;
        wait_a_moment(m);
        e->n_waiting--;
    }
    if (!e || e->gone)
        return srv_error(err, BITNET_NOT_AVAILABLE, "there is no model %.200s", name);
    if (m->busy || e->n_users)
        return srv_error(err, BITNET_AGAIN, "the model %s is %s; try later", e->name,
                         m->busy ? "being loaded, or another is" : "in use");
    return BITNET_OK;
}

static bitnet_status unload(srv_models *m, const char *name, bool forget, bitnet_error *err)
{
    srv_entry *e;
    if (!m || !name)
        return srv_error(err, BITNET_ARGUMENT, "models: models and name must not be NULL");
    pthread_mutex_lock(&m->lock);
    bitnet_status st = find_idle(m, name, &e, err);
    if (st == BITNET_OK && e->state == SRV_LOADED)
        srv_models_unload(m, e);
    if (st == BITNET_OK && forget && !e->given)
        e->gone = true;
    if (st == BITNET_OK && e->state == SRV_BROKEN)
        e->state = SRV_UNLOADED; /* it may be tried again at once */
    pthread_mutex_unlock(&m->lock);
    return st;
}

bitnet_status srv_models_remove(srv_models *m, const char *name, bitnet_error *err)
{
    return unload(m, name, true, err);
}

bitnet_status srv_models_rest(srv_models *m, const char *name, bitnet_error *err)
{
    return unload(m, name, false, err);
}
