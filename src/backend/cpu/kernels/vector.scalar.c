/* vector.scalar.c - the operations on single vectors: norm, quantisation, rope, gates, sums,
 * embedding rows.
 *
 * Norm and quantisation, the two steps before a value is rounded to int8, compute in double and
 * round once: an error there may push the value across a tie, and a flipped tie moves logits far
 * more than the error itself. */
#include "backend/cpu/kernels.h"
#include "base/mathf.h"
#include "format/codec_extra.h"

#include <math.h>

void bnet_embed_row_scalar(bnet_type type, const uint8_t *row, size_t n_cols, float *y)
{
    bool known = bnet_decode_part(type, row, 0, n_cols, y);
    assert(known);
    (void)known;
}

/* Sum of squares in eight running sums folded 4, 2, 1. */
void bnet_rmsnorm_f32_scalar(const float *x, const float *w, size_t n, float eps, float *y)
{
    double acc[8] = {0};
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (size_t l = 0; l < 8; l++)
            acc[l] += (double)x[i + l] * x[i + l];
    for (size_t l = 0; i + l < n; l++)
        acc[l] += (double)x[i + l] * x[i + l];
    for (int f = 4; f >= 1; f /= 2)
        for (int l = 0; l < f; l++)
            acc[l] += acc[l + f];
    double scale = 1.0 / sqrt(acc[0] / (double)n + (double)eps);
    for (i = 0; i < n; i++)
        y[i] = (float)((double)x[i] * scale * (double)w[i]);
}

/* Round half to even and clamp to int8. NaN becomes -128: the result must be defined, the model is
 * broken anyway. */
static inline int8_t round_i8(double v)
{
    v = v >= -128.0 ? v : -128.0;
    v = v <= 127.0 ? v : 127.0;
    const double magic = 6755399441055744.0; /* 1.5 * 2^52 */
    return (int8_t)(int32_t)((v + magic) - magic);
}

float bnet_quantize_i8_scalar(const float *x, size_t n, size_t stride, int8_t *q, int32_t *sum)
{
    float amax = 1e-5f;
    for (size_t i = 0; i < n; i++) {
        float a = fabsf(x[i]);
        amax = a > amax ? a : amax;
    }
    double s = 127.0 / (double)amax;
    int32_t total = 0;
    for (size_t i = 0; i < n; i++) {
        q[i] = round_i8((double)x[i] * s);
        total += q[i];
    }
    memset(q + n, 0, stride - n);
    *sum = total;
    return amax / 127.0f;
}

static inline void rotate(float *a, float *b, const float *cs)
{
    float x = *a, y = *b;
    *a = x * cs[0] - y * cs[1];
    *b = x * cs[1] + y * cs[0];
}

void bnet_rope_norm_scalar(float *x, const float *cs, size_t n_rot)
{
    for (size_t j = 0; j < n_rot / 2; j++)
        rotate(&x[2 * j], &x[2 * j + 1], cs + 2 * j);
}

void bnet_rope_neox_scalar(float *x, const float *cs, size_t n_rot)
{
    for (size_t j = 0; j < n_rot / 2; j++)
        rotate(&x[j], &x[j + n_rot / 2], cs + 2 * j);
}

void bnet_glu_relu2_scalar(const float *gate, const float *up, size_t n, float *y)
{
    for (size_t i = 0; i < n; i++) {
        float g = gate[i] > 0 ? gate[i] : 0;
        y[i] = g * g * up[i];
    }
}

void bnet_glu_silu_scalar(const float *gate, const float *up, size_t n, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = gate[i] / (1.0f + bnet_expf(-gate[i])) * up[i];
}

void bnet_add_f32_scalar(float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] += y[i];
}
