/* ops_head.c - the logits that sampling can ask for, without the exact value of all the others.
 *
 * Stage one: an approximate logit a of every row, at the speed of memory, with a bound b on how far
 * it is from the logit l that the exact kernel computes. Stage two: with t the k-th largest a - b,
 * the rows with a + b >= t are computed exactly.
 *
 * No wanted row is lost: k rows have l >= a - b >= t, so the k-th largest l is at least t; a row
 * among the k largest, or equal to the last of them, has l >= t, hence a + b >= l >= t.
 *
 * The bound. Let w be the row as real numbers. f16 times int8 (times 6 bits) fits the 24 bits of a
 * float, so the exact kernel multiplies with w itself. u = 2^-24, g(m) = m u / (1 - m u), |.| is
 * the Euclidean length.
 *   1. The exact kernel: one product, n / 16 sums and 4 foldings touch a term, each rounded, so
 *      |l - w x| <= g(n / 16 + 6) sum |w_i x_i| <= g(n / 16 + 6) |w| |x|.
 *   2. x = xq + e with xq = unit mult q, computed in doubles: |w x - w xq| <= |w| |e|. Heads of
 *      16-bit floats take x itself: e = 0.
 *   3. The scan: integers are exact; their conversion, the product with the f16, at most n / 32
 *      sums and 2 foldings, the product with unit (16-bit floats: n / 32 fused sums, 5 foldings):
 *      |w xq - a| <= g(n / 32 + 8) sum over blocks |w xq of the block| <= g(n / 32 + 8) |w| |xq|,
 *      and |xq| <= |x| + |e|.
 *   4. a - b and a + b are floats themselves: their rounding, and that of b, stays below
 *      8 u |w| (|x| + |e|), since |a| <= |w| |xq| (1 + g).
 *   5. What underflows is less than n 2^-149, and TINY is more.
 * Together b = |w| c + TINY, c = |e| + (g(n / 16 + 6) + g(n / 32 + 8) + 8 u) (|x| + |e|), raised by
 * 1e-6 of itself for the doubles it is made of; weights_head.c keeps upper bounds of |w|. Inputs
 * that are not finite, or so large or small that a float could overflow or lose bits, are refused,
 * and everything is computed. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/pack_q6.h"

#include <float.h>
#include <math.h>

enum {
    CHUNK = 64,     /* rows between two looks at the bounds; a multiple of 4 */
    TOP_MAX = 2048, /* k, at most */
    SHARE = 8       /* more than 1 / SHARE of the rows: all of them is quicker */
};
#define TINY 1e-37f

/* Everything of a call, in the caller's scratch. */
typedef struct top_work {
    float *y;                 /* [rows, padded] a, then a + b */
    int8_t *q, *mult, *mult4; /* bnet_head_x */
    int32_t *start4;
    int8_t *q4;
    int16_t *pairs4;
    float *x, *raised;
    float *best;    /* [shares][TOP_MAX] heaps of the largest a - b, least first */
    size_t *n_best; /* [shares] */
    uint8_t *rows;  /* [threads][row_bytes] a packed row made plain */
    int32_t *ids;   /* [rows / SHARE + CHUNK] */
    float *logits;  /* as many */
} top_work;

static size_t padded(size_t n)
{
    return (n + BNET_HEAD_ALIGN - 1) / BNET_HEAD_ALIGN * BNET_HEAD_ALIGN;
}

static size_t list_cap(const bnet_weight *w)
{
    return w->info.n_out / SHARE + CHUNK;
}

/* Lays the parts out behind one another; returns the bytes they take. */
static size_t lay_out(const cpu_backend *be, const bnet_weight *w, uint8_t *base, top_work *out)
{
    size_t n = w->info.n_in, threads = (size_t)bnet_pool_threads(be->pool);
    size_t shares = (size_t)bnet_pool_shares(be->pool), at = 0;
    const struct {
        void **to;
        size_t n_bytes;
    } parts[] = {
        {(void **)&out->y, bnet_q6r4_groups(w->info.n_out) * 4 * sizeof(float)},
        {(void **)&out->q, n},
        {(void **)&out->mult, n / 16},
        {(void **)&out->mult4, n / 4},
        {(void **)&out->start4, n},
        {(void **)&out->q4, 4 * n},
        {(void **)&out->pairs4, 4 * n},
        {(void **)&out->x, n * sizeof(float)},
        {(void **)&out->raised, n * sizeof(float)},
        {(void **)&out->best, shares * TOP_MAX * sizeof(float)},
        {(void **)&out->n_best, shares * sizeof(size_t)},
        {(void **)&out->rows, threads * padded(w->row_bytes)},
        {(void **)&out->ids, list_cap(w) * sizeof(int32_t)},
        {(void **)&out->logits, list_cap(w) * sizeof(float)},
    };
    for (size_t i = 0; i < BNET_COUNT(parts); i++) {
        if (base)
            *parts[i].to = base + at;
        at += padded(parts[i].n_bytes);
    }
    return at;
}

size_t bnet_cpu_top_bytes(const bnet_backend *b, const bnet_weight *w)
{
    top_work unused;
    if (!w->head || !w->head->scan)
        return 0;
    return lay_out((const cpu_backend *)b, w, NULL, &unused) + BNET_HEAD_ALIGN;
}

/* ---- the input as integers ---- */

static float largest(const float *x, size_t n)
{
    float most = 0;
    for (size_t i = 0; i < n; i++) {
        float v = fabsf(x[i]);
        most = v > most ? v : most;
    }
    return most;
}

/* One group of columns under one multiplier. */
static void quantise(const float *x, size_t n, float unit, int8_t *q, int8_t *mult)
{
    float steps = ceilf(largest(x, n) / (127.0f * unit));
    int m = steps < BNET_HEAD_MULT ? (int)steps : BNET_HEAD_MULT;
    float inverse = m ? 1.0f / (unit * (float)m) : 0;
    for (size_t i = 0; i < n; i++) {
        float v = rintf(x[i] * inverse);
        q[i] = (int8_t)(v > 127.0f ? 127.0f : v < -127.0f ? -127.0f : v);
    }
    for (size_t i = 0; i < n; i += 16)
        mult[i / 16] = (int8_t)m;
}

/* The same numbers in the orders kernels read. */
static void arrange(const top_work *t, size_t n)
{
    for (size_t i = 0; i < n / 4; i++)
        for (size_t r = 0; r < 4; r++) {
            const int8_t *q = t->q + 4 * i;
            memcpy(t->q4 + 16 * i + 4 * r, q, 4);
            t->pairs4[8 * i + 2 * r] = (int16_t)(-32 * (q[0] + q[1]));
            t->pairs4[8 * i + 2 * r + 1] = (int16_t)(-32 * (q[2] + q[3]));
        }
    for (size_t i = 0; i < n / 16; i++) { /* i: quarters in order, g inside them */
        size_t k = i / 4 % 4, s = i / 16 * 16 + 8 * (k / 2) + 2 * (i % 4) + k % 2;
        int32_t sum = 0;
        for (size_t c = 0; c < 16; c++)
            sum += t->q[16 * s + c];
        for (size_t r = 0; r < 4; r++) {
            t->mult4[4 * i + r] = t->mult[s];
            t->start4[4 * i + r] = -32 * sum;
        }
    }
}

/* g(m) of the bound */
static double rounding(size_t m)
{
    double mu = (double)m * 0x1p-24;
    return mu / (1 - mu);
}

/* Block formats: integers. Returns |e|. */
static double as_integers(const bnet_weight *w, const float *x, const top_work *t, float unit)
{
    size_t n = w->info.n_in, group = w->info.type == BNET_Q8_0 ? 32 : 16;
    double ee = 0;
    for (size_t i = 0; i < n; i += group)
        quantise(x + i, group, unit, t->q + i, t->mult + i / 16);
    for (size_t i = 0; i < n; i++) {
        double e = (double)x[i] - (double)unit * (double)(t->mult[i / 16] * t->q[i]);
        ee += e * e;
    }
    if (w->info.type == BNET_Q6_K)
        arrange(t, n);
    return sqrt(ee);
}

/* 16-bit floats: x itself. Nothing is lost: |e| is 0. */
static bool as_floats(const float *x, const top_work *t, size_t n, float most)
{
    for (size_t i = 0; i < n; i++) {
        t->x[i] = x[i];
        t->raised[i] = x[i] * 0x1p112f;
    }
    return most < 32768.0f;
}

/* Fills what the scan reads; *unit and *c of the bound. False: such an input is not for integers.
 */
static bool prepare_x(const bnet_weight *w, const float *x, const top_work *t, float *unit,
                      float *c)
{
    size_t n = w->info.n_in;
    bool floats = w->info.type == BNET_F16 || w->info.type == BNET_BF16;
    float most = largest(x, n);
    double xx = 0, le = 0;
    for (size_t i = 0; i < n; i++)
        xx += (double)x[i] * (double)x[i];
    if (!(xx < 1e60) || most < 1e-30f || n > 1 << 20)
        return false;
    *unit = floats ? 1.0f : most / (127.0f * BNET_HEAD_MULT);
    if (floats && !as_floats(x, t, n, most))
        return false;
    if (!floats)
        le = as_integers(w, x, t, *unit);
    double lx = sqrt(xx);
    double rounded = rounding(n / 16 + 6) + rounding(n / 32 + 8) + 8 * 0x1p-24;
    *c = (float)((le + rounded * (lx + le)) * (1 + 1e-6));
    return (double)w->head->norm_max * (lx + le) < 1e37;
}

/* ---- stage one ---- */

typedef struct scan_job {
    const bnet_weight *w;
    const top_work *t;
    bnet_head_x x;
    bnet_kernel_fn fn;
    float unit, c;
    size_t k;
} scan_job;

static void sift(float *heap, size_t n, size_t i)
{
    float moving = heap[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= moving)
            break;
        heap[i] = heap[child];
    }
    heap[i] = moving;
}

/* Keeps the k largest of what it is given, the least of them in front. */
static void keep(float *heap, size_t *n, size_t k, float v)
{
    if (*n == k) {
        if (v > heap[0]) {
            heap[0] = v;
            sift(heap, k, 0);
        }
        return;
    }
    heap[(*n)++] = v;
    if (*n == k)
        for (size_t i = k / 2; i-- > 0;)
            sift(heap, k, i);
}

/* a of some rows becomes a + b; their a - b may be among the best. */
static void bound_rows(const scan_job *j, size_t first, size_t n, float *heap, size_t *n_heap)
{
    float *y = j->t->y + first, lower[CHUNK], most = -FLT_MAX;
    const float *norm = j->w->head->norms + first;
    for (size_t i = 0; i < n; i++) {
        float a = y[i] * j->unit, b = norm[i] * j->c + TINY;
        y[i] = a + b;
        lower[i] = a - b;
    }
    for (size_t i = 0; i < n; i++)
        most = lower[i] > most ? lower[i] : most;
    if (*n_heap == j->k && most <= heap[0])
        return;
    for (size_t i = 0; i < n; i++)
        keep(heap, n_heap, j->k, lower[i]);
}

static void scan_part(void *arg, bnet_share part)
{
    const scan_job *j = arg;
    size_t begin, end, n = 0, n_in = j->w->info.n_in, n_out = j->w->info.n_out;
    float *heap = j->t->best + (size_t)part.index * TOP_MAX;
    size_t four = j->w->r4 ? bnet_q6r4_group_bytes(n_in) : 4 * j->w->row_bytes;
    bnet_split(n_out, CHUNK, part.index, part.count, &begin, &end);
    for (size_t row = begin; row < end; row += CHUNK) {
        size_t m = BNET_MIN(end - row, (size_t)CHUNK);
        ((bnet_fn_head_scan *)j->fn)(j->w->data + row / 4 * four, j->w->r4 ? (m + 3) / 4 * 4 : m,
                                     &j->x, n_in, j->t->y + row);
        bound_rows(j, row, m, heap, &n);
    }
    j->t->n_best[part.index] = n;
}

/* The k-th largest lower bound of all rows; -infinity if there are fewer. */
static float threshold(const top_work *t, int n_shares, size_t k)
{
    float *heap = t->best;
    size_t n = t->n_best[0];
    for (int i = 1; i < n_shares; i++)
        for (size_t b = 0; b < t->n_best[i]; b++)
            keep(heap, &n, k, t->best[(size_t)i * TOP_MAX + b]);
    return n == k ? heap[0] : -INFINITY;
}

/* The largest float that is not above v - range. */
static float lowered(float v, float range)
{
    double exact = (double)v - (double)range;
    float f = (float)exact;
    return (double)f > exact ? nextafterf(f, -INFINITY) : f;
}

/* Ids of the rows that reach t, ascending. False: too many. */
static bool collect(const bnet_weight *w, const top_work *t, float least, size_t *n_ids)
{
    size_t n = 0, n_out = w->info.n_out, cap = list_cap(w);
    for (size_t row = 0; row < n_out; row += CHUNK) {
        size_t m = BNET_MIN(n_out - row, (size_t)CHUNK);
        unsigned any = 0;
        for (size_t i = 0; i < m; i++)
            any |= t->y[row + i] >= least;
        for (size_t i = 0; i < m && any; i++) {
            if (!(t->y[row + i] >= least))
                continue;
            if (n == cap)
                return false;
            t->ids[n++] = (int32_t)(row + i);
        }
    }
    *n_ids = n;
    return true;
}

/* ---- stage two ---- */

typedef struct exact_job {
    const bnet_weight *w;
    const top_work *t;
    bnet_kernel_fn fn;
    const float *x;
    size_t n;
} exact_job;

static void exact_part(void *arg, bnet_share part)
{
    const exact_job *j = arg;
    const bnet_weight *w = j->w;
    size_t begin, end, n_in = w->info.n_in;
    uint8_t *plain = j->t->rows + (size_t)part.thread * padded(w->row_bytes);
    bnet_split(j->n, 1, part.index, part.count, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        size_t id = (size_t)j->t->ids[i];
        const uint8_t *row = w->data + id * w->row_bytes;
        if (w->r4) {
            bnet_q6r4_unpack_row(w->data + id / 4 * bnet_q6r4_group_bytes(n_in), id % 4, n_in,
                                 plain);
            row = plain;
        }
        ((bnet_fn_linear *)j->fn)(row, j->x, n_in, n_in, 1, j->t->logits + i);
    }
}

/* Returns how many shares there were. */
static int run(cpu_backend *be, size_t work, bnet_job job, void *arg)
{
    enum { SMALL = 1 << 15 }; /* products that are not worth waking anybody for */
    if (work < SMALL) {
        job(arg, (bnet_share){0, 1, 0});
        return 1;
    }
    return bnet_pool_run(be->pool, job, arg);
}

/* Lists in t the rows whose logits may be wanted. False: all of them is quicker. */
static bool list_rows(cpu_backend *be, const bnet_weight *w, const float *x,
                      const bnet_top_want *want, const top_work *t, size_t *n)
{
    size_t n_in = w->info.n_in, k = want->k + want->n_ids;
    scan_job j = {.w = w,
                  .t = t,
                  .x = {t->q, t->mult, t->mult4, t->start4, t->q4, t->pairs4, t->x, t->raised},
                  .k = k};
    if (k > TOP_MAX || k > w->info.n_out / SHARE)
        return false;
    if (want->k == 0) {
        memcpy(t->ids, want->ids, want->n_ids * sizeof *t->ids);
        *n = want->n_ids;
        return true;
    }
    if (!prepare_x(w, x, t, &j.unit, &j.c))
        return false;
    j.fn = cpu_use(be, w->head->scan);
    int n_shares = run(be, w->info.n_out * n_in, scan_part, &j);
    float least = lowered(threshold(t, n_shares, k), want->range);
    for (size_t i = 0; i < want->n_ids; i++)
        t->y[want->ids[i]] = INFINITY;
    return collect(w, t, least, n);
}

bool bnet_cpu_top(bnet_backend *b, const bnet_weight *w, bnet_buffer *x, const bnet_top_want *want,
                  bnet_buffer *scratch, bnet_top *out)
{
    cpu_backend *be = (cpu_backend *)b;
    if (!w->head || !w->head->scan)
        return false;
    top_work t;
    uintptr_t base = (uintptr_t)scratch->data;
    lay_out(be, w, (uint8_t *)(base + (BNET_HEAD_ALIGN - base % BNET_HEAD_ALIGN)), &t);
    exact_job e = {.w = w, .t = &t, .x = x->data};
    if (!list_rows(be, w, x->data, want, &t, &e.n))
        return false;
    e.fn = cpu_use(be, w->head->exact);
    run(be, e.n * w->info.n_in, exact_part, &e);
    *out = (bnet_top){t.ids, t.logits, e.n};
    return true;
}

/* ---- packed rows, all of them ---- */

typedef struct r4_job {
    const bnet_weight *w;
    bnet_kernel_fn fn;
    const float *x;
    float *y;
    size_t n_tokens;
} r4_job;

static void r4_groups(void *arg, size_t begin, size_t end)
{
    const r4_job *j = arg;
    size_t k = j->w->info.n_in, n_out = j->w->info.n_out, group = bnet_q6r4_group_bytes(k);
    float out[BNET_LINEAR_TOKENS * BNET_Q6R4_ROWS];
    for (size_t g = begin; g < end; g++)
        for (size_t t = 0; t < j->n_tokens; t += BNET_LINEAR_TOKENS) {
            size_t n = BNET_MIN((size_t)BNET_LINEAR_TOKENS, j->n_tokens - t);
            ((bnet_fn_linear_r4 *)j->fn)(j->w->data + g * group, j->x + t * k, k, k, n, out);
            for (size_t i = 0; i < n; i++)
                for (size_t r = 4 * g; r < 4 * g + 4 && r < n_out; r++)
                    j->y[(t + i) * n_out + r] = out[4 * i + r % 4];
        }
}

void bnet_cpu_linear_r4(cpu_backend *be, const bnet_weight *w, bnet_kernel_fn fn, const float *x,
                        size_t n_tokens, float *y)
{
    r4_job j = {w, fn, x, y, n_tokens};
    bnet_pool_items(be->pool, bnet_q6r4_groups(w->info.n_out), 1, 4 * w->info.n_in * n_tokens,
                    r4_groups, &j);
}

void bnet_cpu_embed_r4(const bnet_weight *w, bnet_fn_embed *fn, size_t id, float *y)
{
    size_t n_blocks = w->info.n_in / 256;
    const uint8_t *group = w->data + id / 4 * bnet_q6r4_group_bytes(w->info.n_in);
    const uint8_t *f16 = group + n_blocks * BNET_Q6R4_BLOCK;
    uint8_t block[BNET_Q6_BLOCK];
    for (size_t b = 0; b < n_blocks; b++) {
        bnet_q6r4_unpack_block(group + b * BNET_Q6R4_BLOCK, f16 + 8 * b, id % 4, block);
        fn(BNET_Q6_K, block, 256, y + 256 * b);
    }
}
