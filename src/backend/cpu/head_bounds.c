/* head_bounds.c - stage one of the largest logits: about what every logit is, and how far from it
 * at most. ops_head.c has the proof. */
#include "backend/cpu/head_work.h"
#include "backend/cpu/pack_q6.h"

#include <float.h>
#include <math.h>

#define TINY 1e-37f

/* ---- the input ---- */

/* g(m) of the bound */
static double rounding(size_t m)
{
    double mu = (double)m * 0x1p-24;
    return mu / (1 - mu);
}

/* The next input of the eights. */
static void prepare_eighth(const bnet_weight *w, top_work *work, top_row *t, float most,
                           double length)
{
    size_t n = w->info.n_in;
    bnet_head_eight *to = &work->eights[work->n_x / BNET_COPY_INPUTS];
    if (work->n_x % BNET_COPY_INPUTS == 0)
        bnet_copy_clear(to, n);
    bnet_copy_loss l = bnet_copy_input(to, t->in, n, most, length);
    double c = l.rest + rounding(n / 16 + 6) * l.x + 16 * 0x1p-24 * (l.x + l.rest + l.parts);
    t->unit = l.unit;
    t->c = (float)(c * (1 + 1e-6));
    t->d = (float)((c + l.x) * (1 + 1e-6));
    work->n_x++;
}

bool bnet_top_input(const bnet_weight *w, top_work *work, top_row *t)
{
    size_t n = w->info.n_in;
    const float *x = t->in;
    bool floats = w->info.type == BNET_F16 || w->info.type == BNET_BF16;
    float most = bnet_head_largest(x, n);
    double xx = 0, le = 0, sums[8] = {0};
    for (size_t i = 0; i < n; i += 8)
        for (size_t k = 0; k < 8; k++)
            sums[k] += (double)x[i + k] * (double)x[i + k];
    for (size_t k = 0; k < 8; k++)
        xx += sums[k];
    if (!(xx < 1e60) || most < 1e-30f || n > 1 << 20)
        return false;
    if (work->copy) {
        bool fits = (double)w->head->norm_max * sqrt(xx) < 1e36;
        if (fits)
            prepare_eighth(w, work, t, most, sqrt(xx));
        return fits;
    }
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
    t->d = 0;
    return (double)w->head->norm_max * (lx + le) < 1e37;
}

/* ---- the scan ---- */

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

void bnet_top_keep(float *heap, size_t *n, size_t k, float v)
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
static void bound_rows(const bnet_weight *w, const float *rests, const top_row *t, size_t first,
                       size_t n, float *heap, size_t *n_heap)
{
    float *y = t->y + first, lower[TOP_CHUNK], most = -FLT_MAX;
    const float *norm = w->head->norms + first, *rest = rests + first;
    for (size_t i = 0; i < n; i++) {
        float a = y[i] * t->unit, b = norm[i] * t->c + rest[i] * t->d + TINY;
        y[i] = a + b;
        lower[i] = a - b;
    }
    for (size_t i = 0; i < n; i++)
        most = lower[i] > most ? lower[i] : most;
    if (*n_heap == t->k && most <= heap[0])
        return;
    for (size_t i = 0; i < n; i++)
        bnet_top_keep(heap, n_heap, t->k, lower[i]);
}

/* a of n rows of weights from `row` on, for all rows of logits that are scanned. */
static void scan_rows(const scan_job *j, size_t row, size_t n)
{
    size_t n_in = j->w->info.n_in, group = j->w->r4 ? bnet_q6r4_group_bytes(n_in) : 0;
    const uint8_t *w = j->w->data + (group ? row / 4 * group : row * j->w->row_bytes);
    bool partial = group && n % 4; /* the kernel fills the last group, y ends before it does */
    float last[BNET_TOP_ROWS][TOP_CHUNK], *y[BNET_TOP_ROWS];
    for (size_t t = 0; t < j->n_x; t++)
        y[t] = partial ? last[t] : j->y[t] + row;
    ((bnet_fn_head_scan *)j->fn)(w, partial ? (n + 3) / 4 * 4 : n, j->x, j->n_x, n_in, y);
    for (size_t t = 0; t < j->n_x && partial; t++)
        memcpy(j->y[t] + row, last[t], n * sizeof *last[t]);
}

/* The same with the copy; at most TOP_CHUNK rows. */
static void scan_copy(const scan_job *j, size_t row, size_t n)
{
    enum { MOST = TOP_CHUNK / BNET_COPY_ROWS };
    size_t n_in = j->w->info.n_in, n_groups = (n + BNET_COPY_ROWS - 1) / BNET_COPY_ROWS;
    size_t n_eights = (j->n_x + BNET_COPY_INPUTS - 1) / BNET_COPY_INPUTS;
    float got[MOST][BNET_COPY_CALL][BNET_COPY_ROWS];
    const uint8_t *groups = j->t->copy->groups + row / BNET_COPY_ROWS * bnet_copy_group_bytes(n_in);
    ((bnet_fn_head_copy *)j->fn)(groups, n_groups, j->t->eights, n_eights, n_in, got[0]);
    for (size_t g = 0; g < n_groups; g++) {
        size_t r = BNET_COPY_ROWS * g, m = BNET_MIN(n - r, (size_t)BNET_COPY_ROWS);
        for (size_t t = 0; t < j->n_x; t++)
            memcpy(j->y[t] + row + r, got[g][t], m * sizeof *got[g][t]);
    }
}

static void scan_part(void *arg, bnet_share part)
{
    const scan_job *j = arg;
    const top_work *t = j->t;
    const float *rests = t->copy ? t->copy->rests : j->w->head->norms; /* any: times d, 0 */
    size_t begin, end, n[BNET_TOP_ROWS] = {0};
    float *heaps = t->best + (size_t)part.index * TOP_MAX;
    bnet_split(j->w->info.n_out, TOP_CHUNK, part.index, part.count, &begin, &end);
    for (size_t row = begin; row < end; row += TOP_CHUNK) {
        size_t m = BNET_MIN(end - row, (size_t)TOP_CHUNK);
        if (t->copy)
            scan_copy(j, row, m);
        else
            scan_rows(j, row, m);
        for (int r = 0; r < t->n_rows; r++)
            if (t->rows[r].want->k > 0)
                bound_rows(j->w, rests, &t->rows[r], row, m, heaps + t->rows[r].first, &n[r]);
    }
    memcpy(t->n_best + (size_t)part.index * BNET_TOP_ROWS, n, sizeof n);
}

float bnet_top_threshold(const top_work *t, int r)
{
    size_t k = t->rows[r].k, n = t->n_best[r];
    float *heap = t->best + t->rows[r].first;
    for (int i = 1; i < t->n_shares; i++)
        for (size_t b = 0; b < t->n_best[i * BNET_TOP_ROWS + r]; b++)
            bnet_top_keep(heap, &n, k, heap[(size_t)i * TOP_MAX + b]);
    return n == k ? heap[0] : -INFINITY;
}

/* What the scan reads of the rows that it is for. */
static void gather(const bnet_weight *w, top_work *t, scan_job *j)
{
    for (int r = 0; r < t->n_rows; r++) {
        const top_row *p = &t->rows[r];
        if (p->want->k == 0)
            continue;
        j->x[j->n_x] = bnet_head_view(&p->as);
        j->y[j->n_x++] = p->y;
    }
    for (size_t i = 0; t->copy && i < j->n_x; i += BNET_COPY_INPUTS)
        bnet_copy_finish(&t->eights[i / BNET_COPY_INPUTS], w->info.n_in);
    for (size_t i = 0; !t->copy && i < j->n_x && j->n_x > 1 && w->r4; i += 2) {
        int8_t *two = t->two + i / 2 * top_two_bytes(w);
        bnet_head_pair(&j->x[i], i + 1 < j->n_x ? &j->x[i + 1] : NULL, w->info.n_in, two);
        j->x[i].two = two;
    }
}

size_t bnet_top_bound(cpu_backend *be, const bnet_weight *w, top_work *t)
{
    scan_job j = {.w = w, .t = t};
    gather(w, t, &j);
    if (j.n_x) {
        j.fn = cpu_use(be, t->copy ? t->copy->scan : w->head->scan);
        t->n_shares = bnet_top_run(be, j.n_x * w->info.n_out * w->info.n_in, scan_part, &j);
    }
    return j.n_x;
}
