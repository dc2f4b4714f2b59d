/* attention_simd.h - attention over one block for any width of vector: include one of simd_*.h
 * first. The bits are those of attention_rows.h.
 *
 * Up to four queries of a token are a pack: a key is read, and converted to float, once for all of
 * them. Scores and weights of a pack lie as s[position][query], so that maximum, exponential and
 * sum work on all queries at once. With several tokens a block is converted ahead, and keys of f16
 * are turned (attention_columns.h). `half`: queries and weights are rounded to f16, as the cache
 * is. */
#ifndef BNET_ATTENTION_SIMD_H
#define BNET_ATTENTION_SIMD_H

#include "backend/cpu/kernels/attention_columns.h"

enum {
    AHEAD_DIM = 128,  /* widest head that is converted ahead: 32 KiB of scratch for each part */
    AHEAD_TOKENS = 3, /* fewest tokens for which that pays */
};

/* One part: position j begins at data + j * row_bytes. */
typedef struct part_view {
    const uint8_t *data, *scales; /* scales [64][n_groups] of int8 */
    size_t row_bytes, n_groups;
    bool far; /* likely in memory: worth fetching ahead */
} part_view;

/* Elements i..i+VF-1 of position j. */
typedef vf load_fn(const part_view *p, size_t j, size_t i);

SIMD vf load_f32(const part_view *p, size_t j, size_t i)
{
    return vf_load((const float *)(const void *)(p->data + j * p->row_bytes) + i);
}

SIMD vf load_f16(const part_view *p, size_t j, size_t i)
{
    return vf_from_f16(p->data + j * p->row_bytes + 2 * i);
}

SIMD float scale_of(const part_view *p, size_t j, size_t i)
{
    return bnet_f32(p->scales + 4 * (j * p->n_groups + i / BNET_KV_GROUP));
}

SIMD vf load_i8(const part_view *p, size_t j, size_t i)
{
    return vf_from_i8(p->data + j * p->row_bytes + i) * vf_set(scale_of(p, j, i));
}

/* Asks for positions j .. j + n - 1 of a part that is not in the caches yet. */
SIMD void fetch(const part_view *p, size_t j, size_t n)
{
    if (p->far)
        for (size_t i = j * p->row_bytes; i < (j + n) * p->row_bytes; i += 64)
            __builtin_prefetch(p->data + i);
}

/* What is read soon: lines of memory, asked for into the second cache a few at a time, between
 * products. All at once they would hold these up. */
typedef struct soon {
    const uint8_t *data;
    size_t n_lines;
} soon;

/* Shares begin .. end - 1 of n. */
SIMD soon some_of(const soon *all, size_t begin, size_t end, size_t n)
{
    size_t first = all->n_lines * begin / n;
    if (all->n_lines == 0) /* data may be NULL */
        return *all;
    return (soon){all->data + 64 * first, all->n_lines * end / n - first};
}

/* `each` lines at every position. */
SIMD void fetch_soon(const soon *next, size_t j, size_t each)
{
    size_t end = BNET_MIN((j + 1) * each, next->n_lines);
    for (size_t l = j * each; l < end; l++)
        __builtin_prefetch(next->data + 64 * l, 0, 2);
}

SIMD part_view view_of(const uint8_t *part, size_t elem, size_t head_dim)
{
    return (part_view){part, part + bnet_kv_scale_offset(head_dim), elem * head_dim,
                       bnet_kv_groups(head_dim), true};
}

/* ---- scores ---- */

/* Half of the running sums of nq queries and np positions from j on: those at `at` and, where a
 * pass has two chunks, at + 8, already added. */
SIMD void sums(load_fn *load, const int nq, const int np, const float *q, size_t hd,
               const part_view *k, size_t j, size_t at, vf out[PACK][TILE])
{
    vf acc[PACK][TILE][N_CHUNKS];
    for (int a = 0; a < nq; a++)
        for (int p = 0; p < np; p++)
            for (int c = 0; c < N_CHUNKS; c++)
                acc[a][p][c] = vf_set(0);
    for (size_t i = at; i < hd; i += 16)
        for (int c = 0; c < N_CHUNKS; c++) {
            vf kv[TILE];
            for (int p = 0; p < np; p++)
                kv[p] = load(k, j + (size_t)p, i + 8 * (size_t)c);
            for (int a = 0; a < nq; a++) {
                vf x = vf_load(q + (size_t)a * hd + i + 8 * (size_t)c);
                for (int p = 0; p < np; p++)
                    acc[a][p][c] = vf_fma(x, kv[p], acc[a][p][c]);
            }
        }
    for (int a = 0; a < nq; a++)
        for (int p = 0; p < np; p++) {
            out[a][p] = acc[a][p][0];
            if (N_CHUNKS == 2)
                out[a][p] += acc[a][p][N_CHUNKS - 1];
        }
}

SIMD void score_tile(load_fn *load, const int nq, const int np, const float *q, size_t hd,
                     const part_view *k, size_t j, float scale, float *s)
{
    vf x[PACK][TILE], y[PACK][TILE];
    sums(load, nq, np, q, hd, k, j, 0, x);
    if (N_PASSES == 2) {
        sums(load, nq, np, q, hd, k, j, PASS_STEP, y);
        for (int a = 0; a < nq; a++)
            for (int p = 0; p < np; p++)
                x[a][p] += y[a][p];
    }
    for (int p = 0; p < np; p++) {
        v4 f[PACK];
        for (int a = 0; a < PACK; a++)
            f[a] = a < nq ? vf_fold(x[a][p]) : v4_set(0);
        v4 dots = v4_fold_each(f[0], f[1], f[2], f[3]);
        v4_store(s + PACK * (j + (size_t)p), dots * v4_set(scale));
    }
}

/* On the way the values are fetched, which are read column by column. */
SIMD void scores(load_fn *load, const int nq, const float *q, size_t hd, const part_view *k,
                 const part_view *v, size_t n_pos, float scale, float *s)
{
    const int np = TILE / (nq == 3 ? 4 : nq); /* as many sums in flight for fewer queries */
    size_t j = 0;
    for (; j + (size_t)np <= n_pos; j += (size_t)np) {
        fetch(v, j, (size_t)np);
        score_tile(load, nq, np, q, hd, k, j, scale, s);
    }
    for (; j < n_pos; j++)
        score_tile(load, nq, 1, q, hd, k, j, scale, s);
}

/* ---- scores of halves: 8 running sums ---- */

/* Elements i..i+7 of positions j, j + step, ...: as many as a v8 has rows. */
SIMD v8 load8_f16(const part_view *p, size_t j, size_t i, size_t step)
{
    return v8_from_f16(p->data + j * p->row_bytes + 2 * i, step * p->row_bytes);
}

/* nt vectors of positions from j on; step 0: the position j alone. */
SIMD void score_tile8(const int nq, const int nt, const size_t step, const float *q, size_t hd,
                      const part_view *k, size_t j, float scale, float *s)
{
    v8 acc[PACK][V8_TILE];
    for (int a = 0; a < nq; a++)
        for (int t = 0; t < nt; t++)
            acc[a][t] = v8_zero();
    for (size_t i = 0; i < hd; i += 8) {
        v8 kv[V8_TILE];
        for (int t = 0; t < nt; t++)
            kv[t] = load8_f16(k, j + (size_t)(t * V8_ROWS), i, step);
        for (int a = 0; a < nq; a++) {
            v8 x = v8_load(q + (size_t)a * hd + i);
            for (int t = 0; t < nt; t++)
                acc[a][t] = v8_fma(x, kv[t], acc[a][t]);
        }
    }
    for (int t = 0; t < nt; t++)
        for (int r = 0; r < (step ? V8_ROWS : 1); r++) {
            v4 f[PACK];
            for (int a = 0; a < PACK; a++)
                f[a] = a < nq ? v8_fold(acc[a][t], r) : v4_set(0);
            v4 dots = v4_fold_each(f[0], f[1], f[2], f[3]);
            v4_store(s + PACK * (j + (size_t)(t * V8_ROWS + r)), dots * v4_set(scale));
        }
}

SIMD void scores8(const int nq, const float *q, size_t hd, const part_view *k, const part_view *v,
                  size_t n_pos, float scale, float *s)
{
    const int nt = V8_TILE / (nq == 3 ? 4 : nq), np = nt * V8_ROWS;
    size_t j = 0;
    for (; j + (size_t)np <= n_pos; j += (size_t)np) {
        fetch(v, j, (size_t)np);
        score_tile8(nq, nt, 1, q, hd, k, j, scale, s);
    }
    for (; j < n_pos; j++)
        score_tile8(nq, 1, 0, q, hd, k, j, scale, s);
}

/* ---- weights: s becomes e^(s - maximum) ---- */

/* The largest score of every query; -infinity where all are NaN, and of zeros either sign. */
SIMD v4 largest(const float *s, size_t n_pos)
{
    vf wide = vf_set(-INFINITY);
    size_t i = 0, n = PACK * n_pos;
    for (; i + VF <= n; i += VF)
        wide = vf_pick_max(vf_load(s + i), wide);
    float parts[VF];
    vf_store(parts, wide);
    v4 max = v4_load(parts);
    for (size_t p = PACK; p < VF; p += PACK)
        max = v4_pick_max(v4_load(parts + p), max);
    for (; i < n; i += PACK)
        max = v4_pick_max(v4_load(s + i), max);
    return max;
}

SIMD void weights(const bool half, float *s, size_t n_pos, float m[PACK], float l[PACK])
{
    v4 max = largest(s, n_pos), sum = v4_set(0);
    size_t n = PACK * n_pos, padded = (n + VF - 1) / VF * VF;
    for (size_t i = n; i < padded; i++)
        s[i] = 0;
    for (size_t i = 0; i < padded; i += VF) {
        vf p = vf_exp_negative(vf_load(s + i) - vf_repeat(max));
        vf_store(s + i, half ? vf_round_f16(p) : p);
    }
    for (size_t i = 0; i < n; i += PACK)
        sum += v4_load(s + i);
    v4_store(m, max);
    v4_store(l, sum);
}

/* ---- values ---- */

/* Elements i .. i + nv * VF - 1 of the weighted values of nq queries. */
SIMD void weigh_columns(load_fn *load, const int nq, const int nv, const float *s,
                        const part_view *v, size_t n_pos, size_t hd, size_t i, const soon *next,
                        float *o)
{
    const soon now = some_of(next, i, i + (size_t)(nv * VF), hd);
    const size_t each = now.n_lines / n_pos + 1;
    vf acc[PACK][OUT_VECTORS];
    for (int a = 0; a < nq; a++)
        for (int c = 0; c < nv; c++)
            acc[a][c] = vf_set(0);
    for (size_t j = 0; j < n_pos; j++) {
        vweights w = vw_load(s + PACK * j);
        fetch_soon(&now, j, each);
        for (int c = 0; c < nv; c++) {
            vf x = load(v, j, i + (size_t)(c * VF));
            acc[0][c] = vw_fma(x, w, 0, acc[0][c]);
            if (nq > 1)
                acc[1][c] = vw_fma(x, w, 1, acc[1][c]);
            if (nq > 2)
                acc[2][c] = vw_fma(x, w, 2, acc[2][c]);
            if (nq > 3)
                acc[3][c] = vw_fma(x, w, 3, acc[3][c]);
        }
    }
    for (int a = 0; a < nq; a++)
        for (int c = 0; c < nv; c++)
            vf_store(o + (size_t)a * hd + i + (size_t)(c * VF), acc[a][c]);
}

/* On the way what is read next is fetched, a piece for every column. */
SIMD void weigh(load_fn *load, const int nq, const float *s, const part_view *v, const soon *next,
                size_t n_pos, size_t hd, float *o)
{
    const size_t step = OUT_VECTORS * VF;
    size_t i = 0;
    for (; i + step <= hd; i += step)
        weigh_columns(load, nq, OUT_VECTORS, s, v, n_pos, hd, i, next, o);
    for (; i < hd; i += VF)
        weigh_columns(load, nq, 1, s, v, n_pos, hd, i, next, o);
}

/* ---- packs, tokens ---- */

/* Scratch (temp) is the rounded queries of a pack, in the rows of halves, then what is converted
 * ahead. Behind queries of heads that are converted ahead there is room for sums. */
enum { ROUNDED = BNET_TEMP_QUERIES / sizeof(float) };
_Static_assert(BNET_TEMP_AHEAD == 2 * BNET_BLOCK_POS * AHEAD_DIM * sizeof(float) &&
                   BNET_TEMP_QUERIES == PACK * BNET_MAX_HEAD_DIM * sizeof(float) &&
                   PACK * AHEAD_DIM + COLUMN_SUMS <= ROUNDED,
               "scratch of attention");

/* The queries of a pack, rounded into `to`. */
SIMD const float *round_queries(const float *q, size_t n, float *to)
{
    for (size_t i = 0; i < n; i += VF)
        vf_store(to + i, vf_round_f16(vf_load(q + i)));
    return to;
}

SIMD void attend_pack(load_fn *load, const bool half, const int nq, const bnet_attend *a,
                      const part_view *k, const part_view *v, const soon *next, size_t t, size_t g)
{
    _Alignas(64) float s[BNET_BLOCK_POS * PACK];
    float m[PACK], l[PACK];
    size_t at = t * a->n_heads + g, hd = a->head_dim, n_pos = a->n_pos[t];
    const float *q = a->q + t * a->q_stride + g * hd;
    if (half) {
        q = round_queries(q, (size_t)nq * hd, a->temp);
        if (load == load_f16)
            scores8(nq, q, hd, k, v, n_pos, a->scale, s);
        else /* keys were turned ahead */
            scores_turned(nq, q, hd, (const float *)(const void *)k->data, n_pos, a->scale, s,
                          (float *)a->temp + PACK * AHEAD_DIM);
    } else
        scores(load, nq, q, hd, k, v, n_pos, a->scale, s);
    weights(half, s, n_pos, m, l);
    weigh(load, nq, s, v, next, n_pos, hd, a->o + at * hd);
    for (int i = 0; i < nq; i++)
        a->block[at + (size_t)i] = (bnet_softmax){m[i], l[i]};
}

SIMD void attend_token(load_fn *load, const bool half, const bnet_attend *a, const part_view *k,
                       const part_view *v, const soon *next, size_t t)
{
    size_t g = 0;
    for (; g + 4 <= a->n_heads; g += 4)
        attend_pack(load, half, 4, a, k, v, next, t, g);
    switch (a->n_heads - g) {
    case 3:
        attend_pack(load, half, 3, a, k, v, next, t, g);
        break;
    case 2:
        attend_pack(load, half, 2, a, k, v, next, t, g);
        break;
    case 1:
        attend_pack(load, half, 1, a, k, v, next, t, g);
        break;
    default:
        break;
    }
}

/* Straight from the cache, whose next keys every pack asks for. */
SIMD void attend_views(load_fn *load, const bool half, const bnet_attend *a, const part_view *k,
                       const part_view *v)
{
    const soon next = {a->k_next, a->k_next ? BNET_BLOCK_POS * k->row_bytes / 64 : 0};
    for (size_t t = 0; t < a->n_tokens; t++)
        attend_token(load, half, a, k, v, &next, t);
}

SIMD part_view convert(load_fn *load, const part_view *p, size_t n_pos, size_t hd, float *to)
{
    for (size_t j = 0; j < n_pos; j++)
        for (size_t i = 0; i < hd; i += 16) {
            float *at = to + j * hd + i;
            if (load == load_i8)
                scale16_i8(p->data + j * p->row_bytes + i, scale_of(p, j, i), at);
            else
                for (size_t k = 0; k < 16; k += VF)
                    vf_store(at + k, load(p, j, i + k));
        }
    return (part_view){(const uint8_t *)to, NULL, hd * sizeof *to, 0, false};
}

SIMD void attend_ahead(load_fn *load, const bnet_attend *a, const part_view *k, const part_view *v)
{
    float *kf = (float *)a->temp + (load == load_f16 ? ROUNDED : 0);
    float *vals = kf + BNET_BLOCK_POS * AHEAD_DIM;
    size_t n_pos = 0;
    for (size_t t = 0; t < a->n_tokens; t++)
        n_pos = BNET_MAX(n_pos, (size_t)a->n_pos[t]);
    part_view kk = {(const uint8_t *)kf, NULL, 0, 0, false};
    if (load == load_f16)
        turn_keys(k->data, n_pos, a->head_dim, kf);
    else
        kk = convert(load, k, n_pos, a->head_dim, kf);
    part_view vv = convert(load, v, n_pos, a->head_dim, vals);
    /* the values lie behind the keys; packs of one token ask for the same */
    const size_t part = load == load_i8 ? bnet_kv_part_bytes(BITNET_KV_INT8, a->head_dim)
                                        : BNET_BLOCK_POS * k->row_bytes;
    const soon all = {a->k_next, a->k_next ? 2 * part / 64 : 0};
    for (size_t t = 0; t < a->n_tokens; t++) {
        const soon next = some_of(&all, t, t + 1, a->n_tokens);
        attend_token(load_f32, load == load_f16, a, &kk, &vv, &next, t);
    }
}

#define BNET_ATTENTION_ROW(name, elem, ahead_tokens)                                               \
    static __attribute__((noinline)) void ahead_##name(const bnet_attend *a, const part_view *k,   \
                                                       const part_view *v)                         \
    {                                                                                              \
        attend_ahead(load_##name, a, k, v);                                                        \
    }                                                                                              \
    void ROW(attention_##name)(const bnet_attend *a)                                               \
    {                                                                                              \
        if (a->head_dim % 16 != 0) {                                                               \
            attend_rows(row_##name, a);                                                            \
            return;                                                                                \
        }                                                                                          \
        part_view k = view_of(a->k_part, elem, a->head_dim),                                       \
                  v = view_of(a->v_part, elem, a->head_dim);                                       \
        if (a->n_tokens >= (ahead_tokens) && a->head_dim <= AHEAD_DIM)                             \
            ahead_##name(a, &k, &v);                                                               \
        else                                                                                       \
            attend_views(load_##name, load_##name == load_f16, a, &k, &v);                         \
        join_block(a);                                                                             \
    }

#endif
