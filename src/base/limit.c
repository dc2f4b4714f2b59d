/* limit.c - how long work is ended before it is done: by a time, by a word from elsewhere. Fields
 * of a limit are read and written while others do the same, so only as atomics. */
#include <time.h>

#include "base/progress.h"

enum { ASK_EVERY_MS = 5 };

/* clock_gettime may be called in signal handlers. */
static struct timespec after_ms(double ms)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    uint64_t ns = (uint64_t)t.tv_nsec + (uint64_t)(ms * 1e6);
    t.tv_sec += (time_t)(ns / 1000000000u);
    t.tv_nsec = (long)(ns % 1000000000u);
    return t;
}

static uint64_t ns_after_ms(double ms)
{
    struct timespec t = after_ms(ms);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void bitnet_limit_set(bitnet_limit *limit, double ms)
{
    static const double longest_ms = 1e12; /* 30 years: no sum below overflows */
    if (!limit)
        return;
    bool timed = ms > 0;
    ms = ms < longest_ms ? ms : longest_ms;
    __atomic_store_n(&limit->end_ns, timed ? ns_after_ms(ms) : 0, __ATOMIC_RELAXED);
    __atomic_store_n(&limit->ended, 0, __ATOMIC_RELEASE);
}

void bitnet_limit_end(bitnet_limit *limit)
{
    if (limit)
        __atomic_store_n(&limit->ended, 1, __ATOMIC_RELEASE);
}

bool bitnet_limit_reached(void *limit)
{
    bitnet_limit *l = limit;
    if (!l)
        return false;
    if (__atomic_load_n(&l->ended, __ATOMIC_ACQUIRE))
        return true;
    uint64_t end = __atomic_load_n(&l->end_ns, __ATOMIC_RELAXED);
    return end && ns_after_ms(0) >= end;
}

void bnet_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t a;
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &a);
    pthread_condattr_destroy(&a);
}

bool bnet_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, const bnet_cancel *c)
{
    if (!c->ask) {
        pthread_cond_wait(cond, lock);
        return true;
    }
    struct timespec until = after_ms(ASK_EVERY_MS);
    pthread_cond_timedwait(cond, lock, &until);
    pthread_mutex_unlock(lock);
    bool wanted = !bnet_cancelled(c);
    pthread_mutex_lock(lock);
    return wanted;
}
