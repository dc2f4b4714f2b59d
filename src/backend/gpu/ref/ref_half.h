/* ref_half.h - products of halves for chips without tensor cores: one thread per result, float sums
 * in the order of the CPU's dot products. */
#ifndef BNET_REF_HALF_H
#define BNET_REF_HALF_H

#include "backend/gpu/ref/ref_math.h"

REF_KERNEL(bnet_ref_matmul_half, ref_matmul_args)
{
    uint64_t i = REF_THREAD, r = i / a.n, c = i % a.n;
    if (r >= a.m)
        return;
    float acc[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    for (uint32_t k = 0; k < a.k; k++) {
        uint32_t x = a.a[r * a.k + k];
        uint32_t y = a.nt ? a.b[c * a.ldb + k] : a.b[(uint64_t)k * a.ldb + c];
        acc[k % 16] += a.type == REF_F16 ? ref_half(x) * ref_half(y) : ref_bf16(x) * ref_bf16(y);
    }
    a.c[i] = ref_fold16(acc);
}

#endif
