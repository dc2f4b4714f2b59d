/* head_exact.c - stage two of the largest logits: the rows whose bounds say that they can be among
 * them are listed and computed. ops_head.c has the proof. */
#include "backend/cpu/head_work.h"

#include <math.h>

/* ---- lists ---- */

/* The largest float that is not above v - range. */
static float lowered(float v, float range)
{
    double exact = (double)v - (double)range;
    float f = (float)exact;
    return (double)f > exact ? nextafterf(f, -INFINITY) : f;
}

/* Lists the rows of weights that reach `least`, ascending; the list overwrites bounds that were
 * already read. False: too many. */
static bool collect(const bnet_weight *w, top_row *t, float least)
{
    size_t n = 0, n_out = w->info.n_out, cap = top_list_cap(w);
    int32_t *ids = top_ids(t);
    for (size_t row = 0; row < n_out; row += TOP_CHUNK) {
        size_t m = BNET_MIN(n_out - row, (size_t)TOP_CHUNK);
        unsigned any = 0;
        for (size_t i = 0; i < m; i++)
            any |= t->y[row + i] >= least;
        for (size_t i = 0; i < m && any; i++) {
            if (!(t->y[row + i] >= least))
                continue;
            if (n == cap)
                return false;
            t->upper[n] = t->y[row + i];
            ids[n++] = (int32_t)(row + i);
        }
    }
    t->n_ids = n;
    return true;
}

/* ---- logits ---- */

typedef struct exact_job {
    const bnet_weight *w;
    top_work *t;
    bnet_kernel_fn fn;
} exact_job;

/* The logit of row `id`. */
static float exact_one(const exact_job *j, const top_row *t, size_t id, bnet_share part)
{
    const bnet_weight *w = j->w;
    size_t n_in = w->info.n_in;
    uint8_t *plain = j->t->plain + (size_t)part.thread * top_padded(w->row_bytes);
    float logit;
    ((bnet_fn_linear *)j->fn)(bnet_cpu_plain_row(w, id, plain), t->in, n_in, n_in, 1, &logit);
    return logit;
}

static void exact_part(void *arg, bnet_share part)
{
    const exact_job *j = arg;
    for (int r = 0; r < j->t->n_rows; r++) {
        const top_row *t = &j->t->rows[r];
        float *logits = t->y + top_list_cap(j->w);
        size_t begin, end;
        bnet_split(t->served ? t->n_ids : 0, 1, part.index, part.count, &begin, &end);
        for (size_t i = begin; i < end; i++)
            logits[i] = exact_one(j, t, (size_t)top_ids(t)[i], part);
    }
}

/* Chooses k rows of a long list, those with the largest a + b. */
static void choose_first(const top_work *work, top_row *t)
{
    enum { LONG = 4 }; /* times k */
    float *heap = work->best + t->first;
    size_t n = 0;
    t->n_first = 0;
    if (t->n_ids <= LONG * t->k)
        return;
    for (size_t i = 0; i < t->n_ids; i++)
        if (t->upper[i] < INFINITY) /* it is not asked for by its id */
            bnet_top_keep(heap, &n, t->k, t->upper[i]);
    t->n_first = n == t->k ? n : 0;
    t->first_least = heap[0];
}

/* Their logits take the place of the heap. */
static void first_part(void *arg, bnet_share part)
{
    const exact_job *j = arg;
    for (int r = 0; r < j->t->n_rows; r++) {
        const top_row *t = &j->t->rows[r];
        size_t begin, end;
        bnet_split(t->n_first, 1, part.index, part.count, &begin, &end);
        for (size_t i = 0, n = 0; i < t->n_ids && n < end; i++) {
            if (!(t->upper[i] >= t->first_least && t->upper[i] < INFINITY))
                continue;
            if (n++ >= begin)
                j->t->best[t->first + n - 1] = exact_one(j, t, (size_t)top_ids(t)[i], part);
        }
    }
}

/* Leaves the rows in the list that may still be wanted. */
static void shorten(const top_work *work, top_row *t)
{
    const float *logits = work->best + t->first;
    float least = INFINITY;
    size_t n = 0;
    for (size_t i = 0; i < t->n_first; i++)
        least = logits[i] < least ? logits[i] : least;
    least = lowered(least, t->want->range);
    for (size_t i = 0; i < t->n_ids; i++)
        if (t->upper[i] >= least)
            top_ids(t)[n++] = top_ids(t)[i];
    t->n_ids = n;
}

/* After the scan: lists the rows that may be wanted. */
static bool list(const bnet_weight *w, const top_work *work, int r, top_row *t)
{
    const bnet_top_want *want = t->want;
    if (want->k == 0) {
        memcpy(top_ids(t), want->ids, want->n_ids * sizeof *want->ids);
        t->n_ids = want->n_ids;
        return true;
    }
    float least = lowered(bnet_top_threshold(work, r), want->range);
    for (size_t i = 0; i < want->n_ids; i++)
        t->y[want->ids[i]] = INFINITY;
    return collect(w, t, least);
}

static void list_part(void *arg, bnet_share part)
{
    const exact_job *j = arg;
    for (int r = part.index; r < j->t->n_rows; r += part.count) {
        top_row *t = &j->t->rows[r];
        t->served = list(j->w, j->t, r, t);
        t->n_first = 0;
        if (t->served && t->want->k > 0)
            choose_first(j->t, t);
    }
}

/* Computes the best guesses of long lists, and shortens these. */
static void shorten_lists(cpu_backend *be, exact_job *e)
{
    top_work *t = e->t;
    size_t n_first = 0;
    for (int r = 0; r < t->n_rows; r++)
        n_first += t->rows[r].n_first;
    if (n_first == 0)
        return;
    bnet_top_run(be, n_first * e->w->info.n_in, first_part, e);
    for (int r = 0; r < t->n_rows; r++)
        if (t->rows[r].n_first)
            shorten(t, &t->rows[r]);
}

top_left bnet_top_exact(cpu_backend *be, const bnet_weight *w, top_work *t)
{
    exact_job e = {.w = w, .t = t, .fn = cpu_use(be, w->head->exact)};
    top_left left = {0};
    size_t n_listed = 0;
    bnet_top_run(be, (size_t)(t->n_rows - 1) * w->info.n_out, list_part, &e); /* one: by itself */
    shorten_lists(be, &e);
    for (int r = 0; r < t->n_rows; r++) {
        const top_row *row = &t->rows[r];
        n_listed += row->served ? row->n_ids : 0;
        left.n_rows += row->served && row->want->k > 0 ? row->n_ids : 0;
        left.too_many |= !row->served;
    }
    bnet_top_run(be, n_listed * w->info.n_in, exact_part, &e);
    return left;
}
