/* pack.c - I2_S rows to groups of 16. */
#include "backend/cpu/pack.h"

/* 128 codes of one I2_S block: column 32p + i is in byte i, bits 7-2p..6-2p. */
static inline void block_codes(const uint8_t *block, uint8_t codes[128])
{
    for (int i = 0; i < 32; i++) {
        codes[i] = block[i] >> 6;
        codes[32 + i] = block[i] >> 4 & 3;
        codes[64 + i] = block[i] >> 2 & 3;
        codes[96 + i] = block[i] & 3;
    }
}

/* The 4 bytes of one row in one line, from its 16 codes. */
static inline uint32_t line_word(const uint8_t codes[16])
{
    uint32_t w[4];
    memcpy(w, codes, sizeof w);
    return w[0] | w[1] << 2 | w[2] << 4 | w[3] << 6;
}

static void pack_row(const uint8_t *row, size_t n_blocks, uint8_t *to)
{
    uint8_t codes[128];
    for (size_t b = 0; b < n_blocks; b++) {
        block_codes(row + 32 * b, codes);
        for (size_t l = 0; l < 8; l++) {
            uint32_t word = line_word(codes + 16 * l);
            memcpy(to + (8 * b + l) * BNET_R16_LINE, &word, sizeof word);
        }
    }
}

void bnet_r16_pack(const uint8_t *rows, size_t row_bytes, size_t n_rows, size_t n_cols,
                   uint8_t *group)
{
    const uint32_t zeros = 0x55555555u;
    for (size_t r = 0; r < BNET_R16_ROWS; r++)
        if (r < n_rows)
            pack_row(rows + r * row_bytes, n_cols / 128, group + 4 * r);
        else
            for (size_t l = 0; l < n_cols / 16; l++)
                memcpy(group + l * BNET_R16_LINE + 4 * r, &zeros, sizeof zeros);
}
