/* ref_attention.h - reference kernels for the cache: storing positions, attention over them. Blocks
 * of 64 positions, each reduced on its own and merged in order, as on the CPU. With an f16 cache
 * queries and weights are rounded to f16 too: where a score differs in its last bit, a weight may
 * fall to the neighbouring half, 2^-11 of it away. */
#ifndef BNET_REF_ATTENTION_H
#define BNET_REF_ATTENTION_H

#include "backend/gpu/ref/ref_math.h"

enum { POS = 64, GROUP = 32, HEAD_MAX = 1024, KV_F16 = 0, KV_F32 = 1, KV_INT8 = 2 };

REF_FN uint8_t *part_of(const ref_kv_args *a, const bnet_dev_seq *s, int pos, int head, int is_v)
{
    uint64_t block = (uint64_t)a->step.tables[s->table + (uint32_t)(pos / POS)];
    return (uint8_t *)s->kv + (uint64_t)a->layer * s->layer_bytes +
           (block * (uint64_t)a->n_kv_heads * 2 + 2 * (uint64_t)head + (uint64_t)is_v) *
               (uint64_t)a->part_bytes;
}

REF_FN void put_f32(uint8_t *p, float f)
{
    uint32_t u = REF_BITS(f);
    p[0] = (uint8_t)u;
    p[1] = (uint8_t)(u >> 8);
    p[2] = (uint8_t)(u >> 16);
    p[3] = (uint8_t)(u >> 24);
}

REF_FN int scales_at(int head_dim)
{
    return (POS * head_dim + 3) / 4 * 4;
}

REF_FN void store_i8(const float *x, int hd, int pos, uint8_t *part)
{
    int n_groups = (hd + GROUP - 1) / GROUP;
    uint8_t *scales = part + scales_at(hd) + 4 * pos * n_groups;
    const float magic = 12582912.0f;
    for (int g = 0; g < n_groups; g++) {
        int end = (g + 1) * GROUP < hd ? (g + 1) * GROUP : hd;
        float amax = 0;
        for (int i = g * GROUP; i < end; i++) {
            float v = x[i] < 0 ? -x[i] : x[i];
            amax = v > amax ? v : amax;
        }
        float s = amax > 0 ? 127.0f / amax : 0;
        for (int i = g * GROUP; i < end; i++) {
            float v = x[i] * s;
            v = v >= -127.0f ? v : -127.0f;
            v = v <= 127.0f ? v : 127.0f;
            part[pos * hd + i] = (uint8_t)(int8_t)(int32_t)((v + magic) - magic);
        }
        put_f32(scales + 4 * g, amax / 127.0f);
    }
}

/* one thread per token, kv head, and key or value */
REF_KERNEL(bnet_ref_kv_store, ref_kv_args)
{
    uint64_t i = REF_THREAD, per = 2 * (uint64_t)a.n_kv_heads, t = i / per;
    if (t >= (uint64_t)a.n_tokens || a.step.pos[t] < 0)
        return;
    const bnet_dev_seq *s = a.step.seqs + a.step.seq[t];
    int is_v = (int)(i % 2), head = (int)(i % per / 2), hd = a.head_dim, pos = a.step.pos[t];
    const float *x =
        (is_v ? a.v : a.k) + (t * (uint64_t)a.n_kv_heads + (uint64_t)head) * (uint64_t)hd;
    uint8_t *part = part_of(&a, s, pos, head, is_v);
    pos %= POS;
    if (a.type == KV_INT8) {
        store_i8(x, hd, pos, part);
        return;
    }
    for (int j = 0; j < hd; j++) {
        if (a.type == KV_F32)
            put_f32(part + 4 * (pos * hd + j), x[j]);
        else {
            uint32_t h = ref_to_half(x[j]);
            part[2 * (pos * hd + j)] = (uint8_t)h;
            part[2 * (pos * hd + j) + 1] = (uint8_t)(h >> 8);
        }
    }
}

/* Element i of one position of a part as a float. */
REF_FN float cached(int type, const uint8_t *part, int hd, int pos, int i)
{
    int n_groups = (hd + GROUP - 1) / GROUP;
    if (type == KV_F32)
        return REF_FLOAT_BITS(ref_u32(part + 4 * (pos * hd + i)));
    if (type == KV_F16)
        return ref_half(ref_u16(part + 2 * (pos * hd + i)));
    return (float)(int8_t)part[pos * hd + i] *
           REF_FLOAT_BITS(ref_u32(part + scales_at(hd) + 4 * (pos * n_groups + i / GROUP)));
}

/* The product of a query and the key of a position; f16 caches take 8 running sums, others 16. */
REF_FN float score(int type, const float *q, const uint8_t *k, int hd, int pos, float scale)
{
    float acc[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    int n_sums = type == KV_F16 ? 8 : 16;
    for (int first = 0; first < hd; first += n_sums)
        for (int i = 0; i < n_sums && first + i < hd; i++)
            acc[i] += q[first + i] * cached(type, k, hd, pos, first + i);
    return ref_fold16(acc) * scale;
}

/* As an f16 cache has it; other caches leave a value alone. */
REF_FN float rounded(int type, float x)
{
    return type == KV_F16 ? ref_half(ref_to_half(x)) : x;
}

/* one thread per token and head */
REF_KERNEL(bnet_ref_attention, ref_kv_args)
{
    uint64_t item = REF_THREAD, t = item / (uint64_t)a.n_heads;
    int head = (int)(item % (uint64_t)a.n_heads);
    if (t >= (uint64_t)a.n_tokens || a.step.pos[t] < 0)
        return;
    const bnet_dev_seq *s = a.step.seqs + a.step.seq[t];
    int hd = a.head_dim, n_pos = a.step.pos[t] + 1;
    int kv_head = head / (a.n_heads / a.n_kv_heads);
    const float *q = a.q + item * (uint64_t)hd;
    float *o = a.y + item * (uint64_t)hd, w[POS], query[HEAD_MAX];
    float run_m = REF_FLOAT_BITS(0xff800000u), run_l = 0;
    for (int i = 0; i < hd; i++) {
        query[i] = rounded(a.type, q[i]);
        o[i] = 0;
    }
    for (int first = 0; first < n_pos; first += POS) {
        int n = n_pos - first < POS ? n_pos - first : POS;
        const uint8_t *k = part_of(&a, s, first, kv_head, 0),
                      *v = part_of(&a, s, first, kv_head, 1);
        float m = REF_FLOAT_BITS(0xff800000u), l = 0;
        for (int j = 0; j < n; j++) {
            w[j] = score(a.type, query, k, hd, j, a.scale);
            m = w[j] > m ? w[j] : m;
        }
        for (int j = 0; j < n; j++) {
            w[j] = rounded(a.type, ref_exp(w[j] - m));
            l += w[j];
        }
        float top = m > run_m ? m : run_m;
        float keep = ref_exp(run_m - top), add = ref_exp(m - top);
        run_m = top;
        run_l = run_l * keep + l * add;
        for (int i = 0; i < hd; i++) {
            float sum = 0;
            for (int j = 0; j < n; j++)
                sum += w[j] * cached(a.type, v, hd, j, i);
            o[i] = o[i] * keep + sum * add;
        }
    }
    float norm = 1.0f / run_l;
    for (int i = 0; i < hd; i++)
        o[i] *= norm;
}

#endif
