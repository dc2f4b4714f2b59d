/* scheduler_masks.c - when the masks of grammars are computed: between two steps, while all others
 * wait. So choices take turns. Those whose masks are quick come first; the others have about as
 * much time together as the steps take, and sit out steps where it is too short for all of them. */
#include "jobs/scheduler_impl.h"

#define QUICK_MS 0.1  /* a mask that takes less */
#define LEAST_MS 1.0  /* time for the others */
#define MOST_MS  50.0 /* the same, where a prompt made the step long */
#define FORGET   0.95 /* what a slow mask counts at the next one */

/* The choice whose turn is next, of those whose masks are quick or of all. NULL: nobody waits. */
static srv_choice *next_turn(const srv_scheduler *s, bool quick)
{
    srv_choice *best = NULL;
    for (size_t i = 0; i < s->n_jobs; i++)
        for (int k = 0; !s->jobs[i]->over && k < s->jobs[i]->o.n_choices; k++) {
            srv_choice *c = &s->jobs[i]->choices[k];
            bool may = c->live && c->waits && (!quick || c->mask_ms < QUICK_MS);
            if (may && (!best || c->waits < best->waits))
                best = c;
        }
    return best;
}

static void take_turn(srv_scheduler *s, srv_choice *c)
{
    double begun = srv_now_ms();
    c->waits = 0;
    srv_choice_restrict(s, c);
    double ms = srv_now_ms() - begun;
    c->mask_ms = ms > FORGET * c->mask_ms ? ms : FORGET * c->mask_ms;
}

/* Somebody goes on in the next step whoever waits. */
static bool others_go_on(const srv_scheduler *s)
{
    for (size_t i = 0; i < s->n_jobs; i++) {
        const srv_job *job = s->jobs[i];
        bool goes_on = !job->over && job->prompting;
        for (int k = 0; !job->over && !goes_on && k < job->o.n_choices; k++)
            goes_on = job->choices[k].live && !job->choices[k].waits;
        if (goes_on)
            return true;
    }
    return false;
}

/* Turns of those whose masks are quick, or of all; at least one, then as long as there is time. */
static void take_turns(srv_scheduler *s, bool quick, double end)
{
    srv_choice *c = next_turn(s, quick);
    while (c) {
        take_turn(s, c);
        c = srv_now_ms() < end ? next_turn(s, quick) : NULL;
    }
}

void srv_masks(srv_scheduler *s)
{
    double share = s->step_ms > LEAST_MS ? s->step_ms : LEAST_MS;
    double most = share > MOST_MS ? MOST_MS : share, begun = srv_now_ms();
    take_turns(s, true, begun + most);
    s->mask_debt = next_turn(s, false) ? s->mask_debt - share : 0;
    if (s->mask_debt > 0 && others_go_on(s))
        return; /* a mask has taken longer than a step: it is the others' turn */
    begun = srv_now_ms();
    take_turns(s, false, begun + most);
    s->mask_debt = srv_now_ms() - begun;
}
