/* emulated_head_copy.c - what the kernels of backend/cuda/head_copy.h mean, with the CPU's
 * arithmetic: the copy of a head, the bounds made of it, the rows that are computed. */
#define BNET_CUDA_EMULATED_FAST 1
#include "backend/cuda/head_copy.h"
#include "backend/gpu/ref/ref_math.h"
#include "emulated_fast.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint32_t order(float v)
{
    uint32_t b = ref_bits(v);
    return b & 0x80000000u ? ~b : b | 0x80000000u;
}

/* ---- the copy ---- */

static int8_t *place(const bnet_cu_screen_args *a, uint32_t row, uint32_t k)
{
    uint64_t unit = (uint64_t)(row / 16) * (a->m.stride / 32) + k / 32;
    uint32_t r = row % 16, c = k % 32;
    return a->codes + unit * BNET_SCREEN_UNIT + (4 * (r % 8) + c % 16 / 4) * 16 +
           (r / 8 + c / 16 * 2) * 4 + c % 4;
}

static void pack_row(const bnet_cu_screen_args *a, uint32_t row, int type)
{
    float top = 0;
    double norm = 0, rest = 0;
    for (uint32_t k = 0; row < a->m.n_rows && k < a->m.k; k++) {
        float v = ref_value(&a->m, type, row, (int)k);
        top = fmaxf(top, fabsf(v));
        norm += (double)v * v;
    }
    int known = norm < 1e60 && row < a->m.n_rows;
    float scale = known ? top / 127.0f : 0, inverse = known && top > 0 ? 127.0f / top : 0;
    for (uint32_t k = 0; k < a->m.stride; k++) {
        float v = known && k < a->m.k ? ref_value(&a->m, type, row, (int)k) : 0;
        int q = (int)fminf(fmaxf(rintf(v * inverse), -127.0f), 127.0f);
        double d = (double)v - (double)scale * q;
        rest += d * d;
        *place(a, row, k) = (int8_t)q;
    }
    rest = sqrt(rest);
    a->rows[row] = (bnet_cu_screen_row){
        scale, known ? (float)(rest * (1 + 1e-6)) + 1e-37f : INFINITY,
        known ? (float)((sqrt(norm) + rest) * (1 + 1e-6)) + 1e-37f : INFINITY, 0};
}

static void pack(const bnet_cu_screen_args *a, int type)
{
    for (uint32_t row = 0; row < (a->m.n_rows + 15) / 16 * 16; row++)
        pack_row(a, row, type);
}

/* ---- what every logit is at most and at least ---- */

typedef struct input {
    float unit, reach, slack;
    int *q; /* [stride] */
} input;

static input measure(const bnet_cu_screen_args *a, const float *x)
{
    float top = 0, ss = 0, root = sqrtf((float)a->m.stride), inverse = 0, u = 0x1p-24f;
    input in = {.q = calloc(a->m.stride, sizeof *in.q)};
    for (uint32_t i = 0; i < a->m.k; i++) {
        top = fmaxf(top, fabsf(x[i]));
        ss += x[i] * x[i];
    }
    in.reach = sqrtf(ss * 1.0001f + 1e-36f);
    if (top > 1e-30f && ss < 1e37f) {
        in.unit = top / 32512.0f;
        inverse = 32512.0f / top;
    }
    float e = top > 1e-30f ? 0.52f * in.unit * root : in.reach;
    in.slack =
        e * 1.001f + (float)(2 * (a->m.stride / 32 + 64)) * u * (in.reach + 256 * in.unit * root);
    if (!(ss < 1e37f))
        in.reach = INFINITY;
    for (uint32_t i = 0; inverse > 0 && i < a->m.k; i++)
        in.q[i] = (int)rintf(x[i] * inverse);
    return in;
}

/* Where a row's bound lies; *group: which one it is in. */
static float *most_of(const bnet_cu_screen_args *a, uint32_t token, uint32_t row, uint32_t *group)
{
    uint32_t r = row % BNET_SCREEN_BATCH_ROWS;
    if (!a->least)
        return a->most + (uint64_t)token * a->m.n_rows + row;
    *group = row / BNET_SCREEN_BATCH_ROWS * 8 + r / 128 * 4 + r % 64 / 16;
    return a->most + ((uint64_t)token * a->n_groups + *group) * 32 + r % 8 * 4 + r % 128 / 64 * 2 +
           r % 16 / 8;
}

/* A row's logit at least, by order(); 0: it is not known. Writes what it is at most. */
static uint32_t scan_row(const bnet_cu_screen_args *a, const input *in, uint32_t token,
                         uint32_t row)
{
    uint32_t unused;
    const bnet_cu_screen_row *r = &a->rows[row];
    int64_t sum = 0;
    for (uint32_t k = 0; k < a->m.stride; k += 4) { /* four codes lie together */
        const int8_t *code = place(a, row, k);
        for (int i = 0; i < 4; i++)
            sum += code[i] * in->q[k + i];
    }
    float v = (float)sum * (r->scale * in->unit);
    float b = r->rest * in->reach + (r->norm * in->slack + 1e-33f);
    int known = r->norm * in->reach < 1e37f;
    *most_of(a, token, row, &unused) = known ? v + b : INFINITY;
    return known ? order(v - b) : 0;
}

/* Groups are the tiles of a warp, or of several. */
static void scan(const bnet_cu_screen_args *a)
{
    extern uint64_t bnet_emulated_grid;
    uint32_t blocks = a->n_groups / a->parts;
    if (blocks != bnet_emulated_grid)
        abort();
    memset(a->groups, 0, (size_t)a->n_tokens * a->n_groups * sizeof *a->groups);
    for (uint32_t t = 0; t < a->n_tokens; t++) {
        input in = measure(a, a->x + (uint64_t)t * a->ldx);
        for (uint32_t row = 0; row < a->m.n_rows; row++) {
            uint32_t tile = row / 16, least = scan_row(a, &in, t, row);
            uint32_t *group = a->groups + (uint64_t)t * a->n_groups + tile % blocks * a->parts +
                              tile / blocks % 16 % a->parts;
            *group = least > *group ? least : *group;
        }
        free(in.q);
    }
}

/* ---- batches: bytes of vectors, leaders of groups ---- */

static uint8_t *byte_at(const bnet_cu_screen_args *a, uint32_t column, uint32_t k)
{
    return a->bytes + ((uint64_t)(k / 128) * a->columns + column) * 128 +
           (k % 128 / 16 ^ (column & 7)) * 16 + k % 16;
}

FAST(bnet_screen_split, bnet_cu_screen_args)
{
    memset(a->bytes, 0, bnet_screen_batch_bytes(a));
    for (uint32_t t = 0; t < a->n_tokens; t++) {
        input in = measure(a, a->x + (uint64_t)t * a->ldx);
        for (uint32_t k = 0; k < a->m.k; k++) {
            *byte_at(a, 2 * t, k) = (uint8_t)((in.q[k] + 128) >> 8);
            *byte_at(a, 2 * t + 1, k) = (uint8_t)in.q[k];
        }
        memcpy(a->inputs + 4 * t, (float[]){in.unit, 0, in.reach, in.slack}, 16);
        free(in.q);
    }
}

static void scan_batch(const bnet_cu_screen_args *a, uint32_t columns)
{
    if (a->columns != columns || a->n_tokens > columns / 2 ||
        a->n_groups != (a->m.n_rows + BNET_SCREEN_BATCH_ROWS - 1) / BNET_SCREEN_BATCH_ROWS * 8)
        abort();
    memset(a->leaders, 0, (size_t)a->n_tokens * a->n_groups * sizeof *a->leaders);
    memset(a->groups, 0, (size_t)a->n_tokens * a->n_groups * sizeof *a->groups);
    for (uint32_t t = 0; t < a->n_tokens; t++) {
        const float *known = a->inputs + 4 * t;
        input in = {known[0], known[2], known[3], calloc(a->m.stride, sizeof *in.q)};
        for (uint32_t k = 0; k < a->m.stride; k++)
            in.q[k] = 256 * (int8_t)*byte_at(a, 2 * t, k) + (int8_t)*byte_at(a, 2 * t + 1, k);
        for (uint32_t row = 0; row < a->m.n_rows; row++) {
            uint32_t least = scan_row(a, &in, t, row), group = 0;
            uint32_t most = order(*most_of(a, t, row, &group));
            unsigned long long key = (unsigned long long)least << 32 | (0xffffffffu - row);
            uint64_t at = (uint64_t)t * a->n_groups + group;
            a->leaders[at] = least && key > a->leaders[at] ? key : a->leaders[at];
            a->groups[at] = most > a->groups[at] ? most : a->groups[at];
        }
        free(in.q);
    }
}

#define BATCH(tokens)                                                                              \
    FAST(bnet_screen_batch_##tokens, bnet_cu_screen_args)                                          \
    {                                                                                              \
        scan_batch(a, 2 * tokens);                                                                 \
    }
BATCH(16)
BATCH(32)
BATCH(64)

/* ---- rows that can be among the best ---- */

static int falling32(const void *p, const void *q)
{
    uint32_t a = *(const uint32_t *)p, b = *(const uint32_t *)q;
    return (a < b) - (a > b);
}

static int falling64(const void *p, const void *q)
{
    unsigned long long a = *(const unsigned long long *)p, b = *(const unsigned long long *)q;
    return (a < b) - (a > b);
}

/* The 64th largest of what groups are at least; 0: there are fewer. */
static uint32_t threshold(const bnet_cu_screen_args *a, uint32_t token)
{
    uint32_t *all = malloc(a->n_groups * sizeof *all), t = 0;
    memcpy(all, a->groups + (uint64_t)token * a->n_groups, a->n_groups * sizeof *all);
    qsort(all, a->n_groups, sizeof *all, falling32);
    if (a->n_groups >= BNET_TOPK_MAX)
        t = all[BNET_TOPK_MAX - 1];
    free(all);
    return t;
}

static unsigned long long key_of(const bnet_cu_screen_args *a, uint32_t token, uint32_t row,
                                 int type)
{
    float acc[16] = {0}, v;
    const float *x = a->x + (uint64_t)token * a->ldx;
    for (uint32_t k = 0; k < a->m.k; k += 16)
        for (uint32_t i = 0; i < 16 && k + i < a->m.k; i++)
            acc[i] += ref_value(&a->m, type, row, (int)(k + i)) * x[k + i];
    v = ref_fold16(acc);
    v = v == 0 ? 0 : v;
    return isfinite(v) ? (unsigned long long)order(v) << 32 | (0xffffffffu - row) : 0;
}

/* Of a batch: rows whose group has one that may be. */
static void pick_slice(const bnet_cu_screen_args *a, uint32_t token, uint32_t slice, uint32_t least,
                       int type)
{
    uint32_t per = (a->m.n_rows + a->n_slices - 1) / a->n_slices, n = 0, group = 0;
    unsigned long long *keys = calloc(per + BNET_TOPK_MAX, sizeof *keys);
    for (uint32_t row = slice * per; row < (slice + 1) * per && row < a->m.n_rows; row++) {
        float most = *most_of(a, token, row, &group);
        if (order(most) >= least &&
            (!a->least || a->groups[(uint64_t)token * a->n_groups + group] >= least))
            keys[n++] = key_of(a, token, row, type);
    }
    qsort(keys, n, sizeof *keys, falling64);
    memcpy(a->lists + ((uint64_t)token * a->n_slices + slice) * BNET_TOPK_MAX, keys,
           BNET_TOPK_MAX * sizeof *keys);
    free(keys);
}

/* The best of all slices. */
static void join(const bnet_cu_screen_args *a)
{
    size_t n = (size_t)a->n_slices * BNET_TOPK_MAX;
    for (uint32_t t = 0; t < a->n_tokens; t++) {
        unsigned long long *keys = a->lists + t * n;
        qsort(keys, n, sizeof *keys, falling64);
        for (uint32_t i = 0; i < a->k; i++) {
            uint32_t b = (uint32_t)(keys[i] >> 32);
            b = b & 0x80000000u ? b & 0x7fffffffu : ~b;
            a->id[t * a->k + i] = keys[i] ? (int32_t)(0xffffffffu - (uint32_t)keys[i]) : -1;
            a->value[t * a->k + i] = keys[i] ? REF_FLOAT_BITS(b) : 0;
        }
    }
}

static void pick(const bnet_cu_screen_args *a, int type)
{
    for (uint32_t t = 0; t < a->n_tokens; t++) {
        uint32_t least = a->least ? a->least[t] : threshold(a, t);
        for (uint32_t i = 0; i < a->n_slices; i++)
            pick_slice(a, t, i, least, type);
    }
}

/* The 64 groups whose leaders are at least most: the least of these. */
static void first(const bnet_cu_screen_args *a, int type)
{
    for (uint32_t t = 0; t < a->n_tokens; t++) {
        unsigned long long *keys = a->leaders + (uint64_t)t * a->n_groups;
        a->least[t] = a->n_groups >= BNET_TOPK_MAX ? 0xffffffffu : 0;
        qsort(keys, a->n_groups, sizeof *keys, falling64);
        for (uint32_t i = 0; i < BNET_TOPK_MAX && i < a->n_groups; i++) {
            unsigned long long k =
                keys[i] ? key_of(a, t, 0xffffffffu - (uint32_t)keys[i], type) : 0;
            a->least[t] = k >> 32 < a->least[t] ? (uint32_t)(k >> 32) : a->least[t];
        }
    }
}

FAST(bnet_screen_best, bnet_cu_screen_args)
{
    join(a);
}

FAST(bnet_screen_best_batch, bnet_cu_screen_args)
{
    join(a);
}

FAST(bnet_screen_scan_4, bnet_cu_screen_args)
{
    if (a->n_tokens > 4)
        abort();
    scan(a);
}

FAST(bnet_screen_scan_8, bnet_cu_screen_args)
{
    if (a->n_tokens > 8)
        abort();
    scan(a);
}

#define SCREEN(name, type)                                                                         \
    FAST(bnet_screen_##name, bnet_cu_screen_args)                                                  \
    {                                                                                              \
        pick(a, type);                                                                             \
    }                                                                                              \
    FAST(bnet_screen_rest_##name, bnet_cu_screen_args)                                             \
    {                                                                                              \
        pick(a, type);                                                                             \
    }                                                                                              \
    FAST(bnet_screen_first_##name, bnet_cu_screen_args)                                            \
    {                                                                                              \
        first(a, type);                                                                            \
    }                                                                                              \
    FAST(bnet_screen_pack_##name, bnet_cu_screen_args)                                             \
    {                                                                                              \
        pack(a, type);                                                                             \
    }
SCREEN(f16, REF_F16)
SCREEN(bf16, REF_BF16)
SCREEN(f32, REF_F32)
