/* head_copy.avx512vnni.c - the scan of the head's copy with vpdpbusd. */
#include "backend/cpu/kernels/head_copy_zmm.h"

void bnet_head_scan_i8_r8_avx512vnni(const uint8_t *groups, size_t n_groups,
                                     const bnet_head_eight *x, size_t n_eights, size_t n_cols,
                                     float (*y)[BNET_COPY_ROWS])
{
    scan_all(groups, n_groups, x, n_eights, n_cols, y);
}
