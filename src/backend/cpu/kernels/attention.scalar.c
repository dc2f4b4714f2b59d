/* attention.scalar.c - the cache's blocks: storing positions, and folding one block into a running
 * softmax.
 *
 * The order is the same for every batch and thread count: inside a block keys by position, blocks
 * in ascending order, each block reduced on its own (maximum, sum, weighted values) and then
 * merged. */
#include "backend/cpu/half_inline.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/kv_block.h"
#include "base/mathf.h"

#include <math.h>

void bnet_kv_store_f32_scalar(const float *x, size_t head_dim, size_t pos, uint8_t *part)
{
    memcpy(part + 4 * pos * head_dim, x, 4 * head_dim);
}

void bnet_kv_store_f16_scalar(const float *x, size_t head_dim, size_t pos, uint8_t *part)
{
    for (size_t i = 0; i < head_dim; i++)
        bnet_put_u16(part + 2 * (pos * head_dim + i), float_to_half(x[i]));
}

/* One scale per position and head: absmax / 127; a zero vector stores zeros. */
void bnet_kv_store_i8_scalar(const float *x, size_t head_dim, size_t pos, uint8_t *part)
{
    float amax = 0;
    for (size_t i = 0; i < head_dim; i++)
        amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
    float s = amax > 0 ? 127.0f / amax : 0;
    for (size_t i = 0; i < head_dim; i++) {
        float v = x[i] * s, magic = 12582912.0f;
        v = v >= -127.0f ? v : -127.0f;
        v = v <= 127.0f ? v : 127.0f;
        part[pos * head_dim + i] = (uint8_t)(int8_t)(int32_t)((v + magic) - magic);
    }
    bnet_put_f32(part + bnet_kv_scale_offset(head_dim) + 4 * pos, amax / 127.0f);
}

typedef void row_fn(const uint8_t *part, size_t head_dim, size_t pos, float *out);

static inline void row_f32(const uint8_t *part, size_t head_dim, size_t pos, float *out)
{
    memcpy(out, part + 4 * pos * head_dim, 4 * head_dim);
}

static inline void row_f16(const uint8_t *part, size_t head_dim, size_t pos, float *out)
{
    const uint8_t *p = part + 2 * pos * head_dim;
    for (size_t i = 0; i < head_dim; i++)
        out[i] = half_to_float(bnet_u16(p + 2 * i));
}

static inline void row_i8(const uint8_t *part, size_t head_dim, size_t pos, float *out)
{
    const int8_t *p = (const int8_t *)part + pos * head_dim;
    float scale = bnet_f32(part + bnet_kv_scale_offset(head_dim) + 4 * pos);
    for (size_t i = 0; i < head_dim; i++)
        out[i] = (float)p[i] * scale;
}

/* Scores of the block; returns their maximum. */
static inline float score(row_fn *row, const float *q, const uint8_t *k_part, size_t head_dim,
                          size_t n_pos, float scale, float *s)
{
    float k[BNET_MAX_HEAD_DIM], max = -INFINITY;
    for (size_t j = 0; j < n_pos; j++) {
        row(k_part, head_dim, j, k);
        s[j] = bnet_dot_f32(q, k, head_dim) * scale;
        max = s[j] > max ? s[j] : max;
    }
    return max;
}

/* Merges the block's (m, l, o) into the running ones. */
static inline void merge(bnet_softmax *run, float *o, float m, float l, const float *ob,
                         size_t head_dim)
{
    float top = m > run->m ? m : run->m;
    float a = bnet_expf(run->m - top), b = bnet_expf(m - top);
    run->m = top;
    run->l = run->l * a + l * b;
    for (size_t i = 0; i < head_dim; i++)
        o[i] = o[i] * a + ob[i] * b;
}

static inline void attend(row_fn *row, const float *q, const uint8_t *k_part, const uint8_t *v_part,
                          size_t head_dim, size_t n_pos, float scale, bnet_softmax *run, float *o)
{
    float s[BNET_BLOCK_POS], v[BNET_MAX_HEAD_DIM], ob[BNET_MAX_HEAD_DIM];
    float m = score(row, q, k_part, head_dim, n_pos, scale, s), l = 0;
    memset(ob, 0, head_dim * sizeof *ob);
    for (size_t j = 0; j < n_pos; j++) {
        float p = bnet_expf(s[j] - m);
        l += p;
        row(v_part, head_dim, j, v);
        for (size_t i = 0; i < head_dim; i++)
            ob[i] += p * v[i];
    }
    merge(run, o, m, l, ob, head_dim);
}

#define ATTENTION(name)                                                                            \
    void bnet_attention_##name##_scalar(const float *q, const uint8_t *k_part,                     \
                                        const uint8_t *v_part, size_t head_dim, size_t n_pos,      \
                                        float scale, bnet_softmax *run, float *o)                  \
    {                                                                                              \
        attend(row_##name, q, k_part, v_part, head_dim, n_pos, scale, run, o);                     \
    }
ATTENTION(f32)
ATTENTION(f16)
ATTENTION(i8)
