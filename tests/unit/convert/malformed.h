/* malformed.h - tables of broken inputs: each row must give its own status and its own message, and
 * cost little memory. */
#ifndef CONVERT_MALFORMED_H
#define CONVERT_MALFORMED_H

#include <sys/resource.h>

#include "unit/convert/fixture.h"

/* `from` -> `to` breaks the good document; from NULL: `to` is the whole document. */
typedef struct malformed {
    const char *from, *to;
    bitnet_status status;
    const char *expect; /* part of the message */
} malformed;

#define MALFORMED_MAX       128
#define MALFORMED_MAX_BYTES (64l << 20)

typedef struct malformed_run {
    char *messages[MALFORMED_MAX];
    size_t n;
    long start_kib;
} malformed_run;

static inline long peak_kib(void)
{
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? u.ru_maxrss : 0;
}

/* Compares what a row gave with what it should give, and with every row before. */
static inline void malformed_check(malformed_run *run, const malformed *row, bitnet_status got,
                                   const bitnet_error *err)
{
    if (run->n == 0)
        run->start_kib = peak_kib();
    if (got != row->status || err->status != got || !strstr(err->message, row->expect))
        fail_msg("row %zu: status %d, message \"%s\"; status %d with \"%s\" was expected", run->n,
                 (int)got, err->message, (int)row->status, row->expect);
    for (size_t i = 0; i < run->n; i++)
        if (strcmp(run->messages[i], err->message) == 0)
            fail_msg("rows %zu and %zu have one message: %s", i, run->n, err->message);
    assert_true(run->n < MALFORMED_MAX);
    run->messages[run->n++] = strdup(err->message);
}

static inline void malformed_end(malformed_run *run, size_t at_least)
{
    assert_true(run->n >= at_least);
    if (peak_kib() - run->start_kib > MALFORMED_MAX_BYTES / 1024)
        fail_msg("refusing cost %ld KiB", peak_kib() - run->start_kib);
    for (size_t i = 0; i < run->n; i++)
        free(run->messages[i]);
}

#endif
