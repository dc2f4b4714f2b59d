/* gemm_i2s_r16.i8mm.c - many tokens against packed groups of 16 rows, by 2x8 * 8x2 integer matrix
 * products.
 *
 * Rows are taken in blocks that fit half of temp: their codes are expanded to bytes once, in the
 * order usmmla wants (8 columns of row r, 8 of row r + 1), and stay in the second-level cache while
 * all tokens pass, eight at a time; those eight are brought into the same order in the other half.
 * A tile is 8 rows x 8 tokens: 16 accumulators, 8 loads for 16 products. Codes stay 0, 1, 2 and the
 * sum of x is taken out at the end. 32-bit lanes: at most 2 * 128 * K, safe for K < 2^23. */
#include "backend/cpu/kernels/r16.h"

#include <arm_neon.h>

enum {
    TILE = 8,              /* tokens, and rows, of a tile */
    PIECE = 320,           /* steps of 8 columns between stores of the sums */
    ROWS_BYTES = 524288,   /* of temp: expanded rows, at least 16 for K <= 32768 */
    TOKENS_BYTES = 262144, /* then a tile of tokens, 8 K; then sums, 32 bytes a row */
};

/* One line (16 rows x 16 columns) to two steps of 8 columns, each 4 pairs of rows x 16 bytes, for
 * either half of the group; `half`: bytes from one to the other. */
static inline void expand_line(const uint8_t *line, uint8_t *to, size_t half)
{
    const uint8x16_t three = vdupq_n_u8(3);
    for (size_t q = 0; q < 4; q++) {
        uint8x16_t w = vld1q_u8(line + 16 * q);
        uint32x4_t p0 = vreinterpretq_u32_u8(vandq_u8(w, three));
        uint32x4_t p1 = vreinterpretq_u32_u8(vandq_u8(vshrq_n_u8(w, 2), three));
        uint32x4_t p2 = vreinterpretq_u32_u8(vandq_u8(vshrq_n_u8(w, 4), three));
        uint32x4_t p3 = vreinterpretq_u32_u8(vshrq_n_u8(w, 6));
        uint8_t *at = to + q / 2 * half + q % 2 * 32;
        vst1q_u8(at, vreinterpretq_u8_u32(vzip1q_u32(p0, p1)));
        vst1q_u8(at + 16, vreinterpretq_u8_u32(vzip2q_u32(p0, p1)));
        vst1q_u8(at + 64, vreinterpretq_u8_u32(vzip1q_u32(p2, p3)));
        vst1q_u8(at + 80, vreinterpretq_u8_u32(vzip2q_u32(p2, p3)));
    }
}

/* Eight tokens to steps of 8 columns, each 4 pairs of tokens x 16 bytes; missing tokens are zero.
 */
static void pack_tokens(const bnet_r16 *a, size_t first, int8_t *to)
{
    size_t n = a->n_tokens - first, n_cols = 16 * a->n_lines;
    for (size_t p = 0; p < TILE / 2; p++) {
        const int8_t *x0 = a->x + (first + 2 * p) * a->x_stride, *x1 = x0 + a->x_stride;
        for (size_t k = 0; k < n_cols; k += 16) {
            int64x2_t v0 = vdupq_n_s64(0), v1 = v0;
            if (2 * p < n)
                v0 = vreinterpretq_s64_s8(vld1q_s8(x0 + k));
            if (2 * p + 1 < n)
                v1 = vreinterpretq_s64_s8(vld1q_s8(x1 + k));
            vst1q_s8(to + 8 * k + 16 * p, vreinterpretq_s8_s64(vzip1q_s64(v0, v1)));
            vst1q_s8(to + 8 * k + 64 + 16 * p, vreinterpretq_s8_s64(vzip2q_s64(v0, v1)));
        }
    }
}

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
    size_t n_t = BNET_MIN(a->n_tokens - first, (size_t)TILE);
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
    for (size_t t = 0; t < a->n_tokens; t += TILE) {
        pack_tokens(a, t, tokens);
        memset(sums, 0, (n_rows + TILE - 1) / TILE * TILE * TILE * sizeof *sums);
        for (size_t k = 0; k < 2 * a->n_lines; k += PIECE)
            for (size_t r = 0; r < n_rows; r += TILE)
                tile_add(a->temp + r * 16 * a->n_lines + 64 * k, tokens + 64 * k,
                         BNET_MIN((size_t)PIECE, 2 * a->n_lines - k), sums + TILE * r);
        for (size_t r = 0; r < n_rows; r += TILE)
            store_tile(a, row + r, t, sums + TILE * r);
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
                            a->temp + g * group + 128 * l, group / 2);
        block(a, row, n);
    }
}
