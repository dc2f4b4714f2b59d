/* peak_sve.h - rounds of one SVE instruction on registers, for vectors of any length. The file that
 * includes it defines OP(sums, a, b), which adds products of bytes. */
#ifndef BNET_PEAK_SVE_H
#define BNET_PEAK_SVE_H

#include <arm_sve.h>

#include "backend/cpu/peak.h"

/* Vectors of unknown length cannot be array elements. */
#define CHAINS(f)                                                                                  \
    f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7) f(8) f(9) f(10) f(11) f(12) f(13) f(14) f(15)
enum { N_CHAINS = 16 };
#define FIRST(i) svint32_t s##i = svdup_n_s32(i);
#define NEXT(i)  s##i = OP(s##i, a, b);
#define JOIN(i)  sum = sveor_s32_x(all, sum, s##i); /* no overflow */

/* n_ops: of one instruction, for each byte of a vector. */
static inline uint64_t peak(size_t n_rounds, uint64_t n_ops, uint64_t *sink)
{
    const svbool_t all = svptrue_b8();
    svint8_t a = svdup_n_s8((int8_t)*sink), b = svdup_n_s8(3);
    svint32_t sum = svdup_n_s32(0);
    CHAINS(FIRST)
    for (size_t i = 0; i < n_rounds; i++) {
        CHAINS(NEXT)
        __asm__ volatile("" : "+w"(a), "+w"(b));
    }
    CHAINS(JOIN)
    *sink = (uint64_t)(uint32_t)svlasta_s32(svpfalse_b(), sum);
    return (uint64_t)n_rounds * N_CHAINS * n_ops * svcntb();
}

#endif
