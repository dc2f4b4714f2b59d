/* scheduler_admit.c - who may begin. Hides: that memory is promised before it is used: a job begins
 * when the blocks of its prompt and of all it may say fit beside what others were promised. */
#include <stdlib.h>

#include "jobs/scheduler_impl.h"

static size_t blocks_for(size_t n_tokens)
{
    return (n_tokens + SRV_BLOCK - 1) / SRV_BLOCK;
}

/* As long as the choices can be if all of them are. */
static size_t fair_share(const srv_scheduler *s, const srv_job *job)
{
    size_t n = job->o.n_ids, each = (s->n_blocks - job->n_shared) / (size_t)job->o.n_choices;
    size_t most = (job->n_shared + each) * SRV_BLOCK;
    return job->n_shared < s->n_blocks && most > n ? most : job->most;
}

bitnet_status srv_admit_plan(const srv_scheduler *s, srv_job *job, bitnet_error *err)
{
    size_t n = job->o.n_ids, left = s->limit - n;
    size_t more = job->o.kind == SRV_EMBED ? 0 : job->o.max_tokens;
    job->most = n + (more < left ? more : left);
    job->n_shared = n / SRV_BLOCK;
    job->n_private = blocks_for(job->most) - job->n_shared;
    size_t need = job->n_shared + (size_t)job->o.n_choices * job->n_private;
    if (need > s->n_blocks && job->o.any_length) {
        job->most = fair_share(s, job);
        job->n_private = blocks_for(job->most) - job->n_shared;
        need = job->n_shared + (size_t)job->o.n_choices * job->n_private;
    }
    if (need <= s->n_blocks)
        return BITNET_OK;
    return srv_error(err, BITNET_CONTEXT,
                     "%d choices of up to %zu tokens after a prompt of %zu need %zu blocks of the "
                     "cache, which has %zu; ask for fewer choices or tokens",
                     job->o.n_choices, job->most - n, n, need, s->n_blocks);
}

static bool fits(const srv_scheduler *s, const srv_job *job)
{
    size_t need = job->n_shared + (size_t)job->o.n_choices * job->n_private;
    return s->n_slots + job->o.n_choices <= s->o.max_active &&
           s->n_jobs < (size_t)s->o.max_active && need <= s->n_blocks - s->n_reserved;
}

/* ---- beginning ---- */

/* Room for what its steps will tell. */
static bool scratch(srv_scheduler *s, srv_job *job)
{
    size_t n = (size_t)s->n_tokens, n_embd = (size_t)s->info->n_embd;
    size_t n_top = job->o.n_top > 0 ? (size_t)job->o.n_top : 0;
    bool ok = srv_room(&s->tops, &s->cap_tops, n * n_top, sizeof *s->tops);
    if (job->o.prompt_logprobs)
        ok = ok && srv_room(&s->chosen, &s->cap_chosen, n, sizeof *s->chosen);
    if (job->o.kind == SRV_EMBED) {
        ok = ok && srv_room(&s->hidden, &s->cap_hidden, n * n_embd, sizeof *s->hidden);
        if (ok && !job->sum)
            job->sum = calloc(n_embd, sizeof *job->sum);
        ok = ok && job->sum;
    }
    srv_choice *c = &job->choices[0];
    if (job->receipt_id && s->scribe && job->o.kind == SRV_GENERATE && !c->ids) {
        c->ids = calloc(job->most - job->o.n_ids + 1, sizeof *c->ids);
        ok = ok && c->ids;
    }
    return ok;
}

/* Every position must be computed where every position is told. */
static bool may_reuse(const srv_job *job)
{
    return job->o.scope != 0 && job->o.kind == SRV_GENERATE && !job->o.prompt_logprobs;
}

static bitnet_status reuse(srv_scheduler *s, srv_job *job, bitnet_session *session,
                           bitnet_error *err)
{
    size_t n = 0, piece = (size_t)s->o.piece;
    if (!may_reuse(job))
        return BITNET_OK;
    bitnet_status st =
        bitnet_session_reuse(session, job->o.scope, job->o.ids, job->o.n_ids, &n, err);
    if (st == BITNET_OK && piece && n % piece) {
        n -= n % piece;
        st = bitnet_session_rewind(session, n, err);
    }
    job->n_done = job->usage.n_cached = n;
    return st;
}

static bitnet_status open_session(srv_scheduler *s, srv_job *job, bitnet_error *err)
{
    bitnet_session_options o;
    bitnet_session_options_init(&o);
    o.n_ctx = (int)job->most;
    o.n_batch = s->n_tokens < o.n_batch ? s->n_tokens : o.n_batch;
    o.kv_pool = s->pool;
    srv_choice *c = &job->choices[0];
    bitnet_status st = bitnet_session_open(s->engine, &o, &c->session, err);
    if (st != BITNET_OK)
        return st;
    bitnet_session_on_cancel(c->session, srv_job_unwanted_fn, job);
    st = scratch(s, job) ? BITNET_OK : srv_no_memory(err);
    if (st == BITNET_OK)
        st = reuse(s, job, c->session, err);
    if (st != BITNET_OK) {
        bitnet_session_close(c->session);
        c->session = NULL;
    }
    return st;
}

static void activate(srv_scheduler *s, srv_job *job)
{
    s->jobs[s->n_jobs++] = job;
    s->n_slots += job->o.n_choices;
    s->n_reserved += job->n_shared + (size_t)job->o.n_choices * job->n_private;
    job->prompting = true;
    job->choices[0].live = true;
    job->seq = ++s->seq;
}

/* ---- the queue ---- */

static void end_waiting(srv_scheduler *s, srv_job *job, const bitnet_error *e)
{
    srv_figures_end(s, job, e->status);
    srv_choice_close(&job->choices[0]);
    srv_events_end(job, e);
    srv_job_drop(job);
}

/* Takes the job out of the queue: it is this thread's from now on. Under the lock. */
static void claim(srv_scheduler *s, srv_job *job, srv_job_state state)
{
    srv_queue_remove(&s->queue, job);
    job->state = state;
    job->begun_ms = srv_now_ms();
    job->usage.queue_ms = job->begun_ms - job->submitted_ms;
    srv_figures_queue(s);
}

/* A queued job that nobody wants any more, claimed; NULL: none. */
static srv_job *unwanted(srv_scheduler *s, double now, const char **why)
{
    pthread_mutex_lock(&s->lock);
    srv_job *job = s->queue.first;
    while (job && !srv_job_unwanted(job, now, why))
        job = job->next;
    if (job)
        claim(s, job, SRV_JOB_OVER);
    pthread_mutex_unlock(&s->lock);
    return job;
}

/* The job whose turn it is, claimed, if there is room for it; NULL: none. Others do not pass one
 * that needs more room: it would wait for ever. */
static srv_job *next(srv_scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    srv_job *job = srv_queue_next(&s->queue, srv_now_ms());
    if (job && !fits(s, job))
        job = NULL;
    if (job)
        claim(s, job, SRV_JOB_ACTIVE);
    pthread_mutex_unlock(&s->lock);
    return job;
}

static void put_back(srv_scheduler *s, srv_job *job)
{
    pthread_mutex_lock(&s->lock);
    srv_queue_return(&s->queue, job);
    job->state = SRV_JOB_QUEUED;
    srv_figures_queue(s);
    pthread_mutex_unlock(&s->lock);
}

/* False: there is no memory now, and others will give some back; the job waits on. */
static bool begin(srv_scheduler *s, srv_job *job)
{
    bitnet_error e = {0};
    bitnet_status st = open_session(s, job, &e);
    if (st == BITNET_MEMORY && s->n_jobs > 0) {
        put_back(s, job);
        return false;
    }
    if (st != BITNET_OK) {
        end_waiting(s, job, &e);
        return true;
    }
    pthread_mutex_lock(&s->lock);
    srv_queue_served(&s->queue, job->o.scope);
    pthread_mutex_unlock(&s->lock);
    activate(s, job);
    return true;
}

void srv_admit(srv_scheduler *s)
{
    const char *why;
    srv_job *job;
    double now = srv_now_ms();
    while ((job = unwanted(s, now, &why))) {
        bitnet_error e;
        srv_error(&e, BITNET_CANCELLED, "%s while it waited", why);
        end_waiting(s, job, &e);
    }
    while ((job = next(s)) && begin(s, job))
        ;
}
