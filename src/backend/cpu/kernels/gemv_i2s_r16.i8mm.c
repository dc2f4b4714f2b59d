/* gemv_i2s_r16.i8mm.c - the dot product of unsigned weights with signed activations: all four
 * planes need a mask only. */
#include "backend/cpu/kernels/gemv_r16_neon.h"

static inline void quad_add(quad *s, uint8x16_t w, int8x16_t x)
{
    s->plane[0] = vusdotq_laneq_s32(s->plane[0], vandq_u8(w, vdupq_n_u8(0x03)), x, 0);
    s->plane[1] = vusdotq_laneq_s32(s->plane[1], vandq_u8(w, vdupq_n_u8(0x0c)), x, 1);
    s->plane[2] = vusdotq_laneq_s32(s->plane[2], vandq_u8(w, vdupq_n_u8(0x30)), x, 2);
    s->plane[3] = vusdotq_laneq_s32(s->plane[3], vandq_u8(w, vdupq_n_u8(0xc0)), x, 3);
}

static inline int32x4_t quad_total(const quad *s)
{
    int32x4_t lo = vsraq_n_s32(s->plane[0], s->plane[1], 2);
    return vaddq_s32(lo, vsraq_n_s32(vshrq_n_s32(s->plane[2], 4), s->plane[3], 6));
}

void bnet_gemv_i2s_r16_i8mm(const bnet_r16 *a)
{
    gemv(a);
}
