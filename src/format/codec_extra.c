/* codec_extra.c - decoders for types without a kernel. Layouts: docs/FORMATS.md. */
#include "format/codec_extra.h"

#include "format/codec_impl.h"

/* 256 elements: f16 d, f16 dmin, 12 bytes of 6-bit scales and minima, 128 bytes of nibbles.
 * x = d * scale[j] * code - dmin * minimum[j], j the group of 32. */
static void q4_k(const uint8_t *b, float *x)
{
    const uint8_t *s = b + 4, *q = b + 16;
    float d = bnet_get_f16(b), dmin = bnet_get_f16(b + 2);
    for (int j = 0; j < 8; j++) {
        int sc = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
        int mn = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4;
        float scale = d * (float)sc, minimum = dmin * (float)mn;
        for (int i = 0; i < 32; i++) {
            int code = q[32 * (j / 2) + i] >> 4 * (j % 2) & 15;
            x[32 * j + i] = scale * (float)code - minimum;
        }
    }
}

/* 32 elements: f16 d, 16 bytes of nibbles that name one of 16 unevenly spaced values. */
static void iq4_nl(const uint8_t *b, float *x)
{
    static const int8_t values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};
    float d = bnet_get_f16(b);
    for (int i = 0; i < 16; i++) {
        x[i] = d * (float)values[b[2 + i] & 15];
        x[i + 16] = d * (float)values[b[2 + i] >> 4];
    }
}

/* 128 elements: f16 d, 128 sign bits (1: +d). */
static void q1_0(const uint8_t *b, float *x)
{
    float d = bnet_get_f16(b);
    for (int i = 0; i < 128; i++)
        x[i] = b[2 + i / 8] >> i % 8 & 1 ? d : -d;
}

/* 64 elements: f16 d, 2-bit codes 0..3 = -1..2, times d. */
static void q2_0(const uint8_t *b, float *x)
{
    float d = bnet_get_f16(b);
    for (int i = 0; i < 64; i++)
        x[i] = (float)((b[2 + i / 4] >> 2 * (i % 4) & 3) - 1) * d;
}

/* 64 elements in 16 bytes: byte j holds j, j + 16, j + 32, j + 48, lowest bits first. */
static void iq2_bn(const uint8_t *b, float d, float *x)
{
    for (int i = 0; i < 64; i++)
        x[i] = (float)((b[i % 16] >> 2 * (i / 16) & 3) - 1) * d;
}

static int trit_of(uint8_t byte, int j)
{
    static const uint8_t powers[5] = {81, 27, 9, 3, 1};
    return 3 * (uint8_t)(byte * powers[j]) >> 8;
}

/* 64 elements in 13 bytes: four groups of 16, each three bytes of five trits, and its last element
 * a trit of byte 12. */
static void iq1_bn(const uint8_t *b, float d, float *x)
{
    for (int i = 0; i < 64; i++) {
        int g = i / 16, e = i % 16;
        int trit = e == 15 ? trit_of(b[12], g) : trit_of(b[3 * g + e / 5], e % 5);
        x[i] = (float)(trit - 1) * d;
    }
}

static void decode_bn(bnet_type t, const uint8_t *row, size_t first, size_t n, float *dst)
{
    bool two = t == BNET_IQ2_BN;
    float d = two ? bnet_f32(row) : bnet_get_f16(row);
    for (size_t i = first; i < first + n; i += 64, dst += 64)
        if (two)
            iq2_bn(row + 4 + i / 64 * 16, d, dst);
        else
            iq1_bn(row + 2 + i / 64 * 13, d, dst);
}

typedef void block_fn(const uint8_t *b, float *x);

static block_fn *block_decoder(bnet_type t)
{
    switch (t) {
    case BNET_Q4_K:
        return q4_k;
    case BNET_IQ4_NL:
        return iq4_nl;
    case BNET_Q1_0:
        return q1_0;
    case BNET_Q2_0:
        return q2_0;
    default:
        return NULL;
    }
}

bool bnet_decode_part(bnet_type t, const void *row, size_t first, size_t n, float *dst)
{
    const bnet_type_info *info = bnet_type_find((uint32_t)t);
    block_fn *decode = block_decoder(t);
    if (!info)
        return false;
    if (bnet_type_is_bn(t)) {
        if (n)
            decode_bn(t, row, first, n, dst);
        return true;
    }
    if (!decode && n == 0) /* only a question: nothing is read */
        return bnet_decode_row(t, &(char){0}, &(float){0}, 0);
    const uint8_t *src = n ? (const uint8_t *)row + first / info->n_elems * info->n_bytes : NULL;
    if (!decode)
        return bnet_decode_row(t, src, dst, n);
    for (size_t i = 0; i < n / info->n_elems; i++)
        decode(src + i * info->n_bytes, dst + i * info->n_elems);
    return true;
}
