/* codec_q6k.c - Q6_K: 256 elements, codes of six bits (-32..31), an 8-bit scale per 16 elements
 * under one f16.
 *
 * The encoder minimises the squared error: per 16 elements it tries a fan of step sizes around "the
 * largest element gets the outermost code", each with its least-squares scale; then it rounds the
 * scales to 8 bits and lets each one move by a step where that is better with the rounded
 * super-scale. */
#include "format/codec_impl.h"

#define SUB   16 /* elements under one 8-bit scale */
#define N_SUB 16

void bnet_q6_k_decode(const void *block, float *x)
{
    const block_q6_k *b = block;
    float d = bnet_get_f16(b->d);
    for (int i = 0; i < 256; i++) {
        int h = i / 128, g = i % 128 / 32, l = i % 32;
        int lo = b->ql[64 * h + l + 32 * (g & 1)] >> (g < 2 ? 0 : 4) & 15;
        int hi = b->qh[32 * h + l] >> 2 * g & 3;
        x[i] = d * (float)b->sc[i / 16] * (float)((lo | hi << 4) - 32);
    }
}

static void pack(const int8_t q[256], block_q6_k *b)
{
    memset(b->ql, 0, sizeof b->ql);
    memset(b->qh, 0, sizeof b->qh);
    for (int i = 0; i < 256; i++) {
        int h = i / 128, g = i % 128 / 32, l = i % 32, code = q[i] + 32;
        b->ql[64 * h + l + 32 * (g & 1)] |= (uint8_t)((code & 15) << (g < 2 ? 0 : 4));
        b->qh[32 * h + l] |= (uint8_t)(code >> 4 << 2 * g);
    }
}

/* The nearest code, of two the even one; NaN becomes the lowest. The sum has no room for fractions:
 * rintf is a call where the instruction is not part of every CPU. */
static int nearest(float x)
{
    x = x > -32 ? x : -32;
    x = x < 31 ? x : 31;
    return (int)(x + 12582912.0f - 12582912.0f); /* 1.5 * 2^23 */
}

/* Codes of one sub-block for a given step; returns the squared error they leave. */
static float quantise(const float *x, float step, int8_t *q)
{
    float inverse = step != 0 ? 1.0f / step : 0, error = 0;
    for (int i = 0; i < SUB; i++) {
        int code = nearest(x[i] * inverse);
        float e = x[i] - step * (float)code;
        q[i] = (int8_t)code;
        error += e * e;
    }
    return error;
}

/* The scale that fits the codes best, and how much of sum(x^2) it explains. */
static float fit(const float *x, float inverse, float *explained)
{
    float xq = 0, qq = 0;
    for (int i = 0; i < SUB; i++) {
        float code = (float)nearest(x[i] * inverse);
        xq += x[i] * code;
        qq += code * code;
    }
    *explained = qq > 0 ? xq * xq / qq : 0;
    return qq > 0 ? xq / qq : 0;
}

/* Best step of a sub-block: the fan divides the largest element by -36..-28 (its own side has one
 * code more) and by 35..27 for the other sign of the step. */
static float best_step(const float *x)
{
    float top = 0, best = 0, step = 0;
    for (int i = 0; i < SUB; i++)
        if (fabsf(x[i]) > fabsf(top))
            top = x[i];
    if (!(fabsf(top) > 1e-30f) || !isfinite(top))
        return 0;
    for (int k = -8; k <= 8; k++) {
        float explained[2], outer = 0.5f * (float)k;
        float s[2] = {fit(x, -(32.0f + outer) / top, &explained[0]),
                      fit(x, (31.0f + outer) / top, &explained[1])};
        for (int side = 0; side < 2; side++)
            if (explained[side] > best) {
                best = explained[side];
                step = s[side];
            }
    }
    return step;
}

/* The 8-bit scale near `ideal` that leaves the smallest error under the super-scale d; fills the
 * codes. */
static int8_t settle(const float *x, float d, float ideal, int8_t *q)
{
    int centre = bnet_code(rintf(ideal / d), -128, 127), best = centre;
    float least = quantise(x, d * (float)centre, q);
    for (int s = BNET_MAX(centre - 1, -128); s <= BNET_MIN(centre + 1, 127); s++) {
        int8_t trial[SUB];
        float error = quantise(x, d * (float)s, trial);
        if (error < least) {
            least = error;
            best = s;
            memcpy(q, trial, SUB);
        }
    }
    return (int8_t)best;
}

void bnet_q6_k_encode(const float *x, void *block)
{
    block_q6_k *b = block;
    float steps[N_SUB], top = 0;
    int8_t q[256];
    for (int j = 0; j < N_SUB; j++) {
        steps[j] = best_step(x + SUB * j);
        if (fabsf(steps[j]) > fabsf(top))
            top = steps[j];
    }
    bnet_put_f16(b->d, top / -128.0f); /* the largest scale becomes -128 */
    float d = bnet_get_f16(b->d);
    if (d == 0)
        bnet_put_f16(b->d, 0); /* a minus zero would make zeros negative */
    memset(q, 0, sizeof q);
    memset(b->sc, 0, sizeof b->sc);
    for (int j = 0; j < N_SUB && d != 0; j++)
        b->sc[j] = settle(x + SUB * j, d, steps[j], q + SUB * j);
    pack(q, b);
}
