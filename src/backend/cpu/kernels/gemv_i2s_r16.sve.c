/* gemv_i2s_r16.sve.c - SVE alone has a dot product of signed factors, so the highest plane
 * (2 * 64 = 128) is shifted down; the others need a mask only. */
#define DOT(s, w, x, plane) svdot_lane_s32(s, svreinterpret_s8_u8(w), x, plane)
#include "backend/cpu/kernels/gemv_r16_sve.h"

static inline svuint8_t top_plane(svbool_t all, svuint8_t w)
{
    return svlsr_n_u8_x(all, w, 6);
}

static inline svint32_t top_total(svbool_t all, svint32_t sums)
{
    (void)all;
    return sums;
}

void bnet_gemv_i2s_r16_sve(const bnet_r16 *a)
{
    gemv(a);
}
