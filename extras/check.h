/* check.h - errors, sizes and options for the files of this folder, which know the library by its
 * headers alone. */
#ifndef BITNET_EXTRAS_CHECK_H
#define BITNET_EXTRAS_CHECK_H

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "bitnet_extras.h"

BITNET_PRINTF(3, 4)
static inline bitnet_status fail(bitnet_error *err, bitnet_status status, const char *format, ...)
{
    if (err) {
        va_list ap;
        va_start(ap, format);
        err->status = status;
        vsnprintf(err->message, sizeof err->message, format, ap);
        va_end(ap);
    }
    return status;
}

/* *out = a * b. False: too large. */
static inline bool multiply(size_t a, size_t b, size_t *out)
{
    *out = a * b;
    return a == 0 || *out / a == b;
}

static inline size_t divide_up(size_t n, size_t by)
{
    return n / by + (n % by != 0);
}

/* *out = a * b * bytes. */
static inline bitnet_status size_of(const char *what, size_t a, size_t b, size_t bytes, size_t *out,
                                    bitnet_error *err)
{
    size_t n;
    if (multiply(a, b, &n) && multiply(n, bytes, out))
        return BITNET_OK;
    return fail(err, BITNET_ARGUMENT, "%s: %zu times %zu values is too large", what, a, b);
}

static inline bitnet_status missing_ops(const char *what, bitnet_error *err)
{
    return fail(err, BITNET_ARGUMENT, "%s: ops and buffers must not be NULL", what);
}

/* value must be in lo..hi. */
static inline bitnet_status check_int(const char *owner, const char *field, int value, int lo,
                                      int hi, bitnet_error *err)
{
    if (value >= lo && value <= hi)
        return BITNET_OK;
    return fail(err, BITNET_ARGUMENT, "%s: %s is %d, must be %d..%d", owner, field, value, lo, hi);
}

/* Copies the options a program gave over defaults of `size` bytes; NULL: the defaults stay. Both
 * begin with their size; a program built for a shorter struct leaves later fields alone. */
static inline bitnet_status copy_options(void *defaults, size_t size, const void *given,
                                         const char *owner, bitnet_error *err)
{
    size_t n;
    if (!given)
        return BITNET_OK;
    memcpy(&n, given, sizeof n);
    if (n < sizeof n || n > size)
        return fail(err, BITNET_ARGUMENT,
                    "%s: struct_size is %zu, must be %zu..%zu; call the _init function first",
                    owner, n, sizeof n, size);
    memcpy(defaults, given, n);
    memcpy(defaults, &size, sizeof size);
    return BITNET_OK;
}

static inline size_t at_most(size_t n, size_t most)
{
    return n < most ? n : most;
}

/* Codes 0, 1, 2 are -1, 0, +1; anything else is 0. */
static inline int trit_of(uint8_t code)
{
    return code <= 2 ? code - 1 : 0;
}

#endif
