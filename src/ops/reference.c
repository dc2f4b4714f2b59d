/* reference.c - quantisation and the plain GEMV of reference.h. */
#include "ops/reference.h"

#include "format/codec.h"

#include <float.h>
#include <math.h>

/* ---- quantisation ---- */

enum { GROUP = 24 }; /* weights that fill whole bytes in every form */

size_t bnet_ref_quantized_bytes(bitnet_qtype q, size_t n)
{
    size_t triples = n / 3 + (n % 3 != 0);
    return q == BITNET_QTYPE_TL2 ? triples / 2 + triples % 2 + triples / 8 + (triples % 8 != 0)
                                 : n / 4 + (n % 4 != 0);
}

static size_t block_of(size_t n, size_t n_scales)
{
    return n / n_scales + (n % n_scales != 0);
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
        return bnet_absmean_finish(sum, n);
    return most > 1e-8f ? most / 1.5f : 1.0f;
}

static int8_t trit_by(bitnet_scale_rule rule, float x, float scale)
{
    int8_t t;
    if (rule == BITNET_SCALE_ABSMEAN) {
        bnet_absmean_row(&x, scale, &t, 1);
        return t;
    }
    return (int8_t)((x / scale > 0.5f) - (x / scale < -0.5f));
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
    size_t triples = n / 3 + (n % 3 != 0), here = BNET_MIN((size_t)GROUP, n - first);
    pack_group(q, t, bytes, &signs);
    if (q == BITNET_QTYPE_TL2) {
        size_t n_here = here / 3 + (here % 3 != 0);
        memcpy(out + first / 6, bytes, n_here / 2 + n_here % 2);
        out[triples / 2 + triples % 2 + first / GROUP] = signs;
    } else {
        memcpy(out + first / 4, bytes, here / 4 + (here % 4 != 0));
    }
}

/* Several values at once, without a branch for each. */
size_t bnet_first_not_finite(const float *in, size_t n)
{
    enum { STRETCH = 512 };
    size_t i = 0;
    for (; i + STRETCH <= n; i += STRETCH) {
        int any = 0;
        for (size_t k = 0; k < STRETCH; k++)
            any |= !(fabsf(in[i + k]) <= FLT_MAX);
        if (any)
            break;
    }
    while (i < n && isfinite(in[i]))
        i++;
    return i;
}

void bnet_ref_quantize(bitnet_qtype q, bitnet_scale_rule rule, const float *in, size_t n,
                       uint8_t *out, float *scales, size_t n_scales, size_t block)
{
    for (size_t s = 0; s < n_scales; s++) {
        size_t begin = BNET_MIN(s * block, n), count = BNET_MIN(block, n - begin);
        scales[s] = count ? scale_of(rule, in + begin, count) : 0.0f;
    }
    for (size_t i = 0; i < n; i += GROUP) {
        int8_t t[GROUP] = {0};
        for (size_t j = 0; j < GROUP && i + j < n; j++)
            t[j] = trit_by(rule, in[i + j], scales[(i + j) / block]);
        put_group(q, i, n, t, out);
    }
}

/* Weight i of a packed form; bytes no encoder writes give 0. */
static int8_t trit_at(bitnet_qtype q, const uint8_t *in, size_t n, size_t i)
{
    static const int8_t powers[3] = {9, 3, 1};
    if (q == BITNET_QTYPE_I2S)
        return bnet_ref_trit(in[i / 4] >> 2 * (i % 4) & 3);
    if (q == BITNET_QTYPE_TL1) {
        int c = in[i / 4] >> (i % 4 < 2 ? 4 : 0) & 15;
        return c > 8 ? 0 : (int8_t)((i % 2 ? c % 3 : c / 3) - 1);
    }
    size_t triples = n / 3 + (n % 3 != 0), t = i / 3;
    int size = in[t / 2] >> (t % 2 ? 0 : 4) & 15;
    int negative = in[triples / 2 + triples % 2 + t / 8] >> t % 8 & 1;
    int v = (negative ? -size : size) + 13; /* 0..26 in base 3 */
    return size > 13 ? 0 : (int8_t)(v / powers[i % 3] % 3 - 1);
}

void bnet_ref_dequantize(bitnet_qtype q, const uint8_t *in, size_t n, const float *scales,
                         size_t n_scales, float *out)
{
    size_t block = block_of(n, n_scales);
    for (size_t i = 0; i < n; i++)
        out[i] = (float)trit_at(q, in, n, i) * scales[i / block];
}

/* ---- blocks of 256 ---- */

static const int8_t code_values[3][4] = {{-1, 0, 1, 0}, {-2, -1, 0, 1}, {-2, -1, 1, 2}};

/* Sum of value(code) * x over n codes, lowest bits first, in double. */
static double dot_codes(const uint8_t *codes, const float *x, size_t n, const int8_t value[4])
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)value[codes[i / 4] >> 2 * (i % 4) & 3] * x[i];
    return sum;
}

void bnet_ref_qk256_gemv(const uint8_t *w, const float *scales, size_t rows, size_t cols,
                         const float *x, bitnet_code_map map, float *y)
{
    size_t n_blocks = cols / 256 + (cols % 256 != 0);
    for (size_t r = 0; r < rows; r++) {
        double sum = 0;
        for (size_t b = 0; b < n_blocks; b++) {
            size_t n = BNET_MIN((size_t)256, cols - 256 * b);
            double scale = scales ? (double)scales[r * n_blocks + b] : 1.0;
            sum += scale * dot_codes(w + (r * n_blocks + b) * 64, x + 256 * b, n, code_values[map]);
        }
        y[r] = (float)sum;
    }
}
