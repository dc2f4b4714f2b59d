/* i2s_r16.scalar.c - packed groups of 16 rows, in plain C: what the fast ones are held against. */
#include "backend/cpu/kernels/r16.h"

/* Sums of one group for one token. */
static void group_sums(const uint8_t *w, size_t n_lines, const int8_t *x, int32_t x_sum,
                       int32_t acc[BNET_R16_ROWS])
{
    for (size_t r = 0; r < BNET_R16_ROWS; r++) {
        int32_t sum = 0;
        for (size_t k = 0; k < 16 * n_lines; k++)
            sum += (w[k / 16 * BNET_R16_LINE + 4 * r + k % 4] >> (k % 16 / 4 * 2) & 3) * x[k];
        acc[r] = sum - x_sum;
    }
}

void bnet_linear_i2s_r16_scalar(const bnet_r16 *a)
{
    int32_t acc[BNET_R16_ROWS];
    for (size_t row = 0; row < a->n_rows; row += BNET_R16_ROWS)
        for (size_t t = 0; t < a->n_tokens; t++) {
            group_sums(a->w + row * 4 * a->n_lines, a->n_lines, a->x + t * a->x_stride, a->x_sum[t],
                       acc);
            r16_store(a, row, t, acc);
        }
}
