/* gemm_i2s_r16.svei8mm.c - many tokens against packed groups of 16 rows, by 2x8 * 8x2 integer
 * matrix products, as many side by side as a vector holds (of 128 bytes; no more is used).
 *
 * Rows are expanded and tokens packed as r16_mmla.h says, a step of 8 columns being 128 bytes of a
 * group: 8 pairs of rows. A tile is four vectors of those, one behind the other, so 8 rows where
 * vectors have 16 bytes, 16 at 32, 32 at 64, 64 from 128 on, by 8 tokens: a pair of tokens is
 * repeated over a vector. Rows that do not exist are those of the last group once more and are not
 * stored. Codes stay 0, 1, 2 and the sum of x is taken out at the end. 32-bit lanes: at most
 * 2 * 128 * K, safe for K < 2^23. */
#include "backend/cpu/kernels/r16_mmla.h"
#include "backend/cpu/kernels/sve_length.h"

#include <arm_sve.h>

enum { VECTORS = 4, STEP = 128 };

/* What is done with the sums of token pair j; vectors of unknown length cannot be in an array.
 * In memory they lie as [token pair][vector][n / 4]. */
#define EACH(what) what(0) what(1) what(2) what(3)
#define LOAD(j)                                                                                    \
    svint32_t s0##j = svld1_s32(used, sums + (j)*n),                                               \
              s1##j = svld1_s32(used, sums + (j)*n + n / 4),                                       \
              s2##j = svld1_s32(used, sums + (j)*n + n / 2),                                       \
              s3##j = svld1_s32(used, sums + (j)*n + n / 4 * 3);
#define ADD(j)                                                                                     \
    v = svld1rq_s8(all, x + 16 * (j));                                                             \
    s0##j = svusmmla_s32(s0##j, w0, v);                                                            \
    s1##j = svusmmla_s32(s1##j, w1, v);                                                            \
    s2##j = svusmmla_s32(s2##j, w2, v);                                                            \
    s3##j = svusmmla_s32(s3##j, w3, v);
#define STORE(j)                                                                                   \
    svst1_s32(used, sums + (j)*n, s0##j);                                                          \
    svst1_s32(used, sums + (j)*n + n / 4, s1##j);                                                  \
    svst1_s32(used, sums + (j)*n + n / 2, s2##j);                                                  \
    svst1_s32(used, sums + (j)*n + n / 4 * 3, s3##j);

/* Adds n_steps steps of a tile; w: its vectors, of which n bytes are used. */
static inline void tile_add(const uint8_t *const w[VECTORS], size_t n, const int8_t *x,
                            size_t n_steps, int32_t *sums)
{
    const svbool_t all = svptrue_b8(), used = svwhilelt_b8_u64(0, n);
    EACH(LOAD)
    for (size_t at = 0; at < n_steps * STEP; at += STEP, x += 64) {
        svuint8_t w0 = svld1_u8(used, w[0] + at), w1 = svld1_u8(used, w[1] + at),
                  w2 = svld1_u8(used, w[2] + at), w3 = svld1_u8(used, w[3] + at);
        svint8_t v;
        EACH(ADD)
    }
    EACH(STORE)
}

/* One token's rows, of which a vector holds svcntw(). */
static inline void store_rows(const bnet_r16 *a, size_t row, size_t t, svbool_t rows,
                              svint32_t sums)
{
    svfloat32_t y = svcvt_f32_s32_x(rows, svsub_n_s32_x(rows, sums, a->x_sum[t]));
    svst1_f32(rows, a->y + t * a->y_stride + row,
              svmul_n_f32_x(rows, y, a->x_scale[t] * a->w_scale));
}

/* The sums of a pair of tokens lie as [row][token] over all vectors of the tile. */
static inline void store_tile(const bnet_r16 *a, size_t row, size_t first, size_t n,
                              const int32_t *sums)
{
    size_t n_rows = BNET_MIN(a->n_rows - row, n / 2);
    for (size_t t = first; t < first + TOKENS && t < a->n_tokens; t += 2, sums += n)
        for (size_t r = 0; r < n_rows; r += svcntw()) {
            svbool_t rows = svwhilelt_b32_u64(r, n_rows);
            svint32x2_t pair = svld2_s32(rows, sums + 2 * r);
            store_rows(a, row + r, t, rows, svget2_s32(pair, 0));
            if (t + 1 < a->n_tokens)
                store_rows(a, row + r, t + 1, rows, svget2_s32(pair, 1));
        }
}

/* Where the vectors of the tile that begins with row r lie in temp, at step k. */
static inline void place(const bnet_r16 *a, size_t n_rows, size_t n, size_t r, size_t k,
                         const uint8_t *w[VECTORS])
{
    for (size_t i = 0; i < VECTORS; i++) {
        size_t at = 8 * r + i * n; /* a row has 8 bytes in a step */
        size_t group = BNET_MIN(at / STEP, bnet_r16_groups(n_rows) - 1);
        w[i] = a->temp + (group * 2 * a->n_lines + k) * STEP + at % STEP;
    }
}

/* All tokens against the expanded rows row .. row + n_rows. Columns go in pieces, so that a piece
 * of the tokens' tile stays in the first-level cache while the rows pass. */
static void block(const bnet_r16 *a, size_t row, size_t n_rows, size_t n)
{
    int8_t *tokens = (int8_t *)a->temp + ROWS_BYTES;
    int32_t *sums = (int32_t *)(void *)(a->temp + ROWS_BYTES + TOKENS_BYTES);
    const uint8_t *w[VECTORS];
    const size_t tile = n / 2; /* rows */
    for (size_t t = 0; t < a->n_tokens; t += TOKENS) {
        pack_tokens(a, t, tokens);
        memset(sums, 0, (n_rows + tile - 1) / tile * tile * TOKENS * sizeof *sums);
        for (size_t k = 0; k < 2 * a->n_lines; k += PIECE)
            for (size_t r = 0; r < n_rows; r += tile) {
                place(a, n_rows, n, r, k, w);
                tile_add(w, n, tokens + 64 * k, BNET_MIN((size_t)PIECE, 2 * a->n_lines - k),
                         sums + TOKENS * r);
            }
        for (size_t r = 0; r < n_rows; r += tile)
            store_tile(a, row + r, t, n, sums + TOKENS * r);
    }
}

void bnet_gemm_i2s_r16_svei8mm(const bnet_r16 *a)
{
    const size_t n = BNET_MIN(sve_power_of_two(), (size_t)STEP);
    size_t group = 256 * a->n_lines; /* bytes of 16 expanded rows */
    size_t step = ROWS_BYTES / group * BNET_R16_ROWS;
    for (size_t row = 0; row < a->n_rows; row += step) {
        size_t n_rows = BNET_MIN(step, a->n_rows - row);
        for (size_t g = 0; g < bnet_r16_groups(n_rows); g++)
            for (size_t l = 0; l < a->n_lines; l++)
                expand_line(a->w + (row * 4 + 64 * g) * a->n_lines + l * BNET_R16_LINE,
                            a->temp + g * group + 2 * STEP * l, STEP / 2, STEP);
        block(a, row, n_rows, n);
    }
}
