/* pack.h - the order in which ternary kernels stream weights: groups of 16 rows, one 64-byte line
 * for every 16 columns of a group. The same on every CPU, so it can be kept in a file.
 *
 * Line l of a group holds columns 16l .. 16l+15 of its 16 rows: row r owns bytes 4r .. 4r+3, and
 * byte 4r+j holds four codes (0, 1, 2 for -1, 0, +1), column 16l + 4p + j in bits 2p+1..2p. So
 *   - plane p of a line, masked out, is 16 rows x 4 consecutive columns: one dot-product
 *     instruction against 4 broadcast activations, lanes are rows, no sum across lanes;
 *   - the four planes of four lines, shifted down, are an AMX tile of 64 columns x 16 rows.
 * Columns are padded to 128, rows of the last group to 16, both with code 1 (zero). */
#ifndef BNET_PACK_H
#define BNET_PACK_H

#include "base/base.h"

enum { BNET_R16_ROWS = 16, BNET_R16_LINE = 64 };

static inline size_t bnet_r16_groups(size_t n_rows)
{
    return (n_rows + BNET_R16_ROWS - 1) / BNET_R16_ROWS;
}

/* Bytes of one group of rows of n_cols columns, a multiple of 128. */
static inline size_t bnet_r16_group_bytes(size_t n_cols)
{
    return n_cols / 16 * BNET_R16_LINE;
}

/* Packs up to 16 I2_S rows (128 weights in 32 bytes, codes 0, 1, 2) of n_cols columns, a multiple
 * of 128, row_bytes apart. */
void bnet_r16_pack(const uint8_t *rows, size_t row_bytes, size_t n_rows, size_t n_cols,
                   uint8_t *group);

#endif
