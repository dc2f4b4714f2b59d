/* head_input.c - how an input of the head becomes what its scan reads: integers with a multiplier
 * for some columns, in the orders of the kernels. */
#include "backend/cpu/head_input.h"

#include <math.h>

float bnet_head_largest(const float *x, size_t n)
{
    float most = 0;
    for (size_t i = 0; i < n; i++) {
        float v = fabsf(x[i]);
        most = v > most ? v : most;
    }
    return most;
}

/* Columns under one multiplier: some parts of 16, from one to the next `apart` of them. */
typedef struct columns {
    size_t n_parts, apart;
} columns;

static columns together(bnet_type type)
{
    return type == BNET_Q6_K ? (columns){4, 32} : (columns){2, 16};
}

static void quantise(const float *x, columns c, float unit, int8_t *q, int8_t *mult)
{
    float most = 0;
    for (size_t p = 0; p < c.n_parts; p++)
        most = BNET_MAX(most, bnet_head_largest(x + p * c.apart, 16));
    float steps = ceilf(most / (127.0f * unit));
    int m = steps < BNET_HEAD_MULT ? (int)steps : BNET_HEAD_MULT;
    float inverse = m ? 1.0f / (unit * (float)m) : 0;
    for (size_t p = 0; p < c.n_parts; p++) {
        mult[p * c.apart / 16] = (int8_t)m;
        for (size_t i = p * c.apart; i < p * c.apart + 16; i++) {
            float v = rintf(x[i] * inverse);
            q[i] = (int8_t)(v > 127.0f ? 127.0f : v < -127.0f ? -127.0f : v);
        }
    }
}

/* The same numbers in the orders kernels read. */
static void arrange(const bnet_head_arrays *t, size_t n)
{
    for (size_t i = 0; i < n / 4; i++)
        for (size_t r = 0; r < 4; r++) {
            const int8_t *q = t->q + 4 * i;
            memcpy(t->q4 + 16 * i + 4 * r, q, 4);
            t->pairs4[8 * i + 2 * r] = (int16_t)(-32 * (q[0] + q[1]));
            t->pairs4[8 * i + 2 * r + 1] = (int16_t)(-32 * (q[2] + q[3]));
        }
    for (size_t i = 0; i < n; i++)
        t->up[i] = (uint8_t)(t->q[i] + 128);
    for (size_t i = 0; i < n / 16; i++) { /* i: quarters in order, g inside them */
        size_t k = i / 4 % 4, s = i / 16 * 16 + 8 * (k / 2) + 2 * (i % 4) + k % 2;
        int32_t sum = 0;
        for (size_t c = 0; c < 16; c++)
            sum += t->q[16 * s + c];
        for (size_t r = 0; r < 4; r++) {
            t->mult4[4 * i + r] = t->mult[s];
            t->start4[4 * i + r] = -32 * sum;
        }
    }
}

double bnet_head_integers(bnet_type type, const float *x, size_t n, float unit,
                          const bnet_head_arrays *to)
{
    columns c = together(type);
    double ee = 0;
    for (size_t i = 0; i < n; i += 16)
        if (i % (c.n_parts * c.apart) < c.apart)
            quantise(x + i, c, unit, to->q + i, to->mult + i / 16);
    for (size_t i = 0; i < n; i++) {
        double e = (double)x[i] - (double)unit * (double)(to->mult[i / 16] * to->q[i]);
        ee += e * e;
    }
    if (type == BNET_Q6_K)
        arrange(to, n);
    return sqrt(ee);
}

void bnet_head_floats(const float *x, size_t n, const bnet_head_arrays *to)
{
    for (size_t i = 0; i < n; i++) {
        to->x[i] = x[i];
        to->raised[i] = x[i] * 0x1p112f;
    }
}

bnet_head_x bnet_head_view(const bnet_head_arrays *a)
{
    return (bnet_head_x){.q = a->q,
                         .mult = a->mult,
                         .mult4 = a->mult4,
                         .start4 = a->start4,
                         .q4 = a->q4,
                         .pairs4 = a->pairs4,
                         .up = a->up,
                         .x = a->x,
                         .raised = a->raised};
}

void bnet_head_pair(const bnet_head_x *a, const bnet_head_x *b, size_t n, int8_t *two)
{
    static const int8_t zeros[16] = {0};
    for (size_t k = 0; k < n / 64; k++, two += BNET_HEAD_TWO) {
        size_t first = 128 * (k / 2) + 16 * (k % 2);
        int32_t m = b ? b->mult[first / 16] : 0, mult[4] = {0, 0, m, m};
        for (size_t g = 0; g < 4; g++)
            for (size_t c = 0; c < 16; c += 8) {
                memcpy(two + 32 * g + 2 * c, a->q + first + 32 * g + c, 8);
                memcpy(two + 32 * g + 2 * c + 8, b ? b->q + first + 32 * g + c : zeros, 8);
            }
        mult[0] = mult[1] = a->mult[first / 16];
        memcpy(two + 128, mult, sizeof mult);
    }
}
