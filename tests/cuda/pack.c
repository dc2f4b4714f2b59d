/* pack.c - rows in the layouts of gpu/layouts.h, on the host: what the device packs itself when a
 * model is loaded, for kernels that are called here without a model. */
#include "pack.h"

#include <string.h>

uint64_t bnet_w2_bytes(uint32_t n_tiles, uint32_t n_chunks)
{
    return (uint64_t)n_tiles * n_chunks * BNET_W2_UNIT;
}

/* Where the code of (row of the tile, column) is: byte in the matrix and bit in the byte. */
static uint64_t locate(uint32_t n_chunks, uint32_t tile, uint32_t row, uint32_t col, unsigned *bit)
{
    uint32_t k = col % BNET_W2_CHUNK, lane = row % 8 * 4 + k % 16 / 4;
    uint32_t word = row / 8 + 2 * (k % 32 / 16);
    *bit = 2 * (k / 32);
    return ((uint64_t)tile * n_chunks + col / BNET_W2_CHUNK) * BNET_W2_UNIT + lane * 16 + word * 4 +
           k % 4;
}

static void put_row(uint8_t *w, uint32_t n_chunks, uint32_t tile, uint32_t row, const int8_t *trits,
                    uint32_t n_cols)
{
    for (uint32_t c = 0; c < n_cols; c++) {
        unsigned bit;
        uint8_t *p = w + locate(n_chunks, tile, row, c, &bit);
        *p = (uint8_t)((*p & ~(3u << bit)) | (unsigned)(trits[c] + 1) << bit);
    }
}

void bnet_w2_pack(uint8_t *w, uint32_t n_chunks, uint32_t first_tile, uint32_t r0, uint32_t n_rows,
                  const int8_t *trits, size_t ld, uint32_t n_cols)
{
    for (uint32_t r = r0; r < r0 + n_rows; r++)
        put_row(w, n_chunks, first_tile + r / 16, r % 16, trits + (r - r0) * ld, n_cols);
}

void bnet_w2_pack_paired(uint8_t *w, uint32_t n_chunks, uint32_t which, uint32_t r0,
                         uint32_t n_rows, const int8_t *trits, size_t ld, uint32_t n_cols)
{
    for (uint32_t r = r0; r < r0 + n_rows; r++)
        put_row(w, n_chunks, r / 8, r % 8 + 8 * which, trits + (r - r0) * ld, n_cols);
}

/* ---- rows of Q8_0 and Q6_K blocks into planes ---- */

void bnet_pack_q8_row(const uint8_t *blocks, uint32_t n_blocks, uint32_t stride, int8_t *codes,
                      uint16_t *scales)
{
    memset(codes, 0, stride);
    memset(scales, 0, stride / 32 * sizeof *scales);
    for (uint32_t b = 0; b < n_blocks; b++, blocks += 34) {
        memcpy(&scales[b], blocks, 2);
        memcpy(codes + 32 * b, blocks + 2, 32);
    }
}

/* Code (0..63) of element i of a Q6_K block: ql [128], qh [64], scales [16], d [2]. */
static unsigned q6k_code(const uint8_t *block, uint32_t i)
{
    uint32_t half = i / 128, g = i % 128 / 32, l = i % 32;
    unsigned low = block[64 * half + l + 32 * (g & 1)] >> (g < 2 ? 0 : 4) & 15;
    return low | (block[128 + 32 * half + l] >> 2 * g & 3u) << 4;
}

void bnet_pack_q6k_row(const uint8_t *blocks, uint32_t n_blocks, uint8_t *low, uint8_t *high,
                       int8_t *scales, uint16_t *d)
{
    memset(low, 0, (size_t)n_blocks * 128);
    memset(high, 0, (size_t)n_blocks * 64);
    for (uint32_t b = 0; b < n_blocks; b++, blocks += 210) {
        for (uint32_t i = 0; i < 256; i++) {
            unsigned code = q6k_code(blocks, i), e = i % 32;
            size_t sub = (size_t)b * 8 + i / 32;
            low[sub * 16 + e % 16] |= (uint8_t)((code & 15) << 4 * (e / 16));
            high[sub * 8 + e % 8] |= (uint8_t)((code >> 4) << 2 * (e / 8));
        }
        memcpy(scales + 16 * b, blocks + 192, 16);
        memcpy(&d[b], blocks + 208, 2);
    }
}
