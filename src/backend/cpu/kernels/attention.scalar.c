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

/* n elements with one scale, absmax / 127, which is returned; zeros store zeros. */
static inline float store_group_i8(const float *x, size_t n, uint8_t *q)
{
    float amax = 0, magic = 12582912.0f;
    for (size_t i = 0; i < n; i++)
        amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
    float s = amax > 0 ? 127.0f / amax : 0;
    for (size_t i = 0; i < n; i++) {
        float v = x[i] * s;
        v = v >= -127.0f ? v : -127.0f;
        v = v <= 127.0f ? v : 127.0f;
        q[i] = (uint8_t)(int8_t)(int32_t)((v + magic) - magic);
    }
    return amax / 127.0f;
}

void bnet_kv_store_i8_scalar(const float *x, size_t head_dim, size_t pos, uint8_t *part)
{
    size_t n_groups = bnet_kv_groups(head_dim);
    uint8_t *scales = part + bnet_kv_scale_offset(head_dim) + 4 * pos * n_groups;
    for (size_t g = 0; g < n_groups; g++) {
        size_t at = g * BNET_KV_GROUP, n = BNET_MIN(head_dim - at, (size_t)BNET_KV_GROUP);
        bnet_put_f32(scales + 4 * g, store_group_i8(x + at, n, part + pos * head_dim + at));
    }
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
    size_t n_groups = bnet_kv_groups(head_dim);
    const int8_t *p = (const int8_t *)part + pos * head_dim;
    const uint8_t *scales = part + bnet_kv_scale_offset(head_dim) + 4 * pos * n_groups;
    for (size_t g = 0; g < n_groups; g++) {
        float scale = bnet_f32(scales + 4 * g);
        size_t end = BNET_MIN(head_dim, (g + 1) * BNET_KV_GROUP);
        for (size_t i = g * BNET_KV_GROUP; i < end; i++)
            out[i] = (float)p[i] * scale;
    }
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
