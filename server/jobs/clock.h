/* clock.h - the time, as APIs write it. */
#ifndef SRV_CLOCK_H
#define SRV_CLOCK_H

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
