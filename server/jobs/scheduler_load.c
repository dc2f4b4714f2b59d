/* scheduler_load.c - how the scheduler is doing, for anyone who asks. Hides: that the figures are a
 * copy made at the end of every step, so that nobody waits for one. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "jobs/scheduler_impl.h"

enum { N_STEPS = sizeof(((srv_figures *)0)->steps_ms) / sizeof(double) };

bool srv_figures_open(srv_figures *f, const srv_scheduler *s)
{
    pthread_mutex_init(&f->lock, NULL);
    f->slots = calloc((size_t)s->o.max_active, sizeof *f->slots);
    f->load = (srv_load){
        .max_active = s->o.max_active, .max_queued = s->o.max_queued, .n_ctx = (int)s->limit};
    return f->slots != NULL;
}

void srv_figures_close(srv_figures *f)
{
    free(f->slots);
    pthread_mutex_destroy(&f->lock);
}

/* ---- on the scheduler's thread ---- */

static void show_choice(srv_figures *f, const srv_job *job, const srv_choice *c, double now)
{
    f->slots[f->n_slots++] = (srv_slot){.job = job->id,
                                        .choice = c->index,
                                        .prompting = job->prompting,
                                        .n_prompt = job->o.n_ids,
                                        .n_done = job->n_done,
                                        .n_generated = c->n_made,
                                        .age_ms = now - job->submitted_ms};
    f->load.n_active++;
    f->load.n_prompting += job->prompting;
}

static void show_slots(srv_scheduler *s, double now)
{
    srv_figures *f = &s->figures;
    f->n_slots = f->load.n_active = f->load.n_prompting = 0;
    for (size_t i = 0; i < s->n_jobs; i++)
        for (int k = 0; !s->jobs[i]->over && k < s->jobs[i]->o.n_choices; k++)
            if (s->jobs[i]->choices[k].live)
                show_choice(f, s->jobs[i], &s->jobs[i]->choices[k], now);
}

static void count_second(srv_figures *f, double now, size_t n_made)
{
    uint64_t second = (uint64_t)(now / 1e3);
    size_t at = second % SRV_SECONDS;
    if (f->second[at] != second)
        f->tokens[at] = 0;
    f->second[at] = second;
    f->tokens[at] += n_made;
}

void srv_figures_step(srv_scheduler *s, double ms, size_t n_prompt)
{
    srv_figures *f = &s->figures;
    double now = srv_now_ms();
    pthread_mutex_lock(&f->lock);
    f->steps_ms[f->load.n_steps++ % N_STEPS] = ms;
    f->load.n_prompt_tokens += n_prompt;
    f->load.n_tokens += s->n_made;
    count_second(f, now, s->n_made);
    show_slots(s, now);
    pthread_mutex_unlock(&f->lock);
}

void srv_figures_slots(srv_scheduler *s)
{
    pthread_mutex_lock(&s->figures.lock);
    show_slots(s, srv_now_ms());
    pthread_mutex_unlock(&s->figures.lock);
}

void srv_figures_queue(srv_scheduler *s)
{
    pthread_mutex_lock(&s->figures.lock);
    s->figures.load.n_queued = s->queue.n;
    pthread_mutex_unlock(&s->figures.lock);
}

/* A job that ends between steps is not computed any more, and no step may follow to say so. */
static void hide_job(srv_figures *f, const srv_job *job)
{
    size_t n = 0;
    for (size_t i = 0; i < f->n_slots; i++) {
        if (f->slots[i].job != job->id) {
            f->slots[n++] = f->slots[i];
            continue;
        }
        f->load.n_active--;
        f->load.n_prompting -= f->slots[i].prompting;
    }
    f->n_slots = n;
}

void srv_figures_end(srv_scheduler *s, const srv_job *job, bitnet_status status)
{
    srv_figures *f = &s->figures;
    double ms = job->begun_ms > 0 ? srv_now_ms() - job->begun_ms : 0;
    pthread_mutex_lock(&f->lock);
    hide_job(f, job);
    f->load.n_jobs++;
    f->load.n_cancelled += status == BITNET_CANCELLED;
    f->load.n_failed += status != BITNET_OK && status != BITNET_CANCELLED;
    f->load.n_cached_tokens += job->usage.n_cached;
    if (ms > 0)
        f->job_ms = f->job_ms > 0 ? f->job_ms + (ms - f->job_ms) / 8 : ms;
    pthread_mutex_unlock(&f->lock);
}

/* ---- for anyone ---- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double recent_median(const srv_figures *f)
{
    double sorted[N_STEPS];
    size_t n = f->load.n_steps < N_STEPS ? (size_t)f->load.n_steps : N_STEPS;
    memcpy(sorted, f->steps_ms, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare);
    return n ? sorted[n / 2] : 0;
}

/* Over the seconds that are complete. */
static double rate(const srv_figures *f, double now)
{
    uint64_t second = (uint64_t)(now / 1e3), sum = 0;
    enum { WINDOW = 5 };
    for (size_t i = 0; i < SRV_SECONDS; i++)
        if (f->second[i] < second && f->second[i] + WINDOW >= second)
            sum += f->tokens[i];
    return (double)sum / WINDOW;
}

void srv_scheduler_load(srv_scheduler *s, srv_load *out)
{
    if (!s || !out)
        return;
    srv_figures *f = &s->figures;
    pthread_mutex_lock(&f->lock);
    *out = f->load;
    out->step_ms = recent_median(f);
    out->tokens_per_s = rate(f, srv_now_ms());
    pthread_mutex_unlock(&f->lock);
    bitnet_kv_pool_read(s->pool, &out->kv);
}

size_t srv_scheduler_slots(srv_scheduler *s, srv_slot *out, size_t cap)
{
    if (!s || (cap && !out))
        return 0;
    srv_figures *f = &s->figures;
    pthread_mutex_lock(&f->lock);
    size_t n = f->n_slots;
    memcpy(out, f->slots, (n < cap ? n : cap) * sizeof *out);
    pthread_mutex_unlock(&f->lock);
    return n;
}

int srv_scheduler_wait(srv_scheduler *s)
{
    if (!s)
        return 1;
    srv_figures *f = &s->figures;
    pthread_mutex_lock(&f->lock);
    double turns = (double)(f->load.n_queued + 1) / f->load.max_active;
    double seconds = ceil(turns * f->job_ms / 1e3);
    pthread_mutex_unlock(&f->lock);
    return seconds < 1 ? 1 : seconds > 600 ? 600 : (int)seconds;
}
