/* simd_x86.h - what AVX2 and AVX-512 have in common; simd_avx2.h and simd_avx512.h end with it. */
#ifndef BNET_SIMD_X86_H
#define BNET_SIMD_X86_H

#include "backend/cpu/kernels/simd_all.h"

SIMD v4 v4_pick_max(v4 a, v4 b)
{
    return _mm_max_ps(a, b);
}
SIMD v4 v4_fold_each(v4 a, v4 b, v4 c, v4 d)
{
    return _mm_hadd_ps(_mm_hadd_ps(a, b), _mm_hadd_ps(c, d));
}

typedef const float *vweights;
SIMD vweights vw_load(const float *p)
{
    return p;
}
#define vw_fma(v, w, lane, acc) vf_fma(v, vf_set((w)[lane]), acc)

/* *bad becomes NaN if v is infinite or NaN, and stays so. */
SIMD void vf_amax(vf v, vf *max, vf *bad)
{
    *max = vf_pick_max(vf_abs(v), *max);
    *bad = vf_fma(v, vf_set(0), *bad);
}

SIMD void scale16_i8(const uint8_t *p, float s, float *to)
{
    for (int i = 0; i < 16; i += VF)
        vf_store(to + i, vf_from_i8(p + i) * vf_set(s));
}

#endif
