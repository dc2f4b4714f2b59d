/* head_copy.avx512vnni.c - the scan of the head's copy with vpdpbusd. */
#include "backend/cpu/kernels/head_copy_zmm.h"

void bnet_head_scan_i8_r8_avx512vnni(const uint8_t *group, const bnet_head_eight *x,
                                     size_t n_eights, size_t n_cols, float (*y)[BNET_COPY_ROWS])
{
    for (size_t i = 0; i < n_eights; i++)
        scan_eight(group, x + i, n_cols, y + BNET_COPY_INPUTS * i);
}
