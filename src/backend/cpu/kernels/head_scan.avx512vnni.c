/* head_scan.avx512vnni.c - the scan of packed Q6_K for several inputs, 16 rows at once, pairs by
 * vpdpwssd. One input: as with AVX-512, where there is nothing that VNNI would save. */
#include "backend/cpu/kernels/head_q6_zmm.h"

#define v_dot(acc, pairs, scale) _mm512_dpwssd_epi32(acc, pairs, scale)
#include "backend/cpu/kernels/head_q6_x86.h"

void bnet_head_scan_q6_k_r4_avx512vnni(const uint8_t *w, size_t n_rows, const bnet_head_x *x,
                                       size_t n_x, size_t n_cols, float *const *y)
{
    scan_all(w, n_rows, x, n_x, n_cols, y, bnet_head_scan_q6_k_r4_avx512);
}
