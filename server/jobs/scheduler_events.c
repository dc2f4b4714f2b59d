/* scheduler_events.c - what a job tells whoever submitted it. Hides: that the scheduler collects
 * the events of a step without a lock and hands them over at its end, with one lock and one signal;
 * and that the last event needs no memory. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "jobs/clock.h"
#include "jobs/scheduler_impl.h"

/* An event in a line of bytes: this, then n_top log-probabilities, then n_text bytes, filled up to
 * a multiple of eight. */
typedef struct record {
    uint32_t n_bytes, n_text, n_top;
    int32_t kind, choice, id, finish, stop;
    uint64_t index;
    double logprob;
} record;

static bool put(srv_job *job, record r, const bitnet_logprob *top, const char *text)
{
    static const char fill[8] = {0};
    size_t body = sizeof r + r.n_top * sizeof *top + r.n_text, rest = (8 - body % 8) % 8;
    size_t before = job->stage.tail - job->stage.head;
    r.n_bytes = (uint32_t)(body + rest);
    bool ok = body < UINT32_MAX - 8 && srv_bytes_add(&job->stage, &r, sizeof r) &&
              srv_bytes_add(&job->stage, top, r.n_top * sizeof *top) &&
              srv_bytes_add(&job->stage, text, r.n_text) && srv_bytes_add(&job->stage, fill, rest);
    if (!ok) {
        job->stage.tail = job->stage.head + before;
        job->no_room = true;
    }
    return ok;
}

bool srv_event_prompt(srv_job *job, size_t index, bitnet_logprob token, const bitnet_logprob *top,
                      size_t n_top)
{
    record r = {.kind = SRV_PROMPT,
                .index = index,
                .id = token.id,
                .logprob = token.logprob,
                .n_top = (uint32_t)n_top};
    return put(job, r, top, NULL);
}

bool srv_event_token(srv_choice *c, const srv_told *told, const char *text, size_t n_text)
{
    record r = {.kind = SRV_TOKEN,
                .choice = c->index,
                .index = c->n_made - 1,
                .id = told->id,
                .logprob = told->logprob,
                .n_top = (uint32_t)told->n_top,
                .n_text = (uint32_t)n_text};
    return put(c->job, r, told->top, text);
}

bool srv_event_finish(srv_choice *c, bitnet_finish finish, int stop, const char *text,
                      size_t n_text)
{
    record r = {.kind = SRV_FINISH,
                .choice = c->index,
                .index = c->n_made,
                .finish = finish,
                .stop = stop,
                .n_text = (uint32_t)n_text};
    return put(c->job, r, NULL, text);
}

void srv_event_vector(srv_job *job, float *vector, size_t n)
{
    pthread_mutex_lock(&job->lock);
    job->vector = vector;
    job->n_vector = n;
    pthread_mutex_unlock(&job->lock);
    put(job, (record){.kind = SRV_VECTOR}, NULL, NULL);
}

/* Under the job's lock: counts what is in the queue. */
static void count_unread(srv_job *job)
{
    size_t now = job->queue.tail - job->queue.head, before = atomic_exchange(&job->n_unread, now);
    atomic_fetch_add(&job->s->n_unread, now - before);
}

srv_bell *srv_events_flush(srv_job *job)
{
    srv_bytes *stage = &job->stage;
    if (stage->head == stage->tail)
        return NULL;
    pthread_mutex_lock(&job->lock);
    if (job->queue.head == job->queue.tail) { /* all was taken: the buffers change places */
        srv_bytes empty = job->queue;
        job->queue = *stage;
        *stage = empty;
    } else if (!srv_bytes_add(&job->queue, stage->data + stage->head, stage->tail - stage->head)) {
        job->no_room = true;
    }
    stage->head = stage->tail = 0;
    count_unread(job);
    srv_bell *bell = job->bell;
    pthread_mutex_unlock(&job->lock);
    if (!bell)
        pthread_cond_signal(&job->come);
    return bell;
}

void srv_job_listen(srv_job *job, srv_bell *bell)
{
    pthread_mutex_lock(&job->lock);
    job->bell = bell;
    pthread_mutex_unlock(&job->lock);
}

void srv_events_end(srv_job *job, const bitnet_error *error)
{
    srv_events_flush(job);
    pthread_mutex_lock(&job->lock);
    job->error = *error;
    job->final = job->usage;
    job->ended = true;
    srv_bell *bell = job->bell;
    pthread_mutex_unlock(&job->lock);
    if (bell)
        srv_bell_ring(bell);
    else
        pthread_cond_signal(&job->come);
}

/* ---- taking them ---- */

/* Under the job's lock: waits for an event. */
static bool wait_for(srv_job *job, double wait_ms)
{
    bool timed = false;
    struct timespec end;
    while (job->queue.head == job->queue.tail && !job->ended) {
        if (wait_ms <= 0)
            return false;
        if (!timed)
            end = srv_clock_after(wait_ms);
        timed = true;
        if (pthread_cond_timedwait(&job->come, &job->lock, &end) != 0)
            return job->queue.head != job->queue.tail || job->ended;
    }
    return true;
}

static void fill(const srv_job *job, srv_event *e)
{
    record r;
    const char *at = job->taken.data;
    memcpy(&r, at, sizeof r);
    e->kind = (srv_event_kind)r.kind;
    e->choice = r.choice;
    e->index = (size_t)r.index;
    e->id = r.id;
    e->logprob = r.logprob;
    e->top = r.n_top ? (const bitnet_logprob *)(const void *)(at + sizeof r) : NULL;
    e->n_top = r.n_top;
    e->text = at + sizeof r + r.n_top * sizeof(bitnet_logprob);
    e->n_text = r.n_text;
    e->finish = (bitnet_finish)r.finish;
    e->stop = r.kind == SRV_FINISH && r.stop >= 0 ? job->o.stops[r.stop] : NULL;
    e->vector = r.kind == SRV_VECTOR ? job->vector : NULL;
    e->n_vector = r.kind == SRV_VECTOR ? job->n_vector : 0;
}

/* Under the job's lock, with an event in the queue: copies it out. False: no memory. */
static bool take(srv_job *job)
{
    record r;
    memcpy(&r, job->queue.data + job->queue.head, sizeof r);
    job->taken.head = job->taken.tail = 0;
    if (!srv_bytes_add(&job->taken, job->queue.data + job->queue.head, r.n_bytes))
        return false;
    job->queue.head += r.n_bytes;
    count_unread(job);
    return true;
}

static void clear(srv_event *e)
{
    e->kind = SRV_END;
    e->choice = 0;
    e->index = 0;
    e->id = -1;
    e->text = "";
    e->n_text = 0;
    e->logprob = 0;
    e->top = NULL;
    e->n_top = 0;
    e->finish = BITNET_FINISH_LENGTH;
    e->stop = NULL;
    e->vector = NULL;
    e->n_vector = 0;
    e->error.status = BITNET_OK;
    e->error.message[0] = '\0';
    e->usage = (srv_usage){0};
}

bool srv_job_next(srv_job *job, double wait_ms, srv_event *event)
{
    if (!job || !event || job->told_end)
        return false;
    clear(event);
    pthread_mutex_lock(&job->lock);
    bool come = wait_for(job, wait_ms);
    bool some = come && job->queue.head != job->queue.tail;
    if (some && !take(job)) { /* what cannot be told ends it */
        some = false;
        srv_no_memory(&job->error);
        atomic_store(&job->cancelled, true);
        job->ended = true;
    }
    if (come && !some) {
        event->error = job->error;
        event->usage = job->final;
        job->told_end = true;
    }
    pthread_mutex_unlock(&job->lock);
    if (some)
        fill(job, event);
    return come;
}
