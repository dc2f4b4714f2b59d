/* sve_length.h - how much of a vector is used. Vectors may have any multiple of 16 bytes, such as
 * 48; the packed lines have powers of two, and a vector must not straddle them. */
#ifndef BNET_SVE_LENGTH_H
#define BNET_SVE_LENGTH_H

#include <arm_sve.h>
#include <stddef.h>
#include <stdint.h>

static inline size_t sve_power_of_two(void)
{
    return (size_t)1 << (63 - __builtin_clzll((unsigned long long)svcntb()));
}

#endif
