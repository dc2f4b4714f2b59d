/* scheduler_end.c - how choices and jobs leave: what is published, what is given back, and that the
 * last event comes in any case. */
#include <stdarg.h>
#include <stdio.h>

#include "jobs/scheduler_impl.h"

/* What was computed can begin other texts of the same scope. */
static void publish(srv_scheduler *s, const srv_choice *c)
{
    const srv_job *job = c->job;
    if (job->o.scope && job->o.kind == SRV_GENERATE && !s->o.piece)
        bitnet_session_publish_all(c->session, job->o.scope, NULL);
}

/* Takes the choice out of the figures, once. */
static void give_back(srv_scheduler *s, srv_choice *c)
{
    if (c->left)
        return;
    c->left = true;
    c->live = false;
    s->n_slots--;
    s->n_reserved -= c->job->n_private;
}

void srv_choice_leave(srv_scheduler *s, srv_choice *c, bitnet_finish finish)
{
    if (c->session)
        publish(s, c);
    if (c->session && c->ids && s->scribe)
        srv_scribe_write(s->scribe, c, finish);
    bitnet_session_close(c->session);
    c->session = NULL;
    give_back(s, c);
}

void srv_job_end(srv_scheduler *s, srv_job *job, bitnet_status status, const char *format, ...)
{
    bitnet_error e = {.status = status};
    va_list args;
    if (job->over)
        return;
    va_start(args, format);
    vsnprintf(e.message, sizeof e.message, format, args);
    va_end(args);
    srv_events_flush(job); /* its last events may find no room */
    if (status == BITNET_OK && job->no_room)
        srv_no_memory(&e);
    for (int i = 0; i < job->o.n_choices; i++) {
        srv_choice *c = &job->choices[i];
        if (c->session && e.status == BITNET_CANCELLED)
            publish(s, c);
        give_back(s, c);
        srv_choice_close(c);
    }
    s->n_reserved -= job->n_shared;
    job->over = true;
    job->n_open = 0;
    srv_figures_end(s, job, e.status);
    srv_events_end(job, &e);
}

void srv_sweep(srv_scheduler *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_jobs; i++) {
        srv_job *job = s->jobs[i];
        if (job->over) {
            pthread_mutex_lock(&s->lock);
            job->state = SRV_JOB_OVER;
            pthread_mutex_unlock(&s->lock);
            srv_job_drop(job);
        } else {
            s->jobs[n++] = job;
        }
    }
    s->n_jobs = n;
}
