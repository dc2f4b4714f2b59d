/* quantize.c - floats to packed ternary weights and back. */
#include <math.h>

#include "check.h"

enum { GROUP = 24 }; /* weights that fill whole bytes in every form */

size_t bitnet_quantized_bytes(bitnet_qtype q, size_t n)
{
    size_t triples = divide_up(n, 3);
    return q == BITNET_QTYPE_TL2 ? divide_up(triples, 2) + divide_up(triples, 8) : divide_up(n, 4);
}

static size_t block_of(size_t n, size_t n_scales)
{
    return divide_up(n, n_scales);
}

static float scale_of(bitnet_scale_rule rule, const float *x, size_t n)
{
    double sum = 0;
    float most = 0;
    for (size_t i = 0; i < n; i++) {
        sum += fabs((double)x[i]);
        most = fmaxf(most, fabsf(x[i]));
    }
    if (rule == BITNET_SCALE_ABSMEAN)
        return fmaxf((float)(sum / (double)n), 1e-5f);
    return most > 1e-8f ? most / 1.5f : 1.0f;
}

static int8_t trit_by(bitnet_scale_rule rule, float x, float scale)
{
    float by = x / scale;
    if (rule == BITNET_SCALE_ABSMEAN)
        by = rintf(by);
    return (int8_t)((by > 0.5f) - (by < -0.5f));
}

static bitnet_status check_sizes(const char *what, bitnet_qtype q, size_t n, size_t n_packed,
                                 size_t n_scales, bitnet_error *err)
{
    if ((unsigned)q > BITNET_QTYPE_TL2)
        return fail(err, BITNET_ARGUMENT,
                    "%s: quantization type %d is unknown; I2S is 0, TL1 1, TL2 2", what, (int)q);
    if (n == 0 || n_scales == 0)
        return fail(err, BITNET_ARGUMENT, "%s: %zu values and %zu scales: both must be above 0",
                    what, n, n_scales);
    if (n_packed < bitnet_quantized_bytes(q, n))
        return fail(err, BITNET_ARGUMENT, "%s: %zu values need %zu bytes, %zu are given", what, n,
                    bitnet_quantized_bytes(q, n), n_packed);
    return BITNET_OK;
}

/* The bytes of up to 24 weights, and for TL2 the sign byte. Missing weights are 0. */
static void pack_group(bitnet_qtype q, const int8_t t[GROUP], uint8_t bytes[6], uint8_t *signs)
{
    *signs = 0;
    for (int b = 0; b < 6; b++) {
        const int8_t *w = t + 4 * b;
        if (q == BITNET_QTYPE_I2S)
            bytes[b] = (uint8_t)((w[0] + 1) | (w[1] + 1) << 2 | (w[2] + 1) << 4 | (w[3] + 1) << 6);
        else
            bytes[b] = (uint8_t)((3 * w[0] + w[1] + 4) << 4 | (3 * w[2] + w[3] + 4));
    }
    for (int i = 0; q == BITNET_QTYPE_TL2 && i < 8; i++) {
        int v = 9 * t[3 * i] + 3 * t[3 * i + 1] + t[3 * i + 2], size = v < 0 ? -v : v;
        bytes[i / 2] = (uint8_t)(i % 2 ? bytes[i / 2] | size : size << 4);
        *signs |= (uint8_t)((v < 0) << i);
    }
}

static void put_group(bitnet_qtype q, size_t first, size_t n, const int8_t t[GROUP], uint8_t *out)
{
    uint8_t bytes[6], signs;
    size_t triples = divide_up(n, 3), here = at_most(n - first, GROUP);
    pack_group(q, t, bytes, &signs);
    if (q == BITNET_QTYPE_TL2) {
        size_t n_here = divide_up(here, 3);
        memcpy(out + first / 6, bytes, divide_up(n_here, 2));
        out[divide_up(triples, 2) + first / GROUP] = signs;
    } else {
        memcpy(out + first / 4, bytes, divide_up(here, 4));
    }
}

bitnet_status bitnet_quantize(bitnet_qtype q, bitnet_scale_rule rule, const float *in, size_t n,
                              uint8_t *out, size_t n_out, float *scales, size_t n_scales,
                              bitnet_error *err)
{
    if (!in || !out || !scales)
        return fail(err, BITNET_ARGUMENT, "quantize: in, out and scales must not be NULL");
    if ((unsigned)rule > BITNET_SCALE_ABSMAX)
        return fail(err, BITNET_ARGUMENT, "quantize: rule is %d, must be 0..1", (int)rule);
    bitnet_status st = check_sizes("quantize", q, n, n_out, n_scales, err);
    if (st != BITNET_OK)
        return st;
    for (size_t i = 0; i < n; i++)
        if (!isfinite(in[i]))
            return fail(err, BITNET_ARGUMENT, "quantize: value %zu is %g, not a finite number", i,
                        (double)in[i]);
    size_t block = block_of(n, n_scales);
    for (size_t s = 0; s < n_scales; s++) {
        size_t begin = at_most(s * block, n), count = at_most(block, n - begin);
        scales[s] = count ? scale_of(rule, in + begin, count) : 0.0f;
    }
    for (size_t i = 0; i < n; i += GROUP) {
        int8_t t[GROUP] = {0};
        for (size_t j = 0; j < GROUP && i + j < n; j++)
            t[j] = trit_by(rule, in[i + j], scales[(i + j) / block]);
        put_group(q, i, n, t, out);
    }
    return BITNET_OK;
}

/* Weight i of a packed form; bytes no encoder writes give 0. */
static int8_t trit_at(bitnet_qtype q, const uint8_t *in, size_t n, size_t i)
{
    static const int8_t powers[3] = {9, 3, 1};
    if (q == BITNET_QTYPE_I2S)
        return (int8_t)trit_of(in[i / 4] >> 2 * (i % 4) & 3);
    if (q == BITNET_QTYPE_TL1) {
        int c = in[i / 4] >> (i % 4 < 2 ? 4 : 0) & 15;
        return c > 8 ? 0 : (int8_t)((i % 2 ? c % 3 : c / 3) - 1);
    }
    size_t triples = divide_up(n, 3), t = i / 3;
    int size = in[t / 2] >> (t % 2 ? 0 : 4) & 15;
    int negative = in[divide_up(triples, 2) + t / 8] >> t % 8 & 1;
    int v = (negative ? -size : size) + 13; /* 0..26 in base 3 */
    return size > 13 ? 0 : (int8_t)(v / powers[i % 3] % 3 - 1);
}

bitnet_status bitnet_dequantize(bitnet_qtype q, const uint8_t *in, size_t n_in, size_t n,
                                const float *scales, size_t n_scales, float *out, bitnet_error *err)
{
    if (!in || !out || !scales)
        return fail(err, BITNET_ARGUMENT, "dequantize: in, out and scales must not be NULL");
    bitnet_status st = check_sizes("dequantize", q, n, n_in, n_scales, err);
    size_t block = st == BITNET_OK ? block_of(n, n_scales) : 1;
    for (size_t i = 0; st == BITNET_OK && i < n; i++)
        out[i] = (float)trit_at(q, in, n, i) * scales[i / block];
    return st;
}

void bitnet_i2s_unpack(const uint8_t *packed, size_t n, uint8_t *codes)
{
    if (!packed || !codes)
        return;
    for (size_t i = 0; i < n; i++)
        codes[i] = packed[i / 4] >> 2 * (i % 4) & 3;
}

int bitnet_i2s_trit(uint8_t code)
{
    return trit_of(code);
}
