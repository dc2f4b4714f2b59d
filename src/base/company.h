/* company.h - how the threads of a pool get along with other programs on the same CPUs.
 *
 * A thread that loses its CPU inside a share of work holds up all the others for milliseconds. So
 * every thread looks at its clocks now and then, between two shares: if more time passed than it
 * had the CPU, it was disturbed. A disturbed thread gives its CPU away between shares by sleeping
 * briefly; the scheduler then owes it time and does not take the CPU inside a share.
 *
 * Whether disturbed threads are a help at all depends on the machine and on the size of the jobs,
 * so the pool tries: with everybody, without those that are disturbed, with the caller alone, and
 * keeps for a while what was quickest. */
#ifndef BNET_COMPANY_H
#define BNET_COMPANY_H

#include "base/base.h"

/* The time for which the calling thread had a CPU. */
double bnet_thread_ms(void);

/* One thread's view of its CPU. */
typedef struct bnet_pulse {
    double wall_ms, cpu_ms; /* clocks at the last look, or when it last woke */
    int n_naps;             /* looks that still nap; above 0: the thread is disturbed */
    bool rests;            /* it may sleep of its own accord between jobs, which is no loss: time */
    long n_taken, n_slept; /* is lost where the scheduler took the CPU and the thread did not
                              sleep; so many times until the last look */
} bnet_pulse;

/* From now on; to be called by the thread itself when it begins and after every sleep. */
void bnet_pulse_start(bnet_pulse *p);
/* Between two shares, where nobody waits for this thread. Looks if it is time to; a disturbed
 * thread that `may_nap` then sleeps for a moment. Returns by how much the number of disturbed
 * threads changed: -1, 0 or 1. */
int bnet_pulse_look(bnet_pulse *p, double now_ms, bool may_nap);

/* Who takes part in a job. */
typedef enum bnet_crew {
    BNET_CREW_QUIET,       /* everybody; nobody is disturbed */
    BNET_CREW_ALL,         /* everybody all the same */
    BNET_CREW_UNDISTURBED, /* the caller, and whoever is not disturbed */
    BNET_CREW_CALLER       /* the caller alone */
} bnet_crew;

/* Zero-initialise. */
typedef struct bnet_plan {
    bnet_crew crew;
    bool trying;
    int n_done, n_jobs; /* jobs of this phase; as many as the first phase of the trial had */
    double began_ms;    /* this phase */
    double done_ms;     /* when the job before was done */
    double stay_ms;     /* how long the best crew stays after a trial */
    double cost_ms[4];  /* of a job, by crew; 0: not known */
} bnet_plan;

/* The crew of the next job, given how many threads are disturbed at the time now_ms. */
bnet_crew bnet_plan_next(bnet_plan *p, int n_disturbed, double now_ms);
/* That job is done, unless the crew was quiet. */
void bnet_plan_done(bnet_plan *p, double now_ms);

#endif
