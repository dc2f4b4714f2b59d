/* r16_vnni.h - packed groups with vpdpbusd: 4 products of an unsigned and a signed byte added to 32
 * bits without saturation.
 *
 * decode masks the four planes of a line where they stand, so plane p counts 4^p fold; its sums are
 * kept apart and shifted down once, exactly, being multiples. Bounds: a field is at most 2 * 64, x
 * at least -128, a plane has K / 4 columns: |sum| <= 2^7 * 2^7 * K / 4 <= 2^29 for K <= 131072.
 * Codes 0, 1, 2 stand for -1, 0, 1: the sum of x is taken off at the end. */
#ifndef BNET_KERNELS_R16_VNNI_H
#define BNET_KERNELS_R16_VNNI_H

/* Sums of n_g groups (acc[n_g * PARTS], PARTS registers each) become outputs of token t. */
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

/* One line of one group, all tokens. */
static ALWAYS_INLINE void decode_line(const uint8_t *w, const vec x[][4], const int n_t,
                                      vec acc[][PARTS][4])
{
    static const int masks[4] = {0x03, 0x0c, 0x30, 0xc0};
    UNROLL for (int i = 0; i < PARTS; i++)
    {
        vec v = v_load(w + 64 / PARTS * i);
        UNROLL for (int p = 0; p < 4; p++)
        {
            vec field = v_and(v, v_bytes(masks[p]));
            UNROLL for (int j = 0; j < n_t; j++) acc[j][i][p] = v_dot(acc[j][i][p], field, x[j][p]);
        }
    }
}

static ALWAYS_INLINE void decode(const bnet_r16 *a, size_t row, size_t t, const int n_g,
                                 const int n_t)
{
    const uint8_t *w = a->w + row * 4 * a->n_lines;
    const int8_t *x = a->x + t * a->x_stride;
    vec acc[GEMV_G][GEMV_T][PARTS][4], sums[GEMV_G * PARTS];
    UNROLL for (int g = 0; g < n_g; g++) UNROLL for (int j = 0; j < n_t; j++)
        UNROLL for (int i = 0; i < 4 * PARTS; i++) acc[g][j][i / 4][i % 4] = v_zero();
    for (size_t l = 0; l < a->n_lines; l++) {
        vec spread[GEMV_T][4];
        UNROLL for (int j = 0; j < n_t; j++) UNROLL for (int p = 0; p < 4; p++) spread[j][p] =
            v_spread(x + (size_t)j * a->x_stride + 16 * l + 4 * (size_t)p);
        UNROLL for (int g = 0; g < n_g; g++)
        {
            const uint8_t *line = w + 64 * ((size_t)g * a->n_lines + l);
            _mm_prefetch((const char *)line + AHEAD, _MM_HINT_T0);
            decode_line(line, (const vec(*)[4])spread, n_t, acc[g]);
        }
    }
    UNROLL for (int j = 0; j < n_t; j++)
    {
        UNROLL for (int i = 0; i < n_g * PARTS; i++)
        {
            vec *s = acc[i / PARTS][j][i % PARTS];
            sums[i] = v_add32(v_add32(s[0], v_right32(s[1], 2)),
                              v_add32(v_right32(s[2], 4), v_right32(s[3], 6)));
        }
        finish(a, row, t + (size_t)j, n_g, sums);
    }
}

#endif
