/* ops_head.c - the logits that sampling can ask for, without the exact value of all the others.
 *
 * Stage one: an approximate logit a of every row, at the speed of memory, with a bound b on how far
 * it is from the logit l that the exact kernel computes. Stage two: with t the k-th largest a - b,
 * the rows with a + b >= t are computed exactly.
 *
 * No wanted row is lost: k rows have l >= a - b >= t, so the k-th largest l is at least t; a row
 * among the k largest, or equal to the last of them, has l >= t, hence a + b >= l >= t. Where many
 * rows are left, k of them with the largest a + b are computed first: t may then be the least of
 * their l, which is larger by about b, and most of the others need not be computed.
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
 * and everything is computed.
 *
 * Where there is a copy of the head (head_copy.h), that is scanned. There the row
 * is w = v + r, v = scale codes, and x = xq + e, xq = unit (254 high + low). Then 1. is as above;
 * |w x - v x| <= |r| |x|, |v x - v xq| <= |v| |e| and |v| <= |w| + |r|. Of the scan the sums are
 * exact; two conversions, a product, a sum and the products with scale and unit are rounded, so
 * |v xq - a| <= 7 u |v| p, p = unit (254 |high| + |low|). With 4. for |a| <= |v| p (1 + 7 u):
 * b = |w| c + |r| d + TINY, c = |e| + g(n / 16 + 6) |x| + 16 u (|x| + |e| + p), d = c + |x|. A row
 * whose codes would be lost in floats has none, so v is 0 and r is w. */
#include "backend/cpu/head_work.h"

/* Takes n_bytes behind *at; NULL: they are counted only. */
static void *lay(uint8_t *base, size_t *at, size_t n_bytes)
{
    uint8_t *p = base ? base + *at : NULL;
    *at += top_padded(n_bytes);
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
        r->upper = lay(base, &at, top_list_cap(w) * sizeof *r->upper);
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
    out->plain = lay(base, &at, threads * top_padded(w->row_bytes));
    out->two = lay(base, &at, w->r4 ? BNET_TOP_ROWS / 2 * top_two_bytes(w) : 0);
    for (int i = 0; i < TOP_EIGHTS && w->head->copy; i++) {
        bnet_head_eight *e = &out->eights[i];
        e->low = lay(base, &at, BNET_COPY_INPUTS * n);
        e->high = lay(base, &at, BNET_COPY_INPUTS * n);
        e->lines = lay(base, &at, n / 8 * sizeof *e->lines);
    }
    return at;
}

size_t bnet_cpu_top_bytes(const bnet_backend *b, const bnet_weight *w)
{
    top_work unused = {.n_rows = 0};
    if (!w->head || !w->head->scan)
        return 0;
    return lay_out((const cpu_backend *)b, w, NULL, &unused) + BNET_HEAD_ALIGN;
}

int bnet_top_run(cpu_backend *be, size_t n_products, bnet_job job, void *arg)
{
    enum { SMALL = 1 << 15 }; /* products that are too few to wake threads for */
    if (n_products < SMALL) {
        job(arg, (bnet_share){0, 1, 0});
        return 1;
    }
    return bnet_pool_run(be->pool, job, arg);
}

/* Prepares a row; *used places of the heaps are taken. False: computing all logits is quicker. */
static bool prepare(const bnet_weight *w, top_work *work, top_row *t, size_t *used)
{
    t->k = t->want->k + t->want->n_ids;
    t->first = *used;
    if (t->k == 0 || t->k > TOP_MAX - *used || t->k > w->info.n_out / TOP_SHARE)
        return false;
    if (t->want->k > 0 && !bnet_top_input(w, work, t))
        return false;
    *used += t->k;
    return true;
}

/* One call: its rows, and what of them was served. */
typedef struct top_call {
    bnet_buffer *x, *y;
    int n_rows;
    const bnet_top_want *wants;
    bnet_top *out;
} top_call;

/* Serves rows that were not served yet, by a scan of the copy or of the rows themselves. */
static void serve_left(cpu_backend *be, const bnet_weight *w, const top_call *c, top_work *t)
{
    size_t used = 0, n_out = w->info.n_out;
    int at[BNET_TOP_ROWS];
    t->n_rows = 0;
    t->n_x = 0;
    for (int i = 0; i < c->n_rows; i++) {
        top_row *r = &t->rows[t->n_rows];
        if (c->out[i].ids)
            continue;
        r->want = &c->wants[i];
        r->in = (const float *)c->x->data + (size_t)i * w->info.n_in;
        r->y = (float *)c->y->data + (size_t)i * n_out;
        at[t->n_rows] = i;
        t->n_rows += prepare(w, t, r, &used);
    }
    if (t->n_rows == 0)
        return;
    size_t n_x = bnet_top_bound(be, w, t);
    top_left left = bnet_top_exact(be, w, t);
    if (t->copy)
        bnet_cpu_copy_left(w, n_x, left.n_rows, left.too_many);
    for (int r = 0; r < t->n_rows; r++)
        if (t->rows[r].served)
            c->out[at[r]] =
                (bnet_top){top_ids(&t->rows[r]), t->rows[r].y + top_list_cap(w), t->rows[r].n_ids};
}

void bnet_cpu_top(bnet_backend *b, const bnet_weight *w, bnet_buffer *x, int n_rows,
                  const bnet_top_want *wants, bnet_buffer *y, bnet_buffer *scratch, bnet_top *out)
{
    cpu_backend *be = (cpu_backend *)b;
    const top_call c = {x, y, n_rows, wants, out};
    top_work t = {.n_rows = 0};
    size_t n_scanned = 0;
    uintptr_t base = (uintptr_t)scratch->data;
    for (int i = 0; i < n_rows; i++) {
        out[i] = (bnet_top){0};
        n_scanned += wants[i].k > 0;
    }
    if (!w->head || !w->head->scan)
        return;
    lay_out(be, w, (uint8_t *)(base + (BNET_HEAD_ALIGN - base % BNET_HEAD_ALIGN)), &t);
    t.copy = bnet_cpu_copy_for(be, w, n_scanned);
    if (t.copy)
        serve_left(be, w, &c, &t);
    t.copy = NULL;
    serve_left(be, w, &c, &t); /* all, or those of which the copy leaves too many rows */
}
