/* quantize_body.h - quantising with vectors: loops that any compiler turns into them where the
 * file's instruction set has them. The bits are those of bnet_ref_quantize, by two arguments:
 *
 * A weight is +1 where the float x / scale is above 0.5, under both rules (a tie at 0.5 rounds to
 * the even 0). Half a scale is a float, and no float lies between it and its product with
 * 1 + 2^-24, from where on the quotient rounds to more than 0.5. So x > scale / 2 says the same.
 *
 * The mean of the reference is a sum in order. A sum in another order lies within n units of the
 * last place of a double of it: where all of these give the same float, it is the reference's. */
#ifndef BNET_QUANTIZE_BODY_H
#define BNET_QUANTIZE_BODY_H

#include <math.h>

#include "format/codec.h"
#include "ops/reference.h"

enum { LANES = 16, CHUNK = 768 /* whole bytes in every form, a multiple of any vector */ };

static inline double sum_in_order(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += fabs((double)x[i]);
    return sum;
}

static inline float absmean_scale(const float *x, size_t n)
{
    double lane[LANES] = {0}, slack = 4.0 * (double)n * 0x1p-53;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t l = 0; l < LANES; l++)
            lane[l] += (double)fabsf(x[i + l]);
    double sum = sum_in_order(x + i, n - i);
    for (size_t l = 0; l < LANES; l++)
        sum += lane[l];
    float low = bnet_absmean_finish(sum * (1 - slack), n);
    float high = bnet_absmean_finish(sum * (1 + slack), n);
    return low == high ? low : bnet_absmean_finish(sum_in_order(x, n), n);
}

static inline float absmax_scale(const float *x, size_t n)
{
    float lane[LANES] = {0}, most = 0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t l = 0; l < LANES; l++)
            lane[l] = fabsf(x[i + l]) > lane[l] ? fabsf(x[i + l]) : lane[l];
    for (; i < n; i++)
        most = fmaxf(most, fabsf(x[i]));
    for (size_t l = 0; l < LANES; l++)
        most = fmaxf(most, lane[l]);
    return most > 1e-8f ? most / 1.5f : 1.0f;
}

static inline void trits_of(const float *x, size_t n, float half, int8_t *t)
{
    for (size_t i = 0; i < n; i++)
        t[i] = (int8_t)((x[i] > half) - (x[i] < -half));
}

/* ---- n_bytes bytes of trits ---- */

static inline void pack_i2s(const int8_t *t, size_t n_bytes, uint8_t *out)
{
    for (size_t b = 0; b < n_bytes; b++)
        out[b] =
            (uint8_t)(0x55 + t[4 * b] + 4 * t[4 * b + 1] + 16 * t[4 * b + 2] + 64 * t[4 * b + 3]);
}

static inline void pack_tl1(const int8_t *t, size_t n_bytes, uint8_t *out)
{
    for (size_t b = 0; b < n_bytes; b++)
        out[b] =
            (uint8_t)(0x44 + 48 * t[4 * b] + 16 * t[4 * b + 1] + 3 * t[4 * b + 2] + t[4 * b + 3]);
}

/* n_triples of them, sizes to `out` and signs to `signs`; t is filled up with zeros. */
static inline void pack_tl2(const int8_t *t, size_t n_triples, uint8_t *out, uint8_t *signs)
{
    int8_t v[CHUNK / 3], negative[CHUNK / 3];
    size_t n_signs = n_triples / 8 + (n_triples % 8 != 0);
    for (size_t i = 0; i < 8 * n_signs; i++) {
        int8_t x = (int8_t)(9 * t[3 * i] + 3 * t[3 * i + 1] + t[3 * i + 2]);
        negative[i] = x < 0;
        v[i] = (int8_t)(x < 0 ? -x : x);
    }
    for (size_t b = 0; b < n_triples / 2 + n_triples % 2; b++)
        out[b] = (uint8_t)(16 * v[2 * b] + v[2 * b + 1]);
    for (size_t b = 0; b < n_signs; b++) {
        unsigned bits = 0;
        for (size_t i = 0; i < 8; i++)
            bits |= (unsigned)negative[8 * b + i] << i;
        signs[b] = (uint8_t)bits;
    }
}

/* Weights first .. first + CHUNK - 1, or up to the end; t is filled up with zeros. */
static inline void pack_chunk(bitnet_qtype q, size_t first, size_t n, const int8_t t[CHUNK],
                              uint8_t *out)
{
    size_t here = BNET_MIN((size_t)CHUNK, n - first), n_bytes = here / 4 + (here % 4 != 0);
    if (q == BITNET_QTYPE_I2S) {
        pack_i2s(t, n_bytes, out + first / 4);
    } else if (q == BITNET_QTYPE_TL1) {
        pack_tl1(t, n_bytes, out + first / 4);
    } else {
        size_t all = n / 3 + (n % 3 != 0);
        pack_tl2(t, here / 3 + (here % 3 != 0), out + first / 6,
                 out + all / 2 + all % 2 + first / 24);
    }
}

static inline void quantize_chunk(bitnet_qtype q, const float *in, size_t first, size_t n,
                                  const float *scales, size_t block, uint8_t *out)
{
    int8_t t[CHUNK];
    size_t end = BNET_MIN(first + CHUNK, n);
    for (size_t i = first, stop; i < end; i = stop) {
        stop = end - i > block - i % block ? i + (block - i % block) : end;
        trits_of(in + i, stop - i, 0.5f * scales[i / block], t + (i - first));
    }
    memset(t + (end - first), 0, CHUNK - (end - first));
    pack_chunk(q, first, n, t, out);
}

static inline void quantize_body(bitnet_qtype q, bitnet_scale_rule rule, const float *in, size_t n,
                                 uint8_t *out, float *scales, size_t n_scales, size_t block)
{
    for (size_t s = 0; s < n_scales; s++) {
        size_t begin = s <= n / block ? s * block : n, count = BNET_MIN(block, n - begin);
        scales[s] = count == 0                     ? 0.0f
                    : rule == BITNET_SCALE_ABSMEAN ? absmean_scale(in + begin, count)
                                                   : absmax_scale(in + begin, count);
    }
    for (size_t first = 0; first < n; first += CHUNK)
        quantize_chunk(q, in, first, n, scales, block, out);
}

#define QUANTIZE_FN(isa)                                                                           \
    void bnet_quantize_##isa(bitnet_qtype q, bitnet_scale_rule rule, const float *in, size_t n,    \
                             uint8_t *out, float *scales, size_t n_scales, size_t block)           \
    {                                                                                              \
        quantize_body(q, rule, in, n, out, scales, n_scales, block);                               \
    }

#endif
