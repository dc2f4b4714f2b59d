/* r16_madd.h - packed groups with (v)pmaddubsw, which adds 2 products of an unsigned and a signed
 * byte in 16 bits and saturates. Nothing here can: with codes 0, 1, 2 and x in -128..127
 *   - decode takes fields as 0..2 (planes 0, 2) and 0..8 (planes 1, 3), 2 pairs of each a line,
 * over 8 lines: a 16-bit lane is within 16 * 2 * 2 * -128 = -8192 and 16 * 2 * 8 * -128 = -32768
 *     below, 16 * 2 * 8 * 127 = 32512 above. Then both go to 32 bits, the small ones fourfold:
 *     4 * 2 * 128 * K <= 2^27 for K <= 131072; shifted down once, exactly.
 *   - tile takes bytes 0..2, 4 pairs a line, over 8 lines: within 32 * 2 * 2 * -128 = -16384.
 * n_lines is a multiple of 8. The sum of x is taken off at the end: codes stand for -1, 0, 1. */
#ifndef BNET_KERNELS_R16_MADD_H
#define BNET_KERNELS_R16_MADD_H

static ALWAYS_INLINE void finish(const bnet_r16 *a, size_t row, size_t t, const int n_g,
                                 const vec *acc)
{
    const vec sum = v_set32(a->x_sum[t]);
    for (int g = 0; g < n_g; g++) {
        int32_t out[BNET_R16_ROWS];
        for (int i = 0; i < PARTS; i++)
            v_store(out + 16 / PARTS * i, v_sub32(acc[PARTS * g + i], sum));
        r16_store(a, row + 16 * (size_t)g, t, out);
    }
}

/* One part of a line: small += planes 0 and 2, large += 4 * (planes 1 and 3). */
static ALWAYS_INLINE void decode_part(const uint8_t *w, const vec x[4], vec *small, vec *large)
{
    const vec low = v_bytes(0x03), high = v_bytes(0x0c);
    vec v = v_load(w), u = v_right16(v, 4);
    *small = v_add16(*small, v_maddubs(v_and(v, low), x[0]));
    *large = v_add16(*large, v_maddubs(v_and(v, high), x[1]));
    *small = v_add16(*small, v_maddubs(v_and(u, low), x[2]));
    *large = v_add16(*large, v_maddubs(v_and(u, high), x[3]));
}

/* 8 lines of one group and token. */
static ALWAYS_INLINE void decode_lines(const uint8_t *w, const int8_t *x, vec acc[PARTS])
{
    vec small[PARTS], large[PARTS];
    UNROLL for (int i = 0; i < PARTS; i++) small[i] = large[i] = v_zero();
    for (size_t l = 0; l < 8; l++) {
        vec spread[4];
        UNROLL for (size_t p = 0; p < 4; p++) spread[p] = v_spread(x + 16 * l + 4 * p);
        _mm_prefetch((const char *)w + 64 * l + AHEAD, _MM_HINT_T0);
        UNROLL for (int i = 0; i < PARTS; i++)
            decode_part(w + 64 * l + 64 / PARTS * i, spread, &small[i], &large[i]);
    }
    UNROLL for (int i = 0; i < PARTS; i++) acc[i] =
        v_add32(acc[i], v_add32(v_madd16(small[i], v_set16(4)), v_madd16(large[i], v_set16(1))));
}

static ALWAYS_INLINE void decode(const bnet_r16 *a, size_t row, size_t t, const int n_g,
                                 const int n_t)
{
    vec acc[GEMV_G * PARTS];
    for (int j = 0; j < n_t; j++, t++) {
        UNROLL for (int i = 0; i < n_g * PARTS; i++) acc[i] = v_zero();
        for (size_t l = 0; l < a->n_lines; l += 8)
            UNROLL for (int g = 0; g < n_g; g++)
                decode_lines(a->w + (row + 16 * (size_t)g) * 4 * a->n_lines + 64 * l,
                             a->x + t * a->x_stride + 16 * l, acc + PARTS * g);
        UNROLL for (int i = 0; i < n_g * PARTS; i++) acc[i] = v_right32(acc[i], 2);
        finish(a, row, t, n_g, acc);
    }
}

/* 8 lines (32 steps of 4 columns) of a tile; n = 256 * n_lines: bytes from group to group. */
static ALWAYS_INLINE void tile_lines(const uint8_t *wide, size_t n, const int8_t *x, size_t stride,
                                     const int n_v, const int n_t, vec acc[][TILE_G * PARTS])
{
    vec s[TILE_T][TILE_G * PARTS], w[TILE_G * PARTS];
    UNROLL for (int j = 0; j < n_t; j++) UNROLL for (int i = 0; i < n_v; i++) s[j][i] = v_zero();
    for (size_t k = 0; k < 32; k++) {
        UNROLL for (int i = 0; i < n_v; i++) w[i] =
            v_load(wide + (size_t)(i / PARTS) * n + 64 * k + 64 / PARTS * (i % PARTS));
        UNROLL for (int j = 0; j < n_t; j++)
        {
            vec xs = v_spread(x + (size_t)j * stride + 4 * k);
            UNROLL for (int i = 0; i < n_v; i++) s[j][i] = v_add16(s[j][i], v_maddubs(w[i], xs));
        }
    }
    UNROLL for (int j = 0; j < n_t; j++) UNROLL for (int i = 0; i < n_v; i++) acc[j][i] =
        v_add32(acc[j][i], v_madd16(s[j][i], v_set16(1)));
}

static ALWAYS_INLINE void tile(const bnet_r16 *a, const uint8_t *wide, size_t row, size_t t,
                               const int n_g, const int n_t)
{
    vec acc[TILE_T][TILE_G * PARTS];
    UNROLL for (int j = 0; j < n_t; j++) UNROLL for (int i = 0; i < n_g * PARTS; i++) acc[j][i] =
        v_zero();
    for (size_t l = 0; l < a->n_lines; l += 8)
        tile_lines(wide + 256 * l, 256 * a->n_lines, a->x + t * a->x_stride + 16 * l, a->x_stride,
                   n_g * PARTS, n_t, acc);
    UNROLL for (int j = 0; j < n_t; j++) finish(a, row, t + (size_t)j, n_g, acc[j]);
}

#endif
