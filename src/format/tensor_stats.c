/* tensor_stats.c - one pass over a tensor's values. Every type packs its rows without gaps, so a
 * tensor is read as one flat array in steps of a few blocks. */
#include "format/tensor_stats.h"

#include <math.h>
#include <stdio.h>

#include "base/file.h"
#include "format/codec.h"

enum {
    STEP = 1024,
    TRITS = 128,
    TQ_BLOCK = 256,
    TOLD = 1 << 16
}; /* a multiple of every block size; one group of I2_S; of TQx; values between two reports */

typedef struct sums {
    double sum, sum_sq;
    uint64_t n_finite;
    uint64_t n_bad_scales; /* of TQx blocks */
    float bad_scale;       /* the first of them */
    bnet_progress *progress;
    uint64_t begun, n_bytes; /* bytes reported before this tensor; bytes of the tensor */
    bool refused;
} sums;

/* Reports that `at` of n values are read. False: the caller cancelled. */
static bool go_on(sums *k, uint64_t at, uint64_t n)
{
    if (at && at % TOLD == 0) {
        double share = (double)at / (double)n;
        k->refused =
            !bnet_progress_at(k->progress, k->begun + (uint64_t)(share * (double)k->n_bytes));
    }
    return !k->refused;
}

static void add_value(bitnet_tensor_stats *s, sums *k, float v)
{
    if (isnan(v)) {
        s->n_nan++;
        return;
    }
    if (isinf(v)) {
        s->n_inf++;
        return;
    }
    double d = (double)v;
    s->n_zero += v == 0.0f;
    if (k->n_finite++ == 0)
        s->min = s->max = d;
    s->min = d < s->min ? d : s->min;
    s->max = d > s->max ? d : s->max;
    k->sum += d;
    k->sum_sq += d * d;
}

static void add_trits(bitnet_tensor_stats *s, sums *k, const int8_t *trits, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++) {
        s->n_minus += trits[i] < 0;
        s->n_plus += trits[i] > 0;
        add_value(s, k, (float)trits[i] * scale);
    }
}

static void read_i2s(const bnet_tensor *t, uint64_t n, bitnet_tensor_stats *s, sums *k)
{
    int8_t trits[TRITS];
    s->scale = bnet_i2s_scale(t->data, n);
    for (uint64_t row = 0; row < n / TRITS && go_on(k, row * TRITS, n); row++) {
        s->n_invalid += bnet_i2s_decode_row(BITNET_I2S_128, t->data, TRITS, row, trits);
        add_trits(s, k, trits, TRITS, s->scale);
    }
}

/* A code of 3 decodes to 2. Only a block without weights may have scale 0. */
static void look_at_block(bitnet_tensor_stats *s, sums *k, const int8_t trits[TQ_BLOCK],
                          float scale)
{
    bool weights = false;
    for (int i = 0; i < TQ_BLOCK; i++) {
        s->n_invalid += trits[i] > 1;
        weights = weights || trits[i] != 0;
    }
    bool sound = isfinite(scale) && (scale > 0 || (scale == 0 && !weights));
    if (!sound && k->n_bad_scales++ == 0)
        k->bad_scale = scale;
}

static void read_tq(const bnet_tensor *t, uint64_t n, const bnet_type_info *type,
                    bitnet_tensor_stats *s, sums *k)
{
    int8_t trits[TQ_BLOCK];
    float scale;
    for (uint64_t b = 0; b < n / TQ_BLOCK && go_on(k, b * TQ_BLOCK, n); b++) {
        bnet_tq_decode_row(t->type, t->data + b * type->n_bytes, trits, &scale, TQ_BLOCK);
        look_at_block(s, k, trits, scale);
        add_trits(s, k, trits, TQ_BLOCK, scale);
    }
}

static void read_values(const bnet_tensor *t, uint64_t n, const bnet_type_info *type,
                        bitnet_tensor_stats *s, sums *k)
{
    float values[STEP];
    for (uint64_t at = 0; at < n && go_on(k, at, n); at += STEP) {
        size_t n_step = (size_t)BNET_MIN((uint64_t)STEP, n - at);
        const uint8_t *src = t->data + at / type->n_elems * type->n_bytes;
        if (!bnet_decode_row(t->type, src, values, n_step))
            return;
        for (size_t i = 0; i < n_step; i++) {
            s->n_minus += s->ternary && values[i] < 0;
            s->n_plus += s->ternary && values[i] > 0;
            add_value(s, k, values[i]);
        }
    }
}

/* ---- what looks wrong, worst first; "" if nothing ---- */

static bool ends_in(const char *name, const char *end)
{
    size_t n = strlen(name), n_end = strlen(end);
    return n >= n_end && strcmp(name + n - n_end, end) == 0;
}

/* Scales, of the tensor, of its blocks, or the tensor itself being one. False: nothing is wrong. */
static bool suspect_scale(const bnet_tensor *t, uint64_t n, const sums *k, bitnet_tensor_stats *s)
{
    bool separate = t->type == BNET_F32 && n == 1 && ends_in(t->name, ".scale");
    float scale = separate ? bnet_f32(t->data) : s->scale;
    if (k->n_bad_scales)
        snprintf(s->suspicious, sizeof s->suspicious, "%llu block scales are bad, the first is %g",
                 (unsigned long long)k->n_bad_scales, (double)k->bad_scale);
    else if ((separate || t->type == BNET_I2_S) && !(scale > 0 && isfinite(scale)))
        snprintf(s->suspicious, sizeof s->suspicious, "scale is %g", (double)scale);
    return s->suspicious[0] != '\0';
}

static void suspect(const bnet_tensor *t, uint64_t n, const sums *k, bitnet_tensor_stats *s)
{
    char *out = s->suspicious;
    const size_t cap = sizeof s->suspicious;
    double norm_lo = 1e-4, norm_hi = 1e4; /* far outside anything trained */
    if (suspect_scale(t, n, k, s))
        return;
    if (s->n_invalid)
        snprintf(out, cap, "%llu code%s 3", (unsigned long long)s->n_invalid,
                 s->n_invalid == 1 ? " is" : "s are");
    else if (s->n_nan)
        snprintf(out, cap, "%llu value%s nan", (unsigned long long)s->n_nan,
                 s->n_nan == 1 ? " is" : "s are");
    else if (s->n_inf)
        snprintf(out, cap, "%llu value%s infinite", (unsigned long long)s->n_inf,
                 s->n_inf == 1 ? " is" : "s are");
    else if (s->n_zero == n)
        snprintf(out, cap, "all zero");
    else if (s->ternary && (s->n_minus == n || s->n_plus == n))
        snprintf(out, cap, "all weights are %s1", s->n_plus == n ? "+" : "-");
    else if (ends_in(t->name, "norm.weight") && (s->rms < norm_lo || s->rms > norm_hi))
        snprintf(out, cap, "rms %.3g is out of range for a norm (%g..%g)", s->rms, norm_lo,
                 norm_hi);
}

bool bnet_tensor_stats(const bnet_tensor *t, bnet_progress *progress, bitnet_tensor_stats *s)
{
    const bnet_type_info *type = bnet_type_find((uint32_t)t->type);
    uint64_t n = bnet_tensor_elems(t);
    sums k = {.progress = progress, .n_bytes = t->n_bytes};
    k.begun = progress ? progress->done : 0;
    memset(s, 0, sizeof *s);
    if (!type || type->kind == BNET_KIND_NAMED)
        return bnet_progress_add(progress, t->n_bytes);
    s->ternary = bnet_type_is_ternary(t->type);
    if (t->type == BNET_I2_S)
        read_i2s(t, n, s, &k);
    else if (bnet_type_is_tq(t->type))
        read_tq(t, n, type, s, &k);
    else
        read_values(t, n, type, s, &k);
    if (k.n_finite) {
        s->mean = k.sum / (double)k.n_finite;
        s->rms = sqrt(k.sum_sq / (double)k.n_finite);
    }
    suspect(t, n, &k, s);
    bnet_map_release(t->data, (size_t)t->n_bytes);
    return !k.refused && bnet_progress_at(progress, k.begun + t->n_bytes);
}
