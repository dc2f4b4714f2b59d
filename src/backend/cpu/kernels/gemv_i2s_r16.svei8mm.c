/* gemv_i2s_r16.svei8mm.c - the dot product of unsigned weights with signed activations: all four
 * planes need a mask only. */
#define DOT(s, w, x, plane) svusdot_lane_s32(s, w, x, plane)
#include "backend/cpu/kernels/gemv_r16_sve.h"

static inline svuint8_t top_plane(svbool_t all, svuint8_t w)
{
    return svand_n_u8_x(all, w, 0xc0);
}

static inline svint32_t top_total(svbool_t all, svint32_t sums)
{
    return svasr_n_s32_x(all, sums, 6);
}

void bnet_gemv_i2s_r16_svei8mm(const bnet_r16 *a)
{
    gemv(a);
}
