/* scheduler_job.c - a job from outside: what may be asked for, submitting, cancelling, releasing.
 * Hides: who counts on a job and on the memory of its scheduler. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "jobs/clock.h"
#include "jobs/scheduler_impl.h"

enum { RECEIPT_ID_MAX = 64, STOPS_MAX = 64 };

void srv_job_options_init(srv_job_options *o)
{
    if (!o)
        return;
    *o = (srv_job_options){.n_choices = 1, .max_tokens = 256, .n_top = -1, .priority = SRV_NORMAL};
    bitnet_sampler_options_init(&o->sampling);
}

/* ---- what may be asked for ---- */

static bitnet_status check_int(const char *field, long long value, long long low, long long high,
                               bitnet_error *err)
{
    if (value >= low && value <= high)
        return BITNET_OK;
    return srv_error(err, BITNET_ARGUMENT, "job: %s is %lld, must be %lld..%lld", field, value, low,
                     high);
}

static bitnet_status check_ids(const srv_scheduler *s, const srv_job_options *o, bitnet_error *err)
{
    if (!o->ids || o->n_ids == 0)
        return srv_error(err, BITNET_ARGUMENT,
                         "job: ids is empty; a prompt has one token at least (BOS)");
    if (o->n_ids > s->limit)
        return srv_error(err, BITNET_CONTEXT,
                         "the prompt has %zu tokens; this model's context has %zu here", o->n_ids,
                         s->limit);
    for (size_t i = 0; i < o->n_ids; i++)
        if (o->ids[i] < 0 || o->ids[i] >= s->info->n_vocab)
            return srv_error(err, BITNET_ARGUMENT,
                             "job: ids[%zu] is %d, outside the vocabulary 0..%d", i, (int)o->ids[i],
                             s->info->n_vocab - 1);
    return BITNET_OK;
}

/* It becomes part of a file's name. */
static bitnet_status check_receipt_id(const char *id, bitnet_error *err)
{
    size_t n = id ? strnlen(id, RECEIPT_ID_MAX + 1) : 1;
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    if (n >= 1 && n <= RECEIPT_ID_MAX && (!id || id[strspn(id, good)] == '\0'))
        return BITNET_OK;
    return srv_error(err, BITNET_ARGUMENT,
                     "job: receipt_id must have 1..%d letters, digits, '-' or '_'", RECEIPT_ID_MAX);
}

static bitnet_status check_arrays(const srv_job_options *o, bitnet_error *err)
{
    if (o->n_stops && !o->stops)
        return srv_error(err, BITNET_ARGUMENT, "job: stops is NULL, but n_stops is %zu",
                         o->n_stops);
    if (o->n_biases && !o->biases)
        return srv_error(err, BITNET_ARGUMENT, "job: biases is NULL, but n_biases is %zu",
                         o->n_biases);
    return check_int("n_stops", (long long)o->n_stops, 0, STOPS_MAX, err);
}

static bitnet_status check(const srv_scheduler *s, const srv_job_options *o, bitnet_error *err)
{
    int most = o->kind == SRV_EMBED ? 1 : s->o.max_active;
    bitnet_status st = check_int("kind", o->kind, SRV_GENERATE, SRV_EMBED, err);
    if (st == BITNET_OK)
        st = check_int("n_choices", o->n_choices, 1, most, err);
    if (st == BITNET_OK)
        st = check_int("n_top", o->n_top, -1, BITNET_LOGPROBS_MAX, err);
    if (st == BITNET_OK)
        st = check_int("priority", o->priority, SRV_LOW, SRV_CRITICAL, err);
    if (st == BITNET_OK)
        st = check_arrays(o, err);
    if (st == BITNET_OK && !(o->deadline_ms >= 0))
        st = srv_error(err, BITNET_ARGUMENT, "job: deadline_ms is %g, must be 0 or more",
                       o->deadline_ms);
    if (st == BITNET_OK)
        st = check_receipt_id(o->receipt_id, err);
    return st == BITNET_OK ? check_ids(s, o, err) : st;
}

/* ---- its own copy ---- */

static void *copy_of(const void *from, size_t n, size_t each)
{
    void *to = malloc(n ? n * each : 1);
    if (to && n)
        memcpy(to, from, n * each);
    return to;
}

static bool copy_stops(srv_job *job, const srv_job_options *o)
{
    char **stops = calloc(o->n_stops + 1, sizeof *stops);
    job->o.stops = (const char *const *)stops;
    job->o.n_stops = stops ? o->n_stops : 0;
    bool ok = stops != NULL;
    for (size_t i = 0; ok && i < o->n_stops; i++) {
        stops[i] = strdup(o->stops[i] ? o->stops[i] : "");
        ok = stops[i] != NULL;
    }
    return ok;
}

static bool copy_options(srv_job *job, const srv_job_options *o)
{
    job->o = *o;
    job->o.ids = copy_of(o->ids, o->n_ids, sizeof *o->ids);
    job->o.biases = copy_of(o->biases, o->n_biases, sizeof *o->biases);
    job->o.receipt_id = NULL;
    job->receipt_id = o->receipt_id ? strdup(o->receipt_id) : NULL;
    job->choices = calloc((size_t)o->n_choices, sizeof *job->choices);
    bool ok = copy_stops(job, o) && job->o.ids && job->o.biases && job->choices;
    for (int i = 0; ok && i < o->n_choices; i++)
        job->choices[i] = (srv_choice){.job = job, .index = i};
    return ok && (job->receipt_id || !o->receipt_id);
}

static void free_job(srv_job *job)
{
    atomic_fetch_sub(&job->s->n_unread, atomic_load(&job->n_unread));
    for (int i = 0; job->choices && i < job->o.n_choices; i++)
        srv_choice_close(&job->choices[i]);
    for (size_t i = 0; i < job->o.n_stops; i++)
        free((void *)(uintptr_t)job->o.stops[i]);
    free((void *)(uintptr_t)job->o.stops);
    free((void *)(uintptr_t)job->o.ids);
    free((void *)(uintptr_t)job->o.biases);
    free(job->receipt_id);
    free(job->choices);
    free(job->sum);
    free(job->vector);
    srv_bytes_free(&job->stage);
    srv_bytes_free(&job->queue);
    srv_bytes_free(&job->taken);
    pthread_cond_destroy(&job->come);
    pthread_mutex_destroy(&job->lock);
    free(job);
}

static srv_job *new_job(srv_scheduler *s)
{
    srv_job *job = calloc(1, sizeof *job);
    if (!job)
        return NULL;
    job->s = s;
    atomic_init(&job->refs, 1);
    atomic_init(&job->cancelled, false);
    atomic_init(&job->n_unread, 0);
    pthread_mutex_init(&job->lock, NULL);
    srv_cond_open(&job->come);
    return job;
}

/* Everything that may be wrong with the options is found here, on the submitter's thread. */
static bitnet_status make(srv_scheduler *s, const srv_job_options *o, srv_job **out,
                          bitnet_error *err)
{
    srv_job *job = new_job(s);
    if (!job)
        return srv_no_memory(err);
    bitnet_status st = copy_options(job, o) ? srv_admit_plan(s, job, err) : srv_no_memory(err);
    if (st == BITNET_OK && o->kind == SRV_GENERATE)
        st = srv_choice_open(s, &job->choices[0], err);
    if (st != BITNET_OK) {
        free_job(job);
        return st;
    }
    job->submitted_ms = srv_now_ms();
    job->end_ms = o->deadline_ms > 0 ? job->submitted_ms + o->deadline_ms : INFINITY;
    job->usage.n_prompt = o->n_ids;
    job->n_open = o->n_choices;
    *out = job;
    return BITNET_OK;
}

/* ---- submitting ---- */

static bitnet_status enqueue(srv_scheduler *s, srv_job *job, bitnet_error *err)
{
    bitnet_status st = BITNET_OK;
    pthread_mutex_lock(&s->lock);
    if (s->draining || atomic_load(&s->closing))
        st = srv_error(err, BITNET_CANCELLED, "the server is shutting down and takes no requests");
    else if (s->queue.n >= (size_t)s->o.max_queued)
        st = srv_error(err, BITNET_AGAIN, "%zu requests are waiting, which is the most; try later",
                       s->queue.n);
    if (st == BITNET_OK) {
        job->id = ++s->last_id;
        atomic_fetch_add(&job->refs, 1);
        atomic_fetch_add(&s->refs, 1);
        srv_queue_add(&s->queue, job);
        srv_figures_queue(s);
        pthread_cond_signal(&s->work);
    }
    pthread_mutex_unlock(&s->lock);
    return st;
}

bitnet_status srv_job_submit(srv_scheduler *s, const srv_job_options *o, srv_job **out,
                             bitnet_error *err)
{
    if (!s || !o || !out)
        return srv_error(err, BITNET_ARGUMENT, "job: scheduler, options and out must not be NULL");
    srv_job *job = NULL;
    bitnet_status st = check(s, o, err);
    if (st == BITNET_OK)
        st = make(s, o, &job, err);
    if (st == BITNET_OK && (st = enqueue(s, job, err)) != BITNET_OK)
        free_job(job);
    if (st == BITNET_OK)
        *out = job;
    return st;
}

/* ---- ending ---- */

void srv_scheduler_unref(srv_scheduler *s)
{
    if (atomic_fetch_sub(&s->refs, 1) != 1)
        return;
    pthread_cond_destroy(&s->work);
    pthread_mutex_destroy(&s->lock);
    srv_figures_close(&s->figures);
    free(s);
}

void srv_job_drop(srv_job *job)
{
    if (atomic_fetch_sub(&job->refs, 1) != 1)
        return;
    srv_scheduler *s = job->s;
    free_job(job);
    srv_scheduler_unref(s);
}

/* Takes it out of the queue, if that is where it is. */
static bool leave_queue(srv_job *job)
{
    srv_scheduler *s = job->s;
    pthread_mutex_lock(&s->lock);
    bool queued = job->state == SRV_JOB_QUEUED;
    if (queued) {
        srv_queue_remove(&s->queue, job);
        job->state = SRV_JOB_OVER;
        srv_figures_queue(s);
    }
    pthread_mutex_unlock(&s->lock);
    return queued;
}

void srv_job_cancel(srv_job *job)
{
    if (!job)
        return;
    atomic_store(&job->cancelled, true);
    if (!leave_queue(job))
        return;
    bitnet_error e;
    srv_error(&e, BITNET_CANCELLED, "the request was cancelled while it waited");
    job->usage.queue_ms = srv_now_ms() - job->submitted_ms;
    srv_figures_end(job->s, job, BITNET_CANCELLED);
    srv_choice_close(&job->choices[0]); /* the engine may be closed before the job is released */
    srv_events_end(job, &e);
    srv_job_drop(job);
}

void srv_job_release(srv_job *job)
{
    if (!job)
        return;
    srv_job_cancel(job);
    srv_job_drop(job);
}

bool srv_job_unwanted(srv_job *job, double now_ms, const char **why)
{
    static const double ask_every_ms = 5;
    *why = "the request was cancelled";
    if (atomic_load_explicit(&job->cancelled, memory_order_relaxed))
        return true;
    if (atomic_load_explicit(&job->s->closing, memory_order_relaxed)) {
        *why = "the server has ended";
        return true;
    }
    if (now_ms >= job->end_ms) {
        *why = "the request's deadline has passed";
        return true;
    }
    if (!job->o.cancel || now_ms - job->asked_ms < ask_every_ms)
        return false;
    job->asked_ms = now_ms;
    if (!job->o.cancel(job->o.cancel_user))
        return false;
    atomic_store(&job->cancelled, true);
    return true;
}

bool srv_job_unwanted_fn(void *job)
{
    const char *why;
    return srv_job_unwanted(job, srv_now_ms(), &why);
}
