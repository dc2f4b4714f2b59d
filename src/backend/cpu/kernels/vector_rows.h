/* vector_rows.h - the operations on single vectors, value by value, from an element on: the whole
 * of the scalar rows, the tails of the vector rows.
 *
 * Norm and quantisation, the two steps before a value is rounded to int8, compute in double and
 * round once: an error there may push the value across a tie, and a flipped tie moves logits far
 * more than the error itself. */
#ifndef BNET_VECTOR_ROWS_H
#define BNET_VECTOR_ROWS_H

#include <math.h>

#include "backend/cpu/half_inline.h"
#include "backend/cpu/kernels.h"
#include "ops/kv_block.h"
#include "base/mathf.h"

/* Round half to even and clamp to int8. NaN becomes -128: the result must be defined, the model is
 * broken anyway. */
static inline int8_t round_i8(double v)
{
    v = v >= -128.0 ? v : -128.0;
    v = v <= 127.0 ? v : 127.0;
    const double magic = 6755399441055744.0; /* 1.5 * 2^52 */
    return (int8_t)(int32_t)((v + magic) - magic);
}

/* What a norm multiplies by, from the sum of squares. */
static inline double norm_scale(double squares, size_t n, float eps)
{
    return 1.0 / sqrt(squares / (double)n + (double)eps);
}

static inline void norm_from(const float *x, const float *w, size_t i, size_t n, double scale,
                             float *y)
{
    for (; i < n; i++)
        y[i] = (float)((double)x[i] * scale * (double)w[i]);
}

static inline void add_from(float *x, const float *y, size_t i, size_t n)
{
    for (; i < n; i++)
        x[i] += y[i];
}

static inline float amax_from(const float *x, size_t i, size_t n, float amax)
{
    for (; i < n; i++) {
        float a = fabsf(x[i]);
        amax = a > amax ? a : amax;
    }
    return amax;
}

static inline int32_t quantize_from(const float *x, size_t i, size_t n, double s, int8_t *q)
{
    int32_t total = 0;
    for (; i < n; i++) {
        q[i] = round_i8((double)x[i] * s);
        total += q[i];
    }
    return total;
}

static inline void rotate(float *a, float *b, const float *cs)
{
    float x = *a, y = *b;
    *a = x * cs[0] - y * cs[1];
    *b = x * cs[1] + y * cs[0];
}

static inline void rope_norm_from(float *x, const float *cs, size_t j, size_t n_rot)
{
    for (; j < n_rot / 2; j++)
        rotate(&x[2 * j], &x[2 * j + 1], cs + 2 * j);
}

static inline void rope_neox_from(float *x, const float *cs, size_t j, size_t n_rot)
{
    for (; j < n_rot / 2; j++)
        rotate(&x[j], &x[j + n_rot / 2], cs + 2 * j);
}

static inline void glu_relu2_from(const float *gate, const float *up, size_t i, size_t n, float *y)
{
    for (; i < n; i++) {
        float g = gate[i] > 0 ? gate[i] : 0;
        y[i] = g * g * up[i];
    }
}

static inline void glu_silu_from(const float *gate, const float *up, size_t i, size_t n, float *y)
{
    for (; i < n; i++)
        y[i] = gate[i] / (1.0f + bnet_expf(-gate[i])) * up[i];
}

static inline void kv_store_f16_from(const float *x, size_t i, size_t n, uint8_t *to)
{
    for (; i < n; i++)
        bnet_put_u16(to + 2 * i, float_to_half(x[i]));
}

/* n elements with one scale, absmax / 127, which is returned; zeros store zeros. */
static inline float store_group_i8(const float *x, size_t n, uint8_t *q)
{
    float amax = amax_from(x, 0, n, 0), magic = 12582912.0f;
    float s = amax > 0 ? 127.0f / amax : 0;
    for (size_t i = 0; i < n; i++) {
        float v = x[i] * s;
        v = v >= -127.0f ? v : -127.0f;
        v = v <= 127.0f ? v : 127.0f;
        q[i] = (uint8_t)(int8_t)(int32_t)((v + magic) - magic);
    }
    return amax / 127.0f;
}

/* Where the scales of a position lie in an int8 part. */
static inline uint8_t *kv_scales(uint8_t *part, size_t head_dim, size_t pos)
{
    return part + bnet_kv_scale_offset(head_dim) + 4 * pos * bnet_kv_groups(head_dim);
}

#endif
