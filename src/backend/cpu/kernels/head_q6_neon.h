/* head_q6_neon.h - packed Q6_K (pack_q6.h) taken apart with NEON, for the scans of the head. */
#ifndef BNET_HEAD_Q6_NEON_H
#define BNET_HEAD_Q6_NEON_H

#include "backend/cpu/kernels.h"
#include "backend/cpu/pack_q6.h"

#include <arm_neon.h>

static inline int8x16_t codes(uint8x16_t v)
{
    return vreinterpretq_s8_u8(vandq_u8(v, vdupq_n_u8(0x3f)));
}

/* The fourth sub-block's codes, two bits from each. */
static inline int8x16_t fourth(uint8x16_t a, uint8x16_t b, uint8x16_t c)
{
    return vreinterpretq_s8_u8(vshrq_n_u8(vsriq_n_u8(a, vsriq_n_u8(b, c, 2), 2), 2));
}

static inline float32x4_t halves(const uint8_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}

/* The codes less 32: what they mean. */
static inline int8x16_t meant(int8x16_t code)
{
    return vsubq_s8(code, vdupq_n_s8(32));
}

static inline int8x16_t fourth_meant(uint8x16_t a, uint8x16_t b, uint8x16_t c)
{
    uint8x16_t v = vsriq_n_u8(a, vsriq_n_u8(b, c, 2), 2);
    return vreinterpretq_s8_u8(vsraq_n_u8(vdupq_n_u8((uint8_t)-32), v, 2));
}

/* 16 columns of four rows, four by four, of the sub-blocks of a quarter; j: the four columns. */
static inline void four_columns(const uint8_t *quarter, size_t j, int8x16_t out[4])
{
    uint8x16_t a = vld1q_u8(quarter + 16 * j), b = vld1q_u8(quarter + 64 + 16 * j);
    uint8x16_t c = vld1q_u8(quarter + 128 + 16 * j);
    out[0] = meant(codes(a));
    out[1] = meant(codes(b));
    out[2] = meant(codes(c));
    out[3] = fourth_meant(a, b, c);
}

/* Zeros by an instruction that costs nothing; what compilers make of vdupq_n_s32(0) in a loop, a
 * copy of a register, takes the time of a product. */
static inline int32x4_t zeros(void)
{
    int32x4_t z;
    __asm__ volatile("movi %0.4s, #0" : "=w"(z));
    return z;
}

#endif
