/* gemm_i2s_r16.i8mm.c - many tokens against packed groups of 16 rows, by 2x8 * 8x2 integer matrix
 * products.
 *
 * Rows are taken in blocks that fit half of temp: their codes are expanded to bytes once, in the
 * order usmmla wants (8 columns of row r, 8 of row r + 1), and stay in the second-level cache while
 * all tokens pass, eight at a time; those eight are brought into the same order in the other half.
 * A tile is 8 rows x 8 tokens: 16 accumulators, 8 loads for 16 products. Codes stay 0, 1, 2 and the
 * sum of x is taken out at the end. 32-bit lanes: at most 2 * 128 * K, safe for K < 2^23. */
#include "backend/cpu/kernels/r16_mmla.h"

enum { TILE = TOKENS }; /* rows of a tile */

/* Adds n_steps steps to acc[row pair][token pair] = [r0 t0, r0 t1, r1 t0, r1 t1]; w: 8 rows. */
static inline void tile_add(const uint8_t *w, const int8_t *x, size_t n_steps, int32_t *sums)
{
    int32x4_t acc[4][4];
    for (int i = 0; i < 16; i++)
        acc[i / 4][i % 4] = vld1q_s32(sums + 4 * i);
    for (size_t s = 0; s < n_steps; s++, w += 64, x += 64) {
        uint8x16_t w0 = vld1q_u8(w), w1 = vld1q_u8(w + 16), w2 = vld1q_u8(w + 32),
                   w3 = vld1q_u8(w + 48);
        for (int j = 0; j < 4; j++) {
            int8x16_t v = vld1q_s8(x + 16 * j);
            acc[0][j] = vusmmlaq_s32(acc[0][j], w0, v);
            acc[1][j] = vusmmlaq_s32(acc[1][j], w1, v);
            acc[2][j] = vusmmlaq_s32(acc[2][j], w2, v);
            acc[3][j] = vusmmlaq_s32(acc[3][j], w3, v);
        }
    }
    for (int i = 0; i < 16; i++)
        vst1q_s32(sums + 4 * i, acc[i / 4][i % 4]);
}

/* Four rows of one token: sums of the pairs, less x_sum, times the scales. */
static inline float32x4_t four(int32x4_t sums, int32_t x_sum, float scale)
{
    return vmulq_n_f32(vcvtq_f32_s32(vsubq_s32(sums, vdupq_n_s32(x_sum))), scale);
}

static inline void store_tile(const bnet_r16 *a, size_t row, size_t first, const int32_t *sums)
{
    size_t n_t = BNET_MIN(a->n_tokens - first, (size_t)TOKENS);
    size_t n_r = BNET_MIN(a->n_rows - row, (size_t)TILE);
    for (size_t t = 0; t < n_t; t++) {
        float out[TILE], scale = a->x_scale[first + t] * a->w_scale;
        for (size_t h = 0; h < 2; h++) {
            const int32_t *at = sums + 32 * h + 4 * (t / 2);
            int32x4_t lo = vld1q_s32(at), hi = vld1q_s32(at + 16);
            int32x4_t s = t % 2 ? vuzp2q_s32(lo, hi) : vuzp1q_s32(lo, hi);
            vst1q_f32(out + 4 * h, four(s, a->x_sum[first + t], scale));
        }
        float *y = a->y + (first + t) * a->y_stride + row;
        if (n_r == TILE) {
            memcpy(y, out, sizeof out);
            continue;
        }
        for (size_t r = 0; r < n_r; r++)
            y[r] = out[r];
    }
}

/* All tokens against the expanded rows row .. row + n_rows. Columns go in pieces, so that a piece
 * of the tokens' tile stays in the first-level cache while the rows pass. */
static void block(const bnet_r16 *a, size_t row, size_t n_rows)
{
    int8_t *tokens = (int8_t *)a->temp + ROWS_BYTES;
    int32_t *sums = (int32_t *)(void *)(a->temp + ROWS_BYTES + TOKENS_BYTES);
    for (size_t t = 0; t < a->n_tokens; t += TOKENS) {
        pack_tokens(a, t, tokens);
        memset(sums, 0, (n_rows + TILE - 1) / TILE * TILE * TOKENS * sizeof *sums);
        for (size_t k = 0; k < 2 * a->n_lines; k += PIECE)
            for (size_t r = 0; r < n_rows; r += TILE)
                tile_add(a->temp + r * 16 * a->n_lines + 64 * k, tokens + 64 * k,
                         BNET_MIN((size_t)PIECE, 2 * a->n_lines - k), sums + TOKENS * r);
        for (size_t r = 0; r < n_rows; r += TILE)
            store_tile(a, row + r, t, sums + TOKENS * r);
    }
}

void bnet_gemm_i2s_r16_i8mm(const bnet_r16 *a)
{
    size_t group = 256 * a->n_lines; /* bytes of 16 expanded rows */
    size_t step = ROWS_BYTES / group * BNET_R16_ROWS;
    for (size_t row = 0; row < a->n_rows; row += step) {
        size_t n = BNET_MIN(step, a->n_rows - row);
        for (size_t g = 0; g < bnet_r16_groups(n); g++)
            for (size_t l = 0; l < a->n_lines; l++)
                expand_line(a->w + (row * 4 + 64 * g) * a->n_lines + l * BNET_R16_LINE,
                            a->temp + g * group + 128 * l, group / 2, 64);
        block(a, row, n);
    }
}
