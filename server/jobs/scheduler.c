/* scheduler.c - opening, closing and the thread. Hides: how large the shared cache is. */
#include "jobs/scheduler.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "bitnet_tools.h"
#include "jobs/clock.h"
#include "jobs/scheduler_impl.h"

enum {
    TOKENS = 512,
    ACTIVE = 64,
    QUEUED = 256,
    UNREAD = 256 * 1024 * 1024,
    ACTIVE_MAX = 4096,
    QUEUED_MAX = 1 << 20,
    PROMPT_LEAST = 64, /* tokens of a step that are left for prompts in any case */
    HALVINGS = 6,
};

/* ---- options ---- */

static bitnet_status check_int(const char *field, long long value, long long most,
                               bitnet_error *err)
{
    if (value >= 0 && value <= most)
        return BITNET_OK;
    return srv_error(err, BITNET_ARGUMENT, "scheduler options: %s is %lld, must be 0..%lld", field,
                     value, most);
}

static bitnet_status read_options(const bitnet_model_info *info, srv_scheduler_options *o,
                                  bitnet_error *err)
{
    bitnet_status st = check_int("n_ctx", o->n_ctx, 1 << 24, err);
    if (st == BITNET_OK)
        st = check_int("n_tokens", o->n_tokens, 65536, err);
    if (st == BITNET_OK)
        st = check_int("max_active", o->max_active, ACTIVE_MAX, err);
    if (st == BITNET_OK)
        st = check_int("max_queued", o->max_queued, QUEUED_MAX, err);
    if (st == BITNET_OK)
        st = check_int("piece", o->piece, 8192, err);
    if (st == BITNET_OK && o->piece % SRV_BLOCK)
        st = srv_error(err, BITNET_ARGUMENT,
                       "scheduler options: piece is %d, must be a multiple of %d", o->piece,
                       SRV_BLOCK);
    o->n_ctx = o->n_ctx ? o->n_ctx : info->n_ctx_train;
    o->max_active = o->max_active ? o->max_active : ACTIVE;
    o->max_queued = o->max_queued ? o->max_queued : QUEUED;
    o->max_unread = o->max_unread ? o->max_unread : UNREAD;
    o->n_tokens = o->n_tokens ? o->n_tokens : TOKENS;
    int least = o->max_active + (o->piece > PROMPT_LEAST ? o->piece : PROMPT_LEAST);
    o->n_tokens = o->n_tokens < least ? least : o->n_tokens;
    return st;
}

/* ---- the cache ---- */

/* What the device that computes has left; the host's, where it does not say. */
static uint64_t free_bytes(const bitnet_engine *engine)
{
    bitnet_stats stats;
    bitnet_host_memory host = {0};
    bitnet_stats_init(&stats);
    bitnet_host_memory_read(&host, NULL);
    if (bitnet_engine_stats(engine, &stats, NULL) != BITNET_OK ||
        strcmp(stats.device, "cpu") == 0 || strcmp(stats.device, "host") == 0 ||
        stats.on_device.memory_total <= stats.on_device.memory_used)
        return host.available_bytes;
    return stats.on_device.memory_total - stats.on_device.memory_used;
}

bitnet_status srv_scheduler_timeline(const bitnet_engine *engine,
                                     const srv_scheduler_options *options, int n_ctx, uint64_t *out,
                                     bitnet_error *err)
{
    bitnet_session_options o;
    bitnet_session_cost cost;
    bitnet_session_options_init(&o);
    o.n_ctx = n_ctx ? n_ctx : bitnet_engine_model(engine)->n_ctx_train;
    o.kv_type = options->kv_type;
    bitnet_status st = bitnet_session_memory(engine, &o, &cost, err);
    if (st == BITNET_OK)
        *out = cost.cache_bytes;
    return st;
}

/* A quarter of what is free, at most what max_active timelines need, at least what one needs, where
 * that is not more than there may be. */
static bitnet_status choose_bytes(const srv_scheduler *s, uint64_t *out, bitnet_error *err)
{
    uint64_t one;
    bitnet_status st = srv_scheduler_timeline(s->engine, &s->o, s->o.n_ctx, &one, err);
    if (st != BITNET_OK)
        return st;
    uint64_t quarter = free_bytes(s->engine) / 4, all = one * (uint64_t)s->o.max_active;
    *out = quarter < all ? quarter : all;
    *out = *out < one ? one : *out;
    *out = s->o.kv_most && *out > s->o.kv_most ? s->o.kv_most : *out;
    return BITNET_OK;
}

/* A size that we chose ourselves may turn out too large: then half of it. */
static bitnet_status open_pool(srv_scheduler *s, bitnet_error *err)
{
    bitnet_kv_pool_options o;
    bitnet_kv_pool_options_init(&o);
    o.max_bytes = s->o.kv_bytes;
    o.max_sequence = s->o.n_ctx;
    o.policy = s->o.policy;
    o.kv_type = s->o.kv_type;
    bitnet_status st = o.max_bytes ? BITNET_OK : choose_bytes(s, &o.max_bytes, err);
    if (st == BITNET_OK)
        st = bitnet_kv_pool_open(s->engine, &o, &s->pool, err);
    for (int i = 0; i < HALVINGS && st == BITNET_MEMORY && !s->o.kv_bytes; i++) {
        o.max_bytes /= 2;
        st = bitnet_kv_pool_open(s->engine, &o, &s->pool, err);
    }
    if (st != BITNET_OK)
        return st;
    bitnet_kv_pool_stats stats;
    bitnet_kv_pool_read(s->pool, &stats);
    s->n_blocks = stats.n_blocks;
    s->limit = stats.n_blocks * SRV_BLOCK;
    if (s->limit > (size_t)s->o.n_ctx)
        s->limit = (size_t)s->o.n_ctx;
    return BITNET_OK;
}

/* ---- the rest ---- */

static bitnet_status open_batch(srv_scheduler *s, bitnet_error *err)
{
    bitnet_batch_options o;
    bitnet_batch_options_init(&o);
    o.n_tokens = s->o.n_tokens;
    bitnet_status st = bitnet_batch_open(s->engine, &o, &s->batch, err);
    if (st != BITNET_OK)
        return st;
    s->n_tokens = bitnet_batch_tokens(s->batch);
    if (s->o.piece && s->n_tokens <= s->o.piece)
        return srv_error(err, BITNET_MEMORY,
                         "scheduler options: piece is %d, this device's steps have %d tokens",
                         s->o.piece, s->n_tokens);
    int rows = s->n_tokens - (s->o.piece ? s->o.piece : (s->n_tokens + 1) / 2);
    if (s->n_tokens < s->o.n_tokens && s->o.max_active > rows) /* a small device */
        s->o.max_active = rows > 0 ? rows : 1;
    return BITNET_OK;
}

static bool list_ends(srv_scheduler *s)
{
    size_t cap = 0;
    for (int32_t id = 0; id < s->info->n_vocab; id++) {
        if (!bitnet_token_stops(s->engine, id))
            continue;
        if (!srv_room(&s->ends, &cap, s->n_ends + 1, sizeof *s->ends))
            return false;
        s->ends[s->n_ends++] = id;
    }
    return true;
}

static bitnet_status open_arrays(srv_scheduler *s, bitnet_error *err)
{
    size_t n = (size_t)s->o.max_active;
    s->jobs = calloc(n, sizeof(srv_job *));
    s->items = calloc(n, sizeof *s->items);
    s->parts = calloc(n, sizeof *s->parts);
    bool ok = s->jobs && s->items && s->parts && list_ends(s) && srv_figures_open(&s->figures, s);
    return ok ? BITNET_OK : srv_no_memory(err);
}

/* All but the memory of the struct, which jobs may still need. */
static void close_parts(srv_scheduler *s)
{
    srv_scribe_close(s->scribe);
    bitnet_batch_close(s->batch);
    bitnet_kv_pool_close(s->pool);
    free(s->jobs);
    free(s->items);
    free(s->parts);
    free(s->ends);
    free(s->tops);
    free(s->chosen);
    free(s->hidden);
    s->pool = NULL;
}

/* ---- the thread ---- */

/* Waits until there is something to do. False: end. */
static bool wait_for_work(srv_scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->n_jobs == 0 && s->queue.n == 0 && !atomic_load(&s->closing)) {
        atomic_store(&s->busy, false);
        pthread_cond_wait(&s->work, &s->lock);
    }
    atomic_store(&s->busy, true);
    bool go_on = !atomic_load(&s->closing);
    pthread_mutex_unlock(&s->lock);
    return go_on;
}

static void *work(void *scheduler)
{
    srv_scheduler *s = scheduler;
    bitnet_engine_pin_caller(s->engine); /* HTTP's wake-ups would put it beside a thread of ours */
    while (wait_for_work(s)) {
        srv_admit(s);
        srv_step(s);
    }
    for (size_t i = 0; i < s->n_jobs; i++)
        srv_job_end(s, s->jobs[i], BITNET_CANCELLED, "the server has ended");
    srv_sweep(s);
    srv_admit(s); /* whoever waits is told */
    return NULL;
}

/* ---- opening and closing ---- */

static bitnet_status open_parts(srv_scheduler *s, bitnet_error *err)
{
    bitnet_status st = open_batch(s, err);
    if (st == BITNET_OK)
        st = open_pool(s, err);
    if (st == BITNET_OK)
        st = open_arrays(s, err);
    if (st == BITNET_OK && s->o.receipt)
        st = srv_scribe_open(s, &s->scribe, err);
    if (st == BITNET_OK && pthread_create(&s->thread, NULL, work, s) != 0)
        st = srv_error(err, BITNET_MEMORY, "scheduler: no thread could be started");
    return st;
}

bitnet_status srv_scheduler_open(bitnet_engine *engine, const srv_scheduler_options *options,
                                 srv_scheduler **out, bitnet_error *err)
{
    if (!engine || !out)
        return srv_error(err, BITNET_ARGUMENT, "scheduler: engine and out must not be NULL");
    srv_scheduler *s = calloc(1, sizeof *s);
    if (!s)
        return srv_no_memory(err);
    atomic_init(&s->refs, 1);
    atomic_init(&s->closing, false);
    atomic_init(&s->busy, false);
    atomic_init(&s->n_unread, 0);
    pthread_mutex_init(&s->lock, NULL);
    srv_cond_open(&s->work);
    s->engine = engine;
    s->info = bitnet_engine_model(engine);
    s->o = options ? *options : (srv_scheduler_options){0};
    bitnet_status st = read_options(s->info, &s->o, err);
    if (st == BITNET_OK)
        st = open_parts(s, err);
    if (st == BITNET_OK) {
        *out = s;
        return st;
    }
    close_parts(s);
    srv_scheduler_unref(s);
    return st;
}

void srv_scheduler_drain(srv_scheduler *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->draining = true;
    pthread_mutex_unlock(&s->lock);
}

void srv_scheduler_close(srv_scheduler *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    atomic_store(&s->closing, true);
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    close_parts(s);
    srv_scheduler_unref(s);
}
