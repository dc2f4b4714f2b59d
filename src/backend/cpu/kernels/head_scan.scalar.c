/* head_scan.scalar.c - what the scan of the head means, and the exact rows of packed Q6_K. */
#include "backend/cpu/half_inline.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/pack_q6.h"
#include "base/mathf.h"

/* (code - 32) times q, four columns of a row */
static inline int32_t dot4(uint32_t codes, const int8_t *q)
{
    int32_t sum = 0;
    for (int i = 0; i < 4; i++)
        sum += ((int32_t)(codes >> 8 * i & 63) - 32) * q[i];
    return sum;
}

/* The integer of one row and 256 columns. */
static int32_t block_sum(const uint8_t *block, size_t row, const int8_t *q, const int8_t *mult)
{
    int32_t t = 0;
    for (size_t k = 0; k < 4; k++) {
        const uint8_t *quarter = block + BNET_Q6R4_QUARTER * k;
        int32_t dot[4] = {0};
        for (size_t j = 0; j < 4; j++) {
            uint32_t c[4];
            bnet_q6r4_codes(quarter, j, row, c);
            for (size_t g = 0; g < 4; g++)
                dot[g] += dot4(c[g], q + 16 * (8 * (k / 2) + 2 * g + k % 2) + 4 * j);
        }
        for (size_t g = 0; g < 4; g++)
            t += (int8_t)quarter[192 + 4 * g + row] * mult[8 * (k / 2) + 2 * g + k % 2] * dot[g];
    }
    return t;
}

static void scan_q6_k_r4(const uint8_t *w, size_t n_rows, const bnet_head_x *x, size_t n_cols,
                         float *y)
{
    size_t n_blocks = n_cols / 256, group = bnet_q6r4_group_bytes(n_cols);
    for (size_t r = 0; r < n_rows; r++) {
        const uint8_t *block = w + r / 4 * group, *f16 = block + n_blocks * BNET_Q6R4_BLOCK;
        float sum = 0;
        for (size_t b = 0; b < n_blocks; b++, block += BNET_Q6R4_BLOCK, f16 += 8)
            sum += (float)block_sum(block, r % 4, x->q + 256 * b, x->mult + 16 * b) *
                   half_to_float(bnet_u16(f16 + 2 * (r % 4)));
        y[r] = sum;
    }
}

BNET_HEAD_SCAN(q6_k_r4_scalar, scan_q6_k_r4)

static void scan_q8_0(const uint8_t *w, size_t n_rows, const bnet_head_x *x, size_t n_cols,
                      float *y)
{
    for (size_t r = 0; r < n_rows; r++) {
        float sum[4] = {0};
        for (size_t b = 0; b < n_cols / 32; b++, w += 34) {
            int32_t t = 0;
            for (size_t i = 0; i < 32; i++)
                t += (int8_t)w[2 + i] * x->q[32 * b + i];
            sum[b % 4] += (float)(t * x->mult[2 * b]) * half_to_float(bnet_u16(w));
        }
        y[r] = (sum[0] + sum[2]) + (sum[1] + sum[3]);
    }
}

BNET_HEAD_SCAN(q8_0_scalar, scan_q8_0)

/* ---- 16-bit floats ---- */

static inline float scan_row(const uint8_t *row, const float *x, size_t n, bool bf16)
{
    float sum[32] = {0};
    for (size_t i = 0; i < n; i++) {
        uint16_t h = bnet_u16(row + 2 * i);
        sum[i % 32] = bnet_fmaf(bf16 ? bf16_to_float(h) : half_to_float(h), x[i], sum[i % 32]);
    }
    for (size_t i = 0; i < 16; i++)
        sum[i] += sum[i + 16];
    return bnet_fold16(sum);
}

static void scan_f16(const uint8_t *w, size_t n_rows, const bnet_head_x *x, size_t n_cols, float *y)
{
    for (size_t r = 0; r < n_rows; r++)
        y[r] = scan_row(w + 2 * r * n_cols, x->x, n_cols, false);
}

BNET_HEAD_SCAN(f16_scalar, scan_f16)

static void scan_bf16(const uint8_t *w, size_t n_rows, const bnet_head_x *x, size_t n_cols,
                      float *y)
{
    for (size_t r = 0; r < n_rows; r++)
        y[r] = scan_row(w + 2 * r * n_cols, x->x, n_cols, true);
}

BNET_HEAD_SCAN(bf16_scalar, scan_bf16)

/* ---- exact rows ---- */

static void decode_block(const uint8_t *block, const uint8_t *f16, size_t row, float *out)
{
    float d = half_to_float(bnet_u16(f16 + 2 * row));
    for (size_t k = 0; k < 4; k++) {
        const uint8_t *quarter = block + BNET_Q6R4_QUARTER * k;
        for (size_t j = 0; j < 4; j++) {
            uint32_t c[4];
            bnet_q6r4_codes(quarter, j, row, c);
            for (size_t g = 0; g < 4; g++) {
                float scale = d * (float)(int8_t)quarter[192 + 4 * g + row];
                float *to = out + 16 * (8 * (k / 2) + 2 * g + k % 2) + 4 * j;
                for (int i = 0; i < 4; i++)
                    to[i] = scale * (float)((int)(c[g] >> 8 * i & 63) - 32);
            }
        }
    }
}

void bnet_linear_q6_k_r4_scalar(const uint8_t *group, const float *x, size_t x_stride,
                                size_t n_cols, size_t n_tokens, float *y)
{
    const uint8_t *f16 = group + n_cols / 256 * BNET_Q6R4_BLOCK;
    float w[256];
    for (size_t r = 0; r < BNET_Q6R4_ROWS; r++) {
        float acc[BNET_LINEAR_TOKENS][16] = {{0}};
        for (size_t b = 0; b < n_cols / 256; b++) {
            decode_block(group + b * BNET_Q6R4_BLOCK, f16 + 8 * b, r, w);
            for (size_t t = 0; t < n_tokens; t++)
                for (size_t i = 0; i < 256; i++)
                    acc[t][i % 16] += w[i] * x[t * x_stride + 256 * b + i];
        }
        for (size_t t = 0; t < n_tokens; t++)
            y[t * BNET_Q6R4_ROWS + r] = bnet_fold16(acc[t]);
    }
}
