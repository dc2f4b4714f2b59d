/* half.c - 16-bit floats by their bits: no compiler type, the same result on every machine. */
#include "format/codec.h"

static float from_bits(uint32_t b)
{
    float f;
    memcpy(&f, &b, sizeof f);
    return f;
}

static uint32_t to_bits(float f)
{
    uint32_t b;
    memcpy(&b, &f, sizeof b);
    return b;
}

float bnet_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exp = (h >> 10) & 31u, man = h & 0x3ffu;
    if (exp == 31)
        return from_bits(sign | 0x7f800000u | man << 13); /* infinity, NaN with its payload */
    if (exp != 0)
        return from_bits(sign | (exp + 112) << 23 | man << 13);
    float f = (float)man * 0x1p-24f; /* zero and subnormals: exact */
    return from_bits(sign | to_bits(f));
}

uint16_t bnet_f32_to_f16(float f)
{
    uint32_t b = to_bits(f), sign = b >> 16 & 0x8000u, a = b & 0x7fffffffu;
    if (a > 0x7f800000u) /* NaN: quiet, upper payload kept */
        return (uint16_t)(sign | 0x7e00u | (a >> 13 & 0x1ffu));
    if (a >= 0x47800000u) /* 2^16 and more; the rounding below carries 65520..65535 to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (a >= 0x38800000u) { /* 2^-14 and more: normal. Rebias, round half to even on 13 bits */
        uint32_t r = a - 0x38000000u;
        return (uint16_t)(sign | (r + 0xfffu + (r >> 13 & 1u)) >> 13);
    }
    if (a <
        0x33000000u) /* below 2^-25: zero (the tie 2^-25 itself also rounds to even zero, below) */
        return (uint16_t)sign;
    uint32_t man = (a & 0x7fffffu) | 0x800000u, shift = 126u - (a >> 23); /* 14..24 */
    uint32_t half = 1u << (shift - 1);
    return (uint16_t)(sign | (man + half - 1u + (man >> shift & 1u)) >> shift);
}

float bnet_bf16_to_f32(uint16_t h)
{
    return from_bits((uint32_t)h << 16);
}

uint16_t bnet_f32_to_bf16(float f)
{
    uint32_t b = to_bits(f);
    if ((b & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(b >> 16 | 0x40u);
    return (uint16_t)((b + 0x7fffu + (b >> 16 & 1u)) >> 16);
}
