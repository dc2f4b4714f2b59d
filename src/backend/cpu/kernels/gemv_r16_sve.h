/* gemv_r16_sve.h - few tokens against packed groups of 16 rows, for vectors of any length and both
 * dot products of SVE. The file that includes it defines DOT(sums, weights, x, plane): 4 columns of
 * x for every row of a vector.
 *
 * Four vectors are taken at a time, one behind the other: of a line of 64 bytes a quarter each
 * where vectors have 16 bytes, a half where they have 32, all of it from 64 on (no more is used).
 * Planes are masked out and summed apart as gemv_r16_neon.h explains, with the same bound. Where
 * four vectors are more than a line, a row has a sum in each, and these are added at the end. */
#ifndef BNET_GEMV_R16_SVE_H
#define BNET_GEMV_R16_SVE_H

#include "backend/cpu/kernels/r16.h"
#include "backend/cpu/kernels/sve_length.h"

#include <arm_sve.h>

static inline svuint8_t top_plane(svbool_t all, svuint8_t w);    /* its codes */
static inline svint32_t top_total(svbool_t all, svint32_t sums); /* their sums, multiples of 1 */

/* Sums of vector i by plane; vectors of unknown length cannot be array elements. */
#define SUMS(i) svint32_t s##i##0 = zero, s##i##1 = zero, s##i##2 = zero, s##i##3 = zero

/* Adds vector i, which belongs to line i * n / 64 of those at w. */
#define ADD(i)                                                                                     \
    do {                                                                                           \
        svuint8_t v = svld1_u8(used, w + (i)*n);                                                   \
        svint8_t c = svld1rq_s8(all, x + (i)*n / BNET_R16_LINE * 16);                              \
        s##i##0 = DOT(s##i##0, svand_n_u8_x(all, v, 0x03), c, 0);                                  \
        s##i##1 = DOT(s##i##1, svand_n_u8_x(all, v, 0x0c), c, 1);                                  \
        s##i##2 = DOT(s##i##2, svand_n_u8_x(all, v, 0x30), c, 2);                                  \
        s##i##3 = DOT(s##i##3, top_plane(all, v), c, 3);                                           \
    } while (0)

#define STORE(i)                                                                                   \
    do {                                                                                           \
        svint32_t lo = svadd_s32_x(all, s##i##0, svasr_n_s32_x(all, s##i##1, 2));                  \
        svint32_t hi = svadd_s32_x(all, svasr_n_s32_x(all, s##i##2, 4), top_total(all, s##i##3));  \
        svst1_s32(used, sums + (i)*n / 4, svadd_s32_x(all, lo, hi));                               \
    } while (0)

/* n: bytes of a vector that are used, 16, 32 or 64; n_lines is a multiple of 8. */
static inline void group_sums(const uint8_t *w, size_t n_lines, size_t n, const int8_t *x,
                              int32_t x_sum, int32_t acc[BNET_R16_ROWS])
{
    int32_t sums[BNET_R16_LINE]; /* n of them: every fourth byte of the four vectors */
    const svbool_t all = svptrue_b8(), used = svwhilelt_b8_u64(0, n);
    const svint32_t zero = svdup_n_s32(0);
    const uint8_t *end = w + n_lines * BNET_R16_LINE;
    SUMS(0);
    SUMS(1);
    SUMS(2);
    SUMS(3);
    for (; w < end; w += 4 * n, x += n) {
        ADD(0);
        ADD(1);
        ADD(2);
        ADD(3);
    }
    STORE(0);
    STORE(1);
    STORE(2);
    STORE(3);
    for (size_t r = 0; r < BNET_R16_ROWS; r++)
        acc[r] = sums[r] - x_sum;
    for (size_t l = BNET_R16_ROWS; l < n; l += BNET_R16_ROWS)
        for (size_t r = 0; r < BNET_R16_ROWS; r++)
            acc[r] += sums[l + r];
}

static inline void gemv(const bnet_r16 *a)
{
    int32_t acc[BNET_R16_ROWS];
    const size_t n = BNET_MIN(sve_power_of_two(), (size_t)BNET_R16_LINE);
    for (size_t row = 0; row < a->n_rows; row += BNET_R16_ROWS)
        for (size_t t = 0; t < a->n_tokens; t++) {
            group_sums(a->w + row * 4 * a->n_lines, a->n_lines, n, a->x + t * a->x_stride,
                       a->x_sum[t], acc);
            r16_store(a, row, t, acc);
        }
}

#endif
