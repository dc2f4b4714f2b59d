/* pack_q6.c - Q6_K rows into groups of four and back. */
#include "backend/cpu/pack_q6.h"

/* Four columns of one row at a time, a byte each: see the layout of Q6_K in docs/FORMATS.md. */
static void pack_quarter(const uint8_t *block, size_t q, size_t row, uint8_t *quarter)
{
    const uint32_t nibble = 0x0f0f0f0f, two = 0x03030303;
    size_t h = q / 2, l = q % 2;
    for (size_t j = 0; j < 4; j++) {
        const uint8_t *ql = block + 64 * h + 16 * l + 4 * j;
        uint32_t a = bnet_u32(ql), b = bnet_u32(ql + 32);
        uint32_t high = bnet_u32(block + 128 + 32 * h + 16 * l + 4 * j);
        uint32_t c0 = (a & nibble) | (high & two) << 4;
        uint32_t c1 = (b & nibble) | (high >> 2 & two) << 4;
        uint32_t c2 = (a >> 4 & nibble) | (high >> 4 & two) << 4;
        uint32_t c3 = (b >> 4 & nibble) | (high >> 6 & two) << 4;
        uint8_t *to = quarter + 16 * j + 4 * row;
        bnet_put_u32(to, c0 | (c3 >> 4 & two) << 6);
        bnet_put_u32(to + 64, c1 | (c3 >> 2 & two) << 6);
        bnet_put_u32(to + 128, c2 | (c3 & two) << 6);
    }
    for (size_t g = 0; g < 4; g++)
        quarter[192 + 4 * g + row] = block[192 + 8 * h + 2 * g + l];
}

void bnet_q6r4_pack(const uint8_t *rows, size_t row_bytes, size_t n_rows, size_t n_cols,
                    uint8_t *group)
{
    size_t n_blocks = n_cols / 256;
    uint8_t *f16 = group + n_blocks * BNET_Q6R4_BLOCK;
    if (n_rows < BNET_Q6R4_ROWS)
        memset(group, 0, bnet_q6r4_group_bytes(n_cols));
    for (size_t b = 0; b < n_blocks; b++)
        for (size_t r = 0; r < n_rows; r++) {
            const uint8_t *block = rows + r * row_bytes + b * BNET_Q6_BLOCK;
            for (size_t q = 0; q < 4; q++)
                pack_quarter(block, q, r, group + b * BNET_Q6R4_BLOCK + q * BNET_Q6R4_QUARTER);
            memcpy(f16 + 8 * b + 2 * r, block + 208, 2);
        }
}

void bnet_q6r4_unpack_row(const uint8_t *group, size_t r, size_t n_cols, uint8_t *row)
{
    size_t n_blocks = n_cols / 256;
    const uint8_t *f16 = group + n_blocks * BNET_Q6R4_BLOCK;
    for (size_t b = 0; b < n_blocks; b++)
        bnet_q6r4_unpack_block(group + b * BNET_Q6R4_BLOCK, f16 + 8 * b, r,
                               row + b * BNET_Q6_BLOCK);
}
