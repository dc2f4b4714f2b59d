/* attention.scalar.c - the cache's blocks: storing positions, and attention over one block. */
#include "backend/cpu/kernels/attention_rows.h"

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

#define ATTENTION(name)                                                                            \
    void bnet_attention_##name##_scalar(const bnet_attend *a)                                      \
    {                                                                                              \
        attend_rows(row_##name, a);                                                                \
    }
ATTENTION(f32)
ATTENTION(f16)
ATTENTION(i8)
