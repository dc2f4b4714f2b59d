/* codec.c - rows of floats to and from bytes: the plain types, Q8_0 and Q4_0, and the way to the
 * others.
 *
 * Encoders compute codes with the unrounded f32 scale and store it as f16, as the format's other
 * implementations do, so that files agree byte for byte. */
#include "format/codec_impl.h"

static void q8_0_decode(const void *block, float *x)
{
    const block_q8_0 *b = block;
    float d = bnet_get_f16(b->d);
    for (int i = 0; i < 32; i++)
        x[i] = (float)b->q[i] * d;
}

static void q8_0_encode(const float *x, void *block)
{
    block_q8_0 *b = block;
    float amax = 0;
    for (int i = 0; i < 32; i++)
        amax = fmaxf(amax, fabsf(x[i]));
    float d = amax / 127.0f, inverse = d != 0 ? 1.0f / d : 0;
    bnet_put_f16(b->d, d);
    for (int i = 0; i < 32; i++)
        b->q[i] = (int8_t)bnet_code(roundf(x[i] * inverse), -127, 127);
}

static void q4_0_decode(const void *block, float *x)
{
    const block_q4_0 *b = block;
    float d = bnet_get_f16(b->d);
    for (int i = 0; i < 16; i++) {
        x[i] = (float)((b->q[i] & 15) - 8) * d;
        x[i + 16] = (float)((b->q[i] >> 4) - 8) * d;
    }
}

/* The element of largest magnitude becomes code 0 (= -8 d), whatever its sign: d carries the sign.
 */
static void q4_0_encode(const float *x, void *block)
{
    block_q4_0 *b = block;
    float best = 0;
    for (int i = 0; i < 32; i++)
        if (fabsf(x[i]) > fabsf(best))
            best = x[i];
    float d = best / -8.0f, inverse = d != 0 ? 1.0f / d : 0;
    bnet_put_f16(b->d, d);
    for (int i = 0; i < 16; i++) {
        int lo = bnet_code((float)trunc((double)x[i] * inverse + 8.5), 0, 15);
        int hi = bnet_code((float)trunc((double)x[i + 16] * inverse + 8.5), 0, 15);
        b->q[i] = (uint8_t)(lo | hi << 4);
    }
}

static void tq_decode(bnet_type t, const void *block, float *x)
{
    int8_t trits[256];
    float d;
    bnet_tq_decode_row(t, block, trits, &d, 256);
    for (size_t i = 0; i < 256; i++)
        x[i] = (float)trits[i] * d;
}

static void tq1_0_decode(const void *block, float *x)
{
    tq_decode(BNET_TQ1_0, block, x);
}

static void tq2_0_decode(const void *block, float *x)
{
    tq_decode(BNET_TQ2_0, block, x);
}

/* ---- only read: no kernel knows them (layouts: docs/FORMATS.md) ---- */

/* 256 elements: f16 d, f16 dmin, 12 bytes of 6-bit scales and minima, 128 bytes of nibbles.
 * x = d * scale[j] * code - dmin * minimum[j], j the group of 32. */
static void q4_k(const void *block, float *x)
{
    const uint8_t *b = block;
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
static void iq4_nl(const void *block, float *x)
{
    const uint8_t *b = block;
    static const int8_t values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};
    float d = bnet_get_f16(b);
    for (int i = 0; i < 16; i++) {
        x[i] = d * (float)values[b[2 + i] & 15];
        x[i + 16] = d * (float)values[b[2 + i] >> 4];
    }
}

/* 128 elements: f16 d, 128 sign bits (1: +d). */
static void q1_0(const void *block, float *x)
{
    const uint8_t *b = block;
    float d = bnet_get_f16(b);
    for (int i = 0; i < 128; i++)
        x[i] = b[2 + i / 8] >> i % 8 & 1 ? d : -d;
}

/* 64 elements: f16 d, 2-bit codes 0..3 = -1..2, times d. */
static void q2_0(const void *block, float *x)
{
    const uint8_t *b = block;
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

/* ---- all of them ---- */

typedef struct block_codec {
    bnet_type type;
    void (*decode)(const void *block, float *x);
    void (*encode)(const float *x, void *block); /* NULL: only read */
} block_codec;

static const block_codec codecs[] = {
    {BNET_Q8_0, q8_0_decode, q8_0_encode},
    {BNET_Q4_0, q4_0_decode, q4_0_encode},
    {BNET_Q6_K, bnet_q6_k_decode, bnet_q6_k_encode},
    {BNET_TQ1_0, tq1_0_decode, bnet_tq1_0_encode},
    {BNET_TQ2_0, tq2_0_decode, bnet_tq2_0_encode},
    {BNET_Q4_K, q4_k, NULL},
    {BNET_IQ4_NL, iq4_nl, NULL},
    {BNET_Q1_0, q1_0, NULL},
    {BNET_Q2_0, q2_0, NULL},
};

static const block_codec *find_codec(bnet_type t)
{
    for (size_t i = 0; i < BNET_COUNT(codecs); i++)
        if (codecs[i].type == t)
            return &codecs[i];
    return NULL;
}

static bool is_float(bnet_type t)
{
    return t == BNET_F32 || t == BNET_F16 || t == BNET_BF16;
}

bool bnet_can_decode(bnet_type t)
{
    return is_float(t) || bnet_type_is_bn(t) || find_codec(t);
}

bool bnet_decode_row(bnet_type t, const void *src, float *dst, size_t n)
{
    const uint8_t *s = src;
    const block_codec *c = find_codec(t);
    if (!c && !is_float(t))
        return false;
    if (t == BNET_F32)
        memcpy(dst, src, n * sizeof *dst);
    for (size_t i = 0; i < n && t == BNET_F16; i++)
        dst[i] = bnet_get_f16(s + 2 * i);
    for (size_t i = 0; i < n && t == BNET_BF16; i++)
        dst[i] = bnet_bf16_to_f32(bnet_u16(s + 2 * i));
    const bnet_type_info *info = bnet_type_find((uint32_t)t);
    for (size_t i = 0; c && i < n / info->n_elems; i++)
        c->decode(s + i * info->n_bytes, dst + i * info->n_elems);
    return true;
}

bool bnet_encode_row(bnet_type t, const float *src, void *dst, size_t n)
{
    uint8_t *d = dst;
    const block_codec *c = find_codec(t);
    if (!is_float(t) && (!c || !c->encode))
        return false;
    if (t == BNET_F32)
        memcpy(dst, src, n * sizeof *src);
    for (size_t i = 0; i < n && t == BNET_F16; i++)
        bnet_put_f16(d + 2 * i, src[i]);
    for (size_t i = 0; i < n && t == BNET_BF16; i++)
        bnet_put_u16(d + 2 * i, bnet_f32_to_bf16(src[i]));
    const bnet_type_info *info = bnet_type_find((uint32_t)t);
    for (size_t i = 0; c && i < n / info->n_elems; i++)
        c->encode(src + i * info->n_elems, d + i * info->n_bytes);
    return true;
}

bool bnet_decode_part(bnet_type t, const void *row, size_t first, size_t n, float *dst)
{
    const bnet_type_info *info = bnet_type_find((uint32_t)t);
    if (!bnet_type_is_bn(t))
        return info && bnet_decode_row(
                           t, (const uint8_t *)row + first / info->n_elems * info->n_bytes, dst, n);
    decode_bn(t, row, first, n, dst);
    return true;
}
