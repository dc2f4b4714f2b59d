/* company.c - clocks that tell whether a thread was disturbed, and the search for the best crew. */
#include "base/company.h"

#include <sys/resource.h>
#include <time.h>

/* A thread looks after this time on the CPU: less than schedulers grant at a time. */
#define LOOK_MS 1.0
/* It was disturbed if it lost this much since the last look, or if a nap took so much longer: more
 * than threads of our own take that tell somebody what was computed, less than a scheduler's slice.
 */
#define LOST_MS 1.0
/* A crew is tried for at least this time and this many jobs: some tokens of a small model, one of a
 * large one; however few jobs there were, for no longer than PHASE_MAX_MS. */
#define PHASE_MS     10.0
#define PHASE_MAX_MS 100.0
/* Between two jobs of one text there is less. */
#define PAUSE_MS 100.0
/* How long the best crew stays: twice as long each time it is found again, but no longer than
 * people notice that the others have left. */
#define STAY_FIRST_MS 100.0
#define STAY_LAST_MS  800.0
enum {
    NAP_NS = 50000, /* asked for; a nap lasts until the scheduler owes us time again */
    NAPS = 8,       /* looks with a nap after a disturbance */
    PHASE_JOBS = 256,
    FEW_JOBS = 16 /* in a phase: jobs are long, and sharing them always pays */
};

/* ---- one thread ---- */

double bnet_thread_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* True: since the last call the scheduler took the CPU, and the thread did not give it away. */
static bool was_taken(bnet_pulse *p)
{
    struct rusage r;
    if (getrusage(RUSAGE_THREAD, &r) != 0)
        return false;
    bool taken = r.ru_nivcsw != p->n_taken && r.ru_nvcsw == p->n_slept;
    p->n_taken = r.ru_nivcsw;
    p->n_slept = r.ru_nvcsw;
    return taken;
}

void bnet_pulse_start(bnet_pulse *p)
{
    p->wall_ms = bnet_now_ms();
    p->cpu_ms = bnet_thread_ms();
    if (p->rests)
        was_taken(p);
}

/* What the thread lost to others since the last look; notes the clocks. */
static double lost_ms(bnet_pulse *p, double now_ms)
{
    double cpu = bnet_thread_ms(), lost = now_ms - p->wall_ms - (cpu - p->cpu_ms);
    p->wall_ms = now_ms;
    p->cpu_ms = cpu;
    return p->rests && !was_taken(p) ? 0 : lost;
}

/* Sleeps for a moment; true: the thread got its CPU back much later than it asked for. */
static bool nap(bnet_pulse *p)
{
    const struct timespec t = {0, NAP_NS};
    double before = p->wall_ms;
    nanosleep(&t, NULL);
    bnet_pulse_start(p);
    return p->wall_ms - before > NAP_NS / 1e6 + LOST_MS;
}

int bnet_pulse_look(bnet_pulse *p, double now_ms, bool may_nap)
{
    int before = p->n_naps > 0;
    if (now_ms - p->wall_ms < LOOK_MS)
        return 0;
    if (lost_ms(p, now_ms) > LOST_MS)
        p->n_naps = NAPS;
    else if (p->n_naps > 0)
        p->n_naps--;
    if (p->n_naps > 0 && may_nap && nap(p))
        p->n_naps = NAPS;
    return (p->n_naps > 0) - before;
}

/* ---- the crew ---- */

static void begin_phase(bnet_plan *p, bnet_crew crew, bool trying, double now)
{
    p->crew = crew;
    p->trying = trying;
    p->n_done = 0;
    p->began_ms = now;
}

static bnet_crew best_crew(const bnet_plan *p)
{
    bnet_crew best = BNET_CREW_ALL;
    for (int c = BNET_CREW_UNDISTURBED; c <= BNET_CREW_CALLER; c++)
        if (p->cost_ms[c] > 0 && p->cost_ms[c] < p->cost_ms[best])
            best = (bnet_crew)c;
    return best;
}

static void stay(bnet_plan *p, bnet_crew former, double now)
{
    bnet_crew best = best_crew(p);
    bool again = best == former && p->stay_ms > 0;
    p->stay_ms = again ? BNET_MIN(2 * p->stay_ms, STAY_LAST_MS) : STAY_FIRST_MS;
    begin_phase(p, best, false, now);
}

/* Whether the crew was tried enough: as long as the first one (an eighth of that, if it was much
 * worse before), or long enough to see that it is worse. */
static bool tried(const bnet_plan *p, double ms)
{
    if (p->crew == BNET_CREW_ALL)
        return (p->n_done >= PHASE_JOBS && ms >= PHASE_MS) || ms >= PHASE_MAX_MS;
    double best = p->cost_ms[best_crew(p)];
    int n = p->cost_ms[p->crew] > 2 * best ? p->n_jobs / 8 + 1 : p->n_jobs;
    return p->n_done >= n || ms > best * n * 1.25;
}

/* One trial alone may be disturbed more than another: the average of them decides. */
static void end_trial(bnet_plan *p, double ms, double now)
{
    double *cost = &p->cost_ms[p->crew], found = ms / p->n_done;
    bnet_crew former = best_crew(p);
    *cost = *cost > 0 ? (*cost + found) / 2 : found;
    if (p->crew == BNET_CREW_ALL)
        p->n_jobs = p->n_done;
    if (p->crew == BNET_CREW_CALLER || p->n_jobs < FEW_JOBS)
        stay(p, former, now);
    else
        begin_phase(p, p->crew + 1, true, now);
}

bnet_crew bnet_plan_next(bnet_plan *p, int n_disturbed, double now)
{
    if (n_disturbed == 0) {
        if (p->crew != BNET_CREW_QUIET)
            *p = (bnet_plan){0};
        return BNET_CREW_QUIET;
    }
    if (p->crew == BNET_CREW_QUIET) {
        begin_phase(p, BNET_CREW_ALL, true, now);
        return p->crew;
    }
    double ms = now - p->began_ms;
    p->n_done++;
    if (now - p->done_ms > PAUSE_MS) /* nobody computed: what the crew costs cannot be told */
        begin_phase(p, BNET_CREW_ALL, true, now);
    else if (p->trying && tried(p, ms))
        end_trial(p, ms, now);
    else if (!p->trying && ms > p->stay_ms)
        begin_phase(p, BNET_CREW_ALL, true, now);
    return p->crew;
}

void bnet_plan_done(bnet_plan *p, double now)
{
    p->done_ms = now;
}
