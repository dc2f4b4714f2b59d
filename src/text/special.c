/* special.c - finding special tokens in running text: a sorted list, narrowed byte by byte, entered
 * by first byte. */
#include "text/vocab.h"

#include <stdlib.h>

/* By text; among equal texts the user-defined one first (it is always found), then the lower id. */
static int by_text(const void *pa, const void *pb)
{
    const bnet_special *a = pa, *b = pb;
    int order = memcmp(a->text, b->text, BNET_MIN(a->n, b->n));
    if (order == 0)
        order = (a->n > b->n) - (a->n < b->n);
    if (order == 0)
        order = (int)b->user - (int)a->user;
    return order ? order : (a->id > b->id) - (a->id < b->id);
}

static bool wanted(const bnet_tokenizer *t, size_t id)
{
    bnet_token_type type = bnet_type_of(t, id);
    return (bnet_type_special(type) || type == BNET_TOKEN_USER) &&
           bnet_text_at(&t->tokens, id).n > 0;
}

static void drop_duplicates(bnet_specials *s)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->n; i++) {
        const bnet_special *last = &s->list[kept ? kept - 1 : 0];
        if (kept && last->n == s->list[i].n && memcmp(last->text, s->list[i].text, last->n) == 0)
            continue;
        s->n_user += s->list[i].user;
        s->list[kept++] = s->list[i];
    }
    s->n = kept;
}

bitnet_status bnet_specials_open(bnet_tokenizer *t, bitnet_error *err)
{
    bnet_specials *s = &t->specials;
    size_t n = 0;
    for (size_t i = 0; i < t->tokens.n; i++)
        n += wanted(t, i);
    if (!(s->list = bnet_calloc(n, sizeof *s->list)))
        return bnet_no_memory(err, "special tokens");
    for (size_t i = 0; i < t->tokens.n; i++) {
        if (!wanted(t, i))
            continue;
        bnet_span text = bnet_text_at(&t->tokens, i);
        s->list[s->n++] = (bnet_special){text.data, (uint32_t)text.n, (int32_t)i,
                                         bnet_type_of(t, i) == BNET_TOKEN_USER};
    }
    qsort(s->list, s->n, sizeof *s->list, by_text);
    drop_duplicates(s);
    for (size_t i = 0; i < s->n; i++)
        s->first[(unsigned char)s->list[i].text[0] + 1]++;
    for (int b = 0; b < 256; b++)
        s->first[b + 1] += s->first[b];
    return BITNET_OK;
}

/* First of list[lo, hi) whose byte k is at least c (all have more than k bytes and agree before
 * it). */
static size_t lower_bound(const bnet_special *list, size_t lo, size_t hi, size_t k, unsigned c)
{
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if ((unsigned char)list[mid].text[k] < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

size_t bnet_special_match(const bnet_tokenizer *t, const char *s, size_t n, bool all, int32_t *id)
{
    const bnet_special *list = t->specials.list;
    size_t best = 0;
    if (n == 0)
        return 0;
    unsigned c = (unsigned char)s[0];
    size_t lo = t->specials.first[c], hi = t->specials.first[c + 1];
    for (size_t k = 1; lo < hi; k++) { /* list[lo, hi) begin with s[0 .. k) */
        if (list[lo].n == k) {
            if (all || list[lo].user) {
                best = k;
                *id = list[lo].id;
            }
            lo++;
        }
        if (k == n)
            break;
        c = (unsigned char)s[k];
        lo = lower_bound(list, lo, hi, k, c);
        hi = lower_bound(list, lo, hi, k, c + 1);
    }
    return best;
}

int32_t bnet_special_find(const bnet_tokenizer *t, const char *text, size_t n)
{
    int32_t id = -1;
    return bnet_special_match(t, text, n, true, &id) == n && n ? id : -1;
}
