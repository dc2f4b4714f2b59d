/* pack.c - ternary rows into the units the CUDA kernels read (kernels.h, "W2 tiles"), on the host.
 *
 * Canonical I2_S (128 weights in 32 bytes, element 32 p + j in bits 6 - 2p of byte j) is close to a
 * unit: a lane's word is a word of the row with the four 2-bit fields of each byte in the opposite
 * order. */
#include "backend/cuda/kernels.h"

#include <string.h>

enum { LANES = 32, WORDS = 4 };

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

int bnet_w2_get(const uint8_t *w, uint32_t n_chunks, uint32_t tile_row, uint32_t tile, uint32_t col)
{
    unsigned bit;
    uint64_t at = locate(n_chunks, tile, tile_row, col, &bit);
    return (w[at] >> bit & 3) - 1;
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

/* The four 2-bit fields of every byte in the opposite order. */
static uint32_t reverse_fields(uint32_t v)
{
    v = (v & 0x0f0f0f0fu) << 4 | (v >> 4 & 0x0f0f0f0fu);
    return (v & 0x33333333u) << 2 | (v >> 2 & 0x33333333u);
}

void bnet_w2_pack_i2s(uint8_t *w, uint32_t n_chunks, uint32_t first_tile, uint32_t pairs,
                      uint32_t r0, uint32_t n_rows, const uint8_t *rows, size_t row_bytes)
{
    for (uint32_t r = r0; r < r0 + n_rows; r++, rows += row_bytes) {
        uint32_t tile = pairs ? r / 8 : first_tile + r / 16;
        uint32_t in_tile = pairs ? r % 8 + 8 * (pairs - 1) : r % 16;
        uint8_t *unit =
            w + (uint64_t)tile * n_chunks * BNET_W2_UNIT + in_tile % 8 * 64 + in_tile / 8 * 4;
        for (uint32_t c = 0; c < n_chunks; c++, unit += BNET_W2_UNIT)
            for (uint32_t j = 0; j < 8; j++) { /* words of the chunk: half j / 4, lane j % 4 */
                uint32_t v;
                memcpy(&v, rows + 32 * c + 4 * j, 4);
                v = reverse_fields(v);
                memcpy(unit + j % 4 * 16 + j / 4 * 8, &v, 4);
            }
    }
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
