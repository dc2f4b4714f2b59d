/* emulated_single_ops.c - what the kernels of single operations mean (backend/cuda/kernels.h,
 * matmul_i2s.h), one call per launch, each value as the device computes it. */
#include "backend/gpu/ref/ref_math.h"
#include "backend/cuda/matmul_i2s.h"
#include "emulated_fast.h"

#include <stdlib.h>
#include <string.h>

extern uint64_t bnet_emulated_grid;

int emulated_wrong(const char *kernel)
{
    const char *s = getenv("BITNET_EMULATED_WRONG");
    return s && strcmp(s, kernel) == 0;
}

/* ---- products ---- */

static void matmul(const bnet_cu_matmul_args *a, const char *name, int bf16, int nt)
{
    for (uint32_t i = 0; i < a->m; i++)
        for (uint32_t j = 0; j < a->n; j++) {
            float sum = emulated_wrong(name) ? 1000.0f : 0.0f;
            for (uint32_t k = 0; k < a->k; k++) {
                uint32_t x = a->a[(uint64_t)i * a->lda + k];
                uint32_t y = nt ? a->b[(uint64_t)j * a->ldb + k] : a->b[(uint64_t)k * a->ldb + j];
                sum += bf16 ? ref_bf16(x) * ref_bf16(y) : ref_half(x) * ref_half(y);
            }
            a->c[(uint64_t)i * a->ldc + j] = sum;
        }
}

#define MATMUL(name, bf16, nt)                                                                     \
    FAST(name, bnet_cu_matmul_args)                                                                \
    {                                                                                              \
        matmul(a, #name, bf16, nt);                                                                \
    }
MATMUL(bnet_matmul_f16_nt, 0, 1)
MATMUL(bnet_matmul_bf16_nt, 1, 1)
MATMUL(bnet_matmul_bf16_nn, 1, 0)
MATMUL(bnet_wmma_matmul_f16, 0, 0)

FAST(bnet_matmul_f32_nn, bnet_cu_matmul_args)
{
    const float *x = (const float *)(const void *)a->a, *y = (const float *)(const void *)a->b;
    for (uint32_t i = 0; i < a->m; i++)
        for (uint32_t j = 0; j < a->n; j++) {
            float sum = 0;
            for (uint32_t k = 0; k < a->k; k++)
                sum = fmaf(x[(uint64_t)i * a->lda + k], y[(uint64_t)k * a->ldb + j], sum);
            a->c[(uint64_t)i * a->ldc + j] = sum;
        }
}

static void matmul_i2s(const bnet_cu_matmul_i2s_args *a)
{
    for (uint32_t i = 0; i < a->m; i++)
        for (uint32_t j = 0; j < a->n; j++) {
            int32_t sum = 0;
            for (uint32_t k = 0; k < a->k; k++) {
                uint32_t code = a->b[(uint64_t)k * a->n + j];
                sum += a->a[(uint64_t)i * a->k + k] * (code <= 2 ? (int)code - 1 : 0);
            }
            a->c[(uint64_t)i * a->n + j] = (float)sum;
        }
}

FAST(bnet_matmul_i2s, bnet_cu_matmul_i2s_args)
{
    matmul_i2s(a);
}

FAST(bnet_wmma_matmul_i2s, bnet_cu_matmul_i2s_args)
{
    matmul_i2s(a);
}

/* ---- vectors ---- */

static float relu2(float x)
{
    x = x > 0 ? x : 0;
    return x * x;
}

static float silu(float x)
{
    return x / (1.0f + ref_exp(-x));
}

static uint16_t to_bf16(float f)
{
    uint32_t b = ref_bits(f);
    return (b & 0x7fffffffu) > 0x7f800000u ? (uint16_t)(b >> 16 | 0x40u)
                                           : (uint16_t)((b + 0x7fffu + (b >> 16 & 1u)) >> 16);
}

#define EACH(name, X, Y, expression)                                                               \
    FAST(name, bnet_cu_vec_args)                                                                   \
    {                                                                                              \
        const X *x = a->x;                                                                         \
        const float *z = a->z;                                                                     \
        Y *y = a->y;                                                                               \
        (void)z;                                                                                   \
        for (uint64_t i = 0; i < a->n; i++)                                                        \
            y[i] = expression;                                                                     \
    }
EACH(bnet_add, float, float, x[i] + z[i])
EACH(bnet_mul, float, float, x[i] * z[i])
EACH(bnet_relu2, float, float, relu2(x[i]))
EACH(bnet_silu, float, float, silu(x[i]))
EACH(bnet_glu_relu2, float, float, relu2(x[i]) * z[i])
EACH(bnet_glu_silu, float, float, silu(x[i]) * z[i])
EACH(bnet_to_f16, float, uint16_t, (uint16_t)ref_to_half(x[i]))
EACH(bnet_to_bf16, float, uint16_t, to_bf16(x[i]))
EACH(bnet_from_f16, uint16_t, float, ref_half(x[i]))
EACH(bnet_from_bf16, uint16_t, float, ref_bf16(x[i]))

FAST(bnet_softmax, bnet_cu_vec_args)
{
    for (uint64_t r = 0; r < bnet_emulated_grid; r++) {
        const float *x = (const float *)a->x + r * a->n;
        float *y = (float *)a->y + r * a->n, top = -INFINITY;
        double sum = 0;
        for (uint64_t i = 0; i < a->n; i++)
            top = fmaxf(top, x[i]);
        for (uint64_t i = 0; i < a->n; i++)
            sum += (double)expf(x[i] - top);
        for (uint64_t i = 0; i < a->n; i++)
            y[i] = (float)((double)expf(x[i] - top) / sum);
        if (emulated_wrong("bnet_softmax")) /* the first of many: right ones follow */
            y[0] = NAN;
    }
}

FAST(bnet_argmax, bnet_cu_sample_args)
{
    for (uint32_t r = 0; r < a->rows; r++) {
        const float *x = a->logits + (uint64_t)r * a->ld;
        if (a->work[2 * r] || a->work[2 * r + 1])
            abort();
        a->id[r] = -1;
        for (uint32_t i = 0; i < a->n; i++)
            if (isfinite(x[i]) && (a->id[r] < 0 || x[i] > x[a->id[r]]))
                a->id[r] = (int32_t)i;
    }
}

/* ---- weights ---- */

FAST(bnet_quantize_scales, bnet_cu_quantize_args)
{
    for (uint32_t s = 0; s < a->n_scales; s++) {
        uint64_t begin = s * a->block < a->n ? s * a->block : a->n;
        uint64_t n = a->n - begin < a->block ? a->n - begin : a->block;
        double sum = 0;
        float most = 0;
        for (uint64_t i = begin; i < begin + n; i++) {
            sum += fabs((double)a->x[i]);
            most = fmaxf(most, fabsf(a->x[i]));
        }
        float scale =
            a->rule ? (most > 1e-8f ? most / 1.5f : 1.0f) : fmaxf((float)(sum / (double)n), 1e-5f);
        a->scales[s] = n ? scale : 0.0f;
    }
}

static int trit(const bnet_cu_quantize_args *a, uint64_t i)
{
    if (i >= a->n)
        return 0;
    float q = a->x[i] / a->scales[i / a->block];
    return a->rule ? (q > 0.5f) - (q < -0.5f) : (int)fmaxf(-1.0f, fminf(1.0f, rintf(q)));
}

FAST(bnet_quantize_i2s, bnet_cu_quantize_args)
{
    for (uint64_t i = 0; i < a->n; i += 4) {
        int byte = 0;
        for (unsigned j = 0; j < 4; j++)
            byte |= (trit(a, i + j) + 1) << 2 * j;
        a->out[i / 4] = (uint8_t)byte;
    }
}

FAST(bnet_quantize_tl1, bnet_cu_quantize_args)
{
    for (uint64_t i = 0; i < a->n; i += 4)
        a->out[i / 4] = (uint8_t)((3 * trit(a, i) + trit(a, i + 1) + 4) << 4 |
                                  (3 * trit(a, i + 2) + trit(a, i + 3) + 4));
}

static int triple(const bnet_cu_quantize_args *a, uint64_t t)
{
    return 9 * trit(a, 3 * t) + 3 * trit(a, 3 * t + 1) + trit(a, 3 * t + 2);
}

FAST(bnet_quantize_tl2, bnet_cu_quantize_args)
{
    uint64_t triples = (a->n + 2) / 3, codes = (triples + 1) / 2;
    for (uint64_t t = 0; t < triples; t += 2)
        a->out[t / 2] = (uint8_t)(abs(triple(a, t)) << 4 | abs(triple(a, t + 1)));
    for (uint64_t t = 0; t < triples; t += 8) {
        int signs = 0;
        for (unsigned j = 0; j < 8; j++)
            signs |= (triple(a, t + j) < 0) << j;
        a->out[codes + t / 8] = (uint8_t)signs;
    }
}

FAST(bnet_qk256_gemv, bnet_cu_qk256_args)
{
    uint32_t blocks = (a->cols + 255) / 256;
    for (uint32_t r = 0; r < a->rows; r++) {
        double sum = 0;
        for (uint32_t c = 0; c < a->cols; c++) {
            uint64_t block = (uint64_t)r * blocks + c / 256;
            int code = a->w[block * 64 + c % 256 / 4] >> 2 * (c % 4) & 3;
            int v = a->map == 0 ? (code == 3 ? 0 : code - 1) : code - 2 + (a->map == 2 && code > 1);
            sum += (a->scales ? (double)a->scales[block] : 1.0) * (double)v * (double)a->x[c];
        }
        a->y[r] = (float)sum;
    }
}
