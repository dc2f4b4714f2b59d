/* special.c - finding special tokens: one at a given place by a sorted list, narrowed byte by byte;
 * all of a text by an automaton (Aho and Corasick) that reads it from its end. Backwards, because
 * the states then begin where the token would: the longest token at each place is known in one
 * pass, whatever tokens a file has. */
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

/* ---- the automaton ---- */

static int by_end(const void *pa, const void *pb)
{
    const bnet_special *a = pa, *b = pb;
    for (uint32_t i = 1; i <= a->n && i <= b->n; i++) {
        int order = (int)(unsigned char)a->text[a->n - i] - (int)(unsigned char)b->text[b->n - i];
        if (order)
            return order;
    }
    return (a->n > b->n) - (a->n < b->n);
}

/* 0: none. */
static uint32_t child_of(const bnet_specials *s, uint32_t node, unsigned char c)
{
    uint32_t lo = s->nodes[node].child, end = lo + s->nodes[node].n_children, hi = end;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (s->nodes[mid].byte < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < end && s->nodes[lo].byte == c ? lo : 0;
}

static uint32_t step(const bnet_specials *s, uint32_t node, unsigned char c)
{
    for (; node; node = s->nodes[node].fail) {
        uint32_t child = child_of(s, node, c);
        if (child)
            return child;
    }
    return s->root[c];
}

/* Gives the node its children, at the end of the nodes. Until then .all and .user hold the range of
 * s->reversed whose texts end with the node's `depth` bytes. Returns the number of nodes. */
static uint32_t add_children(bnet_specials *s, uint32_t node, uint32_t depth, uint32_t n_nodes)
{
    bnet_special_node *v = &s->nodes[node];
    const bnet_special *list = s->reversed;
    uint32_t lo = v->all, end = v->user, fail = v->fail;
    v->all = node ? s->nodes[fail].all : 0;
    v->user = node ? s->nodes[fail].user : 0;
    v->child = n_nodes;
    if (lo < end && list[lo].n == depth) {
        v->all = ++lo;
        v->user = list[lo - 1].user ? lo : v->user;
    }
    for (uint32_t hi; lo < end; lo = hi) {
        unsigned char c = (unsigned char)list[lo].text[list[lo].n - depth - 1];
        for (hi = lo + 1; hi < end; hi++)
            if ((unsigned char)list[hi].text[list[hi].n - depth - 1] != c)
                break;
        s->nodes[n_nodes] = (bnet_special_node){
            .fail = node ? step(s, fail, c) : 0, .all = lo, .user = hi, .byte = c};
        if (!node)
            s->root[c] = n_nodes;
        v->n_children++;
        n_nodes++;
    }
    return n_nodes;
}

static bool make_automaton(bnet_specials *s)
{
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < s->n; i++)
        n_bytes += s->list[i].n;
    s->reversed = bnet_calloc(s->n, sizeof *s->reversed);
    s->nodes = bnet_calloc((size_t)n_bytes + 1, sizeof *s->nodes);
    if (!s->reversed || !s->nodes)
        return false;
    if (s->n)
        memcpy(s->reversed, s->list, s->n * sizeof *s->list);
    qsort(s->reversed, s->n, sizeof *s->reversed, by_end);
    s->nodes[0].user = (uint32_t)s->n;
    uint32_t n_nodes = 1, node = 0;
    for (uint32_t depth = 0; node < n_nodes; depth++) /* level by level */
        for (uint32_t level_end = n_nodes; node < level_end; node++)
            n_nodes = add_children(s, node, depth, n_nodes);
    return true;
}

bool bnet_special_scan(const bnet_tokenizer *t, const char *text, size_t n, bool all,
                       bnet_scratch *scratch, bnet_special_hits *hits)
{
    const bnet_specials *s = &t->specials;
    uint32_t node = 0;
    for (size_t at = n; at-- > 0;) {
        if (at % BNET_ASK_EVERY == 0 && !bnet_scratch_go_on(scratch, BNET_ASK_EVERY))
            return false;
        node = step(s, node, (unsigned char)text[at]);
        uint32_t found = all ? s->nodes[node].all : s->nodes[node].user;
        if (!found)
            continue;
        if (!bnet_grow(&hits->data, &hits->cap, hits->n + 1, sizeof *hits->data))
            return false;
        hits->data[hits->n++] = (bnet_special_hit){(uint32_t)at, found - 1};
    }
    return true;
}

/* ---- opening ---- */

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
    return make_automaton(s) ? BITNET_OK : bnet_no_memory(err, "special tokens");
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
