/* gemv_r16_neon.h - few tokens against packed groups of 16 rows, for both dot products of ARM. The
 * file that includes it says how four rows of a line join their sums (quad_add) and how the sums
 * become one (quad_total).
 *
 * A line of 64 bytes is four registers, each 4 rows x 4 columns in four planes. Planes are masked
 * out rather than shifted down where the masked codes still fit a byte: they are then multiples of
 * 1, 4, 16, 64, each multiple has its own sums, and these are divided once at the end, exactly. The
 * dot by lane takes 4 columns of x for all 4 rows, so lanes are rows and nothing is added across.
 * 32-bit lanes: a plane has K / 4 columns of at most 128 * 128, so 2^12 K, safe for K < 2^19. */
#ifndef BNET_GEMV_R16_NEON_H
#define BNET_GEMV_R16_NEON_H

#include "backend/cpu/kernels/r16.h"

#include <arm_neon.h>

typedef struct quad {
    int32x4_t plane[4]; /* sums of 4 rows by multiple */
} quad;

static inline void quad_add(quad *s, uint8x16_t w, int8x16_t x);
static inline int32x4_t quad_total(const quad *s);

/* Tells the compiler's scheduler alone to work on w after the sums of s: left alone it
 * masks a whole line first and runs out of registers. */
#define R16_AFTER(w, s) __asm__("" : "+w"(w) : "w"((s).plane[3]))

static inline void line_add(quad s[4], const uint8_t *w, int8x16_t x)
{
    uint8x16_t w0 = vld1q_u8(w), w1 = vld1q_u8(w + 16), w2 = vld1q_u8(w + 32),
               w3 = vld1q_u8(w + 48);
    quad_add(&s[0], w0, x);
    R16_AFTER(w1, s[0]);
    quad_add(&s[1], w1, x);
    R16_AFTER(w2, s[1]);
    quad_add(&s[2], w2, x);
    R16_AFTER(w3, s[2]);
    quad_add(&s[3], w3, x);
}

static inline void group_sums(const uint8_t *w, size_t n_lines, const int8_t *x, int32_t x_sum,
                              int32_t acc[BNET_R16_ROWS])
{
    quad s[4];
    for (int q = 0; q < 4; q++)
        for (int p = 0; p < 4; p++)
            s[q].plane[p] = vdupq_n_s32(0);
    for (size_t l = 0; l < n_lines; l++, w += BNET_R16_LINE, x += 16) {
        line_add(s, w, vld1q_s8(x));
        __asm__("" : "+r"(w) : "w"(s[3].plane[3])); /* one line at a time, as above */
    }
    for (int q = 0; q < 4; q++)
        vst1q_s32(acc + 4 * q, vsubq_s32(quad_total(&s[q]), vdupq_n_s32(x_sum)));
}

static inline void gemv(const bnet_r16 *a)
{
    int32_t acc[BNET_R16_ROWS];
    for (size_t row = 0; row < a->n_rows; row += BNET_R16_ROWS)
        for (size_t t = 0; t < a->n_tokens; t++) {
            group_sums(a->w + row * 4 * a->n_lines, a->n_lines, a->x + t * a->x_stride, a->x_sum[t],
                       acc);
            r16_store(a, row, t, acc);
        }
}

#endif
