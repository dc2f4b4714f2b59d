/* options.c - sizes and ranges of option structs. */
#include "base/options.h"

enum {
    LARGEST = 4096
}; /* no options struct will ever be longer: a larger size is an uninitialised field */

static bitnet_status check_tail(const unsigned char *src, size_t from, size_t to, const char *name,
                                bitnet_error *err)
{
    for (size_t i = from; i < to; i++)
        if (src[i])
            return bnet_fail(
                err, BITNET_ARGUMENT,
                "%s: struct_size is %zu and sets a field (at byte %zu) that this library, "
                "version %s, does not know; update the library",
                name, to, i, BITNET_VERSION);
    return BITNET_OK;
}

bitnet_status bnet_options_copy(void *dst, size_t size, const void *src, const char *name,
                                bitnet_error *err)
{
    if (!src)
        return BITNET_OK;
    size_t given;
    memcpy(&given, src, sizeof given);
    if (given < sizeof given || given > LARGEST)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "%s: struct_size is %zu, must be %zu..%d; call the _init function first",
                         name, given, sizeof given, LARGEST);
    bitnet_status st = check_tail(src, BNET_MIN(size, given), given, name, err);
    if (st != BITNET_OK)
        return st;
    memcpy(dst, src, BNET_MIN(size, given));
    memcpy(dst, &size, sizeof size);
    return BITNET_OK;
}

bitnet_status bnet_check_int(const char *owner, const char *field, int64_t value, int64_t lo,
                             int64_t hi, bitnet_error *err)
{
    if (value >= lo && value <= hi)
        return BITNET_OK;
    return bnet_fail(err, BITNET_ARGUMENT, "%s: %s is %lld, must be %lld..%lld", owner, field,
                     (long long)value, (long long)lo, (long long)hi);
}

bitnet_status bnet_check_float(const char *owner, const char *field, double value, double lo,
                               double hi, bitnet_error *err)
{
    if (value >= lo && value <= hi) /* false for NaN */
        return BITNET_OK;
    return bnet_fail(err, BITNET_ARGUMENT, "%s: %s is %g, must be %g..%g", owner, field, value, lo,
                     hi);
}
