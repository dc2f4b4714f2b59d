/* models_load.c - loading and unloading, one at a time. Hides: the budget of memory, and who goes
 * when it is spent: the model that nobody uses and that nobody has used for longest. */
#include <stdlib.h>
#include <string.h>

#include "jobs/grammars.h"
#include "jobs/models_impl.h"
#include "jobs/scheduler_impl.h"

enum { PIECE = 256, KEPT_GRAMMARS = 32 };

/* ---- progress ---- */

typedef struct loading {
    srv_models *m;
    srv_entry *e;
    srv_wish wish;
} loading;

/* A load that nobody waits for any more ends. */
static bool unwanted(const loading *l)
{
    if (atomic_load(&l->m->closing))
        return true;
    if (!l->wish.cancel || !l->wish.cancel(l->wish.user))
        return false;
    pthread_mutex_lock(&l->m->lock);
    bool others = l->e->n_waiting > 0;
    pthread_mutex_unlock(&l->m->lock);
    return !others;
}

static bool on_progress(void *user, uint64_t done, uint64_t total)
{
    const loading *l = user;
    const bitnet_engine_options *o = &l->m->o.engine;
    unsigned part = total ? (unsigned)((double)done / (double)total * 1000) : 0;
    atomic_store(&l->e->progress, part > 1000 ? 1000 : part);
    return (!o->on_progress || o->on_progress(o->progress_user, done, total)) && !unwanted(l);
}

/* ---- the budget ---- */

static uint64_t loaded_bytes(const srv_models *m, int *n_loaded)
{
    uint64_t sum = 0;
    *n_loaded = 0;
    for (size_t i = 0; i < m->n; i++)
        if (m->entries[i]->state == SRV_LOADED) {
            sum += m->entries[i]->cost;
            ++*n_loaded;
        }
    return sum;
}

static srv_entry *least_used(const srv_models *m)
{
    srv_entry *best = NULL;
    for (size_t i = 0; i < m->n; i++) {
        srv_entry *e = m->entries[i];
        if (e->state == SRV_LOADED && e->n_users == 0 && (!best || e->used_ms < best->used_ms))
            best = e;
    }
    return best;
}

/* Takes everything of the model out of the entry and closes it without the lock. Busy. */
static void close_model(srv_models *m, srv_entry *e)
{
    srv_scheduler *scheduler = e->model.scheduler;
    srv_grammars *grammars = e->model.grammars;
    bitnet_engine *engine = e->model.engine;
    e->state = SRV_UNLOADED;
    e->cost = 0;
    e->model.scheduler = NULL;
    e->model.grammars = NULL;
    e->model.engine = NULL;
    e->model.info = NULL;
    pthread_mutex_unlock(&m->lock);
    srv_scheduler_close(scheduler);
    srv_grammars_close(grammars);
    bitnet_engine_close(engine);
    pthread_mutex_lock(&m->lock);
}

/* Unloads others until the entry fits. A budget that we chose ourselves is no reason to refuse a
 * model that is alone. */
static bitnet_status make_room(srv_models *m, const srv_entry *e, bitnet_error *err)
{
    uint64_t need = e->n_bytes + m->o.scheduler.kv_bytes;
    int most = m->o.max_loaded > 0 ? m->o.max_loaded : 3, n_loaded;
    for (;;) {
        uint64_t have = loaded_bytes(m, &n_loaded);
        bool fits = have <= m->budget && need <= m->budget - have;
        if ((fits || (n_loaded == 0 && !m->o.budget_bytes)) && n_loaded < most)
            return BITNET_OK;
        srv_entry *other = least_used(m);
        if (!other)
            return srv_error(
                err, BITNET_MEMORY,
                "%s needs about %llu MB; %d models are loaded with %llu MB of a budget "
                "of %llu MB (at most %d models), and all are in use",
                e->name, (unsigned long long)(need >> 20), n_loaded,
                (unsigned long long)(have >> 20), (unsigned long long)(m->budget >> 20), most);
        close_model(m, other);
    }
}

/* ---- loading ---- */

static bool on_cpu(const bitnet_engine *engine, const char **device)
{
    bitnet_stats stats;
    bitnet_stats_init(&stats);
    *device = "cpu";
    if (bitnet_engine_stats(engine, &stats, NULL) == BITNET_OK)
        *device = stats.device;
    return strcmp(*device, "cpu") == 0;
}

/* The scheduler of an engine that is open. */
static bitnet_status start(srv_models *m, srv_model *model, bitnet_error *err)
{
    srv_scheduler_options o = m->o.scheduler;
    if (!on_cpu(model->engine, &model->device) && m->o.engine.batch_invariant && !o.piece)
        o.piece = PIECE;
    bitnet_status st = bitnet_engine_warmup(model->engine, NULL, err);
    return st == BITNET_OK ? srv_scheduler_open(model->engine, &o, &model->scheduler, err) : st;
}

/* Without the lock, into a model of its own. */
static bitnet_status open_model(loading *l, srv_model *model, uint64_t *cost, bitnet_error *err)
{
    bitnet_engine_options o = l->m->o.engine;
    srv_load figures;
    o.on_progress = on_progress;
    o.progress_user = l;
    bitnet_status st = bitnet_engine_open(l->m->runtime, l->e->path, &o, &model->engine, err);
    if (st != BITNET_OK)
        return st;
    st = start(l->m, model, err);
    if (st != BITNET_OK) {
        bitnet_engine_close(model->engine);
        return st;
    }
    model->grammars = srv_grammars_open(KEPT_GRAMMARS); /* NULL: it works without */
    srv_scheduler_load(model->scheduler, &figures);
    model->info = bitnet_engine_model(model->engine);
    model->summary = bitnet_runtime_summary(l->m->runtime);
    model->n_ctx = figures.n_ctx;
    *cost = l->e->n_bytes + figures.kv.n_blocks * figures.kv.block_bytes;
    return BITNET_OK;
}

/* ---- failures ---- */

/* A file that is wrong stays wrong for a while; lack of memory and of patience are not its fault.
 */
static void note_failure(srv_entry *e, bitnet_status st, const bitnet_error *why)
{
    bool broken = st != BITNET_MEMORY && st != BITNET_CANCELLED;
    e->state = broken ? SRV_BROKEN : SRV_UNLOADED;
    if (!broken)
        return;
    memcpy(e->why, why->message, sizeof e->why);
    e->why_status = st;
    e->broken_ms = srv_now_ms();
}

static bitnet_status load(srv_models *m, srv_entry *e, srv_wish wish, bitnet_error *err)
{
    srv_model model = e->model;
    uint64_t cost = 0;
    loading l = {m, e, wish};
    e->state = SRV_LOADING; /* before the lock is given up: nobody forgets it now */
    atomic_store(&e->progress, 0);
    bitnet_status st = make_room(m, e, err);
    if (st != BITNET_OK)
        return st;
    pthread_mutex_unlock(&m->lock);
    double began_ms = srv_now_ms();
    st = open_model(&l, &model, &cost, err);
    if (st == BITNET_OK && m->o.on_loaded)
        m->o.on_loaded(m->o.on_loaded_user, (srv_now_ms() - began_ms) / 1e3);
    pthread_mutex_lock(&m->lock);
    if (st != BITNET_OK)
        return st;
    e->model = model;
    e->cost = cost;
    e->state = SRV_LOADED;
    e->used_ms = srv_now_ms();
    if (m->draining)
        srv_scheduler_drain(model.scheduler);
    return BITNET_OK;
}

bitnet_status srv_models_load(srv_models *m, srv_entry *e, srv_wish wish, bitnet_error *err)
{
    bitnet_error why = {0};
    m->busy = true;
    bitnet_status st = load(m, e, wish, &why);
    if (st != BITNET_OK) {
        note_failure(e, st, &why);
        if (err)
            *err = why;
    }
    m->busy = false;
    pthread_cond_broadcast(&m->changed);
    return st;
}

void srv_models_unload(srv_models *m, srv_entry *e)
{
    m->busy = true;
    close_model(m, e);
    m->busy = false;
    pthread_cond_broadcast(&m->changed);
}
