/* codec_ternary.c - weights -1, 0, +1: TQ1_0 (five to a byte), TQ2_0 (four to a byte, a scale per
 * 256) and absmean, which makes trits of floats. I2_S has its own file. */
#include "format/codec_impl.h"

static float block_scale(const float *x)
{
    float d = 0;
    for (int i = 0; i < 256; i++)
        d = fmaxf(d, fabsf(x[i]));
    return d;
}

/* 0, 1 or 2 for -1, 0, +1 */
static unsigned trit_code(float x, float inverse)
{
    return (unsigned)(bnet_code(roundf(x * inverse), -1, 1) + 1);
}

void bnet_tq2_0_encode(const float *x, void *block)
{
    block_tq2_0 *b = block;
    float d = block_scale(x), inverse = d != 0 ? 1.0f / d : 0;
    memset(b->q, 0, sizeof b->q);
    for (int i = 0; i < 256; i++)
        b->q[32 * (i / 128) + i % 32] |= (uint8_t)(trit_code(x[i], inverse) << 2 * (i % 128 / 32));
    bnet_put_f16(b->d, d);
}

/* n trits of base three, spread over the byte range so that multiplying by three shifts one out.
 * Trit k is element first + stride * k. */
static uint8_t tq1_byte(const float *x, float inverse, int first, int stride, int n)
{
    unsigned q = 0;
    for (int k = 0; k < 5; k++)
        q = q * 3 + (k < n ? trit_code(x[first + stride * k], inverse) : 0);
    return (uint8_t)((256 * q + 242) / 243);
}

void bnet_tq1_0_encode(const float *x, void *block)
{
    block_tq1_0 *b = block;
    float d = block_scale(x), inverse = d != 0 ? 1.0f / d : 0;
    for (int m = 0; m < 32; m++)
        b->q[m] = tq1_byte(x, inverse, m, 32, 5);
    for (int m = 0; m < 16; m++)
        b->q[32 + m] = tq1_byte(x, inverse, 160 + m, 16, 5);
    for (int m = 0; m < 4; m++)
        b->qh[m] = tq1_byte(x, inverse, 240 + m, 4, 4);
    bnet_put_f16(b->d, d);
}

static void tq1_trits(uint8_t byte, int n, int8_t *trits, int stride)
{
    for (int k = 0; k < n; k++) {
        trits[stride * k] = (int8_t)((byte * 3 >> 8) - 1);
        byte = (uint8_t)(byte * 3);
    }
}

static void tq1_decode(const block_tq1_0 *b, int8_t *trits, float *scale)
{
    for (int m = 0; m < 32; m++)
        tq1_trits(b->q[m], 5, trits + m, 32);
    for (int m = 0; m < 16; m++)
        tq1_trits(b->q[32 + m], 5, trits + 160 + m, 16);
    for (int m = 0; m < 4; m++)
        tq1_trits(b->qh[m], 4, trits + 240 + m, 4);
    *scale = bnet_get_f16(b->d);
}

static void tq2_decode(const block_tq2_0 *b, int8_t *trits, float *scale)
{
    for (int i = 0; i < 256; i++)
        trits[i] = (int8_t)((b->q[32 * (i / 128) + i % 32] >> 2 * (i % 128 / 32) & 3) - 1);
    *scale = bnet_get_f16(b->d);
}

void bnet_tq_decode_row(bnet_type t, const void *src, int8_t *trits, float *scales, size_t n)
{
    for (size_t i = 0; i < n / 256; i++)
        if (t == BNET_TQ1_0)
            tq1_decode((const block_tq1_0 *)src + i, trits + 256 * i, &scales[i]);
        else
            tq2_decode((const block_tq2_0 *)src + i, trits + 256 * i, &scales[i]);
}

float bnet_absmean_finish(double sum_abs, uint64_t n)
{
    float mean = n ? (float)(sum_abs / (double)n) : 0;
    return fmaxf(mean, 1e-5f);
}

void bnet_absmean_row(const float *w, float scale, int8_t *trits, size_t n)
{
    for (size_t i = 0; i < n; i++)
        trits[i] = (int8_t)bnet_code(rintf(w[i] / scale), -1, 1);
}
