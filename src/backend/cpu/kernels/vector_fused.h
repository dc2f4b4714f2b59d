/* vector_fused.h - what precedes a ternary matrix in one call: a sum or a gate, the norm, int8.
 * The bits are those of the single operations one after the other, which compute in double and
 * round to float in between. Those floats are not
 * needed, so nearly all is done in float without them, with a bound on the error, and repeated in
 * double where the bound does not decide. Include
 * after vector_simd.h.
 *
 * Let s be the factor of the norm, y = x * s * w rounded to float, amax the largest |y|, and q = y
 * * 127 / amax rounded to an integer. In float, p = x * w and v = p * c with c = s * 127 / amax:
 *
 * 1. p, c and v are rounded once each, and y was: |v - y * 127 / amax| < 4 * 2^-24 * 127.1
 * < 3.1e-5. So the integer next to v is q unless v is that close to a half; SURE leaves more room.
 * 2. |y| and |p| * s differ by two roundings, so the largest |y| is among the values whose |p| is
 *    within 2^-22 of the largest |p|; NEAR leaves more room. amax is computed from these exactly.
 *
 * Products too small for a relative error are kept out (usable): then, and where something is
 * infinite or NaN, the operations are done one after the other. */
#ifndef BNET_VECTOR_FUSED_H
#define BNET_VECTOR_FUSED_H

enum { FUSED_STEP = 64, FUSED_STEPS = 512 }; /* values of a step; the most steps there may be */
#define SURE 0.4999f
#define NEAR (1 - 0x1p-20f)

/* What is normed: x, x += b, relu2(x) * b, silu(x) * b. */
typedef enum source { PLAIN, SUM, RELU2, SILU } source;

SIMD vf source_at(source from, const float *x, const float *b)
{
    vf v = vf_load(x);
    if (from == PLAIN)
        return v;
    vf u = vf_load(b);
    if (from == SUM)
        return v + u;
    return from == RELU2 ? vf_relu2(v, u) : vf_silu(v, u);
}

SIMD void source_from(source from, const float *x, const float *b, size_t i, size_t n, float *to)
{
    if (from == SUM)
        add_from(to, b, i, n); /* x is there */
    else if (from != PLAIN)
        (from == RELU2 ? glu_relu2_from : glu_silu_from)(x, b, i, n, to);
}

/* Of whole steps: sums of squares and the largest |p|. What is left in `wrong` is 0 unless some p
 * was infinite or NaN. */
typedef struct first_pass {
    vsquares squares;
    float largest, wrong, of_step[FUSED_STEPS];
} first_pass;

/* The source is left in `to` unless it is x itself. */
SIMD void pass_one(source from, const float *x, const float *b, const float *w, size_t n, float *to,
                   first_pass *f)
{
    vsquares squares = squares_zero();
    vf bad = vf_set(0);
    float lanes[VF];
    f->largest = f->wrong = 0;
    for (size_t i = 0; i + FUSED_STEP <= n; i += FUSED_STEP) {
        vf max[2] = {vf_set(0), vf_set(0)};
        for (size_t j = i; j < i + FUSED_STEP; j += 2 * CHUNK)
            for (int k = 0; k < 2 * CHUNK; k += VF) { /* sums and maxima stay in registers */
                size_t at = j + (size_t)k;
                vf v = source_at(from, x + at, b + at);
                if (from != PLAIN)
                    vf_store(to + at, v);
                squares_add(&squares, k % CHUNK, v);
                vf_amax(v * vf_load(w + at), &max[k / VF % 2], &bad);
            }
        f->of_step[i / FUSED_STEP] = vf_max_lanes(max[0], max[1]);
    }
    for (size_t k = 0; k < n / FUSED_STEP; k++) {
        f->largest = f->of_step[k] > f->largest ? f->of_step[k] : f->largest;
        f->wrong += f->of_step[k] * 0.0f;
    }
    vf_store(lanes, bad);
    for (int l = 0; l < VF; l++)
        f->wrong += lanes[l];
    f->squares = squares;
}

/* The values of a step as the single operations leave them; returns the largest size. */
SIMD float step_normed(const float *h, const float *w, double scale, float y[FUSED_STEP])
{
    vf max = vf_set(0), bad = vf_set(0);
    for (int k = 0; k < FUSED_STEP; k += VF) {
        vf v = vf_normed(vf_load(h + k), vd_set(scale), vf_load(w + k));
        vf_store(y + k, v);
        vf_amax(v, &max, &bad);
    }
    return vf_max_lanes(max, max);
}

/* The largest |y| of the steps that may hold it, at least `most`. */
SIMD float amax_near(const first_pass *f, const float *h, const float *w, size_t n_steps,
                     double scale, float most)
{
    float y[FUSED_STEP];
    for (size_t k = 0; k < n_steps; k++)
        if (f->of_step[k] >= f->largest * NEAR) {
            float m = step_normed(h + k * FUSED_STEP, w + k * FUSED_STEP, scale, y);
            most = m > most ? m : most;
        }
    return most;
}

/* q of whole steps, added to *total. */
SIMD void pass_two(const float *h, const float *w, size_t n, double scale, double exact, int8_t *q,
                   vsum *total)
{
    const vf c = vf_set((float)(scale * exact));
    float y[FUSED_STEP];
    for (size_t i = 0; i + FUSED_STEP <= n; i += FUSED_STEP) {
        vsum before = *total;
        vf doubt = vf_set(0);
        for (size_t k = i; k < i + FUSED_STEP; k += 16) {
            vf v[16 / VF];
            for (size_t l = 0; l < 16 / VF; l++)
                v[l] = vf_load(h + k + l * VF) * vf_load(w + k + l * VF) * c;
            round16_v(v, q + k, total, &doubt);
        }
        if (vf_any_above(doubt, SURE)) {
            *total = before;
            step_normed(h + i, w + i, scale, y);
            for (size_t k = 0; k < FUSED_STEP; k += 16)
                round16_d(y + k, vd_set(exact), q + i + k, total);
        }
    }
}

/* May p and c be relied on? */
static inline bool usable(const first_pass *f, double squares, double c)
{
    return f->wrong == 0 && isfinite(squares) && (f->largest == 0 || f->largest > 0x1p-60f) &&
           c > 0x1p-100 && c < 0x1p100;
}

/* One after the other, of what the source left. */
static inline float norm_then_quantize(const float *h, const bnet_normed *t)
{
    ROW(rmsnorm_f32)(h, t->w, t->n, t->eps, t->y);
    return ROW(quantize_i8)(t->y, t->n, t->stride, t->q, t->sum);
}

SIMD float norm_quantize_simd(source from, const float *x, const float *b, const bnet_normed *t,
                              float *to)
{
    first_pass f;
    const size_t n = t->n, i = n / FUSED_STEP * FUSED_STEP;
    const float *h = from == PLAIN ? x : to, *w = t->w;
    float rest[FUSED_STEP];
    if (i > FUSED_STEP * FUSED_STEPS) {
        source_from(from, x, b, 0, n, to);
        return norm_then_quantize(h, t);
    }
    pass_one(from, x, b, w, n, to, &f);
    source_from(from, x, b, i, n, to);
    double squares = squares_total(&f.squares, h, i, n), scale = norm_scale(squares, n, t->eps);
    norm_from(h + i, w + i, 0, n - i, scale, rest);
    float amax = amax_from(rest, 0, n - i, 1e-5f);
    amax = amax_near(&f, h, w, i / FUSED_STEP, scale, amax);
    double exact = 127.0 / (double)amax;
    if (!usable(&f, squares, scale * exact))
        return norm_then_quantize(h, t);
    vsum total = {0};
    pass_two(h, w, n, scale, exact, t->q, &total);
    *t->sum = vsum_total(total) + quantize_from(rest, 0, n - i, exact, t->q + i);
    memset(t->q + n, 0, t->stride - n);
    return amax / 127.0f;
}

float ROW(norm_quantize)(const float *x, const bnet_normed *to)
{
    return norm_quantize_simd(PLAIN, x, x, to, NULL);
}

float ROW(add_norm_quantize)(float *x, const float *b, const bnet_normed *to)
{
    return norm_quantize_simd(SUM, x, b, to, x);
}

float ROW(glu_relu2_norm_quantize)(const float *gate, const float *up, const bnet_normed *to)
{
    return norm_quantize_simd(RELU2, gate, up, to, to->y);
}

float ROW(glu_silu_norm_quantize)(const float *gate, const float *up, const bnet_normed *to)
{
    return norm_quantize_simd(SILU, gate, up, to, to->y);
}

#endif
