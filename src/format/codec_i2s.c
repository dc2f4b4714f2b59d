/* codec_i2s.c - I2_S: where each 2-bit code lies in the three known packings, and which of the
 * formats that share type number 36 a tensor is in. */
#include "format/codec_impl.h"

/* `group` elements in group/4 bytes; the first quarter of the group sits in the upper two bits. */
static void locate_interleaved(uint64_t i, uint64_t group, uint64_t *byte, unsigned *shift)
{
    uint64_t lanes = group / 4;
    *byte = lanes * (i / group) + i % lanes;
    *shift = 6 - 2 * (unsigned)(i % group / lanes);
}

void bnet_i2s_locate(bitnet_i2s_layout layout, uint64_t n_cols, uint64_t row, uint64_t col,
                     uint64_t *byte, unsigned *shift)
{
    switch (layout) {
    case BITNET_I2S_64:
        locate_interleaved(row * n_cols + col, 64, byte, shift);
        return;
    case BITNET_I2S_4ROW:
        *byte = row / 4 * n_cols + col;
        *shift = 6 - 2 * (unsigned)(row % 4);
        return;
    case BITNET_I2S_128:
        break;
    }
    locate_interleaved(row * n_cols + col, 128, byte, shift);
}

float bnet_i2s_scale(const uint8_t *data, uint64_t n_elems)
{
    return bnet_f32(data + n_elems / 4);
}

static int8_t trit_of(unsigned code)
{
    return (int8_t)(code == 3 ? 0 : (int)code - 1);
}

/* Whole groups of the canonical packing, straight through the bytes. */
static size_t decode_128(const uint8_t *p, uint64_t n, int8_t *trits)
{
    size_t n_invalid = 0;
    for (uint64_t i = 0; i < n; i += 128, p += 32)
        for (unsigned lane = 0; lane < 128; lane++) {
            unsigned code = p[lane % 32] >> (6 - 2 * (lane / 32)) & 3;
            trits[i + lane] = trit_of(code);
            n_invalid += code == 3;
        }
    return n_invalid;
}

size_t bnet_i2s_decode_row(bitnet_i2s_layout layout, const uint8_t *data, uint64_t n_cols,
                           uint64_t row, int8_t *trits)
{
    if (layout == BITNET_I2S_128 && n_cols % 128 == 0)
        return decode_128(data + row * n_cols / 4, n_cols, trits);
    size_t n_invalid = 0;
    for (uint64_t c = 0; c < n_cols; c++) {
        uint64_t byte;
        unsigned shift;
        bnet_i2s_locate(layout, n_cols, row, c, &byte, &shift);
        unsigned code = data[byte] >> shift & 3;
        trits[c] = trit_of(code);
        n_invalid += code == 3;
    }
    return n_invalid;
}

void bnet_i2s_encode_row(bitnet_i2s_layout layout, uint8_t *data, uint64_t n_cols, uint64_t row,
                         const int8_t *trits)
{
    for (uint64_t c = 0; c < n_cols; c++) {
        uint64_t byte;
        unsigned shift;
        bnet_i2s_locate(layout, n_cols, row, c, &byte, &shift);
        data[byte] |= (uint8_t)((trits[c] + 1) << shift);
    }
}

/* A span fits a size if it is that size, bare (end of file) or padded to the alignment. */
static bool fits(uint64_t span, uint64_t need, uint64_t alignment)
{
    uint64_t padded;
    return span >= need && bnet_round_up(need, alignment, &padded) && span <= padded;
}

/* Read as Microsoft's format the bytes make sense: a usable scale and no unused code. Asked only
 * where another format has the same size. */
static bool plausible(const bnet_tensor *t, uint64_t n)
{
    float scale = bnet_i2s_scale(t->data, n);
    if (!isfinite(scale) || scale <= 0)
        return false;
    for (uint64_t i = 0; i < n / 4; i++)
        if (t->data[i] & t->data[i] >> 1 & 0x55)
            return false;
    return true;
}

bnet_i2s_flavour bnet_i2s_detect(const bnet_tensor *t, uint64_t alignment)
{
    uint64_t n = bnet_tensor_elems(t), rows = n / t->ne[0];
    uint64_t stride = (t->ne[0] + 255) / 256 * 64; /* QK256 pads rows to whole blocks */
    bool microsoft = fits(t->n_span, bnet_i2s_bytes(n), alignment);
    bool bitnet32 = fits(t->n_span, (n + 31) / 32 * 10, alignment);
    bool qk256 = fits(t->n_span, n / 4, alignment) ||
                 (rows <= UINT64_MAX / stride && fits(t->n_span, rows * stride, alignment));
    if (microsoft && ((!bitnet32 && !qk256) || plausible(t, n)))
        return BNET_I2S_MICROSOFT;
    if (qk256 != bitnet32)
        return qk256 ? BNET_I2S_QK256 : BNET_I2S_BITNET32;
    return BNET_I2S_UNKNOWN;
}
