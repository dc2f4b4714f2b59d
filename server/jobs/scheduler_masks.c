/* scheduler_masks.c - when the masks of grammars are computed: between two steps, while all others
 * wait. So choices take turns. Those whose masks are quick never wait; the others have about as
 * much time together as the step takes, and sit out steps where it is too short for all of them. */
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

void srv_masks(srv_scheduler *s)
{
    srv_choice *c;
    double most = s->step_ms > MOST_MS ? MOST_MS : s->step_ms;
    while ((c = next_turn(s, true)))
        take_turn(s, c);
    double end = srv_now_ms() + (most > LEAST_MS ? most : LEAST_MS);
    while ((c = next_turn(s, false))) {
        take_turn(s, c);
        if (srv_now_ms() > end)
            return;
    }
}
