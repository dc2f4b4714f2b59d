/* clock.h - the time: to wait by, and as APIs write it. */
#ifndef SRV_CLOCK_H
#define SRV_CLOCK_H

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

enum { SRV_TIME_MAX = 56 };

/* Milliseconds on a clock that nobody sets. */
static inline double srv_clock_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* The moment in so many milliseconds on that clock, for a condition of srv_cond_open. Less than
 * none is now; eleven days are the most: nobody waits longer in one call. */
static inline struct timespec srv_clock_after(double ms)
{
    struct timespec t;
    double most = 1e9;
    clock_gettime(CLOCK_MONOTONIC, &t);
    ms = ms < most ? ms : most;
    long long ns = (ms > 0 ? (long long)(ms * 1e6) : 0) + t.tv_nsec;
    t.tv_sec += (time_t)(ns / 1000000000);
    t.tv_nsec = (long)(ns % 1000000000);
    return t;
}

/* A condition whose waits end by that clock. */
static inline void srv_cond_open(pthread_cond_t *c)
{
    pthread_condattr_t steady;
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(c, &steady);
    pthread_condattr_destroy(&steady);
}

/* "2026-11-17T00:21:55.123456Z" (RFC 3339). */
static inline void srv_time_text(int64_t seconds, long nanoseconds, char out[SRV_TIME_MAX])
{
    time_t s = (time_t)seconds;
    struct tm t = {0};
    char day[32];
    gmtime_r(&s, &t);
    strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &t);
    snprintf(out, SRV_TIME_MAX, "%s.%06ldZ", day, nanoseconds / 1000);
}

static inline void srv_time_now(char out[SRV_TIME_MAX])
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    srv_time_text(t.tv_sec, t.tv_nsec, out);
}

#endif
