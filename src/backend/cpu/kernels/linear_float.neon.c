/* linear_float.neon.c - weight rows of F16, BF16, Q8_0, Q4_0 and Q6_K, as in the file and packed,
 * against float activations. */
#include "backend/cpu/kernels/simd_neon.h"
#include "backend/cpu/kernels/linear_simd.h"

SIMD float half_at(const uint8_t *p)
{
    __fp16 h;
    memcpy(&h, p, sizeof h);
    return (float)h;
}

SIMD void decode_f16(const uint8_t *row, size_t i, vf w[PARTS])
{
    for (size_t k = 0; k < 4; k++)
        w[k] = vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(row + 2 * i + 8 * k)));
}

/* A bfloat16 is the upper half of a float. */
SIMD void decode_bf16(const uint8_t *row, size_t i, vf w[PARTS])
{
    for (size_t k = 0; k < 4; k++) {
        uint16x4_t h = vreinterpret_u16_u8(vld1_u8(row + 2 * i + 8 * k));
        w[k] = vreinterpretq_f32_u32(vshll_n_u16(h, 16));
    }
}

/* 16 bytes c become (float)(c - bias) * d. The bytes c, 0, 0, 0x4b are the float 2^23 + c: no
 * conversion, of which there could be but one in a cycle. */
SIMD void scale_codes(uint8x16_t c, float bias, float d, vf w[PARTS])
{
    const uint8x16_t zero = vdupq_n_u8(0);
    const uint16x8_t exponent = vdupq_n_u16(0x4b00);
    const float32x4_t less = vdupq_n_f32(8388608.0f + bias), scale = vdupq_n_f32(d);
    uint16x8_t lo = vreinterpretq_u16_u8(vzip1q_u8(c, zero));
    uint16x8_t hi = vreinterpretq_u16_u8(vzip2q_u8(c, zero));
    w[0] = vreinterpretq_f32_u16(vzip1q_u16(lo, exponent));
    w[1] = vreinterpretq_f32_u16(vzip2q_u16(lo, exponent));
    w[2] = vreinterpretq_f32_u16(vzip1q_u16(hi, exponent));
    w[3] = vreinterpretq_f32_u16(vzip2q_u16(hi, exponent));
    for (int k = 0; k < 4; k++)
        w[k] = vmulq_f32(vsubq_f32(w[k], less), scale);
}

SIMD void decode_q8_0(const uint8_t *row, size_t i, vf w[PARTS])
{
    const uint8_t *block = row + i / 32 * 34;
    uint8x16_t q = vld1q_u8(block + 2 + i % 32);
    scale_codes(veorq_u8(q, vdupq_n_u8(0x80)), 128, half_at(block), w);
}

/* Low nibbles are elements 0..15 of a block, high ones 16..31. */
SIMD void decode_q4_0(const uint8_t *row, size_t i, vf w[PARTS])
{
    const uint8_t *block = row + i / 32 * 18;
    uint8x16_t q = vld1q_u8(block + 2);
    q = i % 32 ? vshrq_n_u8(q, 4) : vandq_u8(q, vdupq_n_u8(15));
    scale_codes(q, 8, half_at(block), w);
}

/* Four low bits from ql, two high bits from qh. */
SIMD void decode_q6_k(const uint8_t *row, size_t i, vf w[PARTS])
{
    const uint8_t *block = row + i / 256 * 210;
    size_t s = i % 256 / 16, h = s / 8, g = s % 8 / 2, l = 16 * (s % 2);
    uint8x16_t ql = vld1q_u8(block + 64 * h + 32 * (g & 1) + l);
    uint8x16_t qh = vld1q_u8(block + 128 + 32 * h + l);
    uint8x16_t low = g < 2 ? vandq_u8(ql, vdupq_n_u8(15)) : vshrq_n_u8(ql, 4);
    uint8x16_t high = vandq_u8(vshlq_u8(qh, vdupq_n_s8((int8_t)(-2 * (int)g))), vdupq_n_u8(3));
    float scale = half_at(block + 208) * (float)(int8_t)block[192 + s];
    scale_codes(vsliq_n_u8(low, high, 4), 32, scale, w);
}

BNET_LINEAR_ROW(f16, 1)
BNET_LINEAR_ROW(bf16, 1)
BNET_LINEAR_ROW(q8_0, 2)
BNET_LINEAR_ROW(q4_0, 2)
BNET_LINEAR_ROW(q6_k, 16)

/* ---- packed Q6_K ---- */

/* A code c becomes a float without a conversion: the half words 0 and 0x4300 | c are the float
 * 128 + c, and 160 less is c - 32, exactly. */

/* Four columns of four rows; to: where row 0's go, the next row's lie 256 further. */
SIMD void decode_four(uint8x16_t code, float32x4_t scale, float *to)
{
    const uint8x16_t exponent = vdupq_n_u8(0x43);
    const uint16x8_t zero = vdupq_n_u16(0);
    const float32x4_t bias = vdupq_n_f32(160.0f);
    uint16x8_t rows01 = vreinterpretq_u16_u8(vzip1q_u8(code, exponent));
    uint16x8_t rows23 = vreinterpretq_u16_u8(vzip2q_u8(code, exponent));
    float32x4_t r0 = vreinterpretq_f32_u16(vzip1q_u16(zero, rows01));
    float32x4_t r1 = vreinterpretq_f32_u16(vzip2q_u16(zero, rows01));
    float32x4_t r2 = vreinterpretq_f32_u16(vzip1q_u16(zero, rows23));
    float32x4_t r3 = vreinterpretq_f32_u16(vzip2q_u16(zero, rows23));
    vst1q_f32(to, vmulq_laneq_f32(vsubq_f32(r0, bias), scale, 0));
    vst1q_f32(to + 256, vmulq_laneq_f32(vsubq_f32(r1, bias), scale, 1));
    vst1q_f32(to + 512, vmulq_laneq_f32(vsubq_f32(r2, bias), scale, 2));
    vst1q_f32(to + 768, vmulq_laneq_f32(vsubq_f32(r3, bias), scale, 3));
}

SIMD uint8x16_t fourth(uint8x16_t a, uint8x16_t b, uint8x16_t c)
{
    return vshrq_n_u8(vsriq_n_u8(a, vsriq_n_u8(b, c, 2), 2), 2);
}

/* d times the four rows' scales of each sub-block of a quarter */
SIMD void scales(const uint8_t *p, float32x4_t d, float32x4_t out[4])
{
    int8x16_t s = vld1q_s8((const int8_t *)p);
    int16x8_t lo = vmovl_s8(vget_low_s8(s)), hi = vmovl_high_s8(s);
    out[0] = vmulq_f32(d, vcvtq_f32_s32(vmovl_s16(vget_low_s16(lo))));
    out[1] = vmulq_f32(d, vcvtq_f32_s32(vmovl_high_s16(lo)));
    out[2] = vmulq_f32(d, vcvtq_f32_s32(vmovl_s16(vget_low_s16(hi))));
    out[3] = vmulq_f32(d, vcvtq_f32_s32(vmovl_high_s16(hi)));
}

static void decode_r4(const uint8_t *block, const uint8_t *f16, float *out)
{
    const uint8x16_t low = vdupq_n_u8(0x3f);
    float32x4_t d = vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(f16))), s[4];
    for (size_t k = 0; k < 4; k++) {
        const uint8_t *w = block + BNET_Q6R4_QUARTER * k;
        float *to = out + 128 * (k / 2) + 16 * (k % 2);
        scales(w + 192, d, s);
        for (size_t j = 0; j < 4; j++, w += 16, to += 4) {
            uint8x16_t a = vld1q_u8(w), b = vld1q_u8(w + 64), c = vld1q_u8(w + 128);
            decode_four(vandq_u8(a, low), s[0], to);
            decode_four(vandq_u8(b, low), s[1], to + 32);
            decode_four(vandq_u8(c, low), s[2], to + 64);
            decode_four(fourth(a, b, c), s[3], to + 96);
        }
    }
}
