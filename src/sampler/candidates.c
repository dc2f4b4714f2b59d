/* candidates.c - two heaps in one array: worst on top while candidates are offered, best on top
 * while they are taken. */
#include "sampler/candidates.h"

/* Moves c[i] down until nothing below belongs above it. best_on_top false: the worst is on top. */
static inline void sift_down(bnet_candidate *c, size_t n, size_t i, bool best_on_top)
{
    bnet_candidate moving = c[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && bnet_better(&c[child + 1], &c[child]) == best_on_top)
            child++;
        if (bnet_better(&c[child], &moving) != best_on_top)
            break;
        c[i] = c[child];
    }
    c[i] = moving;
}

static void heapify(bnet_candidate *c, size_t n, bool best_on_top)
{
    for (size_t i = n / 2; i-- > 0;)
        sift_down(c, n, i, best_on_top);
}

void bnet_candidates_offer(bnet_candidates *h, size_t k, bnet_candidate fresh)
{
    if (h->n < k) {
        h->c[h->n++] = fresh;
        if (h->n == k)
            heapify(h->c, k, false);
    } else if (bnet_better(&fresh, &h->c[0])) {
        h->c[0] = fresh;
        sift_down(h->c, k, 0, false);
    }
}

void bnet_candidates_restart(bnet_candidates *h)
{
    h->n_sorted = 0;
    heapify(h->c, h->n, true);
}

const bnet_candidate *bnet_candidates_nth(bnet_candidates *h, size_t i)
{
    while (h->n_sorted <= i) {
        size_t last = h->n - ++h->n_sorted;
        bnet_candidate top = h->c[0];
        h->c[0] = h->c[last];
        h->c[last] = top;
        sift_down(h->c, last, 0, true);
    }
    return &h->c[h->n - 1 - i];
}

void bnet_candidates_by_id(bnet_candidates *h)
{
    for (size_t i = 0; i < h->n; i++)
        h->c[i].key = (float)h->c[i].id; /* exact */
    bnet_candidates_restart(h);
    if (h->n > 0)
        bnet_candidates_nth(h, h->n - 1); /* largest id last */
}
