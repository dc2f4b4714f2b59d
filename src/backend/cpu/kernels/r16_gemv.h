/* r16_gemv.h - how the x86 kernels walk a call of few tokens: by groups and tokens, straight from
 * packed lines. The arithmetic (r16_madd.h, r16_vnni.h), which comes first, brings, for constant
 * n_g groups and n_t tokens, decode(a, row, t, n_g, n_t) and the kernel file GEMV_G, GEMV_T: as
 * many as its registers hold. */
#ifndef BNET_KERNELS_R16_GEMV_H
#define BNET_KERNELS_R16_GEMV_H

/* Tokens that are left over behind whole pieces of GEMV_T go together, too. */
static ALWAYS_INLINE void decode_rest(const bnet_r16 *a, size_t row, size_t t)
{
    if (GEMV_T > 3 && a->n_tokens - t == 3)
        decode(a, row, t, 1, 3);
    else if (GEMV_T > 2 && a->n_tokens - t == 2)
        decode(a, row, t, 1, 2);
    else
        for (; t < a->n_tokens; t++)
            decode(a, row, t, 1, 1);
}

/* Few tokens: the group is read from memory by the first, from the first-level cache by others. */
static inline void gemv(const bnet_r16 *a)
{
    size_t row = 0, t;
    if (a->n_tokens == 1) {
        for (; row + 16 * (GEMV_G - 1) < a->n_rows; row += 16 * GEMV_G)
            decode(a, row, 0, GEMV_G, 1);
        for (; GEMV_G > 2 && row + 16 < a->n_rows; row += 32)
            decode(a, row, 0, 2, 1);
    }
    if (GEMV_G > 1 && GEMV_T > 3 && a->n_tokens == 2) /* as many sums as 4 tokens of one group */
        for (; row + 16 < a->n_rows; row += 32)
            decode(a, row, 0, 2, 2);
    for (; row < a->n_rows; row += 16) {
        for (t = 0; t + GEMV_T <= a->n_tokens; t += GEMV_T)
            decode(a, row, t, 1, GEMV_T);
        decode_rest(a, row, t);
    }
}

#endif
