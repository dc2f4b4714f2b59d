/* attention_rows.h - attention over one block, value by value: the meaning of every attention row,
 * and what the vector rows do with head sizes that are no multiple of 16.
 *
 * A score is the sum of q[i] * k[i] in 16 running sums of fused multiply-adds, element i in sum
 * i % 16, folded 8, 4 and then by neighbours, times the scale. The block's values are weighted with
 * fused multiply-adds by ascending position. Nothing depends on which other queries are in the
 * call.
 *
 * With an f16 cache queries and weights are rounded to f16 as well, the sum of the weights is that
 * of the rounded ones, and a score has 8 running sums. A product of two halves is a float exactly,
 * so it makes no difference whether an instruction multiplies halves or floats that were converted
 * before. */
#ifndef BNET_ATTENTION_ROWS_H
#define BNET_ATTENTION_ROWS_H

#include <math.h>

#include "backend/cpu/half_inline.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/softmax.h"
#include "ops/kv_block.h"
#include "base/mathf.h"

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

static inline float round_half(float x)
{
    return half_to_float(float_to_half(x));
}

/* n_sums running sums: 16 or 8 */
static inline float dot_fused(const float *a, const float *b, size_t n, const size_t n_sums)
{
    float acc[16] = {0};
    size_t i = 0;
    for (; i + n_sums <= n; i += n_sums)
        for (size_t l = 0; l < n_sums; l++)
            acc[l] = bnet_fmaf(a[i + l], b[i + l], acc[l]);
    for (size_t l = 0; i + l < n; l++)
        acc[l] = bnet_fmaf(a[i + l], b[i + l], acc[l]);
    for (size_t w = n_sums / 2; w >= 4; w /= 2)
        for (size_t l = 0; l < w; l++)
            acc[l] += acc[l + w];
    return (acc[0] + acc[1]) + (acc[2] + acc[3]);
}

/* One query: maximum and sum of the block's weights, and its weighted values out [head_dim]. It
 * works on copies, in `temp`: an emulator in use (QEMU 7.2) reads 16 bytes where a fused
 * instruction for one float reads 4, and the end of the caller's memory may be the end of a page.
 */
static inline bnet_softmax attend_one(row_fn *row, const bnet_attend *a, const float *query,
                                      size_t n_pos, float *out)
{
    enum { ROOM = BNET_TEMP_ROWS / 3 / sizeof(float) };
    float s[BNET_BLOCK_POS], *kv = a->temp, *q = kv + ROOM, *o = q + ROOM;
    bnet_softmax b = {-INFINITY, 0};
    const bool half = row == row_f16;
    for (size_t i = 0; i < a->head_dim; i++)
        q[i] = half ? round_half(query[i]) : query[i];
    for (size_t j = 0; j < n_pos; j++) {
        row(a->k_part, a->head_dim, j, kv);
        s[j] = dot_fused(q, kv, a->head_dim, half ? 8 : 16) * a->scale;
        b.m = s[j] > b.m ? s[j] : b.m;
    }
    memset(o, 0, a->head_dim * sizeof *o);
    for (size_t j = 0; j < n_pos; j++) {
        float p = bnet_expf(s[j] - b.m);
        p = half ? round_half(p) : p;
        b.l += p;
        row(a->v_part, a->head_dim, j, kv);
        for (size_t i = 0; i < a->head_dim; i++)
            o[i] = bnet_fmaf(p, kv[i], o[i]);
    }
    memcpy(out, o, a->head_dim * sizeof *o);
    return b;
}

/* The last thing that every row does. */
static inline void join_block(const bnet_attend *a)
{
    for (size_t i = 0; a->run && i < a->n_tokens * a->n_heads; i++)
        bnet_softmax_merge(&a->run[i],
                           a->y + i / a->n_heads * a->q_stride + i % a->n_heads * a->head_dim,
                           &a->block[i], a->o + i * a->head_dim, a->head_dim);
}

static inline void attend_rows(row_fn *row, const bnet_attend *a)
{
    for (size_t t = 0; t < a->n_tokens; t++)
        for (size_t g = 0; g < a->n_heads; g++) {
            size_t at = t * a->n_heads + g;
            a->block[at] = attend_one(row, a, a->q + t * a->q_stride + g * a->head_dim, a->n_pos[t],
                                      a->o + at * a->head_dim);
        }
    join_block(a);
}

#endif
