/* gemv_i2s_r16.dotprod.c - both factors are signed here, so the highest plane (2 * 64 = 128) is
 * shifted down; the others need a mask only. */
#include "backend/cpu/kernels/gemv_r16_neon.h"

static inline int32x4_t dot(int32x4_t s, uint8x16_t w, int8x16_t x, const int lane)
{
    int8x16_t v = vreinterpretq_s8_u8(w);
    return lane == 0   ? vdotq_laneq_s32(s, v, x, 0)
           : lane == 1 ? vdotq_laneq_s32(s, v, x, 1)
           : lane == 2 ? vdotq_laneq_s32(s, v, x, 2)
                       : vdotq_laneq_s32(s, v, x, 3);
}

static inline void quad_add(quad *s, uint8x16_t w, int8x16_t x)
{
    s->plane[0] = dot(s->plane[0], vandq_u8(w, vdupq_n_u8(0x03)), x, 0);
    s->plane[1] = dot(s->plane[1], vandq_u8(w, vdupq_n_u8(0x0c)), x, 1);
    s->plane[2] = dot(s->plane[2], vandq_u8(w, vdupq_n_u8(0x30)), x, 2);
    s->plane[3] = dot(s->plane[3], vshrq_n_u8(w, 6), x, 3);
}

static inline int32x4_t quad_total(const quad *s)
{
    int32x4_t lo = vsraq_n_s32(s->plane[0], s->plane[1], 2);
    return vaddq_s32(vaddq_s32(lo, s->plane[3]), vshrq_n_s32(s->plane[2], 4));
}

void bnet_gemv_i2s_r16_dotprod(const bnet_r16 *a)
{
    gemv(a);
}
