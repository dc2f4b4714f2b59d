/* ref_vector.h - reference kernels for rows of activations: embedding, norm, quantisation, rope,
 * gates, sums. Slow and plain; the same bits as the CPU's scalar kernels. */
#ifndef BNET_REF_VECTOR_H
#define BNET_REF_VECTOR_H

#include "backend/gpu/ref/ref_math.h"

/* one thread per value */
REF_KERNEL(bnet_ref_embed, ref_embed_args)
{
    uint64_t i = REF_THREAD, t = i / a.m.k;
    if (t >= (uint64_t)a.n_tokens)
        return;
    int32_t id = a.ids[t];
    int known = id >= 0 && (uint32_t)id < a.m.n_rows;
    a.x[i] = known ? ref_value(&a.m, a.type, (uint64_t)id, (int)(i % a.m.k)) : 0;
}

/* one thread per row */
REF_KERNEL(bnet_ref_rmsnorm, ref_norm_args)
{
    uint64_t t = REF_THREAD;
    if (t >= (uint64_t)a.n_rows)
        return;
    const float *x = a.x + t * (uint64_t)a.n;
    float *y = a.y + t * (uint64_t)a.n;
    double acc[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    for (int i = 0; i < a.n; i++)
        acc[i % 8] += (double)x[i] * x[i];
    for (int f = 4; f >= 1; f /= 2)
        for (int l = 0; l < f; l++)
            acc[l] += acc[l + f];
    double scale = 1.0 / REF_SQRT(acc[0] / (double)a.n + (double)a.eps);
    for (int i = 0; i < a.n; i++)
        y[i] = (float)((double)x[i] * scale * (double)a.w[i]);
}

/* one thread per row */
REF_KERNEL(bnet_ref_quantize_i8, ref_quantize_args)
{
    uint64_t t = REF_THREAD;
    if (t >= (uint64_t)a.n_rows)
        return;
    const float *x = a.x + t * (uint64_t)a.n;
    int8_t *q = a.act.q + t * (uint64_t)a.act.stride;
    const double magic = 6755399441055744.0; /* 1.5 * 2^52 */
    float amax = 1e-5f;
    for (int i = 0; i < a.n; i++) {
        float v = x[i] < 0 ? -x[i] : x[i];
        amax = v > amax ? v : amax;
    }
    double s = 127.0 / (double)amax;
    int32_t sum = 0;
    for (int i = 0; i < a.n; i++) {
        double v = (double)x[i] * s;
        v = v >= -128.0 ? v : -128.0;
        v = v <= 127.0 ? v : 127.0;
        int8_t r = (int8_t)(int32_t)((v + magic) - magic);
        q[i] = r;
        sum += r;
    }
    for (int i = a.n; i < (int)a.act.stride; i++)
        q[i] = 0;
    a.act.sum[t] = sum;
    a.act.scale[t] = amax / 127.0f;
}

/* one thread per angle */
REF_KERNEL(bnet_ref_rope_table, ref_rope_table_args)
{
    uint64_t i = REF_THREAD, pairs = (uint64_t)a.n_rot / 2, t = i / pairs, j = i % pairs;
    if (t >= (uint64_t)a.n_tokens)
        return;
    if (a.pos[t] < 0)
        return;
    uint64_t from = (uint64_t)a.pos[t] * pairs + j;
    a.cs[2 * i] = a.angles[2 * from];
    a.cs[2 * i + 1] = a.angles[2 * from + 1];
}

/* one thread per pair of values that turn together */
REF_KERNEL(bnet_ref_rope, ref_rope_args)
{
    uint64_t i = REF_THREAD, pairs = (uint64_t)a.n_rot / 2, head = i / pairs, j = i % pairs;
    if (head >= (uint64_t)a.n_rows * (uint64_t)a.n_heads)
        return;
    float *x = a.x + head * (uint64_t)a.head_dim;
    const float *cs = a.cs + (head / (uint64_t)a.n_heads * pairs + j) * 2;
    float *p = a.neox ? x + j : x + 2 * j, *r = a.neox ? x + j + pairs : x + 2 * j + 1;
    float u = *p, v = *r;
    *p = u * cs[0] - v * cs[1];
    *r = u * cs[1] + v * cs[0];
}

/* one thread per value */
REF_KERNEL(bnet_ref_glu, ref_glu_args)
{
    uint64_t i = REF_THREAD;
    if (i >= a.n)
        return;
    float g = a.gate[i];
    if (a.silu) {
        a.y[i] = g / (1.0f + ref_exp(-g)) * a.up[i];
    } else {
        g = g > 0 ? g : 0;
        a.y[i] = g * g * a.up[i];
    }
}

REF_KERNEL(bnet_ref_add, ref_add_args)
{
    uint64_t i = REF_THREAD;
    if (i < a.n)
        a.x[i] += a.y[i];
}

REF_KERNEL(bnet_ref_gather, ref_gather_args)
{
    uint64_t i = REF_THREAD, n = (uint64_t)a.n_cols, r = i / n;
    if (r < (uint64_t)a.n_rows)
        a.y[i] = a.x[(uint64_t)a.rows[r] * n + i % n];
}

/* one thread per row: the best so far are kept in order, equal ones by position */
REF_KERNEL(bnet_ref_topk, ref_topk_args)
{
    uint64_t t = REF_THREAD;
    if (t >= (uint64_t)a.m || a.k < 1)
        return;
    const float *x = a.x + t * (uint64_t)a.n;
    float *value = a.value + t * (uint64_t)a.k, worst = 0;
    int32_t *index = a.index + t * (uint64_t)a.k, n_found = 0;
    for (int32_t i = 0; i < a.n; i++) {
        float v = x[i];
        if (!(v >= -3.4028234663852886e38f && v <= 3.4028234663852886e38f))
            continue;
        if (n_found == a.k && !(v > worst))
            continue;
        int32_t j = n_found < a.k ? n_found++ : a.k - 1;
        for (; j > 0 && v > value[j - 1]; j--) {
            value[j] = value[j - 1];
            index[j] = index[j - 1];
        }
        value[j] = v;
        index[j] = i;
        worst = value[n_found - 1];
    }
    for (; n_found < a.k; n_found++) {
        value[n_found] = 0;
        index[n_found] = -1;
    }
}

/* The host's memory is far: kernels that wait for this one may begin meanwhile. */
REF_KERNEL(bnet_ref_fetch, ref_fetch_args)
{
    uint64_t i = REF_THREAD;
    REF_START_NEXT();
    if (i < a.n)
        a.dst[i] = a.src[i];
}

#endif
