/* malformed.h - tables of broken inputs: each row must give its own status and its own message, and
 * cost little memory. */
#ifndef CONVERT_MALFORMED_H
#define CONVERT_MALFORMED_H

#include <sys/resource.h>

#include "unit/convert/fixture.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MALFORMED_HOOKS
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define MALFORMED_HOOKS
#endif
#endif
#ifdef MALFORMED_HOOKS /* declared here: not every compiler package brings the header */
int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void *, size_t),
                                              void (*on_free)(const volatile void *));
size_t __sanitizer_get_allocated_size(const volatile void *p);
#endif

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

/* The most memory held at one time, in KiB. Under AddressSanitizer, whose own memory drowns ours,
 * its hooks count what is allocated; elsewhere the kernel says what was resident. */
#ifdef MALFORMED_HOOKS
static size_t live_bytes, peak_bytes;

static inline void count_malloc(const volatile void *p, size_t n)
{
    (void)p;
    live_bytes += n;
    peak_bytes = BNET_MAX(peak_bytes, live_bytes);
}

static inline void count_free(const volatile void *p)
{
    size_t n = p ? __sanitizer_get_allocated_size(p) : 0;
    live_bytes -= BNET_MIN(n, live_bytes); /* of before the counting began */
}

static inline long peak_kib(void)
{
    if (peak_bytes == 0)
        __sanitizer_install_malloc_and_free_hooks(count_malloc, count_free);
    return (long)(peak_bytes / 1024);
}
#else
static inline long peak_kib(void)
{
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? u.ru_maxrss : 0;
}
#endif

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
