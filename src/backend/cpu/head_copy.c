/* head_copy.c - rows of the head, and inputs, as integers in the order of head_copy.h. */
#include "backend/cpu/head_copy.h"
#include "backend/cpu/head_input.h"

#include <math.h>

enum { ZERO = 128 }; /* a code of 0 */

/* The integer next to v, even ones between two, for |v| < 2^22: as rintf, which is a call on a CPU
 * that is not known to round. */
static inline float nearest(float v)
{
    const float beyond = 0x1.8p23f;
    return (v + beyond) - beyond;
}

/* ---- weights ---- */

double bnet_copy_row(const float *row, size_t n_cols, size_t r, uint8_t *group)
{
    float top = bnet_head_largest(row, n_cols);
    bool lost = top < 1e-30f;
    float scale = lost ? 0 : top / 127.0f, inverse = lost ? 0 : 127.0f / top;
    double sum[8] = {0}, all = 0;
    for (size_t i = 0; i < n_cols; i += 8) {
        uint8_t *to = group + i / 8 * BNET_COPY_LINE + 8 * r;
        for (size_t k = 0; k < 8; k++) {
            float code = nearest(row[i + k] * inverse);
            double rest = (double)row[i + k] - (double)scale * (double)code;
            to[k] = (uint8_t)((int)code + ZERO);
            sum[k] += rest * rest;
        }
    }
    for (size_t k = 0; k < 8; k++)
        all += sum[k];
    memcpy(group + BNET_COPY_ROWS * n_cols + r * sizeof scale, &scale, sizeof scale);
    return sqrt(all);
}

/* ---- inputs ---- */

void bnet_copy_clear(bnet_head_eight *to, size_t n_cols)
{
    memset(to->low, 0, BNET_COPY_INPUTS * n_cols);
    memset(to->high, 0, BNET_COPY_INPUTS * n_cols);
    to->n = to->n_high = 0;
    memset(to->low_sum, 0, sizeof to->low_sum);
    memset(to->high_sum, 0, sizeof to->high_sum);
}

/* A value three and a half times as large as they are in the mean still fits 8 bits: of normal
 * values one in 2,150 has a high part, which leaves most lines without, and the rest is a hundredth
 * of them. The largest fits 16 bits in any case, since it is at most sqrt(n) times the mean; that
 * it does is made sure of all the same. */
static float unit_of(size_t n, float most, double length)
{
    float usual = (float)(3.5 * length / sqrt((double)n) / 127);
    return BNET_MAX(usual, most / (127.0f * BNET_COPY_HIGH));
}

/* What is summed up of an input. */
typedef struct input_sums {
    int32_t low[8], high[8];   /* |sum| <= 127 * 2^16 / 8 */
    int64_t lows[8], highs[8]; /* of squares */
    double rest[8];
} input_sums;

/* Eight columns. */
static inline void eight_columns(const float *x, float unit, int8_t *low, int8_t *high,
                                 input_sums *s)
{
    for (size_t k = 0; k < 8; k++) {
        float v = nearest(x[k] / unit), h = nearest(v / BNET_COPY_HIGH);
        int32_t l = (int32_t)(v - BNET_COPY_HIGH * h), g = (int32_t)h;
        double e = (double)x[k] - (double)unit * (double)v;
        low[k] = (int8_t)l;
        high[k] = (int8_t)g;
        s->low[k] += l;
        s->high[k] += g;
        s->lows[k] += l * l;
        s->highs[k] += g * g;
        s->rest[k] += e * e;
    }
}

bnet_copy_loss bnet_copy_input(bnet_head_eight *to, const float *x, size_t n_cols, float most,
                               double length)
{
    size_t t = to->n++;
    double ee = 0, lows = 0, highs = 0;
    bnet_copy_loss l = {.unit = unit_of(n_cols, most, length), .x = length};
    input_sums s = {{0}, {0}, {0}, {0}, {0}};
    for (size_t i = 0; i < n_cols; i += 8)
        eight_columns(x + i, l.unit, to->low + BNET_COPY_LINE * (i / 8) + 8 * t,
                      to->high + BNET_COPY_LINE * (i / 8) + 8 * t, &s);
    for (size_t k = 0; k < 8; k++) {
        to->low_sum[t] += ZERO * s.low[k];
        to->high_sum[t] += ZERO * s.high[k];
        lows += (double)s.lows[k], highs += (double)s.highs[k], ee += s.rest[k];
    }
    l.rest = sqrt(ee);
    l.parts = (double)l.unit * (BNET_COPY_HIGH * sqrt(highs) + sqrt(lows));
    return l;
}

static bool all_zero(const int8_t *line)
{
    uint64_t any = 0, word;
    for (size_t i = 0; i < BNET_COPY_LINE; i += sizeof word) {
        memcpy(&word, line + i, sizeof word);
        any |= word;
    }
    return any == 0;
}

void bnet_copy_finish(bnet_head_eight *to, size_t n_cols)
{
    for (size_t i = 0; i < n_cols / 8; i++) {
        const int8_t *line = to->high + BNET_COPY_LINE * i;
        if (all_zero(line))
            continue;
        memmove(to->high + BNET_COPY_LINE * to->n_high, line, BNET_COPY_LINE);
        to->lines[to->n_high++] = (uint32_t)i;
    }
}
