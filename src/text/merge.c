/* merge.c - joining adjacent symbols by rank.
 *
 * Invariants: live symbols cover the scratch text in order; a heap entry whose lengths no longer
 * fit its symbols is stale and skipped; at most two entries are added per join, so the heap never
 * exceeds twice the symbols. */
#include "text/merge.h"

void bnet_scratch_free(bnet_scratch *s)
{
    bnet_str_free(&s->text);
    bnet_free(s->symbols);
    bnet_free(s->heap);
    memset(s, 0, sizeof *s);
}

bitnet_status bnet_scratch_fail(const bnet_scratch *s, bitnet_error *err)
{
    return s->cancelled ? bnet_fail(err, BITNET_CANCELLED, "tokenize: cancelled")
                        : bnet_no_memory(err, "token ids");
}

bool bnet_symbol_add(bnet_scratch *s, uint32_t n)
{
    if (!bnet_scratch_go_on(s, 1) ||
        (s->n == s->cap && !bnet_grow(&s->symbols, &s->cap, s->n + 1, sizeof *s->symbols)))
        return false;
    uint32_t i = (uint32_t)s->n, at = BNET_ROOM;
    if (i) {
        at = s->symbols[i - 1].at + s->symbols[i - 1].n;
        s->symbols[i - 1].next = i;
    }
    s->symbols[i] = (bnet_symbol){at, n, i ? i - 1 : BNET_NO_SYMBOL, BNET_NO_SYMBOL};
    s->n++;
    return true;
}

static void sift_down(bnet_pair *heap, size_t n, size_t i)
{
    bnet_pair moving = heap[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1].order < heap[child].order)
            child++;
        if (moving.order <= heap[child].order)
            break;
        heap[i] = heap[child];
    }
    heap[i] = moving;
}

static void sift_up(bnet_pair *heap, size_t i)
{
    bnet_pair moving = heap[i];
    for (size_t parent; i && moving.order < heap[parent = (i - 1) / 2].order; i = parent)
        heap[i] = heap[parent];
    heap[i] = moving;
}

/* Appends the pair that begins at symbol `left`, if it may be joined; the caller restores the heap
 * order. */
static bool add_pair(bnet_scratch *s, uint32_t left, bnet_pair_fn pair, const void *owner)
{
    const bnet_symbol *a = &s->symbols[left];
    uint32_t rank;
    if (a->next == BNET_NO_SYMBOL)
        return true;
    const bnet_symbol *b = &s->symbols[a->next];
    if (!pair(owner, s->text.data + a->at, a->n, b->n, &rank))
        return true;
    if (s->n_heap == s->cap_heap &&
        !bnet_grow(&s->heap, &s->cap_heap, s->n_heap + 1, sizeof *s->heap))
        return false;
    s->heap[s->n_heap++] = (bnet_pair){(uint64_t)rank << 32 | left, a->n, b->n};
    return true;
}

static bool push_pair(bnet_scratch *s, uint32_t left, bnet_pair_fn pair, const void *owner)
{
    size_t before = s->n_heap;
    if (!add_pair(s, left, pair, owner))
        return false;
    if (s->n_heap > before)
        sift_up(s->heap, before);
    return true;
}

static bnet_pair pop(bnet_scratch *s)
{
    bnet_pair top = s->heap[0];
    s->heap[0] = s->heap[--s->n_heap];
    if (s->n_heap > 1)
        sift_down(s->heap, s->n_heap, 0);
    return top;
}

static void join(bnet_scratch *s, bnet_symbol *a)
{
    bnet_symbol *b = &s->symbols[a->next];
    a->n += b->n;
    b->n = 0;
    if (b->next != BNET_NO_SYMBOL)
        s->symbols[b->next].prev = (uint32_t)(a - s->symbols);
    a->next = b->next;
}

bool bnet_merge(bnet_scratch *s, bnet_pair_fn pair, const void *owner)
{
    s->n_heap = 0;
    for (uint32_t i = 0; i + 1 < s->n; i++)
        if (!bnet_scratch_go_on(s, 1) || !add_pair(s, i, pair, owner))
            return false;
    for (size_t i = s->n_heap / 2; i-- > 0;) {
        if (!bnet_scratch_go_on(s, 1))
            return false;
        sift_down(s->heap, s->n_heap, i);
    }
    while (s->n_heap) {
        if (!bnet_scratch_go_on(s, 1))
            return false;
        bnet_pair p = pop(s);
        uint32_t left = (uint32_t)p.order;
        bnet_symbol *a = &s->symbols[left];
        if (a->n != p.n_left || a->next == BNET_NO_SYMBOL || s->symbols[a->next].n != p.n_right)
            continue;
        join(s, a);
        if (!push_pair(s, left, pair, owner) ||
            (a->prev != BNET_NO_SYMBOL && !push_pair(s, a->prev, pair, owner)))
            return false;
    }
    return true;
}
