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
#include "backend/cpu/head_input.h"
#include "backend/cpu/pack_q6.h"

#include <float.h>
#include <math.h>

enum {
    CHUNK = 64,     /* rows between two looks at the bounds, which stay in the second-level cache
                       while all inputs pass; a multiple of 4 */
    TOP_MAX = 2048, /* k, at most */
    SHARE = 8       /* more than 1 / SHARE of the rows: all of them is quicker */
};
#define TINY 1e-37f

/* One row of logits that something is wanted of. */
typedef struct top_row {
    const bnet_top_want *want;
    const float *in;
    float *y; /* [n_out] a, then a + b; then the ids that are listed, and from list_cap on their
                 logits */
    bnet_head_arrays as; /* `in` for the scan */
    float unit, c;
    size_t k; /* of the largest a - b that are kept, from place `first` of the heaps on */
    size_t first;
    size_t n_ids;
    bool served;
} top_row;

/* Everything of a call, in the caller's scratch. */
typedef struct top_work {
    top_row rows[BNET_TOP_ROWS];
    int n_rows;
    int n_shares;   /* of the scan */
    float *best;    /* [shares][TOP_MAX] heaps of the largest a - b, least first */
    size_t *n_best; /* [shares][BNET_TOP_ROWS] */
    uint8_t *plain; /* [threads][row_bytes] a packed row made plain */
    int8_t *two;    /* [BNET_TOP_ROWS / 2][n_in / 64][BNET_HEAD_TWO] pairs of rows */
} top_work;

static size_t padded(size_t n)
{
    return (n + BNET_HEAD_ALIGN - 1) / BNET_HEAD_ALIGN * BNET_HEAD_ALIGN;
}

/* Rows that may be listed: their ids and logits share the n_out places of y. */
static size_t list_cap(const bnet_weight *w)
{
    return BNET_MIN(w->info.n_out / SHARE + CHUNK, w->info.n_out / 2);
}

/* A pair of rows, see head.h. */
static size_t two_bytes(const bnet_weight *w)
{
    return w->info.n_in / 64 * BNET_HEAD_TWO;
}

/* Takes n_bytes behind *at; NULL: they are counted only. */
static void *lay(uint8_t *base, size_t *at, size_t n_bytes)
{
    uint8_t *p = base ? base + *at : NULL;
    *at += padded(n_bytes);
    return p;
}

/* Lays the parts out behind one another; returns the bytes they take. */
static size_t lay_out(const cpu_backend *be, const bnet_weight *w, uint8_t *base, top_work *out)
{
    size_t n = w->info.n_in, threads = (size_t)bnet_pool_threads(be->pool);
    size_t shares = (size_t)bnet_pool_shares(be->pool), at = 0;
    bool floats = w->info.type == BNET_F16 || w->info.type == BNET_BF16;
    for (int i = 0; i < BNET_TOP_ROWS; i++) {
        top_row *r = &out->rows[i];
        if (floats) {
            r->as.x = lay(base, &at, n * sizeof(float));
            r->as.raised = lay(base, &at, n * sizeof(float));
            continue;
        }
        r->as.q = lay(base, &at, n);
        r->as.mult = lay(base, &at, n / 16);
        r->as.mult4 = lay(base, &at, n / 4);
        r->as.start4 = lay(base, &at, n);
        r->as.q4 = lay(base, &at, 4 * n);
        r->as.pairs4 = lay(base, &at, 4 * n);
        r->as.up = lay(base, &at, n);
    }
    out->best = lay(base, &at, shares * TOP_MAX * sizeof(float));
    out->n_best = lay(base, &at, shares * BNET_TOP_ROWS * sizeof(size_t));
    out->plain = lay(base, &at, threads * padded(w->row_bytes));
    out->two = lay(base, &at, w->r4 ? BNET_TOP_ROWS / 2 * two_bytes(w) : 0);
    return at;
}

size_t bnet_cpu_top_bytes(const bnet_backend *b, const bnet_weight *w)
{
    top_work unused = {.n_rows = 0};
    if (!w->head || !w->head->scan)
        return 0;
    return lay_out((const cpu_backend *)b, w, NULL, &unused) + BNET_HEAD_ALIGN;
}

/* ---- the input ---- */

/* g(m) of the bound */
static double rounding(size_t m)
{
    double mu = (double)m * 0x1p-24;
    return mu / (1 - mu);
}

/* Fills what the scan reads, and unit and c of the bound. False: the scan cannot take this input.
 */
static bool prepare_x(const bnet_weight *w, top_row *t)
{
    size_t n = w->info.n_in;
    const float *x = t->in;
    bool floats = w->info.type == BNET_F16 || w->info.type == BNET_BF16;
    float most = bnet_head_largest(x, n);
    double xx = 0, le = 0;
    for (size_t i = 0; i < n; i++)
        xx += (double)x[i] * (double)x[i];
    if (!(xx < 1e60) || most < 1e-30f || n > 1 << 20)
        return false;
    t->unit = floats ? 1.0f : most / (127.0f * BNET_HEAD_MULT);
    if (floats && !(most < 32768.0f))
        return false;
    if (floats) /* nothing is lost: |e| is 0 */
        bnet_head_floats(x, n, &t->as);
    else
        le = bnet_head_integers(w->info.type, x, n, t->unit, &t->as);
    double lx = sqrt(xx);
    double rounded = rounding(n / 16 + 6) + rounding(n / 32 + 8) + 8 * 0x1p-24;
    t->c = (float)((le + rounded * (lx + le)) * (1 + 1e-6));
    return (double)w->head->norm_max * (lx + le) < 1e37;
}

/* ---- stage one ---- */

typedef struct scan_job {
    const bnet_weight *w;
    const top_work *t;
    bnet_kernel_fn fn;
    bnet_head_x x[BNET_TOP_ROWS]; /* of the rows that are scanned */
    float *y[BNET_TOP_ROWS];
    size_t n_x;
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

/* a of some rows of weights becomes a + b; their a - b may be among the best. */
static void bound_rows(const bnet_weight *w, const top_row *t, size_t first, size_t n, float *heap,
                       size_t *n_heap)
{
    float *y = t->y + first, lower[CHUNK], most = -FLT_MAX;
    const float *norm = w->head->norms + first;
    for (size_t i = 0; i < n; i++) {
        float a = y[i] * t->unit, b = norm[i] * t->c + TINY;
        y[i] = a + b;
        lower[i] = a - b;
    }
    for (size_t i = 0; i < n; i++)
        most = lower[i] > most ? lower[i] : most;
    if (*n_heap == t->k && most <= heap[0])
        return;
    for (size_t i = 0; i < n; i++)
        keep(heap, n_heap, t->k, lower[i]);
}

/* a of n rows of weights from `row` on, for all rows of logits that are scanned. */
static void scan_rows(const scan_job *j, size_t row, size_t n)
{
    size_t n_in = j->w->info.n_in, group = j->w->r4 ? bnet_q6r4_group_bytes(n_in) : 0;
    const uint8_t *w = j->w->data + (group ? row / 4 * group : row * j->w->row_bytes);
    bool partial = group && n % 4; /* the kernel fills the last group, y ends before it does */
    float last[BNET_TOP_ROWS][CHUNK], *y[BNET_TOP_ROWS];
    for (size_t t = 0; t < j->n_x; t++)
        y[t] = partial ? last[t] : j->y[t] + row;
    ((bnet_fn_head_scan *)j->fn)(w, partial ? (n + 3) / 4 * 4 : n, j->x, j->n_x, n_in, y);
    for (size_t t = 0; t < j->n_x && partial; t++)
        memcpy(j->y[t] + row, last[t], n * sizeof *last[t]);
}

static void scan_part(void *arg, bnet_share part)
{
    const scan_job *j = arg;
    const top_work *t = j->t;
    size_t begin, end, n[BNET_TOP_ROWS] = {0};
    float *heaps = t->best + (size_t)part.index * TOP_MAX;
    bnet_split(j->w->info.n_out, CHUNK, part.index, part.count, &begin, &end);
    for (size_t row = begin; row < end; row += CHUNK) {
        size_t m = BNET_MIN(end - row, (size_t)CHUNK);
        scan_rows(j, row, m);
        for (int r = 0; r < t->n_rows; r++)
            if (t->rows[r].want->k > 0)
                bound_rows(j->w, &t->rows[r], row, m, heaps + t->rows[r].first, &n[r]);
    }
    memcpy(t->n_best + (size_t)part.index * BNET_TOP_ROWS, n, sizeof n);
}

/* The k-th largest lower bound of all rows of weights; -infinity if there are fewer. */
static float threshold(const top_work *t, int r)
{
    size_t k = t->rows[r].k, n = t->n_best[r];
    float *heap = t->best + t->rows[r].first;
    for (int i = 1; i < t->n_shares; i++)
        for (size_t b = 0; b < t->n_best[i * BNET_TOP_ROWS + r]; b++)
            keep(heap, &n, k, heap[(size_t)i * TOP_MAX + b]);
    return n == k ? heap[0] : -INFINITY;
}

/* The largest float that is not above v - range. */
static float lowered(float v, float range)
{
    double exact = (double)v - (double)range;
    float f = (float)exact;
    return (double)f > exact ? nextafterf(f, -INFINITY) : f;
}

static int32_t *ids_of(const top_row *t)
{
    return (int32_t *)(void *)t->y;
}

/* Lists the rows of weights that reach `least`, ascending; the list overwrites bounds that were
 * already read. False: too many. */
static bool collect(const bnet_weight *w, top_row *t, float least)
{
    size_t n = 0, n_out = w->info.n_out, cap = list_cap(w);
    int32_t *ids = ids_of(t);
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
            ids[n++] = (int32_t)(row + i);
        }
    }
    t->n_ids = n;
    return true;
}

/* ---- stage two ---- */

typedef struct exact_job {
    const bnet_weight *w;
    top_work *t;
    bnet_kernel_fn fn;
} exact_job;

static void exact_row(const exact_job *j, const top_row *t, bnet_share part)
{
    const bnet_weight *w = j->w;
    size_t begin, end, n_in = w->info.n_in;
    uint8_t *plain = j->t->plain + (size_t)part.thread * padded(w->row_bytes);
    float *logits = t->y + list_cap(w);
    bnet_split(t->n_ids, 1, part.index, part.count, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        size_t id = (size_t)ids_of(t)[i];
        const uint8_t *row = w->data + id * w->row_bytes;
        if (w->r4) {
            bnet_q6r4_unpack_row(w->data + id / 4 * bnet_q6r4_group_bytes(n_in), id % 4, n_in,
                                 plain);
            row = plain;
        }
        ((bnet_fn_linear *)j->fn)(row, t->in, n_in, n_in, 1, logits + i);
    }
}

static void exact_part(void *arg, bnet_share part)
{
    const exact_job *j = arg;
    for (int r = 0; r < j->t->n_rows; r++)
        if (j->t->rows[r].served)
            exact_row(j, &j->t->rows[r], part);
}

/* Returns how many shares there were. */
static int run(cpu_backend *be, size_t work, bnet_job job, void *arg)
{
    enum { SMALL = 1 << 15 }; /* products that are too few to wake threads for */
    if (work < SMALL) {
        job(arg, (bnet_share){0, 1, 0});
        return 1;
    }
    return bnet_pool_run(be->pool, job, arg);
}

/* Prepares a row; *used places of the heaps are taken. False: computing all logits is quicker. */
static bool prepare(const bnet_weight *w, top_row *t, size_t *used)
{
    t->k = t->want->k + t->want->n_ids;
    t->first = *used;
    if (t->k == 0 || t->k > TOP_MAX - *used || t->k > w->info.n_out / SHARE)
        return false;
    if (t->want->k > 0 && !prepare_x(w, t))
        return false;
    *used += t->k;
    return true;
}

/* After the scan: lists the rows that may be wanted. */
static bool list(const bnet_weight *w, const top_work *work, int r, top_row *t)
{
    const bnet_top_want *want = t->want;
    if (want->k == 0) {
        memcpy(ids_of(t), want->ids, want->n_ids * sizeof *want->ids);
        t->n_ids = want->n_ids;
        return true;
    }
    float least = lowered(threshold(work, r), want->range);
    for (size_t i = 0; i < want->n_ids; i++)
        t->y[want->ids[i]] = INFINITY;
    return collect(w, t, least);
}

static void list_part(void *arg, bnet_share part)
{
    const exact_job *j = arg;
    for (int r = part.index; r < j->t->n_rows; r += part.count)
        j->t->rows[r].served = list(j->w, j->t, r, &j->t->rows[r]);
}

/* What the scan reads of the rows that it is for. */
static void gather(const bnet_weight *w, const top_work *t, scan_job *j)
{
    for (int r = 0; r < t->n_rows; r++) {
        const top_row *p = &t->rows[r];
        if (p->want->k == 0)
            continue;
        j->x[j->n_x] = bnet_head_view(&p->as);
        j->y[j->n_x++] = p->y;
    }
    for (size_t i = 0; i < j->n_x && j->n_x > 1 && w->r4; i += 2) {
        int8_t *two = t->two + i / 2 * two_bytes(w);
        bnet_head_pair(&j->x[i], i + 1 < j->n_x ? &j->x[i + 1] : NULL, w->info.n_in, two);
        j->x[i].two = two;
    }
}

/* Both stages for the rows that are ready. */
static void serve(cpu_backend *be, const bnet_weight *w, top_work *t)
{
    scan_job j = {.w = w, .t = t};
    exact_job e = {.w = w, .t = t};
    size_t n_listed = 0;
    gather(w, t, &j);
    if (j.n_x) {
        j.fn = cpu_use(be, w->head->scan);
        t->n_shares = run(be, j.n_x * w->info.n_out * w->info.n_in, scan_part, &j);
    }
    run(be, (size_t)(t->n_rows - 1) * w->info.n_out, list_part, &e); /* one row: by the caller */
    for (int r = 0; r < t->n_rows; r++)
        n_listed += t->rows[r].served ? t->rows[r].n_ids : 0;
    e.fn = cpu_use(be, w->head->exact);
    run(be, n_listed * w->info.n_in, exact_part, &e);
}

void bnet_cpu_top(bnet_backend *b, const bnet_weight *w, bnet_buffer *x, int n_rows,
                  const bnet_top_want *wants, bnet_buffer *y, bnet_buffer *scratch, bnet_top *out)
{
    cpu_backend *be = (cpu_backend *)b;
    top_work t = {.n_rows = 0};
    size_t used = 0, n_out = w->info.n_out;
    int at[BNET_TOP_ROWS];
    uintptr_t base = (uintptr_t)scratch->data;
    for (int i = 0; i < n_rows; i++)
        out[i] = (bnet_top){0};
    if (!w->head || !w->head->scan)
        return;
    lay_out(be, w, (uint8_t *)(base + (BNET_HEAD_ALIGN - base % BNET_HEAD_ALIGN)), &t);
    for (int i = 0; i < n_rows; i++) {
        top_row *r = &t.rows[t.n_rows];
        r->want = &wants[i];
        r->in = (const float *)x->data + (size_t)i * w->info.n_in;
        r->y = (float *)y->data + (size_t)i * n_out;
        at[t.n_rows] = i;
        t.n_rows += prepare(w, r, &used);
    }
    if (t.n_rows == 0)
        return;
    serve(be, w, &t);
    for (int r = 0; r < t.n_rows; r++)
        if (t.rows[r].served)
            out[at[r]] = (bnet_top){ids_of(&t.rows[r]), t.rows[r].y + list_cap(w), t.rows[r].n_ids};
}
