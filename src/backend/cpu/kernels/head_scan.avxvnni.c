/* head_scan.avxvnni.c - the scan of packed Q6_K for several inputs, eight rows at once, pairs by
 * vpdpwssd. One input: as with AVX2. */
#include "backend/cpu/kernels/head_q6_ymm.h"

#define v_dot(acc, pairs, scale) _mm256_dpwssd_avx_epi32(acc, pairs, scale)
#include "backend/cpu/kernels/head_q6_x86.h"

void bnet_head_scan_q6_k_r4_avxvnni(const uint8_t *w, size_t n_rows, const bnet_head_x *x,
                                    size_t n_x, size_t n_cols, float *const *y)
{
    scan_all(w, n_rows, x, n_x, n_cols, y, bnet_head_scan_q6_k_r4_avx2);
}
