/* scheduler_queue.c - jobs that wait, and whose turn is next: the highest priority, where every ten
 * seconds of waiting count as one step up; among equals the scope that was served least recently;
 * within a scope whoever came first. */
#include "jobs/scheduler_impl.h"

static const double step_ms = 10000;

void srv_queue_add(srv_queue *q, srv_job *job)
{
    job->next = NULL;
    job->prev = q->last;
    *(q->last ? &q->last->next : &q->first) = job;
    q->last = job;
    q->n++;
}

void srv_queue_return(srv_queue *q, srv_job *job)
{
    job->prev = NULL;
    job->next = q->first;
    *(q->first ? &q->first->prev : &q->last) = job;
    q->first = job;
    q->n++;
}

void srv_queue_remove(srv_queue *q, srv_job *job)
{
    *(job->prev ? &job->prev->next : &q->first) = job->next;
    *(job->next ? &job->next->prev : &q->last) = job->prev;
    job->prev = job->next = NULL;
    q->n--;
}

static long level(const srv_job *job, double now_ms)
{
    return (long)job->o.priority + (long)((now_ms - job->submitted_ms) / step_ms);
}

static uint64_t last_turn(const srv_queue *q, uint64_t scope)
{
    for (size_t i = 0; i < q->n_served; i++)
        if (q->served[i].scope == scope)
            return q->served[i].tick;
    return 0;
}

srv_job *srv_queue_next(const srv_queue *q, double now_ms)
{
    srv_job *best = NULL;
    long best_level = 0;
    uint64_t best_turn = 0;
    for (srv_job *job = q->first; job; job = job->next) {
        long l = level(job, now_ms);
        if (best && l < best_level)
            continue;
        uint64_t turn = last_turn(q, job->o.scope);
        if (best && l == best_level && turn >= best_turn)
            continue;
        best = job;
        best_level = l;
        best_turn = turn;
    }
    return best;
}

void srv_queue_served(srv_queue *q, uint64_t scope)
{
    size_t at = 0, oldest = 0;
    while (at < q->n_served && q->served[at].scope != scope) {
        if (q->served[at].tick < q->served[oldest].tick)
            oldest = at;
        at++;
    }
    if (at == SRV_SCOPES) /* the scope that waited longest for another turn is forgotten */
        at = oldest;
    else if (at == q->n_served)
        q->n_served++;
    q->served[at] = (srv_served){scope, ++q->tick};
}
