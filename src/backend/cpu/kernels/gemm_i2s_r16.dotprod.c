/* gemm_i2s_r16.dotprod.c - two and more tokens against packed groups of 16 rows by dot products,
 * four tokens at a time: 16 rows x 4 tokens are 16 accumulators.
 *
 * Up to 8 tokens meet the packed lines, whose planes are shifted down in registers. For more, a
 * group's codes are expanded to bytes once, plane by plane in the order of the columns, and stay in
 * the cache while all tokens pass: 4 loads of weights serve 16 products. While the first of them
 * pass, the lines of the next group are called into the second-level cache. 32-bit lanes: at most
 * 2 * 128 * K, safe for K < 2^23. */
#include "backend/cpu/kernels/r16.h"

#include <arm_neon.h>

#define ALWAYS_INLINE inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

enum { TOKENS = 4, FEW = 8 };

static inline int8x16_t plane(uint8x16_t w, const int p)
{
    const uint8x16_t three = vdupq_n_u8(3);
    uint8x16_t v = p == 0   ? vandq_u8(w, three)
                   : p == 1 ? vandq_u8(vshrq_n_u8(w, 2), three)
                   : p == 2 ? vandq_u8(vshrq_n_u8(w, 4), three)
                            : vshrq_n_u8(w, 6);
    return vreinterpretq_s8_u8(v);
}

/* gcc 12 copies sums around its intrinsic; as an operand the lane would ask for an optimiser */
#define DOT(lane) __asm__("sdot %0.4s, %1.16b, %2.4b[" lane "]" : "+w"(acc) : "w"(codes), "w"(x))

/* Adds four rows x four columns, those of a lane of x. */
static ALWAYS_INLINE int32x4_t dot(int32x4_t acc, int8x16_t codes, int8x16_t x, const int lane)
{
    if (lane == 0)
        DOT("0");
    else if (lane == 1)
        DOT("1");
    else if (lane == 2)
        DOT("2");
    else
        DOT("3");
    return acc;
}

/* A line to four steps of 4 columns, each 16 rows x 4 bytes. */
static inline void expand_line(const uint8_t *line, int8_t *to)
{
    UNROLL for (int q = 0; q < 4; q++)
    {
        uint8x16_t w = vld1q_u8(line + 16 * q);
        UNROLL for (int p = 0; p < 4; p++) vst1q_s8(to + 64 * p + 16 * q, plane(w, p));
    }
}

/* One line of a group, packed or expanded, and n_t tokens. */
static ALWAYS_INLINE void line_add(const uint8_t *w, const int packed, const int8x16_t *x,
                                   const int n_t, int32x4_t acc[][4])
{
    UNROLL for (int i = 0; i < 16; i++)
    {
        const int q = packed ? i / 4 : i % 4, p = packed ? i % 4 : i / 4;
        int8x16_t v = packed ? plane(vld1q_u8(w + 16 * q), p)
                             : vreinterpretq_s8_u8(vld1q_u8(w + 64 * p + 16 * q));
        UNROLL for (int t = 0; t < n_t; t++) acc[t][q] = dot(acc[t][q], v, x[t], p);
    }
}

/* Sums of a group and n_t tokens from t on become outputs. next: lines to call ahead, or NULL. */
static ALWAYS_INLINE void tile(const bnet_r16 *a, size_t row, size_t t, const uint8_t *w,
                               const int packed, const int n_t, const uint8_t *next)
{
    const int8_t *x = a->x + t * a->x_stride;
    int32x4_t acc[TOKENS][4];
    UNROLL for (int i = 0; i < 4 * n_t; i++) acc[i / 4][i % 4] = vdupq_n_s32(0);
    for (size_t l = 0; l < a->n_lines; l++, w += packed ? 64 : 256, x += 16) {
        int8x16_t v[TOKENS];
        if (next)
            __builtin_prefetch(next + 64 * l, 0, 2);
        UNROLL for (int i = 0; i < n_t; i++) v[i] = vld1q_s8(x + (size_t)i * a->x_stride);
        line_add(w, packed, v, n_t, acc);
    }
    for (size_t i = 0; i < (size_t)n_t; i++) {
        int32_t sums[BNET_R16_ROWS];
        for (int q = 0; q < 4; q++)
            vst1q_s32(sums + 4 * q, vsubq_s32(acc[i][q], vdupq_n_s32(a->x_sum[t + i])));
        r16_store(a, row, t + i, sums);
    }
}

/* All tokens and one group. */
static ALWAYS_INLINE void group(const bnet_r16 *a, size_t row, const uint8_t *w, const int packed,
                                const uint8_t *next)
{
    size_t t = 0;
    for (; t + TOKENS <= a->n_tokens; t += TOKENS)
        if (t == 0)
            tile(a, row, t, w, packed, TOKENS, next);
        else
            tile(a, row, t, w, packed, TOKENS, NULL);
    if (a->n_tokens - t == 3)
        tile(a, row, t, w, packed, 3, packed ? next : NULL);
    else if (a->n_tokens - t == 2)
        tile(a, row, t, w, packed, 2, packed ? next : NULL);
    else if (a->n_tokens - t == 1)
        tile(a, row, t, w, packed, 1, NULL);
}

void bnet_gemm_i2s_r16_dotprod(const bnet_r16 *a)
{
    const size_t n_group = BNET_R16_LINE * a->n_lines;
    for (size_t row = 0; row < a->n_rows; row += BNET_R16_ROWS) {
        const uint8_t *w = a->w + row / BNET_R16_ROWS * n_group;
        if (a->n_tokens <= FEW) {
            group(a, row, w, 1, w + n_group);
            continue;
        }
        for (size_t l = 0; l < a->n_lines; l++)
            expand_line(w + l * BNET_R16_LINE, (int8_t *)a->temp + 256 * l);
        group(a, row, a->temp, 0, w + n_group);
    }
}
