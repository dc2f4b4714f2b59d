/* models_load.c - loading and unloading, one at a time. Hides: the budget of memory, and who goes
 * when it is spent: the model that nobody uses and that nobody has used for longest. */
#include <stdlib.h>
#include <string.h>

#include "bitnet_tools.h"
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

/* What loaded models take. */
typedef struct taken {
    uint64_t bytes;
    int n;
} taken;

static taken taken_by(const srv_models *m, bool idle_too)
{
    taken t = {0, 0};
    for (size_t i = 0; i < m->n; i++) {
        const srv_entry *e = m->entries[i];
        if (e->state == SRV_LOADED && (idle_too || e->n_users > 0)) {
            t.bytes += e->cost;
            t.n++;
        }
    }
    return t;
}

static int most_loaded(const srv_models *m)
{
    return m->o.max_loaded > 0 ? m->o.max_loaded : 3;
}

/* A budget that we chose ourselves is no reason to refuse a model that is alone. */
static bool fits_beside(const srv_models *m, taken t, uint64_t need)
{
    bool bytes = t.bytes <= m->budget && need <= m->budget - t.bytes;
    return (bytes || (t.n == 0 && !m->o.budget_bytes)) && t.n < most_loaded(m);
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

/* Takes everything of the model out of the entry and closes it without the lock, once those who
 * look at it have looked. Busy. */
static void close_model(srv_models *m, srv_entry *e)
{
    e->state = SRV_UNLOADED; /* nobody begins to look now */
    while (e->n_looks > 0)
        pthread_cond_wait(&m->changed, &m->lock);
    srv_scheduler *scheduler = e->model.scheduler;
    srv_grammars *grammars = e->model.grammars;
    bitnet_engine *engine = e->model.engine;
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

static bitnet_status refuse(const srv_models *m, const srv_entry *e, uint64_t need,
                            bitnet_error *err)
{
    unsigned long long mb = need >> 20, budget = m->budget >> 20;
    taken t = taken_by(m, false);
    if (!fits_beside(m, (taken){0, 0}, need))
        return srv_error(err, BITNET_NOT_AVAILABLE,
                         "the model %s needs %llu MB; all models and their caches may have %llu MB "
                         "here (--model-memory)",
                         e->name, mb + 1, budget);
    return srv_error(err, BITNET_AGAIN,
                     "the model %s needs %llu MB; models in use (%d) have %llu MB of %llu MB "
                     "(--model-memory; --max-loaded %d); try later",
                     e->name, mb + 1, t.n, (unsigned long long)(t.bytes >> 20), budget,
                     most_loaded(m));
}

/* Unloads others until the entry fits; none of them where that would not help. Fails: NOT_AVAILABLE
 * (it never fits), AGAIN (it does not fit beside those in use). */
static bitnet_status make_room(srv_models *m, const srv_entry *e, uint64_t need, bitnet_error *err)
{
    while (!fits_beside(m, taken_by(m, true), need)) {
        srv_entry *other = fits_beside(m, taken_by(m, false), need) ? least_used(m) : NULL;
        if (!other)
            return refuse(m, e, need, err);
        close_model(m, other);
    }
    return BITNET_OK;
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

/* What each cache may have where all that may be loaded at a time are: this model and others, as
 * large as those that are offered are on average. 0: they do not fit together. */
static uint64_t shared_cache(const srv_models *m, const srv_entry *e)
{
    uint64_t most = (uint64_t)most_loaded(m), n = 0, bytes = 0;
    for (size_t i = 0; i < m->n; i++)
        if (m->entries[i] != e && !m->entries[i]->gone) {
            n++;
            bytes += m->entries[i]->n_bytes;
        }
    uint64_t beside = n < most ? n : most - 1;
    uint64_t shares = m->o.n_load_dirs ? most : beside + 1;
    uint64_t weights = e->n_bytes + (n ? bytes / n * beside : 0);
    return weights < m->budget ? (m->budget - weights) / shares : 0;
}

/* How large the cache may be within a budget that was given: its share where models fit together,
 * else all that is left. For that others go until there is room for a timeline, or for half of what
 * there is; a budget without room for one block is none for this model. */
static bitnet_status bound_cache(srv_models *m, srv_entry *e, const bitnet_engine *engine,
                                 srv_scheduler_options *o, bitnet_error *err)
{
    uint64_t block = 0, timeline = 0, shared = shared_cache(m, e);
    if (!m->o.budget_bytes || o->kv_bytes)
        return BITNET_OK;
    bitnet_status st = srv_scheduler_timeline(engine, o, SRV_BLOCK, &block, err);
    st = st == BITNET_OK ? srv_scheduler_timeline(engine, o, o->n_ctx, &timeline, err) : st;
    e->least = e->n_bytes + block;
    if (st != BITNET_OK || e->least > m->budget)
        return st != BITNET_OK ? st : refuse(m, e, e->least, err);
    bool together = shared >= block;
    uint64_t want = together ? shared : (m->budget - e->n_bytes) / 2;
    want = want > timeline ? timeline : want < block ? block : want;
    st = make_room(m, e, e->n_bytes + want, err);
    uint64_t have = taken_by(m, true).bytes + e->n_bytes;
    uint64_t rest = have < m->budget ? m->budget - have : 1;
    o->kv_most = together && shared < rest ? shared : rest;
    return st;
}

/* The scheduler of an engine that is open. Under the lock, which it gives up. */
static bitnet_status start(srv_models *m, srv_entry *e, srv_model *model, bitnet_error *err)
{
    srv_scheduler_options o = m->o.scheduler;
    if (!on_cpu(model->engine, &model->device) && m->o.engine.batch_invariant && !o.piece)
        o.piece = PIECE;
    bitnet_status st = bound_cache(m, e, model->engine, &o, err);
    pthread_mutex_unlock(&m->lock);
    if (st == BITNET_OK)
        st = bitnet_engine_warmup(model->engine, NULL, err);
    if (st == BITNET_OK)
        st = srv_scheduler_open(model->engine, &o, &model->scheduler, err);
    pthread_mutex_lock(&m->lock);
    return st;
}

static bitnet_status open_engine(loading *l, srv_model *model, bitnet_error *err)
{
    bitnet_engine_options o = l->m->o.engine;
    o.on_progress = on_progress;
    o.progress_user = l;
    pthread_mutex_unlock(&l->m->lock);
    bitnet_status st = bitnet_engine_open(l->m->runtime, l->e->path, &o, &model->engine, err);
    pthread_mutex_lock(&l->m->lock);
    return st;
}

/* Into a model of its own. Under the lock, which it gives up. */
static bitnet_status open_model(loading *l, srv_model *model, uint64_t *cost, bitnet_error *err)
{
    srv_load figures;
    bitnet_status st = open_engine(l, model, err);
    if (st != BITNET_OK)
        return st;
    st = start(l->m, l->e, model, err);
    if (st != BITNET_OK) {
        pthread_mutex_unlock(&l->m->lock);
        bitnet_engine_close(model->engine);
        pthread_mutex_lock(&l->m->lock);
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

/* Whether the file is a GGUF file at all: nobody is unloaded for one that is not. Under the lock,
 * which it gives up. */
static bitnet_status check_file(srv_models *m, const srv_entry *e, bitnet_error *err)
{
    bitnet_inspect *inspect = NULL;
    pthread_mutex_unlock(&m->lock);
    bitnet_status st = bitnet_inspect_open(e->path, &inspect, err);
    bitnet_inspect_close(inspect);
    pthread_mutex_lock(&m->lock);
    return st;
}

/* ---- failures ---- */

/* A file that is wrong stays wrong for a while; lack of memory and of patience are not its fault.
 */
static void note_failure(srv_entry *e, bitnet_status st, const bitnet_error *why)
{
    bool broken = st != BITNET_MEMORY && st != BITNET_CANCELLED && st != BITNET_AGAIN;
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
    uint64_t least = e->least ? e->least : e->n_bytes, need = least + m->o.scheduler.kv_bytes;
    bitnet_status st = fits_beside(m, taken_by(m, true), need) ? BITNET_OK : check_file(m, e, err);
    st = st == BITNET_OK ? make_room(m, e, need, err) : st;
    if (st != BITNET_OK)
        return st;
    double began_ms = srv_now_ms();
    st = open_model(&l, &model, &cost, err);
    if (st != BITNET_OK)
        return st;
    if (m->o.on_loaded)
        m->o.on_loaded(m->o.on_loaded_user, (srv_now_ms() - began_ms) / 1e3);
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
