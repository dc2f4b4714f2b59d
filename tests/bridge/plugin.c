/* plugin.c - a bridge plugin for tests: a plain second implementation written from docs/BRIDGE.md
 * alone. It multiplies everything 4 times and quantises it 32 times, so that no test depends on
 * which of two plain loops is faster. Built several times, each with one difference:
 *   PLUGIN_WRONG_MATMUL    one sum is off by one    PLUGIN_WRONG_QUANTIZE  a wrong weight
 *   PLUGIN_WRONG_LINEAR    the same of models       PLUGIN_FAST            repeats take no time
 *   PLUGIN_NO_INIT         init fails               PLUGIN_ABSENT          says it is not available
 *   PLUGIN_FAILS           computing fails          PLUGIN_NO_QUANTIZE     a function is missing
 *   PLUGIN_NO_LINEAR       it cannot serve */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static const char *last_error = "";

EXPORT int bitnet_bridge_init(int abi);
EXPORT void bitnet_bridge_cleanup(void);
EXPORT int bitnet_bridge_available(void);
EXPORT int bitnet_bridge_matmul_i2s(const int8_t *a, const uint8_t *b, float *c, size_t m, size_t n,
                                    size_t k);
EXPORT int bitnet_bridge_quantize(int qtype, const float *in, size_t n, uint8_t *out, size_t n_out,
                                  float *scales, size_t n_scales);
EXPORT const char *bitnet_bridge_last_error(void);
EXPORT void bitnet_bridge_linear_i2s(const uint8_t *w, size_t n_blocks, size_t n_rows,
                                     const int8_t *x, size_t x_stride, const int32_t *x_sum,
                                     size_t n_tokens, int32_t *acc);

/* An answer that was given before to sizes of the same numbers: comparisons repeat their input. */
#ifdef PLUGIN_FAST
static float saved[64 * 64];
static size_t saved_of[3];

static int recall(float *c, size_t m, size_t n, size_t k)
{
    if (saved_of[0] != m || saved_of[1] != n || saved_of[2] != k)
        return 0;
    memcpy(c, saved, m * n * sizeof *c);
    return 1;
}

static void keep(const float *c, size_t m, size_t n, size_t k)
{
    if (m * n * sizeof *c > sizeof saved)
        return;
    memcpy(saved, c, m * n * sizeof *c);
    saved_of[0] = m;
    saved_of[1] = n;
    saved_of[2] = k;
}
#else
static int recall(float *c, size_t m, size_t n, size_t k)
{
    (void)c, (void)m, (void)n, (void)k;
    return 0;
}

static void keep(const float *c, size_t m, size_t n, size_t k)
{
    (void)c, (void)m, (void)n, (void)k;
}
#endif

int bitnet_bridge_init(int abi)
{
#ifdef PLUGIN_NO_INIT
    last_error = "the coffee is cold";
    return 3;
#endif
    if (abi != 1)
        last_error = "another version of the bridge is wanted";
    return abi != 1;
}

void bitnet_bridge_cleanup(void)
{
    last_error = "";
}

int bitnet_bridge_available(void)
{
#ifdef PLUGIN_ABSENT
    return 0;
#else
    return 1;
#endif
}

static void multiply(const int8_t *a, const uint8_t *b, float *c, size_t m, size_t n, size_t k)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) {
            int32_t sum = 0;
            for (size_t l = 0; l < k; l++)
                sum += a[i * k + l] * (b[l * n + j] <= 2 ? b[l * n + j] - 1 : 0);
            c[i * n + j] = (float)sum;
        }
}

int bitnet_bridge_matmul_i2s(const int8_t *a, const uint8_t *b, float *c, size_t m, size_t n,
                             size_t k)
{
#ifdef PLUGIN_FAILS
    last_error = "out of patience";
    return 5;
#endif
    if (recall(c, m, n, k))
        return 0;
    for (int i = 0; i < 4; i++)
        multiply(a, b, c, m, n, k);
#ifdef PLUGIN_WRONG_MATMUL
    c[m * n - 1] += 1;
#endif
    keep(c, m, n, k);
    return 0;
}

#ifndef PLUGIN_NO_LINEAR
/* 128 weights in 32 bytes: weight i of a block in byte i % 32, the first 32 in the highest bits. */
void bitnet_bridge_linear_i2s(const uint8_t *w, size_t n_blocks, size_t n_rows, const int8_t *x,
                              size_t x_stride, const int32_t *x_sum, size_t n_tokens, int32_t *acc)
{
    (void)x_sum;
    for (size_t t = 0; t < n_tokens; t++)
        for (size_t r = 0; r < n_rows; r++) {
            int32_t sum = 0;
            for (size_t i = 0; i < n_blocks * 128; i++) {
                uint8_t byte = w[r * n_blocks * 32 + i / 128 * 32 + i % 32];
                sum += x[t * x_stride + i] * ((byte >> (6 - 2 * (i % 128 / 32)) & 3) - 1);
            }
            acc[t * n_rows + r] = sum;
        }
#ifdef PLUGIN_WRONG_LINEAR
    acc[0]++;
#endif
}
#endif

#ifndef PLUGIN_NO_QUANTIZE
static int trit_of(float w, float scale)
{
    int t = (int)nearbyintf(w / scale);
    return t > 1 ? 1 : t < -1 ? -1 : t;
}

static void quantize(const float *in, size_t n, uint8_t *out, size_t n_out, float *scales,
                     size_t n_scales)
{
    size_t per_scale = (n + n_scales - 1) / n_scales;
    for (size_t i = 0; i < n_out; i++)
        out[i] = 0;
    for (size_t s = 0; s < n_scales; s++) {
        size_t first = s * per_scale, end = first + per_scale < n ? first + per_scale : n;
        double sum = 0;
        for (size_t i = first; i < end; i++)
            sum += fabs((double)in[i]);
        float scale = (float)(sum / (double)(end - first));
        scales[s] = scale > 1e-5f ? scale : 1e-5f;
        for (size_t i = first; i < end; i++)
            out[i / 4] |= (uint8_t)((trit_of(in[i], scales[s]) + 1) << 2 * (i % 4));
    }
    for (size_t i = n; i < 4 * n_out; i++)
        out[i / 4] |= (uint8_t)(1 << 2 * (i % 4)); /* zeros fill the last byte */
}

/* I2S only: four codes to a byte, the first lowest. */
int bitnet_bridge_quantize(int qtype, const float *in, size_t n, uint8_t *out, size_t n_out,
                           float *scales, size_t n_scales)
{
    if (qtype != 0 || n_out != (n + 3) / 4) {
        last_error = "only I2S is known here";
        return 1;
    }
    for (int i = 0; i < 32; i++)
        quantize(in, n, out, n_out, scales, n_scales);
#ifdef PLUGIN_WRONG_QUANTIZE
    out[0] ^= 2;
#endif
    return 0;
}
#endif

const char *bitnet_bridge_last_error(void)
{
    return last_error;
}
