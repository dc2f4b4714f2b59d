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

/* One group of columns under one multiplier. */
static void quantise(const float *x, size_t n, float unit, int8_t *q, int8_t *mult)
{
    float steps = ceilf(bnet_head_largest(x, n) / (127.0f * unit));
    int m = steps < BNET_HEAD_MULT ? (int)steps : BNET_HEAD_MULT;
    float inverse = m ? 1.0f / (unit * (float)m) : 0;
    for (size_t i = 0; i < n; i++) {
        float v = rintf(x[i] * inverse);
        q[i] = (int8_t)(v > 127.0f ? 127.0f : v < -127.0f ? -127.0f : v);
    }
    for (size_t i = 0; i < n; i += 16)
        mult[i / 16] = (int8_t)m;
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
    size_t group = type == BNET_Q8_0 ? 32 : 16;
    double ee = 0;
    for (size_t i = 0; i < n; i += group)
        quantise(x + i, group, unit, to->q + i, to->mult + i / 16);
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

/* 16 columns of two inputs, and their multipliers. */
static void pair_sub_block(const bnet_head_x *a, const bnet_head_x *b, size_t s, int8_t *q,
                           int32_t mult[4])
{
    static const int8_t zeros[16] = {0};
    const int8_t *left = a->q + 16 * s, *right = b ? b->q + 16 * s : zeros;
    memcpy(q, left, 8);
    memcpy(q + 8, right, 8);
    memcpy(q + 16, left + 8, 8);
    memcpy(q + 24, right + 8, 8);
    mult[0] = mult[1] = a->mult[s];
    mult[2] = mult[3] = b ? b->mult[s] : 0;
}

void bnet_head_pair(const bnet_head_x *a, const bnet_head_x *b, size_t n, int8_t *two)
{
    for (size_t k = 0; k < n / 64; k++, two += BNET_HEAD_TWO)
        for (size_t g = 0; g < 4; g++) {
            int32_t mult[4];
            pair_sub_block(a, b, 8 * (k / 2) + 2 * g + k % 2, two + 32 * g, mult);
            memcpy(two + 128 + 16 * g, mult, sizeof mult);
        }
}
