/* pack_q6.h - Q6_K rows in the order the scan of the head streams them: groups of four rows, so
 * that a lane of a register is a row and no sum runs across lanes. As large as in the file.
 *
 * A group has, for every 256 columns, four quarters of 208 bytes, and behind them all for every 256
 * columns the four rows' f16 scales. Quarter 2h + l holds the sub-blocks s = 8h + 2g + l, g = 0..3,
 * of 16 columns each:
 *
 *   0   64  A: code of g = 0 in bits 5..0; bits 5,4 of the code of g = 3 in bits 7,6
 *   64  64  B: code of g = 1;              bits 3,2 of the code of g = 3
 *   128 64  C: code of g = 2;              bits 1,0 of the code of g = 3
 *   192 16  scales: g, then row
 *
 * A, B and C are columns 0..3 of row 0, of row 1, 2, 3, then columns 4..7 and so on: three masks
 * and three shifts unpack four registers, and one dot-product instruction against 4 broadcast
 * activations has a row in each lane. */
#ifndef BNET_PACK_Q6_H
#define BNET_PACK_Q6_H

#include "base/base.h"

enum {
    BNET_Q6R4_ROWS = 4,
    BNET_Q6R4_QUARTER = 208,
    BNET_Q6R4_BLOCK = 4 * BNET_Q6R4_QUARTER, /* 256 columns of four rows, but for their f16 */
    BNET_Q6_BLOCK = 210                      /* 256 columns of one row in the file */
};

static inline size_t bnet_q6r4_groups(size_t n_rows)
{
    return (n_rows + BNET_Q6R4_ROWS - 1) / BNET_Q6R4_ROWS;
}

/* Bytes of one group of rows of n_cols columns, a multiple of 256. */
static inline size_t bnet_q6r4_group_bytes(size_t n_cols)
{
    return n_cols / 256 * (BNET_Q6_BLOCK * BNET_Q6R4_ROWS);
}

/* Four columns of one row, a byte each, of the four sub-blocks of a quarter. */
static inline void bnet_q6r4_codes(const uint8_t *quarter, size_t j, size_t row, uint32_t code[4])
{
    const uint8_t *at = quarter + 16 * j + 4 * row;
    uint32_t a = bnet_u32(at), b = bnet_u32(at + 64), c = bnet_u32(at + 128);
    const uint32_t low = 0x3f3f3f3f, two = 0x03030303;
    code[0] = a & low;
    code[1] = b & low;
    code[2] = c & low;
    code[3] = (a >> 6 & two) << 4 | (b >> 6 & two) << 2 | (c >> 6 & two);
}

/* The block of the file that holds 256 columns of one row; f16: the four rows' scales. */
static inline void bnet_q6r4_unpack_block(const uint8_t *block, const uint8_t *f16, size_t row,
                                          uint8_t *out)
{
    const uint32_t nibble = 0x0f0f0f0f, two = 0x03030303;
    for (size_t q = 0; q < 4; q++) {
        const uint8_t *quarter = block + BNET_Q6R4_QUARTER * q;
        size_t h = q / 2, l = q % 2;
        for (size_t j = 0; j < 4; j++) {
            uint32_t c[4], high = 0;
            bnet_q6r4_codes(quarter, j, row, c);
            for (int g = 0; g < 4; g++)
                high |= (c[g] >> 4 & two) << 2 * g;
            uint8_t *ql = out + 64 * h + 16 * l + 4 * j;
            bnet_put_u32(ql, (c[0] & nibble) | (c[2] & nibble) << 4);
            bnet_put_u32(ql + 32, (c[1] & nibble) | (c[3] & nibble) << 4);
            bnet_put_u32(out + 128 + 32 * h + 16 * l + 4 * j, high);
        }
        for (size_t g = 0; g < 4; g++)
            out[192 + 8 * h + 2 * g + l] = quarter[192 + 4 * g + row];
    }
    memcpy(out + 208, f16 + 2 * row, 2);
}

/* Packs up to 4 rows of n_cols columns, row_bytes apart; rows that are not there become zeros. */
void bnet_q6r4_pack(const uint8_t *rows, size_t row_bytes, size_t n_rows, size_t n_cols,
                    uint8_t *group);
/* The row of the file that was packed as row r of a group. */
void bnet_q6r4_unpack_row(const uint8_t *group, size_t r, size_t n_cols, uint8_t *row);

#endif
