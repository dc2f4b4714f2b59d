/* half_inline.h - 16-bit floats inside kernels: the hardware's conversion where the base
 * instruction set has one (the same values bit for bit, NaN aside), the bit version elsewhere. */
#ifndef BNET_HALF_INLINE_H
#define BNET_HALF_INLINE_H

#include "format/codec.h"

#if defined(__aarch64__)
static inline float half_to_float(uint16_t h)
{
    __fp16 v;
    memcpy(&v, &h, 2);
    return (float)v;
}

static inline uint16_t float_to_half(float f)
{
    __fp16 v = (__fp16)f;
    uint16_t h;
    memcpy(&h, &v, 2);
    return h;
}
#else
/* Exponent rebias by a multiply: exact for normal and subnormal halves, and infinities and NaN are
 * patched. */
static inline float half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, mag = (uint32_t)(h & 0x7fff) << 13;
    float f;
    if (mag >= 0x0f800000u) { /* exponent 31 */
        mag |= 0x70000000u;
        mag |= sign;
        memcpy(&f, &mag, 4);
        return f;
    }
    memcpy(&f, &mag, 4);
    f *= 5.192296858534828e33f; /* 2^112 */
    uint32_t bits;
    memcpy(&bits, &f, 4);
    bits |= sign;
    memcpy(&f, &bits, 4);
    return f;
}

static inline uint16_t float_to_half(float f)
{
    return bnet_f32_to_f16(f);
}
#endif

static inline float bf16_to_float(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

#endif
