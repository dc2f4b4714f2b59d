/* log.c - one line to the caller's sink; and the clock. */
#include "base/base.h"

#include <stdio.h>
#include <time.h>

void bnet_logf(const bnet_log *log, bitnet_log_level level, const char *module, const char *fmt,
               ...)
{
    if (!log || !log->fn)
        return;
    char line[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    log->fn(log->user, level, module, line);
}

double bnet_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}
